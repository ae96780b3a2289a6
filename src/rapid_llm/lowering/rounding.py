"""Casts of a training step in 8 or 4 bits: which rank rounds which operand, and what then travels rounded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from rapid_llm.lowering.operators import Canonical, Column, Operator, Pieces, Rounds
from rapid_llm.lowering.shapes import Shapes
from rapid_llm.operators.elementwise import where


def rounded(sequence: Sequence[Canonical], s: Shapes, *, gathers: bool, keeps: bool = False) -> list[Canonical]:
    """The same forward pass, where each product in the compute format knows what it rounds of its input and of the
    gradient of its output.

    ``gathers``: inputs of column-parallel and output gradients of row-parallel products are rounded before sequence
    parallelism gathers them: a rank rounds its shard, and the message carries the short format (Transformer Engine;
    torchao's tensor-parallel styles). Outputs are reduced in 16 bits. ``keeps``: the rounded input is what is saved.
    """
    short = s.input / s.act
    kept = short if keeps else 1.0
    sharded: dict[str, Column] = {}
    normed = {name for op in sequence if isinstance(op, Operator) and op.name.endswith("norm") for name in op.writes}
    last: Operator | None = None
    for op in sequence:
        if isinstance(op, Operator):
            if op.weight and op.dtype == s.compute:
                op.rounds, last = replace(_of(op, sharded), found=not normed.isdisjoint(op.reads), kept=kept), op
        elif gathers and op.axis == "tp" and op.op == "all_gather" and op.kept:
            sharded[op.kept[0]] = where(op.when > 0, s.plans.tp, 1.0)
            op.size = op.size * short
            op.grad_size = op.size / short if op.grad_size is None else op.grad_size
        elif gathers and op.axis == "tp" and op.backward == "all_gather" and last and last.rounds:
            op.grad_size = op.size * short
            shards = where(op.when > 0, s.plans.tp, 1.0)
            last.rounds = replace(last.rounds, gradient=last.rounds.gradient / shards)
    return list(sequence)


def _of(op: Operator, sharded: dict[str, Column]) -> Rounds:
    """Elements of a product's input and of its output's gradient, where its shape alone determines them."""
    c = op.columns
    shards = next((sharded[name] for name in op.reads if name in sharded), 1.0)
    rows: Column = c["m"] * c["groups"]  # type: ignore[assignment]
    return Rounds(rows * c["k"] / shards, rows * c["n"])


def in_pieces(sequence: Sequence[Canonical], s: Shapes) -> list[Canonical]:
    """The same forward pass, whose products of tensor parallelism run in pieces beside the messages of sequence shards:
    behind a gather, ahead of a scatter, and backward behind the gather of an output's gradient (Transformer Engine,
    ring exchange and pipelined overlap; the gradient of a gathered input runs whole beside other messages)."""
    gathered: dict[str, Column] = {}
    last: Operator | None = None
    for op in sequence:
        if isinstance(op, Operator):
            if op.family == "gemm" and op.weight:
                name = next((name for name in op.reads if name in gathered), None)
                op.pieces, last = Pieces(gathered[name], 1.0) if name else None, op
        elif op.axis == "tp" and op.kept:
            gathered[op.kept[0]] = where(op.when > 0, s.plans.tp, 1.0)
        elif op.axis == "tp" and op.backward == "all_gather" and last:
            shards = where(op.when > 0, s.plans.tp, 1.0)
            last.pieces = Pieces(shards, shards)
    return list(sequence)
