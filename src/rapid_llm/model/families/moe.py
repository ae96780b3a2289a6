"""Grouped-query attention with experts."""

from collections.abc import Callable, Sequence
from typing import Any, Literal

from rapid_llm.model.architecture import MLP, Attention, Block, Model, MoE
from rapid_llm.model.families.parts import biased, decoder, gqa, layer_types, mlp, moe, window
from rapid_llm.model.fields import Fields


def mixtral(f: Fields) -> Model:
    """Mixtral: all layers with experts of ``intermediate_size``."""
    experts = moe(f, moe_intermediate_size=f.size("intermediate_size"))
    block = Block(mixer=gqa(f, sliding_window=f.integer("sliding_window", None) or None), ffn=experts)
    return decoder(f, [block] * f.layers)


def phimoe(f: Fields) -> Model:
    """Phi-3.5-MoE: LayerNorm and optional biases, also on the head."""
    experts = moe(f, moe_intermediate_size=f.size("intermediate_size"))
    mixer = gqa(f, sliding_window=f.integer("sliding_window", None) or None, **biased(f))
    block = Block(mixer=mixer, ffn=experts, norm="layernorm", norm_bias=True)
    return decoder(f, [block] * f.layers, head_bias=f.flag("lm_head_bias"))


def _sparse_steps(f: Fields, experts: MoE, dense: Callable[[], MLP]) -> list[MLP | MoE]:
    """Qwen's rule: every ``decoder_sparse_step``-th layer has experts, but for ``mlp_only_layers``."""
    step, only = f.size("decoder_sparse_step", 1), f.items("mlp_only_layers") or []
    sparse = [(i + 1) % step == 0 and i not in only for i in range(f.layers)]
    return [experts if is_sparse else dense() for is_sparse in sparse]


def qwen2_moe(f: Fields) -> Model:
    """Qwen 1.5 and 2 MoE: a gated shared expert; biases on query, key and value."""
    experts = moe(f, shared_intermediate_size=f.size("shared_expert_intermediate_size"), shared_gate=True)
    mixer = gqa(f, qkv_bias=f.flag("qkv_bias", True))
    return decoder(f, [Block(mixer=mixer, ffn=part) for part in _sparse_steps(f, experts, lambda: mlp(f))])


def qwen3_moe(f: Fields) -> Model:
    """Qwen 3 MoE: no shared expert; norms on each head's query and key."""
    mixer = gqa(f, qk_norm="head", **biased(f))
    return decoder(f, [Block(mixer=mixer, ffn=part) for part in _sparse_steps(f, moe(f), lambda: mlp(f))])


def olmoe(f: Fields) -> Model:
    """OLMoE and FlexOlmo: query and key norms over all heads."""
    experts = moe(f, moe_intermediate_size=f.size("intermediate_size"))
    block = Block(mixer=gqa(f, qk_norm="full", **biased(f)), ffn=experts)
    return decoder(f, [block] * f.layers)


def granite_moe(f: Fields) -> Model:
    """Granite 3 MoE, with or without a shared MLP."""
    experts = moe(
        f,
        moe_intermediate_size=f.size("intermediate_size"),
        shared_intermediate_size=f.integer("shared_intermediate_size", 0) or 0,
    )
    return decoder(f, [Block(mixer=gqa(f, **biased(f)), ffn=experts)] * f.layers)


def gpt_oss(f: Fields) -> Model:
    """gpt-oss: sinks, biases everywhere, a window on every second layer."""
    kinds = layer_types(f) or ["sliding_attention", "full_attention"] * f.layers
    experts = moe(f, moe_intermediate_size=f.size("intermediate_size"), bias=True, router_bias=True, clamped=True)
    bias = biased(f, default=True)
    mixers = [gqa(f, sinks=True, sliding_window=window(f, kinds, i), **bias) for i in range(f.layers)]
    return decoder(f, [Block(mixer=a, ffn=experts) for a in mixers])


def _shared(f: Fields, **changes: Any) -> MoE:
    """Routed experts and ``n_shared_experts`` shared ones of the same width."""
    shared = (f.integer("n_shared_experts", 0) or 0) * f.size("moe_intermediate_size")
    return moe(f, shared_intermediate_size=shared, **changes)


def _dense_first(f: Fields, mixers: Sequence[Attention], experts: MoE, dense: int, **block: Any) -> Model:
    """The first ``dense`` layers have an MLP, the others experts."""
    parts = [mlp(f) if i < dense else experts for i in range(f.layers)]
    return decoder(f, [Block(mixer=a, ffn=part, **block) for a, part in zip(mixers, parts, strict=True)])


