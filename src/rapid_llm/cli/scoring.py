"""``validate``: the scorecard as a table, JSON, a page, or one row per case."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

from rapid_llm import charts
from rapid_llm.cli import text
from rapid_llm.cli.files import page_file, write_page
from rapid_llm.cli.style import show
from rapid_llm.cli.text import json_text
from rapid_llm.errors import InputError
from rapid_llm.validation import STRUCTURAL, Scorecard, ScoreRow, against, confidence, run
from rapid_llm.validation.scorecard_page import sections

_HEADER = ("suite", "metric", "group", "rows", "scored", "MAPE", "unseen", "median", "p90", "bias", "rank", "baselines")
_SHOWN = 5
"""Broken rows that the terminal lists."""
_NOTE = (
    "MAPE: mean of |predicted / measured - 1|. unseen: the same over rows that took no part in any fit. "
    "rank: Spearman's correlation inside a group. baselines: MAPE of simpler models on the same rows, "
    "their constants chosen on these very rows. The group 'all' is the unweighted mean over groups. "
    "A verdict shows accuracy, and precision and recall of running out of memory."
)


@dataclass(frozen=True, kw_only=True)
class Files:
    """Files to write beside the printed scorecard."""

    html: str | None = None
    rows: str | None = None
    quantiles: str | None = None
    kernel_quantiles: str | None = None


def score(suites: Sequence[str], *, data: str | None, as_json: bool, files: Files) -> int:
    """Run the suites, write the files that were asked for and print the scorecard."""
    if files.html is not None:
        page_file("--html", files.html)
    for flag, file in (("--rows", files.rows), ("--quantiles", files.quantiles)):
        if file is not None and not Path(file).parent.is_dir():
            raise InputError(f"{flag} {file}: there is no folder {Path(file).parent}. Create it, or name another file.")
    card = run(suites, data, progress=_progress if sys.stderr.isatty() else None)
    _refuse_nothing(card)
    if files.rows is not None:
        card.write_rows(Path(files.rows))
    if files.html is not None:
        write_page("--html", files.html, _page(card))
    if files.quantiles is not None:
        confidence.write((card, *_published(suites, data)), Path(files.quantiles))
    if files.kernel_quantiles is not None:
        confidence.write((card,), Path(files.kernel_quantiles), confidence.KERNELS)
    if as_json:
        print(json_text(card.to_json()))
    else:
        show(_lines(card))
    return 0


def _refuse_nothing(card: Scorecard) -> None:
    """InputError where rows are broken and nothing is left to score."""
    if card.broken and all(result.predicted is None for result in card.results):
        rest = f" So are {len(card.broken) - 1} more rows." if len(card.broken) > 1 else ""
        raise InputError(f"{card.broken[0]}{rest} Nothing is left to score. Try the table as it was measured.")


def _published(suites: Sequence[str], data: str | None) -> tuple[Scorecard, ...]:
    """The package's own figures beside those of a folder: groups that the folder lacks are measured all the same."""
    quoted = [name for name in confidence.PUBLISHED if not suites or name in suites]
    return (run(quoted),) if data is not None and quoted else ()


def _progress(done: int, total: int) -> None:
    end = "\n" if done == total else ""
    print(f"\r{done} of {total} scenarios", end=end, file=sys.stderr, flush=True)


def _lines(card: Scorecard) -> list[str]:
    table = text.columns(_table(card), _HEADER, right=range(3, len(_HEADER)))
    return [
        *table,
        *_simpler(card.rows),
        *_regret(card.rows),
        *_structural(card.rows),
        *_skipped(card.rows),
        *_broken(card.broken),
        *text.wrapped("", _NOTE, indent=0, lines=5),
    ]


def _table(card: Scorecard) -> list[list[str]]:
    """One line per suite, metric and group; the column ``unseen`` takes the error of that split."""
    unseen = {(row.suite, row.metric, row.group): row.mape for row in card.rows if row.split == "unseen"}
    return [_cells(row, unseen.get((row.suite, row.metric, row.group))) for row in card.rows if row.split == "all"]


def _cells(row: ScoreRow, unseen: float | None) -> list[str]:
    cells = [_percent(value) for value in (row.mape, unseen, row.median, row.p90, row.bias)]
    cells.append("-" if row.rank is None else f"{row.rank:.2f}")
    cells.append(" / ".join(_percent(row.baselines[name]) for name in _names(row)) or "-")
    if row.accuracy is not None:
        named = zip(("acc", "prec", "rec"), (row.accuracy, row.precision, row.recall), strict=True)
        cells[:3] = [f"{name} {_percent(value)}" for name, value in named]
    return [row.suite, row.metric, row.group, str(row.n), str(row.evaluated), *cells]


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.1f} %"


def _names(row: ScoreRow) -> list[str]:
    """The simpler models of a row that predict from a description; the structural fit has lines of its own."""
    return [name for name in row.baselines if name != STRUCTURAL]


def _simpler(rows: Iterable[ScoreRow]) -> list[str]:
    """Which models the baselines of each suite and metric are, in the order of their column."""
    named: dict[str, list[str]] = {}
    for row in rows:
        if row.group == "all" and row.split == "all" and (names := " / ".join(_names(row))):
            named.setdefault(names, []).append(f"{row.suite} {row.metric}")
    return [
        line for names, of in named.items() for line in text.wrapped("baselines", f"{names}: {', '.join(of)}", lines=4)
    ]


def _regret(rows: Iterable[ScoreRow]) -> list[str]:
    """How much longer the plan that is ranked first took than the best of its job, where plans were swept."""
    swept = [row for row in rows if row.regret is not None and row.rank is not None and row.group != "all"]
    last = {(row.suite, row.group): row for row in sorted(swept, key=lambda row: row.split == "unseen")}
    said = ", ".join(f"{group} {_percent(row.regret)}" for (_, group), row in last.items())
    return text.wrapped("regret", f"of the plan ranked first, over the fastest: {said}", lines=6) if said else []


def _structural(rows: Iterable[ScoreRow]) -> list[str]:
    """How often a published structural fit to the very rows is met, and where it is missed most."""
    lines: list[str] = []
    for name, ratios in against(rows, STRUCTURAL).items():
        met = sum(ratio <= 1.0 for ratio in ratios.values())
        worst = max(ratios, key=lambda group: ratios[group])
        said = f"{name}: structural fit met or beaten in {met} of {len(ratios)} groups"
        lines += text.wrapped("ladder", f"{said}; worst {ratios[worst]:.2f} of its error ({worst})", lines=2)
    return lines


def _skipped(rows: Iterable[ScoreRow]) -> list[str]:
    """What was not scored and why, over all groups of a suite."""
    return [
        line
        for row in rows
        if row.group == "all" and row.split == "all"
        for reason, count in row.skipped.items()
        for line in text.wrapped(
            "skipped", f"{text.counted(count, 'row')} of {row.suite} {row.metric}: {reason}", lines=2
        )
    ]


def _broken(said: Sequence[str]) -> list[str]:
    """The first broken rows, by file and line."""
    more = [f"and {len(said) - _SHOWN} more rows"] if len(said) > _SHOWN else []
    return [line for one in (*said[:_SHOWN], *more) for line in text.wrapped("broken", one, lines=3)]


def _page(card: Scorecard) -> str:
    table = charts.table(_HEADER, _table(card), numeric=range(3, len(_HEADER)))
    head = ("Predictions against measurements", f"{table}<p>{escape(_NOTE)}</p>")
    return charts.page("RAPID-LLM scorecard", [head, *sections(card)])
