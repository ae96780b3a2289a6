"""Attention: query tiles against KV tiles for many queries, split-KV work items for one query per sequence."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from rapid_llm.operators.families import Column, Prices
from rapid_llm.operators.kernels import AttentionKernel, ContextConstants, DecodeConstants, DecodeKernel
from rapid_llm.operators.rates import Rates
from rapid_llm.operators.summary import join, summarise
from rapid_llm.operators.work import attention_work

_SPLIT_KEYS: Final = 512.0  # keys of the shortest part, where a kernel splits them over idle units


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
    all units busy and then on average half a tile of tail. A kernel that splits the keys gives idle units a part each.
    The backward pass has 2.5 times the FLOPs at ``backward_rate``.
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
    parts = np.clip(np.floor(r.units / ctas), 1.0, np.ceil(mean / _SPLIT_KEYS)) if kernel.split_kv else 1.0
    one = column_time * np.ceil(mean / parts / kv_tile) * kv_tile + c.item
    last = column_time * np.ceil(longest / parts / kv_tile) * kv_tile + c.item
    compute = np.maximum(one * ctas * parts / r.units + 0.5 * last, last)
    flops, moved = attention_work(columns)
    memory = r.stream(moved, c.bandwidth)
    return summarise(r.launch + c.setup, join(compute, memory, c.overlap), work=(flops, moved), sides=(compute, memory))


def price_decode(columns: tuple[Column, ...], kernel: DecodeKernel, c: DecodeConstants, r: Rates) -> Prices:
    """Time of split-KV attention with one query per sequence (FlashDecoding), columns as ``COLUMNS['attention']``.

    Lengths are rounded up to the KV tile, the query heads of a KV head up to the rows of a matrix instruction. A work
    item is (sequence, KV head, at most ``query_tile`` query heads); with s splits u = min(1, items s / S) of the
    units run: t = launch + setup + ||B/(bandwidth HBM u^occupancy), F/(rate P u)||_p + item items/S + [s > 1] combine.
    Query heads whose number per KV head is outside ``groups`` run alone: an item each, without padding, and every
    head after the first of a KV head finds the cache in L2.
    """
    batch, _, past, heads, kv_heads, dim, v_dim, window, _, _, kv_bytes, shared = columns
    length = np.where(window > 0, np.minimum(past + 1.0, window), past + 1.0)
    length = np.ceil(length / kernel.kv_tile) * kernel.kv_tile
    group = heads / kv_heads
    least, most = kernel.groups
    together = (group >= least) & (group <= most)
    if kernel.powers:
        together &= np.log2(group) % 1.0 == 0.0
    inside = np.where(together, group, 1.0)
    sharers = heads / inside
    padded = np.where(together, np.ceil(group / kernel.query_pad) * kernel.query_pad, 1.0)
    items = batch * sharers * np.ceil(inside / kernel.query_tile)
    splits = np.clip(np.floor(r.units / items), 1.0, np.ceil(length / kernel.split_tokens))
    used = np.minimum(items * splits / r.units, 1.0)
    flops = attention_work(columns)[0]
    cache = batch * length * kv_heads * (dim + np.where(shared > 0, 0.0, v_dim)) * kv_bytes
    partial = np.where(splits > 1.0, 8.0 * splits * batch * heads * v_dim, 0.0)
    moved = cache + 2.0 * batch * heads * (dim + v_dim) + partial
    again = cache * (sharers / kv_heads - 1.0) / r.l2 if (~together).any() else 0.0
    memory = r.stream(moved, c.bandwidth) * used**-c.occupancy + again
    compute = 2.0 * batch * sharers * padded * (dim + v_dim) * length / (c.rate * r.peak * used)
    item = np.where(together, c.item, c.lone_item or c.item)
    extra = item * items / r.units + np.where(splits > 1.0, c.combine, 0.0)
    return summarise(
        r.launch + c.setup, join(compute, memory, c.overlap) + extra, work=(flops, moved), sides=(compute, memory)
    )


def is_decode(columns: tuple[Column, ...]) -> NDArray[np.bool_]:
    """Rows that a split-KV kernel serves: one new token, forward."""
    one: NDArray[np.bool_] = (columns[1] == 1.0) & (columns[9] == 0.0)
    return one
