"""Tokens of the experts of rank 0 in the public MoE tables, as their collector dealt them out (aiconfigurator,
``helper.py`` and ``collect_moe.py``)."""

from collections.abc import Mapping
from functools import lru_cache
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

Counts = NDArray[np.int64]
Cells = Mapping[str, NDArray[np.str_]]

_DRAWS: Final = 5  # of a power law, as many as the collector times
_PACKED: Final = ("0.14.0", "1.0.0")  # of vLLM, of TensorRT-LLM
_GROUPS: Final = (8, 4)  # groups of experts of DeepSeek-V3's router, and how many a token may choose from
_GROUPED: Final = ("7168", "256", "8")  # hidden size, experts and experts per token of its layers


class Routed(NamedTuple):
    """Tokens of the whole expert group, choices of each, experts, and ranks that share them."""

    tokens: int
    topk: int
    experts: int
    ep: int


class Loads(NamedTuple):
    """Means over the draws: pairs and hit experts of rank 0, pairs of its most loaded expert, pairs and tokens seen."""

    rows: float
    hit: float
    largest: float
    pairs: float
    tokens: float


def loads_of(cells: Cells) -> dict[str, NDArray[np.float64]]:
    """Columns ``rows``, ``hit``, ``largest``, ``pairs``, ``tokens`` and ``experts`` of each row of an MoE table."""
    whole = [cells[name].astype(np.float64).astype(int) for name in Routed._fields]
    rows = zip(*whole, cells["dist"], _how(cells), strict=True)
    found = [loads(Routed(*map(int, row)), str(dist), how) for *row, dist, how in rows]
    table = np.array(found, dtype=np.float64).reshape(-1, len(Loads._fields)).T
    local = np.maximum(whole[2] // whole[3], 1).astype(np.float64)
    return {**dict(zip(Loads._fields, table, strict=True)), "experts": local}


def _how(cells: Cells) -> list[str]:
    """How tokens were dealt to experts in each row. ``first``: SGLang 0.5.10 ran the tokens that chose any local
    expert, and assigned their other choices to expert 0. ``packed``: in older tables what rounding lost went to
    neighbouring experts. ``grouped``: later engines route layers of DeepSeek-V3 by its groups.
    """
    engine, version = cells["framework"], cells["version"]
    first = (engine == "sglang") & (version == "0.5.10")
    packed = np.isin(version, _PACKED)
    layer = np.logical_and.reduce([cells[n] == v for n, v in zip(("hidden", "experts", "topk"), _GROUPED, strict=True)])
    grouped = layer & np.isin(engine, ("vllm", "sglang"))
    return [str(word) for word in np.select([first, packed, grouped], ["first", "packed", "grouped"], "local")]


@lru_cache(maxsize=16384)
def loads(routed: Routed, dist: str, how: str = "local") -> Loads:
    """The loads of rank 0; ``dist`` is ``bal`` (tokens dealt round-robin), ``even<experts>`` (to so many alone) or
    ``pl<exponent>`` (a truncated power law, its most loaded rank put first)."""
    local = max(routed.experts // routed.ep, 1)
    if dist.startswith("even"):
        pairs, hit = routed.tokens * routed.topk, int(dist.removeprefix("even"))
        return Loads(pairs, hit, -(-pairs // hit), pairs, routed.tokens)
    if dist == "bal":
        chosen = _dealt(routed)
        counts = _regrouped(chosen, routed.experts) if how == "grouped" else _counted(chosen, routed.experts)
        drawn = [(counts[:local], int((chosen < local).any(axis=1).sum()))]
    else:
        rng, exponent = np.random.default_rng(0), float(dist.removeprefix("pl"))
        whole = [_draw(routed, exponent, rng, packed=how == "packed") for _ in range(_DRAWS)]
        drawn = [(counts[:local], _touching(counts, routed.tokens, local)) for counts in whole]
    return Loads(*np.mean([_seen(counts, touching, routed, how) for counts, touching in drawn], axis=0))


def _seen(counts: Counts, touching: int, routed: Routed, how: str) -> Loads:
    """What one draw gives the kernel: ``counts`` of the local experts, ``touching`` tokens that chose any."""
    tokens, topk = routed.tokens, routed.topk
    if how == "first":
        counts, tokens = counts.copy(), touching
        counts[0] += touching * topk - counts.sum()
    return Loads(counts.sum(), (counts > 0).sum(), counts.max(), tokens * topk, tokens)


def _counted(chosen: Counts, experts: int) -> Counts:
    counts = np.zeros(experts, dtype=np.int64)
    np.add.at(counts, chosen, 1)
    return counts


def _dealt(routed: Routed) -> Counts:
    """Experts of each token, round-robin, array (tokens, topk)."""
    tokens, topk, experts, _ = routed
    stride = -(-experts // topk)
    first = np.arange(tokens) * (1.0 if tokens >= stride else stride / tokens)
    dealt: Counts = ((first[:, None] + np.arange(topk) * stride) % experts).astype(np.int64)
    return dealt


def _regrouped(chosen: Counts, experts: int) -> Counts:
    """Tokens of each expert under a group-limited router that finds all groups equal: choices within the first groups
    stand, the others fall on the lowest numbered experts that are left."""
    groups, kept = _GROUPS
    stand = chosen < experts // groups * kept
    lowest = np.arange(2 * chosen.shape[1])
    free = (chosen[:, :, None] != lowest).all(axis=1)
    taken = free & (free.cumsum(axis=1) <= (~stand).sum(axis=1, keepdims=True))
    counts = _counted(chosen[stand], experts)
    counts[lowest] += taken.sum(axis=0)
    return counts


def _draw(routed: Routed, exponent: float, rng: np.random.Generator, *, packed: bool) -> Counts:
    """Tokens of each expert in one draw, by the inverse of the distribution, the most loaded rank first.

    What rounding lost goes to the least loaded experts of each rank in turn, or (``packed``) of all, last ones first.
    """
    tokens, topk, experts, ep = routed
    power = 1.0 - exponent
    low, high = (1.0, 0.8 * tokens) if tokens * topk > experts else (0.01, 2.0)
    draw = ((high**power - low**power) * rng.random(experts) + low**power) ** (1.0 / power)
    counts = np.round(draw / draw.sum() * tokens * topk).astype(np.int64)
    counts = np.minimum(counts, tokens)
    missing = tokens * topk - int(counts.sum())
    if packed and missing > 0:
        last = np.argsort(-counts, kind="stable")[::-1]
        counts += np.bincount(last[np.arange(missing) % experts], minlength=experts)
        missing = 0
    counts = counts.reshape(ep, -1)
    for rank, share in enumerate(np.diff(np.linspace(0, abs(missing), ep + 1).round().astype(int))):
        _level(counts[rank], int(share) if missing > 0 else -int(share), tokens)
    hot = int(counts.sum(axis=1).argmax())
    counts[[0, hot]] = counts[[hot, 0]]
    return np.concatenate(list(counts))


def _level(counts: Counts, missing: int, cap: int) -> None:
    """In place, give what rounding lost to the least loaded experts of a rank, or take a surplus
    off the most loaded.
    """
    while missing < 0 < counts.max():
        counts[counts.argmax()] -= 1
        missing += 1
    while missing > 0 and counts.min() < cap:
        least = counts.min()
        lowest = np.flatnonzero(counts == least)[:missing]
        above = counts[counts > least]
        rise = max(min(int(above.min()) if len(above) else cap, cap) - least, 1)
        rise = min(rise, max(missing // len(lowest), 1))
        counts[lowest] += rise
        missing -= rise * len(lowest)


def _touching(counts: Counts, tokens: int, local: int) -> int:
    """Tokens that chose any of the first ``local`` experts: experts in order of their load take tokens in turn."""
    order = np.argsort(-counts, kind="stable")
    mine, taken = order < local, counts[order]
    begin = (np.cumsum(taken) - taken)[mine] % tokens
    end = begin + taken[mine]
    change = np.zeros(tokens + 1, dtype=np.int64)
    np.add.at(change, begin, 1)
    np.add.at(change, np.minimum(end, tokens), -1)
    wrapped = end[end > tokens] - tokens
    np.add.at(change, wrapped, -1)
    change[0] += len(wrapped)
    return int((np.cumsum(change[:-1]) > 0).sum())