def _by_kind(f: Fields, mixers: Sequence[Attention], experts: MoE, *, dense_first: int, **dense: Any) -> Model:
    """``mlp_layer_types`` says which layers have experts; else all but the first ones."""
    kinds = f.per_layer("mlp_layer_types", f.layers)
    kinds = kinds or ["dense" if i < dense_first else "sparse" for i in range(f.layers)]
    parts = [mlp(f, **dense) if kind == "dense" else experts for kind in kinds]
    return decoder(f, [Block(mixer=a, ffn=part) for a, part in zip(mixers, parts, strict=True)])


def glm4_moe(f: Fields) -> Model:
    """GLM-4.5, 4.6, 4.7 and Solar Open: biases on query, key and value, optional query and key norms."""
    norm = "head" if f.flag("use_qk_norm") else "none"
    dim = f.integer("head_dim", None) or f.size("hidden_size") // f.size("num_attention_heads")
    mixer = gqa(f, head_dim=dim, qkv_bias=f.flag("attention_bias"), qk_norm=norm)
    dense = f.integer("first_k_dense_replace", 0) or 0
    return _dense_first(f, [mixer] * f.layers, _shared(f, fp32_router=True), dense)


def deepseek_moe(f: Fields) -> Model:
    """DeepSeekMoE 16B: multi-head attention, shared experts."""
    return _dense_first(f, [gqa(f, **biased(f))] * f.layers, _shared(f), f.integer("first_k_dense_replace", 0) or 0)


def bailing(f: Fields) -> Model:
    """Ling and Ring 1 and 2: shared experts; 2 has norms on each head's query and key, and a bias per expert.

    Source: the checkpoints' own modelling code.
    """
    norm = "head" if f.flag("use_qk_norm") else "none"
    mixer = gqa(f, qkv_bias=f.flag("use_qkv_bias"), o_bias=f.flag("use_bias"), qk_norm=norm)
    experts = _shared(f, correction_bias=f.flag("moe_router_enable_expert_bias"))
    return _dense_first(f, [mixer] * f.layers, experts, f.integer("first_k_dense_replace", 0) or 0)


def dots1(f: Fields) -> Model:
    """dots.llm1."""
    first = f.integer("max_window_layers", None)
    given = f.integer("sliding_window", None)
    default = ["sliding_attention" if given and first is not None and i >= first else "" for i in range(f.layers)]
    kinds = layer_types(f) or default
    bias = biased(f)
    mixers = [gqa(f, qk_norm="head", sliding_window=window(f, kinds, i), **bias) for i in range(f.layers)]
    return _dense_first(f, mixers, _shared(f), f.integer("first_k_dense_replace", 0) or 0)


def ernie_moe(f: Fields) -> Model:
    """ERNIE 4.5 MoE: experts from one layer to another, every so many layers."""
    bias = f.flag("use_bias")
    experts = _shared(f, correction_bias=True, shared_bias=bias, fp32_router=True)
    first = f.integer("moe_layer_start_index", 1) or 0
    open_ended = f.get("moe_layer_end_index", -1) == -1
    last = f.layers - 1 if open_ended else f.size("moe_layer_end_index")
    every = f.size("moe_layer_interval", 1)
    mixer, dense = gqa(f, qkv_bias=bias, o_bias=bias), mlp(f, bias=bias)
    layers = [
        Block(mixer=mixer, ffn=experts if (i + 1) % every == 0 and first <= i <= last else dense)
        for i in range(f.layers)
    ]
    return decoder(f, layers, head_bias=bias)


def hunyuan_moe(f: Fields) -> Model:
    """Hunyuan A13B: a shared MLP of ``intermediate_size``, as wide as an expert."""
    size = f.size("intermediate_size")
    top = f.get("num_experts_per_tok", 1)
    several = f.whole_numbers("num_experts_per_tok") if isinstance(top, list) else None
    experts = moe(
        f,
        moe_intermediate_size=size,
        shared_intermediate_size=size,
        num_experts_per_tok=several[0] if several else top,
    )
    return decoder(f, [Block(mixer=gqa(f, qk_norm="head", **biased(f)), ffn=experts)] * f.layers)


def minimax_m2(f: Fields) -> Model:
    """MiniMax M2: query and key norms over all heads."""
    experts = moe(f, moe_intermediate_size=f.size("intermediate_size"), fp32_router=True)
    return decoder(f, [Block(mixer=gqa(f, qk_norm="full"), ffn=experts)] * f.layers)


