"""The memory suite: peak and persistent bytes of training runs, whether they run out, and the caches of engines."""

from collections.abc import Iterator
from dataclasses import replace

from rapid_llm.validation import translate
from rapid_llm.validation.cases import Case, Skip, reading
from rapid_llm.validation.suites import training
from rapid_llm.validation.tables import Row, Table, count, number

SUITE = "memory"
UNITS = {"GiB": 2.0**30, "GB": 1e9, "MiB": 2.0**20}
BANDS = {"1": (1, 1), "2 to 8": (2, 8), "above 8": (9, 2**31)}
"""Degrees that the sweep is also shown by."""
OUTCOMES = {"OOM": 1.0, "ok": 0.0}
"""What the verdict compares: 1 for running out of memory."""


def cases(table: Table) -> Iterator[Case]:
    """Cases of a memory table (peak, verdict), of the nanotron sweep (persistent beside them), of engines' caches."""
    if table.schema == "caches":
        yield from map(_cache_case, table.rows)
    if table.schema == "memory":
        for row in map(translate.completed, table.rows):
            yield from _table_cases(row)
    if table.schema == "nanotron":
        for row in map(training.nanotron_row, table.rows):
            for case in _nanotron_cases(row):
                yield case
                yield from _banded(case, row)


def _table_cases(row: Row) -> Iterator[Case]:
    yield _case(row, "verdict", "out_of_memory", OUTCOMES.get(row["outcome"]))
    if row["outcome"] == "ok":
        value, unit = number(row, "mem_gb"), UNITS.get(row["mem_unit"])
        size = value * unit if value and unit else None
        yield _case(row, "peak", _peak_quantity(row["mem_kind"]), size)


def _nanotron_cases(row: Row) -> Iterator[Case]:
    """Sizes are those that rank 0 logs, on the first stage: parameters that it reports show which."""
    yield _case(row, "verdict", "out_of_memory", OUTCOMES.get(row["outcome"]))
    if row["outcome"] == "ok":
        for metric, quantity, column in (
            ("peak", "first_reserved", "mem_reserved_gb"),
            ("persistent", "first_persistent", "mem_alloc_gb"),
        ):
            value = number(row, column)
            yield _case(row, metric, quantity, value * UNITS["GiB"] if value else None)


def _cache_case(row: Row) -> Case:
    """What an engine sets aside for its cache when it starts."""
    serving = {"max_batched_tokens": count(row, "max_batched_tokens")} if row.get("max_batched_tokens") else {}
    changed = {"allocator": {"utilisation": number(row, "utilisation")}, **({"serving": serving} if serving else {})}
    ranks = count(row, "n_gpus")
    return Case(
        suite=SUITE,
        group=row["source"],
        metric="cache",
        id=row["id"],
        key=f"{row['runtime']}/{row['model']}",
        quantity="cache_room",
        measured=(number(row, "cache_gib") or 0.0) * UNITS["GiB"],
        scenario={
            "model": row["model"],
            "system": {"base": row["accelerator"], "node": {"accelerators": ranks}},
            "accelerators": ranks,
            "runtime": {"base": row["runtime"], **changed},
            "parallelism": {"tp": count(row, "tp")},
            "precision": row["precision"],
            "workload": {"kind": "inference", "batch_size": 1, "prompt_tokens": 1024, "output_tokens": 128},
        },
    )


def _banded(case: Case, row: Row) -> Iterator[Case]:
    """The same case in the groups of its pipeline and tensor degrees, which stand beside the headline."""
    for axis in ("pp", "tp"):
        band = next(name for name, (low, high) in BANDS.items() if low <= count(row, axis) <= high)
        yield replace(case, group=f"{case.group}, {axis} {band}", headline=False)


def _peak_quantity(kind: str) -> str:
    """Which of our figures a source's peak is: of tensors, of the allocator, or of the whole process."""
    if "allocated" in kind:
        return "allocated"
    return "process" if "nvidia-smi" in kind else "reserved"


def _case(row: Row, metric: str, quantity: str, measured: float | None) -> Case:
    with reading() as found:
        found.measured = measured or 0.0
        _check(row, measured)
        found.scenario = training.scenario_of(row)
    return Case(
        suite=SUITE,
        group=row["source"],
        metric=metric,
        id=row["id"],
        key=training.split_key(row),
        quantity=quantity,
        **found.fields(),
    )


def _check(row: Row, measured: float | None) -> None:
    if row["outcome"] not in OUTCOMES:
        raise Skip("failed for another reason than memory")
    if measured is None:
        raise Skip("no figure, or one of an unknown unit")
    if "oom_error" in row.get("qa_flags", ""):
        raise Skip("flagged: its log has both a result and an out-of-memory error")
    translate.check(row)
