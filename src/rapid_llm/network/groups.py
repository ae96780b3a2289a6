"""A group of ranks on the tiers of its fabric."""

from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from math import ceil, gcd
from operator import mul

import numpy as np
from numpy.typing import NDArray

from rapid_llm.errors import InputError
from rapid_llm.hardware.system import System
from rapid_llm.network.fabric import Fabric
from rapid_llm.network.tier import Tier

Members = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Group:
    """A group of ranks on its fabric: ``bounds`` (see templates) and the tier of each level; accelerators of a node.
    ``units``: how many units of each level a group touches.

    Groups are ``scattered`` where they straddle units at different places. The units of ``bounds`` are then what
    divides all of their parts: groups of 6 ranks on nodes of 8 lie as 6, 2 + 4 or 4 + 2, so they are treated as three
    units of two, of which two hops at most leave a node. ``fewest``: ranks of such a group in one unit of each level;
    ``job``: accelerators that groups fill; ``links``: the system, where its tiers are priced by what its links carry.
    """

    bounds: tuple[int, ...]
    tiers: tuple[Tier, ...]
    stride: int
    nodes: int
    node_span: int
    units: tuple[int, ...]
    fewest: tuple[int, ...]
    job: int
    scattered: bool = False
    links: System | None = None

    @property
    def crossings(self) -> tuple[int, ...] | None:
        """``units`` of a scattered group, where bounds do not say how many hops leave them."""
        return self.units if self.scattered else None

    @property
    def unlike(self) -> bool:
        """Whether its ranks, or those of groups beside it, lie differently: only then may sends share links in ways
        that a closed form does not follow.
        """
        chain = self.tiers[0].kind == "ring" and self.bounds[0] * self.stride < self.tiers[0].span
        return self.scattered or self.links is not None or chain

    @property
    def rails(self) -> int:
        """Channels of rings through full nodes and one that the group fills in part: as many as that node has ranks,
        each with a network card of its own (NCCL builds rings over cards that every node has); 0 for other groups.
        """
        alone = self.scattered and self.stride == 1 and self.job == self.bounds[-1] and self.inside == 1
        if not alone or len(self.tiers) < 2 or self.fewest[0] <= self.bounds[0]:
            return 0
        own = self.tiers[1].port <= self.tiers[1].bandwidth * 1.005
        return self.fewest[0] if own and all(tier.kind == "switch" for tier in self.tiers) else 0

    @property
    def off_rails(self) -> bool:
        """Whether the next rank on another node is on another rail."""
        within, apart = divmod(self.node_span, self.stride)
        if within == 0 or apart:
            return self.stride % self.node_span > 0
        return self.bounds[-1] % within > 0 < within % self.bounds[-1]

    @property
    def inside(self) -> int:
        """Levels that lie inside a node."""
        return sum(tier.scope == "intra" for tier in self.tiers)


