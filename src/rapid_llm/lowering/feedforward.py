"""Feed-forward parts: gated and plain MLP, mixture of experts."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rapid_llm.lowering.operators import FP32_BYTES, Canonical, Collective, Column, Operator, only, pointwise, renamed
from rapid_llm.lowering.projection import gather, matmul, reduce
from rapid_llm.lowering.shapes import EVEN, Shapes
from rapid_llm.model.architecture import MLP, MoE
from rapid_llm.operators.elementwise import filled, larger, mapped, smaller, some, where
from rapid_llm.operators.work import lateness, most_loaded
from rapid_llm.workload import NATURAL_SKEW, scattered_load

# What a compiled choice by PyTorch launches: sigmoid and bias, the best two of a group and of groups by selection and
# sort, a mask that is zeroed, scattered and applied, the best experts, their weights, the padding (SGLang, topk.py).
_CHOOSING = 10.0
Mask = NDArray[np.bool_]


def mlp(ffn: MLP, hidden: int, s: Shapes, *, inter: Column | None = None, part: str = "mlp") -> list[Canonical]:
    """Up (and gate), activation, down. Reads 'n2', writes 'd'; width divided by tp unless given."""
    width = ffn.intermediate_size / s.plans.tp if inter is None else inter
    t, act = s.tokens, s.act
    p = {"p": t * width * act}
    out: list[Canonical] = [*gather(part, "n2", hidden, s)] if inter is None else []
    if ffn.gated:
        out += [
            matmul("up", s, n=width * 2.0, k=hidden, reads="n2", writes={"g": p["p"], "u": p["p"]}, bias=ffn.bias),
            pointwise("activation", "stream", {"g": p["p"]}, {"t": p["p"]}, saves=("g",)),
            pointwise("mul", "stream", {"u": p["p"], "t": p["p"]}, p, saves=("u", "t")),
        ]
    else:
        out += [
            matmul("up", s, n=width, k=hidden, reads="n2", writes={"u": p["p"]}, bias=ffn.bias),
            pointwise("activation", "stream", {"u": p["p"]}, p, saves=("u",)),
        ]
    out.append(matmul("down", s, n=hidden, k=width, reads="p", writes={"d": t * hidden * act}, bias=ffn.bias))
    if inter is None:
        out.extend(reduce(part, "d", hidden, s))
    return out


def distinct_experts(experts: float, tokens: Column, top_k: int, skew: float = 0.0) -> Column:
    """Experts that get any of ``tokens`` whose popularity falls as i^-skew: the sum of 1 - (1 - k p_i)^T over experts,
    E (1 - (1 - k / E)^T) where they are equal (balls into bins)."""
    if skew:
        missed: Column = np.exp(np.multiply.outer(tokens, _log_missed(int(experts), top_k, skew))).sum(axis=-1)
        return experts - missed
    share = smaller(1.0, top_k / experts)
    return experts * -np.expm1(tokens * np.log1p(-smaller(share, 1.0 - 1e-12)))


@lru_cache(maxsize=64)
def _log_missed(experts: int, top_k: int, skew: float) -> NDArray[np.float64]:
    """Logarithm of the chance that a token leaves out each expert [experts]."""
    popular = np.arange(1.0, experts + 1.0) ** -skew
    found: NDArray[np.float64] = np.log1p(-np.minimum(top_k * popular / popular.sum(), 1.0 - 1e-12))
    return found


def expert_load(ffn: MoE, s: Shapes) -> Column | float:
    """Rows of the hottest rank of an expert group over the mean, by the popularity and the places of experts [P]."""
    if s.routing == EVEN:
        if s.training:
            return 1.0
        # of a bias that balanced experts over all text the text of one job keeps little (NVIDIA's collection of expert
        # kernels draws DeepSeek's loads from a power law too, whose hottest of 8 ranks has 1.55 of the mean)
        return mapped(lambda ep: scattered_load(ffn.num_experts, int(ep), NATURAL_SKEW), s.plans.ep)
    return mapped(lambda ep: s.routing.load(int(ep), ffn.num_experts), s.plans.ep)


def hottest_rows(mean: Column, load: Column | float, s: Shapes) -> Column:
    """Token-expert pairs on the hottest rank of an expert group [P].

    Even where experts are equally popular, tokens of one step choose by chance: of ep ranks with ``mean`` pairs each
    the fullest has about mean + sqrt(2 mean ln ep) (extreme of Poisson counts). In training that is a small share.
    """
    rows = mean * load
    return rows if s.training else rows + np.sqrt(2.0 * rows * np.log(s.plans.ep))


def held_experts(ffn: MoE, s: Shapes) -> Column:
    """Routed experts of one rank with the copies that it holds of others' [P]."""
    return s.routing.held(ffn.num_experts) / s.plans.ep


