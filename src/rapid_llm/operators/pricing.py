"""From columns to seconds: the one function that the rooms above call."""

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from typing import Any, Final, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rapid_llm.dtypes import dtype as number_format
from rapid_llm.errors import InputError
from rapid_llm.hardware.accelerator import Accelerator
from rapid_llm.nouns import replaced
from rapid_llm.operators import gemm
from rapid_llm.operators.attention import is_decode, price_context, price_decode
from rapid_llm.operators.elementwise import every, isin, some, where
from rapid_llm.operators.experts import price_moe, price_tiled_moe
from rapid_llm.operators.families import ATTENTION_KINDS, COLUMNS, MAY_BE_ZERO, POINTWISE_KINDS, VALUES, Column, Prices
from rapid_llm.operators.kernels import (
    AttentionKernel,
    ConvolutionKernel,
    DecodeKernel,
    GemmKernel,
    Kernel,
    MoeKernel,
    ScanKernel,
    TiledMoeKernel,
    built,
    kernel,
)
from rapid_llm.operators.others import price_convolution, price_pointwise, price_scan
from rapid_llm.operators.rates import Rates, Replay, rates
from rapid_llm.operators.summary import summarise
from rapid_llm.operators.work import WORK

MOST: Final = 1e18
"""Of one size of a shape, bytes and FLOPs too: products of several stay finite."""
_MOST_KV_HEADS: Final = 1024  # that are looked through for what divides


def check_shape(family: str, columns: Mapping[str, ArrayLike]) -> None:
    """InputError for a size that must be positive and is not (what may be zero: past, window, flags, bytes, FLOPs)."""
    for name in COLUMNS[family]:
        least, most = np.min(columns[name]), np.max(columns[name])
        if not most <= MOST:  # a number that is none is no less
            raise InputError(f"{family}: {name} must be at most {MOST:g} (got {most:g}). Try 4096.", field=name)
        if not least > 0 and name not in MAY_BE_ZERO:
            raise InputError(f"{family}: {name} must be positive (got {least:g}). Try 1.", field=name)
        if least < 0:
            raise InputError(f"{family}: {name} must not be negative (got {least:g}). Try 0.", field=name)
    if family == "attention":
        _check_heads(*np.broadcast_arrays(np.atleast_1d(columns["heads"]), np.atleast_1d(columns["kv_heads"])))


def _check_heads(heads: NDArray[Any], kv_heads: NDArray[Any]) -> None:
    """InputError where query heads do not divide among those of K and V."""
    odd = np.mod(heads, kv_heads).nonzero()[0]
    if not len(odd):
        return
    asked, among = int(heads[odd[0]]), int(kv_heads[odd[0]])
    fits = next(count for count in range(min(among, asked, _MOST_KV_HEADS), 0, -1) if asked % count == 0)
    raise InputError(
        f"attention: heads must be a multiple of kv_heads (got {asked} and {among}). Try kv_heads {fits}.",
        field="kv_heads",
    )


_NUMBERS: Final = frozenset((int, float, np.float64))
_Kind = str | NDArray[np.int64]
_Asked = tuple[_Kind, str, str | Kernel, Accelerator, float, bool | Replay]
"""How rows are priced: kind, dtype, kernel, accelerator, clock, replayed."""


def _columns(values: Sequence[ArrayLike]) -> tuple[Column, ...]:
    """Columns as float64 arrays of one length."""
    arrays = [np.asarray(value, dtype=np.float64) for value in values]
    if len({a.shape for a in arrays}) > 1 or arrays[0].ndim != 1:
        arrays = list(np.broadcast_arrays(*(np.atleast_1d(a) for a in arrays)))
    return tuple(arrays)


