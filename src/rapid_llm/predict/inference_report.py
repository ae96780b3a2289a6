"""From an evaluated inference batch to its report."""

from __future__ import annotations

from dataclasses import replace

from rapid_llm.dtypes import Precision, dtype
from rapid_llm.operators.rates import rates
from rapid_llm.predict.breakdown import BUBBLE, DRAFTING, ENCODING, READING, WAITING, Phase, bound_by, forward_breakdown
from rapid_llm.predict.feasibility import engine_use
from rapid_llm.predict.fitting import Footprint, cache_of
from rapid_llm.predict.inference import InferenceTable
from rapid_llm.predict.report import Cost, Report, hours
from rapid_llm.scenario import Scenario
from rapid_llm.workload import Inference


def inference_report(scenario: Scenario, work: Inference, table: InferenceTable) -> Report:
    """The report of one batch, times filled; the breakdown is of the whole request, by phase."""
    plan = scenario.parallelism
    writes = work.output_tokens > 0
    prefill, decode = _phases(table, work)
    tree = Cost("request", prefill.seconds + decode.seconds, 0.0, tuple(c for c in (prefill, decode) if c.seconds))
    running = table.running * (plan.dp or 1)
    requests = running if work.batch_size == "auto" else work.batch_size
    seconds = table.e2e_s
    if table.job_s is not None and work.total_requests is not None:
        requests, seconds = work.total_requests, table.job_s
    output_rate = requests * work.output_tokens / seconds
    started = work.decoder_prompt_tokens if scenario.model.encoder else 0
    total_rate = requests * (work.prompt_tokens + started + work.output_tokens) / seconds
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
        memory=replace(
            engine_use(table.account, plan, work),
            cache=cache_of(scenario, Footprint(table.steps.priced.lowered, table.account)),
        ),
        breakdown=tree,
        phases={"prefill": prefill, "decode": decode} if writes else {prefill.name: prefill},
        bound_by=_bound(prefill, decode),
        origin=scenario,
    )


def turning_point(table: InferenceTable, precision: Precision) -> int:
    """Requests of a replica from which the products of decode are bound by compute, experts all hit.

    b tokens cost 2 b N of FLOPs and the bytes of all weights once: b = W peak / (2 N HBM), at the rates that power and
    memory sustain. N counts of the experts what a token chooses.
    """
    lowered, chip = table.steps.priced.lowered, table.steps.priced.machine.accelerator
    sustained = rates(chip, precision.compute)
    plans = lowered.shapes.plans
    share = float(plans.ep[0]) * lowered.experts_per_token / lowered.experts
    dense, expert = (
        float((lowered.layers[:-2, 0].sum(axis=1) * own[:-2, 0]).sum()) for own in (lowered.dense, lowered.expert)
    )
    read = dense * dtype(precision.weights).bytes + expert * dtype(precision.of_experts.weights).bytes
    used = dense + expert * share
    return max(1, round(read * sustained.peak / (2.0 * used * sustained.hbm))) if used else 1


def _phases(table: InferenceTable, work: Inference) -> tuple[Cost, Cost]:
    machine = table.steps.priced.machine
    alone = table.rounds == table.waves == 1 and work.batching == "static"
    rest = BUBBLE if alone else WAITING
    after = DRAFTING if alone and work.speculation else rest
    ingress = machine.runtime.host.ingress / machine.host_speed
    before = DRAFTING if alone and work.speculation and work.speculation.draft != "ngram" else rest
    before = ENCODING if alone and work.images else before
    first = Phase(
        "prefill" if work.output_tokens else READING, table.prefill, table.ttft_s, table.streamed, ingress, before
    )
    last = Phase("decode", table.decode, table.decode_s, table.crossing, rest=after)
    prefill, decode = forward_breakdown(table.steps, first, last)
    return prefill, decode


def _bound(prefill: Cost, decode: Cost) -> str:
    parts = [f"{phase.name} by {bound_by(phase)}" for phase in (prefill, decode) if phase.children]
    return "; ".join(parts)
