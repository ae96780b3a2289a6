"""One timeline for every schedule: a task starts when its stage is free and its input has arrived.

The recurrence is max-plus. Tasks are laid out once per (schedule, stages, micro-batches, chunks) in levels that do not
wait for each other; all plans of that shape run through the levels together. Once a schedule repeats, a micro-batch
more costs one period of the slowest stage, so the recurrence runs over as many micro-batches as fill the pipeline.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from math import lcm

import numpy as np
from numpy.typing import NDArray

from rapid_llm.errors import InternalError
from rapid_llm.execution.schedules import (
    ALL_FORWARD_FIRST,
    BACKWARD,
    CODES,
    DIRECTIONS,
    FORWARD,
    SCHEDULES,
    WEIGHT,
    Schedule,
    Task,
    filling,
)
from rapid_llm.execution.schedules.closed import (
    all_forward_first_time,
    dualpipe_time,
    one_f_one_b_time,
    stream_time,
    zero_bubble_time,
)

Column = NDArray[np.float64]
Matrix = NDArray[np.float64]
Index = NDArray[np.int64]
_KIND = {direction: code for code, direction in enumerate(DIRECTIONS)}
_FORWARD, _BACKWARD, _WEIGHT = _KIND[FORWARD], _KIND[BACKWARD], _KIND[WEIGHT]
_FILLED = {"zb-h1": 1.0, "zb-h2": 2.0}
"""Weight gradients that fill the bubble of each stage but one."""
LOOPED = np.array([one.placement == "loop" for one in CODES])
"""Schedules whose chunks follow each other from the last stage to the first."""
LINE, LOOP = (float(CODES.index(SCHEDULES[name])) for name in ("1f1b", "interleaved"))


@dataclass(frozen=True, slots=True)
class Durations:
    """Seconds of one pass through all chunks of each stage [P, S]: forward, whole backward, its weight part.

    Chunks of a stage are alike. ``hidden``: what forward and backward passes save where they run beside each other.
    ``delay`` [P]: seconds in which an output travels to another stage, which computes meanwhile.
    """

    forward: Matrix
    backward: Matrix
    weight: Matrix
    hidden: Matrix
    delay: Column

    @classmethod
    def of(
        cls,
        forward: Matrix,
        backward: Matrix,
        weight: Matrix | None = None,
        hidden: Matrix | None = None,
        delay: Column | None = None,
    ) -> Durations:
        """Durations where what is left out is nothing; a backward pass without its weight part is never split."""
        none = np.zeros_like(forward)
        return cls(
            forward,
            backward,
            none if weight is None else weight,
            none if hidden is None else hidden,
            np.zeros(len(forward)) if delay is None else delay,
        )

    def take(self, plans: Index, stages: int) -> Durations:
        """Some plans of the table and their stages."""
        cut = (plans, slice(0, stages))
        return Durations(self.forward[cut], self.backward[cut], self.weight[cut], self.hidden[cut], self.delay[plans])


@dataclass(frozen=True, slots=True)
class Program:
    """The nodes of a schedule in levels. A node is a task, or a forward pass with the backward pass beside it.

    ``nodes`` [N]: (stage, task, task beside it or None); ``waits`` [3, N]: the node before it on its stage and those
    whose output its tasks need, N for none; ``away`` [3, N]: 1 where that output comes from another stage; ``levels``:
    bounds of runs of nodes that do not wait for each other; ``first``, ``last`` [S]: the ends of a stage; ``rows``: for
    each node, and each task beside one, the row of its seconds in a table of (direction, part), and its node.
    """

    nodes: tuple[tuple[int, Task, Task | None], ...]
    waits: Index
    away: Matrix
    levels: tuple[int, ...]
    first: Index
    last: Index
    rows: Index
    beside: Index


@lru_cache(maxsize=256)
def program(name: str, stages: int, micro_batches: int, chunks: int) -> Program:
    """Lay a schedule out in levels; chunks are the schedule's own or the plan's vpp."""
    schedule = SCHEDULES[name]
    lists = [schedule(s, stages, micro_batches, chunks) for s in range(stages)]
    tasks = [task for tasks in lists for task in tasks]
    stage = np.repeat(np.arange(stages), [len(tasks) for tasks in lists])
    kind, micro, chunk = np.array([(_KIND[direction], m, c) for direction, m, c in tasks]).T
    part = np.array([[schedule.position(s, stages, c) for c in range(chunks)] for s in range(stages)])[stage, chunk]
    second = np.zeros(len(tasks), dtype=bool)  # a backward pass beside the forward pass before it
    if schedule.pairs:
        second[1:] = (kind[:-1] == _FORWARD) & (kind[1:] == _BACKWARD) & (chunk[:-1] != chunk[1:])
        second[1:] &= stage[:-1] == stage[1:]
    node = np.cumsum(~second) - 1
    heads, beside = np.flatnonzero(~second), np.flatnonzero(second)
    source = _sources(kind, micro, part, node)
    before = np.arange(len(heads)) - 1
    before[np.append(True, stage[heads][1:] != stage[heads][:-1])] = len(heads)
    waits = np.full((3, len(heads)), len(heads))
    waits[0], waits[1], waits[2, node[beside]] = before, source[heads], source[beside]
    seat = stage if schedule.placement == "both" else part  # a part of two ways runs on two stages
    rows = kind * schedule.parts(stages, chunks) + seat
    paired = dict(zip(node[beside].tolist(), beside.tolist(), strict=True))
    nodes = [
        (s, tasks[i], tasks[paired[n]] if n in paired else None)
        for n, (s, i) in enumerate(zip(stage[heads].tolist(), heads.tolist(), strict=True))
    ]
    return _levelled(nodes, waits, rows[heads], {n: int(rows[i]) for n, i in paired.items()})


def _sources(kind: Index, micro: Index, part: Index, node: Index) -> Index:
    """The node whose output each task needs, the number of nodes for none."""
    none, last = int(node[-1]) + 1, int(part.max())
    made = np.full((2, int(micro.max()) + 1, last + 2), none)  # forward passes, then backward passes of a part
    forward, weight = kind == _FORWARD, kind == _WEIGHT
    made[0, micro[forward], part[forward]] = node[forward]
    backward = ~forward & ~weight
    made[1, micro[backward], part[backward]] = node[backward]
    made[1, :, last + 1] = made[0, :, last]  # the last part turns its own forward pass round
    found = np.where(weight, made[1, micro, part], made[1, micro, part + 1])
    return np.where(forward, np.where(part > 0, made[0, micro, part - 1], none), found)


def _levelled(nodes: list[tuple[int, Task, Task | None]], waits: Index, rows: Index, beside: dict[int, int]) -> Program:
    """Sort nodes by level; ``rows`` are those of their seconds, ``beside`` those of the tasks beside some of them."""
    none, stage = len(nodes), np.array([node[0] for node in nodes] + [-1])
    level = _levels(stage[:-1].tolist(), waits.T.tolist(), int(stage.max()) + 1)
    order = np.argsort(level, kind="stable")
    place = np.append(np.argsort(order), none)
    waits, stage = place[waits[:, order]], stage[np.append(order, none)]
    last = np.zeros(int(stage.max()) + 1, dtype=np.int64)
    last[stage[:-1]] = np.arange(none)
    away = (waits < none) & (stage[waits] != stage[:-1])
    pairs_at = [place[n] for n in beside]
    return Program(
        nodes=tuple(nodes[i] for i in order.tolist()),
        waits=waits,
        away=away.astype(np.float64),
        levels=tuple(np.append(0, np.cumsum(np.bincount(level))).tolist()),
        first=np.array([int(np.argmax(stage == s)) for s in range(len(last))]),
        last=last,
        rows=np.append(rows[order], list(beside.values())).astype(np.int64),
        beside=np.array(pairs_at, dtype=np.int64),
    )


def _levels(stage: list[int], waits: list[list[int]], stages: int) -> Index:
    """The longest chain of nodes before each node; InternalError where nodes wait for each other."""
    none = len(stage)
    level = [-1] * none + [0]
    level[none] = 0
    head = [stage.index(s) for s in range(stages)]
    left = none
    while left:
        before = left
        for s in range(stages):
            at = head[s]
            while at < none and stage[at] == s:
                a, b, c = waits[at]
                if (a < none and level[a] < 0) or (b < none and level[b] < 0) or (c < none and level[c] < 0):
                    break
                level[at] = max(level[a], level[b], level[c]) + 1
                at += 1
            left -= at - head[s]
            head[s] = at
        if left == before:
            raise InternalError(f"{left} tasks of a pipeline schedule wait for each other.")
    return np.array(level[:-1]) - 1


def play(plan: Program, table: Matrix, saved: Matrix, delay: Column) -> tuple[Matrix, Matrix]:
    """Start and end of every node [N, P] from the seconds of (direction, part) [rows, P].

    ``saved`` [rows, P]: what a forward pass that runs beside a backward pass takes less; ``delay`` as in ``Durations``.
    """
    none = len(plan.nodes)
    seconds = table[plan.rows[:none]]
    if len(plan.beside):
        seconds[plan.beside] += table[plan.rows[none:]] - saved[plan.rows[plan.beside]]
    end = np.zeros((none + 1, table.shape[1]))
    travel = plan.away[:, :, None] * delay if delay.any() else None
    for a, b in pairwise(plan.levels):
        ready = end[plan.waits[:, a:b]]
        if travel is not None:
            ready += travel[:, a:b]
        np.add(ready.max(axis=0), seconds[a:b], out=end[a:b])
    return end[:-1] - seconds, end[:-1]


def table_of(schedule: Schedule, times: Durations, chunks: int) -> tuple[Matrix, Matrix]:
    """Seconds of (direction, part) [4 x parts, P], and what pairs save in the same rows."""
    stages = times.forward.shape[1]
    parts = schedule.parts(stages, chunks)
    stage = np.arange(parts) % stages
    if schedule.placement == "vee":
        stage = np.where(np.arange(parts) < stages, stage, stages - 1 - stage)
    kinds = (times.forward, times.backward, times.backward - times.weight, times.weight)
    table = np.concatenate([kind[:, stage].T / chunks for kind in kinds])
    saved = np.zeros_like(table)
    saved[:parts] = times.hidden[:, stage].T / chunks
    return table, saved


def run(name: str, times: Durations, micro_batches: int, chunks: int = 1) -> Column:
    """Seconds of a step's pipeline [P] by the recurrence over every micro-batch; stages and micro-batches of all plans
    are the same. A stream has no end: its step is one of many."""
    schedule = SCHEDULES[name]
    chunks = schedule.chunks or chunks
    if schedule.end == "stream":
        return micro_batches * period(schedule, times)
    table, saved = table_of(schedule, times, chunks)
    layout = (name, times.forward.shape[1], micro_batches)
    if schedule.folded and not times.delay.any() and _mirrored(times):
        layout = (schedule.folded, layout[1] // 2, micro_batches // 2)
    plan = program(*layout, chunks)
    start, end = play(plan, table, saved, times.delay)
    if schedule.end == "skewed":
        return np.asarray((end[plan.last] - start[plan.first]).max(axis=0))
    return np.asarray(end[plan.last].max(axis=0))


def _mirrored(times: Durations) -> bool:
    """Whether each stage takes as long as the one that it mirrors."""
    columns = (times.forward, times.backward, times.weight, times.hidden)
    return all(bool(np.allclose(one, one[:, ::-1], rtol=1e-9, atol=0.0)) for one in columns)


def period(schedule: Schedule, times: Durations) -> Column:
    """Seconds that a micro-batch more takes: the work of the slowest stage [P]."""
    work = times.forward + times.backward
    if schedule.pairs:
        work = work - times.hidden
    return np.asarray(work.max(axis=1) / schedule.copies)


def repeated(name: str, times: Durations, micro_batches: int, chunks: int = 1) -> Column:
    """As ``run`` at a cost that does not grow with micro-batches: what comes after the steady state has set in costs a
    period each. Equal to ``run`` for equal stages; for others within 3 %.

    The two halves of a schedule of two ways mirror each other, so one is run: a V of half the stages.
    """
    short = filling(SCHEDULES[name], times.forward.shape[1], micro_batches)
    return _extended(name, times, (short, chunks), np.full(len(times.delay), float(micro_batches - short)))


def _extended(name: str, times: Durations, shape: tuple[int, int], more: Column) -> Column:
    """The recurrence over ``shape`` (micro-batches, chunks), and the periods of ``more`` micro-batches [P]."""
    schedule, (short, chunks) = SCHEDULES[name], shape
    base = run(name, times, short, chunks)
    if not more.any():
        return base
    each = period(schedule, times)
    if times.delay.any():  # the wait for a message comes round once for all micro-batches in flight
        cycle = lcm(schedule.repeats(times.forward.shape[1]), times.forward.shape[1])
        each = np.maximum(each, (run(name, times, short + cycle, chunks) - base) / cycle)
    return base + more * each


def pairs(name: str, stages: int, micro_batches: int, stage: int) -> int:
    """Forward passes of a stage that run beside a backward pass, each through one chunk."""
    schedule = SCHEDULES[name]
    if not schedule.pairs:
        return 0
    short, chunks = filling(schedule, stages, micro_batches), schedule.chunks or 1
    return _pairs(name, stages, short)[stage] + (micro_batches - short) * chunks // schedule.copies


@lru_cache(maxsize=256)
def _pairs(name: str, stages: int, micro_batches: int) -> tuple[int, ...]:
    """As ``pairs`` of each stage, counted."""
    nodes = program(name, stages, micro_batches, SCHEDULES[name].chunks or 1).nodes
    return tuple(np.bincount([s for s, _, beside in nodes if beside], minlength=stages).tolist())


def pipeline_time(
    times: Durations,
    stages: Column,
    micro_batches: Column,
    chunks: Column,
    schedule: Column,
    *,
    unequal: bool = False,
) -> Column:
    """Seconds until the last task of a step's pipeline [P]: closed forms where they hold, else the recurrence.

    ``stages``, ``micro_batches``, ``chunks`` and the codes of ``schedule`` are those of each plan. ``unequal``: any
    stage may differ from any other, so that the form of 1F1B, a lower bound then, is no answer.
    """
    found = one_f_one_b_time(times.forward, times.backward, micro_batches, chunks)
    for code in {LINE, LOOP} & set(schedule.tolist()) if unequal else ():
        rows = np.flatnonzero((schedule == code) & (stages > 1))
        _recur(found, rows, CODES[int(code)], (times, stages, micro_batches, chunks), fillings=2)
    for code in set(schedule.tolist()) - {LINE, LOOP}:
        rows = np.flatnonzero((schedule == code) & (stages > 1))
        one = CODES[int(code)]
        own = (stages[rows], micro_batches[rows], chunks[rows])
        found[rows] = _closed(one, times.take(rows, times.forward.shape[1]), *own)
        _recur(found, rows[np.isnan(found[rows])], one, (times, stages, micro_batches, chunks))
    return found


def _closed(schedule: Schedule, times: Durations, stages: Column, micro_batches: Column, chunks: Column) -> Column:
    """The closed form of a schedule, NaN where it has none or where it does not hold [P]."""
    plain = (times.forward, times.backward)
    split = (*plain, times.weight, times.hidden)
    if schedule.name in ALL_FORWARD_FIRST:
        return all_forward_first_time(*plain, micro_batches, chunks)
    if schedule.end == "stream":
        return stream_time(*plain, micro_batches)
    if times.delay.any():
        return np.full(len(stages), np.nan)
    if schedule.name in _FILLED:
        return zero_bubble_time(split, stages, micro_batches, filled=_FILLED[schedule.name])
    return dualpipe_time(split, stages, micro_batches) if schedule.placement == "both" else np.full(len(stages), np.nan)


def _recur(
    found: Column,
    rows: Index,
    schedule: Schedule,
    plans: tuple[Durations, Column, Column, Column],
    *,
    fillings: int = 1,
) -> None:
    """Run the recurrence for the plans ``rows``, those of one shape together, into ``found``. ``fillings``: how many
    times the micro-batches run that fill the pipeline; unequal stages need more than once to settle.
    """
    times, stages, micro_batches, chunks = plans
    shapes: dict[tuple[int, int, int], list[int]] = {}
    for row in rows.tolist():
        count = int(stages[row])
        short = min(fillings * filling(schedule, count, int(micro_batches[row])), int(micro_batches[row]))
        shapes.setdefault((count, short, int(chunks[row])), []).append(row)
    for (count, short, own), members in shapes.items():
        alike = np.array(members)
        shape, more = (short, own), micro_batches[alike] - short
        found[alike] = _extended(schedule.name, times.take(alike, count), shape, more)
