"""The schedule of a training step as a page: a row of bars per stage, and how long each works and waits."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from html import escape
from itertools import pairwise

from rapid_llm import charts
from rapid_llm.execution.schedules import ALL_FORWARD_FIRST, BACKWARD, FORWARD, INPUT, WEIGHT
from rapid_llm.predict.schedule import Box, StageLine, Timeline, timeline
from rapid_llm.scenario import Scenario
from rapid_llm.units import format_percent, format_time

PAIR, MESSAGES, OPTIMIZER = "forward beside backward", "messages that nothing hides", "optimizer"
COLOURS = {FORWARD: 0, BACKWARD: 6, INPUT: 3, WEIGHT: 2, PAIR: 5, MESSAGES: 4, OPTIMIZER: 7}
NAMES = {INPUT: "input gradient", WEIGHT: "weight gradient"}
ROWS = (8, 4, 3)
"""Stages drawn, the first, the last and as many between: the first of these that is not too many bars."""
MOST_BARS = 480
"""Bars drawn one by one; beyond them, tasks of one kind that follow each other are one bar."""
BREAK = 0.03
"""Width of the place where the axis is cut, of the width that is drawn."""


def timeline_html(scenario: Scenario) -> str:
    """A self-contained HTML page of a training step's schedule; InputError for another workload."""
    shown = timeline(scenario)
    title = f"A step of {scenario.model.name} on {scenario.system.name}"
    return charts.page(title, [(_heading(shown), timeline_svg(shown) + _caption(shown)), ("Stages", _stages(shown))])


def timeline_svg(shown: Timeline) -> str:
    """The schedule as one chart."""
    place, cut = _axis(shown)
    rows = _rows(shown, place)
    kinds = {box.direction if box.beside is None else PAIR for line in shown.stages for box in line.boxes}
    used = [kind for kind in COLOURS if kind in kinds or (kind in (MESSAGES, OPTIMIZER) and shown.stages[0].tail)]
    marks = [
        (place(shown.drain_start), "drain"),
        (place(shown.pipeline_s), f"last task ends, {format_time(shown.pipeline_s)}"),
    ]
    if shown.schedule not in ALL_FORWARD_FIRST:
        marks.append((place(shown.warm_up_end), "steady"))
    if shown.left_out[2]:
        marks.append((place(shown.left_out[0]) + cut / 4, f"× {shown.left_out[2]:,} more"))
    return charts.gantt(
        [(_row(shown, stage), bars) for stage, bars in rows.items()],
        legend=[(NAMES.get(kind, kind), COLOURS[kind]) for kind in used],
        marks=marks,
        title=_heading(shown),
    )


def _row(shown: Timeline, stage: int) -> str:
    where = f" {shown.places[stage]}" if shown.places else ""
    return f"stage {stage + 1}{where}"


def _axis(shown: Timeline) -> tuple[Callable[[float], float], float]:
    """Where a moment of the step stands on an axis without what is left out, and the width of that cut (s)."""
    begin, end, count = shown.left_out
    last = max(line.tail[-1][2] if line.tail else line.boxes[-1].end for line in shown.stages)
    cut = BREAK * (last - (end - begin)) if count else 0.0
    removed = end - begin - cut if count else 0.0

    def place(moment: float) -> float:
        if moment <= begin or not count:
            return moment
        return moment - removed if moment >= end else begin + (moment - begin) / (end - begin) * cut

    return place, cut


def _rows(shown: Timeline, place: Callable[[float], float]) -> dict[int, list[charts.Bar]]:
    """Bars of the stages that are drawn."""
    stages = len(shown.stages)
    found: dict[int, list[charts.Bar]] = {}
    for most in ROWS:
        rows = min(stages, most)
        chosen = [round(row * (stages - 1) / max(rows - 1, 1)) for row in range(rows)]
        found = {stage: list(_bars(shown.stages[stage], place)) for stage in chosen}
        if sum(map(len, found.values())) > MOST_BARS:
            found = {stage: _merged(bars) for stage, bars in found.items()}
        if sum(map(len, found.values())) <= MOST_BARS:
            break
    return found