def touched_experts(ffn: MoE, tokens: Column, s: Shapes) -> Column:
    """Experts of a rank that get any of the group's ``tokens``, on the rank where most do [P]. Equally popular experts
    are each hit at random: the rank where most are hit is ahead of the mean by the expected maximum of binomial counts.
    A training batch is large enough to hit all.
    """
    held, mean = held_experts(ffn, s), _hit(ffn, tokens, s)
    if s.training:
        return mean
    apart = np.sqrt(larger(mean * (1.0 - mean / held), 0.0))
    return smaller(held, mean + mapped(lateness, s.plans.ep) * apart)


def _natural_skew(ffn: MoE, s: Shapes) -> float:
    """How popularity falls by default: not at all where a bias balanced experts, nor in training."""
    return 0.0 if s.routing != EVEN or s.training or ffn.balanced else NATURAL_SKEW


def _hit(ffn: MoE, tokens: Column, s: Shapes) -> Column:
    """The same by the mean of each rank [P]."""
    held = held_experts(ffn, s)
    every = distinct_experts(float(ffn.num_experts), tokens, ffn.num_experts_per_tok, _natural_skew(ffn, s))
    even = smaller(held, every / s.plans.ep)
    if s.routing == EVEN:
        return even

    def touched(ep: float, count: float, otherwise: float) -> float:
        shares = s.routing.shares(ffn.num_experts, int(ep))
        if shares is None:
            return otherwise
        chosen = np.minimum(shares * ffn.num_experts_per_tok / ffn.num_experts, 1.0)
        return float((1.0 - (1.0 - chosen) ** count).sum(axis=2).max(axis=1).mean())

    return mapped(touched, s.plans.ep, tokens, even)


def landed(ffn: MoE, s: Shapes) -> tuple[Column, Column, Column, Column]:
    """Of the fullest rank: token-expert pairs that arrive there, its experts that get any, pairs of the most loaded of
    them, and pairs that the rank sees [P].
    """
    t, p = s.tokens, s.plans
    chosen = t * ffn.num_experts_per_tok
    rows = hottest_rows(chosen * s.evenness * p.etp / p.tp, expert_load(ffn, s), s)
    hit = touched_experts(ffn, _together(s), s)
    seen = where(_travels(s), rows, larger(rows, chosen))
    seen = where(_gathers(ffn, s), _together(s) * ffn.num_experts_per_tok, seen)
    return rows, hit, most_loaded(rows, hit), seen


def _together(s: Shapes) -> Column:
    """Tokens of all ranks of an expert group [P]."""
    return s.tokens * s.evenness * s.plans.ep * s.plans.etp / s.plans.tp


def _travels(s: Shapes) -> Mask:
    """Whether tokens go to the ranks of their experts [P]: within a tp group every rank has them, without sequence
    parallelism."""
    p = s.plans
    found: Mask = (p.ep > 1) & ((p.sp > 0) | (p.ep * p.etp > p.tp) | (p.tp == 1))
    return found


def _gathers(ffn: MoE, s: Shapes) -> Mask:
    """Whether every rank of a group gathers all of its tokens, and results are summed and scattered [P]."""
    p = s.plans
    if s.gathers_experts == "none":
        return p.ep < 0
    most = np.inf if s.gathers_experts == "all" else ffn.num_experts_per_tok
    found: Mask = _travels(s) & (p.etp == 1) & (p.ep <= most)
    return found


