"""The event loop, compiled: begins, drains and arrivals of rounds; rates change between events only.

Updates are lazy: a task is touched when its own rate changes, and rates are computed anew only for the tasks that an
arrival or departure reaches over resources that bind.
"""

from rapid_llm.network.engine.compiled import compiled
from rapid_llm.network.engine.filling import share
from rapid_llm.network.engine.heap import push, release, take
from rapid_llm.network.engine.state import (
    ACKS,
    CHANGED,
    DISCIPLINE,
    EVENTS,
    INSTANTS,
    MARKED,
    PACKET,
    SAME,
    SLACK,
    SOLVES,
    USED,
    Records,
    State,
)

DRAINED = 0
ARRIVED = 1
POSTED = 2
SERVED = 3


@compiled
def run(s: State) -> bool:
    """Run until nothing is left to happen (False), or until events need more room (True): double it, call again."""
    tally = s.tally
    if tally[EVENTS] == 0:
        _start(s)
    while tally[INSTANTS] > 0:
        if 2 * tally[USED] > len(s.events):
            return True
        top = s.events[s.heap[0]]
        now = top.time
        while tally[INSTANTS] > 0:
            top = s.events[s.heap[0]]
            if top.time > now + SAME + now * SAME:
                break
            number = take(s)
            while number >= 0:
                number = _happen(s, number, now)
        if tally[CHANGED] > 0 or tally[MARKED] > 0:
            _resolve(s, now)
    return False


@compiled
def _happen(s: State, number: int, now: float) -> int:
    """One event; the next one of the same instant, or -1."""
    event = s.events[number]
    code, version, following = event.code, event.version, event.following
    release(s, number)
    s.tally[EVENTS] += 1
    task, what = s.tasks[code >> 2], code & 3
    if what == POSTED:
        task.posted = True
        _try_begin(s, code >> 2, now)
    elif what == ARRIVED:
        _arrive(s, code >> 2, now)
    elif version == task.version and what == SERVED:
        task.since = now
        _attach(s, code >> 2, now)
    elif version == task.version:
        _drain(s, code >> 2, now)
    return int(following)


@compiled
def _start(s: State) -> None:
    """Post every task that waits for nothing."""
    for number in range(len(s.tasks)):
        task = s.tasks[number]
        task.missing = _missing(s.tasks, s.before, number)
    for number in range(len(s.tasks)):
        task = s.tasks[number]
        if task.missing == 0:
            _post(s, number, 0.0)
    _resolve(s, 0.0)


@compiled
def _missing(tasks: Records, before: Records, number: int) -> int:
    """Dependencies that the next round of a task still waits for."""
    count = 0
    task = tasks[number]
    for e in range(task.dependencies, task.dependencies_end):
        edge = before[e]
        other = tasks[edge.task]
        if other.arrived < min(other.rounds, task.begun + 1 - edge.lag):
            count += 1
    return count


@compiled
def _post(s: State, number: int, now: float) -> None:
    """All dependencies of the next round are met."""
    task = s.tasks[number]
    if task.delay > 0.0:
        push(s, now + task.delay, number * 4 + POSTED, 0)
    else:
        task.posted = True
        _try_begin(s, number, now)


@compiled
def _try_begin(s: State, number: int, now: float) -> None:
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
                last = s.tasks[queue.last]
                last.queue_next = number
            queue.last = number
            return
        queue.busy = True
    _begin(s, number, now)


@compiled
def _begin(s: State, number: int, now: float) -> None:
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
        push(s, now, number * 4 + DRAINED, task.version)
    else:
        queue = _queue_ahead(s, number, now) if s.options[DISCIPLINE] == 1.0 else 0.0
        if queue > 0.0:
            push(s, now + queue, number * 4 + SERVED, task.version)
        else:
            _attach(s, number, now)
    if task.begun < task.rounds:
        task.missing = _missing(s.tasks, s.before, number)
        if task.missing == 0:
            if task.delay > 0.0:
                push(s, now + task.delay, number * 4 + POSTED, 0)
            else:
                task.posted = True


@compiled
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


@compiled
def _release(s: State, queue_number: int, now: float) -> None:
    """Let the next of a queue begin."""
    queue = s.queues[queue_number]
    number = queue.first
    if number < 0:
        queue.busy = False
        return
    task = s.tasks[number]
    queue.first = task.queue_next
    task.waiting = False
    _begin(s, number, now)


@compiled
def _mark(s: State, number: int) -> None:
    """List a resource on which the tasks ask for more than it has: they need new rates."""
    link = s.links[number]
    if not link.marked and link.demand > link.capacity * s.options[SLACK]:
        link.marked = True
        s.marks[s.tally[MARKED]] = number
        s.tally[MARKED] += 1


