"""Recurrent mixers, alone or between attention layers."""

from math import ceil
from typing import Any

from rapid_llm.documents import build
from rapid_llm.model.architecture import MLP, Attention, Block, Model, MoE, StateSpace
from rapid_llm.model.families.deepseek import feed_forwards
from rapid_llm.model.families.parts import biased, decoder, gqa, head_dim, layer_types, mla, mlp, moe
from rapid_llm.model.fields import Fields


def _state_space(f: Fields, **values: Any) -> StateSpace:
    return build(StateSpace, values, f.document, f.prefix)


def _gated_delta_net(f: Fields) -> StateSpace:
    return _state_space(
        f,
        kind="gated-delta-net",
        num_key_heads=f.size("linear_num_key_heads"),
        num_value_heads=f.size("linear_num_value_heads"),
        key_dim=f.size("linear_key_head_dim"),
        value_dim=f.size("linear_value_head_dim"),
        conv_kernel=f.size("linear_conv_kernel_dim"),
        conv_bias=False,
    )


def _linear_types(f: Fields) -> list[str]:
    period = f.size("full_attention_interval", 4)
    default = ["linear_attention" if (i + 1) % period else "full_attention" for i in range(f.layers)]
    return layer_types(f) or default


def _qwen_mixers(f: Fields) -> list[Attention | StateSpace]:
    delta = _gated_delta_net(f)
    bias = biased(f)
    attention = gqa(f, qk_norm="head", output_gate=True, gate_bias=bias["qkv_bias"], **bias)
    return [delta if kind == "linear_attention" else attention for kind in _linear_types(f)]


def _qwen_experts(f: Fields) -> MoE:
    return moe(f, shared_intermediate_size=f.size("shared_expert_intermediate_size"), shared_gate=True)


def qwen3_next(f: Fields) -> Model:
    """Qwen 3 Next: gated delta nets, gated attention on every fourth layer, experts."""
    step, only = f.size("decoder_sparse_step", 1), f.items("mlp_only_layers") or []
    experts = _qwen_experts(f) if f.integer("num_experts") else None
    layers = []
    for i, mixer in enumerate(_qwen_mixers(f)):
        sparse = experts is not None and (i + 1) % step == 0 and i not in only
        layers.append(Block(mixer=mixer, ffn=experts if sparse else mlp(f)))
    return decoder(f, layers)


def qwen35(f: Fields) -> Model:
    """Qwen 3.5 and 3.6, dense."""
    return decoder(f, [Block(mixer=mixer, ffn=mlp(f)) for mixer in _qwen_mixers(f)])


def qwen35_moe(f: Fields) -> Model:
    """Qwen 3.5 and 3.6 with experts on all layers."""
    experts = _qwen_experts(f)
    return decoder(f, [Block(mixer=mixer, ffn=experts) for mixer in _qwen_mixers(f)])


def olmo_hybrid(f: Fields) -> Model:
    """OLMo Hybrid: gated delta nets, OLMo 2 attention on every fourth layer."""
    default = ["full_attention" if i % 4 == 3 else "linear_attention" for i in range(f.layers)]
    kinds = layer_types(f) or default
    heads, hidden = f.size("num_attention_heads"), f.size("hidden_size")
    keys = f.integer("linear_num_key_heads", None) or heads
    key_dim = f.integer("linear_key_head_dim", None) or int(0.75 * hidden / keys)
    delta = _state_space(
        f,
        kind="gated-delta-net",
        num_key_heads=keys,
        num_value_heads=f.integer("linear_num_value_heads", None) or heads,
        key_dim=key_dim,
        value_dim=f.integer("linear_value_head_dim", None) or 2 * key_dim,
        conv_kernel=f.size("linear_conv_kernel_dim", 4),
        conv_bias=False,
    )
    attention = gqa(f, qk_norm="full", **biased(f))
    mixers = [delta if kind == "linear_attention" else attention for kind in kinds]
    return decoder(f, [Block(mixer=mixer, ffn=mlp(f)) for mixer in mixers])


