"""Every way to run a collective: algorithms and protocols of a library as lines ``a + b S + c sqrt(S)``."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from math import log2, sqrt
from typing import Final

import numpy as np
from numpy.typing import NDArray

from rapid_llm.network.fabric import TORUS_SIDE
from rapid_llm.network.groups import Group, by_dimension
from rapid_llm.network.regimes import Line, channels_of, copied, regimes, to_a_peer
from rapid_llm.network.technologies import Library, LinkCost, Protocol
from rapid_llm.network.templates import ALGORITHMS, BUILDERS, Bounds, Phase, Template, hops, loads, peers

Build = Callable[[str, Bounds, int], Template]
Builders = Mapping[str, tuple[Build, tuple[str, ...]]]


@dataclass(frozen=True, slots=True)
class Way:
    """One algorithm under one protocol of a library; the lower of its ``lines`` counts."""

    algorithm: str
    protocol: str
    template: Template
    group: Group
    lines: tuple[Line, ...]


def ways(op: str, group: Group, library: Library, builders: Builders = BUILDERS) -> Iterator[Way]:
    """Every algorithm and protocol of a library that a group can run."""
    off = {label for tier in group.tiers for label in library.cost(tier.link, tier.scope).without}
    for label, protocol in library.protocols.items():
        for name in protocol.algorithms if label not in off else ():
            build, ops = builders[name]
            if op in ops and _runs(name, group):
                place = by_dimension(group) if name == "orders" else group
                template = build(op, place.bounds, place.inside)
                costs = [library.cost(tier.link, tier.scope) for tier in place.tiers]
                line = partial(_line, op, template, place, protocol=protocol)
                yield Way(name, label, template, place, regimes(op, template, place, costs, protocol, library, line))


NEEDS: Final = {
    "nvls": "one node whose switch reduces",
    "nvls-tree": "several nodes whose switches reduce",
    "tree": "more than one tier, or one rank a node",
    "hierarchical": "more than one tier",
    "orders": "more than one tier, or a torus",
    "halving-doubling": "powers of two on every tier",
    "pxn": "several nodes of several ranks",
    "sharp": "a network whose switches reduce (fabric.in_network_reduction)",
    "one-shot": "one tier",
    "two-shot": "one tier",
}
"""What an algorithm wants of the tiers of a group, in words; ``_runs`` decides."""


def _runs(algorithm: str, group: Group) -> bool:
    """Whether the tiers of a group offer what an algorithm needs."""
    levels, inner = len(group.bounds), group.tiers[0]
    return {
        "nvls": levels == 1 and inner.in_network_reduction,
        "nvls-tree": levels > 1 and inner.in_network_reduction,
        "tree": levels > 1 or inner.scope == "inter",
        "hierarchical": levels > 1,
        "orders": levels > 1 or inner.kind == "torus",
        "halving-doubling": all(bound & (bound - 1) == 0 for bound in group.bounds),
        "pxn": levels > 1 and inner.scope == "intra" and group.tiers[-1].scope == "inter",
        "sharp": group.tiers[-1].scope == "inter" and group.tiers[-1].in_network_reduction,
        "one-shot": levels == 1,
        "two-shot": levels == 1,
    }.get(algorithm, True)


def _line(op: str, template: Template, group: Group, costs: list[LinkCost], protocol: Protocol) -> Line:
    """One candidate: hops x (latency + step), the busiest level of each phase, and the ramp of its slices."""
    once = once_per_collective(protocol, costs)
    hop = np.array(
        [t.latency + c.step * protocol.step + c.fence * protocol.fence for t, c in zip(group.tiers, costs, strict=True)]
    )
    crossed = np.array([hops(phase, group.bounds) for phase in template.phases])
    loaded = np.array([port_loads(loads(phase, group.bounds), phase, group) for phase in template.phases])
    share = protocol.bandwidth * (protocol.tree if ALGORITHMS[template.algorithm] == "tree" else 1)
    busy = loaded / port_rates(template, group, costs) / share
    waits = crossed @ hop + np.array([detours(phase, group) for phase in template.phases])
    for row, phase in enumerate(template.phases):
        if phase.pattern == "direct":
            others, level = peers(phase, group.bounds), phase.levels[1] - 1
            beside = ALGORITHMS[template.algorithm] == "direct" and group.tiers[level].scope == "intra"
            waits[row] += costs[level].peer * (side_by_side(others) if beside else others)
    stages = busy.reshape(-1, template.lanes, len(costs)).sum(axis=1)
    busiest = float(stages.sum(axis=0).max() if template.pipelined else stages.max(axis=1).sum())
    slowest = int(busy.sum(axis=0).argmax())

    def line(fixed: float, per_byte: float) -> Line:
        sliced = 0.0 if template.phases[0].pattern == "neighbour" else protocol.ramp * costs[slowest].slice
        root = 2 * sqrt(sliced * per_byte)  # best slicing of per_byte S; a send is cut once, into its channels
        if channels_of(template, group, costs) is None:
            per_byte = _throttled(per_byte, template, group, protocol)
        return Line(fixed, per_byte + copied(op, group, costs[0]), root)

    fixed = once + float(waits.reshape(-1, template.lanes).max(axis=1).sum())
    if template.phases[0].pattern == "neighbour":  # the farther or the slower of two neighbours
        return replace(line(fixed, float(busy[0, -1])), floor=line(once + float(hop[slowest]), busiest))
    if not _mixed(template):
        return line(fixed, busiest)
    edges = crossed / crossed.sum(axis=1, keepdims=True)
    busy[:, group.inside :] = np.maximum.accumulate(busy[:, group.inside :], axis=1)  # far sends leave by the same card
    moving, floor = float((edges * busy).sum()), line(once + float(hop[slowest]), busiest)
    spare = _spare(crossed.sum(axis=0), len(crossed) * group.bounds[-1], group.bounds, slowest)
    if not spare.any():
        return replace(line(fixed, moving), floor=floor)
    sends = busy[0] / crossed[0].sum()
    held = line(fixed - float(spare @ hop), moving + float(spare @ (sends[slowest] - sends)))
    return replace(line(fixed, moving), floor=replace(held, floor=floor))


def _spare(crossed: NDArray[np.float64], edges: int, bounds: Bounds, slowest: int) -> NDArray[np.float64]:
    """Hops by level of the latest datum on a ring that lead it to no further edge of the ``slowest`` level: all but
    those through the units between the first such edge and the last; the ring has ``edges`` in all its rounds.
    """
    spare = np.zeros(len(bounds))
    for level in range(slowest):
        unit, below = bounds[slowest - 1], bounds[level - 1] if level else 1
        within = unit / below - unit / bounds[level]
        spare[level] = max(0.0, crossed[level] - (edges / unit - 1) * within)
    return spare


def detours(phase: Phase, group: Group) -> float:
    """Seconds that the links of a phase take beyond one for each hop: between ranks far apart on rings and tori, over
    the way back of an open chain, and to another rail.
    """
    low, high = phase.levels
    tier, below = group.tiers[high - 1], group.bounds[high - 2] if high > 1 else 1
    members = group.bounds[high - 1] // below
    if phase.pattern == "ring" and high - low == 1:
        return phase.steps * (tier.ring_hops(members, group.stride * below) - 1) * tier.latency
    if phase.pattern not in ("direct", "neighbour"):
        return 0.0
    far = 1 if phase.pattern == "neighbour" else tier.farthest(members, group.stride * below)
    rails = group.stride * (group.bounds[low - 1] if low else 1) % group.node_span
    return (far - 1) * tier.latency + (tier.astray if rails else 0.0)


def _mixed(template: Template) -> bool:
    """Whether links of several levels form one ring.

    Its n blocks circulate: the latest makes its hops and transfers, spends those that lead to no further slow edge in
    the queue of the last one where that takes longer, or all rounds in that queue (longest paths of a max-plus system;
    Baccelli et al., Synchronization and Linearity, 1992, section 2.3).
    """
    return all(p.pattern == "ring" and p.levels[1] - p.levels[0] > 1 for p in template.phases)


def _throttled(per_byte: float, template: Template, group: Group, protocol: Protocol) -> float:
    """Seconds per byte of S once the threads of a channel are what limits."""
    one = to_a_peer(template, group)
    bounds = (one / rate for rate in (protocol.channel, protocol.far if group.nodes > 1 else None) if rate)
    return max(per_byte, *bounds, 0.0)


def side_by_side(others: float) -> float:
    """Peers of an exchange inside a node, in those that cost one after another: their messages share a kernel."""
    return log2(1 + others)


def once_per_collective(protocol: Protocol, costs: list[LinkCost]) -> float:
    """Seconds that a collective over these links pays once."""
    outer = costs[-1]
    flushed = outer.fence if outer.exchange is None else outer.exchange
    return max(c.launch for c in costs) + protocol.setup + flushed * protocol.exchange


def port_rates(template: Template, group: Group, costs: list[LinkCost]) -> NDArray[np.float64]:
    """B/s of one accelerator across each level, efficiency included."""
    rates = []
    for level, (tier, cost) in enumerate(zip(group.tiers, costs, strict=True)):
        below = group.bounds[level - 1] if level else 1
        reducing = level == 0 and ALGORITHMS[template.algorithm].startswith("nvls")
        share = cost.efficiency
        if reducing:
            share = cost.switch or share
        elif template.phases[0].pattern in ("direct", "neighbour"):
            share = cost.spread or share
        apart = group.stride * below
        if template.phases[0].pattern == "neighbour":  # only the last of a unit crosses it, over a port of its own
            crossing = min(group.stride, group.node_span)
            alone = tier.bandwidth * group.node_span / crossing if tier.port else tier.reach(2, apart)
            rates.append(min(alone, max(tier.port, tier.bandwidth) if tier.port else alone) * share)
            continue
        members = group.bounds[level] // below
        if tier.kind == "torus" and template.phases[0].pattern in ("ring", "relay"):  # one ring, both ways
            members = min(members, TORUS_SIDE)
        alone = template.phases[0].pattern == "relay" and len(group.bounds) == 1
        rates.append(
            (tier.chains(members) if alone and tier.kind == "full" else tier.reach(members, apart, group.stride))
            * share
        )
    return np.array(rates)


def port_loads(load: tuple[float, ...], phase: Phase, group: Group) -> list[float]:
    """Loads as the ports see them.

    Far traffic of an exchange passes the nearer network tiers too and repeats on every hop; units behind a shared
    bridge have one port, not one a rank.
    """
    seen = list(load)
    exchange = phase.pattern == "direct"
    for level in range(len(seen) - 1, -1, -1):
        tier = group.tiers[level]
        below = group.bounds[level - 1] if level else 1
        if level + 1 < len(seen) and tier.scope == "inter" and exchange:
            seen[level] += seen[level + 1]
        if exchange:
            seen[level] *= tier.exchange_hops(group.bounds[level] // below)
        if tier.kind == "shared" and phase.pattern != "neighbour":
            seen[level] *= below
    return seen
