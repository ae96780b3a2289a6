"""Rings through the accelerators of a torus in which every hop is one link."""

from collections.abc import Sequence

import numpy as np

from rapid_llm.network.tasks import Ints


def cycle(sides: Sequence[int]) -> Ints:
    """Places of a torus of ``sides`` (the first varies fastest) in the order of a Hamiltonian cycle.

    The cycle of the first sides times that of the next: rows to and fro along a side that is even; of two odd lengths,
    rows along the shorter one, (long + short) / 2 of them forwards, so that the last ends where the first began.
    """
    found: Ints = np.zeros(1, np.int64)
    stride = 1
    for side in sides:
        if side > 1:
            found = _product(found, np.arange(side) * stride)
        stride *= side
    return found


def _product(first: Ints, second: Ints) -> Ints:
    """A cycle through the sums of the places of two cycles."""
    row, rows = (first, second) if len(second) % 2 == 0 else (second, first)
    if len(row) == 1 or len(rows) == 1:
        return (row[:, None] + rows[None, :]).ravel()
    if len(rows) % 2:
        row, rows = sorted((first, second), key=len)
    forwards = len(rows) // 2 if len(rows) % 2 == 0 else (len(rows) + len(row)) // 2
    at, parts = 0, []
    for index, base in enumerate(rows):
        way = 1 if (index % 2 == 0 if len(rows) % 2 == 0 else index < forwards) else -1
        parts.append(base + row[(at + way * np.arange(len(row))) % len(row)])
        at = (at - way) % len(row)
    return np.concatenate(parts)