def mixture(
    ffn: MoE, hidden: int, s: Shapes, *, fused: bool, sorts: bool = False, weighs_early: bool = False
) -> list[Canonical]:
    """Router, dispatch, experts, combine, and the shared expert. Reads 'n2', writes 'd'.

    Tokens of an expert group are those of all its ranks: t k etp / tp rows land on each rank on average, more on the
    hottest (``hottest_rows``), for which all others wait at the next exchange. With sequence parallelism or ep beyond
    tp they travel by all-to-all, or every rank gathers those of its group and takes its experts' pairs out of them
    (``Communication.gathers_experts``); within a tp group without it every rank already has them. What a plain
    all-to-all brings lies by the rank that it came from: a rank that ``sorts`` copies it once more, by expert, and
    back. What an expert's result counts for is multiplied in where tokens are put back, whose backward pass needs the
    results, or ``weighs_early``, into the activation.
    """
    width, landing, travels = ffn.expert_hidden_size or hidden, landed(ffn, s), _travels(s)
    whole = where(travels & (s.plans.sp > 0) & (ffn.shared_intermediate_size == 0), 0.0, 1.0)
    joined = shared_as_routed(ffn, s)
    routed = _experts(ffn, width, _with_shared(ffn, landing, joined, s), s.experts, fused=fused)
    if weighs_early:
        routed[-1].saves = ()
    out: list[Canonical] = [*gather("moe", "n2", hidden, s, when=whole), *_router(ffn, hidden, s)]
    if ffn.expert_hidden_size:
        latent = {"n2l": s.shard * width * s.act}
        out.append(matmul("latent_down", s, m=s.shard, n=width, k=hidden, reads="n2", writes=latent))
    out.extend(_exchanged(routed, ffn, width, landing[0], travels, s, sorts=sorts))
    if ffn.expert_hidden_size:
        raised = {"dl": s.shard * hidden * s.act}
        out.append(matmul("latent_up", s, m=s.shard, n=hidden, k=width, reads="d", writes=raised))
    if ffn.shared_intermediate_size:
        shared = MLP(intermediate_size=ffn.shared_intermediate_size, gated=ffn.gated)
        inter = ffn.shared_intermediate_size / s.plans.tp
        part = {"d": s.shard * hidden * s.act}
        beside = renamed(mlp(shared, hidden, s, inter=inter), "shared_", keep=("n2",))
        beside.append(pointwise("join_shared", "stream", {**part, "shared_d": part["d"]}, part))
        out.extend(only(beside, 1.0 - joined) if some(joined) else beside)
    return [*out, *reduce("moe", "d", hidden, s, when=whole)]


def shared_as_routed(ffn: MoE, s: Shapes) -> Column:
    """Whether the kernel of the routed experts runs the shared ones too, as experts that every token has [P]: where the
    engine appends them (``Serving.shared_as_routed``), they are as wide and every rank holds a share of all experts."""
    apart = ffn.shared_gate or ffn.expert_hidden_size or ffn.shared_intermediate_size % ffn.moe_intermediate_size
    if not (s.shared_as_routed and ffn.shared_intermediate_size) or apart:
        return filled(s.tokens, 0.0)
    return where((s.plans.ep == 1) & (s.plans.etp == s.plans.tp), 1.0, 0.0)


