"""Where nothing contends, the flow simulation takes its closed form: every constructor, 2 to 1,024 ranks."""

import numpy as np
import pytest

from rapid_llm.network import Fabric, Tier, clusters, price, shapes, templates
from rapid_llm.network.engine import simulate
from rapid_llm.network.programs import latencies, program, run_in_slices
from rapid_llm.network.routing import route

from . import toys

B, L, SIZE = 50e9, 1e-6, 512e6


def snake(sides):
    """Ranks of a grid in an order in which neighbours are joined: axis 0 to and fro, axis 1 to and fro, ..."""
    order = [()]
    for side in reversed(sides):
        order = [
            (*one, k) for i, one in enumerate(order) for k in (range(side) if i % 2 == 0 else range(side - 1, -1, -1))
        ]
    strides = np.cumprod([1, *sides[:-1]])
    return np.array([sum(k * s for k, s in zip(reversed(one), strides, strict=True)) for one in order])


def gray(count):
    ranks = np.arange(count)
    return ranks ^ (ranks >> 1)


def in_order(topology):
    return topology, topology.accelerators


def boxed(boxes, inner=8):
    outer = clusters.leaf_spine(boxes * inner, min(boxes, 32), B, 2 * L, rails=inner, upper=L)
    return clusters.nested([clusters.switch(inner, 450e9, L)] * boxes, outer)


def in_tori(boxes, sides):
    outer = clusters.leaf_spine(boxes, boxes, B, 2 * L)
    placed = np.concatenate([snake(sides) + k * int(np.prod(sides)) for k in range(boxes)])
    topology = clusters.nested([shapes.torus(sides, B, L)] * boxes, outer)
    return topology, topology.accelerators[placed]


CASES = {
    **{f"ring {n}": (lambda n=n: in_order(shapes.ring(n, B, L))) for n in (2, 3, 16, 1024)},
    **{f"mesh {s}": (lambda s=s: (shapes.mesh(s, B, L), snake(s))) for s in ((2, 2), (4, 4), (32, 32), (4, 4, 4))},
    **{f"torus {s}": (lambda s=s: (shapes.torus(s, B, L), snake(s))) for s in ((4, 4), (32, 32), (8, 8, 16))},
    **{f"full {n}": (lambda n=n: in_order(shapes.fully_connected(n, B, L))) for n in (2, 5, 32)},
    **{f"hypercube {n}": (lambda n=n: (shapes.hypercube(n, B, L), gray(n))) for n in (2, 8, 1024)},
    **{f"king mesh {s}": (lambda s=s: (shapes.king_mesh(s, B, L), snake(s))) for s in ((2, 4), (16, 16), (32, 32))},
    **{f"nvswitch {n}": (lambda n=n: in_order(clusters.switch(n, B, L))) for n in (2, 7, 8, 1024)},
    **{f"leaf-spine {n}": (lambda n=n: in_order(clusters.leaf_spine(n, 16, B, L, upper=L))) for n in (16, 64, 1024)},
    "oversubscribed": lambda: in_order(clusters.leaf_spine(256, 16, B, L, upper=L, oversubscription=4)),
    **{f"fat tree {k}": (lambda k=k: in_order(clusters.fat_tree(k, B, L, upper=L))) for k in (2, 4, 16)},
    "nvl72": lambda: in_order(clusters.nvl72(B, L)),
    **{
        f"dragonfly {s}": (lambda s=s: in_order(clusters.dragonfly(*s, B, L, upper=L)))
        for s in ((2, 1, 2), (4, 4, 4), (8, 8, 8), (16, 16, 4))
    },
    **{f"rails {n}": (lambda n=n: in_order(boxed(n))) for n in (2, 32, 128)},
    "tori": lambda: in_tori(4, (4, 4)),
}


def around(topology, nodes, rounds):
    """Seconds of a ring whose ranks send ``SIZE / n`` a round: the slowest hop, or the mean of all where data wait for
    no hop (the largest cycle mean of the max-plus system: Baccelli et al., Synchronization and Linearity, 1992).
    """
    routes = route(topology, nodes, np.roll(nodes, -1))
    sends = SIZE / len(nodes) / np.minimum.reduceat(topology.bandwidth[routes.link], routes.start[:-1])
    waits = latencies(topology, routes)
    return rounds * max(sends.max(), (sends + waits).mean()), waits, sends.max()


