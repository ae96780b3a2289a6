"""The lowered step: frozen columns per family. A row is a kernel or message of a unit and phase, plans are columns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from rapid_llm.lowering.operators import Canonical, Collective, Column, Operator, total
from rapid_llm.nouns import light
from rapid_llm.operators.elementwise import larger, smaller, some, where
from rapid_llm.operators.families import ATTENTION_KINDS, COLUMNS, POINTWISE_KINDS, VALUES
from rapid_llm.parallelism import Plans

Matrix = NDArray[np.float64]

PHASES = ("forward", "recompute", "backward", "optimizer")
FORWARD, RECOMPUTE, BACKWARD, OPTIMIZER = range(4)
EXPERT = "expert_"
"""How the names of kernels of routed experts begin."""
WEIGHT_GRADIENT = " wgrad"
"""How the names of rows that compute weight gradients end."""
AGAIN = " again"
"""How the names of messages end that gather once more what a weight gradient multiplies."""
CAST = " cast"
"""How the names of rows that round operands end."""
BIAS_GRADIENT = "bias grad"
WITH_PRODUCT = (CAST, BIAS_GRADIENT)
"""How the names of kernels end that go out with a product, at no cost of the host's own."""
SEQUENCE_OPS = ("all_gather", "reduce_scatter")
"""What sequence parallelism sends along the sequence."""
_KINDS = {"pointwise": POINTWISE_KINDS, "attention": ATTENTION_KINDS}
Cell = tuple[int, int]
"""Unit and phase of a row."""


@light
class Kernels:
    """Kernels of one (family, dtype): static per row [R]: name, kind, unit, phase; per plan [R, P]: columns and count.

    ``kind`` is an index into POINTWISE_KINDS or ATTENTION_KINDS (0 for other families); ``count`` is how often the row
    runs in one pass of its unit (0 where a plan does not run it); ``cells``: unit x phases + phase of each row,
    hashable.
    """

    family: str
    dtype: str
    names: tuple[str, ...]
    kind: NDArray[np.int64]
    unit: NDArray[np.int64]
    phase: NDArray[np.int64]
    cells: bytes
    columns: dict[str, Matrix]
    count: Matrix


@light
class Messages:
    """Messages of one (op, axis): as Kernels; size in bytes, ranks of the group and stride between them [R, P]."""

    op: str
    axis: str
    names: tuple[str, ...]
    unit: NDArray[np.int64]
    phase: NDArray[np.int64]
    cells: bytes
    size: Matrix
    ranks: Matrix
    stride: Matrix
    count: Matrix


@lru_cache(maxsize=1024)
def _placed(units: tuple[int, ...], phases: tuple[int, ...]) -> tuple[NDArray[np.int64], NDArray[np.int64], bytes]:
    """Units and phases of the rows of a table, and its cells."""
    places = np.array([units, phases])
    places.flags.writeable = False
    unit, phase = places
    return unit, phase, (unit * len(PHASES) + phase).tobytes()


_Row = tuple[str, int, int, int, tuple["Column | float", ...]]
"""Name, kind, unit and phase of a kernel; its columns and count."""


