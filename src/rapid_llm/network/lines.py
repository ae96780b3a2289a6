"""Every way to run a collective: algorithms and protocols of a library as lines ``a + b S + c sqrt(S)``."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from math import sqrt
from typing import Final

import numpy as np
from numpy.typing import NDArray

from rapid_llm.network.groups import Group, by_dimension
from rapid_llm.network.technologies import Library, LinkCost, Protocol
from rapid_llm.network.templates import ALGORITHMS, BUILDERS, Bounds, Phase, Template, hops, loads, peers

Build = Callable[[str, Bounds, int], Template]
Builders = Mapping[str, tuple[Build, tuple[str, ...]]]


@dataclass(frozen=True, slots=True)
class Line:
    """Seconds ``fixed + per_byte S + root sqrt(S)`` of one algorithm under one protocol."""

    fixed: float
    per_byte: float
    root: float

    def seconds(self, size: float) -> float:
        """Seconds of a message of ``size`` bytes."""
        return self.fixed + self.per_byte * size + self.root * sqrt(size)


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
    for label, protocol in library.protocols.items():
        for name in protocol.algorithms:
            build, ops = builders[name]
            if op in ops and _runs(name, group):
                place = by_dimension(group) if name == "orders" else group
                template = build(op, place.bounds, place.inside)
                line = _line(op, template, place, library, protocol)
                yield Way(name, label, template, place, _filling(op, template, place, protocol, line))


def _filling(op: str, template: Template, group: Group, protocol: Protocol, line: Line) -> tuple[Line, ...]:
    """The line with its first chunk on every hop: a steeper line while the chunks grow, a higher one beyond."""
    if op != "all_reduce" or group.nodes == 1 or not protocol.fill:
        return (line,)
    filled = protocol.fill * sum(sum(hops(phase, group.bounds)) for phase in template.phases)
    growing = replace(line, per_byte=line.per_byte + filled / protocol.chunk)
    return growing, replace(line, fixed=line.fixed + filled)


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


def _line(op: str, template: Template, group: Group, library: Library, protocol: Protocol) -> Line:
    """One candidate: hops x (latency + step), the busiest level of each phase, and the ramp of its slices."""
    costs = [library.cost(tier.link, tier.scope) for tier in group.tiers]
    rates = port_rates(template, group, costs)
    fixed = max(cost.launch for cost in costs) + protocol.setup + costs[-1].exchange * protocol.exchange
    busy = np.zeros((len(template.phases), len(costs)))
    waits = np.zeros(len(template.phases))
    for row, phase in enumerate(template.phases):
        for level, count in enumerate(hops(phase, group.bounds)):
            waits[row] += count * (group.tiers[level].latency + costs[level].step * protocol.step)
        busy[row] = np.array(port_loads(loads(phase, group.bounds), phase, group)) / rates
        if phase.pattern == "direct":
            waits[row] += costs[phase.levels[1] - 1].peer * peers(phase, group.bounds)
    fixed += waits.reshape(-1, template.lanes).max(axis=1).sum()
    stages = busy.reshape(-1, template.lanes, len(costs)).sum(axis=1)
    per_byte = float(stages.sum(axis=0).max() if template.pipelined else stages.max(axis=1).sum()) / protocol.bandwidth
    slowest = costs[int(busy.sum(axis=0).argmax())]
    root = 2 * sqrt(protocol.ramp * slowest.slice * per_byte)  # best slicing of per_byte S + overhead per slice
    if protocol.channel is not None:
        streams = group.bounds[-1] - 1 if op == "all_to_all" else 1
        per_byte = max(per_byte, template.sent / streams / protocol.channel)
    if op != "send_recv" and costs[0].copy:
        per_byte += 1 / group.bounds[-1] / costs[0].copy
    return Line(float(fixed), per_byte, root)


def port_rates(template: Template, group: Group, costs: list[LinkCost]) -> NDArray[np.float64]:
    """B/s of one accelerator across each level, efficiency included."""
    rates = []
    for level, (tier, cost) in enumerate(zip(group.tiers, costs, strict=True)):
        below = group.bounds[level - 1] if level else 1
        reducing = level == 0 and ALGORITHMS[template.algorithm].startswith("nvls")
        share = cost.efficiency
        if reducing:
            share = cost.switch or share
        elif template.phases[0].pattern == "direct":
            share = cost.spread or share
        rates.append(tier.reach(group.bounds[level] // below, group.stride * below, group.stride) * share)
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
        if tier.kind == "shared":
            seen[level] *= below
    return seen
