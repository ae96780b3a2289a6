"""Canonical operators: what a block computes, before any runtime fuses it, with the tensors each reads and writes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Column = NDArray[np.float64]
Tensors = dict[str, Column]
FP32_BYTES, FP8_BYTES = 4.0, 1.0
MASK_BYTES = 1.0
"""Bytes of an element of a dropout mask."""


@dataclass(frozen=True, slots=True)
class Rounds:
    """Elements that a rank rounds to the format of a product [P]: of its input, and of the gradient of its output;
    ``found``: the kernel that wrote the input found its scale; ``kept``: of the bytes of its input, the share that is
    saved for the weight gradient, where that is the rounded copy."""

    input: Column
    gradient: Column
    found: bool = False
    kept: float = 1.0


@dataclass(frozen=True, slots=True)
class Pieces:
    """In how many pieces a product runs beside the message of its input or output [P]: forward, and for the gradient of
    its input."""

    forward: Column | float
    data: Column | float


@dataclass(slots=True)
class Operator:
    """One kernel of a forward pass.

    name: canonical name, what fusions and recompute sets speak of; family and columns: as ``operators.families``, of a
    pointwise one what it does beside moving its tensors;
    kind: access pattern of a pointwise kernel or kind of a recurrent one; dtype: what it computes in, the vector
    units' own unless the matrix units take part; reads, writes: tensor name -> bytes [P]; saves: tensors kept for the
    backward pass; weight: a GEMM against a weight (has a weight gradient); bias: it has one; frozen: that weight is
    not trained (has none); source: its input has no gradient; rounds: what passes of their own round for it; pieces:
    in how many it runs beside its messages; passes: how many times the bytes of one fused kernel its separate kernels
    move; each: how many experts a pointwise one runs for, one by one where a runtime's products of experts do [P];
    when: share of passes in which it runs [P] (prefill-only or decode-only rows).
    """

    name: str
    family: str
    reads: Tensors
    writes: Tensors
    columns: Mapping[str, Column | float] = field(default_factory=dict)
    kind: str = ""
    dtype: str = "fp32"
    saves: tuple[str, ...] = ()
    weight: bool = False
    frozen: bool = False
    source: bool = False
    when: Column | float = 1.0
    rounds: Rounds | None = None
    passes: float = 1.0
    bias: bool = False
    pieces: Pieces | None = None
    each: Column | None = None


@dataclass(slots=True)
class Collective:
    """One message of a forward pass and its counterpart in the backward pass.

    op and backward name the collectives ("" for none); axis is whose process group carries it; size is the message in
    bytes [P] as ``network`` counts it. ``again``: the backward pass repeats the forward message (gathered inputs that
    were not kept, Korthikanti et al. 2022, section 4.2.2); ``kept``: of such an input, its name and the bytes that
    stay until then [P]. ``grad_size``: bytes of the backward message where they differ.
    """

    name: str
    op: str
    backward: str
    axis: str
    size: Column
    again: bool = False
    when: Column | float = 1.0
    kept: tuple[str, Column] | None = None
    grad_size: Column | None = None


Canonical = Operator | Collective


def pointwise(
    name: str,
    kind: str,
    reads: Tensors,
    writes: Tensors,
    *,
    saves: tuple[str, ...] = (),
    when: Column | float = 1.0,
) -> Operator:
    """A memory-bound kernel: its columns are its tensors."""
    return Operator(name, "pointwise", reads, writes, kind=kind, saves=saves, when=when)


def total(tensors: Tensors, names: tuple[str, ...] | None = None) -> Column | float:
    """Bytes of the named tensors (all by default) [P]."""
    chosen = list(tensors.values()) if names is None else [tensors[n] for n in names if n in tensors]
    return sum(chosen[1:], chosen[0]) if chosen else 0.0


def only(sequence: list[Canonical], when: Column) -> list[Canonical]:
    """The same operators in a share of the passes [P]."""
    for op in sequence:
        op.when = op.when * when
    return sequence


def renamed(sequence: list[Canonical], prefix: str, *, keep: tuple[str, ...]) -> list[Canonical]:
    """The same operators under prefixed names and tensors, for a part that runs beside another; ``keep`` is shared."""

    def name(tensor: str) -> str:
        return tensor if tensor in keep else prefix + tensor

    for op in sequence:
        op.name = prefix + op.name
        if isinstance(op, Operator):
            op.reads = {name(n): b for n, b in op.reads.items()}
            op.writes = {name(n): b for n, b in op.writes.items()}
            op.saves = tuple(name(n) for n in op.saves)
    return sequence
