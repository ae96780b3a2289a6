"""Recurrent scans and memory-bound kernels."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from rapid_llm.operators.constants import PointwiseConstants, ScanConstants
from rapid_llm.operators.elementwise import larger, smaller, where
from rapid_llm.operators.families import POINTWISE_KINDS, Column, Prices
from rapid_llm.operators.kernels import ScanKernel
from rapid_llm.operators.rates import Rates
from rapid_llm.operators.summary import summarise
from rapid_llm.operators.work import pointwise_work, scan_work

_BETWEEN_BYTES: Final = 2.0  # states between chunks are 16 bit
_LIVE: Final = 0.7  # of what a chain of kernels moves is alive at a time (L40S tables: where time leaves L2)


def _shares(c: PointwiseConstants) -> Column:
    return np.array([getattr(c, kind) for kind in POINTWISE_KINDS])


def price_scan(columns: tuple[Column, ...], kernel: ScanKernel, c: ScanConstants, r: Rates) -> Prices:
    """Time of a recurrent mixer, columns as ``COLUMNS['scan']``; an item is a head of a sequence.

    One token: the state is read and written once. Many: the chunks of an item follow one another. One fused kernel
    gives each unit an item at a time, and takes the longer of that and of its traffic. A chain of kernels takes the sum
    of four: its first chunk grows with the tokens in it; one kernel walks the states; the others run all chunks of all
    items, and stream tokens and the 16-bit states between chunks, which stay in L2 where they fit.
    """
    batch, new, heads, key_dim, value_dim, state_bytes, backward = columns
    flops, moved = scan_work(columns)
    decode = (new == 1.0) & (backward == 0.0)
    passes = where(backward > 0, 2.5, 1.0)
    chunks, items = np.ceil(new / kernel.chunk_tokens), batch * heads
    held = batch * heads * key_dim * value_dim
    state = where(backward > 0, 2.0, 1.0) * 2.0 * held * state_bytes
    tokens = moved - state
    share = where(decode, c.decode_bandwidth, c.bandwidth)
    if kernel.fused:
        waves, between = np.ceil(items / r.units), 0.0 * held
        serial = waves * c.chunk * chunks + (waves - 1.0) * c.turn
        resident = tokens + state / 2.0
    else:
        between = where(decode, 0.0, passes * 2.0 * held * chunks * _BETWEEN_BYTES)
        serial = c.chunk * (chunks - 1.0) * larger(items / r.units, 1.0) + c.turn * items * chunks / r.units
        serial = serial + c.ramp * smaller(new / kernel.chunk_tokens, 1.0)
        resident = where(decode, tokens, _LIVE * (tokens + between / 2.0)) + state / 2.0
    compute = larger(flops / r.peak, where(decode, 0.0, passes * serial))
    memory = r.stream(state + between, c.decode_bandwidth, resident) + r.stream(tokens, share, resident, share)
    fixed = r.launch + where(decode, c.decode_setup, c.setup)
    variable = larger(compute, memory) if kernel.fused else compute + memory
    return summarise(fixed, variable, work=(flops, moved + between), sides=(compute, memory))


def price_pointwise(
    columns: tuple[Column, ...], kind: str | NDArray[np.int64], c: PointwiseConstants, r: Rates
) -> Prices:
    """Time of a memory-bound kernel of access pattern ``kind`` (or one of POINTWISE_KINDS a row), columns as
    ``COLUMNS['pointwise']``."""
    flops, moved = pointwise_work(columns)
    share: float | Column = getattr(c, kind) if isinstance(kind, str) else _shares(c)[kind]
    compute, memory = flops / r.vector, r.stream(moved, share)
    return summarise(r.launch + c.setup, larger(compute, memory), work=(flops, moved), sides=(compute, memory))
