"""FLOPs of a forward pass: what MFU counts. A multiply-add is two.

Conventions (PaLM, arXiv 2204.02311, appendix B; Narayanan et al. 2021, equation 3): every weight matrix that a token
meets, attention scores and their product with the values, the LM head; no embedding gather, norms or activations.
"""

from functools import lru_cache

from rapid_llm.model.architecture import Attention, Block, CompressedAttention, LatentAttention, Model, MoE, StateSpace
from rapid_llm.model.weights import block_weights

_VECTORS = ("ssm.a", "ssm.conv", "mla.compress.position", "mla.index.compress.position")


@lru_cache(maxsize=1024)
def matrix_flops(block: Block, hidden_size: int) -> float:
    """FLOPs of one token in the weight matrices of a block: 2 per parameter, routed experts only where it is sent."""
    flops = 0.0
    for weight in block_weights(block, hidden_size):
        if len(weight.shape) < 2 or weight.role in _VECTORS:
            continue
        share = 1.0
        if isinstance(block.ffn, MoE) and weight.role.startswith("moe.expert."):
            share = block.ffn.num_experts_per_tok / block.ffn.num_experts
        flops += 2.0 * weight.size * share
    return flops


def attention_flops(block: Block, sequence_length: int, *, causal: bool) -> float:
    """FLOPs of one sequence in the token mixers of a block: scores and values over all pairs, or the causal half.

    4 s^2 H d for softmax attention; a window caps the pairs of a query; a recurrent mixer updates and reads its state
    once per token (4 s H dk dv).
    """
    return sum(_mixer_flops(mixer, sequence_length, causal=causal) for mixer in (block.mixer, block.side_mixer) if mixer)


def _mixer_flops(
    mixer: Attention | LatentAttention | CompressedAttention | StateSpace, length: int, *, causal: bool
) -> float:
    match mixer:
        case Attention():
            width = mixer.num_attention_heads * (mixer.head_dim + mixer.value_dim)
            return 2.0 * width * _pairs(length, mixer.sliding_window or mixer.index_topk, causal=causal)
        case LatentAttention():
            width = mixer.num_attention_heads * (mixer.qk_head_dim + mixer.v_head_dim)
            return 2.0 * width * _pairs(length, mixer.index_topk, causal=causal)
        case CompressedAttention():
            width = 2 * mixer.num_attention_heads * mixer.head_dim
            return 2.0 * width * _pairs(length, mixer.sliding_window + (mixer.index_topk or 0), causal=causal)
        case _:
            return 4.0 * length * mixer.num_value_heads * mixer.key_dim * mixer.value_dim


def _pairs(length: int, window: int | None, *, causal: bool) -> float:
    """Query-key pairs of one sequence: all, or s (s + 1) / 2 of them; a query sees at most ``window`` keys."""
    seen = min(length, window or length)
    if not causal:
        return float(length) * seen
    return seen * (seen + 1) / 2.0 + float(length - seen) * seen


def head_flops(model: Model) -> float:
    """FLOPs of one token in the LM head: 2 h V."""
    return 2.0 * model.hidden_size * model.vocab_size


@lru_cache(maxsize=256)
def step_flops(model: Model, sequence_length: int) -> tuple[float, float, float]:
    """Forward FLOPs of one sequence: with full attention, with causal attention, and of the head alone."""
    head = head_flops(model) * sequence_length
    matrices = [matrix_flops(block, model.hidden_size) * sequence_length for block in model.blocks]
    full = [attention_flops(block, sequence_length, causal=False) for block in model.blocks]
    causal = [attention_flops(block, sequence_length, causal=True) for block in model.blocks]
    weights = sum(matrices[index] for index in model.pattern) + head
    return (
        weights + sum(full[index] for index in model.pattern),
        weights + sum(causal[index] for index in model.pattern),
        head,
    )
