"""Softmax attention and latent attention as canonical operators on one rank."""

from __future__ import annotations

from functools import partial

import numpy as np

from rapid_llm.lowering.operators import (
    FP8_BYTES,
    FP32_BYTES,
    MASK_BYTES,
    Canonical,
    Collective,
    Column,
    Operator,
    Tensors,
    only,
    pointwise,
    renamed,
)
from rapid_llm.lowering.projection import gather, index_scores, matmul, reduce
from rapid_llm.lowering.regrouped import attending, cached_share, gathered_cache, regroup
from rapid_llm.lowering.shapes import Shapes
from rapid_llm.model.architecture import Attention, LatentAttention
from rapid_llm.operators.elementwise import filled, larger, some, where
from rapid_llm.runtime import Training


def local_heads(heads: int, tp: Column) -> Column:
    """Heads of one rank: divided by tp, replicated once there are fewer heads than ranks."""
    return larger(1.0, np.ceil(heads / tp))


def attention(mixer: Attention, hidden: int, s: Shapes, *, stored: Training | None = None) -> list[Canonical]:
    """QKV projection, norms and rotary on queries and keys, attention core, output projection.

    Reads tensor 'n1' [tokens, hidden], writes 'o' [tokens, hidden]. ``stored``: facts of a framework that
    keeps the scores instead of running one fused kernel.
    """
    over, own = attending(s), local_heads(mixer.num_attention_heads, s.plans.tp)
    heads, kv_heads = (local_heads(n, over) for n in (mixer.num_attention_heads, mixer.num_key_value_heads))
    d, dv = mixer.head_dim, mixer.v_head_dim or mixer.head_dim
    q = heads * d * (2.0 if mixer.output_gate else 1.0)
    kv = filled(heads, 0.0) if mixer.kv_shared else kv_heads * (d + dv)
    projected = kv_heads * d if mixer.k_eq_v and not mixer.kv_shared else kv
    t, act = s.tokens, s.act
    qkv = {"qkv": t * (q + kv) * act}
    out: list[Canonical] = [
        *gathered_cache(kv, s),
        *gather("attention", "n1", hidden, s),
        matmul("qkv", s, n=q + projected, k=hidden, reads="n1", writes=qkv, bias=mixer.qkv_bias),
    ]
    qk = {"qkv": t * (heads + (0 if mixer.kv_shared else kv_heads)) * d * act}
    if mixer.qk_norm == "full":
        out.extend(_summed_squares(qk, s))
    if mixer.qk_norm != "none":
        out.append(pointwise("qk_norm", "reduce", qk, qk, saves=("qkv",)))
    if mixer.rotary:
        out.append(pointwise("rotary", "gather", qk, qk))
    a = {"a": t * heads * dv * act}
    out.extend(_before_core(q, kv, s))
    if stored is None:
        out.append(_core(mixer, (heads, kv_heads), qkv, a, s))
    else:
        out.extend(_stored((heads, d, dv), qkv, a, s, stored, keys=s.past + s.length))
    out += [*_after_core(heads * dv, s), *regroup("a", heads, dv, s)]
    if mixer.output_gate:
        a = {"a": t * own * dv * act}
        out.append(pointwise("gate", "stream", {**a, "gate": t * own * d * act}, a, saves=("a",)))
    out.append(matmul("out", s, n=hidden, k=own * dv, reads="a", writes={"o": t * hidden * act}, bias=mixer.o_bias))
    out.extend(reduce("attention", "o", hidden, s))
    return out


def _summed_squares(qk: Tensors, s: Shapes) -> list[Canonical]:
    """What a norm over all heads costs where tp divides them: each rank sums the squares of its own, and these are
    added up for every token, of queries and of keys (MiniMax-M2: vLLM PR 31493, SGLang PR 14416).
    """
    if not s.tensor_parallel:
        return []
    squares = {"qk_squares": s.tokens * 2.0 * FP32_BYTES}
    divided = where(s.plans.tp > 1, 1.0, 0.0)
    return [
        pointwise("qk_squares", "reduce", qk, squares, when=divided),
        Collective("attention qk norm", "all_reduce", "all_reduce", "tp", squares["qk_squares"]),
    ]


