"""Attention: query tiles against KV tiles for many queries, split-KV work items for one query per sequence."""

import numpy as np
from numpy.typing import NDArray

from rapid_llm.operators.families import Column, Prices
from rapid_llm.operators.kernels import AttentionKernel, ContextConstants, DecodeConstants, DecodeKernel
from rapid_llm.operators.rates import Rates
from rapid_llm.operators.summary import join, summarise
from rapid_llm.operators.work import attention_work


def _visited(tiles: Column, step: Column, columns: tuple[Column, ...]) -> Column:
    """KV tokens that the query tiles of one sequence visit in total: tile j ends at past + j step, windows cap it."""
    _, new, past, *_, window, causal = columns[:9]
    end = np.minimum(step, new)
    cap = np.where(window > 0, np.minimum(window + end, past + new), past + new)
    ramp = np.clip(np.floor((cap - past) / step), 0.0, tiles)
    seen = ramp * past + step * ramp * (ramp + 1.0) / 2.0 + (tiles - ramp) * cap
    return np.where(causal > 0, np.minimum(seen, tiles * cap), tiles * cap)


def price_context(columns: tuple[Column, ...], kernel: AttentionKernel, c: ContextConstants, r: Rates) -> Prices:
    """Time of the tiled kernel (FlashAttention), columns as ``COLUMNS['attention']``.

    With tiles of Tq queries, CTA = b H ceil(new/Tq) (or per KV head with its group packed), l the mean KV length of a
    tile: one = 2 Tq (d + dv + softmax) l S / (rate P) + item; Tc = max(one CTA/S + longest/2, longest),
    all units busy and then on average half a tile of tail; the backward pass has 2.5 times the FLOPs at
    ``backward_rate``.
    """
    batch, new, past, heads, kv_heads, dim, v_dim, window, _, backward = columns[:10]
    group = heads / kv_heads if kernel.packed else np.ones_like(heads)
    tile = np.minimum(kernel.query_tile, np.ceil(new * group / kernel.query_pad) * kernel.query_pad)
    per_head = np.ceil(new * group / tile)
    ctas = batch * heads / group * per_head
    mean = _visited(per_head, tile / group, columns) / per_head
    longest = np.where(window > 0, np.minimum(past + new, window + tile / group), past + new)
    is_backward = backward > 0
    rate = np.where(is_backward, c.backward_rate / 2.5, c.rate)
    column_time = 2.0 * tile * (dim + v_dim + c.softmax) * r.units / (rate * r.peak)  # of one KV position of one tile
    kv_tile = float(kernel.kv_tile)
    one = column_time * np.ceil(mean / kv_tile) * kv_tile + c.item
    last = column_time * np.ceil(longest / kv_tile) * kv_tile + c.item
    compute = np.maximum(one * ctas / r.units + 0.5 * last, last)
    flops, moved = attention_work(columns)
    memory = r.stream(moved, c.bandwidth)
    return summarise(r.launch + c.setup, join(compute, memory, c.overlap), work=(flops, moved), sides=(compute, memory))


def price_decode(columns: tuple[Column, ...], kernel: DecodeKernel, c: DecodeConstants, r: Rates) -> Prices:
    """Time of split-KV attention with one query per sequence (FlashDecoding), columns as ``COLUMNS['attention']``.

    Lengths are rounded up to the KV tile, the query heads of a KV head up to the rows of a matrix instruction. A work
    item is (sequence, KV head, at most ``query_tile`` query heads); with s splits u = min(1, items s / S) of the
    units run: t = launch + setup + ||B/(bandwidth HBM u^occupancy), F/(rate P u)||_p + item items/S + [s > 1] combine.
    """
    batch, _, past, heads, kv_heads, dim, v_dim, window, _, _, kv_bytes, shared = columns
    length = np.where(window > 0, np.minimum(past + 1.0, window), past + 1.0)
    length = np.ceil(length / kernel.kv_tile) * kernel.kv_tile
    group = heads / kv_heads
    padded = np.ceil(group / kernel.query_pad) * kernel.query_pad
    items = batch * kv_heads * np.ceil(group / kernel.query_tile)
    splits = np.clip(np.floor(r.units / items), 1.0, np.ceil(length / kernel.split_tokens))
    used = np.minimum(items * splits / r.units, 1.0)
    flops = attention_work(columns)[0]
    cache = batch * length * kv_heads * (dim + np.where(shared > 0, 0.0, v_dim)) * kv_bytes
    partial = np.where(splits > 1.0, 8.0 * splits * batch * heads * v_dim, 0.0)
    moved = cache + 2.0 * batch * heads * (dim + v_dim) + partial
    memory = r.stream(moved, c.bandwidth) * used**-c.occupancy
    compute = 2.0 * batch * kv_heads * padded * (dim + v_dim) * length / (c.rate * r.peak * used)
    extra = c.item * items / r.units + np.where(splits > 1.0, c.combine, 0.0)
    return summarise(
        r.launch + c.setup, join(compute, memory, c.overlap) + extra, work=(flops, moved), sides=(compute, memory)
    )


def is_decode(columns: tuple[Column, ...]) -> NDArray[np.bool_]:
    """Rows that a split-KV kernel serves: one new token, forward."""
    one: NDArray[np.bool_] = (columns[1] == 1.0) & (columns[9] == 0.0)
    return one
