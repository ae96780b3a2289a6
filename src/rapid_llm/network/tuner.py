"""What a library's tuner chooses: it compares its own estimates of algorithms and protocols, not their real times.

NCCL (graph/tuning.cc) estimates a collective as a start, a time per hop, and its bytes at a rate of the link. The
choice changes at the sizes where two of these lines meet, whether or not another way would be faster.
"""

from collections.abc import Sequence
from dataclasses import replace
from math import inf

from rapid_llm.network.lines import Way
from rapid_llm.network.regimes import HEADS, Line
from rapid_llm.network.technologies import Library
from rapid_llm.network.templates import hops

Belief = tuple[float, float]
"""Seconds, and seconds per byte."""


def tuned(ways: Sequence[Way], library: Library) -> list[Way]:
    """The ways to run one operation on one group, each restricted to the sizes at which the tuner takes it; ways of
    which it has no estimate stay as they are.
    """
    beliefs = {k: found for k, way in enumerate(ways) if (found := belief(way, library)) is not None}
    spans = between(beliefs)
    chosen = []
    for k, way in enumerate(ways):
        if k not in beliefs:
            chosen.append(way)
        elif k in spans:
            chosen.append(replace(way, lines=within(way.lines, *spans[k])))
    return chosen


def belief(way: Way, library: Library) -> Belief | None:
    """The tuner's estimate of a way inside one node; None where a library has no numbers for the link."""
    outer = way.group.tiers[-1]
    believed = library.cost(outer.link, outer.scope).tuner
    if believed is None or way.group.nodes > 1 or way.protocol not in believed.rate:
        return None
    steps = sum(sum(hops(phase, way.group.bounds, way.group.crossings)) for phase in way.template.phases)
    if way.template.phases[0].pattern == "relay":  # a chain of channels that are alike counts one hop
        steps = 1
    start = library.protocols[way.protocol].believed
    heads = min(1.0, way.group.bounds[-1] / HEADS) if way.algorithm == "nvls" else 1.0
    rate = believed.rate[way.protocol] * heads
    return start + steps * believed.hop[way.protocol], way.template.sent / rate


def between(lines: dict[int, Belief]) -> dict[int, tuple[float, float]]:
    """The sizes between which each line is the lowest of all; lines that never are have no entry."""
    found: dict[int, tuple[float, float]] = {}
    size, left = -1.0, dict(lines)
    while left:
        at = max(size, 0.0)
        now = min(left, key=lambda k: (left[k][0] + left[k][1] * at, left[k][1]))
        left = {k: line for k, line in left.items() if line[1] < lines[now][1]}
        ends = [(line[0] - lines[now][0]) / (lines[now][1] - line[1]) for line in left.values()]
        found[now] = (size, min(ends, default=inf))
        size = found[now][1]
    return found


def within(lines: Sequence[Line], above: float, up_to: float) -> tuple[Line, ...]:
    """Lines for sizes above one and up to another only."""
    cut = (replace(line, above=max(line.above, above), up_to=min(line.up_to, up_to)) for line in lines)
    return tuple(line for line in cut if line.above < line.up_to)
