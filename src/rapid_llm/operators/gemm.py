"""Matrix multiplication: tiles, waves, split-K and the bandwidth that one compute unit reaches by itself.

For each candidate tile (bm, bn) and split s, with S compute units::

    CTA = groups ceil(m/bm) ceil(n/bn) s,  waves = ceil(CTA / S)
    Tc  = waves (2 bm bn ceil(k/s) S / (P rate) + tile)
    Tm  = max(B / (bandwidth HBM), (bm x + bn w) k/s / (unit_share HBM / S))
    T   = (Tc^p + Tm^p)^(1/p) + [s > 1] (split + 4 s m n / (bandwidth HBM))

with B the compulsory bytes and x, w bytes per element: a few tiles cannot stream as fast as many. t = launch + setup +
min T over the candidates; every term grows with m, n and k, and so does t (tile quantisation: NVIDIA, "Matrix
multiplication background user's guide"; split-K: CUTLASS).
"""

from functools import lru_cache
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rapid_llm.operators.families import Column, Prices
from rapid_llm.operators.kernels import GemmConstants, GemmKernel
from rapid_llm.operators.rates import Rates
from rapid_llm.operators.summary import summarise
from rapid_llm.operators.work import gemm_work

_LEAST_SPLIT_K: Final = 128.0  # a split keeps at least this much of k, or it is all prologue
_PARTIAL_BYTES: Final = 4.0  # partial sums are fp32
_UNQUANTISED_BYTES: Final = 2.0  # activations before a kernel's own quantise pass are 16 bit
_REPLAYED_SETS: Final = 3.5  # benchmarks of GEMMs rotate weights (fitted on L40S, see rates)
_ROWS_AT_ONCE: Final = 512  # keeps the candidates of one block of rows in cache


class _Table(NamedTuple):
    """What depends on kernel and accelerator alone; arrays (tile, split)."""

    rows: NDArray[np.float64]
    cols: NDArray[np.float64]
    splits: NDArray[np.float64]
    per_k: NDArray[np.float64]
    bandwidth: float


@lru_cache(maxsize=256)
def _table(tiles: tuple[tuple[int, int], ...], splits: tuple[int, ...], c: GemmConstants, r: Rates) -> _Table:
    bm, bn = (np.array(side, dtype=float)[:, None] for side in zip(*tiles, strict=True))
    per_k = 2.0 * bm * bn * r.units / (r.peak * c.rate)
    return _Table(bm, bn, np.array(splits, dtype=float)[None, :], per_k, r.hbm * c.bandwidth)


def _candidates(columns: tuple[Column, ...], kernel: GemmKernel, c: GemmConstants, r: Rates) -> dict[str, Any]:
    """Time of every candidate, arrays (row, tile, split), and what it was formed from."""
    m, n, k, groups = (column[:, None, None] for column in columns[:4])
    table = _table(kernel.tiles, kernel.splits, c, r)
    streamed = r.stream(gemm_work(columns)[1], c.bandwidth, _REPLAYED_SETS)[:, None, None]
    ctas = groups * np.ceil(m / table.rows) * np.ceil(n / table.cols) * table.splits
    waves = np.ceil(ctas / r.units)
    depth = np.ceil(k / (table.splits * kernel.k_step)) * kernel.k_step
    compute = waves * (depth * table.per_k + c.tile)
    x_bytes, w_bytes = (column[:, None, None] for column in columns[4:6])
    edge = np.minimum(m, table.rows) * x_bytes + np.minimum(n, table.cols) * w_bytes
    memory = np.maximum(streamed, edge * (k / table.splits) * (r.units / (c.unit_share * r.hbm)))
    joined = (compute**c.overlap + memory**c.overlap) ** (1.0 / c.overlap)
    extra = c.split + table.splits * (groups * m * n * (_PARTIAL_BYTES / table.bandwidth))
    joined += np.where(table.splits > 1.0, np.where(k >= _LEAST_SPLIT_K * table.splits, extra, np.inf), 0.0)
    return {"seconds": joined, "compute": compute, "memory": memory, "ctas": ctas, "waves": waves}


def price_gemm(columns: tuple[Column, ...], kernel: GemmKernel, c: GemmConstants, r: Rates) -> Prices:
    """Time of the fastest tile and split for each row; columns as ``COLUMNS['gemm']``, each (rows,)."""
    rows = len(columns[0])
    seconds, compute, memory = np.empty(rows), np.empty(rows), np.empty(rows)
    for start in range(0, rows, _ROWS_AT_ONCE):
        part = slice(start, start + _ROWS_AT_ONCE)
        found = _candidates(tuple(column[part] for column in columns), kernel, c, r)
        flat = found["seconds"].reshape(found["seconds"].shape[0], -1)
        best = np.arange(len(flat)), np.argmin(flat, axis=1)
        seconds[part] = flat[best]
        compute[part] = found["compute"].reshape(flat.shape)[best]
        memory[part] = found["memory"].reshape(flat.shape)[best]
    flops, moved = gemm_work(columns)
    if kernel.quantise:
        m, k, groups, x_bytes = columns[0], columns[2], columns[3], columns[4]
        cast = groups * m * k * (_UNQUANTISED_BYTES + x_bytes)
        moved, seconds = moved + cast, seconds + cast / (r.hbm * c.bandwidth)
    return summarise(r.launch + c.setup, seconds, work=(flops, moved), sides=(compute, memory))


def explain(columns: tuple[Column, ...], kernel: GemmKernel, c: GemmConstants, r: Rates) -> dict[str, Any]:
    """The winning candidate of one row (each column of length 1): tile, split, tiles in flight, waves, last wave."""
    found = _candidates(columns, kernel, c, r)
    shape = found["seconds"].shape
    _, tile, split = (int(i) for i in np.unravel_index(int(np.argmin(found["seconds"])), shape))
    ctas = float(found["ctas"][0, tile, split])
    waves = float(found["waves"][0, tile, split])
    return {
        "tile": kernel.tiles[tile],
        "split": kernel.splits[split],
        "tiles": int(ctas),
        "waves": int(waves),
        "last_wave_occupancy": (ctas - (waves - 1.0) * r.units) / r.units,
        "compute_s": float(found["compute"][0, tile, split]),
        "memory_s": float(found["memory"][0, tile, split]),
        "launch_s": r.launch + c.setup,
    }
