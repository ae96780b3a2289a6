"""Latent attention and fine-grained experts: DeepSeek V2-V4 and their relatives."""

from rapid_llm.model.architecture import MLP, Block, Model, MoE
from rapid_llm.model.families.parts import decoder, mla, mlp, moe
from rapid_llm.model.fields import Fields


def experts(f: Fields) -> MoE:
    """DeepSeek's experts: routed ones and shared ones of the same width."""
    shared = f.integer("n_shared_experts", 0) or 0
    return moe(f, shared_intermediate_size=shared * f.size("moe_intermediate_size"))


def feed_forwards(f: Fields) -> list[MLP | MoE]:
    """The part of each layer: ``mlp_layer_types``, else dense before ``first_k_dense_replace``."""
    kinds = f.per_layer("mlp_layer_types", f.layers)
    if kinds is None:
        first = f.integer("first_k_dense_replace", 0) or 0
        kinds = ["dense" if layer < first else "sparse" for layer in range(f.layers)]
    dense = mlp(f) if "dense" in kinds else None
    sparse = experts(f) if set(kinds) != {"dense"} else None
    return [part for kind in kinds if (part := dense if kind == "dense" else sparse)]


def deepseek(f: Fields) -> Model:
    """DeepSeek V2 and V3."""
    mixer = mla(f)
    return decoder(f, [Block(mixer=mixer, ffn=part) for part in feed_forwards(f)])
