"""Attention: query tiles against KV tiles for many queries, split-KV work items for one query per sequence."""

from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from rapid_llm.operators.constants import ContextConstants, DecodeConstants
from rapid_llm.operators.elementwise import (
    Mask,
    common_divisor,
    every,
    filled,
    isin,
    larger,
    power,
    smaller,
    some,
    where,
)
from rapid_llm.operators.families import Column, Prices
from rapid_llm.operators.kernels import AttentionKernel, DecodeKernel
from rapid_llm.operators.rates import Rates
from rapid_llm.operators.summary import join, summarise
from rapid_llm.operators.work import attention_flops, attention_work

Whole = NDArray[np.int64] | int

_SPLIT_KEYS: Final = 512.0  # keys of the shortest part, where a kernel splits them over idle units
_HALF: Final = 0.5  # a part more than whole ones, on average over lengths; counted in steps, more keys would take less
_PARTIAL_BYTES: Final = 8.0  # an fp32 partial sum, written and read
_FEW_PARTS: Final = 8.0  # more parts of an item than the root of so many times their number take longer to join
_AMONG: Final = 1.5  # p of the norm in which blocks of one round wait while those of other units read
_HEAVY: Final = 16.0 * 128.0  # query rows times head size whose accumulators still leave room for further blocks
_CAST_BYTES: Final = 3.0  # of an element that is read in 16 bits and written in 8, or the other way round
_LIGHT: Final = 0.5  # of the launch floor of products, for a few bytes to be cast: 1.1 us in a graph (H100, L40S)
_WRITTEN: Final = 64.0  # bytes of its output that a unit writes in a cycle
_BLOCK: Final = 512.0  # threads at most in a block that writes a token's K and V (vLLM, reshape_and_cache_flash)
_BACKWARD: Final = 0.8  # of the forward rate: FlashAttention-2 and -3 papers, 0.75 to 0.85


def _tiles(kernel: AttentionKernel, dim: Column | float) -> tuple[Whole, Whole]:
    """Query rows and KV columns of the tile that each head size takes."""
    if len(kernel.tiles) == 1:
        return kernel.tiles[0][1:]
    if isinstance(dim, float):
        return next((tile for tile in kernel.tiles if dim <= tile[0]), kernel.tiles[-1])[1:]
    heads, rows, keys = _table(kernel.tiles)
    index = heads[:-1].searchsorted(dim)
    return rows[index], keys[index]


@lru_cache(maxsize=64)
def _table(tiles: tuple[tuple[int, int, int], ...]) -> NDArray[np.int64]:
    return np.array(tiles).T


def _visited(tiles: Column, step: Column, kv_tile: Whole, columns: tuple[Column, ...]) -> tuple[Column, Column]:
    """KV columns that a query tile visits in whole KV tiles: the mean over the tiles of a sequence, and the longest.

    Tile j ends at key past + j step. Rounding up costs (kv - g)/2 columns on average, g = gcd(step, kv) being the grid
    on which tiles end; a window has two ends and pays twice that.
    """
    _, new, past, *_, window, causal = columns[:9]
    grid = common_divisor(larger(step, 1.0), kv_tile)
    total = past + new
    longest = np.ceil(total / kv_tile) * kv_tile
    unlimited = new
    if some(window):
        reach = window + smaller(step, new)
        sliding = (window > 0) & (reach < total)
        longest = where(sliding, smaller(reach + kv_tile - grid, longest), longest)
        unlimited = where(sliding, larger(reach - past, 0.0), new)
    ramp = smaller(np.floor(unlimited / step), tiles - 1.0)
    rising = ramp * (past + step * (ramp + 1.0) / 2.0 + (kv_tile - grid) / 2.0)
    mean = (smaller(rising, ramp * longest) + (tiles - ramp) * longest) / tiles
    return (mean if every(causal > 0) else where(causal > 0, mean, longest)), longest


def _append(columns: tuple[Column, ...], kernel: AttentionKernel, c: ContextConstants, r: Rates) -> float | Column:
    """Seconds of the pass that writes the K and V of new tokens into the cache, 16 bits in and the cache's out.

    A token takes a unit for ``token``, less where a block of its own has a thread a column of K (vLLM): a unit runs as
    many more of smaller ones. TensorRT-LLM's pass rotates as it goes, and so reads and writes Q too. Of latent
    attention it rotates the d - dv columns of Q in place and spreads those of K over the heads; 8-bit products need Q,
    K and V quantised in a further pass.
    """
    if kernel.append == "none":
        return 0.0
    batch, new, _, heads, kv_heads, dim, v_dim, *_, kv_bytes, _ = columns
    tokens = batch * new
    moved = tokens * kv_heads * (dim + v_dim) * (2.0 + kv_bytes)
    if kernel.append == "qkv":
        moved = moved + tokens * heads * dim * 4.0
    if kernel.append == "latent":
        moved = tokens * heads * (dim - v_dim) * 6.0
        if kernel.product_bits == 8:
            moved = moved + tokens * heads * (2.0 * dim + v_dim) * 3.0
    filled = smaller(kv_heads * dim / _BLOCK, 1.0) if kernel.append == "block" else 1.0
    return r.stream(moved, c.bandwidth) + c.token * tokens * filled / r.units