def _with_shared(ffn: MoE, landing: tuple[Column, ...], joined: Column, s: Shapes) -> tuple[Column, ...]:
    """What lands on a rank with the shared experts among the routed ones where they are ``joined`` [P]."""
    if not some(joined):
        return landing
    rows, hit, largest, pairs = landing
    experts = joined * (ffn.shared_intermediate_size // ffn.moe_intermediate_size)
    each = s.tokens * experts
    return rows + each, hit + experts, larger(largest, s.tokens * joined), pairs + each


def _router(ffn: MoE, hidden: int, s: Shapes) -> list[Canonical]:
    """Scores of all experts in fp32, the choice among them and, in training, the loss that balances them: the mean
    score of each expert beside its share of the tokens (Fedus et al. 2021, arXiv 2101.03961, equation 4). Reads 'n2',
    writes 'w'. A router that engines keep in fp32 multiplies a copy of its input in that format. Experts that a bias
    balances, in wider groups than the engine's kernel takes (``Serving.biased_group``), are chosen by PyTorch's."""
    scores = {"r": s.shard * ffn.num_experts * FP32_BYTES}
    means = {"b": filled(s.shard, ffn.num_experts * FP32_BYTES)}
    shape: dict[str, Any] = {"m": s.shard, "n": ffn.num_experts, "k": hidden, "writes": scores, "plain": True}
    if ffn.fp32_router and not s.training:
        wide = {"n2w": s.shard * hidden * FP32_BYTES}
        head = [
            pointwise("router_cast", "stream", {"n2": s.shard * hidden * s.act}, wide),
            matmul("router", s, reads="n2w", x=wide, kept=(FP32_BYTES, "fp32"), **shape),
        ]
    else:
        head = [matmul("router", s, reads="n2", **shape)]
    wide_groups = ffn.balanced and 0 < s.biased_group < ffn.num_experts // ffn.expert_groups
    kernels = _CHOOSING if wide_groups else 1.0
    return [
        *head,
        pointwise("topk", "reduce", scores, {"w": s.shard * 8.0}, saves=("r",), when=kernels),
        *([pointwise("balance_loss", "reduce", scores, means, saves=("r",))] if s.training else []),
    ]


def _exchanged(  # noqa: PLR0917
    routed: list[Operator], ffn: MoE, width: int, rows: Column, travels: Mask, s: Shapes, *, sorts: bool
) -> list[Canonical]:
    """Experts between the messages that bring their tokens and those that take results back; ``rows`` arrive."""
    p = s.plans
    sent = expert_load(ffn, s) * s.shard * ffn.num_experts_per_tok * width * s.act
    sent = where(p.sp > 0, sent, sent / p.tp)
    arrived = rows * width * s.act
    cut = where(travels & (p.etp > 1), 1.0, 0.0)
    apart = where(travels & (p.ep < ffn.num_experts), 1.0, 0.0) if sorts else filled(s.shard, 0.0)
    out: list[Canonical] = list(routed)
    if some(apart):
        sort, unsort = ({name: arrived} for name in ("xr", "dr"))
        out = [
            pointwise("sort", "gather", sort, sort, when=apart),
            *out,
            pointwise("unsort", "gather", unsort, unsort, when=apart),
        ]
    if some(cut):
        out = [
            Collective("expert gather", "all_gather", "reduce_scatter", "etp", arrived, again=True, when=cut),
            *out,
            Collective("expert scatter", "reduce_scatter", "all_gather", "etp", arrived, when=cut),
        ]
    gathers = _gathers(ffn, s)
    if some(exchanges := travels & (gathers == 0)):
        there, back = (
            Collective(name, "all_to_all", "all_to_all", "ep", sent, when=where(exchanges, 1.0, 0.0))
            for name in ("dispatch", "combine")
        )
        out = [there, *out, back]
    if some(gathers):
        whole, when = _together(s) * width, where(gathers, 1.0, 0.0)
        # grouped broadcasts share the channels of their rings by bytes, so that each channel has what one broadcast of
        # all bytes would give it; a reduction runs the chain the other way
        gather, scatter = ("broadcast",) * 2 if s.gathers_by == "broadcast" else ("all_gather", "reduce_scatter")
        out = [
            Collective("dispatch", gather, "", "ep", whole * _gathered_bytes(s), when=when),
            *out,
            Collective("combine", scatter, "", "ep", whole * s.act, when=when),
        ]
    return out


def _gathered_bytes(s: Shapes) -> float:
    """Bytes of an element of a token that is gathered: rounded before, but where blocks of it share a scale."""
    return s.act if s.experts.compute.endswith("block") else s.input


def _experts(ffn: MoE, hidden: int, load: tuple[Column, ...], s: Shapes, *, fused: bool) -> list[Operator]:
    """The routed experts of one rank; ``load``: what ``landed`` says of it."""
    rows, hit, largest, pairs = load
    inter = ffn.moe_intermediate_size / s.plans.etp
    act = s.act
    matrices = 3.0 if ffn.gated else 2.0
    up_width = inter * (2.0 if ffn.gated else 1.0)
    r_in = {"xr": rows * hidden * act}
    up, act_out, r_out = {"gur": rows * up_width * act}, {"pr": rows * inter * act}, {"dr": rows * hidden * act}
    d = {"d": s.tokens * hidden * act}
    if fused:
        columns: dict[str, Column | float] = {
            "rows": rows,
            "hit": hit,
            "largest": largest,
            "pairs": pairs,
            "tokens": where(_gathers(ffn, s), _together(s), s.tokens),
            "experts": held_experts(ffn, s),
            "hidden": hidden,
            "inter": inter,
            "matrices": matrices,
            "x_bytes": s.input,
            "w_bytes": s.weight,
        }
        return [Operator("experts", "moe", {"n2": s.tokens * hidden * act}, d, columns, dtype=s.compute, saves=("n2",))]
    per_expert = rows / hit
    biased = ffn.bias and s.training
    clamp, inner = [], "gur"
    if ffn.clamped and s.training:
        cut = {"gcr": up["gur"]}
        clamp, inner = [pointwise("expert_clamp", "stream", up, cut, saves=("gur",))], "gcr"
    out_bias = [pointwise("expert_bias", "stream", r_out, r_out)] if biased else []
    for op in out_bias:
        op.each = larger(hit, 1.0)
    return [
        pointwise("permute", "gather", {"n2": s.tokens * hidden * act}, r_in),
        matmul("expert_up", s, m=per_expert, n=up_width, k=hidden, groups=hit, reads="xr", writes=up, bias=ffn.bias),
        *clamp,
        pointwise("expert_activation", "stream", {inner: up["gur"]}, act_out, saves=(inner,)),
        matmul("expert_down", s, m=per_expert, n=hidden, k=inter, groups=hit, reads="pr", writes=r_out),
        *out_bias,
        pointwise("unpermute", "gather", r_out, d, saves=("dr",)),
    ]
