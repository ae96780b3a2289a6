"""Recurrent scans and memory-bound kernels."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from rapid_llm.operators.constants import ConvolutionConstants, PointwiseConstants, ScanConstants
from rapid_llm.operators.elementwise import larger, smaller, where
from rapid_llm.operators.families import POINTWISE_KINDS, Column, Prices
from rapid_llm.operators.kernels import ConvolutionKernel, ScanKernel
from rapid_llm.operators.rates import Rates
from rapid_llm.operators.summary import summarise
from rapid_llm.operators.work import convolution_work, pointwise_work, scan_work

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


def price_convolution(
    columns: tuple[Column, ...], kernel: ConvolutionKernel, c: ConvolutionConstants, r: Rates
) -> Prices:
    """Time of a short causal convolution, columns as ``COLUMNS['convolution']``.

    A block loads its chunk of tokens and the ``width`` - 1 before it (the halo; of a first chunk the state, if any).
    Few blocks take as long as one of them waits (``ramp``, by the tokens in it), many as long as units take to run them
    all (``turn``); both happen at once and join as a norm. Blocks of one chunk have their loads in that time, so that
    memory is the other bound; those that walk a sequence fetch nothing ahead, and what memory takes joins the norm. The
    decode update writes its state where it read it.
    """
    batch, new, channels, width, x_bytes, backward = columns
    flops, moved = convolution_work(columns)
    decode = (new == 1.0) & (backward == 0.0)
    passes = where(backward > 0, 1.5, 1.0)
    halo, chunks = width - 1.0, np.ceil(new / kernel.chunk_tokens)
    wide = np.ceil(channels / where(decode, kernel.update_channels, kernel.channels))
    if kernel.walks:
        waits, blocks, full = c.ramp * chunks, batch * wide, 1.0 + 0.0 * new
    else:
        longest = smaller(new, float(kernel.chunk_tokens)) + where(chunks > 1.0, halo, 0.0)
        waits, blocks = c.ramp * longest / (kernel.chunk_tokens + halo), batch * wide * chunks
        full = (new / chunks + halo) / (kernel.chunk_tokens + halo)
    waits = where(decode & kernel.walks, 0.0, passes * waits)
    turns = where(decode, blocks * c.decode_turn, passes * blocks * c.turn * full) / r.units
    held = moved - where(decode, batch * halo * channels * x_bytes, 0.0)
    share = where(decode, c.decode_bandwidth, c.bandwidth)
    memory = r.stream(moved, share, held)
    compute = np.sqrt(waits * waits + turns * turns)
    variable = np.sqrt(compute * compute + memory * memory) if kernel.walks else larger(compute, memory)
    fixed = r.launch * where(decode, c.decode_launch, c.launch)
    return summarise(fixed, variable, work=(flops, moved), sides=(compute, memory))


def price_pointwise(
    columns: tuple[Column, ...], kind: str | NDArray[np.int64], c: PointwiseConstants, r: Rates
) -> Prices:
    """Time of a memory-bound kernel of access pattern ``kind`` (or one of POINTWISE_KINDS a row), columns as
    ``COLUMNS['pointwise']``."""
    flops, moved = pointwise_work(columns)
    share: float | Column = getattr(c, kind) if isinstance(kind, str) else _shares(c)[kind]
    compute, memory = flops / r.vector, r.stream(moved, share)
    return summarise(r.launch + c.setup, larger(compute, memory), work=(flops, moved), sides=(compute, memory))
