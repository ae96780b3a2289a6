"""The scorecard: results by suite, group, metric and split, each beside what a naive model reaches on the same rows."""

import csv
import io
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np

from rapid_llm.validation import metrics
from rapid_llm.validation.evaluation import Result

MEAN = "all"
"""The group that is the unweighted mean over groups."""
VERDICT = "verdict"


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreRow:
    """One line of the scorecard. Errors are fractions of the measurement; None where no row has one.

    ``n`` rows are of the group, ``evaluated`` of them predicted, the others ``skipped`` by reason. ``baseline_mape`` is
    the first of ``baselines``, on the evaluated rows. ``regret``: how much longer the plan ranked first of a training
    job took than its best. Verdicts have ``accuracy``, and the ``precision`` and ``recall``
    of running out of memory, in place of errors.
    """

    suite: str
    group: str
    metric: str
    split: Literal["fit", "unseen", "all"]
    n: int
    evaluated: int
    skipped: Mapping[str, int] = field(default_factory=dict)
    mape: float | None = None
    median: float | None = None
    p90: float | None = None
    bias: float | None = None
    rank: float | None = None
    regret: float | None = None
    baseline_mape: float | None = None
    baselines: Mapping[str, float] = field(default_factory=dict)
    accuracy: float | None = None
    precision: float | None = None
    recall: float | None = None


@dataclass(frozen=True, slots=True)
class Scorecard:
    """Rows of the scorecard, the results that they sum up, and a sentence for each ``broken`` row or table."""

    rows: tuple[ScoreRow, ...]
    results: tuple[Result, ...]
    broken: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """``{"suites": [row, ...]}``."""
        return {"suites": [asdict(row) for row in self.rows]}

    def write_rows(self, path: Path) -> None:
        """Write one CSV line per case: measured, predicted, error, or why it was skipped."""
        path.write_text(rows_csv(self.results), "utf-8")


def score(results: Sequence[Result]) -> Scorecard:
    """Sum up results: every group with each split that it has, then the mean over groups."""
    groups: dict[tuple[str, str, str], list[Result]] = {}
    for result in results:
        case = result.case
        groups.setdefault((case.suite, case.metric, case.group), []).append(result)
    rows: list[ScoreRow] = []
    for suite, metric in dict.fromkeys((s, m) for s, m, _ in groups):
        inside = {group: found for (s, m, group), found in groups.items() if (s, m) == (suite, metric)}
        lines = [line for group, found in inside.items() for line in _lines(suite, group, metric, found)]
        headline = {group for group, found in inside.items() if found[0].case.headline}
        rows += [*lines, *_means([line for line in lines if line.group in headline])]
    return Scorecard(tuple(rows), tuple(results))


def against(rows: Iterable[ScoreRow], baseline: str) -> dict[str, dict[str, float]]:
    """Suite and metric to each group's error over that of a baseline: of unseen rows, or of all where none is."""
    ratios: dict[str, dict[str, float]] = {}
    for row in sorted(rows, key=lambda row: row.split != "all"):
        base = row.baselines.get(baseline)
        if row.split != "fit" and row.group != MEAN and base and row.mape is not None:
            ratios.setdefault(f"{row.suite} {row.metric}", {})[row.group] = row.mape / base
    return ratios


def _lines(suite: str, group: str, metric: str, results: Sequence[Result]) -> Iterable[ScoreRow]:
    for split in ("fit", "unseen", "all"):
        chosen = [r for r in results if split in ("all", r.case.split)]
        if chosen:
            yield _line(suite, group, metric, split, chosen)


def _line(
    suite: str, group: str, metric: str, split: Literal["fit", "unseen", "all"], results: Sequence[Result]
) -> ScoreRow:
    scored = [r for r in results if r.predicted is not None]
    skipped = Counter(r.reason for r in results if r.predicted is None)
    figures = _verdict(scored) if metric == VERDICT else _figures(scored)
    return ScoreRow(
        suite=suite,
        group=group,
        metric=metric,
        split=split,
        n=len(results),
        evaluated=len(scored),
        skipped=dict(skipped.most_common()),
        **figures,
    )


def _pairs(results: Iterable[Result]) -> tuple[list[float], list[float]]:
    found = [(r.predicted, r.case.measured) for r in results if r.predicted is not None]
    return [predicted for predicted, _ in found], [measured for _, measured in found]


