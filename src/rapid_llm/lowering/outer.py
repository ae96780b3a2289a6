"""What stands around the layers: embedding, LM head, loss, sampling, optimizer."""

from __future__ import annotations

import numpy as np

from rapid_llm.lowering.operators import FP32_BYTES, Canonical, Collective, Column, Operator, pointwise
from rapid_llm.lowering.projection import gather, matmul
from rapid_llm.lowering.shapes import Shapes
from rapid_llm.lowering.table import OPTIMIZER, Builder
from rapid_llm.model.architecture import Encoder, Model
from rapid_llm.model.weights import FRAMES
from rapid_llm.operators.elementwise import filled, some, where

LOSS_SCALARS = 3.0
"""Vocabulary-parallel cross entropy exchanges the maximum, the sum and the target logit of each token."""
OPTIMIZER_STATES = 3.0
"""Adam's master weight and two moments, fp32 each."""


def padded_vocabulary(vocab: int, multiple: int, tp: Column) -> Column:
    """Rows of the embedding on one rank: the vocabulary padded to ``multiple`` x tp, divided by tp."""
    unit = multiple * tp
    return np.ceil(vocab / unit) * unit / tp


def embedding(model: Model, s: Shapes, *, dropout: bool) -> list[Canonical]:
    """Gather of the token rows (not the table), position add, and the vocabulary-parallel reduction."""
    size = s.tokens * model.hidden_size * s.act
    shard = s.shard * model.hidden_size * s.act
    out: list[Canonical] = [pointwise("embedding", "gather", {"rows": size}, {"e": size})]
    if model.patch_values:
        out = [_patches(model, s)]
    elif s.tensor_parallel:
        out += [
            Collective("embedding scatter", "reduce_scatter", "all_gather", "tp", size, when=s.plans.sp),
            Collective("embedding reduce", "all_reduce", "", "tp", size, when=1.0 - s.plans.sp),
        ]
    if model.position_embeddings == "learned":
        out.append(pointwise("position", "stream", {"e": shard, "table": shard}, {"ep": shard}))
    if dropout:
        mask = shard / s.act
        out.append(pointwise("dropout", "stream", {"ep": shard}, {"x": shard, "em": mask}, saves=("em",)))
    return out


def encoder_input(encoder: Encoder, s: Shapes) -> list[Canonical]:
    """What an encoder has around its layers: tokens or frames of sound, positions, norms. Sound is convolved on every
    rank; of it there is no gradient (Whisper, section 2.2)."""
    hidden = encoder.hidden_size
    size, shard = s.tokens * hidden * s.act, s.shard * hidden * s.act
    if encoder.mel_bins:
        out = _convolutions(encoder.mel_bins, hidden, s)
    else:
        out = [pointwise("embedding", "gather", {"rows": size}, {"e": size})]
        if s.tensor_parallel:
            out += [
                Collective("embedding scatter", "reduce_scatter", "all_gather", "tp", size, when=s.plans.sp),
                Collective("embedding reduce", "all_reduce", "", "tp", size, when=1.0 - s.plans.sp),
            ]
    if encoder.num_positions:
        out.append(pointwise("position", "stream", {"e": shard, "table": shard}, {"ep": shard}))
    for norm in range(encoder.embedding_norm + encoder.final_norm):
        out.append(pointwise("norm", "reduce", {f"en{norm}": shard}, {"enc": shard}, saves=(f"en{norm}", "enc")))
    return out


def _convolutions(bins: int, hidden: int, s: Shapes) -> list[Canonical]:
    """Frames of sound become half as many tokens; a convolution over three frames is a product with one matrix."""
    size = s.tokens * hidden * s.act
    wide, wider = {"wide": 2.0 * size}, {"wider": 2.0 * size}
    heard, frames = {"sound": 2.0 * s.tokens * bins * s.act}, float(FRAMES)
    first = matmul(
        "sound", s, m=2.0 * s.tokens, n=hidden, k=frames * bins, reads="sound", writes=wide, x=heard, bias=True
    )
    first.source = True
    return [
        first,
        pointwise("activation", "stream", wide, wider, saves=("wide",)),
        matmul("steps", s, n=hidden, k=frames * hidden, reads="wider", writes={"es": size}, x=wider, bias=True),
        pointwise("activation", "stream", {"es": size}, {"e": size}, saves=("es",)),
    ]


def _patches(model: Model, s: Shapes) -> Operator:
    """The projection of image patches, on every rank for its share of the sequence; of pixels there is no gradient."""
    values, size = float(model.patch_values or 1), s.shard * model.hidden_size * s.act
    pixels = {"pixels": s.shard * values * s.act}
    op = matmul("patch", s, m=s.shard, n=model.hidden_size, k=values, reads="pixels", writes={"e": size}, x=pixels)
    op.source, op.bias = True, True
    return op


def head_rows(model: Model, s: Shapes) -> Column:
    """Rows of the head: one of an image; in training every token; in inference the last token of each sequence."""
    if model.head == "none" or (not model.writes and not s.training and not model.patch_values):
        return filled(s.batch, 0.0)
    return s.batch if model.patch_values else s.rows


def head(model: Model, s: Shapes, vocab: Column) -> list[Canonical]:
    """Final norm, logits, and in training the cross entropy. An encoder of text answers with hidden states: what
    predicts its masked words runs in training alone."""
    if not model.patch_values and (model.head == "none" or not (model.writes or s.training)):
        size = s.shard * model.hidden_size * s.act
        return [pointwise("norm", "reduce", {"xf": size}, {"nf": size}, saves=("xf",)), *_pooler(model, s)]
    return _words(model, s, vocab) + (_pooler(model, s) if s.training else [])


