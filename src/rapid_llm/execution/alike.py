"""Rows and plans of a table that are alike, so that each is priced once."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.float64]
DEDUPLICATE_ABOVE = 256
"""Rows from which sorting out repeated shapes costs less than pricing them."""
ALL = slice(None)
"""Every plan."""


def runs_of(columns: NDArray[np.float64]) -> tuple[NDArray[np.int64] | slice, NDArray[np.int64] | None]:
    """The first plan of every run of plans with equal rows, and the run of each plan, from columns [..., P]; None where
    no plan equals the one before.

    Decode steps of one batch differ in their cache alone, so most tables have one run of them.
    """
    if columns.shape[-1] == 1:
        return ALL, None
    columns = columns.reshape(-1, columns.shape[-1])
    changes = np.logical_or.reduce(columns[:, 1:] != columns[:, :-1])
    return _alike(changes.tobytes())


@lru_cache(maxsize=512)
def _alike(changes: bytes) -> tuple[NDArray[np.int64] | slice, NDArray[np.int64] | None]:
    """Runs, from whether each plan but the first differs from the one before."""
    starts = np.concatenate([[True], np.frombuffer(changes, np.bool_)])
    return (ALL, None) if starts.all() else (np.flatnonzero(starts), np.cumsum(starts) - 1)


def distinct(cells: Matrix) -> tuple[Matrix, NDArray[np.int64]]:
    """Distinct columns of a [C, N] table and where each of the N came from."""
    packed = np.ascontiguousarray(cells.T).view(np.dtype((np.void, cells.shape[0] * cells.itemsize))).ravel()
    _, first, inverse = np.unique(packed, return_index=True, return_inverse=True)
    return cells[:, first], inverse
