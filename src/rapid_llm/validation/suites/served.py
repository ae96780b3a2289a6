"""Served requests at a fixed concurrency, as cases of the inference suite: time per token, and to the first one,
against the mean field of the same closed loop. Answers quote nothing of the latter, which holds what clients and
servers do before and behind the engine."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Any

from rapid_llm.validation import translate
from rapid_llm.validation.cases import Case, Skip, reading
from rapid_llm.validation.suites.inference import scenario_of, split_key
from rapid_llm.validation.tables import Row, Table, count, number

SCHEMA, SOURCE = "served", "e2e_serving"
ENGINES: Mapping[str, str] = {"vllm": "vLLM", "sglang": "SGLang", "trtllm": "TensorRT-LLM"}
DRAWN = 0.9
"""Mean length over the nominal one in InferenceX: prompts and outputs are drawn evenly from 0.8 to 1 of it."""
EXACT = "local:"
"""How the source of runs begins whose lengths are the nominal ones."""
DRAWN_SPREAD = 0.2 / 12**0.5 / DRAWN
"""Standard deviation over mean of such lengths."""
EACH = 10
"""Requests of every user (InferenceX: ``--num-prompts CONC * 10``)."""
SPREAD = 1.2
"""Runs of one setting differ in what the table does not say, as drafts, where times of either kind differ by more."""
METRICS = ("tpot", "ttft")
_SETTING = ("backend", "backend_version", "model_path", "system", "precision", "isl", "osl", "concurrency", "tp_size")
_SIZES = ("attention_dp_size", "moe_tp_size", "moe_ep_size")


def cases(table: Table) -> Iterator[Case]:
    """One case a run; a run that two dumps of the source hold counts once."""
    if table.schema != SCHEMA:
        return
    together: Mapping[tuple[str, ...], dict[tuple[str, str], Row]] = defaultdict(dict)
    for row in table.rows:
        if row["mode"] == "agg":
            together[tuple(row.get(cell, "") for cell in (*_SETTING, *_SIZES))][row["ttft_ms"], row["tpot_ms"]] = row
    for number_, runs in enumerate(together.values()):
        for (at, row), metric in product(enumerate(runs.values()), METRICS):
            yield _case(row, f"{SOURCE}-{number_}-{at}", list(runs.values()), metric)


def _case(row: Row, name: str, runs: Sequence[Row], metric: str = "tpot") -> Case:
    told = translate.completed(_told(row))
    with reading() as found:
        found.measured = _measured(row, runs, f"{metric}_ms")
        translate.check(told)
        found.scenario = _looped(scenario_of(told), drawn=_drawn(row))
    return Case(
        suite="inference",
        group=f"{SOURCE}/{translate.gpu_name(told)}/{row['backend']}",
        metric=metric,
        id=name if metric == "tpot" else f"{name}-{metric}",
        key=split_key(told),
        quantity=metric,
        **found.fields(),
        headline=False,
        quoted=metric == "tpot",
    )


def _told(row: Row) -> Row:
    """The row in the words of an inference table."""
    nominal = {"input_len": "isl", "output_len": "osl"}
    return {
        **{name: str(round((DRAWN if _drawn(row) else 1.0) * count(row, cell))) for name, cell in nominal.items()},
        "source": SOURCE,
        "gpu": row["system"].replace("_", "-"),
        "n_gpus": row["tp_size"],
        "engine": f"{ENGINES.get(row['backend'], row['backend'])} {row['backend_version']}".strip(),
        "model": row["model_path"].rpartition("/")[2],
        "dtype_weights": row["precision"],
        "tp": row["tp_size"],
        "ep": row["moe_ep_size"],
        "batch_or_concurrency": row["concurrency"],
        "arrival": f"concurrency {row['concurrency']}",
    }


def _drawn(row: Row) -> bool:
    return not row.get("source", "").startswith(EXACT)


def _looped(scenario: Mapping[str, Any], *, drawn: bool) -> Mapping[str, Any]:
    work = scenario["workload"]
    asked = {"batching": "continuous", "total_requests": EACH * work["batch_size"], "closed_loop": True}
    spreads = {"prompt_spread": DRAWN_SPREAD, "output_spread": DRAWN_SPREAD} if drawn else {}
    return {**scenario, "workload": {**work, **asked, **spreads}}


def _measured(row: Row, runs: Sequence[Row], cell: str) -> float:
    """Seconds; Skip where the row does not say what ran."""
    if count(row, "attention_dp_size") > 1 or count(row, "tp_size") > translate.SERVER:
        raise Skip("how many accelerators a replica has is not stated")
    if row["concurrency"] != row["batch_size"]:
        raise Skip("several replicas share the requests")
    if not number(row, cell):
        raise Skip("the value is blank or not positive")
    for one in METRICS:
        times = [value for run in runs if (value := number(run, f"{one}_ms"))]
        if times and max(times) > SPREAD * min(times):
            raise Skip("runs of one setting differ in what is not stated")
    return (number(row, cell) or 0.0) / 1e3
