"""Rates of the running tasks that share resources: progressive filling (Bertsekas and Gallager 1992, section 6.5.2).

Compiled. ``flows[:count]`` and ``marks[:links]`` list the tasks and the binding resources that are concerned.
"""

from numba import njit

from rapid_llm.network.engine.state import MARKED, State

CLOSE = 1.0 + 1e-9
"""Shares that differ by less saturate together."""
NOTHING = 1e-12
"""Weight of a resource on which no task is left."""


@njit(cache=True)
def max_min(s: State, count: int) -> None:
    """All rates rise together; a task stops at its own bound or with the first of its resources that is full.

    Writes ``fresh`` of the tasks ``flows[:count]``, over the binding resources in ``marks``. O(levels x incidences).
    """
    tasks, links, incidences, flows, marks, marked = s.tasks, s.links, s.incidences, s.flows, s.marks, s.tally[MARKED]
    for k in range(marked):
        link = links[marks[k]]
        link.room = link.capacity
        link.weight = 0.0
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
