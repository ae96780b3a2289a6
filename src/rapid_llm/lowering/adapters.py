"""Low-rank adapters (LoRA, Hu et al. 2021): weights are frozen, and trained products of rank r stand beside some."""

from __future__ import annotations

from collections.abc import Sequence

from rapid_llm.lowering.operators import Canonical, Column, Operator, pointwise
from rapid_llm.lowering.projection import matmul
from rapid_llm.lowering.shapes import Shapes
from rapid_llm.operators.elementwise import filled
from rapid_llm.workload import Lora

_TARGETS = {
    "attention": {"qkv", "q", "q_down", "q_up", "kv_down", "kv_up", "out"},
    "mlp": {"up", "down", "shared_up", "shared_down"},
    "experts": {"expert_up", "expert_down"},
}
"""Products by the part of a block that a user names."""
_IN, _OUT = "_lora_in", "_lora_out"
_PRODUCTS = ("gemm", "moe")


def adapted(sequence: Sequence[Canonical], lora: Lora, s: Shapes) -> list[Canonical]:
    """The same forward pass with frozen weights, and behind each target Y = X W the adapter Y + (X A) B.

    Weights that are kept in 4 or 8 bits are widened ahead of every product, that of the input's gradient too (QLoRA,
    arXiv 2305.14314); embedding and head are not among them.
    """
    targets = set().union(*(_TARGETS[part] for part in lora.targets))
    out: list[Canonical] = []
    for op in sequence:
        if s.packed and isinstance(op, Operator) and op.weight and op.family in _PRODUCTS and op.name != "lm_head":
            out.append(_widened(op, s))
        out.append(op)
        if isinstance(op, Operator) and op.weight:
            reads = op.reads
            op.frozen, op.saves = True, ()
            if op.name in targets:
                out += _adapter(op, float(lora.rank), reads, s)
    return out


def _widened(op: Operator, s: Shapes) -> Operator:
    elements = op.columns["n"] * op.columns["k"] * op.columns["groups"] + filled(s.tokens, 0.0)
    name = op.name + "_widen"
    return pointwise(name, "stream", {name + "_packed": elements * s.packed}, {name: elements * s.act}, when=op.when)


def _adapter(op: Operator, rank: float, reads: dict[str, Column], s: Shapes) -> list[Canonical]:
    m, n, k, groups = (op.columns[name] + filled(s.tokens, 0.0) for name in ("m", "n", "k", "groups"))
    low, high = op.name + _IN, op.name + _OUT
    size = m * groups * s.act
    product = {high: size * n}
    x = next(iter(reads))
    return [
        matmul(low, s, m=m, n=rank, k=k, groups=groups, reads=x, writes={low: size * rank}, x=reads, plain=True),
        matmul(high, s, m=m, n=n, k=rank, groups=groups, reads=low, writes=product, plain=True),
        pointwise(op.name + "_lora_add", "stream", {**op.writes, **product}, op.writes),
    ]


def adapter_parameters(sequence: Sequence[Canonical]) -> tuple[Column | float, Column | float]:
    """Parameters of the adapters of one layer on one rank, outside and inside experts."""
    dense: Column | float = 0.0
    expert: Column | float = 0.0
    for op in sequence:
        if isinstance(op, Operator) and op.name.endswith((_IN, _OUT)):
            size = op.columns["n"] * op.columns["k"] * op.columns["groups"]
            if op.name.startswith("expert"):
                expert = expert + size
            else:
                dense = dense + size
    return dense, expert