@dataclass(slots=True)
class Builder:
    """Collects rows, one list per table, and freezes them.

    ``streams`` on which products of experts are launched one by one (0: one grouped kernel); ``copied``: which
    messages along sequences, by name and operation, pass a copy, sequences not being the outer dimension.
    """

    plans: Plans
    streams: int = 0
    copied: Callable[[str, str], bool] | None = None
    kernels: dict[tuple[str, str], list[_Row]] = field(default_factory=dict)
    messages: dict[tuple[str, str], list[tuple[str, int, int, Column | float, Column | float]]] = field(
        default_factory=dict
    )

    def kernel(
        self,
        op: Operator,
        cell: Cell,
        columns: Mapping[str, Column | float],
        *,
        count: Column | float,
        name: str = "",
        pieces: Column | float | None = None,
    ) -> None:
        """Add one kernel row, run in so many ``pieces`` of its rows; products on streams fill the accelerator as so
        many equal ones do, again and again."""
        if pieces is not None:
            columns, count = {**columns, "m": columns["m"] / pieces}, count * pieces
        if self.streams and op.each is not None:
            columns, count = {name: value / op.each for name, value in columns.items()}, count * op.each
        if self.streams and op.weight and op.name.startswith(EXPERT):
            together = smaller(columns["groups"], self.streams)
            columns, count = {**columns, "groups": together}, count * (columns["groups"] / together)
        kinds = _KINDS.get(op.family)
        kind = kinds.index(op.kind) if kinds else 0
        self.kernels.setdefault((op.family, op.dtype), []).append(
            (name or op.name, kind, *cell, (*VALUES[op.family](columns), count))
        )

    def cast(
        self, op: Operator, cell: Cell, moved: Column | float, *, count: Column | float, kind: str = "stream"
    ) -> None:
        """Add the row of a pass that rounds an operand of ``op``, of so many bytes read and written."""
        row = Operator(op.name, "pointwise", {}, {}, kind=kind)
        columns: dict[str, Column | float] = {"read_bytes": moved, "write_bytes": 0.0, "flops": 0.0}
        self.kernel(row, cell, columns, count=count, name=op.name + CAST)

    def message(
        self, name: str, op: str, axis: str, cell: Cell, *, size: Column | float, count: Column | float
    ) -> None:
        """Add one message row on the process group of ``axis``, if any plan sends it."""
        if not some(count):
            return
        self.messages.setdefault((op, axis), []).append((name, *cell, size, count))
        if self.copied and axis == "tp" and op in SEQUENCE_OPS and self.copied(name, op):
            moved: dict[str, Column | float] = {"read_bytes": size, "write_bytes": size, "flops": 0.0}
            copy = Operator("sequence copy", "pointwise", {}, {}, kind="stream")
            self.kernel(copy, cell, moved, count=count * where(self.plans.tp > 1, 1.0, 0.0))

    def freeze(self) -> tuple[tuple[Kernels, ...], tuple[Messages, ...]]:
        """All rows as arrays."""
        width = len(self.plans)
        return (
            tuple(self._kernels(key, rows, width) for key, rows in self.kernels.items()),
            tuple(self._messages(key, rows, width) for key, rows in self.messages.items()),
        )

    def _kernels(self, key: tuple[str, str], rows: list[_Row], width: int) -> Kernels:
        names, kinds, units, phases, cells = zip(*rows, strict=True)
        columns = COLUMNS[key[0]]
        values = _filled([*zip(*cells, strict=True)], width)
        unit, phase, places = _placed(units, phases)
        held = {name: values[c] for c, name in enumerate(columns)}
        return Kernels(*key, names, np.array(kinds), unit, phase, places, held, values[-1])

    def _messages(self, key: tuple[str, str], rows: list, width: int) -> Messages:  # type: ignore[type-arg]
        names, units, phases, sizes, counts = zip(*rows, strict=True)
        group = [(column,) * len(names) for column in self.plans.group(key[1])]
        size, count, ranks, stride = _filled([sizes, counts, *group], width)
        unit, phase, cells = _placed(units, phases)
        return Messages(*key, names, unit, phase, cells, size, ranks, stride, count)


def _filled(columns: Sequence[Sequence[Column | float]], width: int) -> NDArray[np.float64]:
    """Columns of cells, each a number or one per plan, as read-only columns [C, R, P]."""
    shape = len(columns), len(columns[0]), width
    if width == 1:
        values = np.array([*chain.from_iterable(columns)], dtype=np.float64).reshape(shape)
    else:
        values = np.empty(shape)
        for c, column in enumerate(columns):
            for r, cell in enumerate(column):
                values[c, r] = cell
    values.flags.writeable = False
    return values


def beside(op: Operator, moved: Mapping[str, Column | float], passes: float = 1.0) -> dict[str, Column | float]:
    """The pricing columns of a memory-bound kernel that moves its tensors and, ``passes`` times, what its own columns
    list in addition.
    """
    if not op.columns:
        return {**moved, "flops": 0.0}
    own = {name: passes * value for name, value in op.columns.items()}
    return {name: moved.get(name, 0.0) + own.get(name, 0.0) for name in ("read_bytes", "write_bytes", "flops")}


def forward_columns(op: Operator) -> Mapping[str, Column | float]:
    """The pricing columns of an operator's forward kernel."""
    if op.family == "pointwise":
        return beside(op, {"read_bytes": op.passes * total(op.reads), "write_bytes": op.passes * total(op.writes)})
    return op.columns


def saved_bytes(sequence: Sequence[Canonical]) -> dict[str, Column | float]:
    """Tensors that the backward pass needs: name -> bytes [P], each once.

    Of an input that the backward pass gathers again only this rank's shard stays. A product that saves what it rounded
    keeps a copy of its own; who else saves the tensor keeps it as it was.
    """
    sizes: dict[str, Column | float] = {}
    for op in sequence:
        if isinstance(op, Operator):
            for tensors in (op.reads, op.writes):
                for name, size in tensors.items():
                    sizes[name] = larger(sizes[name], size) if name in sizes else size
    sizes |= dict(op.kept for op in sequence if isinstance(op, Collective) and op.kept)
    whole, copies = set(), dict[str, float]()
    for op in sequence:
        for name in op.saves if isinstance(op, Operator) else ():
            own = op.rounds.kept if isinstance(op, Operator) and op.rounds else 1.0
            copies[name] = copies.get(name, 0.0) + (own if own < 1.0 else 0.0)
            whole |= {name} if own >= 1.0 else set()
    return {name: sizes[name] * ((name in whole) + more) for name, more in copies.items()}


def gathered_bytes(sequence: list[Canonical]) -> Column | float:
    """Bytes by which gathered inputs exceed the shards that are kept of them [P]."""
    found = (op for op in sequence if isinstance(op, Collective) and op.kept)
    return sum((op.when * (op.size - op.kept[1]) for op in found if op.kept), 0.0)