def _figures(results: Sequence[Result]) -> dict[str, Any]:
    predicted, measured = _pairs(results)
    found = metrics.errors(predicted, measured)
    if found is None:
        return {}
    keyed: dict[str, list[Result]] = {}
    for result in results:
        keyed.setdefault(result.case.key, []).append(result)
    baselines = _baselines(results)
    return {
        **asdict(found),
        "rank": metrics.rank_within(_pairs(group) for group in keyed.values()),
        "regret": metrics.regret(_pairs(group) for group in _jobs(results)),
        "baselines": baselines,
        "baseline_mape": next(iter(baselines.values()), None),
    }


def _jobs(results: Iterable[Result]) -> Iterable[Sequence[Result]]:
    """Rows of one training job under different plans: as many tokens a step of one model on as many accelerators."""
    found: dict[tuple[Any, ...], list[Result]] = {}
    for result in results:
        case = result.case
        if case.metric == "step_time" and case.scenario is not None and result.predicted is not None:
            work = case.scenario.get("workload", {})
            size = (work.get("global_batch_size"), work.get("sequence_length"), case.scenario.get("accelerators"))
            found.setdefault((case.key, *size), []).append(result)
    return found.values()


def _baselines(results: Sequence[Result]) -> dict[str, float]:
    """MAPE of each naive model on the rows that we predicted, its constants chosen on these very rows."""
    named: dict[str, dict[str | None, list[tuple[float, float]]]] = {}
    for result in results:
        for name, base in result.case.baselines.items():
            pair = (base.prediction, result.case.measured)
            named.setdefault(name, {}).setdefault(base.constant, []).append(pair)
    return {name: _baseline_mape(groups) for name, groups in named.items()}


def _baseline_mape(groups: Mapping[str | None, Sequence[tuple[float, float]]]) -> float:
    sizes = []
    for constant, pairs in groups.items():
        predicted, measured = np.array(pairs).T
        factor = 1.0 if constant is None else metrics.best_constant(predicted, measured)
        sizes.append(np.abs(metrics.relative(factor * predicted, measured)))
    return float(np.concatenate(sizes).mean())


def _verdict(results: Sequence[Result]) -> dict[str, Any]:
    predicted, measured = _pairs(results)
    found = metrics.verdict(predicted, measured)
    return asdict(found) if found else {}


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else None


def _means(lines: Sequence[ScoreRow]) -> Iterable[ScoreRow]:
    """The group ``all`` of one suite and metric, for each split."""
    averaged = ("mape", "median", "p90", "bias", "rank", "baseline_mape", "accuracy", "precision", "recall")
    for split in ("fit", "unseen", "all"):
        chosen = [line for line in lines if line.split == split]
        if not chosen:
            continue
        names = dict.fromkeys(name for line in chosen for name in line.baselines)
        baselines = {name: _mean(line.baselines.get(name) for line in chosen) for name in names}
        yield ScoreRow(
            suite=chosen[0].suite,
            group=MEAN,
            metric=chosen[0].metric,
            split=split,
            n=sum(line.n for line in chosen),
            evaluated=sum(line.evaluated for line in chosen),
            skipped=dict(sum((Counter(line.skipped) for line in chosen), Counter()).most_common()),
            baselines={name: value for name, value in baselines.items() if value is not None},
            **{name: _mean(getattr(line, name) for line in chosen) for name in averaged},
        )


def rows_csv(results: Iterable[Result]) -> str:
    """Results as CSV text, one line per case."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(
        ["suite", "group", "metric", "id", "split", "key", "measured", "predicted", "error", "skipped", "scenario"]
    )
    for result in results:
        case = result.case
        numbers = ["" if x is None else f"{x:.6g}" for x in (result.predicted, result.error)]
        measured = f"{case.measured:.6g}" if case.measured or result.predicted is not None else ""
        scenario = "" if case.scenario is None else _compact(case.scenario)
        cells = [case.suite, case.group, case.metric, case.id, case.split, case.key, measured, *numbers]
        writer.writerow([*cells, result.reason, scenario])
    return out.getvalue()


def _compact(scenario: Mapping[str, Any]) -> str:
    import json

    return json.dumps(scenario, separators=(",", ":"))
