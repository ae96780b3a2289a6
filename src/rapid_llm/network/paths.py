"""Times as the longest of several paths, each of some seconds and some seconds per byte."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]
Path = tuple[float, float]
CLOSE: Final = 1e-4
"""Share by which a path that is left out may shorten the longest."""


def in_stages(waits: Matrix, busy: Matrix) -> list[Path]:
    """Stages one after another, each as long as its slowest lane; seconds, and seconds per byte [stages, lanes]."""
    paths = [(0.0, 0.0)]
    for stage in zip(waits.tolist(), busy.tolist(), strict=True):
        lanes = list(zip(*stage, strict=True))
        paths = upper([(a + wait, b + moving) for a, b in paths for wait, moving in lanes])
    return paths


def highest(fixed: Vector, per_byte: Vector) -> list[Path]:
    """``upper`` of many lines, without those that hardly rise above their neighbours."""
    order = np.lexsort((-fixed, -per_byte))
    fixed, per_byte = fixed[order], per_byte[order]
    rising = np.concatenate([[True], fixed[1:] > np.maximum.accumulate(fixed)[:-1] * (1 + 1e-9)])
    hull = upper(list(zip(fixed[rising].tolist(), per_byte[rising].tolist(), strict=True)))
    k = 1
    while k < len(hull) - 1:
        (a, b), (c, d), (e, f) = hull[k - 1 : k + 2]
        size = (a - e) / (f - b)  # where its neighbours meet
        if c + d * size <= (a + b * size) * (1 + CLOSE):
            del hull[k]
        else:
            k += 1
    return hull


def upper(lines: list[Path]) -> list[Path]:
    """The lines a + b S that are the highest for some S, in order of slope."""
    hull: list[Path] = []
    for a, b in sorted(lines, key=lambda line: (line[1], line[0])):
        while hull and (hull[-1][0] <= a or (len(hull) > 1 and _hidden(hull[-2], hull[-1], (a, b)))):
            hull.pop()
        hull.append((a, b))
    return hull


def _hidden(first: Path, middle: Path, last: Path) -> bool:
    """Whether the middle one of three lines, of growing slope, is nowhere the highest."""
    return (first[0] - last[0]) * (middle[1] - first[1]) <= (first[0] - middle[0]) * (last[1] - first[1])
