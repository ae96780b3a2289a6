"""What the compiled loop reads and writes: records of tasks, resources and the incidences between them."""

from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rapid_llm.network.tasks import OWN_QUEUE, Floats, Ints, Tasks

Records = Any
"""A numpy record array; one record is written by its names."""

TASK: Final = np.dtype(
    [
        *((name, np.float64) for name in ("amount", "delay", "latency", "solo", "left", "since", "rate", "fresh")),
        *((name, np.float64) for name in ("start", "finish")),
        *((name, np.int64) for name in ("resources", "resources_end", "dependencies", "dependencies_end")),
        *((name, np.int64) for name in ("successors", "successors_end", "rounds", "begun", "drained", "arrived")),
        *((name, np.int64) for name in ("missing", "version", "queue_next")),
        *((name, np.bool_) for name in ("posted", "running", "held", "seen")),
    ],
    align=True,
)
"""``solo``: rate alone; ``left`` bytes at ``since``; ``fresh``: rate being computed; rounds begun, drained, arrived;
``missing`` dependencies of the next round, which is ``posted`` when none is; ``held`` back by its queue;
``version`` of its drain event."""
LINK: Final = np.dtype(
    [
        *((name, np.float64) for name in ("capacity", "demand", "room", "weight", "load", "peak", "busy", "since")),
        *((name, np.int64) for name in ("head", "count")),
        *((name, np.bool_) for name in ("marked", "full")),
    ],
    align=True,
)
"""``demand``: what the tasks on it could use alone; ``room`` and ``weight`` while filling; ``head`` of the doubly
linked list of the ``count`` incidences on it."""
INCIDENCE: Final = np.dtype(
    [("coefficient", np.float64), *((name, np.int32) for name in ("resource", "owner", "following", "previous"))]
)
EDGE: Final = np.dtype([("task", np.int32), ("lag", np.int32)])

CHANGED: Final = 0
MARKED: Final = 1
EVENTS: Final = 2
SOLVES: Final = 3
"""Places in ``State.tally``: tasks and resources listed for new rates; events and solutions so far."""


class State(NamedTuple):
    """``before``: dependencies; ``after``: the same turned around; ``flows``, ``marks``: lists; ``tally``: counters."""

    tasks: Records
    links: Records
    incidences: Records
    before: Records
    after: Records
    flows: Ints
    marks: Ints
    tally: Ints


def state_of(tasks: Tasks, capacity: Floats) -> State:
    """Records before anything has begun."""
    n = len(tasks)
    t = np.recarray(n, dtype=TASK)
    t[:] = np.zeros((), dtype=TASK)
    t.amount, t.delay, t.latency, t.rounds = tasks.amount, tasks.delay, tasks.latency, tasks.rounds
    t.start, t.finish = np.nan, np.nan
    t.solo = solo_rates(tasks, capacity)
    t.resources, t.resources_end = tasks.resource_start[:-1], tasks.resource_start[1:]
    t.dependencies, t.dependencies_end = tasks.dependency_start[:-1], tasks.dependency_start[1:]
    successors = np.zeros(n + 1, dtype=np.int64)
    np.cumsum(np.bincount(tasks.dependency, minlength=n), out=successors[1:])
    t.successors, t.successors_end = successors[:-1], successors[1:]
    t.queue_next = queue_next(tasks.queue)
    t.held[t.queue_next[t.queue_next >= 0]] = True
    before = np.recarray(len(tasks.dependency), dtype=EDGE)
    before.task, before.lag = tasks.dependency, tasks.lag
    owner = np.repeat(np.arange(n, dtype=np.int32), np.diff(tasks.dependency_start))
    order = np.argsort(tasks.dependency, kind="stable")
    after = np.recarray(len(order), dtype=EDGE)
    after.task, after.lag = owner[order], tasks.lag[order]
    links = _links(capacity)
    lists = (np.zeros(n, np.int64), np.zeros(len(links), np.int64), np.zeros(4, np.int64))
    return State(t, links, _incidences(tasks), before, after, *lists)


def _links(capacity: Floats) -> Records:
    links = np.recarray(len(capacity), dtype=LINK)
    links[:] = np.zeros((), dtype=LINK)
    links.capacity, links.head = capacity, -1
    return links


def _incidences(tasks: Tasks) -> Records:
    incidences = np.recarray(len(tasks.resource), dtype=INCIDENCE)
    incidences.resource = tasks.resource
    incidences.coefficient = tasks.coefficient if len(tasks.coefficient) else 1.0
    incidences.owner = np.repeat(np.arange(len(tasks), dtype=np.int32), np.diff(tasks.resource_start))
    incidences.following, incidences.previous = -1, -1
    return incidences


def queue_next(queue: Ints) -> Ints:
    """The next task in the same queue by index, or -1."""
    found = np.full(len(queue), -1, dtype=np.int64)
    members = np.flatnonzero(queue != OWN_QUEUE)
    order = members[np.argsort(queue[members], kind="stable")]
    same = queue[order[1:]] == queue[order[:-1]]
    found[order[:-1][same]] = order[1:][same]
    return found


def solo_rates(tasks: Tasks, capacity: Floats) -> Floats:
    """Rate of each task alone: the least capacity / coefficient of its resources (infinite without any)."""
    rate: NDArray[np.float64] = np.full(len(tasks), np.inf)
    rows = np.flatnonzero(np.diff(tasks.resource_start) > 0)
    if len(rows):
        offered = np.asarray(capacity, dtype=np.float64)[tasks.resource]
        if len(tasks.coefficient):
            offered = offered / tasks.coefficient
        rate[rows] = np.minimum.reduceat(offered, tasks.resource_start[rows])
    return rate
