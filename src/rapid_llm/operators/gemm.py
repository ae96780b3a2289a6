"""Matrix multiplication: tiles, waves, split-K, the latency of a k-step and the part of the output that nothing hides.

For each candidate tile (bm, bn) and split s, with S compute units and steps of kb along k::

    step  = ((2 bm bn kb S / (P rate))^3 + step^3)^(1/3)      a k-step computes, or waits for its loads
    CTA   = groups ceil(m/bm) ceil(n/bn),  waves = ceil(CTA s / S)
    Tc    = waves ceil(k / (s kb)) step + epilogue m n y / (64 S clock)
    T     = (Tc^p + Tm^p)^(1/p) + [s > 1] (split + 4 s m n / (bandwidth HBM)),   Tm = B / (bandwidth HBM)

with B the compulsory bytes. t = launch + setup + min T over the candidates; every term grows with m, n and k, and so
does t (tile quantisation: NVIDIA, "Matrix multiplication background user's guide"; split-K and the exposed epilogue:
CUTLASS, "Efficient GEMM in CUDA"). Tm is common to the candidates, so that the best tile of each split is the one of
least Tc. Libraries with a matrix-vector kernel (``vector``) have one more candidate for so few rows: 128 threads walk
along a few columns of W, nothing overlaps, T = Tm + ceil(n / (4 S)) ceil(k x / 2048) step. Kernels with
few loads in flight draw at most d B/s of weights a unit and unpack each in u operations of the P_v/2 lanes (``draws``,
``unpacks``): Tm = (max(Tm, n k w / (d S))^3 + (n k u / (P_v / 2))^3)^(1/3). Up to eight rows are vectors of their own,
of which each takes a part of u, u (1 + 0.45 (m - 1)); tiles of more rows take no longer than eight of these. Weights
that are written out in 16 bits before a product of many rows (``expands``) pass through memory in a pass of their own.

Columns are arrays (rows,), or numbers (0 dimensions) for one row: the same code prices both.
"""

from functools import lru_cache
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rapid_llm.operators.constants import GemmConstants
from rapid_llm.operators.elementwise import larger, smaller, some, where, widened
from rapid_llm.operators.families import Column, Prices
from rapid_llm.operators.kernels import GemmKernel
from rapid_llm.operators.rates import Rates
from rapid_llm.operators.reuse import Reuse
from rapid_llm.operators.summary import join, summarise
from rapid_llm.operators.work import gemm_work

Array = NDArray[np.float64]

_LEAST_SPLIT_K: Final = 128.0  # a split keeps at least this much of k, or it is all prologue
_STORE_BYTES: Final = 64.0  # that a compute unit can write in a cycle
_PARTIAL_BYTES: Final = 4.0  # partial sums are fp32
_UNQUANTISED_BYTES: Final = 2.0  # activations before a kernel's own quantise pass are 16 bit
_PIPELINE_NORM: Final = 3.0  # how sharply a k-step turns from waiting to computing
_VECTOR_COLUMNS: Final = 4  # a unit of the matrix-vector kernel has these columns of W in flight
_VECTOR_BYTES: Final = 2048.0  # 128 threads load 16 bytes of each at a time
_VECTOR: Final = -1  # stands for that kernel among the splits
_OWN_ROWS: Final = 8.0  # rows that go through kernels of one row together (MMVQ_MAX_BATCH_SIZE of llama.cpp)
_OWN_SHARE: Final = 0.45  # of unpacking is done for each of them: Llama 3 8B Q4_0, RTX 3090, 1 to 8 rows (its #15802)
_ROWS_AT_ONCE: Final = 1024  # keeps the candidates of one block of rows in cache


class _Table(NamedTuple):
    """What depends on kernel and accelerator alone; arrays (tile, 1), (split,) and (tile, split); ``stored`` seconds a
    byte of the output."""

    constants: GemmConstants
    rows: Array
    cols: Array
    stored: float
    step: Array
    per_split: Array
    share: Array
    fixed: Array
    partial: Array
    least: Array
    served: tuple[Array, Array] | None


