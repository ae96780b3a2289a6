"""A ring over links of several levels: which hops the latest of its circulating blocks makes, and where it waits.

A link carries one block at a time, and a block leaves once it has arrived. Its time is the longest path of a max-plus
system (Baccelli et al., Synchronization and Linearity, 1992, section 2.3): in every round either the next hop, or
another transfer in the queue of the link where the block is.
"""

from math import ceil

import numpy as np
from numpy.typing import NDArray

from rapid_llm.network.templates import Bounds

Vector = NDArray[np.float64]


def circulation(bounds: Bounds, laps: int, hop: Vector, transfer: Vector) -> list[tuple[float, float]]:
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
