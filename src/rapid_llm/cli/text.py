"""Text in columns of at most 100 characters."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence

WIDTH = 100


def wrapped(label: str, text: str, *, indent: int = 13, lines: int = 3) -> list[str]:
    """Lay ``label`` and ``text`` out in columns of at most 100 characters and so many lines."""
    body = textwrap.wrap(text, WIDTH - indent, max_lines=lines, placeholder=" …", break_on_hyphens=False) or [""]
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
