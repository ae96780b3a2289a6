"""Mixers that are described by their weights: state-space and linear-attention blocks, compressed attention.

Their projections are lowered from the model's own list of tensors, so that no shape is written twice.
"""

from __future__ import annotations

from rapid_llm.lowering.operators import FP32_BYTES, Canonical, Column, Operator, pointwise
from rapid_llm.lowering.projection import gather, index_scores, matmul, reduce
from rapid_llm.lowering.shapes import Shapes
from rapid_llm.lowering.weights import TENSOR, rule
from rapid_llm.model.architecture import Block, CompressedAttention, StateSpace
from rapid_llm.model.weights import Weight, block_weights
from rapid_llm.operators.elementwise import larger, smaller

_SELECTIVE_FLOPS = 9.0 + 16.0
"""Of a token, channel and state of Mamba-1: the recurrence and its read-out (state-spaces/mamba, ``selective_scan``)
and an exponential, of which a unit takes one where it takes 16 vector FLOPs."""
_NOT_PROJECTIONS = ("ssm.a", "ssm.conv", "mla.compress.position", "mla.index.compress.position")
_LAST = ("ssm.out", "mla.o_down", "mla.o")


def _matrices(mixer: StateSpace | CompressedAttention, hidden: int) -> list[Weight]:
    weights = block_weights(Block(mixer=mixer, ffn=None, norms=0), hidden)
    return [w for w in weights if len(w.shape) > 1 and w.role not in _NOT_PROJECTIONS]


def _project(weight: Weight, hidden: int, s: Shapes, source: str, target: str) -> Operator:
    """One GEMM: column parallel, or row parallel where it returns to the hidden size."""
    k, n = weight.shape
    sharded = rule(weight.role) == TENSOR
    row = sharded and n == hidden
    inputs = k / s.plans.tp if row else float(k)
    outputs = n / s.plans.tp if sharded and not row else float(n)
    name = weight.role.split(".", 1)[1].replace(".", "_")
    groups = max(1, weight.copies)
    return matmul(
        name, s, n=outputs, k=inputs, groups=groups, reads=source, writes={target: s.tokens * outputs * groups * s.act}
    )


def state_space(mixer: StateSpace, hidden: int, s: Shapes) -> list[Canonical]:
    """Input projections, causal convolution, recurrence, gated norm, output projection (Mamba-2, gated delta net ...).

    Reads 'n1', writes 'o'.
    """
    share = smaller(s.plans.tp, mixer.num_value_heads)
    heads = mixer.num_value_heads / share
    inner = mixer.inner_size / share
    t, act = s.tokens, s.act
    mixed = {"mixed": t * (inner + 2.0 * mixer.key_size / share) * act}
    a = {"a": t * inner * act}
    projections = _matrices(mixer, hidden)
    out: list[Canonical] = [*gather("attention", "n1", hidden, s)]
    for weight in projections:
        if weight.role not in _LAST:
            source = "n1" if weight.shape[0] == hidden else "mixed"
            out.append(_project(weight, hidden, s, source, "mixed" if weight.role == "ssm.in" else weight.role))
    if mixer.conv_channels:
        out.append(_convolution(mixer, mixer.conv_channels / share, mixed, s))
    out.append(_recurrence(mixer, heads, mixed, a, s))
    if mixer.norm:
        out.append(pointwise("gated_norm", "reduce", {**a, "gate": a["a"]}, {"an": a["a"]}, saves=("a", "gate")))
    out += [_project(w, hidden, s, "a", "o") for w in projections if w.role in _LAST]
    out.extend(reduce("attention", "o", hidden, s))
    return out


def _convolution(mixer: StateSpace, channels: Column, mixed: dict[str, Column], s: Shapes) -> Operator:
    """The short causal convolution over the projected channels of each sequence."""
    columns: dict[str, Column | float] = {
        "batch": s.batch, "new": s.new / s.plans.cp, "channels": channels, "width": mixer.conv_kernel, "x_bytes": s.act,
        "backward": 0,
    }  # fmt: skip
    return Operator("convolution", "convolution", mixed, mixed, columns, dtype=s.activation_dtype, saves=("mixed",))