def minimax_m3(f: Fields) -> Model:
    """MiniMax M3: an indexer chooses blocks of keys; a shared expert; dense first layers."""
    sparse = f.section("sparse_attention_config")
    index = {
        "index_n_heads": ("sparse_num_index_heads", 4),
        "index_head_dim": ("sparse_index_dim", 128),
        "index_block_size": ("sparse_block_size", 128),
        "index_topk_blocks": ("sparse_topk_blocks", 16),
    }
    given = {name: sparse.size(old, new) if sparse else f.size(name, new) for name, (old, new) in index.items()}
    indexer = {
        "index_n_heads": given["index_n_heads"],
        "index_head_dim": given["index_head_dim"],
        "index_topk": given["index_block_size"] * given["index_topk_blocks"],
    }
    frequent = sparse.per_layer("sparse_attention_freq", f.layers) if sparse else None
    kinds = layer_types(f) or ["minimax_m3_sparse" if x else "" for x in frequent or [0] * f.layers]
    experts = moe(
        f,
        moe_intermediate_size=f.size("intermediate_size"),
        shared_intermediate_size=f.size("shared_intermediate_size"),
        fp32_router=True,
    )
    often = f.per_layer("moe_layer_freq", f.layers)
    parts = f.per_layer("mlp_layer_types", f.layers) or ["sparse" if x else "dense" for x in often or [1] * f.layers]
    dense = mlp(f, size=f.size("dense_intermediate_size"))
    layers = [
        Block(
            mixer=gqa(f, qk_norm="head", **(indexer if kind == "minimax_m3_sparse" else {})),
            ffn=dense if part == "dense" else experts,
        )
        for kind, part in zip(kinds, parts, strict=True)
    ]
    return decoder(f, layers)


def mimo_v2(f: Fields) -> Model:
    """MiMo V2 Flash: windowed layers have sinks and twice the key-value heads."""
    default = ["full_attention" if i == 0 or (i + 1) % 6 == 0 else "sliding_attention" for i in range(f.layers)]
    kinds = layer_types(f) or default
    size = f.integer("sliding_window_size", None)
    width = size + 1 if size else f.integer("sliding_window", None)
    kv = f.size("num_key_value_heads")
    mixers = [
        gqa(
            f,
            num_key_value_heads=2 * kv if local else kv,
            v_head_dim=f.size("v_head_dim"),
            qkv_bias=f.flag("attention_bias"),
            sinks=local,
            sliding_window=width if local else None,
        )
        for local in (kind == "sliding_attention" for kind in kinds)
    ]
    return _by_kind(f, mixers, moe(f), dense_first=1)


def step3(f: Fields) -> Model:
    """Step 3.5 and 3.7 Flash: a gate a head, more query heads on windowed layers."""
    kinds = layer_types(f) or ["full_attention"] * f.layers
    other = f.section("attention_other_setting")
    heads = f.size("num_attention_heads")
    local_heads = f.integer("num_sliding_attention_heads", None)
    if local_heads is None and other is not None:
        local_heads = other.integer("num_attention_heads", heads)
    gate = f.get("gating", True)
    per_head = gate is True or gate == "per-head"
    mixers = [
        gqa(
            f,
            num_attention_heads=(local_heads or heads) if kind == "sliding_attention" else heads,
            qk_norm="head",
            head_gate=per_head,
            output_gate=not per_head,
            sliding_window=window(f, kinds, i),
            **biased(f),
        )
        for i, kind in enumerate(kinds)
    ]
    listed = f.get("moe_layers_enum", None)
    if isinstance(listed, str):
        sparse = {int(i) for i in listed.split(",") if i.strip().isdecimal()}
    else:
        sparse = set(f.whole_numbers("moe_layers_enum") or range(3, f.layers))
    parts = f.per_layer("mlp_layer_types", f.layers)
    parts = parts or ["sparse" if i in sparse else "dense" for i in range(f.layers)]
    bias = f.flag("mlp_bias")
    experts = moe(f, shared_intermediate_size=f.size("share_expert_dim"), shared_bias=bias)
    layers = [
        Block(mixer=a, ffn=mlp(f, bias=bias) if part == "dense" else experts)
        for a, part in zip(mixers, parts, strict=True)
    ]
    return decoder(f, layers)


def exaone_moe(f: Fields) -> Model:
    """K-EXAONE."""
    period = f.integer("sliding_window_pattern", 4)
    default = ["sliding_attention" if period and (i + 1) % period else "full_attention" for i in range(f.layers)]
    kinds = layer_types(f) or default
    mixers = [gqa(f, qk_norm="head", sliding_window=window(f, kinds, i)) for i in range(f.layers)]
    return _by_kind(f, mixers, _shared(f), dense_first=f.integer("first_k_dense_replace", 1) or 0)


