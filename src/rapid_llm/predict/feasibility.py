"""Does it fit: the fullest rank's bytes against what it has, and fixes that were verified by predicting them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from rapid_llm.errors import InputError
from rapid_llm.memory import CATEGORIES, Account
from rapid_llm.nouns import replaced
from rapid_llm.predict.report import Fix, MemoryUse, StageMemory, Violation
from rapid_llm.units import format_bytes
from rapid_llm.workload import Recompute, Training

if TYPE_CHECKING:
    from rapid_llm.scenario import Scenario


def memory_use(account: Account, row: int, ranks_per_stage: int) -> MemoryUse:
    """The fullest rank of plan ``row``."""
    stage = int(account.fullest[row])
    parts = {name: round(float(account.by_category[i, row, stage])) for i, name in enumerate(CATEGORIES)}
    return MemoryUse(
        persistent_bytes=round(float(account.persistent[row, stage])),
        allocated_bytes=round(float(account.allocated[row, stage])),
        peak_bytes=sum(parts.values()),
        capacity_bytes=round(account.capacity),
        by_category=parts,
        rank=stage * ranks_per_stage,
        stage=stage,
        reserved_bytes=round(float(account.reserved[row, stage])),
        limit_bytes=round(float(account.limits[row, stage])),
        stages=_stages(account, row),
    )


def _stages(account: Account, row: int) -> tuple[StageMemory, ...]:
    columns = (account.persistent, account.allocated, account.reserved, account.peak)
    found = np.rint(np.stack([column[row] for column in columns], axis=1)).astype(np.int64).tolist()
    return tuple(StageMemory(*sizes) for sizes in found if sizes[-1])


def memory_violation(use: MemoryUse, limit: float, fixes: tuple[Fix, ...]) -> Violation:
    """The sentence of a rank that does not fit: need, have, the largest parts, and what to try."""
    largest = sorted(use.by_category.items(), key=lambda item: -item[1])[:2]
    parts = " + ".join(f"{format_bytes(size)} of {name.replace('_', ' ')}" for name, size in largest if size)
    tries = " or ".join(f"{fix.change}" for fix in fixes[:2])
    advice = f" Try {tries}." if tries else ""
    message = (
        f"does not fit: rank {use.rank} needs {format_bytes(use.peak_bytes)} ({parts} + ...), "
        f"has {format_bytes(round(limit))}.{advice}"
    )
    return Violation("memory", message, float(use.peak_bytes), limit, fixes)


def candidate_changes(scenario: Scenario) -> list[tuple[str, Scenario]]:
    """Changes worth trying when memory runs out, cheapest first: as the user writes them, and the changed scenario."""
    from rapid_llm.scenario import require

    found: list[tuple[str, Scenario]] = []

    def offer(text: str, make: Callable[[], Scenario]) -> None:
        try:
            changed = make()
            require(changed)
        except InputError:
            return
        found.append((text, changed))

    plan, work = scenario.parallelism, scenario.workload
    if isinstance(work, Training):
        mode = work.recompute.mode if work.recompute else "none"
        for harder in ("selective", "full")[("none", "selective", "full").index(mode) :]:
            offer(
                f"recompute {harder}",
                lambda h=harder: _with(scenario, workload=replaced(work, recompute=Recompute(mode=h))),
            )  # type: ignore[misc]
        for stage in range((plan.zero_stage or 0) + 1, 4):
            offer(f"zero_stage {stage}", lambda z=stage: _with(scenario, parallelism=replaced(plan, zero_stage=z)))  # type: ignore[misc]
        if work.micro_batch_size > 1:
            offer("micro_batch_size 1", lambda: _with(scenario, workload=replaced(work, micro_batch_size=1)))
    for axis in ("tp", "pp"):
        for factor in (2, 4, 8):
            offer(f"{axis} {getattr(plan, axis) * factor}", lambda a=axis, f=factor: _wider(scenario, a, f))  # type: ignore[misc]
    return found


def _wider(scenario: Scenario, axis: str, factor: int) -> Scenario:
    """A higher degree: from dp where it has ranks to give, else with more accelerators."""
    plan = scenario.parallelism
    dp = plan.dp or 1
    accelerators = scenario.accelerators
    degree = getattr(plan, axis) * factor
    if dp % factor == 0:
        plan = replaced(plan, **{axis: degree, "dp": dp // factor, "dp_shard": max(1, (plan.dp_shard or dp) // factor)})
    else:
        plan = replaced(plan, **{axis: degree})
        accelerators *= factor
    if axis == "tp" and (plan.etp or 1) > 1:
        plan = replaced(plan, etp=degree)
    return _with(scenario, parallelism=plan, accelerators=accelerators)


def _with(scenario: Scenario, **changes: Any) -> Scenario:
    return replaced(scenario, **changes)
