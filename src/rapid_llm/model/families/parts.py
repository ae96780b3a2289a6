"""Parts that most families share: grouped-query attention, feed-forward parts, and the stack around them."""

from collections.abc import Mapping, Sequence
from typing import Any

from rapid_llm.documents import build
from rapid_llm.model.architecture import MLP, Attention, Block, LatentAttention, Model, MoE
from rapid_llm.model.fields import Fields


def head_dim(f: Fields) -> int:
    """``head_dim``, else the hidden size divided by the heads."""
    given = f.integer("head_dim", None)
    if given:
        return given
    hidden, heads = f.size("hidden_size"), f.size("num_attention_heads")
    if hidden % heads:
        raise f.error(
            f"{f.path('num_attention_heads')} must divide hidden_size: {hidden} / {heads} leaves {hidden % heads}. "
            "Or give head_dim.",
            "num_attention_heads",
        )
    return hidden // heads


def gqa(f: Fields, **changes: Any) -> Attention:
    """Attention from the usual fields; ``changes`` are fields of the noun that a family fixes otherwise."""
    heads = f.size("num_attention_heads")
    values: dict[str, Any] = {
        "num_attention_heads": heads,
        "num_key_value_heads": f.integer("num_key_value_heads", None) or heads,
        **changes,
    }
    if "head_dim" not in values:
        values["head_dim"] = head_dim(f)
    heads, kv = values["num_attention_heads"], values["num_key_value_heads"]
    if heads % kv:
        groups = ", ".join(str(one) for one in range(1, heads + 1) if heads % one == 0)
        raise f.error(
            f"{f.path('num_key_value_heads')} must divide num_attention_heads: {heads} / {kv} leaves {heads % kv}. "
            f"Try {groups}.",
            "num_key_value_heads",
        )
    return build(Attention, values, f.document, f.prefix)


def biased(f: Fields, *, default: bool = False) -> dict[str, Any]:
    """One flag for the biases of all four projections."""
    bias = f.flag("attention_bias", default)
    return {"qkv_bias": bias, "o_bias": bias}


def window(f: Fields, kinds: Sequence[str] | None, layer: int) -> int | None:
    """The sliding window of a layer whose type is listed as sliding or chunked."""
    if kinds is None or kinds[layer] not in ("sliding_attention", "chunked_attention"):
        return None
    name = "attention_chunk_size" if kinds[layer] == "chunked_attention" else "sliding_window"
    return f.integer(name, None) or None


def mlp(f: Fields, *, size: int | None = None, gated: bool = True, bias: bool = False) -> MLP:
    """Feed-forward part of ``intermediate_size``."""
    return MLP(intermediate_size=size or f.size("intermediate_size"), gated=gated, bias=bias)


def moe(f: Fields, **changes: Any) -> MoE:
    """Experts from the usual fields; ``changes`` as in ``gqa``."""
    balanced = f.get("topk_method", None) == "noaux_tc"
    values: dict[str, Any] = {"clamped": f.has("swiglu_limit"), "balanced": balanced, **changes}
    if (f.integer("n_group", None) or 1) > 1 and f.integer("topk_group", None):
        values |= {"expert_groups": f.size("n_group"), "groups_per_token": f.size("topk_group")}
    for name in ("num_experts", "num_experts_per_tok", "moe_intermediate_size"):
        if name not in values:
            values[name] = f.size(name)
    return build(MoE, values, f.document, f.prefix)


def mla(f: Fields, **changes: Any) -> LatentAttention:
    """Latent attention from DeepSeek's fields."""
    names = ("num_attention_heads", "kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")
    values: dict[str, Any] = {name: f.size(name) for name in names if name not in changes}
    values |= {"q_lora_rank": f.integer("q_lora_rank", None) or None, "bias": f.flag("attention_bias")}
    return build(LatentAttention, {**values, **changes}, f.document, f.prefix)


def decoder(f: Fields, layers: Sequence[Block], **changes: Any) -> Model:
    """The model around a list of layers; equal layers become one block."""
    blocks = list(dict.fromkeys(layers))
    index = {block: i for i, block in enumerate(blocks)}
    values: dict[str, Any] = {
        "name": str(f.document.data.get("name") or f.document.file or "model"),
        "hidden_size": f.size("hidden_size"),
        "vocab_size": changes["vocab_size"] if "vocab_size" in changes else f.size("vocab_size"),
        "blocks": tuple(blocks),
        "pattern": tuple(index[block] for block in layers),
        "tie_word_embeddings": f.flag("tie_word_embeddings", False),
        "max_position_embeddings": f.size("max_position_embeddings", 2048),
        "num_nextn_predict_layers": f.integer("num_nextn_predict_layers", 0) or 0,
        "quantization": quantization(f),
        **changes,
    }
    return build(Model, values, f.document, f.prefix)


def quantization(f: Fields) -> str | None:
    """The number format of the checkpoint: fp8, mxfp4, nvfp4, int4 (with -experts where attention is left in 16 bits),
    int8; None for 16-bit weights."""
    for holder in (f.data, f.document.data):
        if holder.get("expert_dtype") == "fp4":
            return "mxfp4"
        config = holder.get("quantization_config")
        if isinstance(config, Mapping):
            return _format(config)
    return None


def _format(config: Mapping[str, Any]) -> str | None:
    method = str(config.get("quant_method", "")).lower()
    words = " ".join(str(config.get(k, "")) for k in ("quant_method", "quant_algo", "format", "fmt")).lower()
    left = (*(config.get("ignore") or ()), *(config.get("exclude_modules") or ()))
    apart = "-experts" if any("self_attn" in str(name) for name in left) else ""
    for known, words_of in (("mxfp4", ("mxfp4",)), ("nvfp4", ("nvfp4",)), ("fp8", ("fp8", "e4m3", "float-quantized"))):
        if any(word in words for word in words_of):
            return known + (apart if known == "nvfp4" else "")
    groups = config.get("config_groups")
    weights = next((g.get("weights") or {} for g in groups.values()), {}) if isinstance(groups, Mapping) else {}
    bits = config.get("bits") or config.get("w_bit") or weights.get("num_bits")
    if bits is None and method == "bitsandbytes":
        bits = 4 if config.get("load_in_4bit") else 8
    kind = "fp" if weights.get("type") == "float" else "int"
    return f"{kind}{bits}{apart if f'{kind}{bits}' == 'int4' else ''}" if bits else method or None


def layer_types(f: Fields) -> list[str] | None:
    """``layer_types`` as written, one a layer, or None."""
    kinds = f.per_layer("layer_types", f.layers) if "layer_types" in f.data else None
    return [str(kind) for kind in kinds] if kinds else None
