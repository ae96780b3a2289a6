"""Interconnects by constructor, as a system's file asks for them: their links, and what patterns load on them.

The closed form of such a tier is the load of a pattern's own messages on the busiest link, all groups at once.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import log2
from typing import Final

import numpy as np

from rapid_llm.hardware.system import ScaleOutFabric
from rapid_llm.network import clusters, shapes
from rapid_llm.network.topology import NODE_KINDS, Builder, Ints, Topology

OFFSETS: Final = 64
"""Distances that stand for all of them in a large exchange."""


def links_of_port(topology: str, count: int, sides: Sequence[int]) -> int:
    """Links that share a port: two along each axis, whether or not a side has both."""
    return {
        "ring": 2,
        "mesh": 2 * len(sides),
        "torus": 2 * len(sides),
        "hypercube": max(1, round(log2(count))),
        "king-mesh": 8,
        "full": max(1, count - 1),
    }[topology]


def direct(topology: str, count: int, sides: Sequence[int], rates: Sequence[float], latency: float) -> Topology:
    """A direct network of ``count`` places; ``rates`` (B/s) of a link, one for all or one for each axis."""
    if topology in ("mesh", "torus"):
        build = shapes.mesh if topology == "mesh" else shapes.torus
        return build(tuple(sides), tuple(rates) if len(rates) > 1 else rates[0], latency)
    if topology == "king-mesh":
        return shapes.king_mesh(sides, rates[0], latency)
    make = {"ring": shapes.ring, "hypercube": shapes.hypercube, "full": shapes.fully_connected}[topology]
    return make(count, rates[0], latency)


def routed(one: Topology, cards: int, rate: float, latency: float) -> Topology:
    """A direct network of routers, one for each node, and the cards of its node at each: ``rate`` B/s of a card, and
    the seconds from card to card below one router.
    """
    build, nodes = Builder(one.name), np.arange(one.nodes)
    ends = build.add([f"gpu{i}" for i in range(one.nodes * cards)], "accelerator")
    at = build.add([f"node{i}.router" for i in nodes], "router", nodes)
    build.join(ends, np.repeat(at, cards), rate, latency / 2, "nic")
    build.join(at[one.source], at[one.target], one.bandwidth, one.latency, "fabric", both=False)
    return build.build()


def dragonfly(fabric: ScaleOutFabric, cards: int, rate: float, latency: float, far: float) -> Topology:
    """The dragonfly of a system with so many cards, in order, of ``rate`` B/s; ``far`` what a global link adds (s)."""
    groups, routers = fabric.groups or 1, fabric.routers or 1
    return clusters.dragonfly(
        groups, routers, -(-cards // (groups * routers)), rate, latency,
        local=fabric.local_bandwidth, far=fabric.global_bandwidth, upper=far,
    )  # fmt: skip


def first(topology: Topology, count: int) -> Topology:
    """The same links, of which only the first accelerators belong to a job; the others forward traffic."""
    idle = topology.accelerators[count:]
    if not len(idle):
        return topology
    kind = topology.node_kind.copy()
    kind[idle] = NODE_KINDS.index("idle")
    return replace(topology, node_kind=kind)


@dataclass(frozen=True, slots=True)
class Load:
    """What a pattern loads on links: seconds per byte that an end sends, and the numbers of links on its mean and its
    longest way.
    """

    seconds: float
    mean: float
    longest: int


ALONE: Final = Load(1e-300, 1.0, 1)
"""Of a place that has no other to send to."""


@dataclass(frozen=True, eq=False)
class Wires:
    """The links of a tier whose places (nodes, or accelerators of one) are joined as a constructor says.

    A place is ``span`` accelerators with ``ports`` ends in ``topology``, in order.
    """

    topology: Topology
    span: int = 1
    ports: int = 1

    @property
    def places(self) -> int:
        """How many places there are."""
        return len(self.topology.accelerators) // self.ports

    def reach(self, members: int, stride: int, *, both: bool = True) -> float:
        """B/s of an accelerator in rings of ``members`` places, ``stride`` accelerators apart."""
        return self.ports / self.span / self.ring(members, stride, both=both).seconds

    def ring(self, members: int, stride: int, *, both: bool = True) -> Load:
        """Every place sends to the next of its ring; of ``both`` ways half to that, and half to the one before."""
        return _load(self, members, max(1, stride // self.span), 0 if both else -2)

    def exchange(self, members: int, stride: int) -> Load:
        """Every place sends alike to all others."""
        return _load(self, members, max(1, stride // self.span), -1)

    def pair(self, members: int, distance: int, stride: int) -> Load:
        """Every place sends to the one whose number in its group differs by ``distance`` in one bit."""
        return _load(self, members, max(1, stride // self.span), distance)


@lru_cache(maxsize=4096)
def _load(wires: Wires, members: int, apart: int, distance: int) -> Load:
    """The load of a pattern: rings both ways round (distance 0) or one way (-2), an exchange (-1) or pairs."""
    from rapid_llm.network.routing import route

    if members < 2:
        return ALONE
    top, ports = wires.topology, wires.ports
    group = _groups(wires.places, members, apart)
    place = np.arange(group.shape[1])
    if distance > 0:
        steps = [np.where(place ^ distance < len(place), place ^ distance, place)]
    elif distance == -1:
        far = len(place) - 1
        some = np.unique(np.linspace(1, far, min(far, OFFSETS)).round().astype(int))
        steps = [(place + k) % len(place) for k in some]
    else:
        steps = [(place + k) % len(place) for k in ((1,) if distance else (1, -1))]
    lane = np.arange(ports)
    source, target = (
        (np.concatenate(ends)[:, None] * ports + lane).ravel()
        for ends in ([group.ravel() for _ in steps], [group[:, step].ravel() for step in steps])
    )
    apart_at_all = source != target
    ends = (top.accelerators[side[apart_at_all]] for side in (source, target))
    routes = route(top, *ends)
    if not len(routes):
        return ALONE
    busy = routes.load(top.links, 1.0 / len(steps)) / np.maximum(top.capacity, 1e-300)
    weight = routes.share if len(routes.share) else np.ones(len(routes.link))
    row = np.repeat(np.arange(len(routes)), np.diff(routes.start))
    links = np.bincount(row, weight, len(routes))
    return Load(float(busy.max()), float(links.mean()), round(float(links.max())))


def _groups(places: int, members: int, apart: int) -> Ints:
    """Places of every group [groups, members]; of the first alone where not even one fits."""
    start = np.arange(places)
    start = start[(start % (members * apart) < apart) & (start + (members - 1) * apart < places)]
    if not len(start):
        return np.arange(min(members, places))[None, :]
    found: Ints = start[:, None] + apart * np.arange(members)
    return found
