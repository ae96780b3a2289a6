"""Rates of the running tasks that share resources: progressive filling (Bertsekas and Gallager 1992, section 6.5.2).

Compiled. ``flows[:count]`` and ``marks[:links]`` list the tasks and the binding resources that are concerned.
"""

from numba import njit

from rapid_llm.network.engine.state import ACKS, DISCIPLINE, MARKED, State

CLOSE = 1.0 + 1e-9
"""Shares that differ by less saturate together."""
NOTHING = 1e-12
"""Weight of a resource on which no task is left."""
SWEEPS = 300
NEWTON = 8
"""Bounds of the iterations of ``by_window``."""


@njit(cache=True)
def share(s: State, count: int) -> None:
    """Rates of the tasks ``flows[:count]`` over the binding resources in ``marks``, written as ``fresh``."""
    passes = 2 if s.options[ACKS] > 0.0 else 1
    for repeat in range(passes):
        _room(s, count, repeat > 0)
        if s.options[DISCIPLINE] == 1.0:
            by_window(s, count)
        else:
            max_min(s, count)


@njit(cache=True)
def _room(s: State, count: int, again: bool) -> None:
    """What each binding resource has for data: acknowledgements of the other way go first."""
    for k in range(s.tally[MARKED]):
        s.links[s.marks[k]].room = s.links[s.marks[k]].capacity
    if s.options[ACKS] == 0.0:
        return
    for k in range(count):
        task = s.tasks[s.flows[k]]
        rate = task.fresh if again else task.rate
        for e in range(task.resources, task.resources_end):
            back = s.links[s.incidences[e].resource].reverse
            if back >= 0:
                s.links[back].room -= s.options[ACKS] * rate * s.incidences[e].coefficient


@njit(cache=True)
def max_min(s: State, count: int) -> None:
    """All rates rise together; a task stops at its own bound or with the first of its resources that is full.

    O(levels x incidences).
    """
    tasks, links, incidences, flows, marks, marked = s.tasks, s.links, s.incidences, s.flows, s.marks, s.tally[MARKED]
    for k in range(marked):
        links[marks[k]].weight = 0.0
    for k in range(count):
        task = tasks[flows[k]]
        for e in range(task.resources, task.resources_end):
            links[incidences[e].resource].weight += incidences[e].coefficient
    unfrozen = count
    while unfrozen > 0:
        level = 1e300
        for k in range(marked):
            link = links[marks[k]]
            if link.weight > NOTHING:
                level = min(level, max(link.room, 0.0) / link.weight)
        for k in range(unfrozen):
            level = min(level, tasks[flows[k]].solo)
        for k in range(marked):
            link = links[marks[k]]
            link.full = link.weight > NOTHING and link.room <= level * CLOSE * link.weight
        unfrozen = _freeze(s, unfrozen, level)


@njit(cache=True)
def _freeze(s: State, unfrozen: int, level: float) -> int:
    """Give ``level`` to every task that meets its bound there; the others move to the front, and their number."""
    tasks, links, incidences, flows = s.tasks, s.links, s.incidences, s.flows
    kept = 0
    for k in range(unfrozen):
        number = flows[k]
        task = tasks[number]
        full = task.solo <= level * CLOSE
        for e in range(task.resources, task.resources_end):
            if full:
                break
            full = links[incidences[e].resource].full
        if not full:
            flows[k] = flows[kept]
            flows[kept] = number
            kept += 1
            continue
        task.fresh = level
        for e in range(task.resources, task.resources_end):
            link = links[incidences[e].resource]
            link.room -= level * incidences[e].coefficient
            link.weight -= incidences[e].coefficient
    return kept


@njit(cache=True)
def by_window(s: State, count: int) -> None:
    """First-in-first-out links: a flow runs at window / (round trip + queueing), every full link adds one delay to all.

    The delays solve W / x = RTT + sum of delays with full links full: coordinate ascent on the dual of weighted
    proportional fairness (Mo and Walrand 2000); ``delay`` of a link starts from its last value.
    """
    tasks, links, incidences, flows, marks, marked = s.tasks, s.links, s.incidences, s.flows, s.marks, s.tally[MARKED]
    for _ in range(SWEEPS):
        moved = 0.0
        for k in range(marked):
            number = marks[k]
            link = links[number]
            old = link.delay
            for _ in range(NEWTON):
                load, slope = 0.0, 0.0
                e = link.head
                while e >= 0:
                    task = tasks[incidences[e].owner]
                    waits = task.round_trip
                    for i in range(task.resources, task.resources_end):
                        waits += links[incidences[i].resource].delay * incidences[i].coefficient
                    rate = min(task.window / waits, task.solo)
                    load += rate * incidences[e].coefficient
                    if rate < task.solo:
                        slope += rate / waits * incidences[e].coefficient
                    e = incidences[e].following
                if slope == 0.0:
                    step = link.room * 0.0
                    link.delay = link.delay * 1.5 + 1e-7 if load > link.room * CLOSE else link.delay * 0.5
                else:
                    step = (load - link.room) / slope
                    link.delay = max(0.0, link.delay + step)
                if abs(step) <= 1e-7 * link.delay:
                    break
            moved = max(moved, abs(link.delay - old) / (link.delay + 1e-9))
        if moved < 1e-6:
            break
    for k in range(count):
        task = tasks[flows[k]]
        waits = task.round_trip
        for e in range(task.resources, task.resources_end):
            waits += links[incidences[e].resource].delay * incidences[e].coefficient
        task.fresh = min(task.window / waits, task.solo)