def _width(columns: tuple[Column, ...], kernel: AttentionKernel, c: ContextConstants, r: Rates) -> Column:
    """What one score costs, in columns of head width at the matrix rate: both products and the exponential beside them.

    They neither follow each other nor hide wholly behind each other: the norm with p = 2 of d + dv and of ``softmax``
    exponentials, a column being two FLOPs at the matrix rate; a faster pipe leaves exponentials as they are. Where
    accumulators exceed the registers, what is spilled of them comes on top: of outputs once a KV tile, of scores once
    each; ``spill`` tells it of the largest such head.
    """
    dim, v_dim = columns[5:7]
    if kernel.padded_head:
        dim, v_dim = np.exp2(np.ceil(np.log2(dim))), np.exp2(np.ceil(np.log2(v_dim)))
    softmax: float | Column = c.softmax / 2.0 * r.in_attention(kernel.product_bits, warps=kernel.warps) / r.exponentials
    pipe = r.pipe(kernel.product_bits)
    if pipe != 1.0:
        softmax = softmax * r.reached(c.rate, warps=kernel.warps, pipe=pipe) / r.reached(c.rate, warps=kernel.warps)
    width: Column = np.sqrt((dim + v_dim) * (dim + v_dim) + softmax * softmax)
    if not kernel.spilling:
        return width
    largest = 0.0 * columns[5] + kernel.spilling[-1]
    of_largest = (1.0 / c.spill - 1.0) * np.sqrt(4.0 * largest * largest + softmax * softmax)
    spilled, most = _spilled(kernel, columns[5]), _spilled(kernel, largest)
    return width + where(isin(columns[5], kernel.spilling), of_largest * spilled / most, 0.0)


def _spilled(kernel: AttentionKernel, dim: Column) -> Column:
    """Accumulators that a score spills: its share of the outputs, or itself."""
    return larger(dim / _tiles(kernel, dim)[1], 1.0)


