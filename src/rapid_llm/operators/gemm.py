"""Matrix multiplication: tiles, waves, split-K, the latency of a k-step and the part of the output that nothing hides.

For each candidate tile (bm, bn) and split s, with S compute units and steps of kb along k::

    step  = ((2 bm bn kb S / (P rate))^3 + step^3)^(1/3)      a k-step computes, or waits for its loads
    CTA   = groups ceil(m/bm) ceil(n/bn),  waves = ceil(CTA s / S)
    Tc    = waves (ceil(k / (s kb)) step + epilogue min(CTA, S) bm bn y / (bandwidth HBM))
    T     = (Tc^p + Tm^p)^(1/p) + [s > 1] (split + 4 s m n / (bandwidth HBM)),   Tm = B / (bandwidth HBM)

with B the compulsory bytes. t = launch + setup + min T over the candidates; every term grows with m, n and k, and so
does t (tile quantisation: NVIDIA, "Matrix multiplication background user's guide"; split-K and the exposed epilogue:
CUTLASS, "Efficient GEMM in CUDA"). Tm is common to the candidates, so that the best tile of each split is the one of
least Tc.
"""

from collections.abc import Iterator
from functools import lru_cache
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rapid_llm.operators.families import Column, Prices
from rapid_llm.operators.kernels import GemmConstants, GemmKernel, Tiles
from rapid_llm.operators.rates import Rates
from rapid_llm.operators.summary import join, summarise
from rapid_llm.operators.work import gemm_work

_LEAST_SPLIT_K: Final = 128.0  # a split keeps at least this much of k, or it is all prologue
_PARTIAL_BYTES: Final = 4.0  # partial sums are fp32
_UNQUANTISED_BYTES: Final = 2.0  # activations before a kernel's own quantise pass are 16 bit
_PIPELINE_NORM: Final = 3.0  # how sharply a k-step turns from waiting to computing
_L2_SHARES: Final = (0.5, 0.8)
"""Share of L2 bandwidth at which tiles read operands that a replay finds there: line by line, in boxes (TMA)."""
_BY_LINE: Final = frozenset(("volta", "turing", "ampere", "ampere-rtx", "ada"))
"""Architectures whose tiles are copied line by line."""
_PARTITIONED: Final = frozenset(("ampere", "hopper", "blackwell"))
"""Architectures whose L2 is two halves, each with its own copy of what both read: less fits, and writes pass through."""
_KEPT: Final = (0.75, 0.5)  # of a partitioned L2: what one launch touches, what a rotation of many touches
_ROWS_AT_ONCE: Final = 1024  # keeps the candidates of one block of rows in cache


class _Table(NamedTuple):
    """What depends on kernel and accelerator alone; arrays (tile, split)."""

    rows: NDArray[np.float64]
    cols: NDArray[np.float64]
    splits: NDArray[np.float64]
    step: NDArray[np.float64]
    bandwidth: float


class _Best(NamedTuple):
    """The winning candidate of each row: seconds without the fixed cost, both sides, and its index (tile, split)."""

    seconds: Column
    compute: Column
    memory: Column
    candidate: NDArray[np.intp]


@lru_cache(maxsize=256)
def _table(tiles: Tiles, splits: tuple[int, ...], k_step: int, c: GemmConstants, r: Rates) -> _Table:
    bm, bn = (np.array(side, dtype=float)[:, None] for side in zip(*tiles, strict=True))
    busy = 2.0 * bm * bn * k_step * r.units / (r.peak * c.rate)
    step = (busy**_PIPELINE_NORM + c.step**_PIPELINE_NORM) ** (1.0 / _PIPELINE_NORM)
    return _Table(bm, bn, np.array(splits, dtype=float)[None, :], step, r.hbm * c.bandwidth)


def _memory(columns: tuple[Column, ...], c: GemmConstants, r: Rates, architecture: str) -> Column:
    """Seconds to move X, W and Y once; what a replayed benchmark comes back to soon enough it finds in L2."""
    if not r.resident:
        return r.stream(gemm_work(columns)[1], c.bandwidth)
    share = _L2_SHARES[architecture not in _BY_LINE] * r.l2_datasheet / r.l2
    parts = _reuse(columns, r, partitioned=architecture in _PARTITIONED)
    return np.asarray(sum(r.stream(moved, c.bandwidth, held, share) for moved, held in parts))


def _reuse(columns: tuple[Column, ...], r: Rates, *, partitioned: bool) -> Iterator[tuple[Column, Column]]:
    """Bytes of X, W and Y, and of all that a benchmark touches before it meets the operand again.

    That is one launch for Y and for an X that all launches share, a whole rotation for weights (least recently used).
    """
    m, n, k, groups, x_bytes, w_bytes, y_bytes = columns
    x, w, y = groups * m * k * x_bytes, groups * k * n * w_bytes, groups * m * n * y_bytes
    copies = r.replay.rotated(w, r.resident)
    launch, rotation = x + w + y, copies * w + y + x * (copies if r.replay.inputs else 1.0)
    if partitioned:
        launch, rotation = launch / _KEPT[0], rotation / _KEPT[1]
    yield x, rotation if r.replay.inputs else launch
    yield w, rotation
    yield y, np.full_like(y, np.inf) if partitioned else launch


