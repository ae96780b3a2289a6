"""Which resources may bind: tasks on those run by events, all others are free.

At first those that more tasks ask for at time 0 than they can serve. A run in which free tasks met on another is run
again with that one tight, so that the result is the one that events for every task give.
"""

import numpy as np
from numpy.typing import NDArray

from rapid_llm.network.engine.state import SLACK, Records, State
from rapid_llm.network.jit import njit
from rapid_llm.network.tasks import Floats, Ints

SPREAD = 0.1
"""Share of the tasks in trains of crowded ones up to which their resources are taken for tight at first."""
SWEEPS = 8
"""Passes in search of stages: they are a first guess."""
FEW = 32
"""Tasks of a resource up to which they are sorted in place."""
TOUCH = 1e-9
"""Share of a time by which rounds may overlap and still be one after another."""


@njit(cache=True)
def foresee(s: State) -> None:
    """Make tight what tasks of one stage ask too much of, and all that the trains of those tasks run on."""
    stage = _stages(s.tasks, s.before)
    crowd = np.zeros(len(s.tasks), np.bool_)
    asked = np.zeros(stage.max() + 1)
    for k in range(len(s.links)):
        link, mine = s.links[k], s.users[s.users_start[k] : s.users_start[k + 1]]
        for e in mine:
            task = s.incidences[e].owner
            asked[stage[task]] += s.incidences[e].coefficient * s.tasks[task].solo
        for e in mine:
            task = s.incidences[e].owner
            if asked[stage[task]] > link.capacity * s.options[SLACK]:
                link.tight, crowd[task] = True, True
        for e in mine:
            asked[stage[s.incidences[e].owner]] = 0.0
    trains = _trains(s.tasks, s.before, s.after, crowd)
    if np.sum(trains) < SPREAD * len(trains):
        for e in range(len(s.incidences)):
            if trains[s.incidences[e].owner]:
                s.links[s.incidences[e].resource].tight = True


@njit(cache=True)
def _stages(tasks: Records, before: Records) -> Ints:
    """How many tasks a task waits for to the end, one after another; those of one stage run at about the same time."""
    stage = np.zeros(len(tasks), np.int64)
    for _ in range(SWEEPS):
        moved = False
        for number in range(len(tasks)):
            task = tasks[number]
            for e in range(task.dependencies, task.dependencies_end):
                other = before[e].task
                least = stage[other] + (1 - before[e].lag >= tasks[other].rounds)
                moved = moved or least > stage[number]
                stage[number] = max(stage[number], least)
        if not moved:
            break
    return stage