def price(
    family: str,
    columns: Mapping[str, ArrayLike],
    *,
    kind: _Kind = "stream",
    dtype: str,
    kernel: str | Kernel,
    accelerator: Accelerator,
    clock: float = 1.0,
    replayed: bool | Replay = False,
) -> Prices:
    """Seconds of each row on one accelerator.

    ``columns`` as ``families.COLUMNS[family]``; ``kind`` names the access pattern of pointwise rows, or holds an
    index into POINTWISE_KINDS for each, as rows of attention may one into ATTENTION_KINDS; it is ignored elsewhere.
    ``dtype`` is the compute dtype; ``kernel`` an implementation or its name. The constants of kernels hold at the boost
    clock; a phase that keeps the matrix units busy for long (training, large prefill) passes
    ``clock=accelerator.sustained.clock``, which slows the compute side and leaves memory alone.
    ``replayed`` prices a benchmark that repeats one kernel on buffers that L2 may hold; a model never does.

    InputError where the accelerator has no rate for the dtype, or the kernel serves another family.
    """
    values = VALUES[family](columns)
    asked = (kind, dtype, kernel, accelerator, clock, replayed)
    try:
        return _one(family, values, asked)
    except TypeError:  # arrays have no hash
        return _priced(family, _columns(values), asked)


def price_rows(
    family: str,
    cells: NDArray[np.float64],
    *,
    kind: _Kind,
    dtype: str,
    kernel: str,
    accelerator: Accelerator,
    clock: float,
) -> Prices:
    """``price`` of rows that stand in one array [columns, rows], in the order of ``families.COLUMNS``."""
    return _priced(family, tuple(cells), (kind, dtype, kernel, accelerator, clock, False))


@lru_cache(maxsize=4096)
def _one(family: str, values: tuple[float, ...], asked: _Asked) -> Prices:
    """The price of a row that is given in numbers; it is cached, so callers must not change it."""
    alone = _NUMBERS.issuperset(map(type, values))
    return _as_row(_priced(family, tuple(map(np.float64, values)) if alone else _columns(values), asked))  # type: ignore[arg-type]


def _as_row(prices: Prices) -> Prices:
    """Prices of numbers as read-only columns of one row."""
    values = np.array(prices.columns, ndmin=2)
    values.flags.writeable = False
    return Prices(*(values.T if values.shape[0] == 1 else values))


def _priced(family: str, columns: tuple[Column, ...], asked: _Asked) -> Prices:
    kind, dtype, kernel, accelerator, clock, replayed = asked
    chosen = _kernel(kernel) if isinstance(kernel, str) else kernel
    if chosen.family != family and not (family == "attention" and chosen.family == "decode"):
        raise InputError(
            f"kernel {chosen.name} serves {chosen.family}, not {family}. Try a kernel of the family {family}.",
            field=f"kernels.{family}",
        )
    if chosen.computes and accelerator.rate(number_format(chosen.computes).rate) is not None:
        dtype = chosen.computes
    known = rates(accelerator, dtype, clock=clock, replayed=replayed)
    return _price(chosen, columns, kind, known, accelerator.architecture)


_kernel = kernel
_SINKS: Final = ATTENTION_KINDS.index("sinks")


def _price(chosen: Kernel, columns: tuple[Column, ...], kind: _Kind, r: Rates, architecture: str) -> Prices:
    if isinstance(chosen, AttentionKernel):
        return _of_kinds(columns, chosen, kind, r, architecture)
    chosen, constants = built(chosen, architecture, r.clock)
    match chosen:
        case GemmKernel():
            return gemm.price_gemm(columns, chosen, architecture, r)
        case DecodeKernel():
            return price_decode(columns, chosen, constants, r)
        case MoeKernel():
            return price_moe(columns, chosen, constants, r)
        case TiledMoeKernel():
            return price_tiled_moe(columns, chosen, constants, r)
        case ScanKernel():
            return price_scan(columns, chosen, constants, r)
        case ConvolutionKernel():
            return price_convolution(columns, chosen, constants, r)
        case _:
            if isinstance(kind, str) and kind not in POINTWISE_KINDS:
                raise InputError(f"kind must be one of {', '.join(POINTWISE_KINDS)} (got {kind}).")
            return price_pointwise(columns, kind, constants, r)


@lru_cache(maxsize=256)
def _without(chosen: AttentionKernel, sibling: str) -> AttentionKernel:
    """The kernel without one of its siblings."""
    return replaced(chosen, **{sibling: None})


@lru_cache(maxsize=256)
def _decoded_in_8_bits(chosen: AttentionKernel) -> AttentionKernel:
    """The kernel with the decode partner of a cache in 8 bits as its only one."""
    return replaced(chosen, decode=chosen.decode_8bit or chosen.decode, decode_8bit=None)


