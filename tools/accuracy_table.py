"""Write the scorecard's means into README.md, between its two accuracy marks."""

import re
from pathlib import Path

from rapid_llm.validation import Scorecard, ScoreRow, run

README = Path(__file__).resolve().parents[1] / "README.md"
PLACE = re.compile(r"(<!-- accuracy: begin -->\n).*?(<!-- accuracy: end -->)", re.DOTALL)
HEADER = "| suite | what | groups | rows | mean error | unseen groups | naive model |"
NAMES = {"step_time": "step time", "e2e": "end to end", "ttft": "TTFT", "tpot": "TPOT", "peak": "peak memory"}


def main() -> None:
    """Score the published figures and replace the table."""
    table = accuracy(run())
    README.write_text(PLACE.sub(lambda found: f"{found[1]}{table}\n{found[2]}", README.read_text("utf-8")), "utf-8")
    print(table)


def accuracy(card: Scorecard) -> str:
    """A Markdown table: one line per suite and metric, the mean over groups, all rows and unseen rows."""
    means = {(row.suite, row.metric, row.split): row for row in card.rows if row.group == "all"}
    lines = [
        "| suite | what | groups | rows | mean error | unseen groups | naive model |",
        "|---|---|---|---|---|---|---|",
    ]
    for (suite, metric, split), row in means.items():
        if split == "all":
            groups = len({one.group for one in card.rows if (one.suite, one.metric) == (suite, metric)}) - 1
            unseen = means.get((suite, metric, "unseen"))
            cells = [suite, NAMES.get(metric, metric), str(groups), str(row.evaluated), *_errors(row, unseen)]
            lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _errors(row: ScoreRow, unseen: ScoreRow | None) -> list[str]:
    if row.accuracy is not None:
        return [f"{_percent(row.accuracy)} right", "-", "-"]
    return [_percent(row.mape), _percent(unseen.mape if unseen else None), _percent(row.baseline_mape)]


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.1f} %"


if __name__ == "__main__":
    main()
