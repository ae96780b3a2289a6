"""Interconnects of every constructor in many sizes: what closed forms are held to flow simulation on."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Final

import numpy as np

from rapid_llm.documents import parse_yaml
from rapid_llm.hardware import System, build_system
from rapid_llm.network import clusters, shapes
from rapid_llm.network.files import topology_of_edges, topology_of_matrix
from rapid_llm.network.tier import near_cube
from rapid_llm.network.topology import Topology

BANDWIDTH: Final = 50e9
LATENCY: Final = 1e-6
"""Of a link unless said (B/s, s)."""


@dataclass(frozen=True, slots=True)
class Family:
    """``make(accelerators, bandwidth, latency)`` of a size that the family ``has``."""

    make: Callable[[int, float, float], Topology]
    has: Callable[[int], bool] = lambda n: True

    def of(self, accelerators: int, bandwidth: float = BANDWIDTH, latency: float = LATENCY) -> Topology:
        """One of them."""
        return self.make(accelerators, bandwidth, latency)


def _boxes(box: Callable[[int, float, float], Topology], size: int, rails: int) -> Family:
    """Boxes of ``size`` accelerators with links nine times as fast, each with a card below leaves of 32 cards a rail
    (0: all cards below one leaf).
    """

    def make(n: int, b: float, late: float) -> Topology:
        cards = clusters.leaf_spine(n, 32 if rails else n, b, 2 * late, rails=rails or 1, upper=late)
        return clusters.nested([box(size, 9 * b, late)] * (n // size), cards)

    return Family(make, lambda n: n >= 2 * size and n % size == 0)


def _edges(n: int, b: float, late: float) -> Topology:
    """A user's list: a ring of unequal links with a chord for every third accelerator."""
    draw = np.random.default_rng(n)
    pairs = [(i, (i + 1) % n) for i in range(n if n > 2 else 1)] + [(i, (i + n // 2) % n) for i in range(0, n // 2, 3)]
    seen = {tuple(sorted(pair)) for pair in pairs if pair[0] != pair[1]}
    rows = [
        {"from": f"gpu{i}", "to": f"gpu{k}", "bandwidth": f"{b * draw.choice([1, 1.5, 2])} B/s", "latency": f"{late} s"}
        for i, k in sorted(seen)
    ]
    return topology_of_edges(rows, name="edges")


def _matrix(n: int, b: float, late: float) -> Topology:
    """What a bandwidth test measures between accelerators in pairs: neighbours twice as fast, all a little uneven."""
    near = np.arange(n)[:, None] // 2 == np.arange(n)[None, :] // 2
    uneven = np.random.default_rng(n).uniform(0.97, 1.0, (n, n))
    return topology_of_matrix(b * uneven * np.where(near, 2.0, 1.0), latency=late)


def _fat_tree(n: int, b: float, late: float) -> Topology:
    return clusters.fat_tree(round((4 * n) ** (1 / 3)), b, late, upper=late)


def _dragonfly(n: int, b: float, late: float) -> Topology:
    groups, routers, hosts = DRAGONFLIES[n]
    return clusters.dragonfly(groups, routers, hosts, b, late, upper=late)


DRAGONFLIES: Final = {6: (3, 2, 1), 36: (9, 4, 1), 72: (9, 4, 2), 264: (33, 8, 1), 1056: (33, 8, 4)}
"""Groups, routers and hosts of balanced ones."""

FAMILIES: Final[Mapping[str, Family]] = {
    "ring": Family(shapes.ring),
    "mesh 1-D": Family(lambda n, b, late: shapes.mesh((n,), b, late)),
    "mesh 2-D": Family(lambda n, b, late: shapes.mesh(near_cube(n, 2), b, late), lambda n: n > 3),
    "torus 2-D": Family(lambda n, b, late: shapes.torus(near_cube(n, 2), b, late), lambda n: n > 3),
    "torus 3-D": Family(lambda n, b, late: shapes.torus(near_cube(n, 3), (b, 2 * b, 4 * b), late), lambda n: n > 7),
    "full": Family(shapes.fully_connected, lambda n: n <= 128),
    "hypercube": Family(shapes.hypercube, lambda n: n & (n - 1) == 0),
    "king mesh": Family(lambda n, b, late: shapes.king_mesh(near_cube(n, 2), b, late), lambda n: n > 3),
    "switch": Family(clusters.switch),
    "NVL72": Family(lambda n, b, late: clusters.nvl72(9 * b, late), lambda n: n == 72),
    "leaf-spine": Family(
        lambda n, b, late: clusters.leaf_spine(n, n // 4, b, late, upper=late), lambda n: n >= 16 and n % 4 == 0
    ),
    "2:1 leaf-spine": Family(
        lambda n, b, late: clusters.leaf_spine(n, n // 4, b, late, oversubscription=2.0, upper=late),
        lambda n: n >= 16 and n % 8 == 0,
    ),
    "fat tree": Family(_fat_tree, lambda n: n in (2, 16, 54, 128, 250, 1024)),
    "SuperPOD": _boxes(clusters.switch, 8, 8),
    "NVL72 racks": _boxes(clusters.switch, 72, 0),
    "meshed boxes": _boxes(lambda n, b, late: shapes.fully_connected(n, b / (n - 1), late), 8, 8),
    "ring boxes": _boxes(lambda n, b, late: shapes.ring(n, b / 2, late), 8, 0),
    "dragonfly": Family(_dragonfly, lambda n: n in DRAGONFLIES),
    "edge list": Family(_edges),
    "matrix": Family(_matrix, lambda n: n <= 64),
}
"""Topologies by constructor, and the sizes that each has."""

_CHIPS: Final = "{{name: s, node: {{accelerator: tpu-v5p, accelerators: 1}}, nodes: {n}, fabric: {{topology: {t}}}}}"
_BOX: Final = "{{name: s, node: {{accelerator: h100-sxm, accelerators: {n}, scale_up: {{topology: {t}}}}}}}"
_POD: Final = "{{base: dgx-h100, name: s, nodes: {n}, fabric: {{topology: {t}}}}}"
_BOXES: Final = (
    "{{base: dgx-h100, name: s, nodes: {n}, "
    "node: {{accelerator: h100-sxm, accelerators: 8, scale_up: {{topology: {t}}}, "
    "nics: {{link: infiniband-ndr, count: 8}}}}}}"
)
_REDUCING: Final = "{{base: dgx-h100, name: s, nodes: {n}, fabric: {{in_network_reduction: true, topology: {t}}}}}"
_WRITTEN: Final = {
    "ring of chips": (_CHIPS, 16, "ring"),
    "mesh of chips": (_CHIPS, 24, "mesh, sides: [6, 4]"),
    "torus of chips": (_CHIPS, 32, "torus, sides: [8, 2, 2], link_bandwidth: [100 GB/s, 50 GB/s, 50 GB/s]"),
    "hypercube of chips": (_CHIPS, 64, "hypercube"),
    "king mesh of chips": (_CHIPS, 16, "king-mesh, sides: [4, 4]"),
    "mesh box": (_BOX, 8, "mesh, sides: [4, 2], link_bandwidth: [100 GB/s, 25 GB/s]"),
    "torus box": (_BOX, 8, "torus, sides: [4, 2]"),
    "hypercube box": (_BOX, 8, "hypercube"),
    "king mesh box": (_BOX, 9, "king-mesh, sides: [3, 3]"),
    "ring of nodes": (_POD, 8, "ring"),
    "full mesh of nodes": (_POD, 8, "full"),
    "mesh of nodes": (_POD, 8, "mesh, sides: [4, 2]"),
    "torus of nodes": (_POD, 16, "torus, sides: [4, 4]"),
    "unequal torus of nodes": (_POD, 16, "torus, sides: [8, 2], link_bandwidth: [100 GB/s, 50 GB/s]"),
    "hypercube of nodes": (_POD, 8, "hypercube"),
    "king mesh of nodes": (_POD, 9, "king-mesh, sides: [3, 3]"),
    "dragonfly of nodes": (_POD, 8, "dragonfly, groups: 4, routers: 2"),
    "hypercube boxes": (_BOXES, 8, "hypercube"),
    "fat tree of pods": (_POD, 16, "fat-tree, arity: 8"),
    "fat tree of leaves": (_POD, 20, "fat-tree, arity: 16"),
    "2:1 leaves": (_POD, 16, "leaf-spine, leaf_nodes: 4, oversubscription: 2"),
    "2:1 rails": (_POD, 16, "rail-optimized, leaf_nodes: 4, oversubscription: 2"),
    "reducing rails": (_REDUCING, 16, "rail-optimized, leaf_nodes: 4"),
    "reducing leaves": (_REDUCING, 16, "leaf-spine, leaf_nodes: 4"),
    "reducing fat tree": (_REDUCING, 16, "fat-tree, leaf_nodes: 2"),
    "reducing switch": (_REDUCING, 4, "single-switch"),
}


@cache
def written(name: str) -> System:
    """A system whose file names a constructor."""
    text, n, t = _WRITTEN[name]
    return build_system(parse_yaml(text.format(n=n, t=t), f"{name}.yaml"))


WRITTEN: Final = tuple(_WRITTEN)
"""Such systems."""
