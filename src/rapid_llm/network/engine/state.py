"""What the compiled loop reads and writes: records of tasks, resources and the incidences between them."""

from importlib import resources
from typing import Any, Final, NamedTuple
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from rapid_llm.network.tasks import DISCIPLINES, OWN_QUEUE, Floats, Ints, Tasks, Transport

Records = Any
"""A numpy record array; one record is written by its names."""


def _sources() -> int:
    """A checksum of the functions that are compiled together."""
    folder = resources.files(__package__)
    return crc32(b"".join(folder.joinpath(f"{name}.py").read_bytes() for name in ("loop", "filling", "heap")))


TASK: Final = np.dtype(
    [
        *((name, np.float64) for name in ("amount", "delay", "latency", "solo", "left", "since", "rate", "fresh")),
        *((name, np.float64) for name in ("start", "finish", "round_trip", "window")),
        *((name, np.int64) for name in ("resources", "resources_end", "dependencies", "dependencies_end")),
        *((name, np.int64) for name in ("successors", "successors_end", "rounds", "begun", "drained", "arrived")),
        *((name, np.int64) for name in ("missing", "version", "queue", "queue_next")),
        *((name, np.bool_) for name in ("posted", "running", "waiting", "seen")),
    ],
    align=True,
)
"""``solo``: rate alone; ``left`` bytes at ``since``; ``fresh``: rate being computed; rounds begun, drained, arrived;
``missing`` dependencies of the next round, which is ``posted`` when none is; ``waiting`` in its queue, before
``queue_next``; ``version`` of its drain event."""
LINK: Final = np.dtype(
    [
        *(
            (name, np.float64)
            for name in ("capacity", "demand", "room", "weight", "load", "peak", "busy", "since", "delay")
        ),
        *((name, np.int64) for name in ("head", "count", "reverse")),
        *((name, np.bool_) for name in ("marked", "full")),
    ],
    align=True,
)
"""``demand``: what the tasks on it could use alone; ``room`` and ``weight`` while filling; ``head`` of the doubly
linked list of the ``count`` incidences on it; ``reverse``: the same link the other way; ``delay`` of its queue (s)."""
INCIDENCE: Final = np.dtype(
    [("coefficient", np.float64), *((name, np.int32) for name in ("resource", "owner", "following", "previous"))]
)
EDGE: Final = np.dtype([("task", np.int32), ("lag", np.int32)])
QUEUE: Final = np.dtype(
    [("busy", np.bool_), ("first", np.int64), ("last", np.int64), (f"source_{_sources():08x}", np.bool_)], align=True
)
"""An in-order queue: whether a task of it runs, and the list of those that wait. The last field is never read: with it
other sources have other types, since a cached caller does not notice by itself that what it calls has changed."""

CHANGED: Final = 0
MARKED: Final = 1
EVENTS: Final = 2
SOLVES: Final = 3
INSTANTS: Final = 4
USED: Final = 5
FREE: Final = 6
"""Places in ``State.tally``: tasks and resources listed for new rates; events and solutions so far; instants in the
heap, records of events in use, and the first free one."""
SLOTS: Final = 256
"""Instants that are looked up by their time (a power of two)."""
SAME: Final = 1e-12
"""Events closer than this, in seconds and relative to now, are one: float noise must not split a symmetric drain."""
PACKET: Final = 0
ACKS: Final = 1
DISCIPLINE: Final = 2
SLACK: Final = 3
"""Places in ``State.options``: bytes of a packet, share of the rate that flows back as acknowledgements, how links are
shared (index into DISCIPLINES), and the share of a capacity above which demand may bind."""
CLOSE: Final = 1.0 + 1e-9
"""Shares that differ by less saturate together."""


EVENT: Final = np.dtype(
    [("time", np.float64), *((name, np.int64) for name in ("code", "version", "following", "last"))]
)
"""An event: when, 4 x task + what, the version of a drain (0 of anything else), the next of its instant and, in the
first of an instant that waits, the last."""