@njit(cache=True)
def _trains(tasks: Records, before: Records, after: Records, chosen: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """The chosen tasks, and those that hand rounds to them or take rounds from them: their rings and pipelines."""
    found, stack, count = chosen.copy(), np.empty(len(tasks), np.int64), 0
    for number in np.flatnonzero(chosen):
        stack[count] = number
        count += 1
    while count > 0:
        count -= 1
        number = stack[count]
        task = tasks[number]
        for e in range(task.dependencies, task.dependencies_end):
            other = before[e].task
            if not found[other] and 1 - before[e].lag < tasks[other].rounds:
                found[other], stack[count] = True, other
                count += 1
        for e in range(task.successors, task.successors_end):
            other = after[e].task
            if not found[other] and 1 - after[e].lag < task.rounds:
                found[other], stack[count] = True, other
                count += 1
    return found


@njit(cache=True)
def prepare(s: State, all_share: bool, noted: int) -> tuple[int, int]:
    """Rewind all tasks that a resource which became tight concerns (at first, and where all share: every task).

    Returns how many tasks share, and ``noted`` and the rounds of those that share from now on.
    """
    changed, sharing = np.zeros(len(s.tasks), np.bool_), 0
    for number in range(len(s.tasks)):
        task = s.tasks[number]
        free = not all_share and task.queue < 0
        for e in range(task.resources, task.resources_end):
            free = free and not s.links[s.incidences[e].resource].tight
        changed[number] = all_share or free != task.free or task.begun == 0 or len(s.queues) > 0
        if not free and task.noted < 0 and not all_share:
            task.noted = noted
            noted += task.rounds
        task.free = free
        sharing += 0 if free else 1
    _reach(s, changed)
    for one in np.flatnonzero(changed):
        task = s.tasks[one]
        task.begun, task.arrived, task.version = 0, 0, 0
        task.began, task.until, task.rate = 0.0, 0.0, 0.0
        task.start, task.finish, task.queue_next = np.nan, np.nan, -1
        task.posted = task.running = task.waiting = task.seen = False
        for e in range(task.resources, task.resources_end):
            link = s.links[s.incidences[e].resource]
            link.moved = True
            if not task.free:
                link.demand, link.load, link.peak, link.busy, link.delay = 0.0, 0.0, 0.0, 0.0, 0.0
                link.head, link.count, link.marked, link.full = -1, 0, False, False
    for k in range(len(s.queues)):
        queue = s.queues[k]
        queue.busy, queue.first, queue.last = False, -1, -1
    s.tally[:] = 0
    return sharing, noted


@njit(cache=True)
def _reach(s: State, changed: NDArray[np.bool_]) -> None:
    """Add what waits for changed tasks, or shares with one that does not run free."""
    stack, count = np.empty(len(s.tasks), np.int64), 0
    for number in np.flatnonzero(changed):
        stack[count] = number
        count += 1
    shared = np.zeros(len(s.links), np.bool_)
    while count > 0:
        count -= 1
        task = s.tasks[stack[count]]
        for e in range(task.successors, task.successors_end):
            other = s.after[e].task
            if not changed[other]:
                changed[other], stack[count] = True, other
                count += 1
        for e in range(task.resources, task.resources_end):
            link = s.incidences[e].resource
            if task.free or shared[link]:
                continue
            shared[link] = True
            for u in s.users[s.users_start[link] : s.users_start[link + 1]]:
                other = s.incidences[u].owner
                if not changed[other] and not s.tasks[other].free:
                    changed[other], stack[count] = True, other
                    count += 1


@njit(cache=True)
def crowded(s: State, measured: bool) -> int:
    """How many resources free tasks ask too much of, which become tight; busy time and peak of all others. Unless those
    are ``measured``, what has room for all its tasks at once is not looked at.
    """
    found = 0
    start, until, busy, free = _spans(s)  # beside each other, as resources see their tasks in any order
    owner = s.incidences.owner.copy()
    for k in range(len(s.links)):
        link = s.links[k]
        if link.tight or not link.moved:
            continue
        link.moved = False
        mine, alone, asked = s.users[s.users_start[k] : s.users_start[k + 1]], False, 0.0
        for e in mine:
            alone = alone or free[owner[e]]
            asked += s.incidences[e].coefficient * s.tasks[owner[e]].solo
        if not alone or not (measured or asked > link.capacity * s.options[SLACK]):
            continue
        _by_start(start, owner, mine)
        link.busy, link.peak, at = 0.0, 0.0, 0
        while at < len(mine):
            stop = _meeting(start, until, owner, mine, at)
            if stop == at + 1:
                link.busy += busy[owner[mine[at]]]
                link.peak = max(link.peak, s.incidences[mine[at]].coefficient * s.tasks[owner[mine[at]]].solo)
            else:
                covered, peak = _overlaid(s, mine[at:stop])
                link.busy += covered
                link.peak = max(link.peak, peak)
            at = stop
        link.tight = link.peak > link.capacity * s.options[SLACK]
        found += link.tight
    return found


@njit(cache=True)
def _spans(s: State) -> tuple[Floats, Floats, Floats, NDArray[np.bool_]]:
    """Start, last drain and busy time of each task, and whether it ran free."""
    n = len(s.tasks)
    start, until, busy, free = np.empty(n), np.empty(n), np.zeros(n), np.empty(n, np.bool_)
    for number in range(n):
        task = s.tasks[number]
        start[number], until[number], free[number] = task.start, task.until, task.free
        if task.free:
            busy[number] = task.rounds * task.seconds
        elif task.noted >= 0:
            for k in range(task.rounds):
                busy[number] += s.arrivals[task.first + k] - task.latency - s.begins[task.noted + k]
    return start, until, busy, free


@njit(cache=True)
def _by_start(start: Floats, owner: Ints, mine: Ints) -> None:
    """Sort incidences by when their tasks start."""
    if len(mine) > FEW:
        mine[:] = mine[np.argsort(start[owner[mine]])]
        return
    for i in range(1, len(mine)):
        moved, j = mine[i], i
        while j > 0 and start[owner[mine[j - 1]]] > start[owner[moved]]:
            mine[j] = mine[j - 1]
            j -= 1
        mine[j] = moved


@njit(cache=True)
def _meeting(start: Floats, until: Floats, owner: Ints, mine: Ints, at: int) -> int:
    """Where those end that meet ``mine[at]``, or one that meets it: all between are on the resource at once."""
    end, stop = until[owner[mine[at]]], at + 1
    while stop < len(mine) and start[owner[mine[stop]]] < end * (1.0 - TOUCH):
        end = max(end, until[owner[mine[stop]]])
        stop += 1
    return stop


@njit(cache=True)
def _overlaid(s: State, mine: Ints) -> tuple[float, float]:
    """Busy time and highest demand where the rounds of several tasks may overlap."""
    count = 0
    for e in mine:
        count += s.tasks[s.incidences[e].owner].rounds
    begin, end, rate = np.empty(count), np.empty(count), np.empty(count)
    at = 0
    for e in mine:
        task = s.tasks[s.incidences[e].owner]
        for k in range(task.rounds):
            end[at] = s.arrivals[task.first + k] - task.latency
            begin[at] = s.begins[task.noted + k] if task.noted >= 0 else end[at] - task.seconds
            rate[at] = s.incidences[e].coefficient * task.solo
            at += 1
    return _sweep(begin, end, rate)


@njit(cache=True)
def _sweep(begin: Floats, end: Floats, rate: Floats) -> tuple[float, float]:
    """Time covered by intervals, and the highest sum of their rates."""
    opening, closing = np.argsort(begin), np.argsort(end)
    covered, since, load, peak, active, j = 0.0, 0.0, 0.0, 0.0, 0, 0
    for i in opening:
        while j < len(end) and end[closing[j]] * (1.0 - TOUCH) <= begin[i]:
            load -= rate[closing[j]]
            active -= 1
            if active == 0:
                covered += end[closing[j]] - since
            j += 1
        if active == 0:
            since, load = begin[i], 0.0
        active += 1
        load += rate[i]
        peak = max(peak, load)
    return covered + end[closing[-1]] - since, peak