def kimi_linear(f: Fields) -> Model:
    """Kimi Linear and K3: Kimi delta attention, latent attention on every fourth layer, experts.

    K3 adds to it (read from its fields, as no public implementation exists): full-rank gates, an output gate on latent
    attention, experts in a latent space.
    """
    linear = f.section("linear_attn_config")
    settings = linear or f
    heads = settings.size("num_heads" if linear else "linear_num_heads", 32)
    dim = settings.size("head_dim" if linear else "linear_head_dim", 128)
    kernel = settings.size("short_conv_kernel_size" if linear else "linear_conv_kernel_dim", 4)
    delta = _state_space(
        f,
        kind="kimi-delta",
        num_key_heads=heads,
        num_value_heads=heads,
        key_dim=dim,
        value_dim=dim,
        conv_kernel=kernel,
        conv_bias=False,
        gate_rank=None if settings.flag("use_full_rank_gate") else dim,
    )
    latent = f.integer("routed_expert_hidden_size", None)
    attention = mla(f, output_gate=f.flag("mla_use_output_gate"))
    parts = feed_forwards(
        f,
        dense_first=f.integer("first_k_dense_replace", 1) or 0,
        expert_hidden_size=latent,
        latent_norm=latent is not None and f.flag("latent_moe_use_norm"),
    )
    full = _kimi_full_layers(f, linear)
    layers = [Block(mixer=attention if i in full else delta, ffn=part) for i, part in enumerate(parts)]
    return decoder(f, layers, tie_word_embeddings=False)


def _kimi_full_layers(f: Fields, linear: Fields | None) -> set[int]:
    kinds = layer_types(f)
    listed = linear.whole_numbers("full_attn_layers") if linear else None
    if kinds is not None:
        return {i for i, kind in enumerate(kinds) if kind == "full_attention"}
    if listed is not None:
        return {i - 1 for i in listed}
    return {i for i in range(f.layers) if i and i % 4 == 0}


def minimax(f: Fields) -> Model:
    """MiniMax Text 01 and M1: lightning attention, softmax attention on some layers, experts."""
    heads, dim = f.size("num_attention_heads"), head_dim(f)
    lightning = _state_space(
        f,
        kind="linear",
        num_key_heads=heads,
        num_value_heads=heads,
        key_dim=dim,
        value_dim=dim,
        conv_kernel=0,
        conv_bias=False,
        chunk_size=f.size("block_size", 256),
    )
    legacy = f.per_layer("attn_type_list", f.layers)
    kinds = layer_types(f)
    if kinds is None and legacy is not None:
        kinds = ["full_attention" if x else "linear_attention" for x in legacy]
    kinds = kinds or ["linear_attention" if i % 2 else "full_attention" for i in range(f.layers)]
    experts = moe(f, moe_intermediate_size=f.size("intermediate_size"), fp32_router=True)
    attention = gqa(f)
    mixers = [lightning if kind == "linear_attention" else attention for kind in kinds]
    return decoder(f, [Block(mixer=mixer, ffn=experts) for mixer in mixers])


def _mamba2(f: Fields, *, inner: int, heads: int, dim: int, **changes: Any) -> StateSpace:
    """Mamba-2 with the ``mamba_*`` fields of Bamba, Granite and Falcon-H1."""
    if heads * dim != inner:
        raise f.error(
            f"{f.path('mamba_n_heads')} times mamba_d_head must be the inner width: {heads} x {dim} is not {inner}.",
            "mamba_n_heads",
        )
    values: dict[str, Any] = {
        "num_value_heads": heads,
        "value_dim": dim,
        "num_key_heads": f.size("mamba_n_groups", 1),
        "key_dim": f.size("mamba_d_state", 256),
        "conv_kernel": f.size("mamba_d_conv", 4),
        "bias": f.flag("mamba_proj_bias"),
        "conv_bias": f.flag("mamba_conv_bias", True),
        "chunk_size": f.size("mamba_chunk_size", 256),
    }
    return _state_space(f, **{**values, **changes})


def _mamba_head(f: Fields, inner: int) -> tuple[int, int]:
    heads = f.size("mamba_n_heads", 128)
    given = f.get("mamba_d_head", "auto")
    return heads, inner // heads if given == "auto" else f.size("mamba_d_head")


def granite_hybrid(f: Fields) -> Model:
    """Granite 4: Mamba-2 or attention, a shared MLP, experts where there are any."""
    kinds = layer_types(f) or f.per_layer("layers_block_type", f.layers) or ["mamba"] * f.layers
    inner = f.size("mamba_expand", 2) * f.size("hidden_size")
    attention, shared = gqa(f, **biased(f)), f.size("shared_intermediate_size")
    mamba = None
    if any(kind in ("mamba", "linear_attention") for kind in kinds):
        heads, dim = _mamba_head(f, inner)
        mamba = _mamba2(f, inner=inner, heads=heads, dim=dim)
    ffn: MLP | MoE = mlp(f, size=shared)
    if f.integer("num_experts", 0):
        ffn = moe(f, moe_intermediate_size=f.size("intermediate_size"), shared_intermediate_size=shared)
    layers = [Block(mixer=mamba if kind in ("mamba", "linear_attention") else attention, ffn=ffn) for kind in kinds]
    return decoder(
        f, layers, position_embeddings="rotary" if f.get("position_embedding_type", None) == "rope" else "none"
    )