def cross_attention(mixer: Attention, hidden: int, s: Shapes, *, stored: Training | None = None) -> list[Canonical]:
    """Attention of this sequence's queries to what an encoder wrote (Vaswani et al. 2017, section 3.2.3).

    Reads tensors 'nc' [tokens, hidden] and 'enc' [source tokens, its hidden size], writes 'c_o'. Keys and values are
    projected in the pass that starts a sequence, and cached; all queries see all of them.
    """
    heads = local_heads(mixer.num_attention_heads, s.plans.tp)
    kv_heads = local_heads(mixer.num_key_value_heads, s.plans.tp)
    d, dv, act, below = mixer.head_dim, mixer.value_dim, s.act, s.of_source
    width, read = heads * d, mixer.cross_hidden_size or hidden
    kv = kv_heads * (d + dv)
    q_bytes, kv_bytes = {"c_q": s.tokens * width * act}, {"c_kv": below.tokens * kv * act}
    a, o = {"c_a": s.tokens * heads * dv * act}, {"c_o": s.tokens * hidden * act}
    project = matmul("cross_kv", below, n=kv, k=read, reads="enc", writes=kv_bytes, bias=mixer.qkv_bias)
    project.saves = ()  # every layer reads the same tensor, which the encoder's last norm keeps
    if not s.training:  # straight into the cache; working bytes are told per token of this sequence
        project.reads, project.writes, kv_bytes = {"enc": s.tokens * read * act}, {}, {}
    out: list[Canonical] = [
        *gather("cross", "nc", hidden, s),
        matmul("cross_q", s, n=width, k=hidden, reads="nc", writes=q_bytes, bias=mixer.qkv_bias),
        *only([*gather("cross", "enc", read, below), project], s.starts),
    ]
    if mixer.qk_norm != "none":
        out.append(pointwise("qk_norm", "reduce", q_bytes, q_bytes, saves=("c_q",)))
    if stored is None:
        core = _core(mixer, (heads, kv_heads), {**q_bytes, **kv_bytes}, a, s)
        core.name, core.saves = "cross_attention", ("c_q", "c_kv", "c_a", "c_lse")
        core.writes = {**a, "c_lse": s.tokens * heads * FP32_BYTES}
        core.columns = {**core.columns, "past": s.source - s.length}
        out.append(core)
    else:
        scored = _stored((heads, d, dv), {**q_bytes, **kv_bytes}, a, s, stored, keys=s.source)
        out.extend(renamed(scored, "cross_", keep=("c_q", "c_kv", "c_a")))
    out.append(matmul("cross_out", s, n=hidden, k=heads * dv, reads="c_a", writes=o, bias=mixer.o_bias))
    out.extend(reduce("cross", "c_o", hidden, s))
    return out


def _before_core(q: Column, kv: Column, s: Shapes) -> list[Canonical]:
    """What brings each rank of a cp group the keys and values that its queries see; widths in elements a token.

    Ulysses exchanges heads for tokens: 1 / ulysses of the heads, ulysses times the tokens (Jacobs et al. 2023, section
    3.2). Keys and values of those heads are passed round the ring beside attention, or gathered before it (axis
    ``keys``): each rank receives (ring - 1) times its own; the backward pass repeats that and reduces the gradients
    back (Liu et al. 2023; Llama 3, section 3.3.2).
    """
    if not s.context_parallel:
        return []
    p = s.plans
    elements = s.documents * (s.length + s.past) * (kv / p.ulysses)
    ring, exchanged = ((ranks > 1) * s.prefill for ranks in (p.cp / p.ulysses, p.ulysses))
    heads = s.tokens * (q + kv) * s.act
    out: list[Canonical] = [
        Collective("attention heads exchange", "all_to_all", "all_to_all", "ulysses", heads, when=exchanged)
    ]
    for axis, when in (("cp", ring * (1.0 - p.gathers)), ("keys", ring * p.gathers)):
        if some(when) or axis == "cp":
            one = Collective(
                "attention kv exchange", "all_gather", "reduce_scatter", axis, elements * s.act, again=True
            )
            one.when, one.grad_size = when, elements * s.ring_gradient
            out.append(one)
    return out


