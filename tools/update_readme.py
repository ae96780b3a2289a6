"""Refresh what README.md quotes between its marks: the scorecard's means and one answer."""

import re
from pathlib import Path

from rapid_llm import predict
from rapid_llm.cli.answer import answer
from rapid_llm.scenario import load
from rapid_llm.validation import Scorecard, ScoreRow, run

ROOT = Path(__file__).resolve().parents[1]
README, EXAMPLE = ROOT / "README.md", ROOT / "examples" / "llama-3.1-70b-training.yaml"
HEADER = "| suite | what | groups | rows | mean error | unseen groups | naive model |"
NAMES = {"step_time": "step time", "e2e": "end to end", "ttft": "TTFT", "tpot": "TPOT", "peak": "peak memory"}


def main() -> None:
    """Score the published figures, answer the example, and replace both in the README."""
    text = README.read_text("utf-8")
    text = _placed(text, "accuracy", accuracy(run()))
    lines = answer(predict(load(EXAMPLE), sensitivities=True))
    text = _placed(text, "answer", "\n".join(["```text", *lines, "```"]))
    README.write_text(text, "utf-8")


def _placed(text: str, mark: str, content: str) -> str:
    """Text with ``content`` between the begin and end of a mark."""
    place = re.compile(rf"(<!-- {mark}: begin -->\n).*?(<!-- {mark}: end -->)", re.DOTALL)
    return place.sub(lambda found: f"{found[1]}{content}\n{found[2]}", text)


def accuracy(card: Scorecard) -> str:
    """A Markdown table: one line per suite and metric, the mean over groups, all rows and unseen rows."""
    means = {(row.suite, row.metric, row.split): row for row in card.rows if row.group == "all"}
    lines = [HEADER, "|---|---|---|---|---|---|---|"]
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