def bamba(f: Fields) -> Model:
    """Bamba: Mamba-2 with attention on ``attn_layer_indices``."""
    inner = f.size("mamba_expand", 2) * f.size("hidden_size")
    heads, dim = _mamba_head(f, inner)
    mamba, full = _mamba2(f, inner=inner, heads=heads, dim=dim), f.items("attn_layer_indices") or []
    attention, ffn = gqa(f, **biased(f)), mlp(f, bias=f.flag("mlp_bias"))
    return decoder(f, [Block(mixer=attention if i in full else mamba, ffn=ffn) for i in range(f.layers)])


def falcon_h1(f: Fields) -> Model:
    """Falcon H1: attention and Mamba-2 side by side in every layer."""
    inner = f.integer("mamba_d_ssm", None) or f.size("mamba_expand", 2) * f.size("hidden_size")
    heads, dim = _mamba_head(f, inner)
    out_bias, in_bias = f.flag("projectors_bias"), f.flag("mamba_proj_bias")
    mamba = _mamba2(f, inner=inner, heads=heads, dim=dim, bias=in_bias and out_bias, norm=f.flag("mamba_rms_norm"))
    extra = 0
    if in_bias != out_bias:
        extra = f.size("hidden_size") if out_bias else 2 * inner + 2 * mamba.key_size + heads
    block = Block(
        mixer=gqa(f, **biased(f)),
        side_mixer=mamba,
        ffn=mlp(f, bias=f.flag("mlp_bias")),
        extra_parameters=extra,
    )
    return decoder(f, [block] * f.layers)


def _mamba1(f: Fields, *, inner: int, rank: int, **values: Any) -> StateSpace:
    return _state_space(
        f, kind="mamba", num_value_heads=inner, value_dim=1, num_key_heads=1, dt_rank=rank, norm=False, **values
    )


def jamba(f: Fields) -> Model:
    """Jamba: Mamba with inner norms, attention and experts each on every so many layers."""
    hidden, rank = f.size("hidden_size"), f.get("mamba_dt_rank", "auto")
    mamba = _mamba1(
        f,
        inner=f.size("mamba_expand", 2) * hidden,
        rank=ceil(hidden / 16) if rank == "auto" else f.size("mamba_dt_rank"),
        key_dim=f.size("mamba_d_state", 16),
        conv_kernel=f.size("mamba_d_conv", 4),
        bias=f.flag("mamba_proj_bias"),
        conv_bias=f.flag("mamba_conv_bias", True),
        inner_norms=True,
    )
    attention, dense = gqa(f, rotary=False), mlp(f)
    several = f.size("num_experts", 16) > 1
    experts = moe(f, moe_intermediate_size=f.size("intermediate_size")) if several else dense
    period, offset = f.size("attn_layer_period", 8), f.integer("attn_layer_offset", 4)
    sparse, first = f.size("expert_layer_period", 2), f.integer("expert_layer_offset", 1)
    layers = [
        Block(
            mixer=attention if i % period == offset else mamba,
            ffn=experts if i % sparse == first else dense,
        )
        for i in range(f.layers)
    ]
    return decoder(f, layers, position_embeddings="none")


def mamba1(f: Fields) -> Model:
    """Mamba and Falcon Mamba: mixers alone."""
    hidden, rank = f.size("hidden_size"), f.get("time_step_rank", "auto")
    mixer = _mamba1(
        f,
        inner=f.integer("intermediate_size", None) or f.size("expand", 2) * hidden,
        rank=ceil(hidden / 16) if rank == "auto" else f.size("time_step_rank"),
        key_dim=f.size("state_size", 16),
        conv_kernel=f.size("conv_kernel", 4),
        bias=f.flag("use_bias"),
        conv_bias=f.flag("use_conv_bias", True),
    )
    return decoder(f, [Block(mixer=mixer, ffn=None, norms=1)] * f.layers, position_embeddings="none")


def mamba2(f: Fields) -> Model:
    """Mamba-2: mixers alone."""
    mixer = _state_space(
        f,
        num_value_heads=f.size("num_heads", 128),
        value_dim=f.size("head_dim", 64),
        num_key_heads=f.size("n_groups", 8),
        key_dim=f.size("state_size", 128),
        conv_kernel=f.size("conv_kernel", 4),
        bias=f.flag("use_bias"),
        conv_bias=f.flag("use_conv_bias", True),
        chunk_size=f.size("chunk_size", 256),
    )
    return decoder(f, [Block(mixer=mixer, ffn=None, norms=1)] * f.layers, position_embeddings="none")


