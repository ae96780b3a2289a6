"""How kernels cut their work: tiles, waves of them, and what they draw from L2, for who asks why a kernel takes as long
as it does. Prices come from ``pricing``; nothing here is part of one."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from rapid_llm.dtypes import dtype as number_format
from rapid_llm.hardware.accelerator import Accelerator
from rapid_llm.nouns import replaced
from rapid_llm.operators import attention, experts, gemm
from rapid_llm.operators.families import VALUES, Column
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
from rapid_llm.operators.rates import Rates, rates

Row = tuple[Column, ...]
Cut = dict[str, Any]


def explain(
    family: str, columns: Mapping[str, float], *, dtype: str, implementation: str, accelerator: Accelerator
) -> Cut:
    """How a kernel cuts one row: ``tile`` and what its ``sides`` are, ``tiles`` of them, ``waves``, share of the
    units that the last wave has work for, ``split`` of the dimension that is summed over, ``l2_bytes`` that tiles draw;
    ``runs``: the implementation that serves the row. Empty where work is a stream of bytes.
    """
    row: Row = tuple(map(np.float64, VALUES[family](columns)))  # type: ignore[arg-type]
    architecture, chosen = accelerator.architecture, kernel(implementation)
    if chosen.computes and accelerator.rate(number_format(chosen.computes).rate) is not None:
        dtype = chosen.computes
    r = rates(accelerator, dtype)
    if isinstance(chosen, AttentionKernel):
        chosen = _serving(row, chosen, architecture)
    shaped, constants = built(chosen, architecture, r.clock)
    match shaped:
        case GemmKernel():
            why = gemm.explain(row, shaped, architecture, r)
            kept = ("tile", "split", "tiles", "waves", "last_wave_occupancy", "l2_bytes")
            found = {"sides": "rows x columns", **{key: why[key] for key in kept}}
        case AttentionKernel():
            found = _context(row, shaped, r)
        case DecodeKernel():
            found = _decode(row, shaped, constants, r)
        case MoeKernel() | TiledMoeKernel():
            found = _experts(row, shaped, constants, r)
        case ScanKernel():
            found = _scan(row, shaped, r)
        case ConvolutionKernel():
            found = _convolution(row, shaped, r)
        case _:
            return {}
    return {"runs": shaped.name, **found}


def _serving(row: Row, chosen: AttentionKernel, architecture: str) -> Kernel:
    """The kernel that serves a row of attention: the one that was asked for, or a partner that it names."""
    shaped = chosen.shaped(architecture)
    assert isinstance(shaped, AttentionKernel)
    decode, small = bool(attention.is_decode(row)), row[10] <= 1.0
    for name, wanted in (
        (shaped.latent, row[5] != row[6]),
        (shaped.otherwise, float(row[5]) in shaped.odd_heads),
        (shaped.cached_8bit, small and not decode),
    ):
        partner = kernel(name) if name and wanted else None
        if isinstance(partner, AttentionKernel) and partner.name != shaped.name:
            return _serving(row, partner, architecture)
    if not decode:
        return shaped
    return kernel((shaped.decode_8bit if small else None) or shaped.decode)


def _number(value: float) -> Column:
    """A number as the columns of one row are: it has a shape."""
    return np.float64(value)  # type: ignore[return-value]


def _cut(tile: tuple[float, ...], sides: str, tiles: float, r: Rates, *, split: float = 1.0, l2_bytes: float) -> Cut:
    """The answer for ``tiles`` that all run at once on so many units as there are."""
    waves = np.ceil(tiles / r.units)
    return {
        "tile": tuple(int(side) for side in tile),
        "sides": sides,
        "split": round(float(split), 1),
        "tiles": int(np.ceil(tiles)),
        "waves": int(waves),
        "last_wave_occupancy": float((tiles - (waves - 1.0) * r.units) / r.units),
        "l2_bytes": float(l2_bytes),
    }


def _context(row: Row, chosen: AttentionKernel, r: Rates) -> Cut:
    """Tiles of queries, each of which visits the keys that it may see."""
    batch, new, _, heads, kv_heads, dim, v_dim, *_, kv_bytes, _ = row
    group = heads / kv_heads if chosen.packed else 1.0
    most, keys = attention._tiles(chosen, dim)
    rows = min(float(most), float(np.ceil(new * group / chosen.query_pad) * chosen.query_pad))
    per_head = np.ceil(new * group / rows)
    seen, _ = attention._visited(per_head, _number(float(rows / group)), keys, row)
    tiles = float(batch * heads / group * per_head)
    drawn = tiles * (rows * dim * 2.0 + seen * (dim + v_dim) * kv_bytes)
    return _cut((rows, float(keys)), "queries x keys", tiles, r, l2_bytes=float(drawn))


def _decode(row: Row, chosen: DecodeKernel, constants: Any, r: Rates) -> Cut:
    """Work items of a sequence's heads over its cache, in parts where that is faster or the kernel's rule."""
    batch, _, past, heads, kv_heads, dim, v_dim, window, _, _, kv_bytes, shared = row
    group = heads / kv_heads
    inside = group if attention._shares_item(group, batch * kv_heads, past, chosen, r.units) else np.float64(1.0)
    few = inside <= chosen.narrow
    rows = float(min(inside, chosen.query_pad if few else chosen.query_tile))
    items = float(batch * heads / inside * np.ceil(inside / (chosen.query_pad if few else chosen.query_tile)))
    step = float(chosen.kv_tile if inside == group else chosen.lone_tile)
    length = float(attention._tiled(past, window, _number(step)))
    split = _parts(row, (items, inside == group), chosen, constants, r)
    drawn = items * length * float(dim + v_dim * (shared <= 0)) * float(kv_bytes)
    return _cut((rows, step), "query heads x keys", items * split, r, split=split, l2_bytes=drawn)


def _parts(row: Row, work: tuple[float, bool], chosen: DecodeKernel, constants: Any, r: Rates) -> float:
    """Parts that each item's keys are split into: the kernel's rule, or so many as fill the units where that pays;
    ``work``: how many items there are, and whether query heads share them."""
    items, together = work
    if together and (chosen.waves > 0 or chosen.parts > 0):
        return float(chosen.parts or attention._parts(row[2], _number(items), chosen, r))
    whole = replaced(chosen, most_splits=1)
    if float(attention.price_decode(row, whole, constants, r).seconds) <= float(
        attention.price_decode(row, chosen, constants, r).seconds
    ):
        return 1.0
    room = r.units // items if together or not chosen.rounds else float(np.ceil(r.units / items))
    most = min(float(row[2]) / chosen.split_tokens + 0.5, room, float(chosen.most_splits))
    return float(np.floor(max(most, 1.0)))


def _experts(row: Row, chosen: MoeKernel | TiledMoeKernel, constants: Any, r: Rates) -> Cut:
    """Tiles of both grouped products: each expert's rows in whole tiles."""
    rows, hit, largest, pairs, _, count, hidden, inter, matrices, x_bytes, w_bytes = row
    if isinstance(chosen, TiledMoeKernel):
        if experts._searched(row, chosen):
            gemms = experts._by_tile(row, chosen, constants, r, experts._handed_on(row, chosen))
            tile: tuple[float, ...] = min(experts._SEARCHED, key=lambda one: float(gemms(one)[0]))
        else:
            tile = tuple(float(side) for side in experts._chosen(row, chosen))
    else:
        loads = experts._spread(rows, hit, largest)
        heights = experts._up_to(chosen.row_tile)
        if chosen.pairs_a_row is None:
            least = min(heights, key=lambda one: float(experts._turns(np.float64(one), loads, row, r)))
        else:
            least = float(experts._launched(pairs / count / chosen.pairs_a_row, chosen.row_tile))
        tile = (float(least), experts._WIDE)
    high = float(experts.row_tiles(rows, hit, largest, tile[0]))
    first, second = (float(np.ceil(n / tile[1])) for n in (inter * (matrices - 1.0), hidden))
    operands = tile[0] * float(x_bytes) + tile[1] * float(w_bytes)
    drawn = high * (first * float(hidden) + second * float(inter)) * operands
    cut = _cut(tile[:2], "rows x columns, of both products", high * (first + second), r, l2_bytes=drawn)
    waves = [np.ceil(high * wide / r.units) for wide in (first, second)]
    last = high * second - (waves[1] - 1.0) * r.units
    return {**cut, "waves": int(sum(waves)), "last_wave_occupancy": float(last / r.units)}