def _pooler(model: Model, s: Shapes) -> list[Canonical]:
    """A dense layer on the first token of each sequence, and classes of it (Devlin et al. 2018, section 3.1)."""
    if not model.pooler:
        return []
    hidden = model.hidden_size
    first, pooled = {"first": s.batch * hidden * s.act}, {"pooled": s.batch * hidden * s.act}
    out: list[Canonical] = [
        matmul("pooler", s, m=s.batch, n=hidden, k=hidden, reads="nf", writes=pooled, x=first, plain=True, bias=True)
    ]
    if model.labels:
        classes = {"classes": s.batch * model.labels * s.act}
        n = float(model.labels)
        out.append(matmul("classifier", s, m=s.batch, n=n, k=hidden, reads="pooled", writes=classes, plain=True))
    return out


def _words(model: Model, s: Shapes, vocab: Column) -> list[Canonical]:
    hidden = model.hidden_size
    rows = head_rows(model, s)
    norm_rows = s.shard if s.training else rows
    size = norm_rows * hidden * s.act
    logits = {"logits": rows * vocab * s.act}
    out: list[Canonical] = [pointwise("norm", "reduce", {"xf": size}, {"nf": size}, saves=("xf",))]
    if s.training and s.tensor_parallel:
        out += gather("head", "nf", hidden, s)
    if model.head == "masked":
        dense, wide = {"hd": rows * hidden * s.act}, float(hidden)
        out += [
            matmul("head_dense", s, m=rows, n=wide, k=hidden, reads="nf", writes=dense, plain=True, bias=True),
            pointwise("activation", "stream", dense, {"ha": dense["hd"]}, saves=("hd",)),
            pointwise("norm", "reduce", {"ha": dense["hd"]}, {"nf": dense["hd"]}, saves=("ha",)),
        ]
    out.append(matmul("lm_head", s, m=rows, n=vocab, k=hidden, reads="nf", writes=logits, plain=True, kept=s.head))
    if s.training:
        fp32 = {"logits32": rows * vocab * FP32_BYTES}
        out += [
            pointwise("logits_cast", "stream", logits, fp32),
            pointwise("loss", "reduce", {"logits32": fp32["logits32"]}, {"probs": fp32["logits32"]}, saves=("probs",)),
        ]
        if s.tensor_parallel:
            out.append(Collective("loss", "all_reduce", "", "tp", rows * FP32_BYTES * LOSS_SCALARS))
    elif s.tensor_parallel:
        out.append(Collective("logits gather", "all_gather", "", "tp", rows * vocab * s.plans.tp * s.act))
    return out


def predict_ahead(model: Model, s: Shapes, vocab: Column, layer: list[Canonical]) -> list[Canonical]:
    """One predictor of a further token: norms of the state and of the next token's embedding, their projection to one
    state, a layer, and the shared head (DeepSeek-V3, section 2.2)."""
    hidden = model.hidden_size
    size = s.shard * hidden * s.act
    both = {"eh": 2.0 * s.tokens * hidden * s.act}
    out: list[Canonical] = [
        pointwise("embedding", "gather", {"rows": size}, {"e": size}),
        pointwise("norm", "reduce", {"h": size}, {"eh": size}, saves=("h",)),
        pointwise("norm", "reduce", {"e": size}, {"eh": size}, saves=("e",)),
        *gather("mtp", "eh", 2 * hidden, s),
        matmul("mtp_projection", s, n=hidden / s.plans.tp, k=2.0 * hidden, reads="eh", writes={"x": size}, x=both),
    ]
    return [*out, *layer, *head(model, s, vocab)]


def sampling(s: Shapes, vocab: int) -> list[Canonical]:
    """Softmax and top-k over the whole vocabulary in fp32: two reads and one write a logit (measured samplers)."""
    logits = s.rows * vocab * FP32_BYTES
    return [pointwise("sampling", "reduce", {"l": 2.0 * logits}, {"p": logits})]


def optimizer_rows(builder: Builder, unit: int, dense: Column | float, expert: Column | float, s: Shapes) -> None:
    """The step after the last micro-batch, over the parameters that this rank updates (bytes of one unit pass).

    The gradient norm reads every gradient (clipping, Megatron-LM and torch both); fused Adam reads gradient, master and
    two moments, writes the latter three and the weight.
    """
    plans = s.plans
    sharded = plans.zero_stage >= 1
    owned = dense / where(sharded, plans.shard, 1.0) + expert / where(sharded, plans.edp, 1.0)
    states = OPTIMIZER_STATES * FP32_BYTES
    for name, kind, read, write in (
        ("gradient_norm", "reduce", s.gradient, 0.0),
        ("optimizer", "optimizer", s.gradient + states, states + s.act),
    ):
        op = Operator(name, "pointwise", {}, {}, kind=kind)
        columns: dict[str, Column | float] = {"read_bytes": owned * read, "write_bytes": owned * write, "flops": 0.0}
        builder.kernel(op, (unit, OPTIMIZER), columns, count=1.0)


def tied_row(builder: Builder, unit: int, parameters: Column, s: Shapes) -> None:
    """First and last stage add up their gradients of a tied embedding once a step (Megatron-LM, embedding group)."""
    apart = where(s.plans.pp > 1, 1.0, 0.0)
    if some(apart):
        size = parameters * s.reduce
        builder.message("tied embedding", "all_reduce", "ends", (unit, OPTIMIZER), size=size, count=apart)
