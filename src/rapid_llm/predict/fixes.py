"""What would make a scenario fit: changes, verified by accounting for them and ranked by what they cost."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from rapid_llm.dtypes import dtype, precision
from rapid_llm.errors import InputError
from rapid_llm.nouns import replaced
from rapid_llm.predict.fitting import footprint, largest, memory_of
from rapid_llm.predict.report import Fix, MemoryUse
from rapid_llm.scenario import Scenario, require
from rapid_llm.workload import Inference, Recompute, Training

MAX_FIXES = 4
FACTORS = (2, 4, 8)
"""By how much a degree grows at a time."""
OTHER_ANSWER = ("precision", "kv_cache", "batch_size")
"""Kinds of changes after which the job computes something else."""
LADDER = ("none", "selective", "full")

Change = tuple[str, str, Scenario]
"""Kind of a change, the change as the user writes it, and the changed scenario."""


def fixes(scenario: Scenario, use: MemoryUse, price: Callable[[Scenario], float]) -> tuple[Fix, ...]:
    """Changes that fit, one of each kind: those that keep the answer first, then the cheapest in accelerator-seconds.

    Memory is accounted for each, time predicted (``price``, seconds) for those that fit.
    """
    fitting: dict[str, Change] = {}
    for change in _changes(scenario):
        if change[0] not in fitting and _fits(change[2]):
            fitting[change[0]] = change
    base = price(scenario)
    found = [_fix(change, scenario, use, price(change[2]) / base if base else None) for change in fitting.values()]
    return tuple(fix for _, fix in sorted(found, key=lambda pair: pair[0])[:MAX_FIXES])


def _fits(scenario: Scenario) -> bool:
    try:
        return footprint(require(scenario)).fits
    except InputError:
        return False


def _fix(change: Change, scenario: Scenario, use: MemoryUse, ratio: float | None) -> tuple[tuple[bool, float], Fix]:
    kind, text, changed = change
    cost = (ratio or 1.0) * changed.accelerators / scenario.accelerators
    return (kind in OTHER_ANSWER, cost), Fix(text, use.peak_bytes - memory_of(changed).peak_bytes, ratio)


def _changes(scenario: Scenario) -> Iterator[Change]:
    """Changes worth trying, of each kind the mildest first."""
    work = scenario.workload
    yield from _training(scenario, work) if isinstance(work, Training) else _inference(scenario, work)
    for axis in ("tp", "pp"):
        for factor in FACTORS:
            wider = _wider(scenario, axis, factor)
            more = "" if wider.accelerators == scenario.accelerators else f" on {wider.accelerators} accelerators"
            yield axis, f"{axis} {getattr(wider.parallelism, axis)}{more}", wider


def _training(scenario: Scenario, work: Training) -> Iterator[Change]:
    mode = work.recompute.mode if work.recompute else "none"
    for harder in LADDER[LADDER.index(mode) + 1 :]:
        recompute = Recompute(mode=harder)  # type: ignore[arg-type]
        yield "recompute", f"recompute {harder}", _with(scenario, workload=replaced(work, recompute=recompute))
    plan = scenario.parallelism
    if (plan.dp or 1) > 1:
        for stage in range((plan.zero_stage or 0) + 1, 4):
            sharded = replaced(plan, zero_stage=stage)
            yield "zero_stage", f"zero_stage {stage}", _with(scenario, parallelism=sharded)
    size = work.micro_batch_size
    while size > 1:
        size = size // 2 if size % 2 == 0 else 1
        yield (
            "micro_batch_size",
            f"micro_batch_size {size}",
            _with(scenario, workload=replaced(work, micro_batch_size=size)),
        )


def _inference(scenario: Scenario, work: Inference) -> Iterator[Change]:
    now = scenario.precision
    for name, text in (("fp8", "precision fp8"), ("int4-wo", "precision int4-wo")):
        if dtype(precision(name).weights).bytes < dtype(now.weights).bytes:
            yield "precision", text, _with(scenario, precision=precision(name))
    if dtype(now.kv_cache).bytes > 1.0:
        yield "kv_cache", "precision.kv_cache fp8", _with(scenario, precision=replaced(now, kv_cache="fp8"))
    if work.batch_size != "auto" and (most := largest(scenario, "requests")):
        yield "batch_size", f"batch_size {most}", _with(scenario, workload=replaced(work, batch_size=most))


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
    if axis == "tp":
        plan = replaced(
            plan, etp=degree if (plan.etp or 1) > 1 else plan.etp, sp=plan.sp or scenario.runtime.defaults.sp
        )
    return _with(scenario, parallelism=plan, accelerators=accelerators)


def _with(scenario: Scenario, **changes: Any) -> Scenario:
    return replaced(scenario, **changes)
