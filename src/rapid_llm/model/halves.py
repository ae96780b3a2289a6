"""The two halves of a model whose attention and feed-forward parts run on accelerators of their own."""

from functools import lru_cache

from rapid_llm.model.architecture import Model
from rapid_llm.nouns import replaced


def has_halves(model: Model) -> bool:
    """Whether every layer has a mixer and a feed-forward part, one behind the other, and no cross attention between."""
    whole = (block.mixer is not None and block.ffn is not None and not block.parallel for block in model.blocks)
    return not model.crosses and all(whole)


@lru_cache(maxsize=64)
def attention_half(model: Model) -> Model:
    """Mixers with their norms, the embedding and the LM head."""
    return replaced(model, blocks=tuple(replaced(block, ffn=None) for block in model.blocks))


@lru_cache(maxsize=64)
def feed_forward_half(model: Model) -> Model:
    """Feed-forward parts with their norms, with a vocabulary of negligible size."""
    blocks = tuple(replaced(block, mixer=None, side_mixer=None, extra_parameters=0) for block in model.blocks)
    beyond = {"vision": None, "extra_parameters": 0, "position_embeddings": "none", "num_nextn_predict_layers": 0}
    return replaced(model, blocks=blocks, vocab_size=1, **beyond)
