import xml.etree.ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rapid_llm.charts import (
    Branch,
    Part,
    Series,
    bar_list,
    heat_map,
    icicle,
    page,
    plot,
    stacked_bar,
    table,
    text_stack,
    text_tree,
)

PARTS = [Part("weights", 40), Part("a <b> & 'c'", 20), Part("free", 10, "rest")]
TREE = Branch(
    "step", 10, (Branch("compute", 7, (Branch("attention", 3), Branch("mlp", 4, note="x"))), Branch("net", 3))
)


@pytest.mark.parametrize(
    "svg",
    [
        stacked_bar(PARTS, limit=60, title="memory <x>"),
        stacked_bar([]),
        bar_list(PARTS),
        bar_list([]),
        icicle(TREE),
        icicle(Branch("nothing", 0)),
        plot([Series("model <1>", [1, 10, 100], [1, 9, 80], labels=["a<", "b", "c"])], log_x=True, log_y=True),
        plot([Series("points", [0, 1, float("nan")], [0, -2, 3], joined=False)]),
        plot([Series("", [0], [0])], log_x=True),
        plot([]),
        heat_map(["tp 1", "tp 2"], ["pp 1", "pp 2"], [[1, None], [3, 4]]),
        heat_map([], [], []),
    ],
)
def test_svg_is_well_formed_and_self_contained(svg):
    root = ET.fromstring(svg)
    assert root.tag.endswith("svg")
    assert "nan" not in svg and "inf" not in svg
    assert "http" not in svg.replace('xmlns="http://www.w3.org/2000/svg"', "")


def test_page_escapes():
    text = page("a <title>", [("heading & more", table(["x <y>"], [["1 < 2"]], numeric=[0]))])
    assert "a &lt;title&gt;" in text and "heading &amp; more" in text and "1 &lt; 2" in text
    assert "<y>" not in text


def test_text_stack():
    assert text_stack(PARTS, limit=60, width=14) == [
        "[████████▓▓▓▓]▒▒",
        "█ weights 40  ▓ a <b> & 'c' 20  ▒ free 10",
    ]


def test_text_tree():
    assert text_tree(TREE) == [
        "step           10  100.0%",
        "  compute       7   70.0%",
        "    attention   3   30.0%",
        "    mlp         4   40.0%  x",
        "  net           3   30.0%",
    ]
    assert len(text_tree(TREE, depth=1)) == 3


@given(st.lists(st.floats(0, 1e12), min_size=1, max_size=8))
def test_bars_never_overflow(values):
    parts = [Part("p", value) for value in values]
    bar = text_stack(parts, width=40)[0]
    assert len(bar) <= 42
    ET.fromstring(stacked_bar(parts))


def test_marks_stand_at_round_multiples_of_a_unit_and_a_bound_is_dashed():
    held = Series("held", [0, 1], [0.0, 60 * 2.0**30], filled=True)
    bound = Series("may use", [0, 1], [79.2 * 2.0**30] * 2, bound=True)
    drawn = plot([held, bound], form=lambda size: f"{size / 2**30:g} GiB", unit=2.0**30)
    assert all(f">{mark} GiB<" in drawn for mark in (0, 20, 40, 60, 80))
    assert 'stroke="var(--ink)" stroke-width="2" stroke-dasharray' in drawn


def test_a_limit_is_named_in_the_legend():
    assert "may use 60" in stacked_bar(PARTS, limit=60)
    assert "may use" not in stacked_bar(PARTS)


def test_a_line_without_marks_has_none_and_an_area_shows_its_tips_alone():
    line = Series("roof", [1, 10], [1, 10], marked=False)
    assert "<polyline" in plot([line]) and 'rx="3"' not in plot([line])
    area = plot([Series("kv", [1, 2], [3, 4], labels=["a", "b"], filled=True)])
    assert area.count('rx="3" fill-opacity="0"') == 2
