"""A collective as a program of the engine: the phases of a template placed on a topology, routed, as tasks.

A task is one rank's send to one peer in all rounds of a phase: rounds of a ring are rounds of n tasks, slices of a
pipelined tree rounds of its edges, so a program has as many tasks as distinct sends, not as messages.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from rapid_llm.errors import InputError
from rapid_llm.network.reduction import with_switches
from rapid_llm.network.routing import Routes, Table, gathered, route
from rapid_llm.network.sends import Sends, chains, copies, longer, paces, relay, rings, switched, through, trees
from rapid_llm.network.tasks import ALL, Floats, Ints, Result, Tasks, tasks
from rapid_llm.network.templates import SLICES, Bounds, Phase, Template
from rapid_llm.network.topology import Topology

FEMTO: Final = 15
"""Decimals of a latency in seconds."""
SHARES: Final = 9
"""Decimals of what a send moves of the largest, so that messages of all sizes take the same routes."""


def program(
    template: Template,
    bounds: Bounds,
    size_bytes: float,
    topology: Topology,
    *,
    placement: Sequence[int] | Ints | None = None,
    policy: str | Table = "auto",
    seed: int = 0,
    slices: int = SLICES,
    channels: int | None = None,
    most_rounds: int | None = None,
    lanes: tuple[int, ...] | None = None,
    groups: int = 1,
    uneven: tuple[int, int] | None = None,
) -> Tasks:
    """The tasks of one collective of ``size_bytes`` (S of the template) among ``bounds[-1]`` ranks.

    ``placement[r]`` is the node of rank r (default: the accelerators in order); of several ``groups`` that run the
    collective at once, those of the first group come first. All are routed together, so that they spread over links.
    Rings use ``channels`` orders: inside
    a unit each starts one rank further on, so that all ports carry one; every other one runs backwards on a grid that
    closes. A ring of more than ``most_rounds`` rounds runs that many, each longer. ``lanes``: places in a unit at which
    rings and trees leave it (default: all of them); the others' share goes over these. ``uneven``: ranks of a node, and
    channels of rings through nodes of which the last has fewer. InputError for a rank that is
    placed twice or not on an accelerator.
    """
    template, ranks = run_on(template), groups * bounds[-1]
    nodes = placed(topology, ranks, placement)
    both = _is_ring(topology, bounds[-1])
    count = slices if template.pipelined else 1

    def laid(phase: Phase) -> Sends:
        if uneven and phase.pattern == "ring" and phase.levels == (0, len(bounds)):
            some = through(uneven, bounds[-1], phase.steps, phase.load * size_bytes)
            return _in_fewer(some, phase.steps, most_rounds, bounds)
        return _phase(
            phase, bounds, size_bytes, slices=count, channels=channels, both=both, most=most_rounds, lanes=lanes
        )

    parts = [laid(phase) for phase in template.phases]
    sends = copies(_joined(parts, 0 if template.pipelined else ALL, template.lanes), groups, bounds[-1])
    beside, stage = _beside(template, parts, groups)
    ends = (nodes[sends.source], np.where(sends.target < 0, sends.target, nodes[sends.target]), stage)
    return replace(_tasks(topology, sends, ends, policy=policy, seed=seed, beside=(beside, stage)), stage=stage)


def _is_ring(topology: Topology, ranks: int) -> bool:
    """Whether the links form one ring through as many accelerators as there are ranks."""
    grid = topology.grid
    return grid is not None and grid.wraps == (True,) and ranks == len(topology.accelerators)


def _beside(template: Template, parts: Sequence[Sends], groups: int) -> tuple[Ints, Ints]:
    """Of every send of all groups: how many channels move beside each other, and the stage in which it moves."""
    tasks_of = [len(part) for part in parts]
    channels = np.array([part.channels for part in parts], np.int64)
    stage = np.array([0 if template.pipelined else k // template.lanes for k in range(len(parts))])
    return np.tile(np.repeat(channels, tasks_of), groups), np.tile(np.repeat(stage, tasks_of), groups)


def run_on(template: Template) -> Template:
    """A template in which repeated rings continue without a pause, as the two laps of an all-reduce do: a link starts
    the next lap when it has ended the last.
    """
    if template.lanes > 1 or template.pipelined:
        return template
    phases: list[Phase] = []
    for phase in template.phases:
        again = phases and phase.pattern == "ring" and replace(phases[-1], steps=phase.steps, load=phase.load) == phase
        last = phases.pop() if again else replace(phase, steps=0, load=0.0)
        phases.append(replace(phase, steps=phase.steps + last.steps, load=phase.load + last.load))
    return replace(template, phases=tuple(phases))


def _in_fewer(sends: Sends, steps: int, most: int | None, bounds: Bounds) -> Sends:
    """Rings in at most a number of rounds, of whole units, so that a block passes slow and fast links in proportion."""
    if most is None or steps <= most:
        return sends
    unit = max((bound for bound in bounds if bound <= most), default=1)
    return longer(sends, steps, most // unit * unit)


def run_in_slices(template: Template, run: Callable[[int], Result], slices: int = SLICES) -> Result:
    """The result of ``run``, which takes a number of slices. For a pipelined template without the ramp of the slices:
    the ramp falls as their number grows, so that a run with half as many gives it (Richardson's extrapolation).
    """
    fine = run(slices)
    if not template.pipelined:
        return fine
    coarse = run(slices // 2)
    return replace(fine, finish=2 * fine.finish - coarse.finish)


def placed(topology: Topology, ranks: int, placement: Sequence[int] | Ints | None = None) -> Ints:
    """The node of every rank; InputError where there are too few, one is taken twice or is no accelerator."""
    nodes = topology.accelerators if placement is None else np.asarray(placement, np.int64)
    if len(nodes) < ranks:
        raise InputError(
            f"{topology.name} has places for {len(nodes)} ranks, but {ranks} take part.", field="placement"
        )
    nodes = nodes[:ranks]
    if len(nodes) and (nodes.min() < 0 or nodes.max() >= topology.nodes or (topology.node_kind[nodes] != 0).any()):
        raise InputError(f"placement names a node of {topology.name} that is not an accelerator.", field="placement")
    names, count = np.unique(nodes, return_counts=True)
    if (count > 1).any():
        node = int(names[count > 1][0])
        ranks_there = np.flatnonzero(nodes == node)
        raise InputError(
            f"placement puts ranks {ranks_there[0]} and {ranks_there[1]} both on {topology.names[node]}; "
            "an accelerator holds one rank.",
            field="placement",
        )
    return nodes


def _phase(
    phase: Phase,
    bounds: Bounds,
    size: float,
    *,
    slices: int,
    channels: int | None,
    both: bool,
    most: int | None,
    lanes: tuple[int, ...] | None,
) -> Sends:
    low, high = phase.levels
    inner, outer, n = bounds[low - 1] if low else 1, bounds[high - 1], bounds[-1]
    if n % outer or outer % inner:
        raise InputError(
            f"{n} ranks do not fill units of {outer if n % outer else inner}; give whole units.", field="accelerators"
        )
    rank = np.arange(n)
    none = np.zeros((0, 3), np.int64)
    load = phase.load * size
    if phase.pattern == "ring":
        return _in_fewer(rings(phase, bounds, load, channels, both, lanes), phase.steps, most, bounds)
    if phase.pattern in ("relay", "weave"):
        return relay(phase, bounds, load, slices, channels, lanes)
    if phase.pattern == "direct":
        members = outer // inner
        a, other = np.divmod(np.arange(n * (members - 1)), members - 1)
        mine = a % outer // inner
        b = a + (other + (other >= mine) - mine) * inner
        rounds = max(slices, phase.steps)
        share = np.full(len(a), load / (members - 1) / rounds)
        sends = Sends(a, b, share, np.full(len(a), rounds), none)
        return sends if phase.steps == 1 else replace(sends, edges=_handed(sends, sends, 0, 0, 1))
    if phase.pattern in ("pair", "shift"):
        target = rank ^ phase.distance if phase.pattern == "pair" else (rank + phase.distance) % n
        return Sends(rank, target, np.full(n, load / phase.steps), np.full(n, phase.steps), none)
    if phase.pattern == "neighbour":
        inside = rank[rank % outer != outer - 1]
        return Sends(inside, inside + 1, np.full(len(inside), load), np.ones(len(inside), np.int64), none)
    if phase.pattern == "chain":
        return chains(phase, bounds, load, slices, lanes)
    if phase.pattern == "tree":
        return trees(inner, outer // inner, load, slices, phase.spread, lanes)
    return switched(inner, outer, n, load, slices, lanes)


def _joined(parts: Sequence[Sends], lag: int, lanes: int) -> Sends:
    """Phases as one program. A rank's first send of a phase waits for all that it received in the phase before (lag
    ALL), or slice by slice (lag 0); where it received nothing, as the root of a tree, for the last phase in which it
    did. Of ``lanes`` phases that make a stage, each waits for all lanes of the stage before: they swap levels then.
    """
    offsets = np.cumsum([0, *(len(p) for p in parts)])
    edges = [part.edges + np.array([offset, offset, 0]) for part, offset in zip(parts, offsets, strict=False)]
    for k in range(lanes, len(parts)):
        first = k // lanes * lanes
        if lanes > 1:
            stage = range(first - lanes, first)
            edges += [_handed(parts[b], parts[k], int(offsets[b]), int(offsets[k]), lag) for b in stage]
            continue
        waiting = np.ones(len(parts[k]), np.bool_)
        for before in range(k - 1, -1, -1):
            found = _handed(parts[before], parts[k], int(offsets[before]), int(offsets[k]), lag)
            found = found[waiting[found[:, 0] - offsets[k]]]
            edges.append(found)
            waiting[found[:, 0] - offsets[k]] = False
            if not waiting.any():
                break
    return Sends(
        np.concatenate([p.source for p in parts]),
        np.concatenate([p.target for p in parts]),
        np.concatenate([p.amount for p in parts]),
        np.concatenate([p.rounds for p in parts]),
        np.concatenate(edges),
        np.concatenate([np.ones(len(p)) if p.stands is None else p.stands for p in parts]),
    )


def _handed(before: Sends, after: Sends, first: int, second: int, lag: int) -> Ints:
    """Edges from every send into a rank in one phase to the sends out of it in the next."""
    receiver = np.where(before.target < 0, before.source, before.target)
    order = np.argsort(receiver, kind="stable")
    start = np.searchsorted(receiver[order], after.source, "left")
    count = np.searchsorted(receiver[order], after.source, "right") - start
    task = np.repeat(np.arange(len(after)), count)
    place = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count) + np.repeat(start, count)
    return np.stack([task + second, order[place] + first, np.full(len(task), lag)], 1)


def _tasks(
    topology: Topology,
    sends: Sends,
    ends: tuple[Ints, Ints, Ints],
    *,
    policy: str | Table,
    seed: int,
    beside: tuple[Ints, Ints],
) -> Tasks:
    """Route the sends (``ends``: source and target node, and stage) and set their latency and pace (``beside``:
    channels and team); dependencies as CSR.
    """
    source, target, stage = ends
    over = target < 0
    moved = sends.amount * sends.rounds
    moved = np.round(moved / max(moved.max(initial=0.0), 1e-300), SHARES)
    sent = ~over
    routes = _routed(topology, source[sent], target[sent], stage[sent], moved[sent], policy=policy, seed=seed)
    along = np.zeros(len(sends))
    if over.any():
        routes, along = with_switches(topology, routes, source, target)
    # a switch reads what it reduces (request and data) and confirms what it multicasts
    latency = np.where(over, np.round(2 * along, FEMTO), latencies(topology, routes))
    latency = latency * (1.0 if sends.stands is None else sends.stands)
    channels, team = beside
    limit = paces(sends, channels, team, topology, routes) if channels.any() else None
    edges = sends.edges[np.argsort(sends.edges[:, 0], kind="stable")]
    start = np.zeros(len(sends) + 1, np.int64)
    np.cumsum(np.bincount(edges[:, 0], minlength=len(sends)), out=start[1:])
    return tasks(
        sends.amount,
        routes.start,
        routes.link,
        coefficient=routes.share if len(routes.share) else None,
        dependencies=(start, edges[:, 1]),
        lag=edges[:, 2],
        rounds=sends.rounds,
        latency=latency,
        limit=limit,
    )


def _routed(
    topology: Topology, source: Ints, target: Ints, stage: Ints, amount: Floats, *, policy: str | Table, seed: int
) -> Routes:
    """Routes of sends, stage by stage: load is what moves at the same time. Stages with the same pairs, as the halves
    of an all-reduce, take the same routes.
    """
    if not len(stage) or stage.min() == stage.max():
        return route(topology, source, target, policy=policy, amount=amount, seed=seed)
    order = np.argsort(stage, kind="stable")
    known: list[tuple[tuple[Ints, Ints], Routes]] = []
    parts: list[Routes] = []
    for rows in np.split(order, np.flatnonzero(np.diff(stage[order])) + 1):
        pairs = (source[rows], target[rows])
        alike = (routes for other, routes in known if all(map(np.array_equal, pairs, other)))
        found = next(alike, None) or route(topology, *pairs, policy=policy, amount=amount[rows], seed=seed)
        known.append((pairs, found))
        parts.append(found)
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    return gathered(parts, place)


def latencies(topology: Topology, routes: Routes) -> Floats:
    """Seconds along each row; of a row over several paths their mean, weighted by what each carries."""
    from rapid_llm.network.routing.drive import row_sums

    total = row_sums(routes.start, routes.link, topology.latency, routes.share)
    return np.round(total, FEMTO)  # float noise must not tell equal rows apart
