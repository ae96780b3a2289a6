"""The interconnect of a catalogue system, link by link, at the rates and latencies of the tiers in ``fabric``."""

from functools import lru_cache

import numpy as np

from rapid_llm.errors import InputError
from rapid_llm.hardware.system import Node, System
from rapid_llm.network import shapes
from rapid_llm.network.clusters import leaf_spine, nested, switch
from rapid_llm.network.fabric import SWITCH_HOP, Fabric, Tier, leaf_nodes, of_equal_nodes
from rapid_llm.network.topology import Builder, Topology


@lru_cache(maxsize=16)
def topology_of(system: System, accelerators: int | None = None) -> Topology:
    """Nodes of accelerators (``node0.gpu0``), their cards, leaves and spines.

    InputError where ``accelerators`` is above what the system has or does not fill whole nodes.
    """
    system = of_equal_nodes(system)
    node = system.groups[0].node
    total = system.accelerators if accelerators is None else accelerators
    if not 1 <= total <= system.accelerators:
        raise InputError(
            f"system '{system.name}' has {system.accelerators} accelerators, not {total}.", field="accelerators"
        )
    fabric = Fabric.of(system)
    if fabric.tiers and fabric.tiers[-1].kind == "torus":
        return _torus(fabric.tiers[-1], total)
    if total <= node.accelerators:
        return _box(node, fabric, total)
    if total % node.accelerators:
        raise InputError(
            f"{total} accelerators do not fill whole nodes of {node.accelerators}; "
            f"try {total // node.accelerators * node.accelerators}.",
            field="accelerators",
        )
    return _scale_out(system, node, fabric, total)


def _box(node: Node, fabric: Fabric, count: int) -> Topology:
    """The scale-up fabric of one node, or of the first accelerators of it."""
    tiers = [tier for tier in fabric.tiers if tier.scope == "intra"]
    if not tiers or count == 1:
        return switch(count, 1e12)
    tier = tiers[0]
    if tier.kind == "full" and len(tiers) == 1:
        return shapes.fully_connected(count, tier.bandwidth / max(node.accelerators - 1, 1), tier.latency)
    if tier.kind == "ring":  # some of its accelerators are an open chain
        whole = count == node.accelerators
        return (shapes.ring if whole else _chain)(count, tier.bandwidth / 2, tier.latency)
    if tier.kind in ("full", "shared"):
        return _bridged(tiers, count)
    return switch(count, tier.bandwidth, tier.latency)


def _chain(count: int, bandwidth: float, latency: float) -> Topology:
    return shapes.mesh((count,), bandwidth, latency)


def _bridged(tiers: list[Tier], count: int) -> Topology:
    """Accelerators behind host bridges, tier by tier: each unit of the tier below has one link to the bridge, which all
    in it share; pairs have links of their own besides.
    """
    build = Builder(f"host-{count}")
    gpus = build.add([f"gpu{i}" for i in range(count)], "accelerator")
    ends, below = gpus, 1
    for tier in tiers:
        if tier.kind == "full":
            a, b = np.triu_indices(count, 1)
            near = a // tier.span == b // tier.span
            rate = tier.bandwidth / max(tier.span - 1, 1)
            build.join(gpus[a[near]], gpus[b[near]], rate, tier.latency, "scale-up")
            ports = build.add([f"port{i}" for i in range(-(-count // tier.span))], "host")
            build.join(gpus, ports[np.arange(count) // tier.span], tiers[-1].bandwidth, 0.0, "host")
            ends, below = ports, tier.span
            continue
        units = -(-count // tier.span)
        names = [tier.name] if units == 1 else [f"{tier.name}{i}" for i in range(units)]
        bridges = build.add(names, "host")
        build.join(ends, bridges[np.arange(len(ends)) * below // tier.span], tier.bandwidth, tier.latency / 2, "host")
        ends, below = bridges, tier.span
    return build.build()


def _scale_out(system: System, node: Node, fabric: Fabric, total: int) -> Topology:
    """Boxes with cards below leaves and spines."""
    out, cards = system.fabric, node.nics
    if out is None or cards is None:
        raise InputError(f"system '{system.name}' has no network between its nodes.", field="system.fabric")
    boxes = total // node.accelerators
    count = min(cards.count, node.accelerators)
    while node.accelerators % count:
        count -= 1
    tier = next(t for t in fabric.tiers if t.scope == "inter")
    rate = tier.bandwidth * (max(out.oversubscription, 1.0) if tier.name == "spine" else 1.0)
    port = rate * node.accelerators / count
    rail = out.topology == "rail-optimized"
    below = leaf_nodes(node, out) * (1 if rail else count)
    single = out.topology == "single-switch"
    wire = tier.latency - (out.hops * SWITCH_HOP if tier.name == "spine" else SWITCH_HOP)
    outer = leaf_spine(
        boxes * count,
        boxes * count if single else below,
        port,
        wire + SWITCH_HOP,
        oversubscription=max(out.oversubscription, 1.0),
        upper=(out.hops - 1) * SWITCH_HOP,
        rails=count if rail else 1,
    )
    box = _box(node, fabric, node.accelerators)
    return nested([box] * boxes, outer, name=f"{system.name} x {boxes}")


def _torus(tier: Tier, total: int) -> Topology:
    """A torus as near to a cube as its size allows; a chip's bandwidth is shared by two links along each dimension."""
    return shapes.torus(tier.sides(total), tier.bandwidth / (2 * tier.dimensions), tier.latency)
