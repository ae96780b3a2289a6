"""How a round of a task that shares resources begins: posted when its dependencies are met, alone in its queue."""

from rapid_llm.network.engine.compiled import compiled
from rapid_llm.network.engine.heap import push
from rapid_llm.network.engine.rounds import waits
from rapid_llm.network.engine.sharing import attach
from rapid_llm.network.engine.state import DISCIPLINE, DRAINED, POSTED, SERVED, State


@compiled
def post(s: State, number: int, now: float) -> None:
    """Nothing is missing for the next round of a task."""
    _, time = waits(s.tasks, s.before, s.arrivals, number)
    if time > now:
        push(s, time, number * 4 + POSTED, 0)
    else:
        task = s.tasks[number]
        task.posted = True
        try_begin(s, number, now)


@compiled
def try_begin(s: State, number: int, now: float) -> None:
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
    if task.noted >= 0:
        s.begins[task.noted + task.begun] = now
    task.begun += 1
    task.running = True
    task.posted = False
    task.left = task.amount
    task.began = now
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
            attach(s, number, now)
    if task.begun < task.rounds:
        task.missing, time = waits(s.tasks, s.before, s.arrivals, number)
        if task.missing == 0 and time > now:
            push(s, time, number * 4 + POSTED, 0)
        elif task.missing == 0:
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
def release(s: State, queue_number: int, now: float) -> None:
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
