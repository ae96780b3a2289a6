"""Text in columns: 100 characters, or as many as a narrower terminal has."""

from __future__ import annotations

import json
import os
import re
import sys
import textwrap
from collections.abc import Iterable, Sequence
from typing import Any

from rapid_llm.errors import InternalError
from rapid_llm.units import format_time

WIDTH = 100
NARROWEST = 60
INDENT = 13
MINUTE, HOUR = 60.0, 3600.0
_UNIT = re.compile(r"(?<=\d) (?=[A-Za-zµ%])")
_GLUE = "\u00a0"


def json_text(answer: Any) -> str:
    """An answer as JSON; InternalError for a number that JSON does not have."""
    try:
        return json.dumps(answer, indent=2, allow_nan=False)
    except ValueError:
        raise InternalError("the answer holds a number that is not finite.") from None


def terminal_width() -> int:
    """Characters of a line of standard output: at most WIDTH, and WIDTH where it is no terminal."""
    if not sys.stdout.isatty():
        return WIDTH
    try:
        columns = os.get_terminal_size(sys.stdout.fileno()).columns
    except OSError:
        return WIDTH
    return max(NARROWEST, min(columns or WIDTH, WIDTH))


seconds = format_time
"""A time with its unit."""


def span(low: float, high: float) -> str:
    """From one time to another; both in seconds where an hour lies between, as what they stand around."""
    if MINUTE <= low < HOUR <= high:
        return f"{low:,.1f} s to {high:,.1f} s"
    return f"{seconds(low)} to {seconds(high)}"


def amount(value: float) -> str:
    """An amount in three significant digits; from a hundred on in whole numbers."""
    return f"{value:,.0f}" if value >= 100.0 else f"{value:.3g}"


def counted(number: int, noun: str) -> str:
    """A number of things: ``1 token``, ``2,048 tokens``."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def wrapped(label: str, text: str, *, indent: int = INDENT, lines: int = 3, width: int = WIDTH) -> list[str]:
    """Lay ``label`` and ``text`` out in so many lines of at most ``width`` characters; numbers keep their units."""
    body = textwrap.wrap(
        _UNIT.sub(_GLUE, text), width - indent, max_lines=lines, placeholder=" …", break_on_hyphens=False
    ) or [""]
    return [(label if i == 0 else "").ljust(indent) + line.replace(_GLUE, " ") for i, line in enumerate(body)]


def flowed(
    label: str, parts: Iterable[str], *, separator: str, indent: int = INDENT, lines: int = 3, width: int = WIDTH
) -> list[str]:
    """Lay parts out like ``wrapped``, never breaking a line inside a part."""
    glued = separator.join(part.replace(" ", _GLUE) for part in parts)
    return wrapped(label, glued, indent=indent, lines=lines, width=width)


def drawn_links(names: Sequence[str], *, width: int = WIDTH) -> list[str]:
    """The links that faults without a place were drawn at, as far as two lines hold them."""
    return flowed("drawn", names, separator=", ", lines=2, width=width) if names else []


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
