"""A report as one self-contained page."""

from __future__ import annotations

from html import escape
from string import Template

from rapid_llm.cli.answer import answer
from rapid_llm.predict.report import Cost, Report
from rapid_llm.units import format_percent, format_seconds

_PAGE = Template("""<!doctype html>
<html lang="en"><meta charset="utf-8"><title>rapid-llm $title</title>
<style>
body { font: 15px/1.5 system-ui, sans-serif; max-width: 64rem; margin: 2rem auto; padding: 0 1rem; color: #1d232b }
pre { background: #f4f6f8; padding: 1rem; overflow-x: auto; border-radius: 6px; line-height: 1.35 }
td { padding: .15rem .8rem .15rem 0 }
td.n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap }
.bar { background: #2b6cb0; height: .7rem; border-radius: 2px } .note { color: #5a6572 }
</style>
<h1>$title</h1>
<pre>$answer</pre>
<h2>Where the time goes</h2>
<table>$rows</table>
<p class="note">Times of the rank on the critical path; children sum to their parent;
hidden time stands beside, not in the sum.</p>
</html>
""")


def page(report: Report) -> str:
    """Render the terminal answer and the whole breakdown tree as HTML without any outside resource."""
    lines = answer(report)
    tree = report.breakdown
    rows = _rows(tree, tree.seconds or 1.0, 0) if tree is not None else []
    return _PAGE.substitute(title=escape(lines[0]), answer=escape("\n".join(lines)), rows="\n".join(rows))


def _rows(cost: Cost, total: float, depth: int) -> list[str]:
    share = cost.seconds / total
    hidden = f"{format_seconds(cost.hidden_seconds)} hidden" if cost.hidden_seconds else ""
    row = (
        f'<tr><td style="padding-left:{1.4 * depth:.1f}rem">{escape(cost.name)}</td>'
        f'<td class="n">{format_seconds(cost.seconds)}</td><td class="n">{format_percent(share)}</td>'
        f'<td style="width:14rem"><div class="bar" style="width:{100 * share:.1f}%"></div></td>'
        f'<td class="note">{escape(cost.bound)} {hidden}</td></tr>'
    )
    return [row, *(line for child in cost.children for line in _rows(child, total, depth + 1))]
