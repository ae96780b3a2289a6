"""A report as HTML: the headline, the memory bar and the breakdown, for notebooks and report pages."""

from __future__ import annotations

from collections.abc import Iterator

from rapid_llm import charts
from rapid_llm.predict.report import Cost, Report
from rapid_llm.units import format_bytes, format_percent, format_seconds


def report_html(report: Report) -> str:
    """The report as an HTML fragment without any outside resource."""
    parts = [charts.table(("", ""), list(headline_rows(report)), numeric=(1,)), memory_svg(report)]
    if report.breakdown is not None:
        parts.append(charts.icicle(_branch(report.breakdown), form=format_seconds, title="Where the time goes"))
    return "\n".join(f"<div>{part}</div>" for part in parts)


def headline_rows(report: Report) -> Iterator[tuple[str, str]]:
    """The numbers of the answer as (what, value with its unit)."""
    yield "fits", "yes" if report.feasible else report.violations[0].message if report.violations else "no"
    for name, value in (
        ("step time", report.step_time_s),
        ("TTFT", report.ttft_s),
        ("TPOT", report.tpot_s),
        ("E2E", report.e2e_s),
    ):
        if value is not None:
            yield name, format_seconds(value)
    for name, value in (("tokens/s", report.tokens_per_s), ("output tokens/s", report.output_tokens_per_s)):
        if value is not None:
            yield name, f"{value:,.0f}"
    if report.mfu is not None:
        yield "MFU", format_percent(report.mfu)
    if report.bound_by:
        yield "bound by", report.bound_by


def memory_svg(report: Report) -> str:
    """The fullest rank's bytes by category against what a process may use."""
    use = report.memory
    parts = [charts.Part(name.replace("_", " "), float(size)) for name, size in use.by_category.items() if size]
    return charts.stacked_bar(
        parts,
        limit=float(use.limit_bytes or use.capacity_bytes),
        form=lambda size: format_bytes(round(size)),
        title="Memory of the fullest rank",
    )


def _branch(cost: Cost) -> charts.Branch:
    return charts.Branch(
        cost.name, max(cost.seconds, 0.0), tuple(_branch(child) for child in cost.children), cost.bound
    )
