"""The same charts as lines of terminal text."""

from collections.abc import Sequence

from rapid_llm.charts.columns import Branch, Format, Part, short

GLYPHS = "█▓▒░▚▞▤▥▦"
"""Fillings of the parts of a stacked bar."""


def text_stack(
    parts: Sequence[Part], *, limit: float | None = None, form: Format = short, width: int = 60
) -> list[str]:
    """One bar of parts in brackets that end at ``limit``, and a legend line."""
    total = sum(part.value for part in parts)
    whole = max(total, limit or 0.0) or 1.0
    bar, filled = "", 0.0
    for index, part in enumerate(parts):
        filled += part.value
        bar += GLYPHS[index % len(GLYPHS)] * (round(filled / whole * width) - len(bar))
    end = round((limit if limit is not None else whole) / whole * width)
    bar = bar.ljust(width)
    legend = "  ".join(f"{GLYPHS[i % len(GLYPHS)]} {part.label} {form(part.value)}" for i, part in enumerate(parts))
    return [f"[{bar[:end]}]{bar[end:]}".rstrip(), legend]


def text_tree(tree: Branch, *, form: Format = short, depth: int | None = None) -> list[str]:
    """A tree as an indented table: label, number, share of the root, remark."""
    shown = [(level, branch) for level, branch in tree.walk() if depth is None or level <= depth]
    label_width = max(2 * level + len(branch.label) for level, branch in shown)
    number_width = max(len(form(branch.value)) for _, branch in shown)
    lines = []
    for level, branch in shown:
        label = "  " * level + branch.label
        share = branch.value / tree.value if tree.value else 0.0
        lines.append(
            f"{label:<{label_width}}  {form(branch.value):>{number_width}}  {share:>6.1%}  {branch.note}".rstrip()
        )
    return lines
