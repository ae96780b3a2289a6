"""Error quantiles of the scorecard, as the data file that predictions read to say how far to trust them."""

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from rapid_llm.errors import RapidError
from rapid_llm.hardware import system
from rapid_llm.validation.evaluation import Result
from rapid_llm.validation.kernels.lent import LENT
from rapid_llm.validation.scorecard import MEAN, Scorecard, ScoreRow
from rapid_llm.validation.suites.kernels import SCHEMAS

HEADER = """\
# Errors of predictions against published measurements, by suite and group; written by `make validate`.
# Rows of split `unseen` were never used to fit a constant. Fractions of the measurement. `accelerators` and `runtimes`
# are what a group's rows ran on, the most frequent first.
source: the scorecard of this version
kind: measured
quantiles:
"""


QUOTED = ("training", "memory", "inference")
"""Suites that answers quote; those of kernels have a file of their own, which ``kernel`` quotes."""
KERNELS = tuple(SCHEMAS)


def _chosen(rows: tuple[ScoreRow, ...], suites: Sequence[str]) -> list[ScoreRow]:
    """Unseen rows of every group; all rows of a group that has none; the means over groups last."""
    rows = tuple(row for row in rows if row.suite in suites and not row.metric.endswith(LENT))
    unseen = {(r.suite, r.group, r.metric) for r in rows if r.split == "unseen" and r.median is not None}

    def wanted(row: ScoreRow) -> bool:
        key = (row.suite, row.group, row.metric)
        return row.median is not None and (row.split == "unseen" or (row.split == "all" and key not in unseen))

    return sorted(filter(wanted, rows), key=lambda row: row.group == MEAN)


def quantiles_yaml(card: Scorecard, suites: Sequence[str] = QUOTED) -> str:
    """The quantiles of a scorecard as YAML: suite, group, metric, split, rows, median, p90, bias, what it ran on."""
    lines = (
        f"  - {{suite: {row.suite}, group: '{row.group}', metric: {row.metric}, split: {row.split}, "
        f"rows: {row.evaluated}, median: {row.median:.4f}, p90: {row.p90:.4f}, bias: {row.bias:.4f}, "
        f"accelerators: [{_listed(card, row, 'accelerator')}], runtimes: [{_listed(card, row, 'runtime')}]}}\n"
        for row in _chosen(card.rows, suites)
    )
    return HEADER + "".join(lines)


def _listed(card: Scorecard, row: ScoreRow, what: str) -> str:
    key = (row.suite, row.group, row.metric)
    mine = (r for r in card.results if (r.case.suite, r.case.group, r.case.metric) == key)
    found = Counter(name for result in mine if result.predicted is not None for name in _names(result, what))
    return ", ".join(f"'{name}'" for name, _ in found.most_common())


def _names(result: Result, what: str) -> Iterator[str]:
    """The accelerator, or the runtime without its version, that a case ran on; none where its scenario has no name."""
    scenario = result.case.scenario or {}
    if what == "runtime":
        if isinstance(runtime := scenario.get("runtime"), str):
            yield runtime.partition("@")[0]
        return
    named = scenario.get("system")
    if isinstance(named, dict):
        named = named.get("base")
    if isinstance(named, str):
        try:
            yield system(named).groups[0].node.accelerator.name
        except RapidError:
            return


def write(card: Scorecard, path: Path, suites: Sequence[str] = QUOTED) -> None:
    """Write the quantiles of some suites of a scorecard to a file."""
    path.write_text(quantiles_yaml(card, suites), "utf-8")
