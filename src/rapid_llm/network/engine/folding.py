"""Equal situations are simulated once: colour refinement of the graph of tasks, resources and dependencies.

Two tasks have one colour when they are alike (amount, rounds, delay, latency), use resources of the same colours as
often, and depend on tasks of the same colours; two resources when their capacity is one and they carry the same
colours as often. Such a partition is equitable: all tasks of a colour run at one rate from start to end (max-min rates
are unique), so one of them stands for all, with the number of its like on each resource as coefficient.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rapid_llm.network.jit import njit
from rapid_llm.network.tasks import OWN_QUEUE, Floats, Ints, Tasks

Int32s = NDArray[np.int32]
Unsigned = NDArray[np.uint64]

PATIENCE = 4
"""Sweeps of refinement that always pay; further ones only while they cost less than the rounds to simulate."""


class Folded(NamedTuple):
    """The quotient: its tasks and capacities, and the class of each task and resource."""

    tasks: Tasks
    capacity: Floats
    task_class: Ints
    resource_class: Ints


def fold(tasks: Tasks, capacity: Floats) -> Folded | None:
    """The quotient of a program, or None where there is nothing to gain or refinement takes too long."""
    if len(tasks) < 2 or (tasks.queue != OWN_QUEUE).any():
        return None
    task_colour, link_colour = _alike(tasks), _hashed([np.asarray(capacity, np.float64)])
    work = len(tasks.resource) + len(tasks.dependency) + len(tasks)
    classes = refine(
        tasks.resource_start, tasks.resource, tasks.coefficient, tasks.dependency_start, tasks.dependency, tasks.lag,
        task_colour, link_colour, PATIENCE + int(tasks.rounds.sum() / work),
    )  # fmt: skip
    if classes < 0 or classes > 0.9 * len(tasks):
        return None
    return _quotient(tasks, capacity, task_colour, link_colour)


def _alike(tasks: Tasks) -> Ints:
    """First colours of tasks: what each is by itself."""
    return _hashed([tasks.amount, tasks.delay, tasks.latency, tasks.rounds.astype(np.float64)])


def _hashed(columns: list[Floats]) -> Ints:
    """One whole number for each row of some columns."""
    total = np.zeros(len(columns[0]), np.uint64)
    for column in columns:
        total = scramble(total ^ np.ascontiguousarray(column, np.float64).view(np.uint64))
    return total.view(np.int64)


def scramble(z: Unsigned) -> Unsigned:
    """The finaliser of SplitMix64 on every entry (Steele et al. 2014)."""
    z = z + np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(z ^ (z >> np.uint64(31)))


@njit(cache=True)
def _mix(a: int, b: int) -> int:
    z = np.uint64(a) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(b)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.int64(z ^ (z >> np.uint64(31)))  # type: ignore[return-value]


@njit(cache=True)
def refine(
    resource_start: Ints, resource: Int32s, coefficient: Floats, dependency_start: Ints, dependency: Int32s,
    lag: Int32s, task: Ints, link: Ints, rounds: int,
) -> int:  # fmt: skip
    """Refine both colourings in place until no class splits; the number of task classes, or -1 after ``rounds``."""
    weighted = len(coefficient) > 0
    before_tasks, before_links = _distinct(task), _distinct(link)
    for _ in range(rounds):
        sums = np.zeros(len(link), np.int64)
        fresh = np.empty(len(task), np.int64)
        for i in range(len(task)):
            mine = _mix(task[i], 1)
            total, after = 0, 0
            for e in range(resource_start[i], resource_start[i + 1]):
                if weighted:
                    part = int(coefficient[e] * 1048576.0)
                    sums[resource[e]] += mine * part
                    total += link[resource[e]] * part
                else:
                    sums[resource[e]] += mine
                    total += link[resource[e]]
            for e in range(dependency_start[i], dependency_start[i + 1]):
                after += _mix(task[dependency[e]], lag[e])
            fresh[i] = _mix(_mix(task[i], total), after)
        for k in range(len(link)):
            link[k] = _mix(link[k], sums[k])
        task[:] = fresh
        now_tasks, now_links = _distinct(task), _distinct(link)
        if now_tasks == before_tasks and now_links == before_links:
            return now_tasks
        before_tasks, before_links = now_tasks, now_links
    return -1


@njit(cache=True)
def _distinct(values: Ints) -> int:
    """How many different values there are (open addressing)."""
    size = 16
    while size < 2 * len(values):
        size *= 2
    slots = np.zeros(size, np.int64)
    taken = np.zeros(size, np.bool_)
    count = 0
    for value in values:
        place = (value ^ (value >> 29)) & (size - 1)
        while taken[place] and slots[place] != value:
            place = (place + 1) & (size - 1)
        if not taken[place]:
            taken[place], slots[place] = True, value
            count += 1
    return count


@njit(cache=True)
def incidences_on(start: Ints, resource: Int32s, chosen: NDArray[np.bool_]) -> tuple[Ints, Ints]:
    """Incidences on chosen resources, and their tasks."""
    count = 0
    for one in resource:
        count += chosen[one]
    places, owners, at = np.empty(count, np.int64), np.empty(count, np.int64), 0
    for task in range(len(start) - 1):
        for e in range(start[task], start[task + 1]):
            if chosen[resource[e]]:
                places[at], owners[at] = e, task
                at += 1
    return places, owners


def _quotient(tasks: Tasks, capacity: Floats, task_colour: Ints, link_colour: Ints) -> Folded:
    _, first, task_class = np.unique(task_colour, return_index=True, return_inverse=True)
    _, stands, link_class = np.unique(link_colour, return_index=True, return_inverse=True)
    links = len(stands)
    chosen = np.zeros(len(capacity), np.bool_)
    chosen[stands] = True
    on, owner = incidences_on(tasks.resource_start, tasks.resource, chosen)
    key = task_class[owner] * links + link_class[tasks.resource[on]]
    weight = tasks.coefficient[on] if len(tasks.coefficient) else np.ones(len(on))
    pairs, place = np.unique(key, return_inverse=True)
    start = np.searchsorted(pairs // links, np.arange(len(first) + 1)).astype(np.int64)
    depends, other, lag = _dependencies(tasks, first, task_class)
    return Folded(
        Tasks(
            kind=tasks.kind[first],
            queue=tasks.queue[first],
            amount=tasks.amount[first],
            rounds=tasks.rounds[first],
            delay=tasks.delay[first],
            latency=tasks.latency[first],
            resource_start=start,
            resource=(pairs % links).astype(np.int32),
            coefficient=np.bincount(place, weights=weight).astype(np.float64),
            dependency_start=depends,
            dependency=other,
            lag=lag,
        ),
        np.asarray(capacity, np.float64)[stands],
        task_class,
        link_class,
    )


def _dependencies(tasks: Tasks, first: Ints, task_class: Ints) -> tuple[Ints, Int32s, Int32s]:
    """Dependencies of the tasks that stand for their class, on classes, each once."""
    count = tasks.dependency_start[first + 1] - tasks.dependency_start[first]
    owner = np.repeat(np.arange(len(first)), count)
    place = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)
    place = place + np.repeat(tasks.dependency_start[first], count)
    rows = np.stack([owner, task_class[tasks.dependency[place]], tasks.lag[place]], 1)
    rows = np.unique(rows, axis=0) if len(rows) else rows
    start = np.searchsorted(rows[:, 0], np.arange(len(first) + 1)).astype(np.int64)
    return start, rows[:, 1].astype(np.int32), rows[:, 2].astype(np.int32)
