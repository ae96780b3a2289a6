"""Planes: lines and points over two axes (linear or logarithmic), and a heat map."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape

from rapid_llm.charts.columns import Format, Series, short
from rapid_llm.charts.svg import CHARACTER, box, colour, drawing, fitted, line, words

LEFT, BOTTOM, TOP, RIGHT = 64.0, 40.0, 12.0, 24.0
"""Margins of a plot, px."""
ROW = 18.0
"""Height of a line of the legend, px."""
TICKS = 5
"""About so many marks on a linear axis."""


@dataclass(frozen=True, slots=True)
class _Axis:
    """One axis: from a number to px, and where its marks stand."""

    place: Callable[[float], float]
    ticks: Sequence[float]


def plot(
    series: Sequence[Series],
    *,
    x_label: str = "",
    y_label: str = "",
    log_x: bool = False,
    log_y: bool = False,
    form: Format = short,
    form_x: Format = short,
    title: str = "",
    size: tuple[float, float] = (720, 360),
    unit: float = 1.0,
    from_zero: bool = True,
) -> str:
    """Lines and points, the legend below. Points that a logarithmic axis cannot show (0 or less) are left out.

    ``form`` prints the marks of the upright axis, at round multiples of ``unit``; ``form_x`` those of the other, which
    starts at 0, or (``from_zero`` false) where the points do.
    """
    width, height = size
    kept = [_visible(one, log_x, log_y) for one in series]
    across = _axis([p[0] for points in kept for p in points], log_x, LEFT, width - RIGHT, from_zero=from_zero)
    up = _axis([p[1] for points in kept for p in points], log_y, height - BOTTOM, TOP, unit)
    pieces = _grid(across, up, width, height, (form_x, form))
    pieces += [words((LEFT + width) / 2, height - 6, x_label, anchor="middle", dim=True)]
    pieces += [words(-height / 2, 14, y_label, anchor="middle", dim=True, more='transform="rotate(-90)"')]
    for index, (one, points) in enumerate(zip(series, kept, strict=True)):
        placed = [(across.place(x), up.place(y), tip) for x, y, tip in points]
        pieces += _drawn(one, placed, _stroke(one, index), height - BOTTOM)
    named = [(one.label, _stroke(one, index)) for index, one in enumerate(series) if one.label]
    legend, end = _legend(named, width, height + ROW)
    return drawing(width, end if named else height, [*pieces, *legend], title)


def _stroke(one: Series, index: int) -> str:
    return "var(--ink)" if one.bound else colour(index)


def _legend(named: Sequence[tuple[str, str]], width: float, y: float) -> tuple[list[str], float]:
    """Labels beside their colours in as many lines as they need from ``y`` on, and where they end."""
    pieces, x = [], LEFT
    for label, fill in named:
        need = len(label) * CHARACTER + 30
        if x + need > width and x > LEFT:
            x, y = LEFT, y + ROW
        pieces += [box((x, y - 9, 10, 10), fill), words(x + 15, y, label)]
        x += need
    return pieces, y + 8


def _visible(one: Series, log_x: bool, log_y: bool) -> list[tuple[float, float, str]]:
    labels = [*one.labels, *[""] * (len(one.x) - len(one.labels))]
    points = zip(one.x, one.y, labels, strict=True)
    return [
        (x, y, label)
        for x, y, label in points
        if math.isfinite(x) and math.isfinite(y) and (x > 0 or not log_x) and (y > 0 or not log_y)
    ]


def _axis(
    values: Sequence[float], log: bool, start: float, end: float, unit: float = 1.0, *, from_zero: bool = True
) -> _Axis:
    low, high = (min(values), max(values)) if values else (1.0, 10.0)
    if log:
        first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
        last = max(last, first + 1)
        span = (end - start) / (last - first)
        return _Axis(lambda v: start + (math.log10(v) - first) * span, [10.0**k for k in range(first, last + 1)])
    low = min(low, 0.0) if from_zero else low
    step = _round_step((high - low) / TICKS / unit) * unit
    low = low if from_zero else math.floor(low / step) * step
    count = math.ceil((high - low) / step) or 1
    ticks = [low + step * k for k in range(count + 1)]
    span = (end - start) / (step * count)
    return _Axis(lambda v: start + (v - low) * span, ticks)


def _round_step(step: float) -> float:
    """The next of 1, 2, 5 x 10^k at or above a step."""
    if step <= 0:
        return 1.0
    power: float = 10.0 ** math.floor(math.log10(step))
    return next(m * power for m in (1, 2, 5, 10) if m * power >= step * (1 - 1e-9))


def _grid(across: _Axis, up: _Axis, width: float, height: float, forms: tuple[Format, Format]) -> list[str]:
    form_x, form = forms
    pieces = []
    for tick in across.ticks:
        x = across.place(tick)
        pieces += [line(x, TOP, x, height - BOTTOM), words(x, height - BOTTOM + 15, form_x(tick), anchor="middle")]
    for tick in up.ticks:
        y = up.place(tick)
        pieces += [line(LEFT, y, width - RIGHT, y), words(LEFT - 6, y + 4, form(tick), anchor="end")]
    return pieces


def _drawn(one: Series, points: list[tuple[float, float, str]], fill: str, floor: float) -> list[str]:
    """A line through its points, or an area, labelled points of which have a tooltip."""
    pieces = []
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y, _ in points)
    if one.filled and points:
        ends = f"{points[-1][0]:.1f},{floor:.1f} {points[0][0]:.1f},{floor:.1f}"
        pieces.append(f'<polygon points="{path} {ends}" fill="{fill}"><title>{escape(one.label)}</title></polygon>')
    elif one.joined and len(points) > 1:
        dashes = ' stroke-dasharray="6 4"' if one.bound else ""
        pieces.append(f'<polyline points="{path}" fill="none" stroke="{fill}" stroke-width="2"{dashes}/>')
    unseen = ' fill-opacity="0"' if one.filled else ""  # of an area only its tooltip
    for x, y, tip in points if one.marked and (one.labels or not (one.filled or one.bound)) else ():
        shape = box((x - 3, y - 3, 6, 6), fill, f"{one.label} {tip}".strip(), f'rx="3"{unseen}')
        pieces.append(shape)
    return pieces


def heat_map(
    rows: Sequence[str],
    columns: Sequence[str],
    values: Sequence[Sequence[float | None]],
    *,
    form: Format = short,
    title: str = "",
    cell: tuple[float, float] = (72, 28),
) -> str:
    """``values[row][column]`` as shaded cells with their numbers; None is hatched (no answer)."""
    known = [value for row in values for value in row if value is not None and math.isfinite(value)]
    low, high = (min(known), max(known)) if known else (0.0, 1.0)
    wide, tall = cell
    left = max((len(row) for row in rows), default=0) * CHARACTER + 12
    pieces = [
        '<defs><pattern id="none" width="6" height="6" patternUnits="userSpaceOnUse">'
        '<path class="g" d="M0 6L6 0"/></pattern></defs>'
    ]
    for column, label in enumerate(columns):
        pieces.append(words(left + (column + 0.5) * wide, 14, fitted(label, wide), anchor="middle", dim=True))
    for index, (label, row) in enumerate(zip(rows, values, strict=True)):
        y = 20 + index * tall
        pieces.append(words(left - 8, y + tall / 2 + 4, label, anchor="end", dim=True))
        for column, value in enumerate(row):
            x, tip = left + column * wide, f"{label}, {columns[column]}"
            if value is None or not math.isfinite(value):
                pieces.append(box((x, y, wide - 2, tall - 2), "url(#none)", f"{tip}: none"))
                continue
            shade = 0.12 + 0.6 * (value - low) / ((high - low) or 1.0)
            shaded = f'fill-opacity="{shade:.2f}"'
            pieces.append(box((x, y, wide - 2, tall - 2), colour(0), f"{tip}: {form(value)}", shaded))
            pieces.append(words(x + wide / 2 - 1, y + tall / 2 + 4, form(value), anchor="middle"))
    return drawing(left + len(columns) * wide, 24 + len(rows) * tall, pieces, title)
