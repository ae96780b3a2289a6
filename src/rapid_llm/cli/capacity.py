"""``infer --slo``: the most requests in flight within a latency objective, or the fewest accelerators for users."""

from __future__ import annotations

import json
from collections.abc import Sequence

from rapid_llm.cli import text
from rapid_llm.cli.answering import scenario_of
from rapid_llm.cli.flags import Common, Objective
from rapid_llm.cli.style import show
from rapid_llm.errors import InfeasibleError, InputError, did_you_mean
from rapid_llm.predict import Capacity, fewest_accelerators, largest_batch
from rapid_llm.scenario import Scenario
from rapid_llm.units import format_rate, parse

LIMITS = ("ttft", "tpot")
_BINDS = {
    "ttft": "the time to first token",
    "tpot": "the time per output token",
    "memory": "the KV cache",
    "prefill": "the prefill pool",
}


def answer_objective(model: str, overrides: Sequence[str], objective: Objective, common: Common) -> int:
    """Answer a latency objective; exit code 3 where nothing keeps it."""
    if objective.slo is None:
        raise InputError("--users needs --slo, such as --slo ttft=1s,tpot=30ms.", field="users")
    limits = read_limits(objective.slo)
    mapping = {"model": model, "workload": {"kind": "inference", "batch_size": "auto"}}
    scenario = scenario_of(mapping, [*overrides, *common.sets])
    if objective.users is None:
        found: Capacity | None = largest_batch(scenario, limits.get("ttft"), limits.get("tpot"))
    else:
        found = fewest_accelerators(scenario, _users(objective.users), limits.get("ttft"), limits.get("tpot"))
    met = found is not None and found.requests > 0
    if common.json:
        print(json.dumps({"feasible": met, "limits_s": limits, **(_plain(found) if found else {})}, indent=2))
    else:
        show(_lines(scenario, limits, found))
    return 0 if met else InfeasibleError.exit_code


def read_limits(slo: str) -> dict[str, float]:
    """``ttft=1s,tpot=30ms`` as seconds by name; InputError with what a limit looks like."""
    limits: dict[str, float] = {}
    for part in slo.split(","):
        name, _, value = part.partition("=")
        name = name.strip()
        if name not in LIMITS or not value:
            meant = f" {did_you_mean(name, LIMITS)}".rstrip() if value else ""
            raise InputError(
                f"--slo {slo}: '{part.strip()}' is not a limit, such as ttft=1s or tpot=30ms.{meant}", field="slo"
            )
        try:
            limits[name] = parse(value, "time")
        except ValueError as error:
            raise InputError(f"--slo: {name} {error}", field="slo") from None
    return limits


def _users(users: str) -> int:
    if not users.isdigit() or int(users) < 1:
        raise InputError(f"--users must be a whole number of at least 1 (got {users}).", field="users")
    return int(users)


def _plain(found: Capacity) -> dict[str, object]:
    plan = found.scenario.parallelism
    return {
        "requests_in_flight": found.requests,
        "accelerators": found.accelerators,
        "tp": plan.tp,
        "pp": plan.pp,
        "dp": plan.dp,
        "ttft_s": found.ttft_s,
        "tpot_s": found.tpot_s,
        **_replicas(found.scenario),
        "requests_per_s": found.requests_per_s,
        "output_tokens_per_s": found.output_tokens_per_s,
        "output_tokens_per_s_per_accelerator": found.output_tokens_per_s / found.accelerators,
        "binds": found.binds,
    }


def _replicas(scenario: Scenario) -> dict[str, dict[str, int]]:
    """The degrees of each pool, where there are pools."""
    pools = scenario.pools
    if pools is None:
        return {}
    named = zip(("prefill", "decode", "ffn"), pools.all, strict=False)
    plans = {name: pool.parallelism for name, pool in named}
    return {name: {"tp": plan.tp, "pp": plan.pp, "dp": plan.dp or 1} for name, plan in plans.items()}


def _lines(scenario: Scenario, limits: dict[str, float], found: Capacity | None) -> list[str]:
    asked = ", ".join(f"{name.upper()} {text.seconds(limit)}" for name, limit in limits.items())
    width = text.terminal_width()
    if found is None:
        return text.wrapped("objective", f"{asked}: NO plan of {scenario.system.name} keeps it", width=width)
    plan = found.scenario.parallelism
    pools = _replicas(found.scenario)
    degrees = "; ".join(f"{name} tp {own['tp']} dp {own['dp']}" for name, own in pools.items())
    plans = degrees or f"tp {plan.tp} pp {plan.pp} dp {plan.dp}"
    where = f"{found.accelerators:,} accelerators of {scenario.system.name}, {plans}"
    said = f"{found.requests:,} requests in flight" if found.requests else "NO, not one request in flight"
    each = format_rate(found.output_tokens_per_s / found.accelerators)
    return [
        *text.wrapped("objective", f"{asked}: {said} on {where}", width=width),
        f"{'TTFT':<{text.INDENT}}{text.seconds(found.ttft_s)}",
        f"{'TPOT':<{text.INDENT}}{text.seconds(found.tpot_s)}",
        f"{'throughput':<{text.INDENT}}{format_rate(found.requests_per_s, 'requests/s')}, "
        f"{format_rate(found.output_tokens_per_s)} out, {each} per accelerator",
        *text.wrapped("next limit", _BINDS.get(found.binds, found.binds), width=width),
    ]
