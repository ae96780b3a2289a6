"""A self-contained HTML page of charts and tables, readable in light and dark."""

from collections.abc import Sequence
from html import escape

_STYLE = (
    ":root{color-scheme:light dark}body{font:15px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;"
    "padding:0 1rem;color:#1d232b;background:#fff}table{border-collapse:collapse}"
    "td,th{padding:.2rem .8rem .2rem 0;text-align:left;font-variant-numeric:tabular-nums;"
    "border-bottom:1px solid #d5dae0}"
    "h1{font-size:1.5rem}h2{font-size:1.15rem}td.n,th.n{text-align:right}td.n{white-space:nowrap}pre{overflow-x:auto;line-height:1.3}"
    "@media(prefers-color-scheme:dark){body{color:#e6e9ed;background:#14181d}td,th{border-color:#3a424c}}"
)


def page(title: str, sections: Sequence[tuple[str, str]]) -> str:
    """A page of (heading, HTML) sections; headings are escaped, the HTML comes from the charts."""
    body = "".join(f"<section><h2>{escape(heading)}</h2>{content}</section>" for heading, content in sections)
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        f'<meta name="viewport" content="width=device-width"><style>{_STYLE}</style></head>'
        f"<body><h1>{escape(title)}</h1>{body}</body></html>\n"
    )


def table(header: Sequence[str], rows: Sequence[Sequence[str]], numeric: Sequence[int] = ()) -> str:
    """An HTML table; the columns in ``numeric`` are set to the right."""

    def cells(row: Sequence[str], tag: str) -> str:
        kinds = [' class="n"' if index in numeric else "" for index in range(len(row))]
        return "".join(f"<{tag}{kind}>{escape(cell)}</{tag}>" for cell, kind in zip(row, kinds, strict=True))

    body = "".join(f"<tr>{cells(row, 'td')}</tr>" for row in rows)
    return f"<table><thead><tr>{cells(header, 'th')}</tr></thead><tbody>{body}</tbody></table>"
