"""Llama and the dense decoders that differ from it by a few flags."""

from typing import Any

from rapid_llm.model.architecture import Attention, Block, Model
from rapid_llm.model.families.parts import biased, decoder, gqa, layer_types, mlp, window
from rapid_llm.model.fields import Fields

_DECI_MULTIPLE = 256
"""Feed-forward widths of Llama-Nemotron are rounded up to it."""


def _windowed(
    f: Fields, kinds: list[str] | None, *, rope: list[bool] | None = None, **attention: Any
) -> list[Attention]:
    """Attention of each layer, with the window of its type; ``rope`` says which layers have rotary positions."""
    return [
        gqa(f, sliding_window=window(f, kinds, i), rotary=rope[i] if rope else True, **attention)
        for i in range(f.layers)
    ]


def llama(f: Fields) -> Model:
    """Llama 1-3 and its descendants."""
    block = Block(mixer=gqa(f, **biased(f)), ffn=mlp(f, bias=f.flag("mlp_bias")))
    return decoder(f, [block] * f.layers)


def mistral(f: Fields) -> Model:
    """Mistral, Ministral 3, Phi 3 and 4: a sliding window on all layers."""
    block = Block(mixer=gqa(f, sliding_window=f.integer("sliding_window", None) or None), ffn=mlp(f))
    return decoder(f, [block] * f.layers)


def ministral(f: Fields) -> Model:
    """Ministral 8B: windows on the layers that ``layer_types`` names, else on all."""
    kinds = layer_types(f) or ["sliding_attention"] * f.layers
    return decoder(f, [Block(mixer=a, ffn=mlp(f)) for a in _windowed(f, kinds)])


