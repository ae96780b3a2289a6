"""Error quantiles of the scorecard, as the data file that predictions read to say how far to trust them."""

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from rapid_llm.errors import RapidError
from rapid_llm.hardware import accelerator, system
from rapid_llm.predict.confidence import written
from rapid_llm.validation.evaluation import Result
from rapid_llm.validation.kernels.unmeasured import LENT
from rapid_llm.validation.scorecard import MEAN, Scorecard, ScoreRow
from rapid_llm.validation.suites.kernels import SCHEMAS

HEADER = """\
# Errors of predictions against published measurements, by suite and group; written by `make validate`.
# Rows of split `unseen` were never used to fit a constant. Fractions of the measurement. `accelerators` and `runtimes`
# are what a group's rows ran on, the most frequent first. `lent`: the p90 of kernels on a device as if nothing had been
# measured on it or its architecture, beside that of the same groups with their own fits (`own`), means over a device's.
source: the scorecard of this version
kind: measured
quantiles:
"""


PUBLISHED = ("training", "memory", "inference")
"""Suites that answers quote and that the published figures of the package have rows of."""
QUOTED = (*PUBLISHED, "energy")
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


def quantiles_yaml(cards: Sequence[Scorecard], suites: Sequence[str] = QUOTED) -> str:
    """The quantiles of scorecards as YAML: suite, group, metric, split, rows, median, p90, bias, what it ran on.

    A figure of a group comes from the first scorecard that has it.
    """
    found: dict[tuple[str, str, str], str] = {}
    for card in cards:
        unwell = {(r.case.suite, r.case.group, r.case.metric) for r in card.results if not r.case.quoted}
        for row in _chosen(card.rows, suites):
            if (key := (row.suite, row.group, row.metric)) not in unwell:
                found.setdefault(key, _line(card, row))
    lines = [line for key, line in sorted(found.items(), key=lambda item: item[0][1] == MEAN)]
    if suites == QUOTED:
        lines += _kept({suite for suite, _, _ in found})
    return HEADER + "".join(lines) + (_lent_yaml(cards[0].rows) if "inference" in suites else "")


def _kept(scored: set[str]) -> list[str]:
    """Quantiles that are already written for suites beyond the published figures, where these
    tables hold none of them.
    """
    beyond = {suite for suite in QUOTED if suite not in PUBLISHED} - scored
    return [_entry(**row) for row in written()["quantiles"] if row["suite"] in beyond]


def _line(card: Scorecard, row: ScoreRow) -> str:
    figures = {name: getattr(row, name) for name in ("suite", "group", "metric", "split", "median", "p90", "bias")}
    ran_on = {f"{what}s": _listed(card, row, what) for what in ("accelerator", "runtime")}
    return _entry(**figures, **ran_on, rows=row.evaluated)


def _entry(**row: Any) -> str:
    ran_on = {name: ", ".join(f"'{one}'" for one in row[name]) for name in ("accelerators", "runtimes")}
    return (
        f"  - {{suite: {row['suite']}, group: '{row['group']}', metric: {row['metric']}, split: {row['split']}, "
        f"rows: {row['rows']}, median: {row['median']:.4f}, p90: {row['p90']:.4f}, bias: {row['bias']:.4f}, "
        f"accelerators: [{ran_on['accelerators']}], runtimes: [{ran_on['runtimes']}]}}\n"
    )


def _lent_yaml(rows: Sequence[ScoreRow]) -> str:
    """Errors of kernels with and without a fit of their own, by suite, metric and device; those already written where
    the tables hold no kernels.
    """
    own = {(r.suite, r.group, r.metric): r for r in _chosen(tuple(rows), KERNELS)}
    pairs: dict[tuple[str, str, str], list[tuple[float, float]]] = {}
    for row in rows:
        fitted = own.get((row.suite, row.group, row.metric.removesuffix(LENT)))
        if row.metric.endswith(LENT) and row.split == "unseen" and row.group != MEAN and row.p90 and fitted:
            key = (row.suite, fitted.metric, row.group.partition("/")[0])
            pairs.setdefault(key, []).append((fitted.p90 or 0.0, row.p90))
    known = [_lent_entry(*key, found) for key, found in pairs.items()] or list(written().get("lent", ()))
    lines = (
        f"  - {{suite: {e['suite']}, metric: {e['metric']}, groups: {e['groups']}, own: {e['own']:.4f}, "
        f"lent: {e['lent']:.4f}, accelerators: [{', '.join(repr(name) for name in e['accelerators'])}]}}\n"
        for e in known
    )
    return "lent:\n" + "".join(lines) if known else ""


def _lent_entry(suite: str, metric: str, device: str, found: Sequence[tuple[float, float]]) -> dict[str, Any]:
    own, lent = fmean(pair[0] for pair in found), fmean(pair[1] for pair in found)
    return {"suite": suite, "metric": metric, "groups": len(found), "own": own, "lent": lent, "accelerators": [device]}


def _listed(card: Scorecard, row: ScoreRow, what: str) -> list[str]:
    key = (row.suite, row.group, row.metric)
    mine = (r for r in card.results if (r.case.suite, r.case.group, r.case.metric) == key)
    found = Counter(name for result in mine if result.predicted is not None for name in _names(result, what))
    return [name for name, _ in found.most_common()]


def _names(result: Result, what: str) -> Iterator[str]:
    """The accelerator, or the runtime without its version, that a case ran on; none where its scenario has no name."""
    scenario = result.case.scenario or {}
    if what == "runtime":
        runtime = scenario.get("runtime")
        runtime = runtime.get("base") if isinstance(runtime, dict) else runtime
        if isinstance(runtime, str):
            yield runtime.partition("@")[0]
        return
    named = scenario.get("system")
    replaced = named.get("accelerator") if isinstance(named, dict) else None
    named = named.get("base") if isinstance(named, dict) else named
    try:
        if isinstance(replaced, str):
            yield accelerator(replaced).name
        elif isinstance(named, str):
            yield system(named).groups[0].node.accelerator.name
    except RapidError:
        return


def write(cards: Sequence[Scorecard], path: Path, suites: Sequence[str] = QUOTED) -> None:
    """Write the quantiles of some suites of scorecards to a file."""
    path.write_text(quantiles_yaml(cards, suites), "utf-8")
