"""Run tasks over a topology, or over any capacities."""

from dataclasses import replace

import numpy as np

from rapid_llm.errors import InfeasibleError, InputError
from rapid_llm.network.tasks import Floats, Ints, Result, Tasks, Transport, limited
from rapid_llm.network.topology import Topology

FLUID = Transport()
ATTEMPTS = 4
"""Runs in which some tasks are free; after those all share."""
MOSTLY = 0.5
"""Share of the tasks on tight resources from which on all run by events."""


def simulate(
    tasks: Tasks, topology: Topology, *, fold: bool = True, transport: Transport = FLUID, measured: bool = True
) -> Result:
    """Run tasks whose resources are the links of a topology, as healthy as they are; ``measured`` as of ``run``.

    InfeasibleError for a task that uses a link that is down; InputError where dependencies form a cycle.
    """
    capacity = topology.capacity
    used = tasks.resource[capacity[tasks.resource] <= 0] if (capacity <= 0).any() else tasks.resource[:0]
    if len(used):
        raise InfeasibleError(
            f"{topology.name}: traffic is routed over {topology.link_name(int(used[0]))}, which is down; "
            "route it again on the topology with its faults.",
            field="faults",
        )
    reverse = _reverse(topology) if transport.ack_share else None
    return run(tasks, capacity, fold=fold, transport=transport, reverse=reverse, measured=measured)


def _reverse(topology: Topology) -> Ints:
    """The link the other way of each link, or -1."""
    back = {pair: i for i, pair in enumerate(zip(topology.source.tolist(), topology.target.tolist(), strict=True))}
    pairs = zip(topology.target.tolist(), topology.source.tolist(), strict=True)
    return np.array([back.get(pair, -1) for pair in pairs], dtype=np.int64)


def run(
    tasks: Tasks,
    capacity: Floats,
    *,
    fold: bool = True,
    transport: Transport = FLUID,
    reverse: Ints | None = None,
    measured: bool = True,
) -> Result:
    """Run tasks on resources of ``capacity`` (units a second, above 0 where used), max-min fair.

    ``fold`` simulates equal tasks once (see ``folding``); without ``measured`` the result has no busy times and peaks,
    which may cost more than the run. InputError where dependencies form a cycle.
    """
    count = len(capacity)
    tasks, capacity = limited(tasks, capacity)
    back = np.full(len(capacity), -1)
    if reverse is not None:
        back[: len(reverse)] = reverse
    result = _folded(tasks, capacity, measured) if fold and transport == FLUID else None
    if result is None:
        result = _run(tasks, capacity, back, transport, measured)
    _check_finished(result.finish)
    if not measured:
        return replace(result, moved=result.moved[:count], busy=np.zeros(0), peak=np.zeros(0))
    if len(capacity) > count:
        result = replace(result, moved=result.moved[:count], busy=result.busy[:count], peak=result.peak[:count])
    return result


def _folded(tasks: Tasks, capacity: Floats, measured: bool) -> Result | None:
    """Simulate one task of each class; None where folding gains nothing."""
    from rapid_llm.network.engine.folding import fold

    small = fold(tasks, capacity)
    if small is None:
        return None
    found = _run(small.tasks, small.capacity, np.full(len(small.capacity), -1), FLUID, measured)
    mine, link = small.task_class, small.resource_class
    return Result(
        start=found.start[mine],
        finish=found.finish[mine],
        moved=found.moved[link],
        busy=found.busy[link],
        peak=found.peak[link],
        events=found.events,
        classes=found.classes,
    )


def _run(tasks: Tasks, capacity: Floats, reverse: Ints, transport: Transport, measured: bool) -> Result:
    """Tasks by events where resources may bind and by their dependencies alone elsewhere, until both agree."""
    from rapid_llm.network.engine.crowding import crowded, foresee, prepare
    from rapid_llm.network.engine.loop import run as loop
    from rapid_llm.network.engine.state import EVENTS, grown, state_of, with_events

    state = state_of(tasks, capacity, reverse, transport)
    fluid = transport == FLUID and len(tasks) > 0
    if fluid:
        foresee(state)
    events = noted = 0
    for attempt in range(ATTEMPTS + 1):
        sharing, noted = prepare(state, not fluid or attempt == ATTEMPTS, noted)
        if fluid and MOSTLY * len(tasks) < sharing < len(tasks):
            sharing, noted = prepare(state, True, noted)
        state = with_events(state, sharing, noted)
        while loop(state):
            state = grown(state)
        events += int(state.tally[EVENTS])
        if sharing == len(tasks) or np.isnan(state.tasks.finish).any() or not crowded(state, measured):
            break
    return Result(
        start=np.array(state.tasks.start),
        finish=np.array(state.tasks.finish),
        moved=_moved(tasks, len(capacity)),
        busy=np.array(state.links.busy),
        peak=np.array(state.links.peak),
        events=events,
        classes=len(tasks),
    )


def _check_finished(finish: Floats) -> None:
    stuck = np.flatnonzero(np.isnan(finish))
    if len(stuck):
        raise InputError(
            f"{len(stuck)} of {len(finish)} tasks wait for each other, such as task {stuck[0]}: "
            "dependencies and queues must not form a cycle.",
            field="dependencies",
        )


def _moved(tasks: Tasks, resources: int) -> Floats:
    """What each resource carries in all: exact, whatever the rates were."""
    per_incidence = np.repeat(tasks.total, np.diff(tasks.resource_start))
    if len(tasks.coefficient):
        per_incidence = per_incidence * tasks.coefficient
    moved: Floats = np.bincount(tasks.resource, weights=per_incidence, minlength=resources).astype(np.float64)
    return moved
