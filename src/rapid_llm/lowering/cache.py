"""Bytes that an inference engine caches for one sequence: keys and values, latents, recurrent states."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from rapid_llm.lowering.operators import FP32_BYTES
from rapid_llm.model.architecture import Attention, Block, CompressedAttention, LatentAttention, Model, StateSpace

Column = NDArray[np.float64]
Matrix = NDArray[np.float64]
INPUT_BYTES = 2.0
"""Of an input that a causal convolution keeps, 16 bit wide."""


def cache_bytes(
    model: Model,
    tp: Column | float,
    length: Column,
    kv: float,
    block: int = 1,
    *,
    source: Column | float = 0.0,
    kvp: Column | float = 1.0,
    windows: bool = True,
) -> Matrix:
    """Bytes of one pass of each unit on one rank for one sequence of ``length`` tokens [U, P].

    ``tp``: of each plan, or of one at several lengths; ``kv``: bytes of one cached number; ``block``: tokens of a cache
    block, of which a sequence holds whole ones. Heads are divided by tp and repeated beyond them; a latent is not
    divided; a window is held whole and straddles one more block; recurrent states and the inputs that a convolution
    looks back at do not grow: ``length`` 0 leaves them alone. Nor do keys and values of cross attention, of ``source``
    tokens. ``kvp`` of the tp ranks share the tokens of the same heads. Layers whose tokens all see each other run once
    over a sequence and keep nothing: those of an encoder. Without ``windows`` layers that attend to the latest tokens
    keep all of them.
    """
    cache = np.zeros((len(model.blocks) + below_units(model) + 2, len(length)))
    for unit, layer in enumerate(model.blocks):
        cache[unit] = _layer(layer, (tp, kvp), length, kv, block, windows=windows)
        if layer.cross is not None:
            cache[unit] += _held(source, 0.0, block) * _width(layer.cross, tp) * kv
    return cache


def below_units(model: Model) -> int:
    """Units of an encoder: its distinct layers, and what stands around them."""
    return len(model.encoder.blocks) + 1 if model.encoder else 0


def _width(mixer: Attention, tp: Column | float) -> Column | float:
    """Numbers that one token leaves in the cache of a rank [P]."""
    heads: Column | float = np.maximum(1.0, np.ceil(mixer.num_key_value_heads / tp))
    return heads * (mixer.head_dim + mixer.value_dim)


def _held(length: Column | float, window: Column | float, block: int) -> Column | float:
    """Tokens in whole blocks of a sequence [P]; ``window`` 0: no window."""
    whole: Column | float = np.ceil(length / block) * block
    if not np.any(window):
        return whole
    straddle = block if block > 1 else 0
    return np.where(length > window, np.ceil(window / block) * block + straddle, whole)


def _layer(
    layer: Block, cut: tuple[Column | float, Column | float], length: Column, kv: float, block: int, *, windows: bool
) -> Column | float:
    """Cache of one layer; ``cut``: ranks that divide heads, and those among them that divide tokens."""
    mixer, (tp, kvp) = layer.mixer, cut
    size: Column | float = 0.0
    if isinstance(mixer, Attention) and mixer.causal and not mixer.kv_shared:
        window = (mixer.sliding_window or 0) if windows else 0
        size = _held(length / kvp, window / kvp, block) * _width(mixer, tp / kvp) * kv
    elif isinstance(mixer, LatentAttention):
        latent = (mixer.kv_lora_rank + mixer.qk_rope_head_dim) * kv
        size = _held(length / kvp, 0.0, block) * (latent + (mixer.index_head_dim or 0))
    elif isinstance(mixer, CompressedAttention):
        entries = _held(length, mixer.sliding_window, block)
        if mixer.compress_rate:
            entries = entries + np.ceil(length / mixer.compress_rate)
        size = entries * mixer.head_dim * kv
    for recurrent in (mixer, layer.side_mixer):
        if isinstance(recurrent, StateSpace):
            state = recurrent.num_value_heads * recurrent.key_dim * recurrent.value_dim * FP32_BYTES
            inputs = (
                recurrent.conv_channels * (recurrent.conv_kernel - 1) * INPUT_BYTES if recurrent.conv_kernel else 0.0
            )
            size = size + (state + inputs) / np.minimum(tp, recurrent.num_value_heads)
    return size