def qwen(f: Fields) -> Model:
    """Qwen 1: the two halves of ``intermediate_size`` gate each other."""
    block = Block(mixer=gqa(f, qkv_bias=True), ffn=mlp(f, size=f.size("intermediate_size") // 2))
    return decoder(f, [block] * f.layers)


def _qwen_types(f: Fields) -> list[str] | None:
    if not f.flag("use_sliding_window"):
        return None
    first = f.integer("max_window_layers", 28) or 0
    return layer_types(f) or ["sliding_attention" if i >= first else "full_attention" for i in range(f.layers)]


def qwen2(f: Fields) -> Model:
    """Qwen 1.5, 2 and 2.5: biases on query, key and value."""
    return decoder(f, [Block(mixer=a, ffn=mlp(f)) for a in _windowed(f, _qwen_types(f), qkv_bias=True)])


def qwen3(f: Fields) -> Model:
    """Qwen 3: norms on each head's query and key."""
    mixers = _windowed(f, _qwen_types(f), qk_norm="head", **biased(f))
    return decoder(f, [Block(mixer=a, ffn=mlp(f)) for a in mixers])


def glm(f: Fields) -> Model:
    """GLM-4 9B: biases on query, key and value."""
    block = Block(mixer=gqa(f, qkv_bias=f.flag("attention_bias", True)), ffn=mlp(f))
    return decoder(f, [block] * f.layers)


def glm4(f: Fields) -> Model:
    """GLM-4-0414: norms before and behind each part."""
    block = Block(mixer=gqa(f, qkv_bias=f.flag("attention_bias", True)), ffn=mlp(f), norms=4)
    return decoder(f, [block] * f.layers)


def chatglm(f: Fields) -> Model:
    """ChatGLM2 and 3, GLM-4 9B as first released: its own names for Llama's fields; biases on query, key and value."""
    groups = f.size("multi_query_group_num", 2) if f.flag("multi_query_attention") else f.size("num_attention_heads")
    mixer = gqa(f, num_key_value_heads=groups, head_dim=f.size("kv_channels", 128), qkv_bias=f.flag("add_qkv_bias"))
    blocks = [Block(mixer=mixer, ffn=mlp(f, bias=f.flag("add_bias_linear")))] * f.layers
    return decoder(f, blocks, vocab_size=f.size("padded_vocab_size"))


def cohere(f: Fields) -> Model:
    """Command R: one LayerNorm without bias, attention and feed-forward side by side."""
    kinds = layer_types(f) if f.has("sliding_window") else None
    norm = "full" if f.flag("use_qk_norm") else "none"
    mixers = _windowed(f, kinds, qk_norm=norm, **biased(f))
    return decoder(f, [Block(mixer=a, ffn=mlp(f), norm="layernorm", norms=1, parallel=True) for a in mixers])


def cohere2(f: Fields) -> Model:
    """Command R7B and A: three windowed layers with rotary positions, then a full one without."""
    period = f.size("sliding_window_pattern", 4)
    default = ["sliding_attention" if (i + 1) % period else "full_attention" for i in range(f.layers)]
    kinds = layer_types(f) or default
    rope = [kind == "sliding_attention" for kind in kinds]
    mixers = _windowed(f, kinds, rope=rope, **biased(f))
    return decoder(f, [Block(mixer=a, ffn=mlp(f), norm="layernorm", norms=1, parallel=True) for a in mixers])


def olmo(f: Fields) -> Model:
    """OLMo 1: norms without weights."""
    block = Block(mixer=gqa(f, **biased(f)), ffn=mlp(f), norm="layernorm", norm_weight=False)
    return decoder(f, [block] * f.layers)


def olmo2(f: Fields) -> Model:
    """OLMo 2 and 3: norms behind the parts, query and key norms over all heads; 3 has windows."""
    kinds = layer_types(f)
    if kinds is None and f.has("sliding_window"):
        kinds = ["sliding_attention" if (i + 1) % 4 else "full_attention" for i in range(f.layers)]
    return decoder(f, [Block(mixer=a, ffn=mlp(f)) for a in _windowed(f, kinds, qk_norm="full", **biased(f))])


def smollm3(f: Fields) -> Model:
    """SmolLM3: every fourth layer without rotary positions."""
    period = f.size("no_rope_layer_interval", 4)
    given = f.per_layer("no_rope_layers", f.layers)
    rope = [bool(x) for x in given] if given else [bool((i + 1) % period) for i in range(f.layers)]
    mixers = _windowed(f, layer_types(f), rope=rope, **biased(f))
    return decoder(f, [Block(mixer=a, ffn=mlp(f, bias=f.flag("mlp_bias"))) for a in mixers])


def seed_oss(f: Fields) -> Model:
    """Seed-OSS: biases on query, key and value."""
    mixer = gqa(f, qkv_bias=f.flag("attention_bias", True), o_bias=f.flag("attention_out_bias"))
    return decoder(f, [Block(mixer=mixer, ffn=mlp(f, bias=f.flag("mlp_bias")))] * f.layers)


def arcee(f: Fields) -> Model:
    """AFM: squared ReLU instead of a gate."""
    block = Block(mixer=gqa(f, **biased(f)), ffn=mlp(f, gated=False, bias=f.flag("mlp_bias")))
    return decoder(f, [block] * f.layers)


def apertus(f: Fields) -> Model:
    """Apertus: a plain feed-forward part whose activation (xIELU) learns two numbers."""
    mixer = gqa(f, qk_norm="head", **biased(f))
    block = Block(mixer=mixer, ffn=mlp(f, gated=False, bias=f.flag("mlp_bias")), extra_parameters=2)
    return decoder(f, [block] * f.layers)


def exaone4(f: Fields) -> Model:
    """EXAONE 4: norms behind the parts, query and key norms per head."""
    kinds = layer_types(f)
    period = f.integer("sliding_window_pattern", 4)
    if kinds is None and f.has("sliding_window") and period:
        kinds = ["sliding_attention" if (i + 1) % period else "full_attention" for i in range(f.layers)]
    rope = [kind == "sliding_attention" for kind in kinds] if kinds else None
    return decoder(f, [Block(mixer=a, ffn=mlp(f)) for a in _windowed(f, kinds, rope=rope, qk_norm="head")])


def ernie(f: Fields) -> Model:
    """ERNIE 4.5: one flag for all biases."""
    bias = f.flag("use_bias")
    block = Block(mixer=gqa(f, qkv_bias=bias, o_bias=bias), ffn=mlp(f, bias=bias))
    return decoder(f, [block] * f.layers)


def hunyuan(f: Fields) -> Model:
    """Hunyuan dense: query and key norms per head."""
    block = Block(mixer=gqa(f, qk_norm="head", **biased(f)), ffn=mlp(f))
    return decoder(f, [block] * f.layers)


def internlm2(f: Fields) -> Model:
    """InternLM 1-3: ``bias`` (3: ``qkv_bias`` and ``bias``) on the projections."""
    bias = f.flag("bias")
    qkv = f.flag("qkv_bias", bias)
    block = Block(mixer=gqa(f, qkv_bias=qkv, o_bias=bias or qkv), ffn=mlp(f, bias=False))
    return decoder(f, [block] * f.layers)


def baichuan(f: Fields) -> Model:
    """Baichuan 7B (rotary) and 13B (ALiBi, which its files give no ``max_position_embeddings``)."""
    alibi = "max_position_embeddings" not in f.data
    block = Block(mixer=gqa(f, rotary=not alibi), ffn=mlp(f))
    return decoder(f, [block] * f.layers, position_embeddings="alibi" if alibi else "rotary")


def bitnet(f: Fields) -> Model:
    """BitNet b1.58: a norm inside each part, of the heads and of the feed-forward width."""
    mixer = gqa(f, **biased(f))
    inner = f.size("hidden_size") + f.size("intermediate_size")
    return decoder(f, [Block(mixer=mixer, ffn=mlp(f), extra_parameters=inner)] * f.layers)


def mllama(f: Fields) -> Model:
    """Llama 3.2 Vision's decoder: some layers attend to the image; eight more rows of embeddings."""
    cross = f.items("cross_attention_layers") or [3, 8, 13, 18, 23, 28, 33, 38]
    own = Block(mixer=gqa(f), ffn=mlp(f))
    reads = gqa(f, causal=False, rotary=False, qk_norm="head")
    other = Block(mixer=None, cross=reads, ffn=mlp(f), extra_parameters=2)
    layers = [other if i in cross else own for i in range(f.layers)]
    return decoder(f, layers, extra_parameters=8 * f.size("hidden_size"))


def deci(f: Fields) -> Model:
    """Llama-Nemotron, found by architecture search: ``block_configs`` size, thin out or drop each layer's parts.

    Source: the checkpoints' own modelling code; transformers has no implementation.
    """
    blocks = f.per_layer("block_configs", f.layers)
    if blocks is None:
        raise f.missing("block_configs")
    places = [Fields(given, f.document, f.path(f"block_configs[{i}]")) for i, given in enumerate(blocks)]
    return decoder(f, [_deci_block(f, place.section("attention"), place.section("ffn")) for place in places])


def _deci_block(f: Fields, attention: Fields | None, ffn: Fields | None) -> Block:
    parts = [part for part in (attention, ffn) if part is not None and not part.flag("no_op")]
    linear = [part for part in parts if part.flag("replace_with_linear")]
    mixer = feed_forward = None
    if attention in parts and attention not in linear and attention is not None:
        groups = f.size("num_attention_heads") // attention.size("n_heads_in_group")
        mixer = gqa(f, num_key_value_heads=groups, **biased(f))
    if ffn in parts and ffn not in linear and ffn is not None:
        wide = int(2 * ffn.number("ffn_mult") * f.size("hidden_size") / 3)
        feed_forward = mlp(f, size=-(-wide // _DECI_MULTIPLE) * _DECI_MULTIPLE)
    extra = len(linear) * f.size("hidden_size") ** 2
    return Block(mixer=mixer, ffn=feed_forward, norms=len(parts), extra_parameters=extra)
