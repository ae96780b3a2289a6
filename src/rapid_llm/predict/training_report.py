"""From an evaluated training plan to its report."""

from __future__ import annotations

from typing import Any

from rapid_llm.predict.breakdown import bound_by, training_breakdown
from rapid_llm.predict.feasibility import memory_use
from rapid_llm.predict.report import FLOP_CONVENTION, Report, hours
from rapid_llm.predict.training import TrainingTable, utilisation
from rapid_llm.scenario import Scenario
from rapid_llm.workload import Training


def training_report(scenario: Scenario, work: Training, table: TrainingTable) -> Report:
    """The report of the first plan of a table, times filled."""
    plans = table.plans
    time = float(table.step.total[0])
    use = utilisation(
        table,
        scenario.model,
        scenario.precision,
        sequences=work.global_batch_size,
        sequence_length=work.sequence_length,
    )
    rate = work.global_batch_size * work.sequence_length / time
    run = work.tokens / rate if work.tokens else None
    tree = training_breakdown(table.step)
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
        breakdown=tree,
        bound_by=bound_by(tree),
        origin=scenario,
        **_on_groups(table, scenario),
    )


def _on_groups(table: TrainingTable, scenario: Scenario) -> dict[str, Any]:
    """What a report says more of a job on unlike groups of nodes."""
    if table.step.seats is None:
        return {}
    from rapid_llm.predict.seating import seats_use  # few jobs need it

    return {"seats": seats_use(table, scenario), "flop_convention": f"{FLOP_CONVENTION}s of all accelerators together"}