@lru_cache(maxsize=256)
def _over_8_bits(chosen: AttentionKernel, architecture: str) -> AttentionKernel:
    """The sibling for many queries over a cache in 8 bits, beside the decode partner that one query has there."""
    sibling = cast(AttentionKernel, _kernel(cast(str, chosen.cached_8bit)).shaped(architecture))
    return replaced(sibling, decode=_decoded_in_8_bits(chosen).decode, decode_8bit=None)


def _of_kinds(columns: tuple[Column, ...], chosen: AttentionKernel, kind: _Kind, r: Rates, architecture: str) -> Prices:
    """Rows with sinks go to the partner that has a place for them, if the kernel names one on an architecture."""
    chosen = cast(AttentionKernel, chosen.shaped(architecture))
    if not chosen.sinks or isinstance(kind, str) or not some(sinks := kind == _SINKS):
        return _attention(columns, chosen, r, architecture)
    partner = cast(AttentionKernel, _kernel(chosen.sinks).shaped(architecture))
    return _merge(columns, sinks, lambda rows, mine: _attention(rows, partner if mine else chosen, r, architecture))


def _attention(columns: tuple[Column, ...], chosen: AttentionKernel, r: Rates, architecture: str) -> Prices:
    """Rows with one query go to the kernel's decode partner, rows of latent attention to its latent partner; the kernel
    as it is on the architecture."""
    if chosen.latent and some(latent := columns[5] != columns[6]):
        partner = cast(AttentionKernel, _kernel(chosen.latent).shaped(architecture))
        return _merge(
            columns, latent, lambda rows, mine: _attention(rows, partner if mine else chosen, r, architecture)
        )
    if chosen.otherwise and some(found := isin(columns[5], chosen.odd_heads)):
        odd = cast("NDArray[np.bool_]", found)  # of columns; of numbers, whether the one row is
        partner = cast(AttentionKernel, _kernel(chosen.otherwise).shaped(architecture))
        plain = _without(chosen, "otherwise")
        return _merge(columns, odd, lambda rows, mine: _attention(rows, partner if mine else plain, r, architecture))
    if chosen.cached_8bit and some(small := ~is_decode(columns) & (columns[10] <= 1.0)):
        eight, plain = _over_8_bits(chosen, architecture), _without(chosen, "cached_8bit")
        return _merge(columns, small, lambda rows, mine: _attention(rows, eight if mine else plain, r, architecture))
    if chosen.decode_8bit and some(small := is_decode(columns) & (columns[10] <= 1.0)):
        sibling, plain = _decoded_in_8_bits(chosen), _without(chosen, "decode_8bit")
        return _merge(columns, small, lambda rows, mine: _attention(rows, sibling if mine else plain, r, architecture))

    def one_query(rows: tuple[Column, ...]) -> Prices:
        return price_decode(rows, *built(_kernel(chosen.decode), architecture, r.clock), r)

    def queries(rows: tuple[Column, ...], cached: bool) -> Prices:
        tiled, constants = built(chosen, architecture, r.clock)
        if rows[0].shape == (1,):  # numbers cost a third of what columns of one row do
            prices = _as_row(price_context(tuple(column[0] for column in rows), tiled, constants, r))
        else:
            prices = price_context(rows, tiled, constants, r)
        if not cached:
            return prices
        small = chosen.decode_8bit is not None and some(rows[10] <= 1.0)
        alone = partial(_attention, chosen=chosen, r=r, architecture=architecture) if small else one_query
        few = rows[1] <= tiled.tiles[0][1]  # so few that one of them may take longer under a rule than all in a tile
        if cast(DecodeKernel, _kernel(chosen.decode).shaped(architecture)).ruled and some(few):
            prices = _no_less(prices, alone(_alone(rows, 0.0)), few)
        return _no_less(prices, alone(_alone(rows, rows[1] - 1.0)))

    def run(rows: tuple[Column, ...], decode: bool) -> Prices:
        return one_query(rows) if decode else _merge(rows, (rows[2] > 0.0) & (rows[9] == 0.0), queries)

    return _merge(columns, is_decode(columns), run)


def _alone(columns: tuple[Column, ...], before: float | Column) -> tuple[Column, ...]:
    """One of the queries alone, over the same cache and those ``before`` it."""
    batch, new, past, *rest = columns
    return (batch, new / new, past + before, *rest)


