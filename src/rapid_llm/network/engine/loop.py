"""The event loop, compiled: begins, drains and arrivals of rounds; rates change between events only.

Updates are lazy: a task is touched when its own rate changes, and rates are computed anew only for the tasks that an
arrival or departure reaches over resources that bind.
"""

from heapq import heappop, heappush

from numba import njit

from rapid_llm.network.engine.filling import CLOSE, share
from rapid_llm.network.engine.state import ACKS, CHANGED, DISCIPLINE, EVENTS, MARKED, PACKET, SOLVES, Records, State

DRAINED = 0
ARRIVED = 1
POSTED = 2
SERVED = 3
SAME = 1e-12
"""Events closer than this, in seconds and relative to now, are one: float noise must not split a symmetric drain."""

Events = list[tuple[float, int, int]]
"""A heap of (time, 4 x task + what, version)."""


@njit(cache=True)
def run(s: State) -> None:
    """Run until nothing is left to happen."""
    tasks, tally = s.tasks, s.tally
    events = [(0.0, 0, 0)]
    events.pop()
    for number in range(len(tasks)):
        tasks[number].missing = _missing(tasks, s.before, number)
    for number in range(len(tasks)):
        if tasks[number].missing == 0:
            _post(s, events, number, 0.0)
    _resolve(s, events, 0.0)
    while len(events) > 0:
        now = events[0][0]
        horizon = now + SAME + now * SAME
        while len(events) > 0 and events[0][0] <= horizon:
            _, code, version = heappop(events)
            tally[EVENTS] += 1
            number, what = code >> 2, code & 3
            if what == POSTED:
                tasks[number].posted = True
                _try_begin(s, events, number, now)
            elif what == ARRIVED:
                _arrive(s, events, number, now)
            elif version == tasks[number].version and what == SERVED:
                tasks[number].since = now
                _attach(s, number, now)
            elif version == tasks[number].version:
                _drain(s, events, number, now)
        if tally[CHANGED] > 0 or tally[MARKED] > 0:
            _resolve(s, events, now)


@njit(cache=True)
def _missing(tasks: Records, before: Records, number: int) -> int:
    """Dependencies that the next round of a task still waits for."""
    count = 0
    task = tasks[number]
    for e in range(task.dependencies, task.dependencies_end):
        other = tasks[before[e].task]
        if other.arrived < min(other.rounds, task.begun + 1 - before[e].lag):
            count += 1
    return count


@njit(cache=True)
def _post(s: State, events: Events, number: int, now: float) -> None:
    """All dependencies of the next round are met."""
    if s.tasks[number].delay > 0.0:
        heappush(events, (now + s.tasks[number].delay, number * 4 + POSTED, 0))
    else:
        s.tasks[number].posted = True
        _try_begin(s, events, number, now)


@njit(cache=True)
def _try_begin(s: State, events: Events, number: int, now: float) -> None:
    """Begin the next round of a task where it is posted and alone; in a queue, join its end."""
    task = s.tasks[number]
    if not task.posted or task.running or task.waiting:
        return
    if task.queue >= 0:
        queue = s.queues[task.queue]
        if queue.busy:
            task.waiting = True
            task.queue_next = -1
            if queue.first < 0:
                queue.first = number
            else:
                s.tasks[queue.last].queue_next = number
            queue.last = number
            return
        queue.busy = True
    _begin(s, events, number, now)


@njit(cache=True)
def _begin(s: State, events: Events, number: int, now: float) -> None:
    task = s.tasks[number]
    if task.begun == 0:
        task.start = now
    task.begun += 1
    task.running = True
    task.posted = False
    task.left = task.amount
    task.since = now
    task.rate = 0.0
    task.version += 1
    if task.amount <= 0.0 or task.resources == task.resources_end:
        heappush(events, (now, number * 4 + DRAINED, task.version))
    else:
        queue = _queue_ahead(s, number, now) if s.options[DISCIPLINE] == 1.0 else 0.0
        if queue > 0.0:
            heappush(events, (now + queue, number * 4 + SERVED, task.version))
        else:
            _attach(s, number, now)
    if task.begun < task.rounds:
        task.missing = _missing(s.tasks, s.before, number)
        if task.missing == 0:
            if task.delay > 0.0:
                heappush(events, (now + task.delay, number * 4 + POSTED, 0))
            else:
                task.posted = True


