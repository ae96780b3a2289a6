"""FLOP counts per token, forward: the numerators of MFU.

A multiplication and an addition count two. Counted are matrix multiplications, attention over a sequence and the
language-model head; norms, activations, rotary positions, softmax and the embedding look-up are not. *Full* attention
takes every query against the whole sequence (Narayanan et al. 2021, eq. 2; PaLM appendix B); *causal* takes what a
causal mask leaves, half of it. Training is three times the forward pass, without recompute.
"""

from functools import lru_cache

from rapid_llm.model.architecture import Attention, Block, CompressedAttention, LatentAttention, Model, MoE, StateSpace
from rapid_llm.model.weights import FRAMES, block_weights

BACKWARD_AND_FORWARD = 3
"""Training over forward: the backward pass multiplies once for inputs and once for weights."""

_NOT_MULTIPLIED = frozenset({"ssm.a", "ssm.conv", "mla.compress.position", "mla.index.compress.position"})
"""Tensors with two axes that no token is multiplied with."""

_STATE_PASSES = {"mamba": 2, "mamba2": 2, "linear": 2, "gated-delta-net": 3, "kimi-delta": 3, "short-conv": 0}
"""Multiply-adds over the state a token: write and read; the delta rule reads once more before it writes."""


_OF_SOURCE = ("cross.k", "cross.v")
"""Matrices that the tokens of an encoder are multiplied with."""


@lru_cache(maxsize=1024)
def block_matmul_flops(block: Block, hidden_size: int) -> int:
    """FLOPs of one token in the weight matrices of a block: ``2 x`` their sizes, routed experts ``k`` of ``E``. What
    cross attention projects of another sequence is left to ``cross_flops``."""
    total = 0
    for weight in block_weights(block, hidden_size):
        if len(weight.shape) < 2 or weight.role in _NOT_MULTIPLIED or weight.role in _OF_SOURCE:
            continue
        size = weight.size
        if weight.role.startswith("moe.expert.") and isinstance(block.ffn, MoE):
            size = size // block.ffn.num_experts * block.ffn.num_experts_per_tok
        total += 2 * size
    return total


def mean_keys(sequence_length: float, limit: float | None, *, causal: bool) -> float:
    """Keys that a query sees on average over a sequence, with at most ``limit`` of them (window, top-k).

    Full: ``min(s, w)``. Causal: ``s / 2``, and ``w - w^2 / 2s`` under a window (the first w queries see fewer).
    """
    seen = sequence_length if limit is None else min(sequence_length, limit)
    if not causal or not sequence_length:
        return seen
    return seen - seen * seen / (2 * sequence_length)


def attention_flops(block: Block, sequence_length: float, *, causal: bool) -> float:
    """FLOPs of one token, mean over a sequence, in scores and values of a block: ``2 keys H (d_qk + d_v)``.

    ``4 s H d`` for full attention. State-space mixers count their recurrence (the chunked kernels do more) and their
    convolution; an indexer its scores over all tokens.
    """
    mixers = (mixer for mixer in (block.mixer, block.side_mixer) if mixer is not None)
    return sum(_mixer_flops(mixer, sequence_length, causal=causal) for mixer in mixers)


def _mixer_flops(
    mixer: Attention | LatentAttention | CompressedAttention | StateSpace, length: float, *, causal: bool
) -> float:
    match mixer:
        case Attention():
            limits = [limit for limit in (mixer.sliding_window, mixer.index_topk) if limit is not None]
            keys = mean_keys(length, min(limits, default=None), causal=causal and mixer.causal)
            width = mixer.head_dim + mixer.value_dim
        case LatentAttention():
            keys = mean_keys(length, mixer.index_topk, causal=causal)
            width = mixer.qk_head_dim + mixer.v_head_dim
        case CompressedAttention():
            return _compressed_flops(mixer, length, causal=causal)
        case StateSpace():
            return _recurrence_flops(mixer)
    attention = 2 * keys * mixer.num_attention_heads * width
    return attention + _index_flops(mixer, mean_keys(length, None, causal=causal))


def _index_flops(mixer: Attention | LatentAttention | CompressedAttention, entries: float) -> float:
    return 2 * entries * (mixer.index_n_heads or 0) * (mixer.index_head_dim or 0)


def _compressed_flops(mixer: CompressedAttention, length: float, *, causal: bool) -> float:
    """A window of tokens, and the older ones as one entry for each ``compress_rate``."""
    keys, entries = mean_keys(length, mixer.sliding_window, causal=causal), 0.0
    if mixer.compress_rate is not None:
        stored = length / mixer.compress_rate
        entries = mean_keys(stored, None, causal=causal)
        keys += mean_keys(stored, mixer.index_topk, causal=causal)
    attention = 4 * keys * mixer.num_attention_heads * mixer.head_dim
    return attention + _index_flops(mixer, entries)