def _no_less(prices: Prices, least: Prices, among: bool | NDArray[np.bool_] = True) -> Prices:
    """Queries over a cache (drafts that are verified, chunks of a prompt) take no less than one of them alone,
    which another kernel with constants of its own prices; ``among``: in these rows."""
    longer = (least.seconds > prices.seconds) & among
    if not some(longer):
        return prices
    seconds, compute, memory, fixed = (
        where(longer, there, here)
        for there, here in (
            (least.seconds, prices.seconds),
            (least.compute_s, prices.compute_s),
            (least.memory_s, prices.memory_s),
            (least.fixed_s, prices.fixed_s),
        )
    )
    return Prices(seconds, prices.flops, prices.hbm_bytes, compute, memory, fixed)


def _merge(
    columns: tuple[Column, ...], mask: NDArray[np.bool_], run: Callable[[tuple[Column, ...], bool], Prices]
) -> Prices:
    """Price the rows inside and outside a mask apart, and put them back in order."""
    within = some(mask)
    if not within or every(mask):
        return run(columns, within)
    sides = [(_block(mask.nonzero()[0]), True), (_block((~mask).nonzero()[0]), False)]
    parts = [run(tuple(c[side] for c in columns), within).columns for side, within in sides]
    merged = []
    for inside, outside in zip(*parts, strict=True):
        column = np.empty(len(mask), inside.dtype)
        column[sides[0][0]], column[sides[1][0]] = inside, outside
        merged.append(column)
    return Prices(*merged)


def _block(rows: NDArray[np.intp]) -> NDArray[np.intp] | slice:
    """Rows as a slice, where they stand together: views cost less than copies."""
    first, last = int(rows[0]), int(rows[-1])
    return slice(first, last + 1) if last - first + 1 == len(rows) else rows


def roofline(family: str, columns: Mapping[str, ArrayLike], *, dtype: str, accelerator: Accelerator) -> Prices:
    """The datasheet roofline max(FLOPs / peak, bytes / HBM) of each row (s): no launch, no efficiency.

    A card that holds more than its rated clock has so much more of a peak. Pointwise rows count vector FLOPs against
    the vector rate (Williams, Waterman, Patterson 2009).
    """
    r = rates(accelerator, dtype)
    flops, moved = WORK[family](_columns(VALUES[family](columns)))
    compute = flops / (r.vector if family == "pointwise" else r.peak / min(accelerator.sustained.matrix, 1.0))
    memory = moved / r.datasheet
    return summarise(0.0, np.maximum(compute, memory), work=(flops, moved), sides=(compute, memory))


def explain_gemm(
    m: int,
    n: int,
    k: int,
    *,
    dtype: str,
    kernel: str,
    accelerator: Accelerator,
    groups: int = 1,
    x_bytes: float = 2.0,
    w_bytes: float = 2.0,
    y_bytes: float = 2.0,
) -> dict[str, Any]:
    """Why Y[m, n] = X[m, k] W[k, n] takes as long as it does: tile, waves, last wave, split, traffic, bound.

    Keys: seconds, roofline_s, flops, hbm_bytes, bound, flops_per_second and what ``gemm.explain`` adds.
    """
    values = (m, n, k, groups, x_bytes, w_bytes, y_bytes)
    columns = dict(zip(COLUMNS["gemm"], values, strict=True))
    chosen = _kernel(kernel)
    prices = price("gemm", columns, dtype=dtype, kernel=chosen, accelerator=accelerator)
    floor = roofline("gemm", columns, dtype=dtype, accelerator=accelerator)
    seconds, flops = float(prices.seconds[0]), float(prices.flops[0])
    found = gemm.explain(
        tuple(map(np.float64, values)),  # type: ignore[arg-type]
        cast(GemmKernel, chosen.shaped(accelerator.architecture)),
        accelerator.architecture,
        rates(accelerator, dtype),
    )
    return {
        "seconds": seconds,
        "roofline_s": float(floor.seconds[0]),
        "flops": flops,
        "hbm_bytes": float(prices.hbm_bytes[0]),
        "flops_per_second": flops / seconds,
        "bound": ("compute", "memory", "launch")[int(prices.bound[0])],
        "architecture": chosen.stands_in(accelerator.architecture),
        **found,
    }
