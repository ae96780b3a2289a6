"""``price`` on the fabric of every catalogue system against flow simulation of its links, where nothing contends."""

import numpy as np
import pytest

from rapid_llm import hardware
from rapid_llm.network import Fabric, price
from rapid_llm.network.contention import RUNS, on_links
from rapid_llm.network.flow_prices import Links, interconnect, price_flow
from rapid_llm.network.groups import group_of
from rapid_llm.network.lines import ways
from rapid_llm.network.technologies import library_for
from rapid_llm.network.templates import OPS
from rapid_llm.network.topology import Topology

from . import toys

EXCHANGES = ("direct", "pxn", "one-shot", "two-shot")
SIZES = (2**20, 2**28)
RANKS = (2, 4, 8, 16, 64)
LARGE = ("azure-nd-h100-v5", "l40s-pcie-8", "p5", "a3-mega", "mi300x-8", "lumi-g", "tpu-v5e-pod")
MANY = {"dgx-h100": (256, 1024), "gb200-nvl72": (72, 144), **dict.fromkeys(LARGE, (256,))}
"""Larger groups, of systems that differ in what joins their nodes."""


def tiers(name):
    return tuple(
        (t.kind, t.span, t.bandwidth, t.latency, t.port, t.astray, t.in_network_reduction, t.dimensions)
        for t in Fabric.of(hardware.system(name)).tiers
    )


SYSTEMS = sorted({tiers(name): name for name in (*hardware.system_names(), *MANY)}.values())


def contends(algorithm, group):
    """Why the sends of an algorithm meet on links that they share unequally or by turns; empty where they do not."""
    tier, n, exchange = group.tiers[0], group.bounds[0], algorithm in EXCHANGES
    sides = set(tier.sides(n)) if tier.kind == "torus" else {n}
    if algorithm == "orders" and tier.kind != "torus":
        return "orders over tiers of unlike speed wait for each other"
    if algorithm == "orders" and len(sides) > 1:
        return "so do orders over axes of unlike length"
    if tier.kind == "torus" and len(tier.sides(n)) > 1 and not exchange and algorithm != "orders":
        return "the turn from one row to the next takes links of others"
    if exchange and (len(sides) > 1 or (tier.kind == "ring" and n * group.stride < tier.span)):
        return "those between the ends of an open chain, or of unlike axes, pass on what others send"
    if algorithm == "tree" and group.nodes == 1:
        return "chains cross a host bridge both ways at once"
    return ""


@pytest.mark.parametrize("name", SYSTEMS)
def test_closed_forms_are_those_of_the_links(name):
    system = hardware.system(name)
    fabric, node = Fabric.of(system), system.groups[0].node.accelerators
    for n in (*RANKS, *MANY.get(name, ())):
        if n > system.accelerators or (n > node and n % node and fabric.tiers[-1].kind != "torus"):
            continue
        topology = Topology.of(system, n if fabric.tiers[-1].kind == "torus" else max(n, node))
        library, group = toys.library(*RUNS), group_of(fabric, n, 1)
        for op in OPS:
            for way in ways(op, group, library):
                if contends(way.algorithm, group) or (n > 256 and way.algorithm in EXCHANGES):
                    continue
                for size in SIZES:
                    simulated = on_links(way, size, topology, np.arange(n)[None]).seconds
                    only = price(op, size, n, 1, fabric=fabric, library=toys.library(way.algorithm)).seconds
                    assert simulated == pytest.approx(only.item(), rel=0.01), (n, op, way.algorithm, size)


@pytest.mark.parametrize(
    ("name", "n"),
    [
        *((name, 64) for name in ("dgx-h100", "p5", "mi300x-8", "lumi-g", "l40s-pcie-8", "a3-mega", "tpu-v5e-pod")),
        ("gb200-nvl72", 144),
        ("dgx-h100", 256),
    ],
)
def test_what_a_library_takes_is_one_number(name, n):
    system = hardware.system(name)
    fabric, net = Fabric.of(system), interconnect(system, Links(n))
    library = library_for(system.groups[0].node.accelerator.vendor)
    for op in ("all_reduce", "all_gather", "all_to_all"):
        sizes = [2**20, 2**24, 2**28]
        closed = price(op, sizes, n, 1, fabric=fabric, library=library).seconds
        assert price_flow(op, sizes, n, 1, net=net, fabric=fabric, library=library).seconds == pytest.approx(
            closed, rel=0.01
        ), op
