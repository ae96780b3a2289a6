"""The vision tower of a model as a model of its own: what encoding an image computes."""

from functools import lru_cache

from rapid_llm.model.architecture import MLP, Attention, Block, Model, VisionTower

GATED_BELOW = 3.0
"""Width of a feed-forward part over the hidden size below which it has a gate: 4 are usual with two matrices, and 8/3
with three, which keeps the parameters (Shazeer 2020, arXiv 2002.05202)."""


@lru_cache(maxsize=64)
def encoder(tower: VisionTower) -> Model:
    """Layers of a tower: every patch of an image sees all others, also where some layers look at windows alone."""
    heads, width = tower.num_attention_heads, tower.hidden_size
    mixer = Attention(
        num_attention_heads=heads, num_key_value_heads=heads, head_dim=-(-width // heads), causal=False, rotary=False
    )
    gated = tower.intermediate_size / width < GATED_BELOW
    block = Block(mixer=mixer, ffn=MLP(intermediate_size=tower.intermediate_size, gated=gated), norm="layernorm")
    return Model(
        name="vision tower",
        hidden_size=width,
        vocab_size=1,
        blocks=(block,),
        pattern=(0,) * tower.layers,
        max_position_embeddings=2**20,
        position_embeddings="none",
    )
