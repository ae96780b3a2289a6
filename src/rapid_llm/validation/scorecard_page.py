"""What a page of a scorecard shows beside its table: predicted against measured, and what was skipped."""

from collections.abc import Iterable, Sequence

from rapid_llm import charts
from rapid_llm.validation.evaluation import Result
from rapid_llm.validation.scorecard import MEAN, VERDICT, Scorecard, ScoreRow

UNITS = {"peak": "B", "persistent": "B", "throughput": "tokens/s"}
"""Unit of a metric; all others are seconds."""
_MOST = 2000
"""Points of one plot; of more, evenly many of each group are drawn."""


def sections(card: Scorecard) -> list[tuple[str, str]]:
    """Titles and HTML without any outside resource."""
    kinds = dict.fromkeys((r.case.suite, r.case.metric) for r in card.results if r.case.metric != VERDICT)
    found = []
    for suite, metric in kinds:
        chosen = [r for r in card.results if (r.case.suite, r.case.metric) == (suite, metric)]
        if plot := _plot(chosen, metric):
            found.append((f"{suite}: {metric}", plot))
    skipped = _skipped(card.rows)
    return [*found, *([("Skipped", skipped)] if skipped else [])]


def _plot(results: Sequence[Result], metric: str) -> str:
    """Predicted over measured, one colour a group, and the line where they are equal."""
    groups: dict[str, list[Result]] = {}
    for result in results:
        if result.predicted is not None:
            groups.setdefault(result.case.group, []).append(result)
    if not groups:
        return ""
    measured = [r.case.measured for found in groups.values() for r in found]
    ends, step = (min(measured), max(measured)), -(-len(measured) // _MOST)
    series = [charts.Series("equal", ends, ends, bound=True)] + [
        _series(group, found[::step]) for group, found in groups.items()
    ]
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
    """Why rows were not scored, by suite and metric; empty where all were."""
    lines = [
        [row.suite, row.metric, str(count), reason]
        for row in rows
        if row.group == MEAN and row.split == "all"
        for reason, count in row.skipped.items()
    ]
    return charts.table(("suite", "metric", "rows", "reason"), lines, numeric=(2,)) if lines else ""
