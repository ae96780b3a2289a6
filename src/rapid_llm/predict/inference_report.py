"""From an evaluated inference batch to its report."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from rapid_llm.dtypes import Precision, dtype
from rapid_llm.lazy import Later
from rapid_llm.operators.rates import rates
from rapid_llm.predict.breakdown import BUBBLE, DRAFTING, ENCODING, READING, WAITING, Phase, binding, forward_breakdown
from rapid_llm.predict.feasibility import engine_use
from rapid_llm.predict.fitting import Footprint, cache_of
from rapid_llm.predict.inference import InferenceTable
from rapid_llm.predict.report import Cost, Report, Where, hours
from rapid_llm.scenario import Scenario
from rapid_llm.workload import Inference


def inference_report(scenario: Scenario, work: Inference, table: InferenceTable, about: Mapping[str, Any]) -> Report:
    """The report of one batch, times filled, with what it says ``about`` itself."""
    plan = scenario.parallelism
    writes = work.output_tokens > 0
    running = table.running * (plan.dp or 1)
    requests = running if work.batch_size == "auto" else work.batch_size
    seconds = table.e2e_s
    if table.job_s is not None and work.total_requests is not None:
        requests, seconds = work.total_requests, table.job_s
    output_rate = requests * work.output_tokens / seconds
    started = work.decoder_prompt_tokens if scenario.model.encoder else 0
    total_rate = requests * (work.prompt_tokens + started + work.output_tokens) / seconds
    footprint = Footprint(table.steps.priced.lowered, table.account)
    turns = work.output_tokens > 1 and not work.offload.experts
    return Report(
        kind="inference",
        feasible=bool(table.account.fits[-1]),
        ttft_s=table.ttft_s,
        tpot_s=table.tpot_s if writes else None,
        e2e_s=table.e2e_s,
        run_time_s=table.job_s,
        accelerator_hours=hours(table.job_s, scenario.accelerators),
        output_tokens_per_s=output_rate if writes else None,
        requests_per_s=requests / seconds,
        sound_s_per_s=requests / seconds * scenario.model.heard_s if scenario.model.heard_s else None,
        total_tokens_per_s=total_rate,
        running_requests=min(running, requests),
        waves=None if table.job_s is None else table.waves,
        compute_bound_batch=turning_point(table, scenario.precision) if turns else None,
        tokens_per_s_per_accelerator=(output_rate if writes else total_rate) / scenario.accelerators,
        memory=engine_use(table.account, plan, work, cache_of(scenario, footprint)),
        where=Later(partial(_where, table, work)),
        origin=scenario,
        **about,
    )


def turning_point(table: InferenceTable, precision: Precision) -> int:
    """Requests of a replica from which the products of decode are bound by compute, experts all hit.

    b tokens cost 2 b N of FLOPs and the bytes of all weights once: b = W peak / (2 N HBM), at the rates that power and
    memory sustain. N counts of the experts what a token chooses.
    """
    lowered, chip = table.steps.priced.lowered, table.steps.priced.machine.accelerator
    sustained = rates(chip, precision.compute)
    plans = lowered.shapes.plans
    share = float(plans.ep[0]) * lowered.experts_per_token / lowered.shapes.routing.held(int(lowered.experts))
    dense, expert = (
        float((lowered.layers[:-2, 0].sum(axis=1) * own[:-2, 0]).sum()) for own in (lowered.dense, lowered.expert)
    )
    read = dense * dtype(precision.weights).bytes + expert * dtype(precision.of_experts.weights).bytes
    used = dense + expert * share
    return max(1, round(read * sustained.peak / (2.0 * used * sustained.hbm))) if used else 1


def _where(table: InferenceTable, work: Inference) -> Where:
    """The breakdown of the whole request, by phase."""
    machine = table.steps.priced.machine
    alone = table.rounds == table.waves == 1 and work.batching == "static"
    rest = BUBBLE if alone else WAITING
    after = DRAFTING if alone and work.speculation else rest
    ingress = machine.runtime.host.arrival(work.prompt_tokens) / machine.host_speed
    before = DRAFTING if alone and work.speculation and work.speculation.draft != "ngram" else rest
    before = ENCODING if alone and work.images else before
    first = Phase(
        "prefill" if work.output_tokens else READING, table.prefill, table.ttft_s, table.streamed, ingress, before
    )
    last = Phase("decode", table.decode, table.decode_s, table.crossing, rest=after)
    prefill, decode = forward_breakdown(table.steps, first, last)
    tree = Cost("request", prefill.seconds + decode.seconds, 0.0, tuple(c for c in (prefill, decode) if c.seconds))
    phases = {"prefill": prefill, "decode": decode} if work.output_tokens else {prefill.name: prefill}
    return Where(tree, binding(prefill, decode), phases)
