"""Grouped GEMMs over the experts of one rank: of libraries that pick the fastest tile, of kernels with a given one."""

from bisect import bisect_left
from collections.abc import Callable
from functools import lru_cache
from operator import itemgetter
from typing import Final

import numpy as np
from numpy.typing import NDArray

from rapid_llm.operators.constants import MoeConstants, TiledMoeConstants
from rapid_llm.operators.elementwise import larger, smaller, some, where
from rapid_llm.operators.families import COLUMNS, Column, Prices
from rapid_llm.operators.kernels import MoeKernel, TiledMoeKernel
from rapid_llm.operators.rates import Rates
from rapid_llm.operators.summary import join, summarise
from rapid_llm.operators.work import moe_work

Tile = tuple[float | Column, ...]
"""Rows, columns and k-step of a tile: numbers, or one for each row."""
Loads = tuple[Column, Column, Column, Column]
Sides = tuple[Column, Column, Column]
"""Seconds, and those of compute and of memory."""

_AT: Final = {name: i for i, name in enumerate(COLUMNS["moe"])}
_MEASURES: Final = {
    "tokens": (_AT["tokens"], None),
    "tokens_per_expert": (_AT["tokens"], _AT["experts"]),
    "pairs_per_expert": (_AT["pairs"], _AT["experts"]),
}
"""What may choose a tile to the columns whose quotient it is."""
_ROW_BYTES: Final = 2.0  # rows between the kernels of an expert MLP are 16 bit
_TILES: Final = np.array([8.0, 16.0, 32.0, 64.0, 128.0, 256.0])  # rows of the tiles that libraries build
_WIDE: Final = 128.0  # columns of those
_REFILL: Final = 16.0  # rows' worth of time that a tile spends on its weights
_LINE: Final = 100.0  # bytes; a tile narrower in k than a DRAM line of 128 fetches it in two visits
_HALF_LINE: Final = 0.65  # of the bandwidth is left then (tiles of 32 against 64 16-bit columns, A100 and L40S tables)
_ALIGNED: Final = 16.0  # elements; Triton vectorises loads of rows that begin at multiples of it
_UNALIGNED: Final = 2.5  # times slower a projection is without (down from inter 58 to 168, A100 table)
_SEARCHED: Final = ((16.0, 64.0, 128.0), (64.0, 64.0, 64.0), (64.0, 128.0, 64.0), (128.0, 256.0, 64.0))
"""Tiles as searches find them (configurations that vLLM ships), the smallest first."""
_WIDEST: Final = 1048576.0  # above every expert width: makes one number of experts and width
_IN_FLIGHT: Final = 4.0  # tiles that share a compute unit
_SOONER: Final = 0.45  # of its latency L2 answers before memory (263 of 479 cycles on H100: Luo 2024, from memory)
_VISITS: Final = 2.0  # of a kernel that writes and of one that reads, to all that is handed on
_STAGES: Final = 4.0  # k-steps whose operands such a launcher of one tile a block loads ahead (opt_flags.py)
_KIB: Final = 1024.0
_SOME: Final = 1e-3  # rows
_SIDES: Final = 3.0  # p of the norm that joins compute and memory of a tiled kernel
_LIBRARY_SIDES: Final = 1.5  # the same over the many experts of a library's one launch, each bound by either


def row_tiles(rows: Column, hit: Column, largest: Column, tile: float | Column) -> Column:
    """Tiles of ``tile`` rows over ``hit`` experts with ``rows`` in all, ``largest`` on the most loaded one.

    The loads of the others spread evenly about their mean, at most to the largest: equal loads give hit ceil(load /
    tile), wide ones rows / tile and half a tile an expert. ``tile`` may add a leading axis.
    """
    return _in_tiles(_spread(rows, hit, largest), tile)


