"""A report as one self-contained page."""

from __future__ import annotations

from html import escape

from rapid_llm import charts
from rapid_llm.cli.answer import answer
from rapid_llm.predict.pictures import report_html
from rapid_llm.predict.report import Report


def page(report: Report) -> str:
    """The terminal answer, the memory bar and the breakdown as HTML without any outside resource."""
    title, *lines = answer(report)
    return charts.page(title, [("Answer", f"<pre>{escape(chr(10).join(lines))}</pre>"), ("Drawn", report_html(report))])
