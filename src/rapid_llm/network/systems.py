"""The interconnect of a catalogue system, link by link, at the rates and latencies of the tiers in ``fabric``."""

from functools import lru_cache

import numpy as np

from rapid_llm.errors import InputError
from rapid_llm.hardware.system import Node, System
from rapid_llm.network import shapes
from rapid_llm.network.clusters import fat_tree, leaf_spine, nested, switch
from rapid_llm.network.fabric import Fabric, of_equal_nodes
from rapid_llm.network.system_tiers import SWITCH_HOP, leaf_nodes, one_card
from rapid_llm.network.tier import Tier
from rapid_llm.network.topology import Builder, Topology
from rapid_llm.network.wiring import first


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
    if node.accelerators == 1 and node.nics is None and system.fabric is not None and fabric.tiers:
        return _chips(system, fabric.tiers[-1], total)
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
    if tier.kind in ("torus", "wired"):
        return first(_joined(tier), count)
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
    boxes, (count, port, wire) = total // node.accelerators, one_card(node)
    name, box = f"{system.name} x {boxes}", _box(node, fabric, node.accelerators)
    if (wires := fabric.tiers[-1].wires) is not None:
        return nested([box] * boxes, wires.topology, name=name, per_box=count)
    rail = out.topology == "rail-optimized"
    below = leaf_nodes(node, out) * (1 if rail else count)
    single = out.topology == "single-switch"
    if out.arity:
        tree = fat_tree(out.arity, port, wire + SWITCH_HOP, upper=(out.hops - 1) * SWITCH_HOP)
        if len(tree.accelerators) < system.groups[0].count * count:
            raise InputError(
                f"a fat tree of switches with {out.arity} ports has {len(tree.accelerators)} places, but system "
                f"'{system.name}' has {system.groups[0].count} nodes of {count} cards; give a larger arity.",
                field="system.fabric.arity",
            )
        return nested([box] * boxes, tree, name=name, per_box=count)
    outer = leaf_spine(
        boxes * count,
        boxes * count if single else below,
        port,
        wire + SWITCH_HOP,
        oversubscription=max(out.oversubscription, 1.0),
        upper=(out.hops - 1) * SWITCH_HOP,
        spines=out.spines,
        rails=count if rail else 1,
    )
    return nested([box] * boxes, outer, name=name)


def _chips(system: System, tier: Tier, total: int) -> Topology:
    """Accelerators joined by ports of their own. Of a torus without sides a job gets a slice as near to a cube as its
    size allows; else its first accelerators, and the others forward.
    """
    if tier.kind == "torus" and not tier.lengths:
        return shapes.torus(tier.sides(total), tier.bandwidth / (2 * tier.dimensions), tier.latency)
    if tier.kind == "full":
        return shapes.fully_connected(total, tier.bandwidth / max(system.accelerators - 1, 1), tier.latency)
    if tier.kind == "ring":
        whole = total == system.accelerators
        return (shapes.ring if whole else _chain)(total, tier.bandwidth / 2, tier.latency)
    return first(_joined(tier), total)


def _joined(tier: Tier) -> Topology:
    """All accelerators of a torus of known sides, or of another constructor."""
    if tier.wires is not None:
        return tier.wires.topology
    rates = [rate / 2 for rate in tier.rates] or tier.bandwidth / (2 * tier.dimensions)
    return shapes.torus(tier.lengths, rates, tier.latency)