def hy_v3(f: Fields) -> Model:
    """Hunyuan 3."""
    bias = f.flag("mlp_bias")
    mixer = gqa(f, qk_norm="head", **biased(f))
    return _by_kind(f, [mixer] * f.layers, _shared(f, shared_bias=bias), dense_first=1, bias=bias)


def afmoe(f: Fields) -> Model:
    """Trinity: sandwich norms, a gate a channel, a window on three of four layers."""
    period = f.size("global_attn_every_n_layers", 4)
    kinds = layer_types(f) or ["sliding_attention" if (i + 1) % period else "" for i in range(f.layers)]
    mixers = [
        gqa(f, qk_norm="head", sliding_window=window(f, kinds, i), output_gate=True, **biased(f))
        for i in range(f.layers)
    ]
    experts = _shared(f, correction_bias=True)
    return _dense_first(f, mixers, experts, f.integer("num_dense_layers", 1) or 0, norms=4)


def llama4(f: Fields) -> Model:
    """Llama 4: a shared expert, chunked attention on three of four layers."""
    step = f.size("interleave_moe_layer_step", 1)
    listed = f.items("moe_layers")
    sparse = set(listed) if listed is not None else set(range(step - 1, f.layers, step))
    ropes = f.per_layer("no_rope_layers", f.layers) if f.items("no_rope_layers") else None
    period = f.size("no_rope_layer_interval", 4)
    rope = [bool(x) for x in ropes] if ropes else [bool((i + 1) % period) for i in range(f.layers)]
    kinds = layer_types(f) or ["chunked_attention" if r else "full_attention" for r in rope]
    size, bias = f.size("intermediate_size"), biased(f)
    experts = moe(f, moe_intermediate_size=size, shared_intermediate_size=size)
    layers = [
        Block(
            mixer=gqa(f, rotary=rope[i], sliding_window=window(f, kinds, i), **bias),
            ffn=experts if i in sparse else mlp(f, size=f.size("intermediate_size_mlp")),
        )
        for i in range(f.layers)
    ]
    return decoder(f, layers)


def dbrx(f: Fields) -> Model:
    """DBRX: sizes in ``attn_config`` and ``ffn_config``."""
    attention, ffn = f.section("attn_config"), f.section("ffn_config")
    if attention is None or ffn is None:
        missing = "attn_config" if attention is None else "ffn_config"
        raise f.missing(missing)
    experts = moe(
        f,
        num_experts=ffn.size("moe_num_experts", 4),
        num_experts_per_tok=ffn.size("moe_top_k", 1),
        moe_intermediate_size=ffn.size("ffn_hidden_size", 3584),
    )
    mixer = gqa(f, num_key_value_heads=attention.size("kv_n_heads", 1))
    return decoder(f, [Block(mixer=mixer, ffn=experts, norm="layernorm")] * f.layers)


def cohere2_moe(f: Fields) -> Model:
    """Command A MoE: one norm, side by side, experts of ``intermediate_size``."""
    dense = f.integer("first_k_dense_replace", 0) or 0
    period, prefix = f.size("sliding_window_pattern", 4), f.size("prefix_dense_sliding_window_pattern", 1)
    default = ["sliding_attention" if (i + 1) % prefix else "full_attention" for i in range(dense)]
    default += ["sliding_attention" if (i + 1) % period else "full_attention" for i in range(f.layers - dense)]
    kinds = layer_types(f) or default
    size = f.size("intermediate_size")
    experts = moe(
        f, moe_intermediate_size=size, shared_intermediate_size=size * (f.integer("n_shared_experts", 0) or 0)
    )
    parts = f.per_layer("mlp_layer_types", f.layers)
    parts = parts or ["dense" if i < dense else "sparse" for i in range(f.layers)]
    wide, bias = f.integer("prefix_dense_intermediate_size", None), biased(f)
    norm: Literal["rmsnorm", "layernorm"] = "rmsnorm" if f.has("rms_norm_eps") else "layernorm"
    layers = [
        Block(
            mixer=gqa(f, sliding_window=window(f, kinds, i), rotary=kinds[i] == "sliding_attention", **bias),
            ffn=mlp(f, size=wide) if part == "dense" else experts,
            norm=norm,
            norms=1,
            parallel=True,
        )
        for i, part in enumerate(parts)
    ]
    return decoder(f, layers)
