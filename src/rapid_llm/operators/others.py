"""Grouped expert GEMMs, recurrent scans and memory-bound kernels."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from rapid_llm.operators.families import POINTWISE_KINDS, Column, Prices
from rapid_llm.operators.kernels import (
    MoeConstants,
    MoeKernel,
    PointwiseConstants,
    ScanConstants,
    ScanKernel,
)
from rapid_llm.operators.rates import Rates
from rapid_llm.operators.summary import join, summarise
from rapid_llm.operators.work import moe_work, pointwise_work, scan_work

_LEAST_TILE: Final = 16.0  # rows of the smallest matrix instruction
_ROW_BYTES: Final = 2.0  # rows are permuted and combined in 16 bit


def _shares(c: PointwiseConstants) -> Column:
    return np.array([getattr(c, kind) for kind in POINTWISE_KINDS])


def price_moe(columns: tuple[Column, ...], kernel: MoeKernel, c: MoeConstants, r: Rates) -> Prices:
    """Time of the fused expert MLP, columns as ``COLUMNS['moe']``.

    The tile bm is the power of two above the mean load, up to ``row_tile``. Rows are padded to it: R' = hit bm below
    one tile an expert, else R + hit bm/2 (loads end anywhere in their last tile);
    t = launch + setup + ||2 M R' h I/(rate P), hit M h I w/(bandwidth HBM) + expert hit||_p
    + (row_passes R + token_passes T) 2 h / HBM.
    """
    rows, hit, tokens, hidden, inter, matrices, _, w_bytes = columns
    load = rows / np.maximum(hit, 1.0)
    tile = np.clip(2.0 ** np.ceil(np.log2(np.maximum(load, 1.0))), _LEAST_TILE, kernel.row_tile)
    padded = np.where(load < tile, hit * tile, rows + hit * tile / 2.0)
    weights = matrices * hidden * inter
    compute = 2.0 * padded * weights / (c.rate * r.peak)
    memory = r.stream(hit * weights * w_bytes, c.bandwidth) + hit * c.expert
    passes = (c.row_passes * rows + c.token_passes * tokens) * _ROW_BYTES * hidden
    flops, moved = moe_work(columns)
    variable = join(compute, memory, c.overlap) + passes / r.hbm
    return summarise(r.launch + c.setup, variable, work=(flops, moved + passes), sides=(compute, memory))


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
