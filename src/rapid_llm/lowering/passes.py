"""From the canonical forward pass of a unit to its forward, recompute and backward rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from functools import lru_cache

from rapid_llm.lowering.modules import Module
from rapid_llm.lowering.operators import Canonical, Collective, Column, Operator, Rounds, total
from rapid_llm.lowering.shapes import Shapes
from rapid_llm.lowering.table import (
    AGAIN,
    BACKWARD,
    BIAS_GRADIENT,
    FORWARD,
    RECOMPUTE,
    WEIGHT_GRADIENT,
    Builder,
    beside,
    forward_columns,
    saved_bytes,
)
from rapid_llm.operators.elementwise import larger, some, where
from rapid_llm.parallelism import RECOMPUTE_MODES, Plans

NONE, SELECTIVE, FULL = range(len(RECOMPUTE_MODES))
_BACKWARD_SCAN = 2.5
"""Work of a scan's backward pass over its forward pass: the states once more, and both gradients."""


@dataclass(frozen=True, slots=True)
class Rerun:
    """Share of the layers whose operators the backward pass runs again [P]: the ``selective`` ones, and the others."""

    selective: Module
    partly: Mapping[str, float]
    chosen: Column
    others: Column
    stops: bool

    @classmethod
    def of(cls, plans: Plans, selective: Module, partly: Mapping[str, float], *, stops: bool) -> Rerun | None:
        """Under full recomputation every operator, under selective the named ones, or a share of those in ``partly``;
        None where no plan recomputes.

        ``stops``: at the last operator that writes a tensor of which the backward pass has need.
        """
        if not some(plans.recompute):
            return None
        share = 1.0 / plans.recompute_every
        chosen, others = (where(plans.recompute > mode, share, 0.0) for mode in (NONE, SELECTIVE))
        return cls(selective, partly, chosen, others, stops)

    def end(self, sequence: Sequence[Canonical]) -> int:
        """How many operators of a layer can run again."""
        if not self.stops:
            return len(sequence)
        kept = {name for op in sequence if isinstance(op, Operator) for name in op.saves}
        return max(
            (at for at, op in enumerate(sequence, 1) if isinstance(op, Operator) and kept & op.writes.keys()), default=0
        )

    def share(self, op: Canonical) -> Column:
        """Share of the layers in which ``op`` runs again [P]."""
        if not isinstance(op, Operator):
            return self.chosen if op.name.split(" ", 1)[0] in self.selective.messages else self.others
        if op.name in self.partly:
            return larger(self.others, self.partly[op.name] * self.chosen)
        return self.chosen if _in(op, self.selective.operators) else self.others


def forward_rows(
    builder: Builder, unit: int, sequence: Sequence[Canonical], s: Shapes, rerun: Rerun | None = None
) -> None:
    """Rows of the forward pass, of what it rounds, and of what the backward pass runs again."""
    passes: list[tuple[int, Column | float]] = [(FORWARD, 1.0)]
    end = 0 if rerun is None else rerun.end(sequence)
    for at, op in enumerate(sequence):
        if rerun is not None:
            share = rerun.share(op)
            passes = [(FORWARD, 1.0), (RECOMPUTE, share)] if at < end and some(share) else passes[:1]
        if isinstance(op, Operator):
            columns = forward_columns(op)
            pieces = op.pieces.forward if op.pieces else None
            for phase, again in passes:
                builder.kernel(op, (unit, phase), columns, count=op.when * again, pieces=pieces)
                if op.rounds:
                    each = s.found if op.rounds.found else s.cast
                    builder.cast(op, (unit, phase), op.rounds.input * each, count=op.when * again)
        elif op.op:
            for phase, again in passes:
                builder.message(op.name, op.op, op.axis, (unit, phase), size=op.size, count=op.when * again)


def backward_rows(builder: Builder, unit: int, sequence: Sequence[Canonical], s: Shapes) -> None:
    """Rows of the backward pass, in reverse order."""
    cell = (unit, BACKWARD)
    for op in reversed(sequence):
        if isinstance(op, Collective):
            if op.again:
                builder.message(op.name + AGAIN, op.op, op.axis, cell, size=op.size, count=op.when)
            if op.backward:
                size = op.size if op.grad_size is None else op.grad_size
                builder.message(op.name + " grad", op.backward, op.axis, cell, size=size, count=op.when)
        elif op.family == "gemm":
            _gemm_backward(builder, unit, op, s)
        elif op.family == "pointwise":
            _pointwise_backward(builder, unit, op)
        else:
            builder.kernel(op, cell, {**op.columns, "backward": 1.0}, count=op.when, name=op.name + " grad")


