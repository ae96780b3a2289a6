"""The inference suite: static batches, and closed loops of one user."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from rapid_llm.validation import roofline, translate
from rapid_llm.validation.cases import Baseline, Case, Skip, reading
from rapid_llm.validation.tables import Row, Table, count, integer, number

SUITE = "inference"
_USERS = re.compile(r"^concurrency (\d+)$")

_OF_A_LOOP = ("tpot_ms", "itl_ms", "output_tok_s")
"""What many users of a closed loop say of the steps; times to the first token are a question of serving."""
METRICS: Mapping[str, tuple[str, str]] = {
    "ttft_ms": ("ttft", "ttft"),
    "tpot_ms": ("tpot", "tpot"),
    "itl_ms": ("tpot", "tpot"),
    "e2e_s": ("e2e", "e2e"),
    "output_tok_s": ("throughput", "output_rate"),
    "tok_s_gpu": ("throughput", "output_rate"),
    "req_s": ("throughput", "output_rate"),
    "total_tok_s": ("throughput", "total_rate"),
    "prefill_tok_s": ("ttft", "ttft"),
}
"""Metric of a table to metric of the suite and reading of a report. One stream's ITL is its TPOT."""


def cases(table: Table) -> Iterator[Case]:
    """Cases of an inference table; a closed loop that printed a rate and no E2E gives that as well."""
    if table.schema != "inference":
        return
    has_e2e = {row.get("case_key") for row in table.rows if row["metric"] == "e2e_s"}
    for row in map(translate.completed, table.rows):
        yield _case(row)
        if row["metric"] == "output_tok_s" and _USERS.match(row["arrival"]) and row.get("case_key") not in has_e2e:
            yield _case(_end_to_end(row))


def _end_to_end(row: Row) -> Row:
    """C users of a closed loop take C x output tokens / rate for one request, exactly (Little's law)."""
    rate, users = number(row, "value"), integer(row, "batch_or_concurrency") or 1
    seconds = users * count(row, "output_len") / rate if rate else 0.0
    return {**row, "id": f"{row['id']}-e2e", "metric": "e2e_s", "value": repr(seconds)}


def split_key(row: Row) -> str:
    """What the split rule hashes: accelerator, software, model, format and degree, whoever measured it."""
    cells = (row.get("gpu_key") or row["gpu"], row["engine"], row["model"], row.get("dtype_weights", ""))
    return "/".join(cells) + f"/tp{count(row, 'tp')}"


def _case(row: Row) -> Case:
    metric, quantity = METRICS.get(row["metric"], (row["metric"], ""))
    with reading() as found:
        _check(row)
        found.measured = _measured(row)
        found.scenario = scenario = scenario_of(row)
        found.baselines = _baselines(row, scenario, metric, quantity)
    return Case(
        suite=SUITE,
        group=f"{row['source']}/{translate.gpu_name(row)}",
        metric=metric,
        id=row["id"],
        key=split_key(row),
        quantity=quantity,
        **found.fields(),
    )


def _check(row: Row) -> None:
    if row["metric"] not in METRICS:
        raise Skip(f"metric {row['metric']} is not of this suite")
    if flag := row.get("quality_flag"):
        raise Skip(f"flagged: {flag}")
    translate.check(row)
    arrival = row["arrival"].lower()
    users = _USERS.match(arrival)
    if users and int(users[1]) > 1:
        raise Skip("several closed-loop users: a question of serving")
    if _offline(row) or (_looped(row) and row["metric"] in _OF_A_LOOP):
        return
    if row["completeness"] != "A":
        raise Skip("the engine chose the batch, or a trace was replayed (completeness B)")
    if not (users or "static" in arrival or "single" in arrival):
        raise Skip(f"arrival '{row['arrival']}' is not a static batch")


def _offline(row: Row) -> bool:
    """Whether the engine worked through a full queue and chose its batch itself."""
    return bool(row["arrival"].lower() == "offline max throughput")


def _looped(row: Row) -> bool:
    """Whether so many requests ran at once, each replaced as it finished."""
    return bool(row["arrival"].lower() == "closed loop")


def _queue(row: Row) -> Mapping[str, Any]:
    """How an engine that chooses its batch works through an offline benchmark's requests."""
    rule = translate.first("queues", row)
    return {"batching": "continuous", **({"total_requests": rule["total_requests"]} if rule else {})}


def _measured(row: Row) -> float:
    """The row's figure in SI, as the reading of a report that it is compared with."""
    value = number(row, "value")
    if not value or value < 0:
        raise Skip("the value is blank or not positive")
    match row["metric"]:
        case "ttft_ms" | "tpot_ms" | "itl_ms":
            return value / 1e3
        case "tok_s_gpu":
            return value * count(row, "n_gpus")
        case "req_s":
            return value * count(row, "output_len")
        case "prefill_tok_s":
            return count(row, "input_len") * (integer(row, "batch_or_concurrency") or 1) / value
        case _:
            return value


def scenario_of(row: Row) -> Mapping[str, Any]:
    """The scenario of an inference row; Skip says why there is none."""
    batch: int | str | None = "auto" if _offline(row) else integer(row, "batch_or_concurrency")
    prompt, output = integer(row, "input_len"), integer(row, "output_len")
    if not batch or not prompt or not output:
        raise Skip("batch size or lengths are not stated")
    degrees = {axis: count(row, axis) for axis in ("tp", "pp", "ep")}
    if degrees["tp"] * degrees["pp"] * count(row, "dp") != count(row, "n_gpus"):
        raise Skip("the degrees do not fill the accelerators")
    workload = {
        "kind": "inference",
        "batch_size": batch,
        "prompt_tokens": prompt,
        "output_tokens": output,
        **(_queue(row) if batch == "auto" else {}),
        **({"batching": "continuous"} if _looped(row) else {}),
    }
    return served(row, degrees, workload)


def served(row: Row, degrees: Mapping[str, int], workload: Mapping[str, Any]) -> Mapping[str, Any]:
    """The scenario of a workload on what a row names: its model, accelerators, engine and format."""
    scenario: dict[str, Any] = {
        "model": translate.catalogue_model(row),
        "system": translate.system_of(row),
        "accelerators": count(row, "n_gpus"),
        "runtime": translate.runtime_of(row),
        "parallelism": {axis: degree for axis, degree in degrees.items() if degree > 1},
        "workload": workload,
    }
    if preset := translate.precision_of(row):
        scenario["precision"] = preset
    return scenario


def _baselines(row: Row, scenario: Mapping[str, Any], metric: str, quantity: str) -> Mapping[str, Baseline]:
    """The datasheet roofline, and the same with one constant per (accelerator, engine, format) and metric.

    None where the engine chooses the batch, as a roofline says nothing of memory, or replaces requests."""
    if "batching" in scenario["workload"]:
        return {}
    found = roofline.inference(
        scenario["model"],
        translate.accelerator_of(row),
        scenario["accelerators"],
        scenario.get("precision", "bf16"),  # the runtimes' own is 16 bit wide
        scenario["workload"],
    )
    cells = (metric, row["source"], row["gpu"], row["engine"], row.get("dtype_weights", ""))
    return {
        "roofline": Baseline(found[quantity]),
        "roofline and constant": Baseline(found[quantity], "/".join(cells)),
    }
