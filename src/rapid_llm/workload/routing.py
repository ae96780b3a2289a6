"""How tokens choose experts, and on which ranks these sit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from functools import lru_cache
from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BeforeValidator, Field
from pydantic.dataclasses import dataclass

from rapid_llm.documents import show
from rapid_llm.nouns import STRICT, hash_once
from rapid_llm.units import Positive, Whole

NATURAL_SKEW = 0.8
"""Of tokens over experts where nobody says: what the histograms of observed traces look like (TensorRT-LLM PR 19148,
``--expert_pattern powerlaw``, its default)."""

BY_CHANCE = 8
"""Ranks of an expert group up to which experts sit where their ids put them."""
LAYERS_DRAWN = 256
"""Layers over which the load of the hottest rank is averaged."""

Shares = NDArray[np.float64]
Rank = tuple[Whole, ...]


def _each_layer(counts: object) -> object:
    """Counts of one layer stand for all."""
    one = isinstance(counts, (list, tuple)) and counts and not any(isinstance(c, (list, tuple)) for c in counts)
    return (counts,) if one else counts


def _by_rank(placement: object) -> object:
    """The experts of each rank as lists in the order of ranks, which may also be keys of a mapping."""
    if placement is None or isinstance(placement, str):
        return placement
    if isinstance(placement, Mapping):
        ranks = {str(rank): ids for rank, ids in placement.items()}
        if sorted(ranks) != sorted(map(str, range(len(ranks)))):
            got = ", ".join(ranks)
            raise ValueError(f"must name ranks 0 to {len(ranks) - 1} (got {got}). Try {{0: [0, 1], 1: [2, 3]}}")
        placement = tuple(ranks[str(rank)] for rank in range(len(ranks)))
    if not (isinstance(placement, (list, tuple)) and placement and all(map(_ids, placement))):
        raise ValueError(
            f"must be greedy, or list the experts of each rank by ids from 0 (got {show(placement)}). "
            "Try [[0, 1], [2, 3]]"
        )
    return placement


def _ids(rank: object) -> bool:
    return isinstance(rank, (list, tuple)) and all(type(one) is int and one >= 0 for one in rank)


Counts = Annotated[
    tuple[tuple[Whole, ...], ...],
    BeforeValidator(_each_layer, json_schema_input_type=tuple[Whole, ...] | tuple[tuple[Whole, ...], ...] | str),
]
Seats = Annotated[
    Literal["greedy"] | tuple[Rank, ...] | None,
    BeforeValidator(_by_rank, json_schema_input_type=Literal["greedy"] | tuple[Rank, ...] | dict[str, Rank] | None),
]


@hash_once
@dataclass(frozen=True, kw_only=True, config=STRICT)
class Routing:
    """How unevenly experts are loaded. The hottest rank sets the pace, since all wait for it at every exchange.

    ``hottest``: its load over the mean of all ranks; or ``counts``: tokens of each expert as measured, one list for all
    layers or one a layer, or the file that holds them (``workload.counts``); or ``skew``: the i-th most popular expert
    gets tokens as i^-skew (a power law; 0 is even).
    Where nothing is said, ranks are loaded evenly in training; in inference what they hold, and which experts a step
    touches, follows ``NATURAL_SKEW``.
    ``placement``: the experts of each rank of an expert group, by their ids, a list a rank or {0: [...], 1: [...]};
    one that several ranks hold shares its tokens among them. Or greedy: by counts, layer by layer, the heaviest first,
    each to the rank that has least (DeepSeek's EPLB), with ``redundant_experts`` further copies of those that are
    heaviest a copy. Left out: neighbours in a row a rank, those of a ``skew`` dealt to the ranks in turn.
    ``capacity``: tokens beyond so many times an expert's mean are dropped (GShard, Lepikhin et al. 2020, section 2.2);
    none: dropless.
    """

    hottest: Annotated[Positive, Field(ge=1)] = 1.0
    counts: Counts = ()
    skew: Annotated[float | None, Field(ge=0, le=4)] = None
    capacity: Positive | None = None
    placement: Seats = None
    redundant_experts: Whole = 0

    def __post_init__(self) -> None:
        """Refuse two answers to one question."""
        said = [name for name, given in self._popular.items() if given]
        if len(said) > 1:
            raise ValueError(f"takes one of hottest, counts and skew (got {' and '.join(said)}). Try {said[-1]} alone")
        empty = next((at for at, layer in enumerate(self.counts) if not any(layer)), None)
        if empty is not None:
            raise ValueError(f"has counts of no token at all in list {empty}. Try skew: 0.8, or leave them out")
        if self.placed and self.hottest > 1.0:
            raise ValueError("has hottest, which says what a placement comes to, beside it. Try counts, or skew: 0.8")
        if self.redundant_experts and self.seats:
            raise ValueError("has redundant_experts beside a placement that lists all copies. Try placement: greedy")

    @property
    def _popular(self) -> dict[str, bool]:
        return {"hottest": self.hottest > 1.0, "counts": bool(self.counts), "skew": bool(self.skew)}

    @property
    def placed(self) -> bool:
        """Whether it says anything of where experts sit."""
        return self.placement is not None or self.redundant_experts > 0

    @property
    def seats(self) -> tuple[Rank, ...]:
        """The experts of each rank where a user lists them."""
        return () if self.placement in (None, "greedy") else self.placement  # type: ignore[return-value]

    def held(self, experts: int) -> int:
        """Experts of all ranks of a group with their copies."""
        return sum(map(len, self.seats)) or experts + self.redundant_experts

    def shares(self, experts: int, ep: int) -> Shares | None:
        """Tokens of what each rank holds over the mean of an expert [layers, ranks, experts and copies of a rank];
        None where they are even, or only the hottest rank is known."""
        if not self.counts and not self.skew and not self.placed:
            return None
        return _shares(self, experts, ep)

    def layer_loads(self, ep: int, experts: int) -> Shares:
        """Token-expert pairs on the hottest of ``ep`` ranks over the mean before any is dropped, of each layer."""
        found = self.shares(experts, ep)
        if found is None:
            return np.array([min(self.hottest, self._limit)])
        return np.asarray(found.sum(axis=2).max(axis=1) * (found.shape[1] / experts))

    def load(self, ep: int, experts: int) -> float:
        """Mean over layers of what the hottest of ``ep`` ranks has over the mean of all."""
        return float(self.layer_loads(ep, experts).mean())

    @property
    def _limit(self) -> float:
        return float("inf") if self.capacity is None else self.capacity


@lru_cache(maxsize=256)
def scattered_load(experts: int, ep: int, skew: float) -> float:
    """Pairs on the hottest of ``ep`` ranks over the mean where popularity falls as i^-skew and popular experts sit
    anywhere: the mean over layers, each of which has places of its own and waits for its own hottest rank. Wider groups
    are even: who runs them holds copies of popular experts (EPLB; DeepSeek-V3, section 3.4)."""
    if ep <= 1 or ep > BY_CHANCE or experts % ep:
        return 1.0
    popular = np.arange(1.0, experts + 1.0) ** -skew
    draws = np.random.default_rng(experts * ep).permuted(np.tile(popular / popular.sum(), (LAYERS_DRAWN, 1)), axis=1)
    return float(draws.reshape(LAYERS_DRAWN, ep, -1).sum(axis=2).max(axis=1).mean() * ep)


@lru_cache(maxsize=64)
def _shares(routing: Routing, experts: int, ep: int) -> Shares:
    popular = _popularity(routing, experts)
    if routing.seats:
        places = np.tile(np.array(routing.seats), (len(popular), 1, 1))
    elif routing.placed:
        places = np.array([_greedy(layer, ep, routing.redundant_experts) for layer in popular])
    else:
        in_row = np.arange(experts).reshape(ep, -1)
        dealt = np.arange(experts).reshape(-1, ep).T
        places = np.tile(in_row if routing.counts else dealt, (len(popular), 1, 1))
    found = np.empty(places.shape)
    for layer, (weights, where) in enumerate(zip(popular, places, strict=True)):
        copies = np.bincount(where.ravel(), minlength=experts)
        found[layer] = (np.minimum(weights, routing._limit) / np.maximum(copies, 1))[where]
    found.flags.writeable = False
    return found


def _popularity(routing: Routing, experts: int) -> Shares:
    """Tokens of each expert over the mean [layers, experts]."""
    if routing.counts:
        counts = np.array(routing.counts, dtype=np.float64)
    else:
        counts = np.arange(1.0, experts + 1.0)[None, :] ** -(routing.skew or 0.0)
    return np.asarray(counts / np.maximum(counts.mean(axis=1, keepdims=True), 1e-300))


def _greedy(weights: Shares, ep: int, redundant: int) -> list[list[int]]:
    """Ids on each rank: further copies go one by one to the expert that is heaviest a copy and not on every rank yet,
    then all, the heaviest first, to the rank with the least load that has room and no copy of it."""
    copies = np.ones(len(weights))
    for _ in range(redundant):
        copies[np.argmax(np.where(copies < ep, weights / copies, -1.0))] += 1.0
    each = weights / copies
    room = int(copies.sum()) // ep
    ranks: list[list[int]] = [[] for _ in range(ep)]
    loads = [0.0] * ep
    for expert in np.argsort(-each, kind="stable").tolist():
        for _ in range(int(copies[expert])):
            open_ranks = [r for r in range(ep) if len(ranks[r]) < room]
            apart = [r for r in open_ranks if expert not in ranks[r]] or open_ranks
            rank = min(apart, key=loads.__getitem__)
            ranks[rank].append(expert)
            loads[rank] += each[expert]
    return ranks


def misplaced(routing: Routing, experts: int) -> str:
    """What is wrong with the experts that a user lists by rank, as the rest of a sentence; empty where nothing is."""
    for rank, ids in enumerate(routing.seats):
        beyond = next((one for one in ids if one >= experts), None)
        if beyond is not None:
            return f"puts expert {beyond} on rank {rank}, and experts are 0 to {experts - 1}"
        twice = next((one for one, times in Counter(ids).items() if times > 1), None)
        if twice is not None:
            return f"puts expert {twice} on rank {rank} twice"
        if len(ids) != len(routing.seats[0]):
            return f"gives rank {rank} {len(ids)} experts and rank 0 {len(routing.seats[0])}, which must be as many"
    missing = sorted(set(range(experts)) - {one for ids in routing.seats for one in ids}) if routing.seats else []
    return f"puts expert {missing[0]} on no rank" if missing else ""
