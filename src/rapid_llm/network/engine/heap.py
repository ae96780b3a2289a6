"""What is to happen, compiled: a binary heap of instants, each with a list of its events.

Events of one instant are many where a program is symmetric; they cost a look-up, not a place in the heap.
"""

from rapid_llm.network.engine.compiled import compiled
from rapid_llm.network.engine.state import FREE, INSTANTS, SAME, SLOTS, USED, State

GRAIN = 1e10
"""Slots a second: neighbouring instants rarely share one."""


@compiled
def push(s: State, time: float, code: int, version: int) -> None:
    """Add an event. There is room: see ``loop.run``."""
    events, tally = s.events, s.tally
    number = tally[FREE]
    event = events[number]
    tally[FREE] = event.following
    tally[USED] += 1
    event.time, event.code, event.version = time, code, version
    event.following, event.last = -1, number
    slot = int(time * GRAIN) & (SLOTS - 1)
    known = s.recent[slot]
    if known >= 0 and known != number:  # a slot may name a record that was given back
        first = events[known]
        if first.last >= 0 and abs(first.time - time) <= SAME:
            last = events[first.last]
            last.following = number
            first.last = number
            event.last = -1
            return
    s.recent[slot] = number
    _rise(s, number, time)


@compiled
def _rise(s: State, number: int, time: float) -> None:
    """Place a new instant in the heap."""
    events, heap, at = s.events, s.heap, s.tally[INSTANTS]
    s.tally[INSTANTS] += 1
    while at > 0:
        above = events[heap[(at - 1) >> 1]]
        if above.time <= time:
            break
        heap[at] = heap[(at - 1) >> 1]
        at = (at - 1) >> 1
    heap[at] = number


@compiled
def take(s: State) -> int:
    """Remove the earliest instant; its first event, from which ``following`` leads on."""
    events, heap = s.events, s.heap
    found = heap[0]
    first = events[found]
    first.last = -1  # no event joins it any more
    s.tally[INSTANTS] -= 1
    size = s.tally[INSTANTS]
    moved = heap[size]
    last = events[moved]
    at = 0
    while 2 * at + 1 < size:
        child = 2 * at + 1
        below = events[heap[child]]
        if child + 1 < size:
            other = events[heap[child + 1]]
            if other.time < below.time:
                child, below = child + 1, other
        if below.time >= last.time:
            break
        heap[at] = heap[child]
        at = child
    heap[at] = moved
    return int(found)


@compiled
def give_back(s: State, number: int) -> None:
    """Give an event's record back."""
    event = s.events[number]
    event.following, event.last = s.tally[FREE], -1
    s.tally[FREE] = number
    s.tally[USED] -= 1