def _scan(row: Row, chosen: ScanKernel, r: Rates) -> Cut:
    """Heads of sequences, whose chunks one kernel walks or a chain of kernels spreads over the units."""
    batch, new, heads, key_dim, value_dim, *_ = row
    chunk = min(float(chosen.chunk_tokens), float(new))
    items = float(batch * heads) * (1.0 if chosen.fused else float(np.ceil(new / chosen.chunk_tokens)))
    sides = "tokens of a head at a time" if chosen.fused else "tokens of a head"
    tokens = float(batch * heads * new * (key_dim * 2.0 + value_dim * 2.0)) * 2.0
    return _cut((chunk,), sides, items, r, l2_bytes=tokens)


def _convolution(row: Row, chosen: ConvolutionKernel, r: Rates) -> Cut:
    """Blocks of channels, of a chunk of tokens each or walking a whole sequence."""
    batch, new, channels, width, x_bytes, _ = row
    decode = float(new) == 1.0
    wide = float(chosen.update_channels if decode else chosen.channels)
    chunk = min(float(new), float(chosen.chunk_tokens))
    chunks = 1.0 if chosen.walks else float(np.ceil(new / chosen.chunk_tokens))
    blocks = float(batch * np.ceil(channels / wide)) * chunks
    drawn = (
        blocks * wide * (chunk + float(width) - 1.0) * float(x_bytes) * (np.ceil(new / chunk) if chosen.walks else 1.0)
    )
    return _cut((chunk, wide), "tokens x channels", blocks, r, l2_bytes=float(drawn))
