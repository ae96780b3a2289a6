"""From an evaluated training plan to its report."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from rapid_llm.dtypes import dtype
from rapid_llm.execution import TrainingStep
from rapid_llm.lazy import Later
from rapid_llm.predict.breakdown import bound_by, training_breakdown
from rapid_llm.predict.feasibility import memory_use
from rapid_llm.predict.report import FLOP_CONVENTION, Report, Where, hours
from rapid_llm.predict.training import TrainingTable, utilisation
from rapid_llm.scenario import Scenario
from rapid_llm.workload import Training


def training_report(scenario: Scenario, work: Training, table: TrainingTable, about: Mapping[str, Any]) -> Report:
    """The report of the first plan of a table, times filled, with what it says ``about`` itself."""
    plans = table.plans
    time = float(table.step.total[0])
    use = utilisation(table, scenario.model, scenario.precision, work)
    rate = work.global_batch_size * work.tokens_per_sequence / time
    run = work.tokens / rate if work.tokens else None
    return Report(
        kind="training",
        feasible=bool(table.fits[0]),
        step_time_s=time,
        tokens_per_s=rate,
        tokens_per_s_per_accelerator=rate / scenario.accelerators,
        mfu=use.mfu,
        mfu_causal=use.mfu_causal,
        hfu=use.hfu,
        run_time_s=run,
        accelerator_hours=hours(run, scenario.accelerators),
        memory=memory_use(table.account, 0, int(plans.tp[0] * plans.cp[0] * plans.dp[0])),
        where=Later(partial(_where, table.step)),
        origin=scenario,
        flop_convention=_convention(table, scenario),
        **about,
        **_on_groups(table, scenario),
    )


def _on_groups(table: TrainingTable, scenario: Scenario) -> dict[str, Any]:
    """What a report says more of a job on unlike groups of nodes."""
    if table.step.seats is None:
        return {}
    from rapid_llm.predict.seating import seats_use  # few jobs need it

    return {"seats": seats_use(table, scenario)}


def _convention(table: TrainingTable, scenario: Scenario) -> str:
    """What MFU counts, over which peak."""
    said = FLOP_CONVENTION.format(dtype(scenario.precision.compute).rate)
    return said if table.step.seats is None else f"{said}s of all accelerators together"


def _where(step: TrainingStep) -> Where:
    tree = training_breakdown(step)
    return Where(tree, bound_by(tree))
