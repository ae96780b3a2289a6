"""GEMMs against weights, and the tensor-parallel messages around a pair of them (Megatron-LM, Korthikanti 2022)."""

from __future__ import annotations

from dataclasses import replace

from rapid_llm.lowering.operators import FP8_BYTES, FP32_BYTES, Canonical, Collective, Column, Operator, Tensors
from rapid_llm.lowering.shapes import Shapes
from rapid_llm.operators.elementwise import where


def matmul(
    name: str,
    s: Shapes,
    *,
    n: Column | float,
    k: Column | float,
    reads: str,
    writes: Tensors,
    m: Column | None = None,
    groups: Column | float = 1.0,
    weight: bool = True,
    when: Column | float = 1.0,
    x: Tensors | None = None,
    plain: bool = False,
    kept: tuple[float, str] | None = None,
    bias: bool = False,
) -> Operator:
    """Y[m, n] = X[m, k] W[k, n] at the compute dtype; m defaults to this rank's tokens. The input is saved.

    ``weight`` False multiplies two activations (attention scores), which keeps both; ``plain`` runs at the activation
    dtype although the rest is quantised (router, absorbed projections), or in the format ``kept``: bytes and dtype.
    ``groups`` equal GEMMs are one launch. A ``bias`` is added in the epilogue; its gradient is a sum over all rows.
    """
    rows = s.tokens if m is None else m
    x_bytes, w_bytes, computed = _operands(s, kept, plain=plain or not weight)
    columns: dict[str, Column | float] = {
        "m": rows, "n": n, "k": k, "groups": groups, "x_bytes": x_bytes, "w_bytes": w_bytes, "y_bytes": s.act,
    }  # fmt: skip
    source = x if x is not None else {reads: rows * k * s.act * groups}
    return Operator(
        name,
        "gemm",
        reads=source,
        writes=writes,
        columns=columns,
        dtype=computed,
        saves=tuple(source),
        weight=weight,
        when=when,
        bias=bias,
    )


def _operands(s: Shapes, kept: tuple[float, str] | None, *, plain: bool) -> tuple[Column | float, float, str]:
    """Bytes of an element of X and of W, and the format in which they multiply."""
    if kept is not None:
        return (kept[0] if kept[1] == "fp32" else s.act if plain else s.input), *kept
    return (s.act, s.act, s.activation_dtype) if plain else (s.input, s.weight, s.compute)


def index_scores(
    s: Shapes, writes: Tensors, *, documents: Column, new: Column, keys: Column, heads: float, dim: float
) -> Operator:
    """Scores of a lightning indexer: all its heads multiply ``new`` queries a document with the same keys, and their
    weighted sum leaves the kernel in fp32.

    Engines cast queries and keys to fp8 whatever the precision of the rest (DeepGEMM ``fp8_mqa_logits``; DeepSeek-V3.2,
    section 2.1); training keeps the activations' format. The heads of a decoded token fill the rows of a tile; of a
    prompt its tokens do, each cast once, and the heads follow each other along k. Bytes are those of keys that heads
    share and of their sum either way.
    """
    beside = where(s.decode > 0, heads, 1.0)
    in_turn = heads / beside
    scores = matmul(
        "index_scores", s, m=new * beside, n=keys, k=dim * in_turn, groups=documents, reads="iq", writes=writes,
        weight=False,
    )  # fmt: skip
    operand = s.act if s.training else FP8_BYTES
    widths: dict[str, Column | float]
    widths = {"x_bytes": operand, "w_bytes": operand / in_turn, "y_bytes": FP32_BYTES / beside}
    return replace(scores, columns={**scores.columns, **widths}, dtype=scores.dtype if s.training else "fp8")


def gather(part: str, tensor: str, hidden: int, s: Shapes, *, when: Column | float = 1.0) -> list[Canonical]:
    """Into a column-parallel GEMM: all-gather of the sequence shards, or nothing forward and an all-reduce backward.

    ``when``: share of plans that need it [P].
    """
    if not s.tensor_parallel:
        return []
    size = s.tokens * hidden * s.act
    sp = s.plans.sp
    kept = tensor, s.shard * hidden * s.act
    return [
        Collective(
            f"{part} {tensor} gather",
            "all_gather",
            "reduce_scatter",
            "tp",
            size,
            again=True,
            when=when * sp,
            kept=kept,
        ),
        Collective(f"{part} {tensor}", "", "all_reduce", "tp", size, when=when * (1.0 - sp)),
    ]


def reduce(part: str, tensor: str, hidden: int, s: Shapes, *, when: Column | float = 1.0) -> list[Canonical]:
    """Out of a row-parallel GEMM: reduce-scatter to sequence shards, or all-reduce forward and nothing backward."""
    if not s.tensor_parallel:
        return []
    size = s.tokens * hidden * s.act
    sp = s.plans.sp
    return [
        Collective(f"{part} {tensor} scatter", "reduce_scatter", "all_gather", "tp", size, when=when * sp),
        Collective(f"{part} {tensor} reduce", "all_reduce", "", "tp", size, when=when * (1.0 - sp)),
    ]
