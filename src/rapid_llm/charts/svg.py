"""Pieces of SVG: one palette, colours that follow the reader's light or dark theme, escaped text."""

from collections.abc import Iterable
from html import escape

PALETTE = ("#4477aa", "#66ccee", "#228833", "#ccbb44", "#ee6677", "#aa3377", "#e69f00", "#999999")
"""Tells apart for colour-blind readers, on white and on black (after Paul Tol's bright scheme)."""

STYLE = (
    ".rl{--ink:#1d232b;--dim:#5a6572;--line:#d5dae0;--paper:#fff;"
    "font:12px system-ui,sans-serif;font-variant-numeric:tabular-nums}"
    "@media(prefers-color-scheme:dark){.rl{--ink:#e6e9ed;--dim:#9aa5b1;--line:#3a424c;--paper:#14181d}}"
    ".rl text{fill:var(--ink)}.rl .d{fill:var(--dim)}.rl .g{stroke:var(--line);fill:none}"
)
CHARACTER = 6.6
"""Mean width of a character of the 12 px font, in px."""


Frame = tuple[float, float, float, float]
"""x, y of the upper left corner, width and height, px."""


def colour(index: int) -> str:
    """The colour of the part of this index."""
    return PALETTE[index % len(PALETTE)]


def drawing(width: float, height: float, pieces: Iterable[str], title: str = "") -> str:
    """A self-contained SVG of ``width`` x ``height`` px that shrinks with its page."""
    named = f"<title>{escape(title)}</title>" if title else ""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="rl" role="img" viewBox="0 0 {width:g} {height:g}" '
        f'width="{width:g}" style="max-width:100%"><style>{STYLE}</style>{named}{"".join(pieces)}</svg>'
    )


def box(frame: Frame, fill: str, tip: str = "", more: str = "") -> str:
    """A rectangle with a tooltip."""
    x, y, width, height = frame
    shape = f'x="{x:.1f}" y="{y:.1f}" width="{max(width, 0):.1f}" height="{max(height, 0):.1f}" fill="{fill}"'
    return f"<rect {shape} {more}><title>{escape(tip)}</title></rect>" if tip else f"<rect {shape} {more}/>"


def words(x: float, y: float, text: str, *, anchor: str = "start", dim: bool = False, more: str = "") -> str:
    """A line of text on its base line."""
    kind = ' class="d"' if dim else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{kind} {more}>{escape(text)}</text>'


def line(x1: float, y1: float, x2: float, y2: float) -> str:
    """A thin line of the grid."""
    return f'<line class="g" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>'


def fitted(text: str, width: float) -> str:
    """As much of a text as fits into so many px; empty where it would say nothing."""
    room = int(width / CHARACTER)
    if len(text) <= room:
        return text
    return text[: room - 1] + "…" if room >= 4 else ""
