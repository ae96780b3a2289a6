"""A report as one self-contained page."""

from __future__ import annotations

from html import escape

from rapid_llm import charts
from rapid_llm.cli import text, words
from rapid_llm.cli.answer import UNFOLDED, answer, title
from rapid_llm.predict.pictures import memory_svg
from rapid_llm.predict.report import Report


def page(report: Report) -> str:
    """The terminal answer, the memory bar and the breakdown as HTML without any outside resource."""
    lines, heading = answer(report, shown=UNFOLDED), title(report.scenario, text.WIDTH)[0]
    lines.remove(heading)
    sections = [
        ("Answer", f"<pre>{escape(chr(10).join(lines))}</pre>"),
        ("Memory of the fullest rank", memory_svg(report)),
    ]
    if report.breakdown is not None:
        drawn = charts.icicle(words.branch(report.breakdown), form=text.seconds, title="Where the time goes")
        sections.append(("Where the time goes", drawn))
    return charts.page(heading, sections)
