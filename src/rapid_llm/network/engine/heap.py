"""A binary heap of events in a record array, compiled: earliest first, ties by code (task, then what happens)."""

from rapid_llm.network.engine.compiled import compiled
from rapid_llm.network.engine.state import WAITING, State


@compiled
def push(s: State, time: float, code: int, version: int) -> None:
    """Add an event. There is room: see ``loop.run``."""
    heap, at = s.heap, s.tally[WAITING]
    s.tally[WAITING] += 1
    while at > 0:
        above = heap[(at - 1) >> 1]
        if above.time < time or (above.time == time and above.code <= code):
            break
        here = heap[at]
        here.time, here.code, here.version = above.time, above.code, above.version
        at = (at - 1) >> 1
    here = heap[at]
    here.time, here.code, here.version = time, code, version


@compiled
def pop(s: State) -> None:
    """Drop the earliest event."""
    heap = s.heap
    s.tally[WAITING] -= 1
    size = s.tally[WAITING]
    last = heap[size]
    time, code, version = last.time, last.code, last.version
    at = 0
    while 2 * at + 1 < size:
        child = 2 * at + 1
        below = heap[child]
        if child + 1 < size:
            other = heap[child + 1]
            if other.time < below.time or (other.time == below.time and other.code < below.code):
                child, below = child + 1, other
        if below.time > time or (below.time == time and below.code >= code):
            break
        here = heap[at]
        here.time, here.code, here.version = below.time, below.code, below.version
        at = child
    here = heap[at]
    here.time, here.code, here.version = time, code, version


@compiled
def compact(s: State) -> None:
    """Forget drains that a change of rate has overtaken."""
    heap, size = s.heap, s.tally[WAITING]
    s.tally[WAITING] = 0
    for k in range(size):
        event = heap[k]
        task = s.tasks[event.code >> 2]
        if event.version in (0, task.version):
            push(s, event.time, event.code, event.version)