class _Best(NamedTuple):
    """The winning candidate of each row: seconds without the fixed cost, both sides (s), bytes moved, index of its
    split or ``_VECTOR``."""

    seconds: Column
    compute: Column
    memory: Column
    moved: Column
    split: NDArray[np.intp]


@lru_cache(maxsize=256)
def _table(kernel: GemmKernel, architecture: str, r: Rates) -> _Table:
    c = kernel.on(architecture, r.clock)
    bm, bn = (np.array(side, dtype=float)[:, None] for side in zip(*kernel.tiles_on(architecture), strict=True))
    busy = 2.0 * bm * bn * kernel.k_step * r.units / (r.peak * r.reached(c.rate))
    served = kernel.rows_on(architecture)
    bandwidth, split = r.hbm * c.bandwidth, np.array(kernel.splits, dtype=float)
    more = split > 1.0
    return _Table(
        constants=c,
        rows=bm,
        cols=bn,
        stored=c.epilogue / (_STORE_BYTES * r.units * r.clock),
        step=(busy**_PIPELINE_NORM + c.step**_PIPELINE_NORM) ** (1.0 / _PIPELINE_NORM),
        per_split=split * kernel.k_step,
        share=split / r.units,
        fixed=np.where(more, c.split, 0.0),
        partial=np.where(more, split * (_PARTIAL_BYTES / bandwidth), 0.0),
        least=np.where(more, _LEAST_SPLIT_K * split, 0.0),
        served=(np.array(served)[:, :1], np.array(served)[:, 1:]) if served else None,
    )


def _tiled(columns: tuple[Column, ...], table: _Table, r: Rates) -> tuple[Array, Array]:
    """Output tiles of each row and the time Tc of each candidate, arrays (..., tile, 1) and (..., tile, split)."""
    m, n, k, groups, *_, y_bytes = columns
    stored = widened(groups * m * n * y_bytes, 2) * table.stored
    m, n, k, groups = (widened(side, 2) for side in (m, n, k, groups))
    ctas = np.ceil(m / table.rows) * np.ceil(n / table.cols)
    ctas *= groups
    time = np.ceil(k / table.per_split) * table.step
    time *= np.ceil(ctas * table.share)
    time += stored
    if table.served:
        above, most = table.served
        time = np.where((m > above) & (m <= most), time, np.inf)
    return ctas, time


def _best(columns: tuple[Column, ...], kernel: GemmKernel, architecture: str, r: Rates) -> _Best:
    """The fastest candidate of each row."""
    m, n, k, groups, x_bytes = columns[:5]
    table = _table(kernel, architecture, r)
    fastest = _tiled(columns, table, r)[1].min(axis=-2)
    moved = gemm_work(columns)[1]
    c = table.constants
    if r.resident:
        reuse = Reuse(columns, kernel.quantise, r, architecture)
        memory = reuse.seconds(reuse.product(), c.bandwidth, r)
    else:
        memory = r.stream(moved, c.bandwidth)
    memory = _drawn(columns, memory, kernel, architecture, r)
    seconds = join(fastest, widened(memory, 1), c.overlap)
    seconds += table.fixed + widened(groups * m * n, 1) * table.partial
    seconds += np.where(widened(k, 1) < table.least, np.inf, 0.0)
    split = seconds.argmin(axis=-1)
    seconds, compute = _at(seconds, split), _at(fastest, split)
    if kernel.vector and some(one := m * groups <= kernel.vector):
        passes = np.ceil(n / (_VECTOR_COLUMNS * r.units)) * np.ceil(k * x_bytes / _VECTOR_BYTES)
        walk = where(one, passes * c.step, np.inf)
        split, compute = where(walk + memory < seconds, _VECTOR, split), where(one, walk, compute)
        seconds = smaller(walk + memory, seconds)
    return _Best(seconds, compute, memory, moved, split)


