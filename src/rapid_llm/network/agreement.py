"""Closed forms beside flow simulation of the same sends on the same links: how far they are apart, case by case."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from typing import Final

import numpy as np

from rapid_llm.hardware import System
from rapid_llm.network import clusters, shapes
from rapid_llm.network.contention import RUNS, laid_out, lies_in_whole_units, on_links
from rapid_llm.network.engine import simulate
from rapid_llm.network.explicit import closed_form, takes_turns
from rapid_llm.network.fabric import Fabric, near_cube
from rapid_llm.network.flow_prices import Members, groups
from rapid_llm.network.groups import group_of
from rapid_llm.network.lines import Way, bare_line, ways
from rapid_llm.network.own import nesting, templates
from rapid_llm.network.programs import program, run_in_slices
from rapid_llm.network.tasks import Result
from rapid_llm.network.technologies import Library, LinkCost, Protocol
from rapid_llm.network.templates import OPS, Bounds, Template
from rapid_llm.network.topology import Topology

FREE: Final = LinkCost(launch=0, step=0, efficiency=1.0)
LINKS: Final = Library(
    name="links", protocols={"only": Protocol(algorithms=RUNS)}, links={"intra": FREE, "inter": FREE}
)
"""A library that adds nothing to what links take, and has every algorithm that the flow engine lays out."""
EXCHANGES: Final = ("direct", "pxn", "one-shot", "two-shot")
MOST_PAIRS: Final = 1 << 14
"""Pairs of ranks that exchange at once in the largest cases."""
B: Final = 50e9
L: Final = 1e-6


@dataclass(frozen=True, slots=True)
class Compared:
    """A collective of ``size`` bytes in groups of ``ranks``, ``stride`` apart, on a system or topology of ``total``
    accelerators: seconds of both; ``meets``: by what links carry in a step, its sends meet beyond what the closed form
    counts (systems), or share links by turns (topologies).
    """

    where: str
    total: int
    op: str
    algorithm: str
    ranks: int
    stride: int
    size: float
    closed: float
    simulated: float
    meets: bool

    @property
    def off(self) -> float:
        """Simulated over closed, less 1."""
        return self.simulated / self.closed - 1.0


def on_system(
    system: System, total: int, shapes_of: Sequence[tuple[int, int]], sizes: Sequence[float]
) -> Iterator[Compared]:
    """Every collective and algorithm of groups (ranks, stride) that tiers and groups fill, all groups at once."""
    fabric, topology = Fabric.of(system), Topology.of(system, total)
    for ranks, stride in shapes_of:
        if not fills(fabric, total, ranks, stride):
            continue
        members, group = groups(total, ranks, stride), group_of(fabric, ranks, stride)
        for op in OPS:
            for way in ways(op, group, LINKS):
                wide = way.algorithm in EXCHANGES and total * ranks > MOST_PAIRS
                if wide or not lies_in_whole_units(way):
                    continue
                counted = max(line.per_byte for line in (bare_line(way), *bare_line(way).others))
                meets = _carried(way, topology, members) > counted * 1.005
                for size in sizes:
                    simulated = on_links(way, size, topology, members).seconds
                    closed = bare_line(way).seconds(size)
                    yield Compared(
                        system.name, total, op, way.algorithm, ranks, stride, size, closed, simulated, meets
                    )  # fmt: skip


def fills(fabric: Fabric, total: int, ranks: int, stride: int) -> bool:
    """Whether groups fill a job, and every tier holds whole groups or groups whole tiers; of a torus only all of it."""
    if total % (ranks * stride) or not fabric.tiers:
        return False
    if fabric.tiers[-1].kind == "torus":
        return total == ranks
    spans = [min(tier.span, total) for tier in fabric.tiers]
    return all(span % (ranks * stride) == 0 or (ranks * stride) % span == 0 for span in spans)


def _carried(way: Way, topology: Topology, members: Members) -> float:
    """Seconds per byte that the busiest link of each step needs for what the step moves over it."""
    phases, lanes = way.template.phases, way.template.lanes
    steps = [phases] if way.template.pipelined else [phases[k : k + lanes] for k in range(0, len(phases), lanes)]
    total = 0.0
    for step in steps:
        part = replace(way, template=replace(way.template, phases=tuple(step)))
        tasks = laid_out(part, 1e9, topology, members, slices=1)
        moved = np.repeat(tasks.total, np.diff(tasks.resource_start))
        moved = moved * tasks.coefficient if len(tasks.coefficient) else moved
        total += float((np.bincount(tasks.resource, moved, topology.links) / topology.capacity).max(initial=0.0)) / 1e9
    return total


def _superpod(count: int) -> Topology:
    outer = clusters.leaf_spine(count, min(count, 32), B, 2 * L, rails=8, upper=L)
    return clusters.nested([clusters.switch(8, 9 * B, L)] * (count // 8), outer)


CONSTRUCTORS: Final[Mapping[str, tuple[Callable[[int], Topology], Callable[[int], bool]]]] = {
    "ring": (lambda n: shapes.ring(n, B, L), lambda n: True),
    "mesh 1-D": (lambda n: shapes.mesh((n,), B, L), lambda n: True),
    "mesh 2-D": (lambda n: shapes.mesh(near_cube(n, 2), B, L), lambda n: n > 3),
    "torus 2-D": (lambda n: shapes.torus(near_cube(n, 2), B, L), lambda n: n > 3),
    "torus 3-D": (lambda n: shapes.torus(near_cube(n, 3), (B, 2 * B, 4 * B), L), lambda n: n > 7),
    "full": (lambda n: shapes.fully_connected(n, B, L), lambda n: n <= 128),
    "hypercube": (lambda n: shapes.hypercube(n, B, L), lambda n: n & (n - 1) == 0),
    "king mesh": (lambda n: shapes.king_mesh(near_cube(n, 2), B, L), lambda n: n > 3),
    "switch": (lambda n: clusters.switch(n, B, L), lambda n: True),
    "NVL72": (lambda n: clusters.nvl72(9 * B, L), lambda n: n == 72),
    "leaf-spine": (lambda n: clusters.leaf_spine(n, n // 4, B, L, upper=L), lambda n: n >= 16 and n % 4 == 0),
    "2:1 leaf-spine": (
        lambda n: clusters.leaf_spine(n, n // 4, B, L, oversubscription=2.0, upper=L),
        lambda n: n >= 16 and n % 8 == 0,
    ),
    "fat tree": (lambda n: clusters.fat_tree(round((4 * n) ** (1 / 3)), B, L), lambda n: n in (16, 128, 1024)),
    "SuperPOD": (_superpod, lambda n: n >= 16 and n % 8 == 0),
    "dragonfly": (lambda n: clusters.dragonfly(9, 4, 2, B, L), lambda n: n == 72),
}
"""Topologies by constructor, and the sizes that each has."""


def on_topology(name: str, total: int, sizes: Sequence[float], most: Mapping[str, int]) -> Iterator[Compared]:
    """Every collective and algorithm of all accelerators of a constructor; ``most`` ranks by algorithm (0: others)."""
    make, has = CONSTRUCTORS[name]
    if not has(total):
        return
    topology = make(total)
    bounds = nesting(topology, total)
    for op in OPS:
        for algorithm, template, _ in templates(op, bounds, None):
            if total > most.get(algorithm, most[""]):
                continue
            turns = takes_turns(template, bounds, topology)
            for size in sizes:
                simulated = run_in_slices(template, partial(_run, template, bounds, size, topology)).seconds
                closed = closed_form(template, bounds, size, topology)
                yield Compared(name, total, op, algorithm, total, 1, size, closed, simulated, turns)


def _run(template: Template, bounds: Bounds, size: float, topology: Topology, slices: int) -> Result:
    return simulate(program(template, bounds, size, topology, slices=slices), topology, measured=False)


def worst(found: Sequence[Compared]) -> list[tuple[str, str, str, int, Compared | None, int]]:
    """By place, collective and algorithm: cases that do not meet, the one farthest off, and cases that meet."""
    rows = []

    def key(one: Compared) -> tuple[str, str, str]:
        return one.where, one.op, one.algorithm

    for (where, op, algorithm), same in groupby(sorted(found, key=key), key):
        cases = list(same)
        apart = [one for one in cases if not one.meets]
        farthest = max(apart, key=lambda one: abs(one.off), default=None)
        rows.append((where, op, algorithm, len(apart), farthest, len(cases) - len(apart)))
    return rows
