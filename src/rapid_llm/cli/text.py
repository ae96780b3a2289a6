"""Numbers as a reader wants them: three figures and a unit."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence

GIB = 2.0**30
WIDTH = 100
_TIME_UNITS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))
_DAY = 86400.0
_LARGE_UNITS = ((1e12, "T"), (1e9, "B"), (1e6, "M"))


def figures(value: float, digits: int = 3) -> str:
    """Print a number with so many significant figures, thousands separated, never as a power of ten."""
    if value == 0:
        return "0"
    if abs(value) >= 10 ** (digits - 1):
        return f"{value:,.0f}"
    return f"{value:#.{digits}g}".rstrip(".")


def seconds(value: float) -> str:
    """Print a time in the unit that leaves one to three digits before the point; days beyond one day."""
    if value >= _DAY:
        return f"{figures(value / _DAY)} days"
    for scale, unit in _TIME_UNITS:
        if value >= scale:
            return f"{figures(value / scale)} {unit}"
    return f"{figures(value / 1e-9)} ns" if value else "0 s"


def gib(value: float) -> str:
    """Print bytes in GiB with one decimal."""
    return f"{value / GIB:,.1f} GiB"


def rate(value: float, what: str = "tokens/s") -> str:
    """Print a rate with its unit."""
    return f"{figures(value)} {what}"


def percent(fraction: float, *, sign: bool = False) -> str:
    """Print a fraction in per cent with one decimal."""
    return f"{100 * fraction:+.1f} %" if sign else f"{100 * fraction:.1f} %"


def parameters(count: float) -> str:
    """Print a parameter count as papers do: 70.6B."""
    for scale, unit in _LARGE_UNITS:
        if count >= scale:
            return f"{figures(count / scale)}{unit}"
    return f"{count:,.0f}"


def wrapped(label: str, text: str, *, indent: int = 13, lines: int = 3) -> list[str]:
    """Lay ``label`` and ``text`` out in columns of at most 100 characters and so many lines."""
    body = textwrap.wrap(text, WIDTH - indent, max_lines=lines, placeholder=" …") or [""]
    return [(label if i == 0 else "").ljust(indent) + line for i, line in enumerate(body)]


def flowed(label: str, parts: Iterable[str], *, separator: str, indent: int = 13, lines: int = 3) -> list[str]:
    """Lay parts out like ``wrapped``, never breaking a line inside a part."""
    glued = separator.join(part.replace(" ", "\u00a0") for part in parts)
    return [line.replace("\u00a0", " ") for line in wrapped(label, glued, indent=indent, lines=lines)]


def columns(rows: Iterable[Sequence[str]], header: Sequence[str], *, right: Sequence[int] = ()) -> list[str]:
    """Lay rows out under a header; the columns numbered in ``right`` are aligned to the right."""
    table = [list(header), *(list(row) for row in rows)]
    widths = [max(len(row[i]) for row in table) for i in range(len(header))]
    return [
        "  ".join(
            cell.rjust(width) if i in right else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in table
    ]
