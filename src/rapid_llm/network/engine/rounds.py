"""Rounds of free tasks: those whose resources never bind take the time they take alone, and need no events.

What a round waits for is known as soon as its dependencies have drained, also where they arrive later: free tasks run
ahead of the clock of the events, and hand times to those that share. Arguments are columns of ``State``, one by one:
handing over all of them costs more than a round.
"""

from rapid_llm.network.engine.compiled import compiled
from rapid_llm.network.engine.state import EVENTS, READY, Records
from rapid_llm.network.tasks import Floats, Ints


@compiled
def waits(tasks: Records, before: Records, arrivals: Floats, number: int) -> tuple[int, float]:
    """Dependencies that the next round of a task still waits for, and when it is posted where there are none.

    All that it waits for is then known to arrive, some of it in the future.
    """
    task = tasks[number]
    count, time = 0, task.began if task.begun > 0 else 0.0
    for e in range(task.dependencies if task.begun == 0 else task.dependencies_live, task.dependencies_end):
        edge = before[e]
        other = tasks[edge.task]
        needed = min(other.rounds, task.begun + 1 - edge.lag)
        if other.arrived < needed:
            count += 1
        elif needed > 0:
            time = max(time, arrivals[other.first + needed - 1])
    return count, time + task.delay


@compiled
def arrive(
    tasks: Records, after: Records, arrivals: Floats, ready: Ints, tally: Ints, number: int, time: float
) -> None:
    """One more round is known to arrive at ``time``; tasks that waited for exactly this one are ready."""
    task = tasks[number]
    arrivals[task.first + task.arrived] = time
    task.arrived += 1
    if task.arrived == task.rounds:
        task.finish = time
    first = task.successors if task.arrived == task.rounds else task.successors_live
    for back in range(task.successors_end - first):  # what is listed last goes on first
        edge = after[task.successors_end - 1 - back]
        other = tasks[edge.task]
        if other.begun < other.rounds and task.arrived == min(task.rounds, other.begun + 1 - edge.lag):
            other.missing -= 1
            if other.missing == 0:
                ready[tally[READY]] = edge.task
                tally[READY] += 1


@compiled
def run_ahead(tasks: Records, before: Records, after: Records, arrivals: Floats, ready: Ints, tally: Ints) -> int:
    """Run free tasks until one that shares is ready, which is returned, or none is (-1).

    The latest goes on first, so that a ring turns in the cache.
    """
    while tally[READY] > 0:
        tally[READY] -= 1
        number = ready[tally[READY]]
        task = tasks[number]
        if not task.free:
            return int(number)
        count, time = waits(tasks, before, arrivals, number)
        while count == 0:
            begin = max(time, task.until)
            if task.begun == 0:
                task.start = begin
            tally[EVENTS] += 1
            task.began = begin
            task.until = begin + task.seconds
            task.begun += 1
            count = 1
            if task.begun < task.rounds:
                count, time = waits(tasks, before, arrivals, number)
                task.missing = count
            arrive(tasks, after, arrivals, ready, tally, number, task.until + task.latency)
    return -1
