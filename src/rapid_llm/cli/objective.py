"""The lines above an answer within a latency objective: how many requests, on what, and how to ask for it again."""

from __future__ import annotations

from rapid_llm.cli import text
from rapid_llm.predict.report import Report
from rapid_llm.predict.within import asked
from rapid_llm.scenario import Scenario
from rapid_llm.units import format_rate

_BINDS = {
    "ttft": "the time to first token",
    "tpot": "the time per output token",
    "memory": "the KV cache",
    "prefill": "the prefill pool",
}
_FIRST = {**_BINDS, "memory": "the memory of an accelerator"}
"""What not even one request keeps: room for a cache is left only beside weights that fit."""


def objective_lines(report: Report, width: int) -> list[str]:
    """What keeps a latency objective, and with which flags the same answer comes out without it."""
    found, scenario = report.objective, report.origin
    if found is None or scenario is None:
        return []
    rate = format_rate(found.requests_per_s, "requests/s")
    most = f"{text.counted(found.requests_in_flight, 'request')} in flight, {rate}"
    said = most if found.met else "NO, not one request in flight"
    users = f" for {found.users:,} users" if found.users else ""
    binds = f"next limit {_BINDS.get(found.binds, found.binds)}" if found.met else f"limit {_FIRST[found.binds]}"
    whole = f"{asked(found.limits_s)}{users}: {said} on {_where(scenario)}; {binds}"
    lines = text.wrapped("objective", whole, width=width)
    if not found.met:
        return lines  # the answer below is of one a replica, which is not what was asked for
    instead = "--slo, --users and the job's own degrees" if found.users else "--slo"
    again = f"{found.flags} in place of {instead}"
    return [*lines, *text.wrapped("same with", again, width=width)]


def _where(scenario: Scenario) -> str:
    plan, pools = scenario.parallelism, replicas(scenario)
    count = scenario.pools.accelerators if scenario.pools else scenario.accelerators
    degrees = "; ".join(f"{name} tp {own['tp']} dp {own['dp']}" for name, own in pools.items())
    experts = f" ep {plan.ep}" if plan.ep != 1 else ""
    alone = f"tp {plan.tp} pp {plan.pp}{experts} dp {plan.dp}"
    return f"{text.counted(count, 'accelerator')} of {scenario.system.name}, {degrees or alone}"


def replicas(scenario: Scenario) -> dict[str, dict[str, int]]:
    """The degrees of each pool, where there are pools."""
    pools = scenario.pools
    if pools is None:
        return {}
    named = zip(("prefill", "decode", "ffn"), pools.all, strict=False)
    plans = {name: pool.parallelism for name, pool in named}
    return {name: {"tp": plan.tp, "pp": plan.pp, "dp": plan.dp or 1} for name, plan in plans.items()}
