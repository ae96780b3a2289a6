"""From an evaluated inference batch to its report."""

from __future__ import annotations

import numpy as np

from rapid_llm.predict.breakdown import bound_by, forward_breakdown
from rapid_llm.predict.feasibility import memory_use
from rapid_llm.predict.inference import InferenceTable
from rapid_llm.predict.report import Cost, Report
from rapid_llm.scenario import Scenario
from rapid_llm.workload import Inference


def inference_report(scenario: Scenario, work: Inference, table: InferenceTable) -> Report:
    """The report of one batch, times filled; the breakdown is of the whole request, by phase."""
    plan = scenario.parallelism
    prefill, decode = _phases(table, work)
    tree = Cost("request", prefill.seconds + decode.seconds, 0.0, tuple(c for c in (prefill, decode) if c.seconds))
    output_rate = work.batch_size * work.output_tokens / table.e2e_s
    return Report(
        kind="inference",
        feasible=bool(table.account.fits[-1]),
        ttft_s=table.ttft_s,
        tpot_s=table.tpot_s,
        e2e_s=table.e2e_s,
        output_tokens_per_s=output_rate,
        total_tokens_per_s=work.batch_size * (work.prompt_tokens + work.output_tokens) / table.e2e_s,
        tokens_per_s_per_accelerator=output_rate / scenario.accelerators,
        memory=memory_use(table.account, -1, plan.tp * plan.cp * (plan.dp or 1)),
        breakdown=tree,
        phases={"prefill": prefill, "decode": decode},
        bound_by=_bound(prefill, decode),
        origin=scenario,
    )


def _phases(table: InferenceTable, work: Inference) -> tuple[Cost, Cost]:
    points, steps = table.points, table.steps
    first = np.where(points.decode, 0.0, points.count)
    gaps = np.where(points.decode, points.count, 0.0)
    prefill = forward_breakdown("prefill", steps, first, table.ttft_s, steps.priced.machine.runtime.host.ingress)
    decode = forward_breakdown("decode", steps, gaps, table.tpot_s * (work.output_tokens - 1), 0.0)
    return prefill, decode


def _bound(prefill: Cost, decode: Cost) -> str:
    parts = [f"{phase.name} by {bound_by(phase)}" for phase in (prefill, decode) if phase.children]
    return "; ".join(parts)
