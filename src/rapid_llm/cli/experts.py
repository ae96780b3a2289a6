"""Places of experts, in words: the rank that the others wait for, and what copies take."""

from __future__ import annotations

from rapid_llm.cli import text
from rapid_llm.predict.report import Report
from rapid_llm.units import format_bytes

SMALLEST_GAIN = 5e-3


def experts_lines(report: Report, width: int) -> list[str]:
    """How much more the hottest rank has than the mean, and would have unplaced; nothing where that is not known."""
    use = report.experts
    if use is None:
        return []
    said = f"hottest of {use.ranks} ranks has {use.hottest_over_mean:.2f}x the mean of tokens"
    if abs(use.in_a_row_over_mean - use.hottest_over_mean) >= SMALLEST_GAIN:
        said += f" ({use.in_a_row_over_mean:.2f}x unplaced)"
    if use.layer is not None:
        said += f", {use.layer_over_mean:.2f}x in layer {use.layer} of those with experts"
    if use.copies:
        copies = f"{use.copies:,} redundant {'copy' if use.copies == 1 else 'copies'}"
        said += f"; {copies} take {format_bytes(use.copied_bytes)} a rank"
    return text.wrapped("experts", said, lines=2, width=width)