def _recurrence(
    mixer: StateSpace, heads: Column, mixed: dict[str, Column], a: dict[str, Column], s: Shapes
) -> Operator:
    """What carries a state from token to token: a scan over the chunks of each head; of Mamba-1, whose heads are single
    channels that share nothing, a kernel that streams tokens once and holds each channel's states in registers (Gu and
    Dao 2023, arXiv 2312.00752, section 3.3.2); of a short convolution the gate alone."""
    if mixer.kind == "short-conv":
        return pointwise("recurrence", "stream", mixed, a, saves=("mixed",))
    if mixer.kind == "mamba":
        held = s.batch * heads * mixer.key_dim
        streamed = pointwise("recurrence", "stream", mixed, a, saves=("mixed", "a"))
        # Beside its tensors: steps and gate of every channel, the states in and out.
        moved = {"read_bytes": 2.0 * a["a"] + held * FP32_BYTES, "write_bytes": held * FP32_BYTES}
        streamed.columns = {**moved, "flops": held * s.new / s.plans.cp * _SELECTIVE_FLOPS}
        return streamed
    return Operator(
        "recurrence",
        "scan",
        mixed,
        a,
        {
            "batch": s.batch,
            "new": s.new / s.plans.cp,
            "heads": heads,
            "key_dim": mixer.key_dim,
            "value_dim": mixer.value_dim,
            "state_bytes": FP32_BYTES,
            "backward": 0,
        },
        kind=mixer.kind,
        dtype=s.activation_dtype,
        saves=("mixed", "a"),
    )


def compressed_attention(mixer: CompressedAttention, hidden: int, s: Shapes) -> list[Canonical]:
    """DeepSeek-V4 attention: every query reads a window and the compressed entries that its indexer keeps.

    Reads 'n1', writes 'o'. Keys and values are one shared head.
    """
    heads = larger(1.0, mixer.num_attention_heads / s.plans.tp)
    t, act = s.tokens, s.act
    new = s.new / s.plans.cp
    past = s.past + (s.new - new) / 2.0  # of the mean query of a balanced split
    entries = (s.past + s.new) / mixer.compress_rate if mixer.compress_rate else 0.0 * s.new
    kept = smaller(entries, mixer.index_topk) if mixer.index_topk else entries
    projections = _matrices(mixer, hidden)
    out: list[Canonical] = [*gather("attention", "n1", hidden, s)]
    for weight in projections:
        if weight.role not in _LAST:
            source = "n1" if weight.shape[0] == hidden else "q_low"
            out.append(_project(weight, hidden, s, source, weight.role))
    if mixer.index_n_heads and mixer.index_head_dim:
        seen = (past + (new + 1.0) / 2.0) / (mixer.compress_rate or 1.0)
        scores = {"index": s.batch * new * seen}
        heads_of, dim = float(mixer.index_n_heads), float(mixer.index_head_dim)
        out.append(index_scores(s, scores, documents=s.batch, new=new, keys=seen, heads=heads_of, dim=dim))
    core: dict[str, Column | float] = {
        "batch": s.batch,
        "new": new,
        "past": past,
        "heads": heads,
        "kv_heads": 1,
        "head_dim": mixer.head_dim,
        "v_head_dim": mixer.head_dim,
        "window": mixer.sliding_window + kept,
        "causal": 1,
        "backward": 0,
        "kv_bytes": s.kv,
        "shared_kv": 1,
    }
    reads = {"q": t * heads * mixer.head_dim * act, "kv": t * mixer.head_dim * act}
    out.append(
        Operator(
            "attention", "attention", reads, {"a": reads["q"]}, core, dtype=s.activation_dtype, saves=("q", "kv", "a")
        )
    )
    out += [_project(w, hidden, s, "a", "o") for w in projections if w.role in _LAST]
    out.extend(reduce("attention", "o", hidden, s))
    return out