def _after_core(width: Column, s: Shapes) -> list[Canonical]:
    """Ulysses exchanges tokens of the output back for heads, ``width`` elements a token. In decode every rank of a cp
    group has attended its share of the cache: partial outputs are added up, scaled by their sums (Helix, 2507.07120).
    """
    if not s.context_parallel:
        return []
    exchanged = (s.plans.ulysses > 1) * s.prefill
    size = s.tokens * width * s.act
    out: list[Canonical] = [
        Collective("attention output exchange", "all_to_all", "all_to_all", "ulysses", size, when=exchanged)
    ]
    if some(s.decode):
        out.append(Collective("attention merge", "all_reduce", "", "cp", s.tokens * width * FP32_BYTES, when=s.decode))
    return out


def _context(s: Shapes) -> tuple[Column, Column]:
    """Query tokens of this rank and the past that gives its mean share of causal pairs under a balanced split.

    new' = length / ring; past' so that new' past' + new'^2 / 2 = (new past + new^2 / 2) / ring (zig-zag rings). In
    decode all queries meet the rank's share of the cache.
    """
    if not s.context_parallel:
        return s.length, s.past / cached_share(s)
    new = where(s.decode > 0, s.length, s.length * s.plans.ulysses / s.plans.cp)
    return new, where(s.decode > 0, s.past / s.plans.cp, s.past + (s.length - new) / 2.0)


def _dealt(s: Shapes) -> Column:
    """Ranks over which the heads of a rank are dealt round the core [P]."""
    return where(s.decode > 0, 1.0, s.plans.ulysses) if s.context_parallel else s.plans.ulysses


def _core(mixer: Attention, heads: tuple[Column, Column], qkv: Tensors, a: Tensors, s: Shapes) -> Operator:
    """The fused kernel; ``heads``: of queries and of keys and values on this rank."""
    new, past = _context(s)
    lse = {"lse": s.tokens * heads[0] * FP32_BYTES}
    return Operator(
        "attention",
        "attention",
        reads=qkv,
        writes={**a, **lse},
        columns={
            "batch": s.documents,
            "new": new,
            "past": past,
            "heads": heads[0] / _dealt(s),
            "kv_heads": heads[1] / _dealt(s),
            "head_dim": mixer.head_dim,
            "v_head_dim": mixer.v_head_dim or mixer.head_dim,
            "window": (mixer.sliding_window or 0) / cached_share(s),
            "causal": float(mixer.causal),
            "backward": 0,
            "kv_bytes": s.kv,
            "shared_kv": 0,
        },
        kind="sinks" if mixer.sinks else "",
        dtype=s.attention_dtype,
        saves=("qkv", "a", "lse"),
    )


def _stored(
    sizes: tuple[Column, int, int], qkv: Tensors, a: Tensors, s: Shapes, facts: Training, *, keys: Column
) -> list[Canonical]:
    """Attention that stores its scores: 5 H s^2 b bytes with dropout (Korthikanti et al. 2022, section 4.1).

    ``sizes``: heads of this rank, widths of keys and of values. The fused softmax needs a multiple of
    ``softmax_multiple`` score matrices (Megatron-LM ``fused_softmax.py``); else cast, mask, softmax and cast run apart.
    """
    heads, d, dv = sizes
    queries = s.length * s.plans.ulysses / s.plans.cp
    groups = s.documents * heads / s.plans.ulysses
    elements = groups * queries * keys
    scores, probs = {"scores": elements * s.act}, {"probs": elements * s.act}
    wide = {"wide": elements * FP32_BYTES}
    fused = where(groups % facts.softmax_multiple == 0, 1.0, 0.0)
    out: list[Canonical] = [
        matmul("scores", s, m=queries, n=keys, k=d, groups=groups, reads="qkv", writes=scores, weight=False, x=qkv),
        pointwise("softmax", "reduce", scores, probs, saves=("probs",), when=fused),
    ]
    if some(fused < 1.0):
        apart = ((scores, wide, "stream"), (wide, wide, "stream"), (wide, wide, "reduce"), (wide, probs, "stream"))
        out += [pointwise("softmax", kind, reads, writes, when=1.0 - fused) for reads, writes, kind in apart]
    last = "probs"
    if facts.dropout:
        dropped = {"dropped": elements * s.act, "mask": elements * MASK_BYTES}
        out.append(pointwise("attention_dropout", "stream", probs, dropped, saves=("mask",)))
        last = "dropped"
    inputs = {last: elements * s.act, **qkv}
    out.append(
        matmul("context", s, m=queries, n=dv, k=keys, groups=groups, reads=last, writes=a, weight=False, x=inputs)
    )
    return out