def _bars(line: StageLine, place: Callable[[float], float]) -> Iterator[charts.Bar]:
    chunks = max((box.chunk for box in line.boxes), default=0) + 1
    for box in line.boxes:
        kind = box.direction if box.beside is None else PAIR
        span = f"{format_time(box.start)} to {format_time(box.end)}"
        label = f"{box.micro_batch + 1}" if box.beside is None else f"{box.micro_batch + 1}|{box.beside[0] + 1}"
        start = place(box.start)
        yield charts.Bar(
            start,
            max(start, place(box.end)),
            COLOURS[kind],
            label,
            f"{_name(box, chunks)}: {span}",
            0.85 - 0.45 * box.chunk / chunks,
        )
    for name, start, end in line.tail:
        kind = OPTIMIZER if name == OPTIMIZER else MESSAGES
        yield charts.Bar(place(start), place(end), COLOURS[kind], name, f"{name}: {format_time(end - start)}")


def _name(box: Box, chunks: int) -> str:
    def one(direction: str, micro_batch: int, chunk: int) -> str:
        part = f", chunk {chunk + 1}" if chunks > 1 else ""
        return f"{NAMES.get(direction, direction)} of micro-batch {micro_batch + 1}{part}"

    first = one(box.direction, box.micro_batch, box.chunk)
    return first if box.beside is None else f"{first}, beside {one(BACKWARD, *box.beside)}"


def _merged(bars: list[charts.Bar]) -> list[charts.Bar]:
    """Bars of one colour and shade that follow each other as one."""
    groups: list[list[charts.Bar]] = [[bar] for bar in bars[:1]]
    for before, bar in pairwise(bars):
        alike = (before.colour, before.shade) == (bar.colour, bar.shade)
        if alike and bar.start - before.end <= 1e-6 * bar.end:
            groups[-1].append(bar)
        else:
            groups.append([bar])
    return [_joined(group) for group in groups]


def _joined(group: list[charts.Bar]) -> charts.Bar:
    first, last = group[0], group[-1]
    if len(group) == 1:
        return first
    tip = f"{first.tip} and {len(group) - 1} more alike"
    return charts.Bar(first.start, last.end, first.colour, f"{first.label} to {last.label}", tip, first.shade)


def _heading(shown: Timeline) -> str:
    count = f"{shown.micro_batches} micro-batch{'' if shown.micro_batches == 1 else 'es'}"
    return f"{shown.schedule}, {len(shown.stages)} stages, {count}: {format_time(shown.step_s)}"


def _caption(shown: Timeline) -> str:
    text = (
        f"Numbers are micro-batches. Stages wait {format_percent(shown.bubble)} of the pipeline's "
        f"{format_time(shown.pipeline_s)} in the mean."
    )
    if any(box.chunk for line in shown.stages for box in line.boxes):
        text += " The paler a bar, the later the chunk of the model."
    if shown.left_out[2]:
        text += f" The axis is cut where {shown.left_out[2]:,} more micro-batches run as those beside the cut."
    drawn = len(_rows(shown, _axis(shown)[0]))
    if len(shown.stages) > drawn:
        text += f" {drawn} of {len(shown.stages)} stages are drawn."
    return f"<p>{escape(text)}</p>"


def _stages(shown: Timeline) -> str:
    rows = [
        (
            str(index + 1),
            *([shown.places[index]] if shown.places else []),
            format_time(line.busy),
            format_time(line.idle),
            format_percent(line.idle / shown.pipeline_s),
        )
        for index, line in enumerate(shown.stages)
    ]
    where = ["on"] if shown.places else []
    first = 1 + len(where)
    return charts.table(
        ("stage", *where, "works", "waits", "of the pipeline"), rows, numeric=(first, first + 1, first + 2)
    )