@pytest.mark.parametrize("name", CASES)
def test_rings_chains_and_neighbours(name):
    topology, nodes = CASES[name]()
    n = len(nodes)
    once, waits, slowest = around(topology, nodes, n - 1)
    expected = {
        "all_gather": once,
        "reduce_scatter": once,
        "all_reduce": 2 * once,
        "send_recv": n * slowest + waits.max(),
        "broadcast": n * slowest + waits[:-1].sum(),
    }
    for op, seconds in expected.items():
        template = templates.BUILDERS["p2p" if op == "send_recv" else "ring"][0](op, (n,), 0)

        def run(slices, template=template):
            some = program(template, (n,), SIZE, topology, placement=nodes, channels=1, slices=slices)
            assert template.phases[1:] or np.bincount(some.resource).max() == 1, "a link is shared"
            return simulate(some, topology)

        assert run_in_slices(template, run).seconds == pytest.approx(seconds, rel=0.01), op
    if len(set(np.round(waits, 12))) == 1:  # one kind of hop: what is priced
        one = Fabric((Tier("node", n, SIZE / n / slowest, float(waits[0]), "toy"),), "toy")
        for op in ("all_gather", "reduce_scatter", "all_reduce", "broadcast"):
            priced = price(op, SIZE, n, 1, fabric=one, library=toys.library("ring")).seconds.item()
            assert priced == pytest.approx(expected[op], rel=1e-6)


@pytest.mark.parametrize("n", [2, 8, 64, 1024])
def test_halving_and_doubling_on_a_hypercube(n):
    cube = shapes.hypercube(n, B, L)
    one = Fabric((Tier("node", n, B, L, "toy"),), "toy")
    for op in ("all_gather", "reduce_scatter", "all_reduce"):
        template = templates.halving_doubling(op, (n,), 0)
        expected = price(op, SIZE, n, 1, fabric=one, library=toys.library("halving-doubling")).seconds.item()
        assert simulate(program(template, (n,), SIZE, cube), cube).seconds == pytest.approx(expected, rel=0.01)


@pytest.mark.parametrize(
    "build",
    [
        lambda: clusters.switch(128, B, L),
        lambda: clusters.nvl72(B, L),
        lambda: clusters.leaf_spine(64, 8, B, L),
        lambda: clusters.fat_tree(4, B, L),
        lambda: shapes.fully_connected(24, B / 23, L),
    ],
)
@pytest.mark.parametrize(("op", "algorithm"), [("all_to_all", "direct"), ("all_reduce", "two-shot")])
def test_exchanges_at_full_bisection(build, op, algorithm):
    topology = build()
    n = len(topology.accelerators)
    one = Fabric((Tier("node", n, B, L, "toy"),), "toy")
    template = templates.BUILDERS[algorithm][0](op, (n,), 0)
    expected = price(op, SIZE, n, 1, fabric=one, library=toys.library(algorithm)).seconds.item()
    some = program(template, (n,), SIZE, topology, policy="spray")
    assert simulate(some, topology).seconds == pytest.approx(expected, rel=0.01)


@pytest.mark.parametrize("sides", [(4, 4), (2, 4), (8, 8, 16)])
def test_rings_axis_by_axis_on_a_torus(sides):
    torus = shapes.torus(sides, B, L)
    n = int(np.prod(sides))
    bounds = tuple(int(b) for b in np.cumprod(sides))
    tiers = tuple(Tier(f"axis {k}", bound, B, L, "toy") for k, bound in enumerate(bounds))
    for op in ("all_gather", "reduce_scatter", "all_reduce"):
        template = templates.hierarchical(op, bounds, 1)
        expected = price(op, SIZE, n, 1, fabric=Fabric(tiers, "toy"), library=toys.library("hierarchical")).seconds
        some = program(template, bounds, SIZE, torus)
        assert simulate(some, torus).seconds == pytest.approx(expected.item(), rel=0.01)