def _spread(rows: Column, hit: Column, largest: Column) -> Loads:
    """How loads are spread over experts: the largest, the number of the others, the range that theirs are in."""
    others = larger(hit - 1.0, 0.0)
    mean = larger(rows - largest, 0.0) / larger(others, _SOME)
    high = smaller(largest, 2.0 * mean)
    low = 2.0 * mean - high - _SOME  # a little below: the mean of ceil over nothing is its value
    return largest, others, high, low


def _in_tiles(loads: Loads, tile: float | Column) -> Column:
    """Tiles of so many rows that loads take."""
    largest, others, high, low = loads
    above, below = _ceilings(high / tile), _ceilings(low / tile)
    tiles: Column = others * tile * (above - below) / (high - low) + np.ceil(largest / tile)
    return tiles


def _ceilings(x: Column) -> Column:
    """The integral of ceil from 0 to x."""
    whole = np.floor(x)
    area: Column = (whole + 1.0) * (x - 0.5 * whole)
    return area


def price_moe(columns: tuple[Column, ...], kernel: MoeKernel, c: MoeConstants, r: Rates) -> Prices:
    """Time of the fused expert MLP, columns as ``COLUMNS['moe']``, by a library that has tiles of many heights.

    A tile of b rows holds 128 columns of an output. With S compute units both GEMMs [R, k] x [k, n] take whole rounds::

        compute = sum of 2 (b + refill) 128 k S ceil(tiles(b) ceil(n/128) / S) / (rate P)      of the b that is run
        memory  = hit M h I w / (bandwidth HBM) + expert hit
        t = launch + setup + ||compute, memory||_1.5 + (row_passes R + token_passes T) 2 h / HBM + pair times the pairs
    """
    rows, hit, largest, pairs, tokens, experts, hidden, inter, matrices, _, w_bytes = columns
    loads = _spread(rows, hit, largest)
    if kernel.pairs_a_row is None:
        run = _turns(_up_to(kernel.row_tile)[(...,) + (None,) * np.ndim(rows)], loads, columns, r).min(axis=0)
    else:
        run = _turns(_launched(pairs / experts / kernel.pairs_a_row, kernel.row_tile), loads, columns, r)
    compute = 2.0 * run * _WIDE / (r.reached(c.rate) * r.peak)
    passes = (c.row_passes * rows + c.token_passes * tokens) * _ROW_BYTES * hidden
    weights, between = hit * matrices * hidden * inter * w_bytes, passes / _VISITS
    memory = r.stream(weights, c.bandwidth, weights + between) + hit * c.expert
    flops, moved = moe_work(columns)
    variable = join(compute, memory, _LIBRARY_SIDES) + r.hand_on(passes, 1.0, between) + c.pair * pairs
    return summarise(r.launch + c.setup, variable, work=(flops, moved + passes), sides=(compute, memory))


def _turns(tile: float | Column, loads: Loads, columns: tuple[Column, ...], r: Rates) -> Column:
    """Rows times k-steps that tiles of some height take on all units together, in whole rounds, over both GEMMs."""
    hidden, inter, matrices = columns[_AT["hidden"]], columns[_AT["inter"]], columns[_AT["matrices"]]
    high = _in_tiles(loads, tile)
    wider = np.ceil((high * np.ceil(inter * (matrices - 1.0) / _WIDE) - _SOME) / r.units) * hidden
    down = np.ceil((high * np.ceil(hidden / _WIDE) - _SOME) / r.units) * inter
    turns: Column = (wider + down) * r.units * (tile + _REFILL)
    return turns


@lru_cache(maxsize=64)
def _up_to(most: int) -> Column:
    """Rows of the tiles of a library whose largest has so many."""
    return _TILES[most >= _TILES]


def _launched(least: Column, most: int) -> Column:
    """Rows of the smallest tile that has so many, or else of the largest."""
    tiles = _up_to(most)
    height: Column = tiles[tiles[:-1].searchsorted(least)]
    return height


