"""Decoders with LayerNorm and biases: GPT-2 and what came before Llama."""

from rapid_llm.model.architecture import Block, Model
from rapid_llm.model.families.parts import decoder, gqa, mlp
from rapid_llm.model.fields import Fields


def gpt2(f: Fields) -> Model:
    """GPT-2 and Megatron's GPT: learned positions, biases everywhere, tied head."""
    inner = f.integer("intermediate_size", None) or 4 * f.size("hidden_size")
    block = Block(
        mixer=gqa(f, qkv_bias=True, o_bias=True, rotary=False),
        ffn=mlp(f, size=inner, gated=False, bias=True),
        norm="layernorm",
        norm_bias=True,
    )
    return decoder(
        f,
        [block] * f.layers,
        tie_word_embeddings=f.flag("tie_word_embeddings", True),
        position_embeddings="learned",
    )
