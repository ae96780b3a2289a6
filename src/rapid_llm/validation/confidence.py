"""Error quantiles of the scorecard, as the data file that predictions read to say how far to trust them."""

from pathlib import Path

from rapid_llm.validation.scorecard import MEAN, Scorecard, ScoreRow

HEADER = """\
# Errors of predictions against published measurements, by suite and group; written by `make validate`.
# Rows of split `unseen` were never used to fit a constant. Fractions of the measurement.
source: the scorecard of this version
kind: measured
quantiles:
"""


def _chosen(rows: tuple[ScoreRow, ...]) -> list[ScoreRow]:
    """Unseen rows of every group; all rows of a group that has none; the means over groups last."""
    unseen = {(r.suite, r.group, r.metric) for r in rows if r.split == "unseen" and r.median is not None}

    def wanted(row: ScoreRow) -> bool:
        key = (row.suite, row.group, row.metric)
        return row.median is not None and (row.split == "unseen" or (row.split == "all" and key not in unseen))

    return sorted(filter(wanted, rows), key=lambda row: row.group == MEAN)


def quantiles_yaml(card: Scorecard) -> str:
    """The quantiles of a scorecard as YAML: suite, group, metric, split, rows, median, p90, bias."""
    lines = (
        f"  - {{suite: {row.suite}, group: '{row.group}', metric: {row.metric}, split: {row.split}, "
        f"rows: {row.evaluated}, median: {row.median:.4f}, p90: {row.p90:.4f}, bias: {row.bias:.4f}}}\n"
        for row in _chosen(card.rows)
    )
    return HEADER + "".join(lines)


def write(card: Scorecard, path: Path) -> None:
    """Write the quantiles of a scorecard to a file."""
    path.write_text(quantiles_yaml(card), "utf-8")
