"""The closed form of a collective on an explicit topology: the load of its own steps on the busiest links, the hops
that depend on each other, and no simulation. It is that of flow simulation where the sends of a step share links alike.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from rapid_llm.network.programs import program, run_on
from rapid_llm.network.routing import Table
from rapid_llm.network.tasks import Floats, Ints, Tasks
from rapid_llm.network.templates import Bounds, Template
from rapid_llm.network.topology import Topology

CIRCLES: Final = ("ring",)
"""Patterns whose blocks circulate."""


def closed_form(
    template: Template,
    bounds: Bounds,
    size_bytes: float,
    topology: Topology,
    *,
    placement: Sequence[int] | Ints | None = None,
    policy: str | Table = "auto",
) -> float:
    """Seconds of a collective among ``bounds[-1]`` ranks; arguments as of ``programs.program``.

    Pipelined phases take the bytes of the busiest link, and the hops one after another. Else phase by phase: blocks on
    a ring make all hops, or wait for the slowest in every round; other sends take their hops and their busiest link.
    """
    template = run_on(template)

    def laid_out(part: Template) -> Tasks:
        return program(part, bounds, size_bytes, topology, placement=placement, policy=policy, slices=1)

    if template.pipelined:
        tasks = laid_out(template)
        return _depth(tasks) + float(_busy(tasks, topology.capacity).max(initial=0.0))
    parts = [replace(template, phases=(phase,)) for phase in template.phases]
    return sum(_phase(laid_out(part), part.phases[0].pattern in CIRCLES, topology.capacity) for part in parts)


def takes_turns(
    template: Template, bounds: Bounds, topology: Topology, *, placement: Sequence[int] | Ints | None = None
) -> bool:
    """Whether sends of one step meet on a link that are not alike: some need more time on another link, or have more
    hops in a step that goes on round by round. They get ahead of each other by turns then: mostly sooner than the
    closed form says, and later where they meet those of the next step.
    """
    template = run_on(template)
    steps = [template] if template.pipelined else [replace(template, phases=(phase,)) for phase in template.phases]
    for step in steps:
        tasks = program(step, bounds, 1.0, topology, placement=placement, slices=1)
        transfer = _slowest(tasks, _busy(tasks, topology.capacity, 1.0 / tasks.rounds))
        again = template.pipelined or step.phases[0].pattern in CIRCLES
        free = ~np.isfinite(tasks.limit) if len(tasks.limit) else np.ones(len(tasks), np.bool_)
        unlike = [_differs(tasks, transfer, topology.links, np.ones_like(free))]
        unlike += [_differs(tasks, tasks.latency, topology.links, free)] if again else []
        if any(unlike):
            return True
    return False


def _differs(tasks: Tasks, value: Floats, links: int, chosen: NDArray[np.bool_]) -> bool:
    """Whether a link carries ``chosen`` tasks of different values."""
    row = np.repeat(np.arange(len(tasks)), np.diff(tasks.resource_start))
    row, link = row[chosen[row]], tasks.resource[chosen[row]]
    least, most = np.full(links, np.inf), np.zeros(links)
    np.minimum.at(least, link, value[row])
    np.maximum.at(most, link, value[row])
    return bool((most > least * (1 + 1e-6)).any())


def _busy(tasks: Tasks, capacity: Floats, share: Floats | float = 1.0) -> Floats:
    """Seconds that each link needs for ``share`` of what all tasks move."""
    moved = np.repeat(tasks.total * share, np.diff(tasks.resource_start))
    moved = moved * tasks.coefficient if len(tasks.coefficient) else moved
    return np.bincount(tasks.resource, moved, len(capacity)) / np.maximum(capacity, 1e-300)


def _slowest(tasks: Tasks, busy: Floats) -> Floats:
    """Seconds of each task on the busiest of its links, and no faster than its pace."""
    found = np.zeros(len(tasks))
    row = np.repeat(np.arange(len(tasks)), np.diff(tasks.resource_start))
    np.maximum.at(found, row, busy[tasks.resource])
    return np.maximum(found, tasks.amount / tasks.limit) if len(tasks.limit) else found


def _phase(tasks: Tasks, circles: bool, capacity: Floats) -> float:
    if not len(tasks):
        return 0.0
    transfer = _slowest(tasks, _busy(tasks, capacity, 1.0 / tasks.rounds))
    rounds = int(tasks.rounds.max())
    queue = rounds * transfer + tasks.latency
    if not circles:
        return float((rounds * (transfer + tasks.latency)).max())
    before = np.arange(len(tasks))
    before[tasks.dependency_start[:-1] < tasks.dependency_start[1:]] = tasks.dependency
    return float(max(queue.max(), _along(before, transfer + tasks.latency, rounds).max()))


def _along(before: Ints, hop: Floats, rounds: int) -> Floats:
    """Sum over the last ``rounds`` hops that lead to each task, by doubling."""
    total, at = np.zeros(len(hop)), np.arange(len(hop))
    while rounds:
        if rounds & 1:
            total, at = total + hop[at], before[at]
        hop, before = hop + hop[before], before[before]
        rounds >>= 1
    return total


def _depth(tasks: Tasks) -> float:
    """Seconds of the longest chain of hops that wait for each other."""
    row = np.repeat(np.arange(len(tasks)), np.diff(tasks.dependency_start))
    arrived = tasks.latency.copy()
    for _ in range(len(tasks)):
        later = tasks.latency.copy()
        np.maximum.at(later, row, arrived[tasks.dependency] + tasks.latency[row])
        if (later == arrived).all():
            break
        arrived = later
    return float(arrived.max(initial=0.0))
