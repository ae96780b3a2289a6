"""Recurrent scans and memory-bound kernels."""

import numpy as np
from numpy.typing import NDArray

from rapid_llm.operators.families import POINTWISE_KINDS, Column, Prices
from rapid_llm.operators.kernels import PointwiseConstants, ScanConstants, ScanKernel
from rapid_llm.operators.rates import Rates
from rapid_llm.operators.summary import summarise
from rapid_llm.operators.work import pointwise_work, scan_work


def _shares(c: PointwiseConstants) -> Column:
    return np.array([getattr(c, kind) for kind in POINTWISE_KINDS])


def price_scan(columns: tuple[Column, ...], kernel: ScanKernel, c: ScanConstants, r: Rates) -> Prices:
    """Time of a recurrent mixer, columns as ``COLUMNS['scan']``.

    One token: the state is read and written once. Many: the tokens' bytes at the scan's bandwidth besides, and the
    chunks of a head one after another, ``chunk`` seconds each. One fused kernel takes the longer of both; a chain of
    kernels (one walks the states, heads over all units, the others stream) takes their sum.
    """
    batch, new, heads, key_dim, value_dim, state_bytes, backward = columns
    flops, moved = scan_work(columns)
    decode = (new == 1.0) & (backward == 0.0)
    passes = np.where(backward > 0, 2.5, 1.0)
    waves = 1.0 if kernel.fused else np.maximum(batch * heads / r.units, 1.0)
    serial = np.where(decode, 0.0, passes * c.chunk * np.ceil(new / kernel.chunk_tokens) * waves)
    compute = np.maximum(flops / r.peak, serial)
    state = np.where(backward > 0, 2.0, 1.0) * 2.0 * batch * heads * key_dim * value_dim * state_bytes
    tokens = moved - state
    share = np.where(decode, c.decode_bandwidth, c.bandwidth)
    memory = r.stream(state, c.decode_bandwidth, moved) + r.stream(tokens, share, moved, share)
    fixed = r.launch + np.where(decode, c.decode_setup, c.setup)
    variable = np.maximum(compute, memory) if kernel.fused else compute + memory
    return summarise(fixed, variable, work=(flops, moved), sides=(compute, memory))


def price_pointwise(
    columns: tuple[Column, ...], kind: str | NDArray[np.int64], c: PointwiseConstants, r: Rates
) -> Prices:
    """Time of a memory-bound kernel of access pattern ``kind`` (or one of POINTWISE_KINDS a row), columns as
    ``COLUMNS['pointwise']``."""
    flops, moved = pointwise_work(columns)
    share: float | Column = getattr(c, kind) if isinstance(kind, str) else _shares(c)[kind]
    compute, memory = flops / r.vector, r.stream(moved, share)
    return summarise(r.launch + c.setup, np.maximum(compute, memory), work=(flops, moved), sides=(compute, memory))
