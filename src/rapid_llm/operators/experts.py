"""Grouped GEMMs over the experts of one rank: of libraries that pick the fastest tile, of kernels with a given one."""

from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from rapid_llm.operators.families import COLUMNS, Column, Prices
from rapid_llm.operators.kernels import MoeConstants, MoeKernel, TiledMoeConstants, TiledMoeKernel
from rapid_llm.operators.rates import Rates
from rapid_llm.operators.summary import join, summarise
from rapid_llm.operators.work import moe_work

_AT: Final = {name: i for i, name in enumerate(COLUMNS["moe"])}
_MEASURES: Final = {
    "tokens": (_AT["tokens"], None),
    "tokens_per_expert": (_AT["tokens"], _AT["experts"]),
    "pairs_per_expert": (_AT["pairs"], _AT["experts"]),
    "rows_per_expert": (_AT["rows"], _AT["hit"]),
}
"""What may choose a tile to the columns whose quotient it is."""
_ROW_BYTES: Final = 2.0  # rows between the kernels of an expert MLP are 16 bit
_TILES: Final = np.array([8.0, 16.0, 32.0, 64.0, 128.0, 256.0])  # rows of the tiles that libraries build
_REFILL: Final = 16.0  # rows' worth of time that a tile spends on its weights
_LINE: Final = 100.0  # bytes; a tile narrower in k than a DRAM line of 128 fetches it in two visits
_HALF_LINE: Final = 0.65  # of the bandwidth is left then (tiles of 32 against 64 16-bit columns, A100 and L40S tables)
_ALIGNED: Final = 16.0  # elements; Triton vectorises loads of rows that begin at multiples of it
_UNALIGNED: Final = 2.5  # times slower a projection is without (down from inter 58 to 168, A100 table)
_SEARCHED: Final = np.array([(16.0, 64.0, 128.0), (64.0, 64.0, 64.0), (64.0, 128.0, 64.0), (128.0, 256.0, 64.0)]).T
"""Tiles as searches find them (configurations that vLLM ships), the smallest first, array (3, tiles)."""
_WIDEST: Final = 1048576.0  # above every expert width: makes one number of experts and width
_IN_FLIGHT: Final = 4.0  # tiles that share a compute unit
_KIB: Final = 1024.0
_SOME: Final = 1e-3  # rows
_FMA_FLOPS: Final = 2.0  # that a lane's instruction counts in the vector rate
_SIDES: Final = 3.0  # p of the norm that joins compute and memory of a tiled kernel
_LIBRARY_SIDES: Final = 1.5  # the same over the many experts of a library's one launch, each bound by either


def row_tiles(rows: Column, hit: Column, largest: Column, tile: float | Column) -> Column:
    """Tiles of ``tile`` rows over ``hit`` experts with ``rows`` in all, ``largest`` on the most loaded one.

    The loads of the others spread evenly about their mean, at most to the largest: equal loads give hit ceil(load /
    tile), wide ones rows / tile and half a tile an expert. ``tile`` may add a leading axis.
    """
    others = np.maximum(hit - 1.0, 0.0)
    mean = np.maximum(rows - largest, 0.0) / np.maximum(others, _SOME)
    high = np.minimum(largest, 2.0 * mean)
    low = 2.0 * mean - high - _SOME  # a little below: the mean of ceil over an empty range is its value
    above, below = (_ceilings(bound / tile) for bound in (high, low))
    return np.asarray(others * tile * (above - below) / (high - low) + np.ceil(largest / tile))


def _ceilings(x: Column) -> Column:
    """The integral of ceil from 0 to x."""
    whole = np.floor(x)
    return np.asarray((whole + 1.0) * (x - 0.5 * whole))


