"""The answer within a latency objective: the job at the most requests in flight that keep it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from rapid_llm.errors import InfeasibleError, InputError, did_you_mean
from rapid_llm.predict.engine import predict
from rapid_llm.predict.objective import Capacity, fewest_accelerators, largest_batch, most_users
from rapid_llm.predict.report import Objective, Report
from rapid_llm.scenario import Scenario, from_mapping
from rapid_llm.units import format_seconds, parse
from rapid_llm.workload import Inference

LIMITS = ("ttft", "tpot")


def within(
    scenario: Scenario,
    limits: dict[str, float],
    users: int | None = None,
    *,
    allow_infeasible: bool = False,
    sensitivities: bool = False,
) -> Report | None:
    """The report of a job whose batch is open, at the most requests in flight within ``limits`` (s by name).

    With ``users`` the plan with the fewest accelerators is looked for; None where no plan keeps the limits.
    """
    _refuse_silent(scenario, limits)
    ttft, tpot = limits.get("ttft"), limits.get("tpot")
    if users is None:
        found: Capacity | None = largest_batch(scenario, ttft, tpot)
    else:
        found = fewest_accelerators(scenario, users, ttft, tpot)
    if found is None:
        return None
    objective = Objective(
        limits_s=limits,
        users=users,
        requests_in_flight=found.requests,
        requests_per_s=found.requests_per_s,
        binds=found.binds,
        flags=_flags(scenario, found, planned=users is not None),
    )
    report = predict(found.scenario, allow_infeasible=allow_infeasible, sensitivities=sensitivities)
    return replace(report, objective=objective)


def _refuse_silent(scenario: Scenario, limits: Mapping[str, float]) -> None:
    """InputError for a limit on time per output token of a job that writes none."""
    work = scenario.workload
    if "tpot" not in limits or not isinstance(work, Inference) or work.output_tokens:
        return
    more = ", or output_tokens 64" if scenario.model.writes else ""
    raise InputError(
        f"slo tpot is of tokens that are written, and output_tokens is 0. Try ttft alone{more}.",
        field="workload.output_tokens",
    )


def infer_within(mapping: dict[str, Any], slo: str | None, users: int | None) -> Report:
    """The report of a job in plain data within ``slo``; InfeasibleError where no plan keeps it."""
    limits, users = read_objective(slo, users)
    open_batch(mapping["workload"])
    scenario = from_mapping({**mapping, "workload": {**mapping["workload"], "batch_size": "auto"}})
    report = within(scenario, limits, users)
    if report is None:
        raise InfeasibleError(why_none(scenario, limits, users or 1))
    return report


def why_none(scenario: Scenario, limits: Mapping[str, float], users: int) -> str:
    """Why no plan of a system keeps the limits for a number of users, and what would."""
    name, within_it = scenario.system.name, asked(limits)
    most = most_users(scenario, limits.get("ttft"), limits.get("tpot")) if scenario.pools is None else users
    if most == 0:
        return f"no plan of {name} keeps {within_it} for even one user. Try a longer limit, or a faster system."
    if most >= users:
        return f"no plan of {name} keeps {within_it} for {users:,} users. Try fewer users, or a larger system."
    has = scenario.system.accelerators
    held = "its one accelerator holds" if has == 1 else f"its {has:,} accelerators hold"
    return (
        f"no plan of {name} keeps {within_it} for {users:,} users: {held} {most:,} of them. Try {most:,} users, or a "
        "larger system."
    )


def asked(limits: Mapping[str, float]) -> str:
    """The limits in words: ``TTFT 1.00 s, TPOT 30.0 ms``."""
    return ", ".join(f"{name.upper()} {format_seconds(limit)}" for name, limit in limits.items())


def read_objective(slo: str | None, users: str | int | None, dash: str = "") -> tuple[dict[str, float], int | None]:
    """Limits (s by name) and users of ``ttft=1s,tpot=30ms`` and a number; ``dash`` stands before names in sentences."""
    if slo is None:
        raise InputError(f"{dash}users needs {dash}slo, such as {dash}slo ttft=1s,tpot=30ms.", field="users")
    if users is not None and (not str(users).isdigit() or int(users) < 1):
        raise InputError(
            f"{dash}users must be a whole number of at least 1 (got {users}). Try {dash}users 16.", field="users"
        )
    return _limits(str(slo), f"{dash}slo"), None if users is None else int(users)


def open_batch(given: Mapping[str, object], dash: str = "") -> None:
    """InputError where the workload already sets what an objective is to find."""
    for field, why in (
        ("batch_size", "finds the batch"),
        ("total_requests", "asks of requests that never end"),
        ("batching", "asks of continuous batching"),
    ):
        value = given.get(field)
        if value is not None and str(value) not in {"auto", "continuous"}:
            name = f"{dash}{field.replace('_', '-') if dash else field}"
            raise InputError(f"{dash}slo {why} (got {name} {value}). Leave one of them out.", field=f"workload.{field}")


def _limits(slo: str, name_of: str) -> dict[str, float]:
    limits: dict[str, float] = {}
    for part in slo.split(","):
        name, _, value = part.partition("=")
        name = name.strip()
        if name not in LIMITS or not value:
            meant = f" {did_you_mean(name, LIMITS)}".rstrip() if value else ""
            raise InputError(
                f"{name_of} {slo}: '{part.strip()}' is not a limit, such as ttft=1s or tpot=30ms.{meant}", field="slo"
            )
        if name in limits:
            raise InputError(f"{name_of} {slo}: {name} stands there twice. Keep one of them.", field="slo")
        try:
            limits[name] = parse(value, "time")
        except ValueError as error:
            bare = value.strip().replace(".", "", 1).isdigit()
            why = f"needs a unit (got {value}). Try {name}={value}s or {name}={value}ms." if bare else error
            raise InputError(f"{name_of}: {name} {why}", field="slo") from None
        if limits[name] <= 0.0:
            raise InputError(f"{name_of}: {name} must be above 0 (got {value}). Try ttft=1s,tpot=30ms.", field="slo")
    return limits


def _flags(given: Scenario, found: Capacity, *, planned: bool) -> str:
    """The flags that say the answer in place of the objective; ``planned``: the degrees are part of the answer, of
    pools those that differ from the given ones.
    """
    scenario, work = found.scenario, found.scenario.workload
    assert isinstance(work, Inference)
    said = f"--batch-size {work.batch_size} --batching continuous"
    if not planned:
        return said
    if scenario.pools is None:
        plan = scenario.parallelism
        experts = f" --ep {plan.ep}" if plan.ep != 1 else ""
        return f"{said} --tp {plan.tp}{experts} --dp {plan.dp} --accelerators {scenario.accelerators}"
    assert given.pools is not None
    names = ("prefill", "prefill: "), ("decode", "")
    for (name, default), pool, before in zip(names, scenario.pools.all, given.pools.all, strict=False):
        if pool == before:
            continue
        said += f" --set pools.{name}.parallelism.dp={pool.parallelism.dp}"
        if not any(one.startswith(f"{default}accelerators: ") for one in given.defaults):
            said += f" --set pools.{name}.accelerators={pool.accelerators}"
    return said
