"""One timeline for every schedule: a task starts when its stage is free and its input has arrived.

The recurrence is max-plus. Tasks are laid out once per (schedule, stages, micro-batches, chunks) in levels that do not
wait for each other; all plans of that shape run through the levels together. Once a schedule repeats, a micro-batch
more costs one period of the slowest stage, so the recurrence runs over as many micro-batches as fill the pipeline.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from math import lcm

import numpy as np
from numpy.typing import NDArray

from rapid_llm.errors import InternalError
from rapid_llm.execution.schedules import (
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
from rapid_llm.execution.schedules.closed import all_forward_first_time, one_f_one_b_time, stream_time

Column = NDArray[np.float64]
Matrix = NDArray[np.float64]
Index = NDArray[np.int64]
ALL_FORWARD_FIRST = ("gpipe", "breadth-first")
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
    lists = [list(_nodes(schedule(s, stages, micro_batches, chunks), schedule)) for s in range(stages)]
    nodes = [(s, *node) for s, tasks in enumerate(lists) for node in tasks]
    made: dict[tuple[bool, int, int], int] = {}
    for index, (s, *tasks) in enumerate(nodes):
        for task in tasks:
            if task and task[0] != WEIGHT:
                made[task[0] == FORWARD, task[1], schedule.position(s, stages, task[2])] = index
    parts, none = schedule.parts(stages, chunks), len(nodes)

    def source(s: int, task: Task | None) -> int:
        if task is None:
            return none
        direction, m, chunk = task
        part = schedule.position(s, stages, chunk)
        if direction == FORWARD:
            return made[True, m, part - 1] if part else none
        if direction == WEIGHT:
            return made[False, m, part]
        return made[False, m, part + 1] if part < parts - 1 else made[True, m, part]

    waits = [
        (i - 1 if i and nodes[i - 1][0] == s else none, source(s, task), source(s, beside))
        for i, (s, task, beside) in enumerate(nodes)
    ]
    return _levelled(nodes, np.array(waits).T, schedule, (stages, parts))


def _nodes(tasks: list[Task], schedule: Schedule) -> Iterator[tuple[Task, Task | None]]:
    """Tasks of a stage; a forward pass together with the whole backward pass of the other chunk that runs beside it."""
    at = 0
    while at < len(tasks):
        task, after = tasks[at], tasks[at + 1] if at + 1 < len(tasks) else None
        pair = schedule.pairs and after and task[0] == FORWARD and after[0] == BACKWARD and task[2] != after[2]
        yield task, after if pair else None
        at += 2 if pair else 1


def _levelled(
    nodes: list[tuple[int, Task, Task | None]], waits: Index, schedule: Schedule, grid: tuple[int, int]
) -> Program:
    """Sort the nodes of a grid of (stages, parts) by level."""
    none, stages = len(nodes), grid[0]
    level = _levels([node[0] for node in nodes], waits.T.tolist(), stages)
    order = np.argsort(level, kind="stable")
    place = np.append(np.argsort(order), none)
    waits = place[waits[:, order]]
    nodes = [nodes[i] for i in order]
    stage = np.array([s for s, _, _ in nodes] + [-1])
    last = np.zeros(stages, dtype=np.int64)
    last[stage[:-1]] = np.arange(none)
    first = np.array([int(np.argmax(stage == s)) for s in range(stages)])
    rows = [_row(schedule, node[0], node[1], grid) for node in nodes]
    beside = [i for i, node in enumerate(nodes) if node[2]]
    rows += [_row(schedule, nodes[i][0], nodes[i][2], grid) for i in beside]
    away = (waits < none) & (stage[waits] != stage[:-1])
    return Program(
        nodes=tuple(nodes),
        waits=waits,
        away=away.astype(np.float64),
        levels=tuple(np.append(0, np.cumsum(np.bincount(level))).tolist()),
        first=first,
        last=last,
        rows=np.array(rows),
        beside=np.array(beside, dtype=np.int64),
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


def _row(schedule: Schedule, stage: int, task: Task | None, grid: tuple[int, int]) -> int:
    """Row of the seconds of a task in a table of (direction, part)."""
    assert task is not None
    return DIRECTIONS.index(task[0]) * grid[1] + schedule.position(stage, grid[0], task[2])


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
    if schedule.folded and not times.delay.any():
        layout = (schedule.folded, layout[1] // 2, micro_batches // 2)
    plan = program(*layout, chunks)
    start, end = play(plan, table, saved, times.delay)
    if schedule.end == "skewed":
        return np.asarray((end[plan.last] - start[plan.first]).max(axis=0))
    return np.asarray(end[plan.last].max(axis=0))


def period(schedule: Schedule, times: Durations) -> Column:
    """Seconds that a micro-batch more takes: the work of the slowest stage [P]."""
    work = times.forward + times.backward
    if schedule.pairs:
        work = work - times.hidden
    return np.asarray(work.max(axis=1) / schedule.copies)


def repeated(name: str, times: Durations, micro_batches: int, chunks: int = 1) -> Column:
    """As ``run`` at a cost that does not grow with micro-batches: what comes after the steady state has set in costs a
    period each. Equal to ``run`` for equal stages; for others within 2 %.

    The two halves of a schedule of two ways mirror each other, so one is run: a V of half the stages.
    """
    schedule, stages = SCHEDULES[name], times.forward.shape[1]
    short = filling(schedule, stages, micro_batches)
    base = run(name, times, short, chunks)
    if short == micro_batches:
        return base
    more = (micro_batches - short) * period(schedule, times)
    if times.delay.any():  # the wait for a message comes round once for all micro-batches in flight
        cycle = lcm(schedule.repeats(stages), stages)
        grown = run(name, times, short + cycle, chunks) - base
        more = np.maximum(more, grown * (micro_batches - short) / cycle)
    return base + more


@lru_cache(maxsize=256)
def pairs(name: str, stages: int, micro_batches: int, stage: int) -> int:
    """Forward passes of a stage that run beside a backward pass, each through one chunk."""
    schedule = SCHEDULES[name]
    if not schedule.pairs:
        return 0
    short, chunks = filling(schedule, stages, micro_batches), schedule.chunks or 1
    first = sum(beside is not None for _, beside in _nodes(schedule(stage, stages, short, chunks), schedule))
    return first + (micro_batches - short) * chunks // schedule.copies


def pipeline_time(times: Durations, stages: Column, micro_batches: Column, chunks: Column, schedule: Column) -> Column:
    """Seconds until the last task of a step's pipeline [P]: closed forms where they hold, else the recurrence.

    ``stages``, ``micro_batches``, ``chunks`` and the codes of ``schedule`` are those of each plan.
    """
    given = (times.forward, times.backward, micro_batches, chunks)
    found = one_f_one_b_time(*given)
    for code in set(schedule.tolist()) - {LINE, LOOP}:
        rows = np.flatnonzero((schedule == code) & (stages > 1))
        one = CODES[int(code)]
        if one.name in ALL_FORWARD_FIRST:
            found[rows] = all_forward_first_time(*(column[rows] for column in given))
        elif one.end == "stream":
            found[rows] = stream_time(*(column[rows] for column in given[:3]))
        else:
            _recur(found, rows, one, (times, stages, micro_batches, chunks))
    return found


def _recur(found: Column, rows: Index, schedule: Schedule, plans: tuple[Durations, Column, Column, Column]) -> None:
    """Run the recurrence for the plans ``rows``, those of one shape together, into ``found``."""
    times, *columns = plans
    shapes = np.stack(columns)[:, rows]
    for shape in np.unique(shapes, axis=1).T:
        alike = rows[(shapes == shape[:, None]).all(axis=0)]
        stages, micro_batches, chunks = (int(number) for number in shape)
        found[alike] = repeated(schedule.name, times.take(alike, stages), micro_batches, chunks)