@lru_cache(maxsize=64)
def _rule(tiles: tuple[tuple[int, ...], ...], until: tuple[float, ...]) -> tuple[NDArray[np.float64], Column]:
    """Tiles as an array (3, tiles), and the largest measure of each but the last."""
    return np.array(tiles, dtype=np.float64).T, np.array(until, dtype=np.float64)


def _chosen(columns: tuple[Column, ...], kernel: TiledMoeKernel) -> Tile:
    """Rows, columns and k-step of the tile that the kernel's rule picks for each row."""
    over, under = _MEASURES[kernel.chosen_by]
    measure = columns[over] / larger(columns[under], 1.0) if under is not None else columns[over]
    if np.ndim(measure) == 0:
        return kernel.tiles[bisect_left(kernel.until, measure)]
    tiles, until = _rule(kernel.tiles, kernel.until)
    return tuple(tiles[:, until.searchsorted(measure)])


def _searched(columns: tuple[Column, ...], kernel: TiledMoeKernel) -> NDArray[np.bool_]:
    """Rows of the shapes for which the engine ships a tile that a search has found."""
    asked = columns[_AT["experts"]] * _WIDEST + columns[_AT["inter"]]
    return np.isin(asked, [experts * _WIDEST + inter for experts, inter in kernel.tuned])


def price_tiled_moe(columns: tuple[Column, ...], kernel: TiledMoeKernel, c: TiledMoeConstants, r: Rates) -> Prices:
    """Time of the fused expert MLP by a kernel whose tile (bm, bn, bk) a rule of the engine picks.

    Of a shape for which the engine ships a tile found by search it is the fastest of those that are searched.
    Activations pass through memory between the two GEMMs: 5 I (3 without gate, 2 where the first GEMM applies the
    activation) + 2 h values for each pair that the kernel scans, h for each token, at ``passes`` of the bandwidth
    (Triton kernels of vLLM and SGLang, fused_moe.py; of OpenAI, matmul_ogs.py).
    """
    rows, _, _, pairs, tokens, _, hidden, inter, matrices, *_ = columns
    scanned = rows if kernel.sorts else pairs
    handed = _handed_on(columns, kernel)
    gemms, compute, memory = _tuned(columns, kernel, c, r, handed)
    between = 2.0 if kernel.activates else 2.0 * (matrices - 1.0) + 1.0
    passes = (scanned * (between * inter + 2.0 * hidden) + tokens * hidden) * _ROW_BYTES
    flops, moved = moe_work(columns)
    variable = gemms + r.hand_on(passes, c.passes, handed)
    launches = kernel.launches + where(pairs > rows, kernel.remaps, 0.0) if kernel.remaps else kernel.launches
    fixed = r.launch + c.setup * launches
    return summarise(fixed, variable, work=(flops, moved + passes), sides=(compute, memory))


def _handed_on(columns: tuple[Column, ...], kernel: TiledMoeKernel) -> Column:
    """Bytes of all that is handed from kernel to kernel, the input and the output of the layer among it."""
    rows, _, _, pairs, tokens, _, hidden, inter, matrices, *_ = columns
    widths = (1.0 if kernel.activates else matrices) * inter + hidden
    held: Column = ((rows if kernel.sorts else pairs) * widths + 2.0 * tokens * hidden) * _ROW_BYTES
    return held


def _tuned(
    columns: tuple[Column, ...], kernel: TiledMoeKernel, c: TiledMoeConstants, r: Rates, handed: Column
) -> Sides:
    """Both GEMMs with the tile of each row: the fastest of a search where the engine ships it, else the rule's."""
    gemms = _by_tile(columns, kernel, c, r, handed)
    if np.ndim(columns[0]) == 0:
        shape = float(columns[_AT["experts"]]), float(columns[_AT["inter"]])
        if shape not in kernel.tuned:
            return gemms(_chosen(columns, kernel))
        return min(map(gemms, _SEARCHED), key=itemgetter(0))
    by_rule = gemms(_chosen(columns, kernel))
    searched = _searched(columns, kernel)
    if not some(searched):
        return by_rule
    tries = gemms(tuple(np.array(_SEARCHED).T[:, :, None]))
    best = tries[0].argmin(axis=0)[None]
    fastest = (np.take_along_axis(one, best, 0)[0] for one in tries)
    seconds, compute, memory = (where(searched, one, other) for one, other in zip(fastest, by_rule, strict=True))
    return seconds, compute, memory


