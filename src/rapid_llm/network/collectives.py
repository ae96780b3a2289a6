"""The time of collectives in closed form: templates priced on the tiers of a fabric with the costs of a library.

One algorithm with one protocol costs ``a + b S + c sqrt(S)``: ``a`` launch and dependent hops, ``b`` the busiest level
of each phase, ``c`` the ramp of pipelined slices. These lines are cached per group; a call evaluates them for its rows
and takes the cheapest, as a tuner does.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from math import ceil, sqrt
from typing import Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rapid_llm.errors import InputError, unknown_name
from rapid_llm.network.fabric import Fabric, Tier
from rapid_llm.network.technologies import Library, LinkCost, Protocol
from rapid_llm.network.technologies import library as load_library
from rapid_llm.network.templates import ALGORITHMS, BUILDERS, OPS, Phase, Template, hops, loads, peers

Column = NDArray[np.float64]

MAX_RANKS: Final = 1 << 24
"""Ranks and strides above this are input errors (also what packs a group into one integer key)."""


@dataclass(frozen=True, slots=True)
class CollectivePrices:
    """One entry a row. seconds: time of the collective; algorithm: index into ALGORITHMS; wire_bytes: bytes that one
    rank sends (B); nodes: nodes that the group spans.
    """

    seconds: Column
    algorithm: NDArray[np.int8]
    wire_bytes: Column
    nodes: NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class _Lines:
    """Candidates of one group, an entry each: seconds ``fixed + per_byte S + root sqrt(S)``."""

    coefficients: Column  # (3, candidates)
    algorithm: NDArray[np.int8]
    sent: Column
    nodes: int


def price(
    op: str | ArrayLike,
    size_bytes: ArrayLike,
    ranks: ArrayLike,
    stride: ArrayLike,
    *,
    fabric: Fabric,
    library: str | Library,
    small: str | Library | None = None,
) -> CollectivePrices:
    """Price collectives, a row each.

    op: a name of OPS, or its codes by row; size_bytes (B) as nccl-tests: all_reduce, all_to_all and broadcast buffer
    per rank, all_gather total output, reduce_scatter total input, send_recv message; ranks of a group stand ``stride``
    accelerators apart, every accelerator belongs to one such group and all groups communicate at once. ``small`` is a
    further library that may carry all-reduces within a node. InputError when a group does not fit the fabric.
    """
    codes = _code(op) if isinstance(op, str) else op
    code, size, n, step = np.broadcast_arrays(codes, np.asarray(size_bytes, dtype=np.float64), ranks, stride)
    if n.size and max(n.max(), step.max()) >= MAX_RANKS:
        raise InputError(
            f"a group of {n.max()} ranks, {step.max()} apart, is larger than any system.", field="parallelism"
        )
    shape = size.shape
    keys = ((np.asarray(code, np.int64) * MAX_RANKS + n) * MAX_RANKS + step).ravel()
    unique, inverse = np.unique(keys, return_inverse=True)
    lines_of = _pricer(fabric, _library(library), None if small is None else _library(small))
    lines = [lines_of(key // MAX_RANKS**2, key // MAX_RANKS % MAX_RANKS, key % MAX_RANKS) for key in unique.tolist()]
    table, algorithm, sent = _stack(lines)
    flat = size.ravel()
    a, b, c = table[:, inverse]
    seconds = a + b * flat[:, None] + c * np.sqrt(flat)[:, None]
    best = seconds.argmin(axis=1)
    rows = np.arange(len(flat))
    nodes = np.array([line.nodes for line in lines], dtype=np.int64)
    return CollectivePrices(
        seconds[rows, best].reshape(shape),
        algorithm[inverse, best].reshape(shape),
        (sent[inverse, best] * flat).reshape(shape),
        nodes[inverse].reshape(shape),
    )


def _stack(lines: list[_Lines]) -> tuple[Column, NDArray[np.int8], Column]:
    """Candidates of several groups as (3, groups, candidates), (groups, candidates) twice; short rows never win."""
    width = max((len(line.sent) for line in lines), default=1)
    table = np.full((3, len(lines), width), 0.0)
    table[0] = np.inf
    algorithm = np.zeros((len(lines), width), dtype=np.int8)
    sent = np.zeros((len(lines), width))
    for row, line in enumerate(lines):
        count = len(line.sent)
        table[:, row, :count] = line.coefficients
        algorithm[row, :count] = line.algorithm
        sent[row, :count] = line.sent
    return table, algorithm, sent


def bus_bandwidth(op: str, size_bytes: ArrayLike, ranks: ArrayLike, seconds: ArrayLike) -> Column:
    """busbw of nccl-tests in B/s: algbw x 2 (n - 1)/n for an all-reduce, x 1 for send_recv and broadcast,
    else x (n - 1)/n.
    """
    n = np.asarray(ranks, dtype=np.float64)
    moved = np.ones_like(n) if op in ("send_recv", "broadcast") else (n - 1) / n
    return algorithm_bandwidth(size_bytes, seconds) * moved * (2 if op == "all_reduce" else 1)


def algorithm_bandwidth(size_bytes: ArrayLike, seconds: ArrayLike) -> Column:
    """algbw of nccl-tests in B/s: S / t."""
    return np.asarray(size_bytes, dtype=np.float64) / np.asarray(seconds, dtype=np.float64)


def _code(op: str) -> int:
    if op not in OPS:
        raise InputError(unknown_name("collective", op, OPS))
    return OPS.index(op)


def _library(library: str | Library) -> Library:
    return load_library(library) if isinstance(library, str) else library


@lru_cache(maxsize=64)
def _pricer(fabric: Fabric, library: Library, small: Library | None) -> Callable[[int, int, int], _Lines]:
    """Lines by (op code, ranks, stride) for one fabric and its libraries."""

    @lru_cache(maxsize=4096)
    def lines(code: int, ranks: int, stride: int) -> _Lines:
        if ranks == 1:
            return _Lines(np.zeros((3, 1)), np.zeros(1, np.int8), np.zeros(1), 1)
        op = OPS[code]
        group = _group(fabric, ranks, stride)
        found = _candidates(op, group, library)
        if small is not None and len(group.tiers) == 1 and group.tiers[0].scope == "intra":
            found += _candidates(op, group, small)
        if not found:
            algorithms = {name for protocol in library.protocols.values() for name in protocol.algorithms}
            raise InputError(
                f"collective library '{library.name}' has no algorithm for {op} on {ranks} ranks; "
                f"it has {', '.join(sorted(algorithms))}.",
                field="communication.library",
            )
        names, sent, *coefficients = zip(*found, strict=True)
        return _Lines(np.array(coefficients), np.array(names, np.int8), np.array(sent), group.nodes)

    return lines


@dataclass(frozen=True, slots=True)
class _Group:
    """A group on its fabric: ``bounds`` (see templates) and the tier of each level."""

    bounds: tuple[int, ...]
    tiers: tuple[Tier, ...]
    stride: int
    nodes: int

    @property
    def inside(self) -> int:
        """Levels that lie inside a node."""
        return sum(tier.scope == "intra" for tier in self.tiers)


def _group(fabric: Fabric, ranks: int, stride: int) -> _Group:
    """Nest a group in the tiers: a tier holds ``span / stride`` of its ranks."""
    reach = fabric.tiers[-1].span if fabric.tiers else 1
    if ranks < 1 or stride < 1 or (ranks - 1) * stride >= reach:
        raise InputError(
            f"a group of {ranks} ranks, {stride} apart, does not fit '{fabric.name}': "
            f"{reach} accelerators are connected. Use fewer ranks or a larger system.",
            field="accelerators",
        )
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
    return _Group(tuple(bounds), tuple(tiers), stride, ceil(ranks / inside))


_Line = tuple[float, float, float, float, float]


def _candidates(op: str, group: _Group, library: Library) -> list[_Line]:
    """(algorithm, bytes sent / S, a, b, c) of every algorithm and protocol that this group can run."""
    found: list[_Line] = []
    for protocol in library.protocols.values():
        for name in protocol.algorithms:
            build, ops = BUILDERS[name]
            if op in ops and _runs(name, group):
                place = _by_dimension(group) if name == "orders" else group
                template = build(op, place.bounds, place.inside)
                found += _filling(op, template, place, protocol, _line(op, template, place, library, protocol))
    return found


def _by_dimension(group: _Group) -> _Group:
    """A group on a torus with a level for each dimension that it lies along, each a ring with links of its own."""
    tier = group.tiers[0]
    if tier.kind != "torus" or len(group.tiers) > 1:
        return group
    used = tier.used(group.bounds[0])
    side = ceil(group.bounds[0] ** (1 / used) - 1e-9)
    bounds = tuple(min(group.bounds[0], side**k) for k in range(1, used)) + group.bounds
    axis = replace(tier, kind="switch", bandwidth=tier.bandwidth / tier.dimensions)
    return _Group(bounds, (axis,) * used, group.stride, group.nodes)


def _filling(op: str, template: Template, group: _Group, protocol: Protocol, line: _Line) -> list[_Line]:
    """The line with its first chunk on every hop: a steeper line while the chunks grow, a higher one beyond."""
    if op != "all_reduce" or group.nodes == 1 or not protocol.fill:
        return [line]
    algorithm, sent, fixed, per_byte, root = line
    filled = protocol.fill * sum(sum(hops(phase, group.bounds)) for phase in template.phases)
    growing = (algorithm, sent, fixed, per_byte + filled / protocol.chunk, root)
    return [growing, (algorithm, sent, fixed + filled, per_byte, root)]


def _runs(algorithm: str, group: _Group) -> bool:
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


def _line(op: str, template: Template, group: _Group, library: Library, protocol: Protocol) -> _Line:
    """One candidate: hops x (latency + step), the busiest level of each phase, and the ramp of its slices."""
    costs = [library.cost(tier.link, tier.scope) for tier in group.tiers]
    rates = _rates(template, group, costs)
    fixed = max(cost.launch for cost in costs) + protocol.setup + costs[-1].exchange * protocol.exchange
    busy = np.zeros((len(template.phases), len(costs)))
    waits = np.zeros(len(template.phases))
    for row, phase in enumerate(template.phases):
        for level, count in enumerate(hops(phase, group.bounds)):
            waits[row] += count * (group.tiers[level].latency + costs[level].step * protocol.step)
        busy[row] = np.array(_spread(loads(phase, group.bounds), phase, group)) / rates
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
    return float(template.algorithm), template.sent, fixed, per_byte, root


def _rates(template: Template, group: _Group, costs: list[LinkCost]) -> Column:
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
        rates.append(tier.reach(group.bounds[level] // below, group.stride * below) * share)
    return np.array(rates)


def _spread(load: tuple[float, ...], phase: Phase, group: _Group) -> list[float]:
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
