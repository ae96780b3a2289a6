"""Arithmetic and compulsory traffic of each family: what the shape needs, whatever kernel runs it."""

from functools import lru_cache
from statistics import NormalDist

import numpy as np
from numpy.typing import ArrayLike

from rapid_llm.operators.elementwise import larger, smaller, some, where
from rapid_llm.operators.families import Column


def query_key_pairs(new: Column, past: Column, window: Column, causal: Column) -> Column:
    """Query-key pairs of one sequence: each of ``new`` queries sees what is before it, at most ``window`` keys.

    Causal: sum over i = 1..new of min(past + i, window); else every query sees min(past + new, window). window 0 is
    unlimited.
    """
    if not some(window):
        return where(causal > 0, new * (past + (new + 1.0) / 2.0), new * (past + new))
    span = where(window > 0, window, np.inf)
    most = smaller(past + new, span)
    ramp = smaller(larger(span - past, 0.0), new)  # queries that still see everything before them
    seen = ramp * past + ramp * (ramp + 1.0) / 2.0 + (new - ramp) * most
    return where(causal > 0, seen, new * most)


def gemm_work(columns: tuple[Column, ...]) -> tuple[Column, Column]:
    """FLOPs 2mnk and bytes of X, W and Y once each."""
    m, n, k, groups, x_bytes, w_bytes, y_bytes = columns
    return 2.0 * m * n * k * groups, groups * (m * k * x_bytes + k * n * w_bytes + m * n * y_bytes)


def attention_flops(columns: tuple[Column, ...]) -> Column:
    """FLOPs of both products over the pairs that are seen; of five in the backward pass (FlashAttention-2)."""
    batch, new, past, heads, _, head_dim, v_head_dim, window, causal, backward = columns[:10]
    flops = 2.0 * batch * heads * (head_dim + v_head_dim) * query_key_pairs(new, past, window, causal)
    return (1.0 + 1.5 * (backward > 0)) * flops


def attention_work(columns: tuple[Column, ...]) -> tuple[Column, Column]:
    """FLOPs, and bytes of Q, K, V, O once each.

    The backward pass moves Q, K, V, O, dO, dQ, dK, dV (FlashAttention-2).
    """
    batch, new, past, heads, kv_heads, head_dim, v_head_dim, window, _, backward, kv_bytes, shared_kv = columns
    span = past + new
    if some(window):
        span = where(window > 0, smaller(span, window + new - 1.0), span)
    cache = batch * span * kv_heads * (head_dim + v_head_dim * (shared_kv <= 0)) * kv_bytes
    moved = 2.0 * batch * new * heads * (head_dim + v_head_dim) + cache
    return attention_flops(columns), (1.0 + (backward > 0)) * moved


def moe_work(columns: tuple[Column, ...]) -> tuple[Column, Column]:
    """FLOPs of the expert matrices over ``rows``, bytes of the weights of hit experts and of rows in and out."""
    rows, hit, _, _, _, _, hidden, inter, matrices, x_bytes, w_bytes = columns
    flops = 2.0 * rows * matrices * hidden * inter
    return flops, hit * matrices * hidden * inter * w_bytes + rows * hidden * (x_bytes + 2.0)


def most_loaded(rows: ArrayLike, hit: ArrayLike) -> Column:
    """Rows of the most loaded of ``hit`` experts that share ``rows`` by chance: the largest of as many Poisson loads,
    m + sqrt(2 m ln hit)."""
    experts = larger(np.asarray(hit, dtype=np.float64), 1.0)
    mean = np.asarray(rows, dtype=np.float64) / experts
    return np.asarray(np.minimum(rows, mean + np.sqrt(2.0 * mean * np.log(experts))))


def scan_work(columns: tuple[Column, ...]) -> tuple[Column, Column]:
    """FLOPs of update and read-out, bytes of q, k, v, o in 16 bit and of the state in and out."""
    batch, new, heads, key_dim, value_dim, state_bytes, backward = columns
    size = batch * heads * key_dim * value_dim
    flops = 4.0 * size * new
    moved = 2.0 * batch * new * heads * 2.0 * (key_dim + value_dim) + 2.0 * size * state_bytes
    return (1.0 + 1.5 * (backward > 0)) * flops, (1.0 + (backward > 0)) * moved


def convolution_work(columns: tuple[Column, ...]) -> tuple[Column, Column]:
    """FLOPs of the taps, bytes of inputs and outputs once each and of the ``width`` - 1 inputs that are the state, in
    and out; the backward pass also reads what came in."""
    batch, new, channels, width, x_bytes, backward = columns
    size = batch * new * channels
    state = 2.0 * batch * (width - 1.0) * channels * x_bytes
    return (1.0 + (backward > 0)) * 2.0 * width * size, (2.0 + (backward > 0)) * size * x_bytes + state


def pointwise_work(columns: tuple[Column, ...]) -> tuple[Column, Column]:
    """Vector FLOPs and bytes, as the columns say."""
    read_bytes, write_bytes, flops = columns
    return flops, read_bytes + write_bytes


WORK = {
    "gemm": gemm_work,
    "attention": attention_work,
    "moe": moe_work,
    "scan": scan_work,
    "convolution": convolution_work,
    "pointwise": pointwise_work,
}
"""family -> function of its columns, in the order of ``COLUMNS``, to (FLOPs, bytes)."""


@lru_cache(maxsize=256)
def lateness(ranks: float) -> float:
    """How far the last of several ranks is expected behind their mean, in standard deviations of one.

    The expected maximum of normal variates (Blom, Statistical Estimates and Transformed Beta-Variables, 1958).
    """
    return NormalDist().inv_cdf((ranks - 0.375) / (ranks + 0.25)) if ranks > 1 else 0.0
