"""Messages of a job priced link by link: its groups at once on the explicit topology of its accelerators, faults
included. The library's launch, steps and protocol are those of the closed form, so both agree where nothing contends.
"""

from dataclasses import dataclass, replace
from functools import lru_cache
from math import floor, log
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rapid_llm.errors import InfeasibleError, InputError
from rapid_llm.hardware import System
from rapid_llm.hardware.health import Fault
from rapid_llm.network.candidates import Candidate, candidates
from rapid_llm.network.collectives import CollectivePrices
from rapid_llm.network.connected import parts, severed
from rapid_llm.network.contention import (
    RUNS,
    Contended,
    contend,
    contended,
    lies_in_whole_units,
    on_links,
    with_library,
)
from rapid_llm.network.fabric import Fabric
from rapid_llm.network.faults import apply
from rapid_llm.network.groups import Members, members_of
from rapid_llm.network.lines import Way, bare_line
from rapid_llm.network.replan import Plan, Recovery, recover
from rapid_llm.network.tasks import Result
from rapid_llm.network.technologies import Library
from rapid_llm.network.topology import Topology

if TYPE_CHECKING:
    from rapid_llm.network.background import Background
    from rapid_llm.network.routing import Table
ANCHOR: Final = 16.0
"""Ratio between the message sizes that are simulated; others lie between two of them."""


