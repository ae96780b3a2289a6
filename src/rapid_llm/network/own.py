"""Collectives on links alone: an interconnect, routes and background traffic of a user's own, without a library."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from rapid_llm.errors import InputError, nearest, unknown_name
from rapid_llm.network.background import Background, simulate_beside
from rapid_llm.network.explicit import closed_form
from rapid_llm.network.programs import program, run_in_slices
from rapid_llm.network.routing import Table
from rapid_llm.network.tasks import Floats, Result
from rapid_llm.network.templates import BUILDERS, OPS, Bounds, Template
from rapid_llm.network.topology import Topology

RUNS: Final = (
    "ring", "two-way-ring", "tree", "halving-doubling", "hierarchical", "one-shot", "two-shot", "direct", "pxn", "p2p",
)  # fmt: skip
"""Algorithms that links alone can run: reducing switches need more than links."""


@dataclass(frozen=True, slots=True, eq=False)
class Run:
    """One algorithm: what its tasks and the background did, when the collective had finished, and its closed form on
    the same links alone (s).
    """

    algorithm: str
    result: Result
    seconds: float
    closed: float

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
) -> tuple[Run, ...]:
    """Every algorithm for a collective among the first ``ranks`` accelerators, the fastest first.

    InputError for an unknown name or an algorithm that these ranks cannot run; InfeasibleError where no live path joins
    two of them.
    """
    if op not in OPS:
        raise InputError(unknown_name("collective", op, OPS), field="op", suggestions=nearest(op, OPS))
    total = len(topology.accelerators)
    count = total if ranks is None else ranks
    if not 2 <= count <= total:
        raise InputError(
            f"{topology.name} has {total} accelerators; a collective takes 2 or more of them (got {count}).",
            field="accelerators",
        )
    found = templates(op, nesting(topology, count), algorithm)
    return tuple(sorted((_run(*one, size, topology, policy, background) for one in found), key=lambda r: r.seconds))


def nesting(topology: Topology, ranks: int) -> Bounds:
    """Ranks in a box and in all, where they fill equal boxes in order; else all of them."""
    box = topology.box[topology.accelerators[:ranks]]
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


def _run(  # noqa: PLR0917
    name: str,
    template: Template,
    bounds: Bounds,
    size: float,
    topology: Topology,
    policy: str | Table,
    background: Background | None,
) -> Run:
    def run(slices: int) -> Result:
        some = program(template, bounds, size, topology, policy=policy, slices=slices)
        return simulate_beside(some, topology, background, policy, measured=False)

    result = run_in_slices(template, run)
    closed = closed_form(template, bounds, size, topology, policy=policy)
    return Run(name, result, result.seconds, closed)


def without_faults(found: Run, healthy: Run) -> Run:
    """The run, but not faster than without faults: other routes may spread better than the usual ones by chance."""
    return replace(found, seconds=max(found.seconds, healthy.seconds))
