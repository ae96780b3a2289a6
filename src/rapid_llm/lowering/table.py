"""The lowered step: frozen columns per family. A row is a kernel or message of a unit and phase, plans are columns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from rapid_llm.lowering.operators import Canonical, Collective, Column, Operator, total
from rapid_llm.operators.families import COLUMNS
from rapid_llm.parallelism import Plans

Matrix = NDArray[np.float64]

PHASES = ("forward", "recompute", "backward", "optimizer")
FORWARD, RECOMPUTE, BACKWARD, OPTIMIZER = range(4)
WEIGHT_GRADIENT = " wgrad"
"""How the names of rows that compute weight gradients end."""
Cell = tuple[int, int]
"""Unit and phase of a row."""


@dataclass(frozen=True, slots=True)
class Kernels:
    """Kernels of one (family, kind, dtype): static per row [R]: name, unit, phase; per plan [R, P]: columns and count.

    ``count`` is how often the row runs in one pass of its unit (0 where a plan does not run it).
    """

    family: str
    kind: str
    dtype: str
    names: tuple[str, ...]
    unit: NDArray[np.int64]
    phase: NDArray[np.int64]
    columns: dict[str, Matrix]
    count: Matrix


@dataclass(frozen=True, slots=True)
class Messages:
    """Messages of one (op, axis): as Kernels; size in bytes, ranks of the group and stride between them [R, P]."""

    op: str
    axis: str
    names: tuple[str, ...]
    unit: NDArray[np.int64]
    phase: NDArray[np.int64]
    size: Matrix
    ranks: Matrix
    stride: Matrix
    count: Matrix


@dataclass(slots=True)
class Builder:
    """Collects rows, one list per table, and freezes them."""

    plans: Plans
    kernels: dict[tuple[str, str, str], list[tuple[str, int, int, tuple[Column | float, ...], Column | float]]] = field(
        default_factory=dict
    )
    messages: dict[tuple[str, str], list[tuple[str, int, int, Column | float, Column | float]]] = field(
        default_factory=dict
    )

    def kernel(
        self, op: Operator, cell: Cell, columns: Mapping[str, Column | float], *, count: Column | float, name: str = ""
    ) -> None:
        """Add one kernel row."""
        values = tuple(columns[c] for c in COLUMNS[op.family])
        self.kernels.setdefault((op.family, op.kind, op.dtype), []).append((name or op.name, *cell, values, count))

    def message(
        self, name: str, op: str, axis: str, cell: Cell, *, size: Column | float, count: Column | float
    ) -> None:
        """Add one message row on the process group of ``axis``, if any plan sends it."""
        if isinstance(count, np.ndarray) and not count.any():
            return
        self.messages.setdefault((op, axis), []).append((name, *cell, size, count))

    def freeze(self) -> tuple[tuple[Kernels, ...], tuple[Messages, ...]]:
        """All rows as arrays."""
        width = len(self.plans)
        return (
            tuple(self._kernels(key, rows, width) for key, rows in self.kernels.items()),
            tuple(self._messages(key, rows, width) for key, rows in self.messages.items()),
        )

    def _kernels(self, key: tuple[str, str, str], rows: list, width: int) -> Kernels:  # type: ignore[type-arg]
        family, kind, dtype = key
        names = COLUMNS[family]
        values = np.empty((len(names) + 1, len(rows), width))
        for r, (_, _, _, cells, count) in enumerate(rows):
            for c, cell in enumerate(cells):
                values[c, r] = cell
            values[-1, r] = count
        values.flags.writeable = False
        return Kernels(
            family,
            kind,
            dtype,
            tuple(row[0] for row in rows),
            np.array([row[1] for row in rows]),
            np.array([row[2] for row in rows]),
            {name: values[c] for c, name in enumerate(names)},
            values[-1],
        )

    def _messages(self, key: tuple[str, str], rows: list, width: int) -> Messages:  # type: ignore[type-arg]
        op, axis = key
        values = np.empty((4, len(rows), width))
        values[2] = getattr(self.plans, axis)
        values[3] = self.plans.stride(axis)
        for r, (_, _, _, size, count) in enumerate(rows):
            values[0, r] = size
            values[1, r] = count
        values.flags.writeable = False
        return Messages(
            op,
            axis,
            tuple(row[0] for row in rows),
            np.array([row[1] for row in rows]),
            np.array([row[2] for row in rows]),
            size=values[0],
            count=values[1],
            ranks=values[2],
            stride=values[3],
        )


def forward_columns(op: Operator) -> dict[str, Column | float]:
    """The pricing columns of an operator's forward kernel."""
    if op.family == "pointwise":
        return {"read_bytes": total(op.reads), "write_bytes": total(op.writes), "flops": 0.0}
    return dict(op.columns)


def saved_bytes(sequence: list[Canonical]) -> dict[str, Column | float]:
    """Tensors that the backward pass needs: name -> bytes [P], each once.

    Of an input that the backward pass gathers again only this rank's shard stays.
    """
    sizes: dict[str, Column | float] = {}
    for op in sequence:
        if isinstance(op, Operator):
            for tensors in (op.reads, op.writes):
                for name, size in tensors.items():
                    sizes[name] = np.maximum(sizes[name], size) if name in sizes else size
    sizes |= dict(op.kept for op in sequence if isinstance(op, Collective) and op.kept)
    kept = dict.fromkeys(n for op in sequence if isinstance(op, Operator) for n in op.saves)
    return {name: sizes[name] for name in kept}


def gathered_bytes(sequence: list[Canonical]) -> Column | float:
    """Bytes by which gathered inputs exceed the shards that are kept of them [P]."""
    found = (op for op in sequence if isinstance(op, Collective) and op.kept)
    return sum((op.when * (op.size - op.kept[1]) for op in found if op.kept), 0.0)