@dataclass(frozen=True, slots=True)
class Links:
    """The part of a system's links that a job uses: those of its first ``accelerators``, and their faults."""

    accelerators: int
    faults: tuple[Fault, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Interconnect:
    """The links of a job with their faults, without them, and with degraded links left out of the routes (None where no
    link is degraded). ``part`` of each accelerator: accelerators of one part can reach each other.
    """

    topology: Topology
    healthy: Topology
    avoiding: Topology | None
    part: NDArray[np.int64]

    @property
    def down(self) -> int:
        """Links that are down; both directions count once."""
        top = self.topology
        low, high = np.minimum(top.source, top.target), np.maximum(top.source, top.target)
        return len(np.unique((low * top.nodes + high)[top.health <= 0]))


@dataclass(frozen=True, slots=True)
class Message:
    """A collective of all groups of an axis: operation, bytes, ranks of a group and stride between them."""

    op: str
    size: float
    ranks: int
    stride: int

    @property
    def empty(self) -> bool:
        """Whether there is nothing to move, or nobody to move it to."""
        return self.ranks < 2 or self.size <= 0

    @property
    def near(self) -> "Message":
        """The same of the nearest size that is simulated."""
        return replace(self, size=ANCHOR ** round(log(self.size, ANCHOR)))


@dataclass(frozen=True, slots=True)
class Carrier:
    """What moves messages: the links of a job, its fabric, the library that chooses how, and one for ``small``
    all-reduces within a node."""

    net: Interconnect
    fabric: Fabric
    library: str | Library
    small: str | Library | None = None


@lru_cache(maxsize=16)
def interconnect(system: System, links: Links) -> Interconnect:
    """The explicit topology of a job. InputError for a fault at a place that the job does not have."""
    healthy = Topology.of(system, links.accelerators)
    faulted = apply(healthy, links.faults) if links.faults else healthy
    degraded = (faulted.health > 0) & (faulted.health < 1)
    avoiding = faulted.with_health(np.where(degraded, 0.0, faulted.health)) if degraded.any() else None
    return Interconnect(faulted, healthy, avoiding, parts(faulted, faulted.health > 0)[faulted.accelerators])


def price_flow(
    op: str, size_bytes: ArrayLike, ranks: ArrayLike, stride: ArrayLike, carrier: Carrier, *, axis: str = ""
) -> CollectivePrices:
    """Price collectives as ``collectives.price`` does, link by link; the slowest group of each decides.

    InfeasibleError where faults cut a group of ``axis`` apart, naming two of its ranks.
    """
    size, n, step = np.broadcast_arrays(np.asarray(size_bytes, np.float64), ranks, stride)
    columns = (column.ravel().tolist() for column in (size, n.astype(int), step.astype(int)))
    messages = [Message(op, *row) for row in zip(*columns, strict=True)]
    found = {message: _price(message, carrier, axis) for message in dict.fromkeys(messages)}
    seconds, algorithm, wire, nodes = zip(*map(found.get, messages), strict=True) if messages else ((),) * 4
    return CollectivePrices(
        np.array(seconds, np.float64).reshape(size.shape),
        np.array(algorithm, np.int8).reshape(size.shape),
        np.array(wire, np.float64).reshape(size.shape),
        np.array(nodes, np.int64).reshape(size.shape),
    )


_Price = tuple[float, int, float, int]


def _price(message: Message, carrier: Carrier, axis: str) -> _Price:
    if message.empty:
        return 0.0, 0, 0.0, 1
    whole_groups(carrier.net, members_of(len(carrier.net.part), message.ranks, message.stride), axis)
    way, seconds = chosen(message, carrier)
    return seconds, way.way.template.algorithm, way.sent, way.way.group.nodes


def whole_groups(net: Interconnect, members: Members, axis: str) -> None:
    """InfeasibleError where the members of a group do not all reach each other."""
    apart = net.part[members] != net.part[members[:, :1]]
    if not apart.any():
        return
    group, down = int(np.flatnonzero(apart.any(axis=1))[0]), net.down
    raise InfeasibleError(
        f"no live path joins {severed(net.topology, net.topology.health > 0)}, with {down} "
        f"link{'' if down == 1 else 's'} down: {f'{axis} ' if axis else ''}group {group} spans them. "
        "Try another placement or fewer faults.",
        field="faults",
    )


@lru_cache(maxsize=4096)
def chosen(message: Message, carrier: Carrier) -> tuple[Candidate, float]:
    """The fastest way by closed form that the engine runs and the live links carry, and its seconds."""
    last, size = None, message.size
    for one in candidates(
        message.op, size, message.ranks, message.stride,
        fabric=carrier.fabric, library=carrier.library, small=carrier.small,
    ):  # fmt: skip
        if one.algorithm not in RUNS or not lies_in_whole_units(one.way):
            continue
        try:
            excess = _between(one.way, size, carrier.net)
        except InfeasibleError as error:  # a reducing switch that is down: libraries fall back
            last = error
            continue
        return one, with_library(one.way, size, bare_line(one.way), excess)
    if last is not None:
        raise last
    raise InputError(f"the flow engine runs no algorithm of this library for {message.op}.", field="network")


def _between(way: Way, size: float, net: Interconnect) -> float:
    """What links take beyond the closed form (s), interpolated between the next smaller and larger sizes that are
    simulated. The time of a set of flows is piecewise linear and convex in their size, so it is at most the chord
    between them.
    """
    low = _anchor(size)
    key = _bare(way)
    first, second = (_excess(key, one, net) for one in (low, low * ANCHOR))
    return first + (second - first) * (size - low) / (low * ANCHOR - low)


def _excess(way: Way, size: float, net: Interconnect) -> float:
    """What links take beyond the closed form at one size (s), under the faster policy of ``under_faults``."""
    return _planned(way, size, net).seconds - bare_line(way).seconds(size)


def plan_of(way: Way, size: float, net: Interconnect) -> Plan:
    """How all groups of a way run on the links of a job, under the faster policy after faults."""
    return _planned(_bare(way), size, net).plan


def _bare(way: Way) -> Way:
    """A way without the library's costs, for the links alone."""
    return replace(way, protocol="", lines=())


@dataclass(frozen=True, slots=True, eq=False)
class Planned:
    """A way on the links, without its library's costs: its plan, and seconds under the faster policy, under each
    policy, and without faults.
    """

    plan: Plan
    seconds: float
    detour: float
    replan: float
    whole: float


@lru_cache(maxsize=4096)
def _planned(way: Way, size: float, net: Interconnect) -> Planned:
    """How a way runs on the links without its library. Never faster than without faults."""
    members = members_of(len(net.part), way.group.bounds[-1], way.group.stride)
    whole = on_links(way, size, net.healthy, members).seconds
    if net.topology is net.healthy:
        return Planned(Plan(words="", members=members), whole, whole, whole, whole)
    found = _recovered(way, size, net, members, whole)
    detour, replan = (max(whole, faulted.seconds) for faulted in (found.detour, found.replan))
    return Planned(found.plan, min(detour, replan), detour, replan, whole)


@dataclass(frozen=True, slots=True)
class Policy:
    """How a message goes on after faults: ``name`` is detour or replan, ``plan`` what re-planning changes, and how much
    longer than healthy links the links take under it, and under a detour.
    """

    name: str
    plan: str
    slowdown: float
    detour_slowdown: float


def policy(message: Message, carrier: Carrier) -> Policy | None:
    """The faster policy of a message that ``price_flow`` priced; None where faults do not slow it down."""
    if message.empty or carrier.net.topology is carrier.net.healthy:
        return None
    way = chosen(message, carrier)[0].way
    found = _planned(_bare(way), _anchor(message.size), carrier.net)
    if found.seconds <= found.whole * SLOWER:
        return None
    again = found.replan < found.detour
    return Policy(
        "replan" if again else "detour",
        found.plan.words if again else "",
        found.seconds / found.whole,
        found.detour / found.whole,
    )


SLOWER: Final = 1.001
"""A message that faults slow down by less counts as unaffected."""


def _anchor(size: float) -> float:
    """The size below ``size`` that is simulated."""
    return ANCHOR ** floor(log(size, ANCHOR))


@dataclass(frozen=True, slots=True, eq=False)
class Beside:
    """What a collective shares its links with, and how its links are chosen: a routing (a name, or a table), and other
    flows.
    """

    policy: "str | Table" = "auto"
    background: "Background | None" = None


NOTHING: Final = Beside()


def _recovered(  # noqa: PLR0917
    way: Way, size: float, net: Interconnect, members: Members, whole: float, beside: Beside = NOTHING
) -> Recovery:
    """Both policies for one way to run a collective, which takes ``whole`` seconds on healthy links alone."""
    group, phases = way.group, way.template.phases
    nodes = group.inside == 1 and len(group.bounds) > 1
    wide = any(p.pattern in ("tree", "chain") or (p.pattern == "ring" and np.diff(p.levels) > 1) for p in phases)

    def run(plan: Plan) -> Result:
        return on_links(
            way, size, net.topology, plan.members, lanes=plan.lanes, routed=plan.routed, fan=plan.fan,
            policy=beside.policy, background=beside.background,
        )  # fmt: skip

    return recover(
        run, net.topology, net.healthy, members, group.bounds[0] if nodes else 1,
        avoiding=net.avoiding, rails=nodes and wide, order=phases[0].pattern in ("ring", "relay"),
        whole=whole,
    )  # fmt: skip


@dataclass(frozen=True, slots=True, eq=False)
class Faulted:
    """A collective under faults: on the links under the faster policy; seconds of each, and what re-planning does."""

    best: Contended
    detour: float
    replan: float
    plan: str


def under_faults(
    way: Candidate, size: float, net: Interconnect, members: Members | None = None, beside: Beside = NOTHING
) -> Faulted:
    """One way to run a collective on the links of a job, its groups (``members``, as of ``contend``) at once. Detour:
    the routes of the healthy network, other routes where links are down. Re-plan: around degraded links, without
    degraded rails, or in another order, whichever is fastest. Never faster than without faults. InfeasibleError where
    no live path joins two ranks.
    """
    group = way.way.group
    if members is None:
        members = np.arange(group.stride)[:, None] + group.stride * np.arange(group.bounds[-1])
    whole_groups(net, members, "")
    whole = contend(way, size, net.healthy, members=members, policy=beside.policy, background=beside.background)
    if net.topology is net.healthy:
        return Faulted(whole, whole.seconds, whole.seconds, "")
    found = _recovered(way.way, size, net, members, whole.flow, beside)
    one, other = (
        replace(faulted, seconds=max(faulted.seconds, whole.seconds))
        for faulted in (contended(way.way, size, net.topology, run) for run in (found.detour, found.replan))
    )
    return Faulted(other if other.seconds < one.seconds else one, one.seconds, other.seconds, found.plan.words)