@njit(cache=True)
def _queue_ahead(s: State, number: int, now: float) -> float:
    """Seconds until a first-in-first-out path serves the first byte of a task: what others have in flight is ahead."""
    ahead = 0.0
    task = s.tasks[number]
    for e in range(task.resources, task.resources_end):
        link = s.links[s.incidences[e].resource]
        if link.load < 0.98 * link.capacity:
            continue
        stored = 0.0
        other = link.head
        while other >= 0:
            flow = s.tasks[s.incidences[other].owner]
            left = flow.left - flow.rate * (now - flow.since)
            if link.delay > 0.0:
                stored += min(left, flow.rate * link.delay)
            elif flow.rate >= 0.98 * link.capacity and flow.rate >= 0.98 * flow.solo:
                stored += min(left, flow.window - flow.rate * flow.round_trip)
            other = s.incidences[other].following
        ahead += max(0.0, stored / link.capacity)
    return ahead


@njit(cache=True)
def _release(s: State, events: Events, queue_number: int, now: float) -> None:
    """Let the next of a queue begin."""
    queue = s.queues[queue_number]
    number = queue.first
    if number < 0:
        queue.busy = False
        return
    queue.first = s.tasks[number].queue_next
    s.tasks[number].waiting = False
    _begin(s, events, number, now)


@njit(cache=True)
def _mark(s: State, number: int) -> None:
    """List a resource on which the tasks ask for more than it has: they need new rates."""
    link = s.links[number]
    binds = link.demand > link.capacity * (CLOSE - s.options[ACKS]) or s.options[DISCIPLINE] == 2.0
    if not link.marked and binds:
        link.marked = True
        s.marks[s.tally[MARKED]] = number
        s.tally[MARKED] += 1


@njit(cache=True)
def _attach(s: State, number: int, now: float) -> None:
    tasks, links, incidences = s.tasks, s.links, s.incidences
    task = tasks[number]
    for e in range(task.resources, task.resources_end):
        link = links[incidences[e].resource]
        first = link.head
        incidences[e].following = first
        incidences[e].previous = -1
        if first >= 0:
            incidences[first].previous = e
        link.head = e
        if link.count == 0:
            link.since = now
        link.count += 1
        link.demand += incidences[e].coefficient * task.solo
        _mark(s, incidences[e].resource)
    if not task.seen:
        task.seen = True
        s.flows[s.tally[CHANGED]] = number
        s.tally[CHANGED] += 1


@njit(cache=True)
def _detach(s: State, number: int, now: float) -> None:
    links, incidences = s.links, s.incidences
    task = s.tasks[number]
    for e in range(task.resources, task.resources_end):
        link = links[incidences[e].resource]
        _mark(s, incidences[e].resource)
        previous, following = incidences[e].previous, incidences[e].following
        if previous >= 0:
            incidences[previous].following = following
        else:
            link.head = following
        if following >= 0:
            incidences[following].previous = previous
        link.count -= 1
        if link.count == 0:
            link.busy += now - link.since
            link.demand = 0.0
            link.load = 0.0
        else:
            link.demand -= incidences[e].coefficient * task.solo
            link.load -= incidences[e].coefficient * task.rate


@njit(cache=True)
def _lead(s: State, number: int, now: float) -> float:
    """Seconds that the last packet of a task is ahead of the flows that drain together with it.

    A port that serves m flows in turn sends their last packets one after another: the k-th arrives m - 1 - k packets
    before the last.
    """
    task = s.tasks[number]
    most = 0.0
    for i in range(task.resources, task.resources_end):
        link = s.links[s.incidences[i].resource]
        others = 0
        e = link.head
        while e >= 0:
            other = s.tasks[s.incidences[e].owner]
            if other.left - other.rate * (now - other.since) <= 1e-3:
                others += 1
            e = s.incidences[e].following
        most = max(most, (others - 1) * s.options[PACKET] / link.capacity)
    return float(min(most, task.latency))