def group_of(fabric: Fabric, ranks: int, stride: int) -> Group:
    """Nest a group in the tiers: a tier holds ``span / stride`` of its ranks. InputError where it does not fit."""
    if not fabric.tiers:
        raise InputError(
            f"'{fabric.name}' is one accelerator, which has nobody to talk to. Try a system, such as dgx-h100.",
            field="accelerators",
        )
    reach = fabric.tiers[-1].span if fabric.tiers else 1
    if ranks < 1 or stride < 1 or (ranks - 1) * stride >= reach:
        alone = all(tier.scope == "intra" for tier in fabric.tiers)
        connected = f"no network joins its nodes of {reach}" if alone else f"{reach} accelerators are connected"
        larger = "a system with one, such as fabric: {topology: leaf-spine}" if alone else "a larger system"
        raise InputError(
            f"a group of {ranks} ranks, {stride} apart, does not fit '{fabric.name}': {connected}. "
            f"Use fewer ranks or {larger}.",
            field="accelerators",
        )
    within_job = (ranks - 1) * stride < fabric.accelerators
    job = fabric.accelerators if within_job else min(ranks * stride, reach)
    if not _aligned(fabric, job, ranks, stride):
        return _scattered(fabric, job, ranks, stride)
    bounds: list[int] = []
    tiers: list[Tier] = []
    for tier in fabric.tiers:
        inside = min(ranks, max(1, tier.span // stride))
        if inside > (bounds[-1] if bounds else 1):
            bounds.append(inside)
            tiers.append(tier)
    if not bounds or bounds[-1] < ranks:
        bounds.append(ranks)
        tiers.append(fabric.tiers[-1])
    inside = min(ranks, max(1, fabric.node_span // stride))
    units = tuple(ceil(ranks / bound) for bound in bounds)
    filled, nodes = tuple(bounds), ceil(ranks / inside)
    links = fabric.links if any(tier.by_links for tier in tiers) else None
    return Group(filled, tuple(tiers), stride, nodes, fabric.node_span, units, filled, job, links=links)


def members_of(accelerators: int, ranks: int, stride: int) -> Members:
    """Accelerators of every group [groups, ranks] in a job of a number of accelerators, cut into groups of ``ranks``
    that are ``stride`` apart.
    """
    first = np.arange(accelerators)
    first = first[(first % (ranks * stride) < stride) & (first + (ranks - 1) * stride < accelerators)]
    return first[:, None] + stride * np.arange(ranks)


def _aligned(fabric: Fabric, job: int, ranks: int, stride: int) -> bool:
    """Whether every tier smaller than the job holds whole groups, or groups hold whole units of it."""
    for tier in fabric.tiers:
        within, apart = divmod(tier.span, stride)
        if tier.kind == "torus" or tier.span >= job or within == 0:
            continue
        if apart or (ranks % within and within % ranks):
            return False
    return True


def _scattered(fabric: Fabric, job: int, ranks: int, stride: int) -> Group:
    """A group that stands for those that straddle units: with the most units that any touches, and the greatest common
    divisor of all parts.
    """
    members = members_of(job, ranks, stride)
    rows: list[tuple[int, Tier, int, int]] = []
    nodes, before = 1, np.full(len(members), ranks)
    for tier in fabric.tiers:
        part, touched = _parts(members, min(tier.span, job))
        nodes = int(touched.max()) if tier.scope == "intra" else nodes
        if (touched < before).any():
            rows.append((gcd(*part.tolist()), tier, int(touched.max()), int(part.min())))
        before = touched
    bounds, tiers, units, fewest = zip(*rows, strict=True)
    span = fabric.node_span  # through a node whose links form a ring, groups that lie unlike pass unlike links
    links = fabric.links if any(tier.by_links or tier.kind == "ring" for tier in tiers) else None
    return Group(bounds, tiers, stride, nodes, span, units, fewest, job, scattered=True, links=links)


def _parts(members: Members, span: int) -> tuple[Members, Members]:
    """Ranks of each group in each unit of ``span`` accelerators, and how many units each group touches."""
    unit = members // span
    first = np.diff(unit, axis=1, prepend=-1) != 0
    return np.diff(np.append(np.flatnonzero(first.ravel()), members.size)), first.sum(axis=1)


def by_medium(group: Group, laps: int) -> Group:
    """A group with one level for each medium that its traffic crosses: every dimension of a torus that it lies along, a
    ring with links of its own; otherwise one for the inside of a node, and one for all of the network, which network
    cards share and which rings cross in ``laps``.
    """
    alone = group.tiers[0].kind == "torus" and len(group.tiers) == 1
    return _by_dimension(group) if alone else _network_as_one(group, 2 * laps)


def in_whole_units(group: Group, laps: int) -> Group:
    """A group whose network is one level where its ranks do not fill leaves."""
    return group if whole(group.bounds) else _network_as_one(group, laps)


def whole(bounds: tuple[int, ...]) -> bool:
    """Whether every unit is full."""
    return all(outer % inner == 0 for inner, outer in pairwise(bounds))


def _by_dimension(group: Group) -> Group:
    tier = group.tiers[0]
    sides = tier.sides(group.bounds[0])
    rates = tier.rates or (tier.bandwidth / tier.dimensions,) * tier.dimensions
    axes = tuple(
        replace(tier, name=f"{tier.name} axis {k + 1}", kind="axis", bandwidth=rate / (2 if side == 2 else 1))
        for k, (side, rate) in enumerate(zip(sides, rates, strict=False))
    )
    bounds = tuple(accumulate(sides, mul))
    units = tuple(bounds[-1] // bound for bound in bounds)
    return replace(group, bounds=bounds, tiers=axes, units=units, fewest=bounds)


def _network_as_one(group: Group, laps: int) -> Group:
    """The tiers between nodes as one, with the hops that the latest block on a ring of nodes makes: below a leaf, from
    leaf to leaf, and from pod to pod; over several ``laps`` it leaves out one hop of each lap, the nearest where it
    can.
    """
    inside, n = group.inside, group.bounds[-1]
    if len(group.bounds) - inside < 2:
        return group
    inner = group.bounds[inside - 1] if inside else 1
    near, far = group.tiers[inside], group.tiers[-1]
    hops = (group.units[inside - 1] if inside else n) - 1
    latency, bandwidth = near.latency, near.bandwidth
    above = zip(pairwise(group.tiers[inside:]), group.units[inside:], group.bounds[inside:], strict=False)
    for (below, tier), between, held in above:
        apart = laps * between - laps * between // (hops + 1)
        latency += (tier.latency - below.latency) * min(1.0, apart / (laps * hops))
        bandwidth = min(bandwidth, tier.bandwidth * max(1.0, held / inner))
    joined = replace(near, span=far.span, latency=latency, bandwidth=bandwidth)
    return replace(
        group,
        tiers=(*group.tiers[:inside], joined),
        units=(*group.units[:inside], 1),
        bounds=(*group.bounds[:inside], n),
        fewest=(*group.fewest[:inside], n),
    )