def price_context(columns: tuple[Column, ...], kernel: AttentionKernel, c: ContextConstants, r: Rates) -> Prices:
    """Time of the tiled kernel (FlashAttention), columns as ``COLUMNS['attention']``.

    With tiles of Tq queries, CTA = b H ceil(new/Tq) (or per KV head with its group packed), l the mean KV length of a
    tile: one = 2 Tq width l S / (rate P) + item; Tc = max(one CTA/S + longest/2, longest), all units busy and then on
    average half a tile of tail, or the longest alone where every unit has at most one. Blocks that share a unit
    (``shared``) wait beside each other. A kernel that splits the keys gives idle units a part each. The backward pass
    has 2.5 times the FLOPs at ``backward_rate``. What writes the cache runs before (``append``).
    """
    if not kernel.windowed:
        columns = (*columns[:7], 0.0 * columns[7], *columns[8:])
    if kernel.fresh:
        columns = (*columns[:10], 0.0 * columns[10] + 2.0, columns[11])
    batch, new, _, heads, kv_heads, dim, *_, backward = columns[:10]
    group = heads / kv_heads if kernel.packed else filled(heads, 1.0)
    rows, kv_tile = _tiles(kernel, dim)
    if kernel.window_rows:
        slides = (columns[7] > 0) & (columns[7] < new + columns[2])  # else the engine launches the causal kernel
        rows = where(slides, smaller(rows, kernel.window_rows), rows)  # type: ignore[assignment]
    tile = smaller(rows, np.ceil(new * group / kernel.query_pad) * kernel.query_pad)
    per_head = np.ceil(new * group / tile)
    ctas = batch * heads / group * per_head
    mean, longest = _visited(per_head, tile / group, kv_tile, columns)
    rate = r.reached(c.rate, warps=kernel.warps, pipe=r.pipe(kernel.product_bits))
    if some(backward):
        slower = r.reached(c.backward_rate or _BACKWARD * c.rate, warps=kernel.warps, pipe=r.pipe(kernel.product_bits))
        rate = where(backward > 0, slower / 2.5, rate)
    peak = r.in_attention(kernel.product_bits, warps=kernel.warps) * rate
    column_time = 2.0 * tile * _width(columns, kernel, c, r) * r.units / peak  # of one KV position of one tile
    one, last = column_time * mean + c.item / r.beside(kernel.shared), column_time * longest + c.item
    if kernel.split_kv:
        parts = smaller(larger(longest / _SPLIT_KEYS + _HALF, 1.0), larger(r.units // ctas, 1.0))
        last = column_time * longest / parts + c.item
    waves = ctas / r.units
    compute = where(waves > 1.0, larger(one * waves + 0.5 * last, last), last)
    flops, moved = attention_work(columns)
    memory = r.stream(moved, c.bandwidth)
    variable = join(compute, memory, c.overlap) + _append(columns, kernel, c, r)
    if kernel.casts:
        variable = variable + r.launch + r.stream(_CAST_BYTES * batch * new * heads * dim, kernel.casts)
    return summarise(r.launch + c.setup, variable, work=(flops, moved), sides=(compute, memory))


def price_decode(columns: tuple[Column, ...], kernel: DecodeKernel, c: DecodeConstants, r: Rates) -> Prices:
    """Time of split-KV attention with one query per sequence (FlashDecoding), columns as ``COLUMNS['attention']``.

    Lengths are rounded up to the KV tile, the query heads of a KV head up to the rows of a matrix instruction. A work
    item is (sequence, KV head, at most ``query_tile`` query heads, of few ``query_pad``); s splits of it make
    w = items s / S waves. Items of one KV head read its cache each, the further ones from L2: units draw it as often.
    Units in use draw a byte for 8 vector FLOPs each (``Rates.draw``), together a share u of HBM:
    t = launch + setup + ||B/(bandwidth HBM min(1, u)^occupancy), F ceil(w)/(rate P w)||_p + item items/S, and where
    s > 1 + combine and the partial sums of a unit at what it can draw. Items whose blocks share a unit (``shared``)
    wait beside each other; in whole ``rounds`` the latency of the first has nothing
    to hide behind, those of later ones fall among what other units read. An item stays whole where that is faster than
    as many splits as fill the units; a kernel that splits by rule (``waves``) or always (``parts``) does not ask, and
    each of its parts costs as an item does.
    Query heads whose number per KV head is outside ``groups`` run alone: an item each, without padding, as dot products
    by vector instructions; the further heads of a KV head find its cache in L2.
    """
    batch, _, past, heads, kv_heads, dim, v_dim, window, _, _, kv_bytes, shared = columns
    group = heads / kv_heads
    together = _shares_item(group, batch * kv_heads, past, kernel, r.units)
    inside = where(together, group, 1.0)
    length = _tiled(past, window, where(together, float(kernel.kv_tile), float(kernel.lone_tile)))
    sharers = heads / inside
    few = inside <= kernel.narrow
    tiles = np.ceil(inside / where(few, float(kernel.query_pad), float(kernel.query_tile)))
    items = batch * sharers * tiles
    held = batch * kv_heads * (dim + v_dim * (shared <= 0))
    cache = held * length * (2.0 if kernel.widens else kv_bytes)
    ends = 2.0 * batch * heads * (dim + v_dim)
    moved = cache + ends
    reads = where(few, tiles, np.ceil(tiles / kernel.cluster))
    stream = larger(r.stream(moved, c.bandwidth), where(reads > 1.0, cache * reads / (r.units * r.draw), 0.0))
    padded = np.ceil(group / kernel.query_pad) * kernel.query_pad
    rows = where(together, where(group > kernel.query_few, padded, float(kernel.query_few)), 1.0)
    peak = r.multiplies(kernel.product_bits, warps=kernel.warps)
    rate = where(together, r.reached(c.rate, warps=kernel.warps) * peak, c.lone_rate * r.issued)
    busy = 2.0 * batch * sharers * rows * (dim + v_dim) * length / rate
    room = where(together, r.units // items, np.ceil(r.units / items)) if kernel.rounds else r.units // items
    splits = smaller(length / kernel.split_tokens + _HALF, smaller(room, float(kernel.most_splits)))
    splits = where((group > 1.0) | kernel.splits_alone, larger(splits, 1.0), 1.0)
    ruled = together & (kernel.waves > 0 or kernel.parts > 0)
    if some(ruled):
        splits = where(ruled, kernel.parts or _parts(past, items, kernel, r), splits)
    partial = _PARTIAL_BYTES * batch * heads * v_dim / items  # that each unit writes for another to read
    carried = 2.0 * batch * heads / items * (dim / r.draw + v_dim / (_WRITTEN * r.clock))  # an item's queries, outputs
    latency = where(together, c.item, c.lone_item or c.item)
    beside = _beside(rows * dim, together, kernel, r)
    parts = splits, c.combine + partial / r.draw, ruled
    seconds, compute, memory = _split(items, parts, (busy, stream, latency, carried, beside), (kernel, c), r)
    if kernel.rotates:
        turned = 4.0 * batch * heads * dim
        seconds = seconds + where(together, r.stream(turned, 1.0, moved + turned), 0.0)
    if kernel.regroups:  # with one sequence or one KV head the order is already right
        copied = (group > 1.0) & (kv_heads > 1.0) & (batch > 1.0)
        seconds = seconds + where(copied, 2.0 * r.launch + r.stream(2.0 * ends, 1.0), 0.0)
    if kernel.widens:  # and one that rounds the new key
        seconds = seconds + 2.0 * r.launch + r.stream(_CAST_BYTES * held * (past + 1.0), kernel.widens)
    launches = r.launch * (1.0 + kernel.appends + _LIGHT * kernel.casts)
    work = attention_flops(columns), moved
    return summarise(launches + c.setup, seconds, work=work, sides=(compute, memory))


def _parts(past: Column, items: Column, kernel: DecodeKernel, r: Rates) -> Column:
    """Parts of an item by the rule of XQA (TensorRT-LLM, computeMultiBlockCount): n of ``split_tokens`` keys, at most
    sqrt(8 n), and at most so many as are ``waves`` on all units together."""
    blocks = larger(np.floor((past + 1.0) / kernel.split_tokens), 1.0)
    parts = smaller(blocks, np.rint(np.sqrt(_FEW_PARTS * blocks)))
    return larger(smaller(parts, np.floor(kernel.waves * r.units / items)), 1.0)


def _shares_item(group: Column, caches: Column, past: Column, kernel: DecodeKernel, units: float) -> Mask:
    """Rows whose ``group`` query heads of a KV head share a work item; ``caches``: sequences times KV heads."""
    together = (group >= kernel.groups[0]) & (group <= kernel.groups[1])
    if kernel.powers:
        together &= np.log2(group) % 1.0 == 0.0
    if kernel.fills:
        blocks = larger(np.floor((past + 1.0) / kernel.fills_by), 1.0) if kernel.fills_by else 1.0
        together &= caches * blocks >= kernel.fills * units
    return together


def _beside(work: Column, together: Mask, kernel: DecodeKernel, r: Rates) -> float | Column:
    """Blocks that a unit holds at once: as shared memory allows, or as many as the kernel was compiled for, of items
    of so many rows times head size (``work``) and of query heads alone."""
    if not kernel.blocks:
        return r.beside(kernel.shared)
    return where(together, where(work <= _HEAVY, float(kernel.blocks), 1.0), float(kernel.lone_blocks))


def _tiled(past: Column, window: Column, step: Column) -> Column:
    """Keys that an item reads, in whole tiles of ``step``: all, or those that touch a window."""
    whole = np.ceil((past + 1.0) / step) * step
    if not some(window):
        return whole
    return where(window > 0, smaller(np.ceil(window / step) * step + step, whole), whole)


def _split(
    items: Column,
    parts: tuple[Column, Column, Mask],
    alone: tuple[Column, Column, Column, Column, float | Column],
    by: tuple[DecodeKernel, DecodeConstants],
    r: Rates,
) -> tuple[Column, ...]:
    """Seconds of ``items`` whole, or in ``parts`` (how many, seconds to join them, whether by rule) where that is
    faster or the rule, and both sides; ``alone``: seconds of compute and memory on all units, those of an item's
    latency and of what it carries, and how many of them a unit holds.
    """
    (kernel, c), (splits, joined, ruled) = by, parts
    busy, stream, latency, carried, beside = alone
    draw = r.draw / r.hbm  # the share of the bandwidth that one unit can take

    def parted(parts: float | Column, joining: float | Column) -> tuple[Column, ...]:
        working = items * parts
        used = smaller(smaller(working, r.units) * draw, 1.0)
        memory = stream * power(used, -c.occupancy)
        waves = working / r.units
        compute = busy * np.ceil(waves) / waves
        both = join(compute, memory, c.overlap) + joining
        if not kernel.rounds:
            return both + (latency + carried) * where(ruled, waves, items / r.units) / beside, compute, memory
        item = latency + carried * beside
        later = np.ceil(waves / beside) - 1.0
        return join(both, item * later, _AMONG) + item, compute, memory

    whole = parted(1.0, 0.0)
    if not some(splits > 1.0):
        return whole
    apart = parted(splits, joined)
    better = (splits > 1.0) & (ruled | (apart[0] < whole[0]))
    return tuple(where(better, there, here) for there, here in zip(apart, whole, strict=True))


def is_decode(columns: tuple[Column, ...]) -> NDArray[np.bool_]:
    """Rows that a split-KV kernel serves: one new token, forward."""
    one: NDArray[np.bool_] = (columns[1] == 1.0) & (columns[9] == 0.0)
    return one
