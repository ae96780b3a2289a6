"""Rates of the running tasks that share resources: progressive filling (Bertsekas and Gallager 1992, section 6.5.2).

Compiled. ``flows[:count]`` and ``marks[:links]`` list the tasks and the binding resources that are concerned.
"""

from rapid_llm.network.engine.compiled import compiled
from rapid_llm.network.engine.state import ACKS, CLOSE, DISCIPLINE, MARKED, State

NOTHING = 1e-12
"""Weight of a resource on which no task is left."""
SWEEPS = 300
NEWTON = 60
"""Bounds of the iterations of ``by_window``."""


@compiled
def share(s: State, count: int) -> None:
    """Rates of the tasks ``flows[:count]`` over the binding resources in ``marks``, written as ``fresh``."""
    passes = 2 if s.options[ACKS] > 0.0 else 1
    for repeat in range(passes):
        _room(s, count, repeat > 0)
        if s.options[DISCIPLINE] == 1.0:
            by_window(s, count)
        else:
            max_min(s, count)


@compiled
def _room(s: State, count: int, again: bool) -> None:
    """What each binding resource has for data: acknowledgements of the other way go first."""
    for k in range(s.tally[MARKED]):
        link = s.links[s.marks[k]]
        link.room = link.capacity
    if s.options[ACKS] == 0.0:
        return
    for k in range(count):
        task = s.tasks[s.flows[k]]
        rate = task.fresh if again else task.rate
        for e in range(task.resources, task.resources_end):
            back = s.links[s.incidences[e].resource].reverse
            if back >= 0:
                s.links[back].room -= s.options[ACKS] * rate * s.incidences[e].coefficient


@compiled
def max_min(s: State, count: int) -> None:
    """All rates rise together; a task stops at its own bound or with the first of its resources that is full.

    O(levels x incidences).
    """
    tasks, links, incidences, flows, marks, marked = s.tasks, s.links, s.incidences, s.flows, s.marks, s.tally[MARKED]
    for k in range(marked):
        link = links[marks[k]]
        link.weight = 0.0
    for k in range(count):
        task = tasks[flows[k]]
        for e in range(task.resources, task.resources_end):
            on = incidences[e]
            link = links[on.resource]
            link.weight += on.coefficient
    unfrozen = count
    while unfrozen > 0:
        level = 1e300
        for k in range(marked):
            link = links[marks[k]]
            if link.weight > NOTHING:
                level = min(level, max(link.room, 0.0) / link.weight)
        for k in range(unfrozen):
            task = tasks[flows[k]]
            level = min(level, task.solo)
        for k in range(marked):
            link = links[marks[k]]
            link.full = link.weight > NOTHING and link.room <= level * CLOSE * link.weight
        if s.options[DISCIPLINE] == 2.0:
            _pause(s, unfrozen)
        unfrozen = _freeze(s, unfrozen, level)


@compiled
def _pause(s: State, unfrozen: int) -> None:
    """Spread fullness upstream: a paused port holds back everything behind it, whatever its destination."""
    spreading = True
    while spreading:
        spreading = False
        for k in range(unfrozen):
            task = s.tasks[s.flows[k]]
            held = False
            for back in range(task.resources_end - task.resources):
                link = s.links[s.incidences[task.resources_end - 1 - back].resource]
                if held and not link.full:
                    link.full = True
                    spreading = True
                held = held or link.full


@compiled
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
            on = incidences[e]
            link = links[on.resource]
            full = link.full
        if not full:
            flows[k] = flows[kept]
            flows[kept] = number
            kept += 1
            continue
        task.fresh = level
        for e in range(task.resources, task.resources_end):
            on = incidences[e]
            link = links[on.resource]
            link.room -= level * on.coefficient
            link.weight -= on.coefficient
    return kept


@compiled
def by_window(s: State, count: int) -> None:
    """First-in-first-out links: a flow runs at window / (round trip + queueing), every full link adds one delay to all.

    The delays solve W / x = RTT + sum of delays with full links full: coordinate ascent on the dual of weighted
    proportional fairness (Mo and Walrand 2000); ``delay`` of a link starts from its last value.
    """
    links, marks, marked = s.links, s.marks, s.tally[MARKED]
    for _ in range(SWEEPS):
        moved = 0.0
        for k in range(marked):
            old = links[marks[k]].delay
            _fill_queue(s, marks[k])
            moved = max(moved, abs(links[marks[k]].delay - old) / (links[marks[k]].delay + 1e-9))
        if moved < 1e-5:
            break
    for k in range(count):
        s.tasks[s.flows[k]].fresh = min(s.tasks[s.flows[k]].window / _waits(s, s.flows[k]), s.tasks[s.flows[k]].solo)


@compiled
def _waits(s: State, number: int) -> float:
    """Round trip of a task with the delays on its way (s)."""
    task = s.tasks[number]
    waits = max(task.round_trip, 1e-12)
    for e in range(task.resources, task.resources_end):
        waits += s.links[s.incidences[e].resource].delay * s.incidences[e].coefficient
    return float(waits)


@compiled
def _fill_queue(s: State, number: int) -> None:
    """The delay at which one link is just full, the others held: Newton inside a bracket."""
    tasks, incidences = s.tasks, s.incidences
    link = s.links[number]
    low, high = 0.0, 1.0
    for turn in range(NEWTON):
        load, slope = 0.0, 0.0
        e = link.head
        while e >= 0:
            task, part = tasks[incidences[e].owner], incidences[e].coefficient
            waits = _waits(s, incidences[e].owner)
            rate = task.window / waits
            load += min(rate, task.solo) * part
            if rate < task.solo:
                slope += rate / waits * part * part
            e = incidences[e].following
        if load > link.room:
            low = link.delay
        else:
            high = link.delay
            if link.delay == 0.0:
                return
        if abs(load - link.room) <= 1e-7 * link.room:
            return
        guess = link.delay + (load - link.room) / slope if slope > 0.0 else -1.0
        if low < guess < high or (guess <= 0.0 and turn == 0):
            link.delay = max(guess, 0.0)
        else:
            link.delay = (low + high) / 2 if high < 1.0 else 2 * low + 1e-6