@njit(cache=True)
def _drain(s: State, events: Events, number: int, now: float) -> None:
    """The last byte of a round has left; the next round or the next task of the queue may begin."""
    task = s.tasks[number]
    lead = 0.0
    if task.amount > 0.0 and task.resources < task.resources_end:
        if s.options[PACKET] > 0.0:
            lead = _lead(s, number, now)
        _detach(s, number, now)
    task.running = False
    task.rate = 0.0
    task.version += 1
    task.drained += 1
    if task.latency > lead:
        heappush(events, (now + task.latency - lead, number * 4 + ARRIVED, 0))
    else:
        _arrive(s, events, number, now)
    if task.queue >= 0:
        _release(s, events, task.queue, now)
    if task.drained < task.rounds:
        _try_begin(s, events, number, now)


@njit(cache=True)
def _arrive(s: State, events: Events, number: int, now: float) -> None:
    """One more round has arrived; tasks that waited for exactly this one may be posted."""
    tasks, after = s.tasks, s.after
    task = tasks[number]
    task.arrived += 1
    if task.arrived == task.rounds:
        task.finish = now
    for e in range(task.successors, task.successors_end):
        other = tasks[after[e].task]
        if other.begun < other.rounds and task.arrived == min(task.rounds, other.begun + 1 - after[e].lag):
            other.missing -= 1
            if other.missing == 0:
                _post(s, events, after[e].task, now)


@njit(cache=True)
def _reach(s: State) -> int:
    """List everything that shares binding resources with what changed; how many tasks of it run."""
    tasks, links, incidences, flows, marks, tally = s.tasks, s.links, s.incidences, s.flows, s.marks, s.tally
    next_flow, next_link = 0, 0
    while next_flow < tally[CHANGED] or next_link < tally[MARKED]:
        if next_link < tally[MARKED]:
            e = links[marks[next_link]].head
            next_link += 1
            while e >= 0:
                number = incidences[e].owner
                if not tasks[number].seen:
                    tasks[number].seen = True
                    flows[tally[CHANGED]] = number
                    tally[CHANGED] += 1
                e = incidences[e].following
        else:
            task = tasks[flows[next_flow]]
            next_flow += 1
            if task.running:
                for e in range(task.resources, task.resources_end):
                    _mark(s, incidences[e].resource)
                    if s.options[ACKS] > 0.0 and links[incidences[e].resource].reverse >= 0:
                        _mark(s, links[incidences[e].resource].reverse)
    kept = 0
    for k in range(tally[CHANGED]):
        number = flows[k]
        tasks[number].seen = False
        if tasks[number].running:
            flows[kept] = number
            kept += 1
    return kept


@njit(cache=True)
def _resolve(s: State, events: Events, now: float) -> None:
    """New rates where something changed; a new drain event for each task whose rate did."""
    tasks, links, incidences, flows, marks, tally = s.tasks, s.links, s.incidences, s.flows, s.marks, s.tally
    count = _reach(s)
    share(s, count)
    for k in range(count):
        task = tasks[flows[k]]
        change = task.fresh - task.rate
        if abs(change) > 1e-12 * task.fresh:
            task.left = max(0.0, task.left - task.rate * (now - task.since))
            task.since = now
            task.rate = task.fresh
            task.version += 1
            for e in range(task.resources, task.resources_end):
                links[incidences[e].resource].load += incidences[e].coefficient * change
            heappush(events, (now + task.left / task.rate, flows[k] * 4 + DRAINED, task.version))
    for k in range(count):
        task = tasks[flows[k]]
        for e in range(task.resources, task.resources_end):
            link = links[incidences[e].resource]
            link.peak = max(link.peak, link.load)
    for k in range(tally[MARKED]):
        links[marks[k]].marked = False
        links[marks[k]].full = False
    tally[CHANGED] = 0
    tally[MARKED] = 0
    tally[SOLVES] += 1
