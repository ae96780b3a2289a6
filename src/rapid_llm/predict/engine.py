"""Scenario -> Report."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import Any, TypedDict

from rapid_llm.errors import InfeasibleError, InputError
from rapid_llm.execution import Slow
from rapid_llm.execution.pricing import policies
from rapid_llm.hardware import node_starts
from rapid_llm.network.faults import drawn, speeds
from rapid_llm.network.flow_prices import Links, interconnect
from rapid_llm.nouns import replaced
from rapid_llm.parallelism import Plans
from rapid_llm.predict.confidence import confidence_of
from rapid_llm.predict.energy import inference_energy, pools_energy, price_of, training_energy
from rapid_llm.predict.experts import experts_use
from rapid_llm.predict.feasibility import memory_violation
from rapid_llm.predict.fitting import fit
from rapid_llm.predict.fixes import fixes
from rapid_llm.predict.inference import InferenceTable, evaluate_inference
from rapid_llm.predict.inference_report import inference_report
from rapid_llm.predict.job import assumptions, plans_of
from rapid_llm.predict.pools import PoolsTable, evaluate_pools
from rapid_llm.predict.pools_report import pools_report
from rapid_llm.predict.report import FaultsUse, Recovered, Report, Violation, without_times
from rapid_llm.predict.training import TrainingTable, evaluate_training
from rapid_llm.predict.training_report import training_report
from rapid_llm.predict.uses import EnergyUse, MemoryUse
from rapid_llm.predict.whatif import what_if
from rapid_llm.scenario import Scenario, from_mapping, keywords, require
from rapid_llm.workload import Inference, Training


def predict(scenario: Scenario, *, allow_infeasible: bool = False, sensitivities: bool = False) -> Report:
    """Predict one scenario: time, memory verdict, breakdown.

    A scenario that does not fit is an answer with ``feasible`` False, violations and verified fixes; its times stay
    empty unless ``allow_infeasible``. ``sensitivities`` also predicts what faster hardware would buy (``what_if``).
    InputError where no hardware could answer it.
    """
    require(scenario)
    try:
        table = evaluate(scenario)
    except InfeasibleError as error:
        return _cut_off(scenario, error)
    report = _report(scenario, table)
    if not report.feasible:
        return _infeasible(scenario, report, keep_times=allow_infeasible)
    if scenario.faults:
        report = replace(report, faults=_faults(scenario, table))
    if sensitivities:
        report = replace(report, what_if=what_if(scenario, headline(report), _headline_of))
    return report


def _faults(scenario: Scenario, table: TrainingTable | InferenceTable | PoolsTable) -> FaultsUse:
    """What the faults of a scenario cost, and how messages go on for each axis whose links are degraded."""
    step = (
        table.step if isinstance(table, TrainingTable) else table.steps if isinstance(table, InferenceTable) else None
    )
    found = policies(step.priced) if step is not None else {}
    return FaultsUse(
        _headline_of(replaced(scenario, faults=())),
        tuple(
            Recovered(axis, op, one.name, one.plan, one.slowdown, one.detour_slowdown)
            for (axis, op), one in found.items()
        ),
        drawn_links(scenario),
    )


def drawn_links(scenario: Scenario) -> tuple[str, ...]:
    """The links that faults without a place were drawn at; none where none was, or links are not priced one by one."""
    if scenario.network != "flow" or all(fault.random is None for fault in scenario.faults):
        return ()
    healthy = interconnect(scenario.system, Links(scenario.accelerators, scenario.faults)).healthy
    return drawn(healthy, scenario.faults)


def _cut_off(scenario: Scenario, error: InfeasibleError) -> Report:
    """The answer where faults leave ranks without a path to each other: memory, and the reason why there is no time."""
    report = fit(scenario)
    apart = Violation("network", error.message, need=1.0, have=0.0)
    return replace(report, feasible=False, violations=(*report.violations, apart))


def evaluate(scenario: Scenario) -> TrainingTable | InferenceTable | PoolsTable:
    """Evaluate a scenario's plan as a table of one row (training) or its forward passes (inference), of both pools."""
    if scenario.pools is not None:
        return evaluate_pools(scenario)
    work, precision = scenario.workload, scenario.precision
    common = scenario.model, scenario.system, scenario.runtime, precision, plans_of(scenario)
    if isinstance(work, Training):
        return evaluate_training(*common, work=work, stages=scenario.placement.stages, **conditions(scenario))
    return evaluate_inference(*common, work, **conditions(scenario), draft=scenario.draft)


class Conditions(TypedDict):
    """What a scenario says of accelerators that are slow, and of links where they are priced one by one."""

    slow: Slow
    links: Links | None