@compiled
def _attach(s: State, number: int, now: float) -> None:
    tasks, links, incidences, slack = s.tasks, s.links, s.incidences, s.options[SLACK]
    task = tasks[number]
    for e in range(task.resources, task.resources_end):
        on = incidences[e]
        link = links[on.resource]
        on.following = link.head
        on.previous = -1
        if link.head >= 0:
            head = incidences[link.head]
            head.previous = e
        link.head = e
        if link.count == 0:
            link.since = now
        link.count += 1
        link.demand += on.coefficient * task.solo
        if link.demand > link.capacity * slack:
            _mark(s, on.resource)
    if not task.seen:
        task.seen = True
        s.flows[s.tally[CHANGED]] = number
        s.tally[CHANGED] += 1


@compiled
def _detach(s: State, number: int, now: float) -> None:
    links, incidences, slack = s.links, s.incidences, s.options[SLACK]
    task = s.tasks[number]
    for e in range(task.resources, task.resources_end):
        on = incidences[e]
        link = links[on.resource]
        if link.demand > link.capacity * slack:
            _mark(s, on.resource)
        if on.previous >= 0:
            before = incidences[on.previous]
            before.following = on.following
        else:
            link.head = on.following
        if on.following >= 0:
            after = incidences[on.following]
            after.previous = on.previous
        link.count -= 1
        if link.count == 0:
            link.busy += now - link.since
            link.demand = 0.0
            link.load = 0.0
        else:
            link.demand -= on.coefficient * task.solo
            link.load -= on.coefficient * task.rate


@compiled
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


@compiled
def _drain(s: State, number: int, now: float) -> None:
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
        push(s, now + task.latency - lead, number * 4 + ARRIVED, 0)
    else:
        _arrive(s, number, now)
    if task.queue >= 0:
        _release(s, task.queue, now)
    if task.drained < task.rounds:
        _try_begin(s, number, now)


@compiled
def _arrive(s: State, number: int, now: float) -> None:
    """One more round has arrived; tasks that waited for exactly this one may be posted."""
    tasks, after = s.tasks, s.after
    task = tasks[number]
    task.arrived += 1
    if task.arrived == task.rounds:
        task.finish = now
    for e in range(task.successors, task.successors_end):
        edge = after[e]
        other = tasks[edge.task]
        if other.begun < other.rounds and task.arrived == min(task.rounds, other.begun + 1 - edge.lag):
            other.missing -= 1
            if other.missing == 0:
                _post(s, edge.task, now)


@compiled
def _reach(s: State) -> int:
    """List everything that shares binding resources with what changed; how many tasks of it run."""
    tasks, links, incidences, flows, marks, tally = s.tasks, s.links, s.incidences, s.flows, s.marks, s.tally
    next_flow, next_link = 0, 0
    while next_flow < tally[CHANGED] or next_link < tally[MARKED]:
        if next_link < tally[MARKED]:
            link = links[marks[next_link]]
            e = link.head
            next_link += 1
            while e >= 0:
                on = incidences[e]
                task = tasks[on.owner]
                if not task.seen:
                    task.seen = True
                    flows[tally[CHANGED]] = on.owner
                    tally[CHANGED] += 1
                e = on.following
        else:
            task = tasks[flows[next_flow]]
            next_flow += 1
            if task.running:
                for e in range(task.resources, task.resources_end):
                    on = incidences[e]
                    _mark(s, on.resource)
                    if s.options[ACKS] > 0.0:
                        link = links[on.resource]
                        if link.reverse >= 0:
                            _mark(s, link.reverse)
    kept = 0
    for k in range(tally[CHANGED]):
        number = flows[k]
        task = tasks[number]
        task.seen = False
        if task.running:
            flows[kept] = number
            kept += 1
    return kept


@compiled
def _resolve(s: State, now: float) -> None:
    """New rates where something changed; a new drain event for each task whose rate did."""
    tasks, links, incidences, flows, marks, tally = s.tasks, s.links, s.incidences, s.flows, s.marks, s.tally
    alone = tally[MARKED] == 0
    count = tally[CHANGED] if alone else _reach(s)
    if not alone:
        share(s, count)
    for k in range(count):
        task = tasks[flows[k]]
        if alone:
            task.seen = False
            task.fresh = task.solo
        change = task.fresh - task.rate
        if abs(change) > 1e-12 * task.fresh:
            task.left = max(0.0, task.left - task.rate * (now - task.since))
            task.since = now
            task.rate = task.fresh
            task.version += 1
            for e in range(task.resources, task.resources_end):
                on = incidences[e]
                link = links[on.resource]
                link.load += on.coefficient * change
            push(s, now + task.left / task.rate, flows[k] * 4 + DRAINED, task.version)
    for k in range(count):
        task = tasks[flows[k]]
        for e in range(task.resources, task.resources_end):
            on = incidences[e]
            link = links[on.resource]
            link.peak = max(link.peak, link.load)
    for k in range(tally[MARKED]):
        link = links[marks[k]]
        link.marked = False
        link.full = False
    tally[CHANGED] = 0
    tally[MARKED] = 0
    tally[SOLVES] += 1
