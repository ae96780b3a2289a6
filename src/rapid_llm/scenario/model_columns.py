"""What the checks look at of a model: sizes that must divide, and what it is able to do."""

from collections.abc import Iterable
from functools import lru_cache
from math import gcd

from rapid_llm.model import MLP, CompressedAttention, Model, MoE


@lru_cache(maxsize=256)
def model_columns(model: Model) -> dict[str, int]:
    """Numbers of a model; 0 means that it has no such part. Where layers differ, a size is the greatest common divisor
    over them, since what divides it divides all. ``image_tokens``: of an image that is the whole input;
    ``reads_apart``: an encoder reads the input; ``window``: of sound, in positions of the encoder; ``deals_cache``:
    whether ranks can divide its tokens.
    """
    every = [block for block, _, _ in model.stacks]
    mixers = [mixer for block in every for mixer in (block.mixer, block.cross) if mixer is not None]
    parts = [block.ffn for block in every]
    return {
        "hidden_size": model.hidden_size,
        "vocab_size": model.vocab_size,
        "num_hidden_layers": model.num_hidden_layers,
        "max_position_embeddings": model.max_position_embeddings,
        "image_tokens": model.max_position_embeddings if model.patch_values else 0,
        "writes": model.writes,
        "reads_apart": model.encoder is not None,
        "sees_both_ways": model.crosses or not model.writes,
        "encoder_positions": model.encoder.num_positions if model.encoder and not model.encoder.window else 0,
        "window": model.encoder.window or 0 if model.encoder else 0,
        "masked": model.head != "none" and not model.writes and not model.patch_values,
        "num_attention_heads": _common(getattr(mixer, "num_attention_heads", 0) for mixer in mixers),
        "num_key_value_heads": _common(getattr(mixer, "num_key_value_heads", 0) for mixer in mixers),
        "has_windows": any(getattr(mixer, "sliding_window", None) for mixer in mixers),
        "has_latents": any(mixer.kind == "mla" for mixer in mixers if mixer),
        "num_state_heads": _common(getattr(mixer, "num_value_heads", 0) for mixer in mixers),
        "deals_cache": all(_whole(mixer) for mixer in mixers),
        "num_experts": _common(part.num_experts for part in parts if isinstance(part, MoE)),
        "intermediate_size": _common(part.intermediate_size for part in parts if isinstance(part, MLP)),
        "moe_intermediate_size": _common(part.moe_intermediate_size for part in parts if isinstance(part, MoE)),
    }


def _common(sizes: Iterable[int | None]) -> int:
    return gcd(*(size for size in sizes if size))


def _whole(mixer: object) -> bool:
    """Whether queries attend to all tokens of a cache, so that ranks can divide these; a recurrent state has none."""
    return not isinstance(mixer, CompressedAttention) and not getattr(mixer, "index_n_heads", None)
