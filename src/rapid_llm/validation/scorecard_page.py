"""The scorecard as one self-contained page: the table, what was skipped, and predicted against measured."""

from collections.abc import Iterable, Sequence

from rapid_llm import charts
from rapid_llm.validation.evaluation import Result
from rapid_llm.validation.scorecard import MEAN, VERDICT, Scorecard, ScoreRow

HEADER = ("suite", "metric", "group", "split", "rows", "scored", "MAPE", "median", "P90", "bias", "rank", "naive MAPE")
VERDICT_HEADER = ("suite", "group", "split", "rows", "scored", "accuracy", "precision", "recall")
UNITS = {"peak": "B", "persistent": "B", "throughput": "tokens/s"}
"""Unit of a metric; all others are seconds."""


def page(card: Scorecard) -> str:
    """Render a scorecard as HTML without any outside resource."""
    errors = [row for row in card.rows if row.metric != VERDICT]
    verdicts = [row for row in card.rows if row.metric == VERDICT]
    sections = [("Errors", charts.table(HEADER, [_cells(row) for row in errors], numeric=range(4, len(HEADER))))]
    if verdicts:
        cells = [_verdict_cells(row) for row in verdicts]
        numeric = range(3, len(VERDICT_HEADER))
        sections.append(("Does it run out of memory", charts.table(VERDICT_HEADER, cells, numeric=numeric)))
    kinds = dict.fromkeys((r.case.suite, r.case.metric) for r in card.results if r.case.metric != VERDICT)
    for suite, metric in kinds:
        chosen = [r for r in card.results if (r.case.suite, r.case.metric) == (suite, metric)]
        if plot := _plot(chosen, metric):
            sections.append((f"{suite}: {metric}", plot))
    sections.append(("Skipped", _skipped(card.rows)))
    return charts.page("RAPID-LLM scorecard", sections)


def _percent(value: float | None) -> str:
    return "" if value is None else f"{100 * value:.1f} %"


def _cells(row: ScoreRow) -> list[str]:
    rank = "" if row.rank is None else f"{row.rank:.2f}"
    figures = [_percent(x) for x in (row.mape, row.median, row.p90, row.bias)]
    start = [row.suite, row.metric, row.group, row.split, str(row.n), str(row.evaluated)]
    return [*start, *figures, rank, _percent(row.baseline_mape)]


def _verdict_cells(row: ScoreRow) -> list[str]:
    figures = [_percent(x) for x in (row.accuracy, row.precision, row.recall)]
    return [row.suite, row.group, row.split, str(row.n), str(row.evaluated), *figures]


def _plot(results: Sequence[Result], metric: str) -> str:
    """Predicted over measured, one colour a group, and the line where they are equal."""
    groups: dict[str, list[Result]] = {}
    for result in results:
        if result.predicted is not None:
            groups.setdefault(result.case.group, []).append(result)
    if not groups:
        return ""
    measured = [r.case.measured for found in groups.values() for r in found]
    ends = (min(measured), max(measured))
    series = [charts.Series("equal", ends, ends)] + [_series(group, found) for group, found in groups.items()]
    unit = UNITS.get(metric, "s")
    return charts.plot(
        series, x_label=f"measured ({unit})", y_label=f"predicted ({unit})", log_x=True, log_y=True, size=(720, 480)
    )


def _series(group: str, results: Sequence[Result]) -> charts.Series:
    return charts.Series(
        group,
        [r.case.measured for r in results],
        [r.predicted or 0.0 for r in results],
        joined=False,
        labels=[r.case.id for r in results],
    )


def _skipped(rows: Iterable[ScoreRow]) -> str:
    """Why rows were not scored, by suite and metric."""
    lines = [
        [row.suite, row.metric, str(count), reason]
        for row in rows
        if row.group == MEAN and row.split == "all"
        for reason, count in row.skipped.items()
    ]
    return charts.table(("suite", "metric", "rows", "reason"), lines, numeric=(2,))