class State(NamedTuple):
    """``before``: dependencies; ``after``: the same turned around; ``flows``, ``marks``: lists; ``tally``: counters."""

    tasks: Records
    links: Records
    incidences: Records
    before: Records
    after: Records
    queues: Records
    events: Records
    heap: Ints
    recent: Ints
    flows: Ints
    marks: Ints
    tally: Ints
    options: Floats


def state_of(tasks: Tasks, capacity: Floats, reverse: Ints, transport: Transport) -> State:
    """Records before anything has begun; ``reverse`` is the link the other way of each, or -1."""
    n = len(tasks)
    t: Records = np.recarray(n, dtype=TASK)
    t[:] = np.zeros((), dtype=TASK)
    t.amount, t.delay, t.latency, t.rounds = tasks.amount, tasks.delay, tasks.latency, tasks.rounds
    t.start, t.finish, t.queue_next = np.nan, np.nan, -1
    t.solo = solo_rates(tasks, capacity)
    t.resources, t.resources_end = tasks.resource_start[:-1], tasks.resource_start[1:]
    t.dependencies, t.dependencies_end = tasks.dependency_start[:-1], tasks.dependency_start[1:]
    t.round_trip, t.window = 2 * tasks.latency, transport.window_bytes
    successors = np.zeros(n + 1, dtype=np.int64)
    np.cumsum(np.bincount(tasks.dependency, minlength=n), out=successors[1:])
    t.successors, t.successors_end = successors[:-1], successors[1:]
    own = tasks.queue == OWN_QUEUE
    names, place = np.unique(tasks.queue[~own], return_inverse=True)
    t.queue = OWN_QUEUE
    t.queue[~own] = place
    queues = np.recarray(len(names), dtype=QUEUE)
    queues.busy, queues.first, queues.last = False, -1, -1
    before = np.recarray(len(tasks.dependency), dtype=EDGE)
    before.task, before.lag = tasks.dependency, tasks.lag
    owner = np.repeat(np.arange(n, dtype=np.int32), np.diff(tasks.dependency_start))
    order = np.argsort(tasks.dependency, kind="stable")
    after = np.recarray(len(order), dtype=EDGE)
    after.task, after.lag = owner[order], tasks.lag[order]
    links = _links(capacity, reverse)
    lists = (np.zeros(n, np.int64), np.zeros(len(links), np.int64), np.zeros(7, np.int64))
    slack = 0.0 if transport.discipline == "pfc" else CLOSE - transport.ack_share
    settings = np.array([transport.packet_bytes, transport.ack_share, DISCIPLINES.index(transport.discipline), slack])
    options = settings.astype(np.float64)
    events = free_events(0, 8 * n + 64)  # an instant adds at most three a task
    heap, recent = np.zeros(len(events), np.int64), np.full(SLOTS, -1)
    return State(t, links, _incidences(tasks), before, after, queues, events, heap, recent, *lists, options)


def free_events(first: int, count: int) -> Records:
    """Records of events ``first`` to ``first + count``, each leading to the next."""
    events: Records = np.recarray(count, dtype=EVENT)
    events[:] = np.zeros((), dtype=EVENT)
    events.following, events.last = np.arange(first + 1, first + count + 1), -1
    return events


def grown(state: State) -> State:
    """The same state with twice the room for events."""
    count = len(state.events)
    more = free_events(count, count)
    more[-1].following = state.tally[FREE]
    state.tally[FREE] = count
    events = np.concatenate([state.events, more]).view(np.recarray)
    return state._replace(events=events, heap=np.concatenate([state.heap, np.zeros(count, np.int64)]))


def _links(capacity: Floats, reverse: Ints) -> Records:
    links = np.recarray(len(capacity), dtype=LINK)
    links[:] = np.zeros((), dtype=LINK)
    links.capacity, links.head, links.reverse = capacity, -1, reverse
    return links


def _incidences(tasks: Tasks) -> Records:
    incidences = np.recarray(len(tasks.resource), dtype=INCIDENCE)
    incidences.resource = tasks.resource
    incidences.coefficient = tasks.coefficient if len(tasks.coefficient) else 1.0
    incidences.owner = np.repeat(np.arange(len(tasks), dtype=np.int32), np.diff(tasks.resource_start))
    incidences.following, incidences.previous = -1, -1
    return incidences


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
