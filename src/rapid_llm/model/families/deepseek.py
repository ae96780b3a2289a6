"""Latent attention and fine-grained experts: DeepSeek V2-V4, Kimi K2, GLM-5 and their relatives."""

from typing import Any

from rapid_llm.documents import build
from rapid_llm.model.architecture import MLP, Block, CompressedAttention, LatentAttention, Model, MoE
from rapid_llm.model.families.parts import decoder, layer_types, mla, mlp, moe
from rapid_llm.model.fields import Fields


def experts(f: Fields, **changes: Any) -> MoE:
    """DeepSeek's experts: routed ones and shared ones of the same width."""
    shared = f.integer("n_shared_experts", 0) or 0
    return moe(f, shared_intermediate_size=shared * f.size("moe_intermediate_size"), **changes)


def feed_forwards(f: Fields, *, dense_first: int | None = None, bias: bool = False, **changes: Any) -> list[MLP | MoE]:
    """The part of each layer: ``mlp_layer_types``, else dense before ``first_k_dense_replace``."""
    kinds = f.per_layer("mlp_layer_types", f.layers)
    if kinds is None:
        first = dense_first if dense_first is not None else f.integer("first_k_dense_replace", 0) or 0
        kinds = ["dense" if layer < first else "sparse" for layer in range(f.layers)]
    dense = mlp(f, bias=bias) if "dense" in kinds else None
    sparse = experts(f, **changes) if set(kinds) != {"dense"} else None
    return [part for kind in kinds if (part := dense if kind == "dense" else sparse)]


def deepseek(f: Fields) -> Model:
    """DeepSeek V2 and V3, Kimi K2."""
    mixer, bias = mla(f), f.flag("mlp_bias")
    return decoder(f, [Block(mixer=mixer, ffn=part) for part in feed_forwards(f, bias=bias, shared_bias=bias)])


def _indexed(f: Fields) -> dict[str, int]:
    return {name: f.size(name) for name in ("index_n_heads", "index_head_dim", "index_topk")}


def deepseek_v32(f: Fields) -> Model:
    """DeepSeek V3.2: an indexer chooses the tokens to read."""
    mixer = mla(f, **_indexed(f))
    return decoder(f, [Block(mixer=mixer, ffn=part) for part in feed_forwards(f)])


def glm_dsa(f: Fields) -> Model:
    """GLM-5: as DeepSeek V3.2; some layers may take the choice of an earlier layer's indexer."""
    pattern = f.get("index_topk_pattern", None)
    every, skip = max(f.integer("index_topk_freq", 1) or 1, 1), f.integer("index_skip_topk_offset", 2) or 0
    kinds = f.per_layer("indexer_types", f.layers)
    if kinds is None and isinstance(pattern, (str, list)):
        kinds = [{"F": "full", "S": "shared"}.get(c, c) for c in pattern]
    kinds = kinds or ["full" if max(i - skip + 1, 0) % every == 0 else "shared" for i in range(f.layers)]
    full, shared = mla(f, **_indexed(f)), mla(f, index_topk=f.size("index_topk"))
    mixers: list[LatentAttention] = [full if kind == "full" else shared for kind in kinds]
    return decoder(f, [Block(mixer=a, ffn=part) for a, part in zip(mixers, feed_forwards(f), strict=False)])


def glm4_lite(f: Fields) -> Model:
    """GLM-4.7 Flash: DeepSeek's block, the first layer dense."""
    mixer = mla(f)
    return decoder(f, [Block(mixer=mixer, ffn=part) for part in feed_forwards(f, dense_first=1)])


def minicpm3(f: Fields) -> Model:
    """MiniCPM 3: latent attention, dense."""
    value = f.integer("v_head_dim", None) or f.size("hidden_size") // f.size("num_attention_heads")
    block = Block(mixer=mla(f, v_head_dim=value), ffn=mlp(f, bias=f.flag("mlp_bias")))
    return decoder(f, [block] * f.layers)


_CSA, _HCA = "compressed_sparse_attention", "heavily_compressed_attention"


def deepseek_v4(f: Fields) -> Model:
    """DeepSeek V4: compressed attention, hyper-connections, experts on all layers."""
    rates = {_CSA: f.size("compress_rate_csa", 4), _HCA: f.size("compress_rate_hca", 128)}
    given = f.section("compress_rates")
    if given is not None:
        rates = {kind: given.size(kind, rate) for kind, rate in rates.items()}
    kinds = layer_types(f)
    ratios = f.per_layer("compress_ratios", f.layers)
    if kinds is None and ratios is not None:
        kinds = ["sliding_attention" if not r else _CSA if r < rates[_HCA] else _HCA for r in ratios]
    kinds = kinds or [_HCA if i < 2 or i % 2 == 0 else _CSA for i in range(f.layers)]
    bias, streams = f.flag("mlp_bias"), f.size("hc_mult")
    part = moe(f, shared_intermediate_size=f.size("moe_intermediate_size"), shared_bias=bias)
    mixers = {kind: _compressed(f, kind, rates) for kind in set(kinds)}
    layers = [Block(mixer=mixers[kind], ffn=part, hyper_connections=streams) for kind in kinds]
    head = streams * streams * f.size("hidden_size") + streams + 1
    return decoder(f, layers, extra_parameters=head)


def _compressed(f: Fields, kind: str, rates: dict[str, int]) -> CompressedAttention:
    names = ("num_attention_heads", "head_dim", "q_lora_rank", "o_groups", "o_lora_rank", "sliding_window")
    values: dict[str, Any] = {name: f.size(name) for name in names}
    values["qk_rope_head_dim"] = f.size("qk_rope_head_dim", 64)
    if kind in rates:
        values["compress_rate"] = rates[kind]
    if kind == _CSA:
        values |= _indexed(f)
    return build(CompressedAttention, values, f.document, f.prefix)


def longcat(f: Fields) -> Model:
    """LongCat Flash: two attentions and two MLPs a layer beside one set of experts, some of which do nothing.

    A layer is two blocks here; the experts stand in the first. The implementation gives zero experts half their
    tensors; they are counted as extra parameters.
    """
    hidden, size, idle = f.size("hidden_size"), f.size("moe_intermediate_size"), f.integer("zero_expert_num", 0) or 0
    dense = f.size("intermediate_size")
    part = moe(f, shared_intermediate_size=dense, router_bias=f.flag("router_bias"))
    extra = idle * (2 * size * hidden + hidden + (1 if f.flag("router_bias") else 0))
    mixer = mla(f)
    pair = [Block(mixer=mixer, ffn=part, extra_parameters=extra), Block(mixer=mixer, ffn=mlp(f, size=dense))]
    return decoder(f, pair * f.layers)
