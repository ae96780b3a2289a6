"""The event loop, compiled: begins and drains of rounds; rates change between events only."""

from rapid_llm.network.engine.begins import post, release, try_begin
from rapid_llm.network.engine.compiled import compiled
from rapid_llm.network.engine.heap import give_back, take
from rapid_llm.network.engine.rounds import arrive, run_ahead, waits
from rapid_llm.network.engine.sharing import attach, detach, resolve
from rapid_llm.network.engine.state import (
    CHANGED,
    EVENTS,
    INSTANTS,
    MARKED,
    PACKET,
    POSTED,
    READY,
    SAME,
    SERVED,
    USED,
    State,
)


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
            resolve(s, now)
    return False


@compiled
def _happen(s: State, number: int, now: float) -> int:
    """One event; the next one of the same instant, or -1."""
    event = s.events[number]
    code, version, following = event.code, event.version, event.following
    give_back(s, number)
    s.tally[EVENTS] += 1
    task, what = s.tasks[code >> 2], code & 3
    if what == POSTED:
        task.posted = True
        try_begin(s, code >> 2, now)
    elif version == task.version and what == SERVED:
        task.since = now
        attach(s, code >> 2, now)
    elif version == task.version:
        _drain(s, code >> 2, now)
    return int(following)


@compiled
def _start(s: State) -> None:
    """Post every task that waits for nothing."""
    for number in range(len(s.tasks)):
        task = s.tasks[number]
        task.missing, _ = waits(s.tasks, s.before, s.arrivals, number)
    for back in range(len(s.tasks)):  # what is listed last goes on first
        number = len(s.tasks) - 1 - back
        if s.tasks[number].missing == 0 and s.tasks[number].begun == 0:
            s.ready[s.tally[READY]] = number
            s.tally[READY] += 1
    _settle(s, 0.0)
    resolve(s, 0.0)


@compiled
def _settle(s: State, now: float) -> None:
    """Let everything go on that is ready: free tasks as far as what is known lets them."""
    while s.tally[READY] > 0:
        number = run_ahead(s.tasks, s.before, s.after, s.arrivals, s.ready, s.tally)
        if number >= 0:
            post(s, number, now)


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
        detach(s, number, now)
    task.running = False
    task.rate = 0.0
    task.version += 1
    task.until = now
    arrive(s.tasks, s.after, s.arrivals, s.ready, s.tally, number, now + task.latency - lead)
    _settle(s, now)
    if task.queue >= 0:
        release(s, task.queue, now)
    if task.arrived < task.rounds:
        try_begin(s, number, now)