def _drawn(columns: tuple[Column, ...], memory: Column, kernel: GemmKernel, architecture: str, r: Rates) -> Column:
    """``memory`` (s) of a kernel that draws less than the memory gives, or unpacks its weights in between."""
    draw = kernel.draws.get(architecture, kernel.draws.get("default"))
    operations = kernel.unpacks.get(architecture, 0.0)
    m, n, k, groups, _, w_bytes = columns[:6]
    weights = groups * n * k
    drawn = memory if draw is None else larger(memory, weights * w_bytes / (draw * r.units))
    if not operations:
        return drawn
    rows = 1.0 + _OWN_SHARE * (smaller(m, _OWN_ROWS) - 1.0)
    return join(rows * weights * operations / r.instructions, drawn, _PIPELINE_NORM)


def _at(values: Array, index: NDArray[np.intp]) -> Array:
    """One entry of the last axis for each row."""
    one: Array = values[index] if values.ndim == 1 else values[np.arange(len(values)), index]
    return one


def price_gemm(columns: tuple[Column, ...], kernel: GemmKernel, architecture: str, r: Rates) -> Prices:
    """Time of the fastest candidate for each row; columns as ``COLUMNS['gemm']``, each (rows,) or one number."""
    c, rows = kernel.on(architecture, r.clock), columns[0].size
    if columns[0].ndim == 0 or 0 < rows <= _ROWS_AT_ONCE:
        best = _best(columns, kernel, architecture, r)
    else:
        parts = [
            _best(tuple(column[start : start + _ROWS_AT_ONCE] for column in columns), kernel, architecture, r)
            for start in range(0, max(rows, 1), _ROWS_AT_ONCE)
        ]
        best = _Best(*map(np.concatenate, zip(*parts, strict=True)))
    seconds, moved = best.seconds, best.moved
    if kernel.quantise:
        cast, time = _cast(columns, kernel, architecture, r)
        moved, seconds = moved + cast, seconds + time
    if kernel.expands:
        m, n, k, groups, _, w_bytes = columns[:6]
        many = m > float(kernel.expands)
        written = many * groups * n * k * (w_bytes + _UNQUANTISED_BYTES)
        moved, seconds = moved + written, seconds + many * r.launch + r.stream(written, c.bandwidth)
    work = (gemm_work(columns)[0], moved)
    return summarise(r.launch + c.setup, seconds, work=work, sides=(best.compute, best.memory))


def _cast(columns: tuple[Column, ...], kernel: GemmKernel, architecture: str, r: Rates) -> tuple[Column, Column]:
    """Bytes and seconds of the kernel's own quantise pass: it reads 16 bit, once or twice, and writes X."""
    m, _, k, groups, x_bytes, *_ = columns
    c = kernel.on(architecture, r.clock)
    moved = groups * m * k * (kernel.quantise * _UNQUANTISED_BYTES + x_bytes)
    if r.resident:
        reuse = Reuse(columns, kernel.quantise, r, architecture)
        return moved, reuse.seconds(reuse.cast(), c.bandwidth, r) + c.row * m * groups
    return moved, r.stream(moved, c.bandwidth) + c.row * m * groups


def explain(columns: tuple[Column, ...], kernel: GemmKernel, architecture: str, r: Rates) -> dict[str, Any]:
    """The winning candidate of one row (columns are numbers): tile, split, tiles in flight, waves, last wave."""
    table, best = _table(kernel, architecture, r), _best(columns, kernel, architecture, r)
    if best.split == _VECTOR:
        tile, split = (1, _VECTOR_COLUMNS), 1
        ctas = float(np.ceil(columns[1] / _VECTOR_COLUMNS))
    else:
        blocks, time = _tiled(columns, table, r)
        index = int(time[:, best.split].argmin())
        tile, split = kernel.tiles_on(architecture)[index], kernel.splits[int(best.split)]
        ctas = float(blocks[index, 0]) * split
    waves = np.ceil(ctas / r.units)
    (rows, cols), k, x_bytes, w_bytes = tile, columns[2], columns[4], columns[5]
    return {
        "tile": tile,
        "split": split,
        "tiles": int(ctas),
        "waves": int(waves),
        "last_wave_occupancy": (ctas - (waves - 1.0) * r.units) / r.units,
        "l2_bytes": float(ctas * (rows * x_bytes + cols * w_bytes) * k / split),
        "compute_s": float(best.compute),
        "memory_s": float(best.memory),
        "launch_s": r.launch + table.constants.setup,
    }
