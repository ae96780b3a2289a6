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

    Pipelined phases take the bytes of the busiest link, or of the slowest channel, and the hops one after another. Else a rank goes on to the next
    phase once it has received all of one: blocks on a ring hop, or wait for the one before them; other sends take their
    hops and their busiest link.
    """
    template = run_on(template)

    def laid_out(part: Template) -> Tasks:
        return program(part, bounds, size_bytes, topology, placement=placement, policy=policy, slices=1)

    tasks = laid_out(template)
    if template.pipelined:
        return float(_depth(tasks).max(initial=0.0) + _slowest(tasks, _busy(tasks, topology.capacity)).max(initial=0.0))
    finish, first = np.zeros(len(tasks)), 0
    for part in _steps(template):
        one = laid_out(part)
        rows = slice(first, first + len(one))
        start = _handed(tasks, finish, first)[rows]
        finish[rows] = _phase(one, start, part.phases[0].pattern in CIRCLES, topology.capacity)
        first += len(one)
    return float(finish.max(initial=0.0))


def takes_turns(
    template: Template, bounds: Bounds, topology: Topology, *, placement: Sequence[int] | Ints | None = None
) -> bool:
    """``by_turns`` of a template's own steps."""
    template = run_on(template)
    steps = [program(step, bounds, 1.0, topology, placement=placement, slices=1) for step in _steps(template)]
    circles = [phase.pattern in CIRCLES for phase in template.phases]
    return by_turns(steps, circles, template.pipelined, topology.capacity)


def by_turns(steps: Sequence[Tasks], circles: Sequence[bool], pipelined: bool, capacity: Floats) -> bool:
    """Whether sends meet on a link that are not alike, by turns: mostly sooner than the closed form says, and later
    where they meet those of the next step.

    In one step some need more time on another link, or have more hops in a step that goes on round by round; on a ring
    of unequal hops any two that share a link; of two steps those on one link, where not all sends of the first end
    together.
    """
    links = len(capacity)
    used, apart = np.zeros(links, np.int64), False
    for tasks, ring in zip(steps, circles, strict=False):
        on = np.bincount(tasks.resource, minlength=links)
        if apart and ((on > 0) & (used > 0)).any():
            return True
        transfer = _slowest(tasks, _busy(tasks, capacity, 1.0 / tasks.rounds))
        free = ~np.isfinite(tasks.limit) if len(tasks.limit) else np.ones(len(tasks), np.bool_)
        alike = np.ptp(transfer) <= 1e-6 * transfer.max() and np.ptp(tasks.latency) <= 1e-6 * tasks.latency.max()
        late = _depth(tasks) if pipelined else tasks.latency
        unlike = _differs(tasks, transfer, links, np.ones_like(free))
        circle = ring and not pipelined
        unlike |= (pipelined or circle) and _differs(tasks, late, links, free)
        unlike |= circle and not alike and _differs(tasks, np.arange(len(tasks), dtype=np.float64), links, free)
        if unlike:
            return True
        used, apart = used + on, apart or not alike
    return False


def _steps(template: Template) -> list[Template]:
    """What follows on each other, a template each."""
    if template.pipelined:
        return [template]
    return [replace(template, phases=(phase,)) for phase in template.phases]


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


def _handed(tasks: Tasks, finish: Floats, first: int) -> Floats:
    """When tasks from ``first`` on have all that those before it, of which the ends are known, hand to them."""
    row = np.repeat(np.arange(len(tasks)), np.diff(tasks.dependency_start))
    known = tasks.dependency < first
    start = np.zeros(len(tasks))
    np.maximum.at(start, row[known], finish[tasks.dependency[known]])
    return start


def _phase(tasks: Tasks, start: Floats, circles: bool, capacity: Floats) -> Floats:
    """When each task of a phase has arrived."""
    if not len(tasks):
        return start
    transfer = _slowest(tasks, _busy(tasks, capacity, 1.0 / tasks.rounds))
    if not circles or np.ptp(transfer) == 0.0 == np.ptp(tasks.latency) == np.ptp(start):
        return np.asarray(start + tasks.rounds * (transfer + tasks.latency))
    before = np.arange(len(tasks))
    before[tasks.dependency_start[:-1] < tasks.dependency_start[1:]] = tasks.dependency
    return _circulated(before, transfer, tasks.latency, start, int(tasks.rounds.max()))


def _circulated(before: Ints, transfer: Floats, latency: Floats, start: Floats, rounds: int) -> Floats:
    """When blocks have made ``rounds`` hops on rings of unequal links: a link carries one at a time, and a block leaves
    once it has arrived (the recurrence of a max-plus system; Baccelli et al. 1992, section 2.3).
    """
    free = arrived = start
    for _ in range(rounds):
        free = np.maximum(arrived, free) + transfer
        arrived = (free + latency)[before]
    return free + latency


def _depth(tasks: Tasks) -> Floats:
    """Seconds of the longest chain of hops that wait for each other up to each."""
    row = np.repeat(np.arange(len(tasks)), np.diff(tasks.dependency_start))
    arrived = tasks.latency.copy()
    for _ in range(len(tasks)):
        later = tasks.latency.copy()
        np.maximum.at(later, row, arrived[tasks.dependency] + tasks.latency[row])
        if (later == arrived).all():
            break
        arrived = later
    return arrived
