"""One residual layer as a run of canonical operators: norm, mixer, residual, norm, feed-forward, residual."""

from __future__ import annotations

from rapid_llm.lowering.attention import attention, cross_attention, latent_attention
from rapid_llm.lowering.feedforward import mixture, mlp
from rapid_llm.lowering.operators import MASK_BYTES, Canonical, Column, only, pointwise, renamed
from rapid_llm.lowering.recurrent import compressed_attention, state_space
from rapid_llm.lowering.shapes import Shapes
from rapid_llm.model.architecture import MLP, Attention, Block, CompressedAttention, LatentAttention, MoE, StateSpace
from rapid_llm.operators.elementwise import where
from rapid_llm.runtime import Runtime, Training

SANDWICH_NORMS = 4


def block(layer: Block, hidden: int, s: Shapes, runtime: Runtime) -> list[Canonical]:
    """Forward pass of one layer on one rank, unfused. Tensor 'x' comes in, the last residual's output leaves."""
    facts = runtime.training
    dropout = bool(s.training and facts and facts.dropout)
    stored = facts if s.training and facts and not facts.fused_attention else None
    apart = runtime.serving is not None and runtime.serving.bias_apart
    size = s.shard * hidden * s.act
    out: list[Canonical] = []
    x = "x"
    if layer.mixer is not None:
        out.append(pointwise("norm", "reduce", {x: size}, {"n1": size}, saves=(x,)))
        out.extend(_mixed(layer.mixer, hidden, s, stored))
        if layer.side_mixer is not None:
            out.extend(renamed(state_space(layer.side_mixer, hidden, s), "side_", keep=("n1",)))
        if not (layer.parallel and layer.ffn):
            if apart and getattr(layer.mixer, "o_bias", False):
                out.append(pointwise("bias", "stream", {"o": size}, {"o": size}))
            out.extend(_residual(x, "o", "x1", size, s, dropout=dropout, sandwich=layer.norms >= SANDWICH_NORMS))
            x = "x1"
    if layer.cross is not None:
        out.append(pointwise("norm", "reduce", {x: size}, {"nc": size}, saves=(x,)))
        out.extend(cross_attention(layer.cross, hidden, s, stored=stored))
        if apart and layer.cross.o_bias:
            out.append(pointwise("bias", "stream", {"c_o": size}, {"c_o": size}))
        out.extend(_residual(x, "c_o", "xc", size, s, dropout=dropout, sandwich=False))
        x = "xc"
    if layer.ffn is not None:
        out.append(pointwise("norm", "reduce", {x: size}, {"n2": size}, saves=(x,)))
        out.extend(_fed_forward(layer.ffn, hidden, s, runtime))
        if apart and getattr(layer.ffn, "bias", False):
            out.append(pointwise("bias", "stream", {"d": size}, {"d": size}))
        out.extend(_residual(x, "d", "x2", size, s, dropout=dropout, sandwich=layer.norms >= SANDWICH_NORMS))
    return only(out, where(s.source > 0, 1.0, 0.0)) if layer.cross and layer.mixer is None else out


def _mixed(
    mixer: Attention | LatentAttention | CompressedAttention | StateSpace,
    hidden: int,
    s: Shapes,
    stored: Training | None,
) -> list[Canonical]:
    """The token mixer of a layer, between its norm and its residual."""
    match mixer:
        case Attention():
            return attention(mixer, hidden, s, stored=stored)
        case LatentAttention():
            return latent_attention(mixer, hidden, s)
        case CompressedAttention():
            return compressed_attention(mixer, hidden, s)
        case StateSpace():
            return state_space(mixer, hidden, s)


def _fed_forward(part: MLP | MoE, hidden: int, s: Shapes, runtime: Runtime) -> list[Canonical]:
    """The feed-forward part of a layer, between its norm and its residual."""
    if isinstance(part, MLP):
        return mlp(part, hidden, s)
    sorts = s.training and runtime.communication.expert is None
    early = runtime.training is not None and runtime.training.weighs_early
    return mixture(part, hidden, s, fused=runtime.fused_experts, sorts=sorts, weighs_early=early)


def _residual(
    x: str, branch: str, out: str, size: Column, s: Shapes, *, dropout: bool, sandwich: bool
) -> list[Canonical]:
    """Post-norm of a sandwich, dropout with its mask, and the add."""
    result: list[Canonical] = []
    last = branch
    if sandwich:
        result.append(pointwise("norm", "reduce", {last: size}, {branch + "n": size}, saves=(last,)))
        last = branch + "n"
    if dropout:
        mask = size / s.act * MASK_BYTES
        result.append(
            pointwise(
                "dropout", "stream", {last: size}, {branch + "x": size, branch + "m": mask}, saves=(branch + "m",)
            )
        )
        last = branch + "x"
    result.append(pointwise("residual", "stream", {x: size, last: size}, {out: size}))
    return result