_NEMOTRON = {"M": "mamba", "*": "attention", "-": "mlp", "E": "moe"}


def nemotron_h(f: Fields) -> Model:
    """Nemotron H and Nemotron 3: a layer is one of Mamba-2, attention, MLP, experts."""
    kinds = f.items("layers_block_type")
    pattern = f.get("hybrid_override_pattern", None)
    if kinds is None and isinstance(pattern, str):
        kinds = [_NEMOTRON.get(letter, letter) for letter in pattern]
    if not kinds:
        raise f.missing("hybrid_override_pattern")
    made: dict[str, Block] = {}
    layers = [made.setdefault(kind, _nemotron_block(f, kind)) for kind in kinds]
    return decoder(f, layers, position_embeddings="none", tie_word_embeddings=False)


def _nemotron_block(f: Fields, kind: str) -> Block:
    bias = f.flag("mlp_bias")
    if kind in ("mamba", "linear_attention"):
        return Block(mixer=_nemotron_mamba(f), ffn=None, norms=1)
    if kind in ("attention", "full_attention"):
        return Block(mixer=gqa(f, rotary=False), ffn=None, norms=1)
    if kind == "mlp":
        return Block(mixer=None, ffn=mlp(f, gated=False, bias=bias), norms=1)
    if kind != "moe":
        raise f.error(f"{f.path('layers_block_type')} has the unknown layer '{kind}'.", "layers_block_type")
    latent = f.integer("moe_latent_size", None)
    experts = moe(
        f,
        gated=False,
        shared_intermediate_size=f.size("moe_shared_expert_intermediate_size"),
        shared_bias=bias,
        expert_hidden_size=latent,
    )
    extra = f.size("hidden_size") + latent if latent and bias else 0
    return Block(mixer=None, ffn=experts, norms=1, extra_parameters=extra)


def _nemotron_mamba(f: Fields) -> StateSpace:
    def first(*names: str, default: Any) -> Any:
        return next((f.data[name] for name in names if name in f.data), default)

    return _state_space(
        f,
        num_value_heads=f.size("mamba_num_heads"),
        value_dim=f.size("mamba_head_dim"),
        num_key_heads=first("mamba_n_groups", "n_groups", default=8),
        key_dim=f.size("ssm_state_size"),
        conv_kernel=first("mamba_d_conv", "conv_kernel", default=4),
        bias=f.flag("use_bias"),
        conv_bias=first("mamba_conv_bias", "use_conv_bias", default=True),
        chunk_size=first("mamba_chunk_size", "chunk_size", default=128),
    )


def lfm2(f: Fields) -> Model:
    """LFM2: gated short convolutions, attention with query and key norms on some layers, experts in the MoE models."""
    full = f.items("full_attn_idxs")
    default = ["full_attention" if full is None or i in full else "conv" for i in range(f.layers)]
    kinds = layer_types(f) or default
    bias = f.flag("conv_bias")
    conv = _state_space(
        f,
        kind="short-conv",
        num_value_heads=1,
        num_key_heads=1,
        key_dim=1,
        value_dim=f.size("hidden_size"),
        conv_kernel=f.size("conv_L_cache", 3),
        bias=bias,
        conv_bias=bias,
    )
    attention = gqa(f, qk_norm="head")
    mixers = [attention if kind == "full_attention" else conv for kind in kinds]
    layers = [Block(mixer=mixer, ffn=part) for mixer, part in zip(mixers, _lfm2_parts(f), strict=True)]
    return decoder(f, layers, tie_word_embeddings=f.flag("tie_embedding", f.flag("tie_word_embeddings", True)))


def _lfm2_parts(f: Fields) -> list[MLP | MoE]:
    if f.has("num_experts"):
        experts = moe(f)
        return [mlp(f) if i < f.size("num_dense_layers", 2) else experts for i in range(f.layers)]
    size = f.integer("block_ff_dim", None) or f.size("intermediate_size")
    if f.flag("block_auto_adjust_ff_dim", True):
        size = int(2 * size / 3)
        if f.get("block_ffn_dim_multiplier", 1.0) is not None:
            multiple = f.size("block_multiple_of", 256)
            size = multiple * ceil(int(f.number("block_ffn_dim_multiplier", 1.0) * size) / multiple)
    return [mlp(f, size=size)] * f.layers
