"""Every way to run a collective: algorithms and protocols of a library as lines ``a + b S + c sqrt(S)``."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from math import log2, sqrt
from typing import Final

import numpy as np
from numpy.typing import NDArray

from rapid_llm.network.circulation import ring_paths, trees
from rapid_llm.network.detours import both_ways, detours
from rapid_llm.network.groups import Group, by_medium, in_whole_units, whole
from rapid_llm.network.paths import Path, in_stages, upper
from rapid_llm.network.ports import alone, by_one_card, leaving, mixed, port_loads, port_rates
from rapid_llm.network.regimes import Line, channels_of, copied, regimes, to_a_peer
from rapid_llm.network.technologies import Library, LinkCost, Protocol
from rapid_llm.network.templates import ALGORITHMS, BUILDERS, Bounds, Phase, Template, hops, peers

FREE: Final = LinkCost(launch=0, step=0, efficiency=1.0)
"""Links alone: what no library adds to."""
"""Links and nothing else."""
Build = Callable[[str, Bounds, int], Template]
Vector = NDArray[np.float64]
Builders = Mapping[str, tuple[Build, tuple[str, ...]]]


@dataclass(frozen=True, slots=True)
class Way:
    """One algorithm under one protocol of a library. Of its ``lines`` the lowest counts."""

    algorithm: str
    protocol: str
    template: Template
    group: Group
    lines: tuple[Line, ...]


_LAID_OUT: Final[dict[str, Callable[[Group, int], Group]]] = {"orders": by_medium, "hierarchical": in_whole_units}
"""Algorithms that see levels of their own in a group."""


def ways(op: str, group: Group, library: Library, builders: Builders = BUILDERS) -> Iterator[Way]:
    """Every algorithm and protocol of a library that a group can run."""
    known = [library.cost(tier.link, tier.scope) for tier in group.tiers]
    if any(cost.most is not None and group.bounds[-1] > cost.most for cost in known):
        return
    off = {label for cost in known for label in cost.without}
    for label, protocol in library.protocols.items():
        for name in protocol.algorithms if label not in off else ():
            build, ops = builders[name]
            if op in ops and _runs(name, group):
                laps = 2 if op == "all_reduce" else 1
                place = _LAID_OUT[name](group, laps) if name in _LAID_OUT else group
                template = build(op, place.bounds, place.inside)
                costs = [library.cost(tier.link, tier.scope) for tier in place.tiers]
                line = partial(_line, op, template, place, protocol=protocol)
                yield Way(name, label, template, place, regimes(op, template, place, costs, protocol, library, line))


def bare_line(way: Way) -> Line:
    """The closed form of a way with links alone, without the library's costs."""
    return _line("", way.template, way.group, [FREE] * len(way.group.tiers), Protocol(algorithms=(way.algorithm,)))


