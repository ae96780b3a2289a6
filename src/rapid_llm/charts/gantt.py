"""Rows of bars along one axis, with marks across all rows."""

from collections.abc import Sequence
from dataclasses import dataclass

from rapid_llm.charts.svg import CHARACTER, box, colour, drawing, fitted, line, words

ROW = 22.0
"""Height of a row, px."""
GAP = 3.0
"""Space between rows, px."""
HEAD = 54.0
"""Room for the legend and the names of the marks, px."""
NAMES = 2
"""Lines on which the names of the marks stand."""


@dataclass(frozen=True, slots=True)
class Bar:
    """A bar from ``start`` to ``end`` in a colour of the palette, paler with a lower ``shade``."""

    start: float
    end: float
    colour: int
    label: str = ""
    tip: str = ""
    shade: float = 0.8


def gantt(
    rows: Sequence[tuple[str, Sequence[Bar]]],
    *,
    legend: Sequence[tuple[str, int]] = (),
    marks: Sequence[tuple[float, str]] = (),
    title: str = "",
    width: float = 960,
) -> str:
    """One row of bars a name, all on one axis from 0; ``marks`` are lines across the rows with a name above them."""
    labels = max((len(name) for name, _ in rows), default=0) * CHARACTER + 12
    most = max((bar.end for _, bars in rows for bar in bars), default=0.0) or 1.0
    scale = (width - labels) / most
    pieces, across = [], labels
    for name, fill in legend:
        pieces += [box((across, 3, 10, 10), colour(fill), more='fill-opacity="0.8"'), words(across + 15, 12, name)]
        across += len(name) * CHARACTER + 32
    for index, (name, bars) in enumerate(rows):
        y = HEAD + index * (ROW + GAP)
        pieces.append(words(labels - 8, y + 15, name, anchor="end"))
        pieces += [piece for bar in bars for piece in _bar(bar, labels, scale, y)]
    bottom = HEAD + len(rows) * (ROW + GAP)
    free = [labels] * NAMES
    for at, name in sorted(marks):
        x, need = labels + at * scale, (len(name) + 1) * CHARACTER
        pieces.append(line(x, HEAD - 6, x, bottom))
        left = min(x + 3, width - need)
        level = next((level for level in range(NAMES) if free[level] <= left), None)
        if level is not None:  # a name that would run into those before it is left out
            pieces.append(words(left, HEAD - 8 - 14 * level, name, dim=True))
            free[level] = left + need
    return drawing(width, bottom + 2, pieces, title)


def _bar(bar: Bar, left: float, scale: float, y: float) -> list[str]:
    x, length = left + bar.start * scale, (bar.end - bar.start) * scale
    seam = min(0.5, length / 4)
    shape = box((x, y, length - seam, ROW), colour(bar.colour), bar.tip, f'fill-opacity="{bar.shade}"')
    inside = fitted(bar.label, length - 2) if length > CHARACTER else ""
    if not inside:
        return [shape]
    return [shape, words(x + length / 2, y + 15, inside, anchor="middle", more='pointer-events="none"')]
