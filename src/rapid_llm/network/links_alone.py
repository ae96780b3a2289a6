"""Collectives on links alone: an interconnect, routes and background traffic of a user's own, without a library."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, Literal

import numpy as np

from rapid_llm.errors import InputError, nearest, unknown_name
from rapid_llm.network.background import Background, simulate_beside
from rapid_llm.network.explicit import closed_form
from rapid_llm.network.flows import expand
from rapid_llm.network.placement import best_places
from rapid_llm.network.programs import placed, program, run_in_slices
from rapid_llm.network.routing import Table, route
from rapid_llm.network.tasks import Floats, Ints, Result
from rapid_llm.network.templates import BUILDERS, OPS, Bounds, Template
from rapid_llm.network.topology import Topology

RUNS: Final = (
    "ring", "two-way-ring", "tree", "halving-doubling", "hierarchical", "one-shot", "two-shot", "direct", "pxn", "p2p",
)  # fmt: skip
"""Algorithms that links alone can run: reducing switches need more than links."""
MOST_PLACED: Final = 256
"""Accelerators among which places are searched for."""


@dataclass(frozen=True, slots=True, eq=False)
class Run:
    """One algorithm: what its tasks and the background did, when the collective had finished, and its closed form on
    the same links alone (s). ``nodes``: where its ranks are, in order; ``alone``: nothing ran beside it.
    """

    algorithm: str
    result: Result
    seconds: float
    closed: float
    nodes: Ints
    alone: bool

    def use(self, topology: Topology) -> Floats:
        """Share of what each link could move in that time that it moved, background included."""
        most = topology.capacity * max(self.seconds, 1e-300)
        used: Floats = np.where(self.result.moved > 0, self.result.moved / np.maximum(most, 1e-300), 0.0)
        return np.minimum(used, 1.0)


def runs(
    op: str,
    size: float,
    topology: Topology,
    *,
    ranks: int | None = None,
    algorithm: str | None = None,
    policy: str | Table = "auto",
    background: Background | None = None,
    places: Sequence[int] | Literal["best"] | None = None,
) -> tuple[Run, ...]:
    """Every algorithm for a collective among the first ``ranks`` accelerators, the fastest first.

    ``places``: the nodes of the ranks instead, in order; or ``best``: those on which an algorithm's own traffic lies
    nearest together, where it is faster there. InputError for an unknown name, an algorithm that these ranks cannot
    run, or places that do not fit; InfeasibleError where no live path joins two of them.
    """
    if op not in OPS:
        raise InputError(unknown_name("collective", op, OPS), field="op", suggestions=nearest(op, OPS))
    total = len(topology.accelerators)
    count = total if ranks is None else ranks
    if not 2 <= count <= total:
        raise InputError(
            f"{topology.name} has {total} accelerator{'s' * (total != 1)}; a collective takes 2 or more (got {count}).",
            field="accelerators",
        )
    nodes = placed(topology, count, None if places is None or places == "best" else places)
    found = templates(op, _nested(topology, nodes), algorithm)
    run = partial(_run, size=size, topology=topology, policy=policy, background=background)
    every = [run(*one, nodes=nodes) for one in found]
    if places == "best":
        distance = distances(topology, policy)
        moved = [_nearest(one[1], one[2], topology, distance) for one in found]
        again = [run(*one, nodes=to) for one, to in zip(found, moved, strict=True)]
        every = [min(pair, key=lambda r: r.seconds) for pair in zip(every, again, strict=True)]
    return tuple(sorted(every, key=lambda r: r.seconds))


def distances(topology: Topology, policy: str | Table = "auto") -> Floats:
    """Seconds for a byte between every two accelerators, over all links of its way; InputError for too many."""
    nodes = topology.accelerators
    if len(nodes) > MOST_PLACED:
        raise InputError(
            f"places are searched for among at most {MOST_PLACED} accelerators (got {len(nodes)}); "
            "try a part of the system.",
            field="placement",
        )
    a, b = np.nonzero(~np.eye(len(nodes), dtype=bool))
    routes = route(topology, nodes[a], nodes[b], policy=policy)
    weight = (routes.share if len(routes.share) else 1.0) / topology.capacity[routes.link]
    distance = np.zeros((len(nodes), len(nodes)))
    distance[a, b] = np.bincount(np.repeat(np.arange(len(a)), np.diff(routes.start)), weight, len(a))
    return distance


def _nearest(template: Template, bounds: Bounds, topology: Topology, distance: Floats) -> Ints:
    """Nodes of the ranks, so that bytes x distance of what a template sends is the least that swaps find."""
    sends = expand(template, bounds)
    traffic = np.zeros_like(distance)  # accelerators that take no part are ranks that send nothing
    np.add.at(traffic, (sends.source, sends.destination), sends.share)
    found: Ints = topology.accelerators[list(best_places(traffic, distance).places[: bounds[-1]])]
    return found


def nesting(topology: Topology, ranks: int) -> Bounds:
    """Ranks in a box and in all, where the first accelerators fill equal boxes in order; else all of them."""
    return _nested(topology, topology.accelerators[:ranks])


def _nested(topology: Topology, nodes: Ints) -> Bounds:
    box, ranks = topology.box[nodes], len(nodes)
    inner = int((box == box[0]).sum())
    whole = box[0] >= 0 and ranks % inner == 0
    if whole and 1 < inner < ranks and (box == np.repeat(box[::inner], inner)).all():
        return inner, ranks
    return (ranks,)


def templates(op: str, bounds: Bounds, algorithm: str | None) -> Sequence[tuple[str, Template, Bounds]]:
    """The algorithms for an operation on a group, or the one that is asked for."""
    serves = [name for name in RUNS if op in BUILDERS[name][1] and _runs(name, bounds)]
    if algorithm is not None and algorithm not in RUNS:
        message = unknown_name("algorithm", algorithm, RUNS)
        raise InputError(message, field="algorithm", suggestions=nearest(algorithm, RUNS))
    if algorithm is not None and algorithm not in serves:
        raise InputError(
            f"algorithm '{algorithm}' does not run {op} on these {bounds[-1]} ranks; try {', '.join(serves)}.",
            field="algorithm",
        )
    names = serves if algorithm is None else [algorithm]
    return [(name, BUILDERS[name][0](op, bounds, len(bounds) - 1), bounds) for name in names]


def _runs(algorithm: str, bounds: Bounds) -> bool:
    if algorithm == "halving-doubling":
        return all(bound & (bound - 1) == 0 for bound in bounds)
    if algorithm in ("hierarchical", "pxn"):
        return len(bounds) > 1
    return algorithm not in ("one-shot", "two-shot") or len(bounds) == 1


def _run(
    name: str,
    template: Template,
    bounds: Bounds,
    *,
    size: float,
    topology: Topology,
    policy: str | Table,
    background: Background | None,
    nodes: Ints,
) -> Run:
    def run(slices: int) -> Result:
        some = program(template, bounds, size, topology, placement=nodes, policy=policy, slices=slices)
        return simulate_beside(some, topology, background, policy, measured=False)

    result = run_in_slices(template, run)
    closed = closed_form(template, bounds, size, topology, placement=nodes, policy=policy)
    return Run(name, result, result.seconds, closed, nodes, background is None)


def without_faults(found: Run, healthy: Run) -> Run:
    """The run, but not faster than without faults: other routes may spread better than the usual ones by chance."""
    return replace(found, seconds=max(found.seconds, healthy.seconds))
