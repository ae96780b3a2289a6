"""What the compiled loop reads and writes: records of tasks, resources and the incidences between them."""

from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rapid_llm.network.engine.compiled import checksum
from rapid_llm.network.jit import njit
from rapid_llm.network.tasks import DISCIPLINES, OWN_QUEUE, Floats, Ints, Tasks, Transport

Records = Any
"""A numpy record array; one record is written by its names."""


_SOURCES: Final = checksum(__package__, ("begins", "crowding", "filling", "heap", "loop", "rounds", "sharing"))


TASK: Final = np.dtype(
    [
        *((name, np.float64) for name in ("amount", "delay", "latency", "seconds", "began", "until")),
        *((name, np.int32) for name in ("dependencies", "dependencies_live", "dependencies_end")),
        *((name, np.int32) for name in ("successors", "successors_live", "successors_end")),
        *((name, np.int64) for name in ("rounds", "begun", "arrived", "missing", "first")),
        *((name, np.bool_) for name in ("free", "posted", "running", "waiting", "seen")),
        *((name, np.float64) for name in ("start", "finish", "solo", "left", "since", "rate", "fresh")),
        *((name, np.float64) for name in ("round_trip", "window")),
        *((name, np.int64) for name in ("resources", "resources_end", "version", "queue", "queue_next", "noted")),
    ],
    align=True,
)
"""``solo``: rate alone, ``seconds`` a round at that; the last round ``began`` and drained (``until``); ``left`` bytes
at ``since``; ``fresh``: rate being computed. Dependencies from ``_live`` on hand over round by round, those before wait
for all rounds; successors alike. Rounds begun, and known to arrive, at ``State.arrivals[first:]``; ``missing``
dependencies of the next round, which is ``posted`` when none is. ``free``: no resource of it binds; else ``noted`` is
the place of its begins (or -1). ``waiting`` in its queue, before ``queue_next``; ``version`` of its drain event."""
LINK: Final = np.dtype(
    [
        *(
            (name, np.float64)
            for name in ("capacity", "demand", "room", "weight", "load", "peak", "busy", "since", "delay")
        ),
        *((name, np.int64) for name in ("head", "count", "reverse")),
        *((name, np.bool_) for name in ("marked", "full", "tight", "moved")),
    ],
    align=True,
)
"""``demand``: what the tasks on it could use alone; ``room`` and ``weight`` while filling; ``head`` of the doubly
linked list of the ``count`` incidences on it; ``reverse``: the same link the other way; ``delay`` of its queue (s);
``tight``: it may bind, so that its tasks run by events; ``moved``: tasks on it have run since it was looked at."""
INCIDENCE: Final = np.dtype(
    [("coefficient", np.float64), *((name, np.int32) for name in ("resource", "owner", "following", "previous"))]
)
EDGE: Final = np.dtype([("task", np.int32), ("lag", np.int32)])
QUEUE: Final = np.dtype(
    [("busy", np.bool_), ("first", np.int64), ("last", np.int64), (f"source_{_SOURCES:08x}", np.bool_)], align=True
)
"""An in-order queue: whether a task of it runs, and the list of those that wait. The last field is never read
(see ``compiled.checksum``)."""

CHANGED: Final = 0
MARKED: Final = 1
EVENTS: Final = 2
SOLVES: Final = 3
INSTANTS: Final = 4
USED: Final = 5
FREE: Final = 6
READY: Final = 7
"""Places in ``State.tally``: tasks and resources listed for new rates; events and solutions so far; instants in the
heap, records of events in use, and the first free one; free tasks that can go on."""
DRAINED: Final = 0
POSTED: Final = 1
SERVED: Final = 2
"""What happens to a task."""
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
    """``before``: dependencies; ``after``: the same turned around; ``flows``, ``marks``, ``ready``: lists; ``tally``:
    counters; ``arrivals``: when rounds arrive; ``begins``: when those of tasks beside free ones begin; ``users``:
    incidences on each resource of tasks that move something, as CSR.
    """

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
    ready: Ints
    tally: Ints
    options: Floats
    arrivals: Floats
    begins: Floats
    users_start: Ints
    users: Ints