def latent_attention(mixer: LatentAttention, hidden: int, s: Shapes) -> list[Canonical]:
    """Multi-head latent attention: un-absorbed where many queries run, absorbed in decode (DeepSeek-V2, section 2.1).

    The latent is replicated over tp; heads are divided.
    """
    heads, own = (local_heads(mixer.num_attention_heads, over) for over in (attending(s), s.plans.tp))
    nope, rope, dv, rank = mixer.qk_nope_head_dim, mixer.qk_rope_head_dim, mixer.v_head_dim, mixer.kv_lora_rank
    t, act = s.tokens, s.act
    out: list[Canonical] = [*gathered_cache(rank + rope, s), *gather("attention", "n1", hidden, s)]
    q_width = heads * (nope + rope)
    q_bytes, latent = {"q": t * q_width * act}, {"latent": t * (rank + rope) * act}
    kv_down = matmul("kv_down", s, n=rank + rope, k=hidden, reads="n1", writes=latent)
    if mixer.q_lora_rank:
        low = {"q_low": t * mixer.q_lora_rank * act}
        out += [matmul("q_down", s, n=mixer.q_lora_rank, k=hidden, reads="n1", writes=low), kv_down]
        out.append(pointwise("q_norm", "reduce", low, {"q_lown": low["q_low"]}, saves=("q_low",)))
        out.append(matmul("q_up", s, n=q_width, k=mixer.q_lora_rank, reads="q_lown", writes=q_bytes))
    else:
        out += [matmul("q", s, n=q_width, k=hidden, reads="n1", writes=q_bytes), kv_down]
    out.append(pointwise("kv_norm", "reduce", latent, {"latentn": t * rank * act}, saves=("latent",)))
    out.append(pointwise("rotary", "gather", {"q": t * heads * rope * act}, {"q": t * heads * rope * act}))
    if mixer.index_n_heads and mixer.index_head_dim:
        out.extend(_indexer(mixer, hidden, s))
    out.extend(_before_core(q_width, heads * (nope + rope + dv), s))
    out.extend(_latent_core(mixer, (heads, own), q_bytes, s))
    out.extend(_after_core(heads * dv, s))
    out.append(matmul("out", s, n=hidden, k=own * dv, reads="a", writes={"o": t * hidden * act}))
    out.extend(reduce("attention", "o", hidden, s))
    return out


def _latent_core(
    mixer: LatentAttention, dealt: tuple[Column, Column], q: dict[str, Column], s: Shapes
) -> list[Canonical]:
    """The core: over raised latents in prefill and training, absorbed into queries and outputs in decode.

    ``dealt``: heads that this rank attends with, and those whose outputs it projects.
    """
    new, past = _context(s)
    common: dict[str, Column | float] = {
        "batch": s.documents,
        "new": new,
        "past": past,
        "heads": dealt[0] / _dealt(s),
        "window": mixer.index_topk or 0,
        "causal": 1,
        "backward": 0,
        "kv_bytes": s.kv,
    }
    raised = _raised_core(mixer, dealt[0], q, common, s)
    return raised if s.training else [*raised, *_absorbed_core(mixer, dealt, common, s)]


