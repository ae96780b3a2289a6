"""The energy suite: mean power of accelerators and energy of output tokens, of batches whose size is known."""

from collections.abc import Iterator, Mapping
from typing import Any

from rapid_llm.validation import translate
from rapid_llm.validation.cases import Baseline, Case, Skip, reading
from rapid_llm.validation.suites.inference import served, split_key
from rapid_llm.validation.tables import Row, Table, count, integer, number

SUITE = "energy"
METRICS: Mapping[str, tuple[str, str]] = {
    "power_w": ("power", "power_each"),
    "avg_power_frac_tdp": ("power", "power_each"),
    "energy_j_per_tok": ("energy", "joules_per_token"),
}
"""Metric of a table to metric of the suite and reading of a report; other metrics are of other suites."""
PROMPT = 500
"""Tokens of a question where the source does not say: answers are much longer, so that they matter little."""
TALKS = ("gpqa", "lm-arena-chat")
"""Tasks of short questions."""
SPREADS: Mapping[str, float] = {"prompt_spread": 0.96, "output_spread": 0.77}
"""Of served conversations: the public Azure trace of 2023, which stands for theirs."""


def cases(table: Table) -> Iterator[Case]:
    """Cases of a table of power and energy."""
    if table.schema == SUITE:
        yield from (_case(translate.completed(row)) for row in table.rows if row["metric"] in METRICS)


def _case(row: Row) -> Case:
    metric, quantity = METRICS[row["metric"]]
    with reading() as found:
        chip = translate.accelerator_of(row)
        found.measured = _measured(row, chip.power.limit)
        found.scenario = _scenario(row)
        if metric == "power":
            found.baselines = {"limit": Baseline(chip.power.limit)}
    return Case(
        suite=SUITE,
        group=f"{row['source']}/{translate.gpu_name(row)}",
        metric=metric,
        id=row["id"],
        key=split_key(row),
        quantity=quantity,
        **found.fields(),
    )


def _measured(row: Row, limit: float) -> float:
    """W of one accelerator, or J of an output token."""
    value = number(row, "value")
    if not value or value < 0:
        raise Skip("the value is blank or not positive")
    if "GPU" not in row["scope"]:
        raise Skip("metered at the wall: hosts and cooling are in it")
    match row["metric"]:
        case "power_w":
            return value / count(row, "n_gpus")
        case "avg_power_frac_tdp":
            return value * limit
        case _:
            return value


def _scenario(row: Row) -> Mapping[str, Any]:
    """The scenario of a row; Skip says why there is none."""
    batch, output = number(row, "batch_or_concurrency"), number(row, "output_len")
    task = row["scenario"].partition(";")[0].strip()
    prompt = integer(row, "input_len") or (PROMPT if task in TALKS else None)
    if not batch or not output or not prompt:
        raise Skip("batch size or lengths are not stated")
    degrees = {axis: count(row, axis) for axis in ("tp", "pp", "ep")}
    replicas = count(row, "n_gpus") // (degrees["tp"] * degrees["pp"])
    static = "static" in row["scenario"]
    workload = {
        "kind": "inference",
        "batch_size": max(replicas, round(batch)),
        "prompt_tokens": prompt,
        "output_tokens": max(1, round(output)),
        "batching": "static" if static else "continuous",
        **(SPREADS if task in TALKS else {}),
    }
    return served(row, degrees, workload)
