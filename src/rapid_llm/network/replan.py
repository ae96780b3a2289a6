"""Two policies after faults: detour (the same collective over other paths) and re-plan (another order of ranks)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from rapid_llm.network.engine import simulate
from rapid_llm.network.programs import placed, program
from rapid_llm.network.routing import route
from rapid_llm.network.tasks import Floats, Ints, Result
from rapid_llm.network.templates import Bounds, Template
from rapid_llm.network.topology import Topology

MOST_UNITS: Final = 128
"""Units that are put in a new order; larger rings keep theirs."""


@dataclass(frozen=True, slots=True, eq=False)
class Recovery:
    """A collective after faults: ``detour`` keeps the order of ranks, ``replan`` takes ``placement``; whichever is
    faster is ``best``.
    """

    detour: Result
    replan: Result
    placement: Ints

    @property
    def best(self) -> str:
        """``detour`` or ``replan``; the first where they take equally long."""
        return "replan" if self.replan.seconds < self.detour.seconds else "detour"


def recover(
    template: Template,
    bounds: Bounds,
    size_bytes: float,
    topology: Topology,
    *,
    placement: Sequence[int] | Ints | None = None,
    policy: str = "auto",
) -> Recovery:
    """Both policies on a topology with its faults. InfeasibleError naming the ranks that are cut off."""
    nodes = placed(topology, bounds[-1], placement)
    first = simulate(program(template, bounds, size_bytes, topology, placement=nodes, policy=policy), topology)
    order = reordered(topology, nodes, bounds[0] if len(bounds) > 1 else 1, policy=policy)
    second = first
    if not np.array_equal(order, nodes):
        second = simulate(program(template, bounds, size_bytes, topology, placement=order, policy=policy), topology)
    return Recovery(first, second, order)


def reordered(topology: Topology, nodes: Ints, unit: int, *, policy: str = "auto") -> Ints:
    """An order of units (blocks of ``unit`` ranks) whose ring avoids dead and slow links, by 2-opt from the given one.

    The cost of a hop is the largest 1 / capacity on its route and, among equals, its length.
    """
    blocks = nodes.reshape(-1, unit)
    count = len(blocks)
    if not 4 <= count <= MOST_UNITS:
        return nodes
    a, b = (x.ravel() for x in np.meshgrid(np.arange(count), np.arange(count), indexing="ij"))
    apart = a != b
    routes = route(topology, blocks[a[apart], -1], blocks[b[apart], 0], policy=policy)
    start = routes.start[:-1]
    slowest = np.maximum.reduceat(1 / topology.capacity[routes.link], start)
    cost = np.zeros((count, count))
    cost[a[apart], b[apart]] = slowest / slowest.min() + np.diff(routes.start) / topology.links
    order = _two_opt(cost, np.arange(count))
    return blocks[order].ravel()


def _two_opt(cost: Floats, order: Ints) -> Ints:
    """Reverse runs of a tour as long as that makes it cheaper."""
    least = _tour(cost, order)
    better = True
    while better:
        better = False
        for i in range(len(order) - 2):
            for j in range(i + 2, len(order)):
                fresh = np.concatenate([order[: i + 1], order[i + 1 : j + 1][::-1], order[j + 1 :]])
                length = _tour(cost, fresh)
                if length < least - 1e-9:
                    order, least, better = fresh, length, True
    return order


def _tour(cost: Floats, order: Ints) -> float:
    return float(cost[order, np.roll(order, -1)].sum())
