"""Does it fit: the fullest rank's bytes against what it has, as the report shows them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from rapid_llm.memory import CATEGORIES, Account, CacheBudget, fit_probability, verdict
from rapid_llm.parallelism import Parallelism
from rapid_llm.predict.report import Fix, Violation
from rapid_llm.predict.uses import CacheUse, MemoryUse, StageMemory
from rapid_llm.units import format_bytes
from rapid_llm.workload import Inference


def memory_use(
    account: Account, row: int, ranks_per_stage: int, kind: str = "training", cache: CacheUse | None = None
) -> MemoryUse:
    """The fullest rank of plan ``row``; the probability of fitting is that of training runs, or of engines (``kind``
    inference).
    """
    stage = int(account.fullest[row])
    limit = float(account.limits[row, stage])
    need = float(account.need[row, stage])
    parts = dict(zip(CATEGORIES, map(round, account.by_category[:, row, stage].tolist()), strict=True))
    return MemoryUse(
        persistent_bytes=round(float(account.persistent[row, stage])),
        allocated_bytes=round(float(account.allocated[row, stage])),
        peak_bytes=sum(parts.values()),
        capacity_bytes=round(account.capacity if account.capacities is None else account.capacities[row, stage]),
        by_category=parts,
        rank=stage * ranks_per_stage,
        stage=stage,
        reserved_bytes=round(float(account.reserved[row, stage])),
        limit_bytes=round(limit),
        stages=_stages(account, row),
        verdict=verdict(need, limit, kind),
        probability=fit_probability(need, limit, kind),
        cache=cache,
        host_bytes=round(float(account.host[row, stage])),
        displaced_bytes=round(float(account.displaced[row].max())),
    )


def engine_use(account: Account, plan: Parallelism, work: Inference, cache: CacheUse | None = None) -> MemoryUse:
    """The fullest rank of an engine. One that chooses its batch fills its share of the memory, and fits for certain."""
    use = memory_use(account, -1, plan.tp * plan.cp * (plan.dp or 1), "inference", cache)
    return filled(use) if work.batch_size == "auto" else use


def filled(use: MemoryUse) -> MemoryUse:
    """Memory that is full because the engine puts in as much as fits: its fill says nothing about whether it fits."""
    return replace(use, verdict="fits", probability=None) if use.fits else use


def cache_use(budget: CacheBudget) -> CacheUse:
    """An engine's cache as the report shows it."""
    return CacheUse(
        room_bytes=round(budget.room_bytes),
        blocks=budget.blocks,
        block_tokens=budget.block_tokens,
        block_bytes=round(budget.block_bytes),
        tokens=budget.tokens,
        length=budget.length,
        sequences=budget.sequences,
        terms={name: round(size) for name, size in budget.terms.items()},
    )


def _stages(account: Account, row: int) -> tuple[StageMemory, ...]:
    columns = (account.persistent, account.allocated, account.reserved, account.peak, account.limits)
    found = np.array([column[row] for column in columns]).round().astype(np.int64)
    return tuple([StageMemory._make(sizes) for sizes in found.T.tolist() if sizes[-2]])


def memory_violation(use: MemoryUse, fixes: tuple[Fix, ...]) -> Violation:
    """The sentence of a rank that does not fit: need, have, the largest parts, and what to try."""
    largest = sorted(use.by_category.items(), key=lambda item: -item[1])[:2]
    parts = " + ".join(f"{format_bytes(size)} of {name.replace('_', ' ')}" for name, size in largest if size)
    tries = " or ".join(f"{fix.change} ({format_bytes(use.peak_bytes - fix.saves_bytes)})" for fix in fixes[:2])
    advice = f" Try {tries}." if tries else ""
    message = (
        f"does not fit: rank {use.rank} needs {format_bytes(use.peak_bytes)} ({parts} + ...), "
        f"has {format_bytes(use.limit_bytes)}.{advice}"
    )
    return Violation("memory", message, float(use.peak_bytes), float(use.limit_bytes), fixes)
