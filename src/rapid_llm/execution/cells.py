"""Rows of a table and the places of a pass [phases, U, P] that they add up in."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from rapid_llm.lowering import Kernels, Messages
from rapid_llm.lowering.table import PHASES

Matrix = NDArray[np.float64]
Names = tuple[tuple[str, tuple[str, ...]], ...]
"""Of some tables of kernels each family, and the names of its rows."""


def by_cell(parts: Sequence[tuple[Kernels | Messages, Matrix]], shape: tuple[int, int, int]) -> Matrix:
    """Values of rows [R, P] summed over the rows of each phase and unit [phases, U, P]."""
    if not parts:
        return np.zeros(shape)
    return summed(stacked([v for _, v in parts], shape), places_of([r for r, _ in parts]), shape)


def places_of(tables: Sequence[Kernels | Messages]) -> bytes:
    """The cell of each row of some tables."""
    return b"".join([rows.cells for rows in tables])


def stacked(values: Sequence[Matrix] | Sequence[NDArray[np.bool_]], shape: tuple[int, int, int]) -> Matrix:
    """The rows of several tables below each other [R, P]."""
    return np.concatenate(values) if values else np.zeros((0, shape[2]))


def summed(values: Matrix, places: bytes, shape: tuple[int, int, int]) -> Matrix:
    """Values of rows [R, P] summed over the rows of each place [phases, U, P]."""
    return (_gathering(places, shape[1]) @ values).reshape(shape)


@lru_cache(maxsize=512)
def _gathering(cells: bytes, units: int) -> Matrix:
    """The matrix [phases x U, R] that sums rows by cell: a product with it costs less than indexed addition."""
    unit, phase = np.divmod(np.frombuffer(cells, np.int64), len(PHASES))
    matrix = np.zeros((len(PHASES) * units, len(unit)))
    matrix[phase * units + unit, np.arange(len(unit))] = 1.0
    return matrix


@lru_cache(maxsize=256)
def ending(names: tuple[str, ...], ends: tuple[str, ...]) -> NDArray[np.bool_]:
    """Which names end in one of these [R]."""
    return np.array([name.endswith(ends) for name in names])


@lru_cache(maxsize=256)
def starting(names: tuple[str, ...], start: str) -> NDArray[np.bool_]:
    """Which names begin with one of these [R]."""
    return np.array([name.startswith(start) for name in names])


def named(tables: Sequence[Kernels]) -> Names:
    """Family and names of some tables."""
    return tuple((rows.family, rows.names) for rows in tables)