def state_of(tasks: Tasks, capacity: Floats, reverse: Ints, transport: Transport) -> State:
    """Records of tasks that wait to be made ready (``crowding.prepare``); ``reverse`` is the link the other way of each
    resource, or -1.
    """
    n = len(tasks)
    t: Records = np.zeros(n, dtype=TASK).view(np.recarray)
    t.noted, t.free = -1, True
    t.amount, t.delay, t.latency, t.rounds = tasks.amount, tasks.delay, tasks.latency, tasks.rounds
    t.solo = solo_rates(tasks, capacity)
    t.seconds = np.where(tasks.amount > 0, tasks.amount / t.solo, 0.0)
    t.first[1:] = np.cumsum(tasks.rounds[:-1])
    t.resources, t.resources_end = tasks.resource_start[:-1], tasks.resource_start[1:]
    t.round_trip, t.window = 2 * tasks.latency, transport.window_bytes
    own = tasks.queue == OWN_QUEUE
    names, place = np.unique(tasks.queue[~own], return_inverse=True)
    t.queue = OWN_QUEUE
    t.queue[~own] = place
    queues = np.recarray(len(names), dtype=QUEUE)
    before, after = _edges(t, tasks)
    links, incidences = _links(capacity, reverse), _incidences(tasks)
    lists = (np.zeros(n, np.int64), np.zeros(len(links), np.int64), np.zeros(n, np.int64), np.zeros(8, np.int64))
    slack = 0.0 if transport.discipline == "pfc" else CLOSE - transport.ack_share
    settings = np.array([transport.packet_bytes, transport.ack_share, DISCIPLINES.index(transport.discipline), slack])
    options = settings.astype(np.float64)
    heap, recent = np.zeros(0, np.int64), np.full(SLOTS, -1)
    times = (np.zeros(int(tasks.rounds.sum())), np.zeros(0))
    lines = (t, links, incidences, before, after, queues, free_events(0, 0), heap, recent)
    return State(*lines, *lists, options, *times, *_users(tasks, len(links)))


def _edges(t: Records, tasks: Tasks) -> tuple[Records, Records]:
    """Dependencies of each task, and successors; first those of which the first round already waits for all rounds."""
    n = len(tasks)
    owner = np.repeat(np.arange(n, dtype=np.int32), np.diff(tasks.dependency_start))
    live = 1 - tasks.lag < tasks.rounds[tasks.dependency]
    found = []
    for names, ends, others in (
        (("dependencies", "dependencies_live", "dependencies_end"), owner, tasks.dependency),
        (("successors", "successors_live", "successors_end"), tasks.dependency, owner),
    ):
        start, order = grouped(2 * ends + live, 2 * n)
        edges = np.recarray(len(order), dtype=EDGE)
        edges.task, edges.lag = others[order], tasks.lag[order]
        t[names[0]], t[names[1]], t[names[2]] = start[:-1:2], start[1::2], start[2::2]
        found.append(edges)
    return found[0], found[1]


def _users(tasks: Tasks, links: int) -> tuple[Ints, Ints]:
    """Incidences on each resource of tasks that move something, as CSR."""
    moving = np.repeat(tasks.amount > 0, np.diff(tasks.resource_start))
    return grouped(np.where(moving, tasks.resource, links), links)


@njit(cache=True)
def grouped(group: NDArray[np.int32], count: int) -> tuple[Ints, Ints]:
    """Indices by group, in order, as CSR; those of groups from ``count`` on are left out."""
    start = np.zeros(count + 1, np.int64)
    for one in group:
        if one < count:
            start[one + 1] += 1
    start = np.cumsum(start)
    place, order = start.copy(), np.empty(start[count], np.int64)
    for i in range(len(group)):
        if group[i] < count:
            order[place[group[i]]] = i
            place[group[i]] += 1
    return start, order


def with_events(state: State, tasks: int, rounds: int) -> State:
    """The same state with room for the events of so many tasks, and for notes of so many rounds."""
    events = free_events(0, 8 * tasks + 64)  # an instant adds at most three a task
    heap, begins = np.zeros(len(events), np.int64), np.zeros(rounds)
    begins[: len(state.begins)] = state.begins
    return state._replace(events=events, heap=heap, recent=np.full(SLOTS, -1), begins=begins)


def free_events(first: int, count: int) -> Records:
    """Records of events ``first`` to ``first + count``, each leading to the next."""
    events: Records = np.zeros(count, dtype=EVENT).view(np.recarray)
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
    links: Records = np.zeros(len(capacity), dtype=LINK).view(np.recarray)
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