def conditions(scenario: Scenario) -> Conditions:
    """Which accelerators are slow, and the links of the job where the network is priced flow by flow."""
    count = scenario.accelerators
    links = Links(count, scenario.faults) if scenario.network == "flow" else None
    return {"slow": speeds(scenario.faults, count, node_starts(scenario.system)), "links": links}


def evaluate_many(scenarios: Iterable[Scenario]) -> TrainingTable:
    """Many plans of one training job (same model, system, runtime, precision, sequence length) as one table."""
    every = list(scenarios)
    first = every[0]
    if not isinstance(first.workload, Training):
        raise InputError("workload.kind must be training to evaluate many plans as one table (got inference).")
    plans = Plans.stack([plans_of(s) for s in every])
    return evaluate_training(
        first.model,
        first.system,
        first.runtime,
        first.precision,
        plans,
        work=first.workload,
        stages=first.placement.stages,
        **conditions(first),
    )


def _report(scenario: Scenario, table: TrainingTable | InferenceTable | PoolsTable) -> Report:
    work, confidence, time = scenario.workload, confidence_of(scenario), _time(table)
    band = (time * max(0.0, 1.0 - confidence.within), time * (1.0 + confidence.within)) if confidence else None
    energy: Callable[[], EnergyUse | None]
    about: dict[str, Any] = {
        "confidence": confidence,
        "interval": band,
        "defaults": scenario.defaults,
        "assumptions": assumptions(scenario),
        "experts": experts_use(scenario),
        "turns_of": partial(_by_turns, scenario, table),
    }
    if isinstance(work, Training) and isinstance(table, TrainingTable):
        energy = partial(training_energy, scenario, work, table)
        report = training_report(scenario, work, table, {**about, "energy_of": energy})
    elif isinstance(work, Inference) and isinstance(table, InferenceTable):
        energy = partial(inference_energy, scenario, work, table)
        report = inference_report(scenario, work, table, {**about, "energy_of": energy})
    elif isinstance(work, Inference) and isinstance(table, PoolsTable):
        energy = partial(pools_energy, scenario, work, table)
        report = pools_report(scenario, work, table, {**about, "energy_of": energy})
    else:
        raise TypeError(f"a {work.kind} workload was evaluated as {type(table).__name__}")
    price = price_of(scenario, report)
    return replace(report, price=price) if price else report


def _by_turns(scenario: Scenario, table: TrainingTable | InferenceTable | PoolsTable) -> tuple[str, ...]:
    """Axis and operation of messages that share links by turns, which closed forms do not follow."""
    if isinstance(table, PoolsTable):
        return ()
    from rapid_llm.execution.turns import by_turns

    priced = table.step.priced if isinstance(table, TrainingTable) else table.steps.priced
    return by_turns(priced, scenario.system, scenario.accelerators)


def _time(table: TrainingTable | InferenceTable | PoolsTable) -> float:
    """Step time, or end-to-end time of a request (s)."""
    return float(table.step.total[0]) if isinstance(table, TrainingTable) else table.e2e_s


def headline(report: Report) -> float:
    """The number that intervals and what-ifs refer to: step time, or end-to-end time of a request (s)."""
    return float(report.step_time_s or report.e2e_s or 0.0)


def _headline_of(scenario: Scenario) -> float:
    return _time(evaluate(scenario))


def _infeasible(scenario: Scenario, report: Report, *, keep_times: bool) -> Report:
    if scenario.pools is None:
        report = replace(report, violations=(violation(scenario, report.memory),))
    return report if keep_times else without_times(report)


def violation(scenario: Scenario, use: MemoryUse) -> Violation:
    """Why a scenario does not fit, with fixes that were verified by accounting and timed."""
    return memory_violation(use, fixes(scenario, use, _headline_of))


def train(model: str, **flags: Any) -> Report:
    """Predict one training step; flags as the command line's (``system=..., accelerators=..., tp=...``)."""
    return predict(from_mapping(keywords.job("training", model, flags)))


def infer(model: str, *, slo: str | None = None, users: int | None = None, **flags: Any) -> Report:
    """Predict one inference batch; flags as the command line's (``system=..., tp=..., batch_size=...``).

    ``slo`` ("ttft=1s,tpot=30ms") in place of a batch: the report, with its ``objective``, of the most requests in
    flight within it, or with ``users`` of the fewest accelerators; InfeasibleError where no plan keeps it.
    """
    if slo is not None or users is not None:
        from rapid_llm.predict.within import infer_within

        return infer_within(keywords.job("inference", model, flags), slo, users)
    return predict(from_mapping(keywords.job("inference", model, flags)))