def price_moe(columns: tuple[Column, ...], kernel: MoeKernel, c: MoeConstants, r: Rates) -> Prices:
    """Time of the fused expert MLP, columns as ``COLUMNS['moe']``, by a library that picks the fastest tile.

    R' is the least padded number of rows over tiles of up to ``row_tile`` rows, each with its share of weights to load;
    t = launch + setup + ||2 M R' h I/(rate P), hit M h I w/(bandwidth HBM) + expert hit||_1.5
    + (row_passes R + token_passes T) 2 h / HBM + pair times the pairs that are sorted.
    """
    rows, hit, largest, pairs, tokens, _, hidden, inter, matrices, _, w_bytes = columns
    tiles = _TILES[kernel.row_tile >= _TILES, None]
    padded = (row_tiles(rows, hit, largest, tiles) * (tiles + _REFILL)).min(axis=0)
    weights = matrices * hidden * inter
    compute = 2.0 * padded * weights / (c.rate * r.peak)
    memory = r.stream(hit * weights * w_bytes, c.bandwidth) + hit * c.expert
    passes = (c.row_passes * rows + c.token_passes * tokens) * _ROW_BYTES * hidden
    flops, moved = moe_work(columns)
    variable = join(compute, memory, _LIBRARY_SIDES) + passes / r.hbm + c.pair * pairs
    return summarise(r.launch + c.setup, variable, work=(flops, moved + passes), sides=(compute, memory))


@lru_cache(maxsize=64)
def _rule(tiles: tuple[tuple[int, ...], ...], until: tuple[float, ...]) -> tuple[NDArray[np.float64], Column]:
    """Tiles as an array (3, tiles), and the largest measure of each but the last."""
    return np.array(tiles, dtype=np.float64).T, np.array(until, dtype=np.float64)


def _chosen(columns: tuple[Column, ...], kernel: TiledMoeKernel) -> NDArray[np.float64]:
    """Rows, columns and k-step of the tile that the kernel's rule picks for each row, array (3, rows)."""
    over, under = _MEASURES[kernel.chosen_by]
    measure = columns[over] / np.maximum(columns[under], 1.0) if under is not None else columns[over]
    tiles, until = _rule(kernel.tiles, kernel.until)
    return tiles[:, until.searchsorted(measure)]


def _searched(columns: tuple[Column, ...], kernel: TiledMoeKernel) -> NDArray[np.bool_]:
    """Rows of the shapes for which the engine ships a tile that a search has found."""
    asked = np.asarray(columns[_AT["experts"]] * _WIDEST + columns[_AT["inter"]])
    return np.asarray((asked[..., None] == _shapes(kernel.tuned)).any(axis=-1))


@lru_cache(maxsize=64)
def _shapes(tuned: tuple[tuple[int, int], ...]) -> Column:
    return np.array([experts * _WIDEST + inter for experts, inter in tuned], dtype=np.float64)


def price_tiled_moe(columns: tuple[Column, ...], kernel: TiledMoeKernel, c: TiledMoeConstants, r: Rates) -> Prices:
    """Time of the fused expert MLP by a kernel whose tile (bm, bn, bk) a rule of the engine picks.

    Of a shape for which the engine ships a tile found by search it is the fastest of those that are searched.
    Activations pass through memory between the two GEMMs: 5 I (3 without gate) + 2 h values for each pair that the
    kernel scans, h for each token, at ``passes`` of the bandwidth (Triton kernels of vLLM and SGLang, fused_moe.py).
    """
    rows, _, _, pairs, tokens, _, hidden, inter, matrices, *_ = columns
    scanned = rows if kernel.sorts else pairs
    gemms, compute, memory = _tuned(columns, kernel, c, r)
    between = 2.0 * (matrices - 1.0) + 1.0
    passes = (scanned * (between * inter + 2.0 * hidden) + tokens * hidden) * _ROW_BYTES
    flops, moved = moe_work(columns)
    variable = gemms + r.stream(passes, c.passes)
    return summarise(r.launch + c.setup, variable, work=(flops, moved + passes), sides=(compute, memory))