def _raised_core(
    mixer: LatentAttention, heads: Column, q: dict[str, Column], common: dict[str, Column | float], s: Shapes
) -> list[Canonical]:
    """Keys and values of every head from the latents of all that is attended: those of its own tokens, and again those
    that earlier chunks or a shared prefix left in the cache (vLLM ``MLACommonImpl``, chunked context; SGLang PR 5113).
    """
    nope, rope, dv, rank = mixer.qk_nope_head_dim, mixer.qk_rope_head_dim, mixer.v_head_dim, mixer.kv_lora_rank
    t, act = s.tokens, s.act
    latent = {"kv": t * heads * (nope + dv) * act}
    kv = {"kva": t * heads * (nope + rope + dv) * act} if s.training else latent
    up = matmul(
        "kv_up", s, m=t + s.documents * s.past / s.plans.cp, n=heads * (nope + dv), k=rank,
        reads="latentn", writes=latent, when=s.prefill,
        x={"latentn": t * rank * act},  # the others lie in the cache, and are raised chunk by chunk
    )  # fmt: skip
    core = Operator(
        "attention", "attention", {**q, **kv}, {"a": t * heads * dv * act, "lse": t * heads * FP32_BYTES},
        {**common, "kv_heads": heads / _dealt(s), "head_dim": nope + rope, "v_head_dim": dv, "shared_kv": 0},
        dtype=s.attention_dtype, saves=("q", *kv, "a", "lse"), when=s.prefill,
    )  # fmt: skip
    return [up, *([pointwise("kv_join", "stream", latent, kv)] if s.training else []), core]


def _absorbed_core(
    mixer: LatentAttention, dealt: tuple[Column, Column], common: dict[str, Column | float], s: Shapes
) -> list[Canonical]:
    """One key and value head, the latent; its up projections work on queries and outputs (DeepSeek-V2, 2.1.2)."""
    heads, own = dealt
    nope, rope, dv, rank = mixer.qk_nope_head_dim, mixer.qk_rope_head_dim, mixer.v_head_dim, mixer.kv_lora_rank
    t, act = s.tokens, s.act
    queries, outputs = {"q_abs": t * heads * rank * act}, {"a_latent": t * heads * rank * act}
    absorb = partial(matmul, s=s, m=t, plain=True, when=s.decode)
    core = Operator(
        "attention", "attention", queries, outputs,
        {**common, "kv_heads": 1, "head_dim": rank + rope, "v_head_dim": rank, "shared_kv": 1},
        dtype=s.attention_dtype, when=s.decode,
    )  # fmt: skip
    return [
        absorb("absorb_q", groups=heads, n=rank, k=nope, reads="q", writes=queries),
        core,
        *regroup("a_latent", heads, rank, s),
        absorb("absorb_v", groups=own, n=dv, k=rank, reads="a_latent", writes={"a": t * own * dv * act}),
    ]


def _indexer(mixer: LatentAttention, hidden: int, s: Shapes) -> list[Canonical]:
    """The lightning indexer that picks which tokens to attend (DeepSeek-V3.2-Exp): fp8 scores of all causal pairs."""
    heads, d = float(mixer.index_n_heads or 1), float(mixer.index_head_dim or 1)
    t, act = s.tokens, s.act
    new, past = _context(s)
    keys = past + (new + 1.0) / 2.0
    iq, ik = {"iq": t * heads * d * act}, {"ik": t * (d + heads) * act}
    scores = {"index": s.documents * new * keys * FP8_BYTES}
    return [
        matmul("index_q", s, n=heads * d, k=mixer.q_lora_rank or hidden, reads="q_lown", writes=iq),
        matmul("index_k", s, n=d + heads, k=hidden, reads="n1", writes=ik),
        index_scores(s, scores, documents=s.documents, new=new, keys=keys, heads=heads, dim=d),
        pointwise("index_topk", "reduce", scores, {"topk": t * FP32_BYTES}),
    ]
