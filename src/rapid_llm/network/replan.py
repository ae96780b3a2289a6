"""Two policies after faults: detour (the same collective over other paths) and re-plan (without the dead rail, round
slow links, or in another order of units), as a library does that starts again on what is left.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from rapid_llm.errors import InfeasibleError
from rapid_llm.network.routing import route
from rapid_llm.network.tasks import Floats, Ints, Result
from rapid_llm.network.topology import Topology

MOST_UNITS: Final = 128
"""Units that are put in a new order; larger rings keep theirs."""
HARDLY: Final = 1.001
"""A plan that takes so much of the time without faults is as good as any."""
SHOWN: Final = 4
"""Rails that are named."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Plan:
    """How a collective goes on: ``members`` [groups, ranks]; ``lanes``: places in a unit whose network cards rings and
    trees use (None: all); ``routed``: links that routes may take, where not all; ``fan``: traffic around dead links
    takes all shortest ways at once; ``words``: what the plan changes.
    """

    words: str
    members: Ints
    lanes: tuple[int, ...] | None = None
    routed: Topology | None = None
    fan: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Recovery:
    """A collective after faults: ``detour`` keeps its plan, ``replan`` is the fastest of ``plan`` and its alternatives;
    the faster one is ``best``.
    """

    detour: Result
    replan: Result
    plan: Plan

    @property
    def best(self) -> str:
        """``detour`` or ``replan``; the first where they take equally long."""
        return "replan" if self.replan.seconds < self.detour.seconds else "detour"


def recover(
    run: Callable[[Plan], Result],
    topology: Topology,
    healthy: Topology,
    members: Ints,
    unit: int,
    *,
    avoiding: Topology | None = None,
    rails: bool = False,
    order: bool = False,
    whole: float = 0.0,
) -> Recovery:
    """Both policies on a topology with its faults. ``run`` runs a plan; ``unit``: ranks of a group in a node;
    ``avoiding``: the links without the degraded ones, where there are any. The collective can do without some
    ``rails``, or run in another ``order``. Nothing is tried beside a plan that takes hardly more than ``whole``, the
    seconds without faults. InfeasibleError naming the ranks that are cut off.
    """
    first = Plan(words="the same plan", members=members)
    detour = run(first)
    best, chosen = detour, first
    others: list[Plan] = []
    if avoiding is not None and detour.link_bytes[topology.health < 1].any():
        words = "round degraded links"
        others += [Plan(words=words, members=members, routed=avoiding, fan=fan) for fan in (False, True)]
    if rails:
        others += _without_rails(topology, healthy, members, unit)
    if (topology.health <= 0).any():
        others.append(Plan(words="round dead links over every way", members=members, fan=True))
    if order:
        others += _in_order(topology, healthy, members, unit)
    for plan in others:
        if best.seconds <= whole * HARDLY:
            break
        try:
            result = run(plan)
        except InfeasibleError:  # there may be no way round
            continue
        if result.seconds < best.seconds:
            best, chosen = result, plan
    return Recovery(detour, best, chosen)


def _without_rails(topology: Topology, healthy: Topology, members: Ints, unit: int) -> Iterator[Plan]:
    """Plans that leave out the dead rails, the rails in the worst state, or all degraded rails."""
    health = rail_health(topology, healthy, members, unit)
    degraded = np.unique(health[health < 1])
    for least in dict.fromkeys((0.0, *degraded[:1].tolist(), *degraded[-1:].tolist())):
        dropped, kept = np.flatnonzero(health <= least).tolist(), np.flatnonzero(health > least).tolist()
        if dropped and kept:
            names = ", ".join(map(str, dropped[:SHOWN]))
            more = f" and {len(dropped) - SHOWN} more" if len(dropped) > SHOWN else ""
            words = f"without rail{'s' if len(dropped) > 1 else ''} {names}{more}"
            yield Plan(words=words, members=members, lanes=tuple(kept))


def _in_order(topology: Topology, healthy: Topology, members: Ints, unit: int) -> Iterator[Plan]:
    """The plan with its units in an order that meets fewer slow links, where there is one."""
    order = np.stack([reordered(topology, healthy, row, unit) for row in members])
    if not np.array_equal(order, members):
        yield Plan(words="in another order", members=order)


def rail_health(topology: Topology, healthy: Topology, members: Ints, unit: int) -> Floats:
    """Least health on the way from each place in a unit to the same place in the next unit, over all groups [unit]."""
    source = topology.accelerators[members].reshape(len(members), -1, unit)
    if unit < 2 or source.shape[1] < 2:
        return np.ones(0)
    routes = route(healthy, source.ravel(), np.roll(source, -1, axis=1).ravel())
    least = np.minimum.reduceat(topology.health[routes.link], routes.start[:-1])
    found: Floats = least.reshape(-1, unit).min(axis=0)
    return found


def reordered(topology: Topology, healthy: Topology, row: Ints, unit: int) -> Ints:
    """An order of units (blocks of ``unit`` ranks) whose ring avoids dead and slow links, by 2-opt from the given one.

    The cost of a hop is the largest 1 / capacity on its route and, among equals, its length; an order that no
    fault concerns is kept.
    """
    blocks = row.reshape(-1, unit)
    count = len(blocks)
    if not 4 <= count <= MOST_UNITS:
        return row
    places = topology.accelerators
    hops = route(healthy, places[blocks[:, -1]], places[np.roll(blocks[:, 0], -1)])
    if (topology.health[hops.link] == 1).all():
        return row
    a, b = (x.ravel() for x in np.meshgrid(np.arange(count), np.arange(count), indexing="ij"))
    apart = a != b
    routes = route(topology, places[blocks[a[apart], -1]], places[blocks[b[apart], 0]])
    start = routes.start[:-1]
    slowest = np.maximum.reduceat(1 / topology.capacity[routes.link], start)
    cost = np.zeros((count, count))
    cost[a[apart], b[apart]] = slowest / slowest.min() + np.diff(routes.start) / topology.links
    return blocks[_two_opt(np.maximum(cost, cost.T), np.arange(count))].ravel()


def _two_opt(cost: Floats, order: Ints) -> Ints:
    """Reverse the run of a tour that makes it cheapest, as long as one does."""
    for _ in range(len(order) ** 2):
        ahead = np.roll(order, -1)
        hops = cost[order, ahead]
        gain = hops[:, None] + hops - cost[order][:, order] - cost[ahead][:, ahead]
        i, j = np.unravel_index(np.argmax(np.triu(gain, 2)), gain.shape)
        if gain[i, j] <= 1e-9 or j < i + 2:
            break
        order = np.concatenate([order[: i + 1], order[i + 1 : j + 1][::-1], order[j + 1 :]])
    return order
