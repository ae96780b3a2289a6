"""The sends of a template, one a row: what a flow engine runs, and what tests hold the closed form to."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rapid_llm.network.templates import Bounds, Phase, Template

SWITCH = -1
"""The destination of a send that the switch reduces or multicasts."""

_Send = tuple[int, int, int, int, float]  # step, channel, source, destination, share


@dataclass(frozen=True, slots=True)
class Flows:
    """Columns, one entry a send: phase, round in it, channel, source rank, destination rank (or SWITCH), bytes / S.

    A rank's send of a round waits for what it received on its channel in the rounds before; a phase waits for the
    phase before it, or slice by slice where the template is pipelined.
    """

    phase: NDArray[np.int64]
    step: NDArray[np.int64]
    channel: NDArray[np.int64]
    source: NDArray[np.int64]
    destination: NDArray[np.int64]
    share: NDArray[np.float64]


def expand(template: Template, bounds: Bounds) -> Flows:
    """Every send of a template on a group that is nested as ``bounds`` (whole units only)."""
    rows = [(k, *send) for k, phase in enumerate(template.phases) for send in _sends(phase, bounds)]
    phase, step, channel, source, destination = np.array([row[:5] for row in rows], dtype=np.int64).T
    return Flows(phase, step, channel, source, destination, np.array([row[5] for row in rows]))


def _sends(phase: Phase, bounds: Bounds) -> Iterator[_Send]:
    low, high = phase.levels
    inner, outer, n = bounds[low - 1] if low else 1, bounds[high - 1], bounds[-1]
    if phase.pattern == "ring":
        yield from _ring(phase, inner, outer, n)
    elif phase.pattern == "relay":
        yield from ((i, 0, i, i + 1, phase.load) for i in range(n - 1))
    elif phase.pattern == "chain":
        yield from _chain(outer, n, spread=phase.spread)
    elif phase.pattern == "tree":
        yield from double_tree(inner, outer // inner, spread=phase.spread)
    elif phase.pattern == "direct":
        yield from _direct(phase, inner, outer, n)
    elif phase.pattern == "pair":
        yield from ((0, 0, i, i ^ phase.distance, phase.load) for i in range(n))
    elif phase.pattern == "shift":
        share = phase.load / phase.steps
        yield from ((t, 0, i, (i + phase.distance) % n, share) for t in range(phase.steps) for i in range(n))
    elif phase.pattern == "neighbour":
        yield from ((0, 0, i, i + 1, phase.load) for i in range(n - 1))
    else:
        yield from ((t, 0, i, SWITCH, phase.load / phase.steps) for t in range(phase.steps) for i in range(n))


def _ring(phase: Phase, inner: int, outer: int, n: int) -> Iterator[_Send]:
    """Rings of ranks with equal place in their unit; every channel starts one unit, here rank, further on."""
    share = phase.load / phase.steps
    channels = outer // inner
    for step in range(phase.steps):
        for rank in range(n):
            base, place = rank - rank % outer, rank % outer
            channel = (rank // inner - step) % channels
            if not phase.both:
                yield step, channel, rank, base + (place + inner) % outer, share
                continue
            back = (rank // inner + step) % channels + channels
            yield step, channel, rank, base + (place + inner) % outer, share / 2
            yield step, back, rank, base + (place - inner) % outer, share / 2


def _direct(phase: Phase, inner: int, outer: int, n: int) -> Iterator[_Send]:
    """To every rank with the same place in another unit of the same group."""
    share = phase.load / (outer // inner - 1)
    for rank in range(n):
        base, place = rank - rank % outer, rank % inner
        for other in range(base + place, base + outer, inner):
            if other != rank:
                yield 0, 0, rank, other, share


def _chain(unit: int, n: int, *, spread: bool) -> Iterator[_Send]:
    """Channels c and unit + c, one for each tree, gather along a unit towards its rank c, or spread from it."""
    for base in range(0, n, unit):
        for channel in range(2 * unit):
            for step in range(unit - 1):
                near, far = base + (channel - step) % unit, base + (channel - step - 1) % unit
                pair = (near, far) if spread else (far, near)
                yield step if spread else unit - 2 - step, channel, *pair, 0.5 / unit


def double_tree(inner: int, units: int, *, spread: bool) -> Iterator[_Send]:
    """Two binary trees over units, each inner in one of them: the second is the mirror of the first or, of an odd
    number, the first shifted by one (NCCL); channel = tree x inner + place in the unit.
    """
    depth = max((_level(u, units) for u in range(units)), default=0)
    for mirror in (False, True):
        for unit in range(1, units):
            parent = _parent(unit, units)
            for place in range(inner):
                child_unit, parent_unit = (_other(unit, units), _other(parent, units)) if mirror else (unit, parent)
                child, up = child_unit * inner + place, parent_unit * inner + place
                level = _level(unit, units)
                pair = (up, child) if spread else (child, up)
                step = level - 1 if spread else depth - level
                yield step, mirror * inner + place, *pair, 0.5 / inner


def _other(unit: int, units: int) -> int:
    """Where a unit of the first tree stands in the second."""
    return (unit + 1) % units if units % 2 else units - 1 - unit


def _parent(unit: int, units: int) -> int:
    """Parent in the binary tree in which odd units are leaves and unit 0 is the root with one child."""
    bit = unit & -unit
    parent = (unit ^ bit) | (bit << 1)
    return parent if parent < units else unit ^ bit


def _level(unit: int, units: int) -> int:
    level = 0
    while unit:
        unit = _parent(unit, units)
        level += 1
    return level
