"""Which tasks run on which resources, and new rates where that changes.

Updates are lazy: a task is touched when its own rate changes, and rates are computed anew only for the tasks that an
arrival or departure reaches over resources that bind.
"""

from rapid_llm.network.engine.compiled import compiled
from rapid_llm.network.engine.filling import share
from rapid_llm.network.engine.heap import push
from rapid_llm.network.engine.state import ACKS, CHANGED, DRAINED, MARKED, SLACK, SOLVES, State


@compiled
def _mark(s: State, number: int) -> None:
    """List a resource on which the tasks ask for more than it has: they need new rates."""
    link = s.links[number]
    if not link.marked and link.demand > link.capacity * s.options[SLACK]:
        link.marked = True
        s.marks[s.tally[MARKED]] = number
        s.tally[MARKED] += 1


@compiled
def attach(s: State, number: int, now: float) -> None:
    """A round begins to use its resources."""
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
def detach(s: State, number: int, now: float) -> None:
    """A round uses its resources no more."""
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
def resolve(s: State, now: float) -> None:
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
