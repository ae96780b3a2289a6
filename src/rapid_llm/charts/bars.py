"""Bars: one bar of parts, a list of bars, and a tree as an icicle."""

from collections.abc import Sequence

from rapid_llm.charts.columns import Branch, Format, Part, short
from rapid_llm.charts.svg import CHARACTER, box, colour, drawing, fitted, words

ROW = 22.0
"""Height of a row, px."""


def stacked_bar(
    parts: Sequence[Part], *, limit: float | None = None, form: Format = short, title: str = "", width: float = 720
) -> str:
    """One horizontal bar of parts with a legend; ``limit`` is marked where it ends."""
    total = sum(part.value for part in parts)
    scale = width / (max(total, limit or 0.0) or 1.0)
    pieces, x = [], 0.0
    for index, part in enumerate(parts):
        pieces.append(
            box((x, 4, part.value * scale, ROW), colour(index), f"{part.label}: {form(part.value)} {part.note}")
        )
        x += part.value * scale
    if limit is not None:
        pieces += [box((limit * scale - 2, 0, 2, ROW + 8), "var(--ink)", f"may use {form(limit)}")]
    named = [(f"{part.label} {form(part.value)}", colour(index)) for index, part in enumerate(parts)]
    named += [(f"may use {form(limit)}", "var(--ink)")] if limit is not None else []
    across, y = 0.0, ROW + 26
    for label, fill in named:
        need = len(label) * CHARACTER + 30
        if across + need > width and across:
            across, y = 0.0, y + 18
        pieces += [box((across, y - 9, 10, 10), fill), words(across + 15, y, label)]
        across += need
    return drawing(width, y + 8, pieces, title)


def bar_list(rows: Sequence[Part], *, form: Format = short, title: str = "", width: float = 720) -> str:
    """One bar a row, all from the same zero, with label, number and remark."""
    most = max((row.value for row in rows), default=0.0) or 1.0
    label_width = min(max((len(row.label) for row in rows), default=0) * CHARACTER + 12, width * 0.4)
    note_width = max((len(f"{form(row.value)} {row.note}") for row in rows), default=0) * CHARACTER + 16
    room = max(width - label_width - note_width, width * 0.2)
    pieces = []
    for index, row in enumerate(rows):
        y, length = index * ROW, row.value / most * room
        pieces += [
            words(label_width - 8, y + 15, fitted(row.label, label_width - 8), anchor="end"),
            box((label_width, y + 4, length, ROW - 8), colour(0), f"{row.label}: {form(row.value)} {row.note}"),
            words(label_width + length + 6, y + 15, f"{form(row.value)} {row.note}".rstrip(), dim=True),
        ]
    return drawing(width, max(len(rows), 1) * ROW + 4, pieces, title)


def icicle(tree: Branch, *, form: Format = short, title: str = "", width: float = 720) -> str:
    """A tree as rows of boxes: children stand under their parent, as wide as their number."""
    scale = width / (tree.value or 1.0)
    pieces: list[str] = []
    depth = max(level for level, _ in tree.walk())

    def draw(branch: Branch, x: float, level: int, fill: int) -> None:
        length = branch.value * scale
        tip = f"{branch.label}: {form(branch.value)} ({branch.value / (tree.value or 1.0):.1%}) {branch.note}"
        pieces.append(
            box((x, level * (ROW + 2), length - 1, ROW), colour(fill), tip, f'fill-opacity="{_shade(level)}"')
        )
        if inside := fitted(f"{branch.label} {form(branch.value)}", length - 8):
            pieces.append(words(x + 4, level * (ROW + 2) + 15, inside, more='pointer-events="none"'))
        for index, child in enumerate(branch.children):
            draw(child, x, level + 1, index if level == 0 else fill)
            x += child.value * scale

    draw(tree, 0.0, 0, 7)
    return drawing(width, (depth + 1) * (ROW + 2), pieces, title)


def _shade(level: int) -> float:
    """Deeper rows are paler, so that text stays readable on them in both themes."""
    return max(0.25, 0.6 - 0.12 * level)
