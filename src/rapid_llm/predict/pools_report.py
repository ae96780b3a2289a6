"""From an evaluated pair of pools to its report."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from math import isfinite
from typing import Any

from rapid_llm.lazy import Later
from rapid_llm.predict.breakdown import DRAFTING, OTHER_HALF, WAITING, Phase, binding, forward_breakdown
from rapid_llm.predict.feasibility import engine_use, memory_violation
from rapid_llm.predict.halves import Halves
from rapid_llm.predict.pools import PoolsTable
from rapid_llm.predict.replica import job_of
from rapid_llm.predict.report import Cost, Report, Where
from rapid_llm.predict.uses import HalvesUse, MemoryUse, PoolsUse, PoolUse
from rapid_llm.scenario import Pool, Scenario, pool_scenario
from rapid_llm.scenario.pools import PHASES
from rapid_llm.workload import Inference

TRANSFER = "KV transfer"


def pools_report(scenario: Scenario, work: Inference, table: PoolsTable, about: Mapping[str, Any]) -> Report:
    """The report of a request that is prefilled in one pool and decoded in another, with what it says ``about`` itself;
    memory is the decode pool's."""
    pools = scenario.pools
    assert pools is not None
    output_rate = table.rate * work.output_tokens
    halves = Halves.of(scenario, job_of(pool_scenario(scenario, "decode"))) if table.halved else None
    accounts = [table.prefill.account, table.decode.account, *([halves.ffn.account(1)] if halves else [])]
    memories = [engine_use(account, pool.parallelism, work) for pool, account in zip(pools.all, accounts, strict=True)]
    failed = tuple(
        replace(found, message=f"pools.{name}: {found.message}")
        for name, use in zip(PHASES, memories, strict=False)
        if not use.fits
        for found in [memory_violation(use, ())]
    )
    return Report(
        kind="inference",
        feasible=not failed,
        violations=failed,
        ttft_s=table.ttft_s,
        tpot_s=table.tpot_s,
        e2e_s=table.e2e_s,
        output_tokens_per_s=output_rate,
        total_tokens_per_s=table.rate * (work.prompt_tokens + work.output_tokens),
        running_requests=table.requests,
        tokens_per_s_per_accelerator=output_rate / pools.accelerators,
        memory=memories[1],
        pools=replace(_use(pools.prefill, pools.decode, memories[:2], table), ffn=_halves_use(halves, table, memories)),
        where=Later(partial(_where, table, work)),
        origin=scenario,
        **about,
    )


def _halves_use(halves: Halves | None, table: PoolsTable, memories: list[MemoryUse]) -> HalvesUse | None:
    found = table.halved
    if halves is None or found is None:
        return None
    return HalvesUse(
        accelerators=halves.pools[1].accelerators,
        memory=memories[2],
        micro_batches=found.micro_batches,
        attention_s=found.attention_s,
        ffn_s=found.ffn_s,
        transfer_s=found.transfer_s,
        binds=found.binds,
        balanced_replicas=halves.balance(found),
    )


def _use(prefill: Pool, decode: Pool, memories: list[MemoryUse], table: PoolsTable) -> PoolsUse:
    x, y = prefill.parallelism.dp or 1, decode.parallelism.dp or 1
    rates = table.prefill_rate, table.decode_rate
    both = [
        PoolUse(
            accelerators=pool.accelerators,
            replicas=pool.parallelism.dp or 1,
            requests_per_s=rate if isfinite(rate) else None,
            utilisation=min(1.0, table.rate / rate) if rate else 0.0,
            memory=memory,
        )
        for pool, rate, memory in zip((prefill, decode), rates, memories, strict=True)
    ]
    return PoolsUse(
        prefill=both[0],
        decode=both[1],
        limited_by="prefill" if rates[0] < rates[1] else "decode",
        decode_per_prefill=(rates[0] / x) / (rates[1] / y) if rates[1] else 0.0,
        running_per_decode_replica=table.running,
        wait_s=table.wait_s,
        transfer_bytes=round(table.transfer_bytes),
        transfer_s=table.transfer_s,
        transfer_exposed_s=table.exposed_s,
    )


def _where(table: PoolsTable, work: Inference) -> Where:
    machine = table.prefill.steps.priced.machine
    ingress = machine.runtime.host.arrival(work.prompt_tokens) / machine.host_speed
    first, last = table.prefill, table.decode
    before = Phase("prefill", first.prefill, table.ttft_s, first.streamed, ingress, WAITING)
    rest = OTHER_HALF if table.halved else DRAFTING if work.speculation else WAITING
    after = Phase("decode", last.decode, last.decode_s, rest=rest)
    prefill, decode = forward_breakdown(first.steps, before)[0], forward_breakdown(last.steps, after)[0]
    transfer = Cost(TRANSFER, table.exposed_s, table.transfer_s - table.exposed_s, bound="network")
    parts = tuple(part for part in (prefill, transfer, decode) if part.seconds)
    tree = Cost("request", sum(part.seconds for part in parts), transfer.hidden_seconds, parts)
    return Where(tree, binding(prefill, decode), {part.name: part for part in parts})