def _by_tile(
    columns: tuple[Column, ...], kernel: TiledMoeKernel, c: TiledMoeConstants, r: Rates, handed: Column
) -> Callable[[Tile], Sides]:
    """The two GEMMs [R, k] x [k, n] as a function of the tile (bm, bn, bk) of each row: seconds, and both sides.

    With S compute units and tiles = row_tiles(bm) ceil(n/bn) each takes::

        busy    = max(2 bm bn bk / (rate P), fill (bm x + bn w) bk / S)       a k-step of a tile, on all units
        compute = ceil(k/bk) max(tiles busy, ceil(tiles / 4 S) step)
        GEMM    = ||compute, memory||_3 + tile (tiles + tiles of other ranks' pairs) / S
        memory  = hit n k w / (bandwidth HBM)                  joined alike with what ``unpacks`` takes of the lanes

    A block that multiplies from registers what it has unpacked there does one after the other in every k-step
    (2 bm bn bk / (rate P) + unpacks bn bk / lanes), takes whole rounds of the units, and shares its own with no more
    than have room for their stages of loads. A tile may add an axis before that of the rows.
    """
    rows, hit, largest, pairs, _, _, hidden, inter, matrices, x_bytes, w_bytes = columns
    if kernel.pads != (1, 1):
        hidden, inter = (np.ceil(side / pad) * pad for side, pad in zip((hidden, inter), kernel.pads, strict=True))
    weight = w_bytes if kernel.weight_bytes is None else kernel.weight_bytes
    held = hit * matrices * hidden * inter * weight + handed
    step = c.step * (1.0 - _SOONER * r.near(held))
    loads = _spread(rows, hit, largest)
    elsewhere = 0.0 if kernel.sorts else larger(pairs - rows, 0.0)
    peak, fill, overhead = r.reached(c.rate) * r.peak, c.fill / (_KIB * r.units), c.tile / r.units
    lanes, repacked = kernel.unpacks / r.instructions, kernel.in_registers
    products = [  # up and gate, down
        (n, k, hit * n * k, where(k % _ALIGNED > 0, _UNALIGNED, 1.0))
        for n, k in ((inter * (matrices - 1.0), hidden), (hidden, inter))
    ]

    def gemms(tile: Tile) -> Sides:
        bm, bn, bk = tile
        high, empty = _in_tiles(loads, bm), elsewhere / bm
        operands, busy = bk * (bm * x_bytes + bn * weight), 2.0 * bm * bn * bk / peak
        share = c.bandwidth * where((bk * weight < _LINE) & (not repacked), _HALF_LINE, 1.0)
        together = larger(np.floor(r.shared / (_STAGES * operands)), 1.0) if repacked else _IN_FLIGHT
        busy = larger(busy + bn * bk * (lanes if repacked else 0.0), fill * operands)

        def one(n: Column, k: Column, weights: Column, slow: Column) -> Sides:
            wide = np.ceil(n / bn)
            tiles = high * wide
            waiting = np.ceil(tiles / (r.units * together)) * step
            taken = np.ceil(tiles / r.units) * r.units if repacked else tiles
            compute = slow * np.ceil(k / bk) * larger(taken * busy, waiting)
            memory = slow * r.stream(weights * weight, share, held)
            if lanes and not repacked:
                memory = join(slow * weights * lanes, memory, _SIDES)
            return join(compute, memory, _SIDES) + slow * overhead * (tiles + empty * wide), compute, memory

        wider, down = (one(*product) for product in products)
        return wider[0] + down[0], wider[1] + down[1], wider[2] + down[2]

    return gemms