def _ctas(columns: tuple[Column, ...], table: _Table) -> NDArray[np.float64]:
    """Output tiles of each row, array (row, tile, 1)."""
    m, n, groups = (columns[i][:, None, None] for i in (0, 1, 3))
    return np.asarray(np.ceil(m / table.rows) * np.ceil(n / table.cols) * groups)


def _best(columns: tuple[Column, ...], kernel: GemmKernel, architecture: str, r: Rates) -> _Best:
    c, tiles = kernel.on(architecture), kernel.tiles_on(architecture)
    m, n, k, groups, *_, y_bytes = columns
    table = _table(tiles, kernel.splits, kernel.k_step, c, r)
    ctas = _ctas(columns, table)
    steps = np.ceil(k[:, None, None] / (table.splits * kernel.k_step))
    wave = np.minimum(ctas, r.units) * (table.rows * table.cols)
    out = wave * (y_bytes * (c.epilogue / table.bandwidth))[:, None, None]
    waves = np.ceil(ctas * (table.splits / r.units))
    compute = waves * (steps * table.step + out)
    tile = compute.argmin(axis=1)
    fastest = np.take_along_axis(compute, tile[:, None, :], axis=1)[:, 0, :]
    memory = _memory(columns, c, r, architecture)
    seconds = join(fastest, memory[:, None], c.overlap)
    split = np.asarray(kernel.splits, dtype=float)
    extra = c.split + split * (groups * m * n * (_PARTIAL_BYTES / table.bandwidth))[:, None]
    seconds += np.where(split > 1.0, np.where(k[:, None] >= _LEAST_SPLIT_K * split, extra, np.inf), 0.0)
    chosen = seconds.argmin(axis=1)
    row = np.arange(len(m))
    candidate = tile[row, chosen] * len(split) + chosen
    return _Best(seconds[row, chosen], fastest[row, chosen], memory, candidate)


def _cast(columns: tuple[Column, ...], kernel: GemmKernel) -> Column:
    """Bytes of the kernel's own quantise pass over its activations."""
    m, _, k, groups, x_bytes, *_ = columns
    return np.asarray(groups * m * k * (kernel.quantise * _UNQUANTISED_BYTES + x_bytes))


def price_gemm(columns: tuple[Column, ...], kernel: GemmKernel, architecture: str, r: Rates) -> Prices:
    """Time of the fastest tile and split for each row; columns as ``COLUMNS['gemm']``, each (rows,)."""
    c = kernel.on(architecture)
    parts = [
        _best(tuple(column[start : start + _ROWS_AT_ONCE] for column in columns), kernel, architecture, r)
        for start in range(0, len(columns[0]), _ROWS_AT_ONCE)
    ]
    seconds, compute, memory, _ = map(np.concatenate, zip(*parts, strict=True)) if parts else (np.empty(0),) * 4
    flops, moved = gemm_work(columns)
    if kernel.quantise:
        rows, cast = columns[0] * columns[3], _cast(columns, kernel)
        moved, seconds = moved + cast, seconds + r.stream(cast, c.bandwidth) + c.row * rows
    return summarise(r.launch + c.setup, seconds, work=(flops, moved), sides=(compute, memory))


def explain(columns: tuple[Column, ...], kernel: GemmKernel, architecture: str, r: Rates) -> dict[str, Any]:
    """The winning candidate of one row (each column of length 1): tile, split, tiles in flight, waves, last wave."""
    c, tiles = kernel.on(architecture), kernel.tiles_on(architecture)
    best = _best(columns, kernel, architecture, r)
    tile, split = divmod(int(best.candidate[0]), len(kernel.splits))
    table = _table(tiles, kernel.splits, kernel.k_step, c, r)
    ctas = float(_ctas(columns, table)[0, tile, 0]) * kernel.splits[split]
    waves = np.ceil(ctas / r.units)
    (rows, cols), k, x_bytes, w_bytes = tiles[tile], columns[2][0], columns[4][0], columns[5][0]
    return {
        "tile": tiles[tile],
        "split": kernel.splits[split],
        "tiles": int(ctas),
        "waves": int(waves),
        "last_wave_occupancy": (ctas - (waves - 1.0) * r.units) / r.units,
        "l2_bytes": float(ctas * (rows * x_bytes + cols * w_bytes) * k / kernel.splits[split]),
        "compute_s": float(best.compute[0]),
        "memory_s": float(best.memory[0]),
        "launch_s": r.launch + c.setup,
    }
