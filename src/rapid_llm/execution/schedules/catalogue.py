"""The schedules by name."""

from __future__ import annotations

from collections.abc import Iterable

from rapid_llm.execution.schedules.orders import breadth_first, gpipe, interleaved, one_f_one_b
from rapid_llm.execution.schedules.split import dualpipe, dualpipe_v, zero_bubble_h1, zero_bubble_h2, zero_bubble_v
from rapid_llm.execution.schedules.tasks import Schedule
from rapid_llm.parallelism import SCHEDULES as NAMES

_ALL: Iterable[Schedule] = (
    Schedule("gpipe", gpipe),
    Schedule("1f1b", one_f_one_b),
    Schedule("interleaved", interleaved, chunks=None, period=None),
    Schedule("breadth-first", breadth_first, chunks=None),
    Schedule("zb-h1", zero_bubble_h1, splits=True),
    Schedule("zb-h2", zero_bubble_h2, splits=True, end="skewed"),
    Schedule("zb-v", zero_bubble_v, "vee", chunks=2, splits=True, end="skewed"),
    Schedule("dualpipe", dualpipe, "both", chunks=2, period=2, splits=True, pairs=True, copies=2, folded="dualpipe-v"),
    Schedule("dualpipe-v", dualpipe_v, "vee", chunks=2, splits=True, pairs=True),
    Schedule("pipedream-2bw", one_f_one_b, end="stream"),
)
SCHEDULES: dict[str, Schedule] = {one.name: one for one in _ALL}
CODES: tuple[Schedule, ...] = tuple(SCHEDULES[name] for name in NAMES)
"""Schedules in the order of their codes in columns of plans."""
ALL_FORWARD_FIRST = ("gpipe", "breadth-first")
"""Schedules whose stages run all forward passes before a backward pass, and so hold every micro-batch at once."""