def _recurrence_flops(mixer: StateSpace) -> float:
    state = mixer.num_value_heads * mixer.key_dim * mixer.value_dim
    return 2.0 * (_STATE_PASSES[mixer.kind] * state + mixer.conv_channels * mixer.conv_kernel)


def cross_flops(block: Block, hidden_size: int, *, tokens: float, source: float) -> float:
    """FLOPs of a sequence of ``tokens`` in cross attention to ``source`` others: their keys and values, scores, values.
    Of a layer that is left out where there is nothing to see, what else it does is taken off."""
    if block.cross is None:
        return 0.0
    if not source:
        return -tokens * block_matmul_flops(block, hidden_size) if block.mixer is None else 0.0
    projected = sum(w.size for w in block_weights(block, hidden_size) if w.role in _OF_SOURCE)
    heads, width = block.cross.num_attention_heads, block.cross.head_dim + block.cross.value_dim
    return 2.0 * source * (projected + tokens * heads * width)


def head_flops(model: Model) -> int:
    """FLOPs of one token in the language-model head: ``2 h V`` (and the projection of narrower embeddings, or the dense
    layer of a masked head); none where a model writes hidden states."""
    if model.head == "none":
        return 0
    if model.head == "masked":
        return 2 * model.hidden_size * (model.hidden_size + model.vocab_size)
    width = model.embedding_size or model.hidden_size
    projection = 2 * width * model.hidden_size if width != model.hidden_size else 0
    return 2 * width * model.vocab_size + projection


def outer_flops(model: Model, sequence_length: float) -> float:
    """FLOPs of one token outside the layers, mean over a sequence: the head, which reads one token of an image, and the
    projection of its patches."""
    if model.patch_values is None:
        return float(head_flops(model))
    patches = 2.0 * model.patch_values * model.hidden_size * (sequence_length - 1.0)
    return (patches + head_flops(model)) / sequence_length


def layer_flops(model: Model, tokens: float, source: float, *, causal: bool) -> float:
    """FLOPs of a sequence in all layers: ``tokens`` of them, and ``source`` tokens of what cross attention reads."""
    total = 0.0
    for place, (block, hidden, count) in enumerate(model.stacks):
        length = tokens if place < len(model.blocks) else source
        one = block_matmul_flops(block, hidden) + attention_flops(block, length, causal=causal)
        total += count * (length * one + cross_flops(block, hidden, tokens=tokens, source=source))
    return total + source * _sound_flops(model)


def weightless_flops(model: Model, tokens: float, source: float, *, causal: bool) -> float:
    """FLOPs of a sequence between tokens alone, in scores and values of all layers: what frozen weights leave to the
    whole of a backward pass."""
    stacks = enumerate(model.stacks)
    lengths = ((tokens if place < len(model.blocks) else source, block, count) for place, (block, _, count) in stacks)
    return sum(count * length * attention_flops(block, length, causal=causal) for length, block, count in lengths)


def _sound_flops(model: Model) -> float:
    """FLOPs of one token of an encoder of sound in its two convolutions, the first over twice as many frames."""
    encoder = model.encoder
    if encoder is None or not encoder.mel_bins:
        return 0.0
    return 2.0 * FRAMES * encoder.hidden_size * (2 * encoder.mel_bins + encoder.hidden_size)


def forward_flops(
    model: Model, sequence_length: float, *, causal: bool = False, head: bool = True, source: float | None = None
) -> float:
    """FLOPs of one token forward, mean over a sequence, in all blocks and the head; an encoder reads as many tokens, or
    ``source``."""
    read = source if source is not None else sequence_length if model.encoder else 0.0
    total = outer_flops(model, sequence_length) if head else 0.0
    return total + layer_flops(model, sequence_length, read, causal=causal) / sequence_length


def training_flops(model: Model, sequence_length: float, *, causal: bool = False) -> float:
    """FLOPs of one token in training without recompute: the numerator of ``mfu`` (``causal``: of ``mfu_causal``)."""
    return BACKWARD_AND_FORWARD * forward_flops(model, sequence_length, causal=causal)


@lru_cache(maxsize=256)
def step_flops(
    model: Model, sequence_length: int, source: int = 0, predictions: int | None = None
) -> tuple[float, float, float]:
    """Forward FLOPs of one sequence: with full attention, with causal attention, and of the head alone, which reads so
    many ``predictions`` of it (none: every token). ``source``: tokens of the encoder that it reads."""
    words = outer_flops(model, sequence_length) * sequence_length
    if predictions is not None:
        words = float(predictions * head_flops(model))
    full, causal = (words + layer_flops(model, sequence_length, source, causal=mask) for mask in (False, True))
    return full, causal, float(sequence_length * head_flops(model)) if predictions is None else words