NEEDS: Final = {
    "nvls": "one node whose switch reduces",
    "nvls-tree": "several nodes whose switches reduce",
    "tree": "more than one tier, or one rank a node",
    "hierarchical": "more than one tier, in whole nodes",
    "orders": "whole nodes of one tier and a network between them, or a torus",
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
    in_box = inner.scope == "intra" and inner.in_network_reduction
    return {
        "nvls": levels == 1 and in_box,
        "nvls-tree": levels > 1 and in_box and not group.scattered,
        "tree": (levels > 1 or inner.scope == "inter") and not (group.scattered and inner.kind in ("ring", "shared")),
        "hierarchical": levels > 1 and not group.scattered and whole(in_whole_units(group, 1).bounds),
        "orders": inner.kind == "torus"
        if levels == 1
        else group.inside == 1 and not group.scattered and whole(by_medium(group, 1).bounds),
        "halving-doubling": all(bound & (bound - 1) == 0 for bound in group.bounds),
        "pxn": levels > 1 and inner.scope == "intra" and group.tiers[-1].scope == "inter" and not group.scattered,
        "sharp": group.tiers[-1].scope == "inter" and group.tiers[-1].in_network_reduction and not group.scattered,
        "one-shot": levels == 1,
        "two-shot": levels == 1,
    }.get(algorithm, True)


IN_ORDER: Final = ("ring", "relay", "chain", "tree")
"""Patterns that pass a unit's places on from one unit to the next."""


def _line(op: str, template: Template, group: Group, costs: list[LinkCost], protocol: Protocol) -> Line:
    """One candidate: hops x (latency + step), the busiest level of each phase, and the ramp of its slices."""
    once = once_per_collective(protocol, costs)
    hop = np.array(
        [t.latency + c.step * protocol.step + c.fence * protocol.fence for t, c in zip(group.tiers, costs, strict=True)]
    )
    extra = hop - [tier.latency for tier in group.tiers]
    in_order = template.phases[0].pattern in (*IN_ORDER, "switch")
    off = np.array([tier.astray * (group.off_rails and in_order) for tier in group.tiers])
    crossed = np.array([hops(phase, group.bounds, group.crossings) for phase in template.phases])
    loaded = np.array([port_loads(leaving(phase, group), phase, group) for phase in template.phases])
    uneven = group.scattered or group.off_rails
    joining = [k for k, phase in enumerate(template.phases) if uneven and phase.pattern == "tree"]
    rates = port_rates(template, group, costs) * _kept(protocol, template, costs)
    loaded[joining] = 0.0
    apart = trees(group, hop, rates, (loaded / rates).sum(axis=0)) if joining else None
    loaded[joining] = apart.sent if apart else 0.0
    busy = loaded / rates
    waits = crossed @ (hop + off) + np.array([detours(phase, group) for phase in template.phases])
    waits[joining] = 0.0
    calls = np.array([_calls(phase, template, group, costs) for phase in template.phases])
    waits += calls
    slowest = int(busy.sum(axis=0).argmax())

    own = _own_share_first(template, group, costs, busy[0])

    def line(fixed: float, per_byte: float) -> Line:
        sliced = 0.0 if template.phases[0].pattern == "neighbour" else protocol.ramp * costs[slowest].slice
        root = 2 * sqrt(sliced * per_byte)  # best slicing of per_byte S; a send is cut once, into its channels
        if channels_of(template, group, costs) is None:
            per_byte = _throttled(per_byte, template, group, protocol)
        return Line(fixed, per_byte + own + copied(op, group, costs[0]), root)

    if apart:
        paths = [(float(waits.sum()) + wait, moving) for wait, moving in apart.paths]
    else:
        paths = _paths(template, group, hop, (waits, busy, calls))
    if group.links is not None and (found := paths_on_links(template, group)):
        added = float((crossed @ extra + calls).sum())
        paths = _with_costs(found, added, _stretch(busy, loaded, template, group, slowest))
    again = float(waits.sum()) + (costs[-1].flush or 0.0)
    turning = _turning(template, group, costs, again) if protocol.slots else (0.0, 0.0)
    first, *others = (one for path in paths for one in _in_loops(line(once + path[0], path[1]), *turning))
    return replace(first, others=tuple(others))


def _paths(template: Template, group: Group, hop: Vector, priced: tuple[Vector, Vector, Vector]) -> list[Path]:
    """The longest paths through the phases: the seconds that each phase ``waits``, for which it keeps levels ``busy``,
    and for which it ``calls`` peers.
    """
    (waits, busy, calls), first, inner = priced, template.phases[0], group.tiers[0]
    if len(waits) == 1 and first.pattern in ("direct", "neighbour"):
        return _exchanged(first, group, hop, busy, float(calls[0]))
    if template.pipelined:
        return [(float(waits.sum()), float(busy.sum(axis=0).max()))]
    outside = len(group.tiers) == 1 and group.inside == 0
    if mixed(template) or (outside and group.off_rails and first.pattern in IN_ORDER):
        laps, both = len(waits), both_ways(first, group)
        paces = np.vstack([by_one_card(part, group)[0] for part in (busy, busy * alone(template, group))])
        hop[0] += (inner.hop_links(group.bounds[0], group.stride) - 1) * inner.latency
        return ring_paths(group, laps, hop, paces / (group.bounds[-1] - 1), both)
    paths = in_stages(waits.reshape(-1, template.lanes), busy.max(axis=1).reshape(-1, template.lanes))
    if [phase.pattern for phase in template.phases] == ["direct"] * 2:
        (wait, moving), one = paths[0], float(busy[0, 0])
        earlier = inner.from_the_middle(group.bounds[0], group.stride)
        paths = upper([(wait - ahead * inner.latency, moving - (1 - part) * one) for ahead, part in earlier])
    return paths


def _kept(protocol: Protocol, template: Template, costs: list[LinkCost]) -> Vector:
    """Share of the reachable rate of each level that a protocol keeps."""
    tree = protocol.tree if ALGORITHMS[template.algorithm] == "tree" else 1.0
    flags = protocol.bandwidth < 1  # among the data
    return np.array([protocol.bandwidth * tree * (cost.polled if flags else 1.0) for cost in costs])


def _exchanged(phase: Phase, group: Group, hop: Vector, busy: Vector, calls: float) -> list[Path]:
    """Paths of messages between peers: all levels at once, and the time of turning from peer to peer (``calls``, s),
    which hides behind a bridge that is still busy with earlier messages.
    """
    levels = range(*phase.levels)
    apart = np.array([hop[level] + detours(phase, group, level) for level in levels])
    moving = by_one_card(busy, group)[0, levels.start : levels.stop]
    queued = np.array([group.tiers[level].kind == "shared" for level in levels])
    waits = np.append(apart + calls * ~queued, apart.max() + calls)
    return in_stages(waits[None, :], np.append(moving, 0.0)[None, :])


def _stretch(busy: Vector, loaded: Vector, template: Template, group: Group, slowest: int) -> float:
    """How much longer a library keeps the busiest level than its links alone need."""
    alone = loaded / port_rates(template, group, [FREE] * len(group.tiers))
    return float(busy.sum(axis=0)[slowest] / alone.sum(axis=0)[slowest])


def paths_on_links(template: Template, group: Group) -> list[Path] | None:
    """``carried.paths`` (imported late: what lays sends out knows these lines)."""
    from rapid_llm.network.carried import paths

    return paths(template, group)


def _with_costs(paths: list[Path], added: float, stretch: float) -> list[Path]:
    """Paths on links alone with the library's costs added: to the hops in proportion to those of each path; the longest
    path has all of them.
    """
    longest = max(wait for wait, _ in paths)
    return [(wait * (1 + added / longest if longest else 1.0), moving * stretch) for wait, moving in paths]


def _turning(template: Template, group: Group, costs: list[LinkCost], waits: float) -> tuple[float, float]:
    """Seconds, and seconds per byte, for which a ring waits for its hops again in every further round of its buffers: a
    rank takes what arrived last first (NCCL's loops over chunks). Zero where there are many channels.
    """
    rounds = [cost.round for cost in costs if cost.round]
    if not rounds or any(phase.pattern != "ring" for phase in template.phases):
        return 0.0, 0.0
    return waits, waits / (group.bounds[-1] * min(rounds))


def _in_loops(line: Line, waits: float, per_byte: float) -> list[Line]:
    """A line, and the line that continues it once buffers are full."""
    return [line, line.deeper(-waits, per_byte)] if per_byte else [line]


def _own_share_first(template: Template, group: Group, costs: list[LinkCost], busy: Vector) -> float:
    """Seconds per byte of S in which the threads of a ring send a rank's own share while data that the previous rank
    left in host memory waits to be read. Both happen one after the other, where a peer's writes arrive meanwhile
    (NCCL's prims).
    """
    read = any(cost.memory for cost in costs) and template.phases[0].pattern == "ring"
    return float(busy[0]) / (group.bounds[-1] - 1) if read else 0.0


def _calls(phase: Phase, template: Template, group: Group, costs: list[LinkCost]) -> float:
    """Seconds in which a rank turns to one peer after another."""
    if phase.pattern != "direct":
        return 0.0
    others, level = peers(phase, group.bounds), phase.levels[1] - 1
    beside = ALGORITHMS[template.algorithm] == "direct" and group.tiers[level].scope == "intra"
    return costs[level].peer * (side_by_side(others) if beside else others)


def _throttled(per_byte: float, template: Template, group: Group, protocol: Protocol) -> float:
    """Seconds per byte of S once the threads of a channel are the limit."""
    one = to_a_peer(template, group)
    bounds = (one / rate for rate in (protocol.channel, protocol.far if group.nodes > 1 else None) if rate)
    return max(per_byte, *bounds, 0.0)


def side_by_side(others: float) -> float:
    """Peers of an exchange inside a node, among those whose cost adds up one after another: their messages share a
    kernel.
    """
    return log2(1 + others)


def once_per_collective(protocol: Protocol, costs: list[LinkCost]) -> float:
    """Seconds that a collective over these links pays once."""
    outer = costs[-1]
    flushed = outer.fence if outer.exchange is None else outer.exchange
    if protocol.fence and outer.flush is not None:  # of a ring
        flushed = outer.flush
    return max(c.launch for c in costs) + protocol.setup + flushed * protocol.exchange
