"""Energy and money of an evaluated job, for its report."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from rapid_llm.energy import UNCERTAINTY, PowerModel, drawn, of_ranks, of_step
from rapid_llm.predict.confidence import power_strays
from rapid_llm.predict.halves import HalvedSteps
from rapid_llm.predict.inference import InferenceTable
from rapid_llm.predict.pools import PoolsTable
from rapid_llm.predict.report import Price, Report
from rapid_llm.predict.training import TrainingTable
from rapid_llm.predict.uses import EnergyUse
from rapid_llm.scenario import Scenario
from rapid_llm.units import SECONDS_PER_HOUR
from rapid_llm.workload import Inference, Training

MILLION = 1e6
PROMPTS, DECODES = 0, 1
"""Passes of a closed loop: prompts, in mixed steps beside the attention of those that decode, and decode steps."""


def training_energy(scenario: Scenario, work: Training, table: TrainingTable) -> EnergyUse | None:
    """Energy of one optimizer step, and of the whole run where its tokens are given; None where it is not modelled."""
    seconds = float(table.step.total[0])
    found = _on_groups(table, seconds) if table.step.seats else _on_one(table, seconds)
    if found is None:
        return None
    joules, limit = found
    steps = (work.tokens or 0.0) / (work.global_batch_size * work.tokens_per_sequence)
    return EnergyUse(
        joules_per_step=joules,
        run_joules=joules * steps if steps else None,
        **_power(scenario, joules / seconds, scenario.accelerators, limit),
    )


def _on_one(table: TrainingTable, seconds: float) -> tuple[float, float] | None:
    """J of a step on equal accelerators, and the limit of one (W)."""
    model = PowerModel.of(table.step.priced.machine.accelerator)
    return None if model is None else (of_step(table.step.priced, model, seconds), model.limit)


def _on_groups(table: TrainingTable, seconds: float) -> tuple[float, float] | None:
    """J of a step on unlike accelerators, and the mean limit of one (W)."""
    seats = table.step.seats
    assert seats is not None
    counts, joules, limits = seats.cluster.counts(table.plans, 0), 0.0, 0.0
    for index, group in enumerate(seats.cluster.system.groups):
        model = PowerModel.of(group.node.accelerator)
        work = next((work for kind, work in seats.works.items() if kind[0] == index), None)
        if model is None or work is None:
            return None
        joules += of_ranks(work.priced, model, seconds, counts[:, index].tolist())
        limits += model.limit * float(counts[:, index].sum())
    return joules, limits / float(counts.sum())


def inference_energy(scenario: Scenario, work: Inference, table: InferenceTable) -> EnergyUse | None:
    """Energy of the accelerators over a batch, a closed loop, or a job to its end; None where it is not modelled.
    Waiting draws the floor alone; so does drafting, whose passes are small.
    """
    model = PowerModel.of(table.steps.priced.machine.accelerator)
    if model is None:
        return None
    replicas = scenario.parallelism.dp or 1
    requests = table.running * replicas if work.batch_size == "auto" else work.requests
    seconds = table.e2e_s
    if table.job_s is not None and work.total_requests is not None:
        requests, seconds = work.total_requests, table.job_s
    beyond = _per_request(table, model, work.beams) * requests / seconds
    watts = scenario.accelerators * model.awake + beyond
    return EnergyUse(
        joules_per_output_token=watts * seconds / (requests * work.output_tokens) if work.output_tokens else None,
        joules_per_request=None if work.output_tokens else watts * seconds / requests,
        run_joules=None if table.job_s is None else watts * seconds,
        **_power(scenario, watts, scenario.accelerators, model.limit),
    )


def pools_energy(scenario: Scenario, work: Inference, table: PoolsTable) -> EnergyUse | None:
    """Energy of all pools; None where that of one is not modelled."""
    pools = scenario.pools
    assert pools is not None
    halved = table.halved
    each = 1 if halved is None else halved.micro_batches
    decode = replace(table.decode, decode=table.decode.decode / each)
    joules = [_prompts_and_steps(found, work.beams) for found in (table.prefill, decode)]
    if halved is not None:
        joules.append(_feed_forward(halved, pools.decode.parallelism.dp or 1))
    models = [PowerModel.of(pool.system.groups[0].node.accelerator) for pool in pools.all]
    watts = most = 0.0
    for pool, model, beyond in zip(pools.all, models, joules, strict=True):
        if model is None:
            return None
        watts += pool.accelerators * model.awake + table.rate * beyond(model)
        most += pool.accelerators * model.limit
    tokens = table.rate * work.output_tokens
    watts = min(watts, most)
    return EnergyUse(
        joules_per_output_token=watts / tokens,
        **_power(scenario, watts, pools.accelerators, most / pools.accelerators),
    )


def _prompts_and_steps(table: InferenceTable, beams: int) -> Callable[[PowerModel], float]:
    return lambda model: _per_request(table, model, beams)


def _feed_forward(halved: HalvedSteps, replicas: int) -> Callable[[PowerModel], float]:
    """J beyond the floor of the feed-forward passes of one request in their pool."""
    plans = halved.ffn.priced.lowered.shapes.plans
    ranks = float(plans.tp[0] * plans.cp[0] * plans.dp[0])
    share = ranks / (halved.sequences * replicas)
    return lambda model: share * float(halved.count @ drawn(halved.ffn.priced, model))


def _per_request(table: InferenceTable, model: PowerModel, beams: int) -> float:
    """J beyond the floor of the passes of one request, on all ranks of its replica. The sequences of a micro-batch
    share its decode steps, all running requests the prefill passes. No pass draws more than the limit.
    """
    priced, seconds = table.steps.priced, table.steps.traversal
    joules = drawn(priced, model)
    serving = priced.machine.runtime.serving
    if table.crossing is not None and serving is not None and serving.mixed_steps:
        joules, seconds = joules.copy(), seconds.copy()
        others = 1.0 - 1.0 / table.running
        joules[PROMPTS] += others * drawn(priced, model, family="attention")[DECODES]
        seconds[PROMPTS] += others * table.steps.family("attention")[DECODES]
    plans = priced.lowered.shapes.plans
    each = float(plans.tp[0] * plans.cp[0]) * np.minimum(joules, (model.limit - model.awake) * seconds)
    if table.crossing is None:
        prompts = table.prefill + table.streamed
    else:
        prompts = np.where(np.arange(len(seconds)) == PROMPTS, table.points.count, 0.0)
    together = table.points.batch[table.decode > 0.0].max(initial=1.0)  # before any is done
    return float(each @ (prompts / table.running + table.decode * beams / together))


def _power(scenario: Scenario, watts: float, accelerators: int, limit: float) -> dict[str, float]:
    return {
        "mean_power_w": watts,
        "mean_power_w_per_accelerator": watts / accelerators,
        "limit_w_per_accelerator": limit,
        "uncertainty": power_strays(scenario) or UNCERTAINTY,
    }


def price_of(scenario: Scenario, report: Report) -> Price | None:
    """What an answer costs, in the currency of ``price_per_hour``; None where no price is given or there is no time.

    Pools may have prices of their own.
    """
    pools = scenario.pools
    parts = pools.all if pools else (scenario,)
    if any(part.price_per_hour is None for part in parts):
        return None
    hourly = float(sum(part.accelerators * (part.price_per_hour or 0.0) for part in parts))
    second = hourly / SECONDS_PER_HOUR

    def million(rate: float | None) -> float | None:
        return second / rate * MILLION if rate else None

    return Price(
        per_hour=hourly,
        per_step=report.step_time_s and second * report.step_time_s,
        run=report.run_time_s and second * report.run_time_s,
        per_million_tokens=million(report.tokens_per_s or report.total_tokens_per_s),
        per_million_output_tokens=million(report.output_tokens_per_s),
    )
