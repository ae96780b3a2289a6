"""Times as the longest of several paths, each of some seconds and some seconds per byte.

In stages the slowest lane decides. On a ring over links of several levels blocks circulate: a link carries one at a
time, and a block leaves once it has arrived. The time is the longest path of a max-plus system (Baccelli et al.,
Synchronization and Linearity, 1992, section 2.3): in every round the next hop, or another transfer in the queue of the
link where the block is.
"""

from math import ceil

import numpy as np
from numpy.typing import NDArray

from rapid_llm.network.templates import Bounds

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]
Path = tuple[float, float]


def circulation(bounds: Bounds, laps: int, hop: Vector, transfer: Vector) -> list[Path]:
    """Seconds and seconds per byte of the paths that may be the longest: ``laps`` times n - 1 rounds on a ring nested
    as ``bounds``; ``hop`` (s) and ``transfer`` (s/B in a round) of a link of each level.

    All hops, but for the links that the last rounds do not reach, one a lap; from the first of the slowest links to the
    last, and in its queue for the rounds that are left; the slowest links in a row, and in their queue.
    """
    n, slowest = bounds[-1], int(transfer.argmax())
    below = (1, *bounds[:-1])
    units = np.array([ceil(n / b) for b in (*below, n)], np.float64)
    lap = units[:-1] - units[1:]
    lap[-1] += 1
    rounds = laps * (n - 1)
    whole = [laps * lap - left for left in _left_out(bounds, laps)]
    found = [(float(crossed @ hop), float(crossed @ transfer)) for crossed in whole]
    spare = _spare(whole[0], rounds, bounds, slowest)
    if spare.any():
        fixed, per_byte = found[0]
        found.append((fixed - float(spare @ hop), per_byte + float(spare @ (transfer[slowest] - transfer))))
    row = bounds[0] - 1 if slowest == 0 else 1
    return [*found, (row * float(hop[slowest]), rounds * float(transfer[slowest]))]


def _left_out(bounds: Bounds, laps: int) -> list[Vector]:
    """Runs of links in a row, by level, that a path of all rounds may leave out: one a lap, the nearest first."""
    levels = np.eye(len(bounds))
    if laps == 1:
        return list(levels)
    inside = [2 * levels[0]] if bounds[0] > 2 else []
    return [*inside, *(levels[0] + level for level in levels[1:])]


def _spare(crossed: Vector, rounds: int, bounds: Bounds, slowest: int) -> Vector:
    """Hops by level that lead to no further link of the ``slowest`` level: all but those through the units between the
    first such link and the last.
    """
    spare = np.zeros(len(bounds))
    if slowest == 0 and bounds[0] == 2 < bounds[-1] and rounds % 2 == 0:  # near and far by turns: the last is far
        spare[1] = 1.0
    unit = bounds[slowest - 1] if slowest else 1
    for level in range(slowest):
        within = unit / (bounds[level - 1] if level else 1) - unit / bounds[level]
        spare[level] = max(0.0, crossed[level] - (rounds - 1) // unit * within)
    return spare


def in_stages(waits: Matrix, busy: Matrix) -> list[Path]:
    """Stages one after another, each as long as its slowest lane; seconds, and seconds per byte [stages, lanes]."""
    paths = [(0.0, 0.0)]
    for stage in zip(waits.tolist(), busy.tolist(), strict=True):
        lanes = list(zip(*stage, strict=True))
        paths = upper([(a + wait, b + moving) for a, b in paths for wait, moving in lanes])
    return paths


def upper(lines: list[Path]) -> list[Path]:
    """Those of some lines a + b S that are the highest for some S, in order of slope."""
    hull: list[Path] = []
    for a, b in sorted(lines, key=lambda line: (line[1], line[0])):
        while hull and (hull[-1][0] <= a or (len(hull) > 1 and _hidden(hull[-2], hull[-1], (a, b)))):
            hull.pop()
        hull.append((a, b))
    return hull


def _hidden(first: Path, middle: Path, last: Path) -> bool:
    """Whether the middle one of three lines, of growing slope, is nowhere the highest."""
    return (first[0] - last[0]) * (middle[1] - first[1]) <= (first[0] - middle[0]) * (last[1] - first[1])