def _gemm_backward(builder: Builder, unit: int, op: Operator, s: Shapes) -> None:
    """dX[m, k] = dY W^T and dW[k, n] = X^T dY; a weight gradient is added to what earlier micro-batches left, but under
    ZeRO-3 it is written afresh and reduced."""
    c = op.columns
    y = where(s.plans.zero_stage >= 3, s.act, 2.0 * s.gradient) if op.weight else s.act
    data = {**c, "n": c["k"], "k": c["n"], "y_bytes": s.act}
    weight = {**c, "m": c["k"], "k": c["m"], "w_bytes": c["x_bytes"], "y_bytes": y}
    pieces = op.pieces.data if op.pieces else None
    if not op.source:
        builder.kernel(op, (unit, BACKWARD), data, count=op.when, name=op.name + " dgrad", pieces=pieces)
    if op.rounds:
        builder.cast(op, (unit, BACKWARD), op.rounds.gradient * s.cast, count=op.when)
    if not op.frozen:
        builder.kernel(op, (unit, BACKWARD), weight, count=op.when, name=op.name + WEIGHT_GRADIENT)
        if op.bias:
            row = Operator(op.name, "pointwise", {}, {}, kind="reduce")
            read: dict[str, Column | float] = {"read_bytes": total(op.writes), "write_bytes": 0.0, "flops": 0.0}
            builder.kernel(row, (unit, BACKWARD), read, count=op.when, name=BIAS_GRADIENT)
        if op.rounds:
            builder.cast(op, (unit, BACKWARD), _turned_bytes(op, op.rounds, s), count=op.when, kind="gather")


def _turned_bytes(op: Operator, rounds: Rounds, s: Shapes) -> Column | float:
    """Bytes moved for the turned copies of both operands of a weight gradient: the kernel that rounds writes them, but
    what was rounded in shards and gathered is read once more."""
    rows, again = op.columns["m"] * op.columns["groups"], s.input if s.input < s.act else 0.0

    def moved(size: Column | float, rounded: Column) -> Column | float:
        return size * (s.turned + where(rounded < size, again, 0.0))

    return moved(rows * op.columns["k"], rounds.input) + moved(rows * op.columns["n"], rounds.gradient)


def _pointwise_backward(builder: Builder, unit: int, op: Operator) -> None:
    """Reads the gradients of what it wrote and what it saved, writes the gradients of what it read."""
    read = total(op.writes) + total(op.reads, op.saves)
    columns = beside(op, {"read_bytes": op.passes * read, "write_bytes": op.passes * total(op.reads)}, _BACKWARD_SCAN)
    builder.kernel(op, (unit, BACKWARD), columns, count=op.when, name=op.name + " grad")


def kept_bytes(
    sequence: Sequence[Canonical],
    plans: Plans,
    selective: tuple[Sequence[str], Sequence[str]],
    keeps: Sequence[str] | None = None,
) -> tuple[Column | float, Column | float]:
    """Activation bytes of one layer and micro-batch kept until its backward pass, and those alive while it runs again.

    ``selective``: what selective recomputation runs again, and of these what throws away its results for certain;
    ``keeps``: the tensors that stay under selective recomputation, all that other operators need where None.
    Returns ([P], [P]): kept under the plan's recompute mode; extra working set of the layer being recomputed, the
    gradient of its output among it.
    """
    sizes = saved_bytes(sequence)
    everything = sum(sizes.values(), 0.0)
    if not some(plans.recompute > NONE):
        return everything, 0.0
    first = next((op for op in sequence if isinstance(op, Operator)), None)
    entry = next(iter(first.reads.values())) if first else 0.0
    full, selected, share = plans.recompute == FULL, plans.recompute == SELECTIVE, 1.0 / plans.recompute_every
    named = keeps if keeps is not None else _needed(sequence, *selective) if some(selected) else ()
    part = sum((b for n, b in sizes.items() if n in named), 0.0)
    mode = where(full, entry, where(selected, part, everything))
    again = where(full, everything - mode + entry, everything - mode)
    return share * mode + (1.0 - share) * everything, where(plans.recompute > NONE, again, 0.0)


def _needed(sequence: Sequence[Canonical], selective: Sequence[str], discarded: Sequence[str]) -> Set[str]:
    """The tensors that stay under selective recomputation."""
    inside = [op for op in sequence if isinstance(op, Operator) and _in(op, selective)]
    written = {n for op in inside for n in op.writes}
    kept = {n for op in sequence if isinstance(op, Operator) and not _in(op, selective) for n in op.saves}
    kept -= {n for op in inside if _in(op, discarded) for n in op.writes}
    return kept | {n for op in inside for n in op.reads if n not in written}


def _in(op: Operator, names: Sequence[str]) -> bool:
    return not _parts(op.name).isdisjoint(names)


@lru_cache(maxsize=1024)
def _parts(name: str) -> frozenset[str]:
    """The canonical operators that a fused one is made of."""
    return frozenset(name.split("+"))
