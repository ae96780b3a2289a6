"""Stages on unlike groups of nodes, in words: where they sit, who waits, and layers that would balance them."""

from __future__ import annotations

from itertools import groupby

from rapid_llm.cli import text
from rapid_llm.predict.report import Report
from rapid_llm.predict.uses import SeatsUse, StageSeat


def seats_lines(report: Report, width: int) -> list[str]:
    """Where the stages of a job sit; nothing on equal nodes."""
    seats = report.seats
    if seats is None or report.step_time_s is None:
        return []
    lines = text.wrapped("stages", "; ".join(_runs(seats)), lines=4, width=width)
    return lines + [
        line for said in _balance(seats, report.step_time_s) for line in text.wrapped("", said, width=width)
    ]


def place(seat: StageSeat) -> str:
    """The groups that a stage sits on, and their accelerators: ``dgx-h100 (h100-sxm)``."""
    return f"{' and '.join(seat.groups)} ({', '.join(seat.accelerators)})"


def _runs(seats: SeatsUse) -> list[str]:
    """Stages in a row that sit on the same groups, with the longest of them."""
    found, start = [], 0
    for where, run in groupby(seats.stages, key=place):
        members = list(run)
        name = f"{start}" if len(members) == 1 else f"{start} to {start + len(members) - 1}"
        longest = max(one.forward_s + one.backward_s for one in members)
        free = min(one.limit_bytes - one.peak_bytes for one in members)
        room = f"{free / 2**30:.1f} GiB free"
        found.append(f"{name} on {where}: {text.seconds(longest)} a micro-batch, {room}")
        start += len(members)
    if seats.waiting:
        found[-1] += f"; replicas on {' and '.join(seats.waiting)} wait for these"
    elif seats.pipelines > 1:
        found[-1] += f"; the slowest of {seats.pipelines} unlike pipelines"
    return found


def _balance(seats: SeatsUse, seconds: float) -> list[str]:
    """What would be faster where stages wait for others."""
    layers, ratio = seats.balanced_layers_per_stage, seats.balanced_time_ratio
    if layers is None or ratio is None:
        return []
    pacing = seats.stages[seats.pacing_stage]
    said = ", ".join(map(str, layers))
    return [
        f"others wait for stage {seats.pacing_stage} on {place(pacing)}; layers_per_stage [{said}] would take "
        f"{text.seconds(seconds * ratio)} ({100 * (ratio - 1):+.0f} %)"
    ]
