"""Llama and the decoders that differ from it by a flag."""

from rapid_llm.model.architecture import Block, Model
from rapid_llm.model.families.parts import biased, decoder, gqa, mlp, moe
from rapid_llm.model.fields import Fields


def llama(f: Fields) -> Model:
    """Llama 1-3 and its descendants."""
    block = Block(mixer=gqa(f, **biased(f)), ffn=mlp(f, bias=f.flag("mlp_bias")))
    return decoder(f, [block] * f.layers)


def mistral(f: Fields) -> Model:
    """Mistral: Llama with a sliding window on all layers."""
    block = Block(mixer=gqa(f, sliding_window=f.integer("sliding_window", None)), ffn=mlp(f))
    return decoder(f, [block] * f.layers)


def mixtral(f: Fields) -> Model:
    """Mixtral: all layers with experts of ``intermediate_size``."""
    experts = moe(f, moe_intermediate_size=f.size("intermediate_size"))
    block = Block(mixer=gqa(f, sliding_window=f.integer("sliding_window", None)), ffn=experts)
    return decoder(f, [block] * f.layers)
