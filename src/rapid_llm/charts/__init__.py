"""Labels and numbers to SVG, HTML and terminal text. Nothing here knows what they mean."""

from rapid_llm.charts.bars import bar_list, icicle, stacked_bar
from rapid_llm.charts.columns import Branch, Part, Series
from rapid_llm.charts.gantt import Bar, gantt
from rapid_llm.charts.page import page, table
from rapid_llm.charts.planes import heat_map, plot
from rapid_llm.charts.terminal import text_stack, text_tree

__all__ = [
    "Bar",
    "Branch",
    "Part",
    "Series",
    "bar_list",
    "gantt",
    "heat_map",
    "icicle",
    "page",
    "plot",
    "stacked_bar",
    "table",
    "text_stack",
    "text_tree",
]