def _tuned(columns: tuple[Column, ...], kernel: TiledMoeKernel, c: TiledMoeConstants, r: Rates) -> tuple[Column, ...]:
    """``_gemms`` with the tile of each row: the fastest of a search where the engine ships it, else the rule's."""
    if np.ndim(columns[0]) == 0:
        shape = float(columns[_AT["experts"]]), float(columns[_AT["inter"]])
        if shape not in kernel.tuned:
            return _gemms(columns, _chosen(columns, kernel), kernel, c, r)
        tries = _gemms(columns, _SEARCHED, kernel, c, r)
        at = int(tries[0].argmin())
        return tuple(one[at] for one in tries)
    by_rule = _gemms(columns, _chosen(columns, kernel), kernel, c, r)
    searched = _searched(columns, kernel) if kernel.tuned else None
    if searched is None or not searched.any():
        return by_rule
    tries = _gemms(columns, _SEARCHED[:, :, None], kernel, c, r)
    best = tries[0].argmin(axis=0)[None]
    fastest = tuple(np.take_along_axis(one, best, 0)[0] for one in tries)
    return tuple(np.where(searched, one, other) for one, other in zip(fastest, by_rule, strict=True))


def _gemms(
    columns: tuple[Column, ...], tile: NDArray[np.float64], kernel: TiledMoeKernel, c: TiledMoeConstants, r: Rates
) -> tuple[Column, Column, Column]:
    """Seconds of the two GEMMs [R, k] x [k, n] with a tile (bm, bn, bk) for each row, and their sides.

    With S compute units and tiles = row_tiles(bm) ceil(n/bn) each takes::

        busy    = max(2 bm bn bk / (rate P), fill (bm x + bn w) bk / S)       a k-step of a tile, on all units
        compute = ceil(k/bk) max(tiles busy, ceil(tiles / 4 S) step)          or max(tiles, S) and S where it is alone
        GEMM    = ||compute, memory||_3 + tile (tiles + tiles of other ranks' pairs) / S
        memory  = hit n k w / (bandwidth HBM)                  joined alike with what ``unpacks`` takes of the lanes

    ``tile`` may add an axis before that of the rows.
    """
    rows, hit, largest, pairs, tokens, _, hidden, inter, matrices, x_bytes, w_bytes = columns
    weight = w_bytes if kernel.weight_bytes is None else np.full_like(w_bytes, kernel.weight_bytes)
    bm, bn, bk = tile
    held = hit * matrices * hidden * inter * weight + 2.0 * tokens * hidden * _ROW_BYTES
    share = c.bandwidth * np.where(bk * weight < _LINE, _HALF_LINE, 1.0)
    high = row_tiles(rows, hit, largest, bm)
    empty = 0.0 if kernel.sorts else np.maximum(pairs - rows, 0.0) / bm
    fill = c.fill / (_KIB * r.units) * bk * (bm * x_bytes + bn * weight)
    busy = np.maximum(2.0 * bm * bn * bk / (c.rate * r.peak), fill)
    n, k = np.array([inter * (matrices - 1.0), hidden]), np.array([hidden, inter])  # up and gate, down
    if bm.ndim > np.ndim(rows):
        n, k = n[:, None], k[:, None]
    slow = np.where(k % _ALIGNED > 0, _UNALIGNED, 1.0)
    wide, steps = np.ceil(n / bn), np.ceil(k / bk)
    tiles = high * wide
    together, working = (1.0, np.maximum(tiles, r.units)) if kernel.alone else (_IN_FLIGHT, tiles)
    compute = steps * np.maximum(working * busy, np.ceil(tiles / (r.units * together)) * c.step)
    memory = r.stream(hit * n * k * weight, share, held)
    if kernel.unpacks:
        memory = join(hit * n * k * kernel.unpacks / (r.vector / _FMA_FLOPS), memory, _SIDES)
    gemms = slow * (join(compute, memory, _SIDES) + c.tile / r.units * (tiles + empty * wide))
    return gemms.sum(axis=0), (slow * compute).sum(axis=0), (slow * memory).sum(axis=0)
