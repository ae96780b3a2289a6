"""The run folder of ``--out``: what was asked, what came out, and its tables."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from rapid_llm.cli.files import whole_folder, write_page, write_text
from rapid_llm.cli.page import page
from rapid_llm.cli.text import json_text
from rapid_llm.predict.explaining import explain
from rapid_llm.predict.report import Cost, Report, plain_value
from rapid_llm.scenario import Scenario


def write(scenario: Scenario, report: Report, folder: str) -> None:
    """Write scenario.yaml, report.json, breakdown.csv, kernels.csv and report.html into ``folder``."""
    out = whole_folder(folder)
    with (out / "scenario.yaml").open("w", encoding="utf-8") as stream:
        YAML().dump(dict(report.scenario), stream)
    write_text(out / "report.json", json_text(report.to_dict()) + "\n")
    write_text(out / "report.html", page(report))
    if report.breakdown is not None:
        _table(out / "breakdown.csv", _breakdown(report.breakdown))
        _table(out / "kernels.csv", (plain_value(row) for row in explain(scenario)))


def write_timeline(scenario: Scenario, report: Report, file: str) -> None:
    """Write the schedule of a training step as a page; nothing where the answer gives no times."""
    from rapid_llm.predict.schedule_page import timeline_html

    if not report.feasible and report.breakdown is None:
        return
    write_page("--timeline", file, timeline_html(scenario))


def _breakdown(cost: Cost, path: tuple[str, ...] = ()) -> Iterator[dict[str, Any]]:
    """Yield one row per node of the tree: path, seconds, hidden seconds, whether it is a leaf, and its bound."""
    here = (*path, cost.name)
    yield {
        "path": "/".join(here),
        "seconds": cost.seconds,
        "hidden_seconds": cost.hidden_seconds,
        "leaf": not cost.children,
        "bound": cost.bound,
    }
    for child in cost.children:
        yield from _breakdown(child, here)


def _table(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    rows = list(rows)
    if not rows:
        return
    with path.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.DictWriter(stream, fieldnames=list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
