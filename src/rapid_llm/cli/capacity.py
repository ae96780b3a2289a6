"""``infer --slo``: the most requests in flight within a latency objective, or the fewest accelerators for users."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from rapid_llm.cli import text
from rapid_llm.cli.answering import check_pages, scenario_of, show_report, write_files
from rapid_llm.cli.flags import Objective, Serving
from rapid_llm.cli.objective import replicas
from rapid_llm.cli.style import show, status
from rapid_llm.cli.text import json_text
from rapid_llm.errors import InfeasibleError
from rapid_llm.predict.report import Report
from rapid_llm.predict.within import asked, open_batch, read_objective, why_none, within
from rapid_llm.scenario import Scenario


def answer_objective(model: str, overrides: Sequence[str], objective: Objective, answering: Serving) -> int:
    """Answer a latency objective; exit code 3 where nothing keeps it."""
    limits, users = read_objective(objective.slo, objective.users, "--")
    check_pages(answering)
    said = [*overrides, *answering.sets]
    open_batch(_workload(said), "--")
    scenario = scenario_of({"model": model, "workload": {"kind": "inference", "batch_size": "auto"}}, said)
    with status("looking for the most requests within the objective"):
        report = within(scenario, limits, users, allow_infeasible=answering.allow_infeasible, sensitivities=True)
    if report is None:
        none = f"{asked(limits)}: NO plan of {scenario.system.name} keeps it"
        if answering.json:
            print(json_text({"feasible": False, "limits_s": limits}))
        else:
            print(why_none(scenario, limits, users or 1), file=sys.stderr)
            show(text.wrapped("objective", none, width=text.terminal_width()))
        return InfeasibleError.exit_code
    assert report.origin is not None and report.objective is not None
    write_files(report.origin, report, answering)
    if answering.json:
        found = {"feasible": report.objective.met, "limits_s": limits, **_plain(report, report.origin)}
        print(json_text({**found, "report": report.to_dict()}))
    else:
        if not report.objective.met and not report.violations:
            print(why_none(scenario, limits, users or 1), file=sys.stderr)
        show_report(report, full=answering.full)
    return 0 if report.objective.met else InfeasibleError.exit_code


def _workload(overrides: Sequence[str]) -> dict[str, object]:
    """What overrides say of the workload, by field."""
    start = "workload."
    pairs = (one.removeprefix(start).partition("=") for one in overrides if one.startswith(start))
    return {field: value for field, _, value in pairs}


def _plain(report: Report, scenario: Scenario) -> dict[str, Any]:
    """The capacity alone, as keys that stay."""
    plan, objective = scenario.parallelism, report.objective
    assert objective is not None
    accelerators = scenario.pools.accelerators if scenario.pools else scenario.accelerators
    rate = report.output_tokens_per_s
    return {
        "requests_in_flight": objective.requests_in_flight,
        "accelerators": accelerators,
        "tp": plan.tp,
        "pp": plan.pp,
        "dp": plan.dp,
        "ttft_s": report.ttft_s,
        "tpot_s": report.tpot_s,
        **replicas(scenario),
        "requests_per_s": objective.requests_per_s,
        "output_tokens_per_s": rate,
        "output_tokens_per_s_per_accelerator": rate and rate / accelerators,
        "binds": objective.binds,
        "flags": objective.flags,
    }
