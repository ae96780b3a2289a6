"""What joins the accelerators of a system: the tiers inside a node, and those of the network between nodes."""

from dataclasses import replace
from functools import lru_cache

from rapid_llm.errors import InputError
from rapid_llm.hardware.system import SHAPES, LinkUse, Node, ScaleOutFabric, ScaleUpFabric, System
from rapid_llm.network.technologies import link
from rapid_llm.network.tier import Tier, near_cube
from rapid_llm.network.wiring import Wires, direct, dragonfly, links_of_port, routed
from rapid_llm.units import Si

SWITCH_HOP = 0.25e-6
"""Seconds through one network switch and its cable (Quantum-2: about 130 ns port to port; 20 m of fibre: 100 ns)."""
STAGED = "host-staged"
"""The link of accelerators whose driver has no peer-to-peer: through host memory."""
TORUS_DIMENSIONS = 3
"""Assumed of a torus whose links do not say."""


def node_tiers(node: Node) -> tuple[Tier, ...]:
    """Tiers inside one node: the scale-up fabric, and the host links where it does not reach all."""
    count, use = node.accelerators, node.host_link
    if count == 1:
        return ()
    up, lanes = node.scale_up, link(use.link)
    if not node.accelerator.peer_to_peer and lanes.staged is not None:
        use = LinkUse(link=STAGED, bandwidth=Si(lanes.staged * (use.bandwidth or lanes.bandwidth)), count=use.count)
    shared: tuple[Tier, ...] = (_bridge("host", use, count),)
    if node.socket_link is not None:
        shared = (_bridge("host", use, count // 2), _bridge("sockets", node.socket_link, count))
    if up.topology == "none":
        return shared
    port = node.accelerator.scale_up
    name = up.link or (port.link if port else None)
    bandwidth = up.bandwidth or (port.bandwidth if port else None)
    if name is None or bandwidth is None:
        raise InputError(
            f"scale_up.topology '{up.topology}' needs a link, but accelerator '{node.accelerator.name}' has no "
            "scale-up port; give scale_up.link and scale_up.bandwidth, or topology: none.",
            field="system.groups[0].node.scale_up",
        )
    technology = link(name)
    latency = technology.latency if up.latency is None else up.latency
    if up.topology == "pairs":
        pair = Tier("pair", up.group or 2, bandwidth, latency, name, "full")
        return (pair, *(replace(tier, behind=pair.span) for tier in shared))
    if up.topology in SHAPES:
        return (_shaped(up, count, bandwidth, latency, name),)
    return (Tier("node", count, bandwidth, latency, name, in_network_reduction=up.in_network_reduction),)


def _shaped(up: ScaleUpFabric | ScaleOutFabric, count: int, port: float, latency: float, name: str) -> Tier:
    """The tier of accelerators that are joined to each other, by ports of ``port`` B/s unless their links say it."""
    topology, sides = up.topology, sides_of(up, count, 2)
    many, rates = links_of_port(topology, count, sides), up.link_bandwidth
    if rates:
        port = rates[0] * many if len(rates) == 1 else 2 * sum(rates)
    tier = Tier(topology, count, port, latency, name)
    if topology in ("ring", "full"):
        return replace(tier, name="node", kind="ring" if topology == "ring" else "full")
    if topology == "torus":
        along = () if rates is None or len(rates) == 1 else tuple(2 * rate for rate in rates)
        return replace(tier, kind="torus", dimensions=len(sides), lengths=sides, rates=along)
    return replace(tier, kind="wired", wires=Wires(direct(topology, count, sides, rates or (port / many,), latency)))


def sides_of(fabric: ScaleUpFabric | ScaleOutFabric, count: int, dimensions: int) -> tuple[int, ...]:
    """Places along each axis of a mesh or torus: as written, or as near to a cube as their number allows."""
    return fabric.sides or near_cube(count, dimensions)


def _bridge(name: str, use: LinkUse, span: int) -> Tier:
    """The host bridge that ``span`` accelerators share."""
    technology = link(use.link)
    latency = technology.latency if use.latency is None else use.latency
    return Tier(name, span, (use.bandwidth or technology.bandwidth) * use.count, latency, use.link, "shared")


def network_tiers(node: Node, system: System) -> tuple[Tier, ...]:
    """Tiers between nodes: one leaf, then the spine with its oversubscription; or one torus."""
    fabric, total = system.fabric, system.accelerators
    if fabric is None or total <= node.accelerators:
        return ()
    if node.nics is None and fabric.topology in SHAPES:
        return (_chips(node, fabric, total),)
    if node.nics is None:
        raise InputError(
            f"system '{system.name}' has a {fabric.topology} fabric, but its node has no nics; give node.nics.",
            field="system.groups[0].node.nics",
        )
    if fabric.topology in SHAPES or fabric.topology == "dragonfly":
        return (_between_cards(node, system),)
    technology = link(node.nics.link)
    rate = (node.nics.bandwidth or technology.bandwidth) * node.nics.count / node.accelerators
    wire = technology.latency if node.nics.latency is None else node.nics.latency
    reach = total if fabric.topology == "single-switch" else leaf_nodes(node, fabric) * node.accelerators
    reduces = fabric.in_network_reduction
    served = node.accelerators // cards_of(node)
    upper = (fabric.hops - 1) * SWITCH_HOP
    leaf = Tier(
        "leaf",
        min(reach, total),
        rate,
        wire + SWITCH_HOP,
        technology.name,
        "switch",
        "inter",
        reduces,
        behind=served,
        port=rate * served,
        astray=upper if fabric.topology == "rail-optimized" else 0.0,
    )
    if total <= reach:
        return (leaf,)
    over = max(fabric.oversubscription, 1.0)
    spine = replace(leaf, name="spine", span=total, bandwidth=rate / over, latency=leaf.latency + upper, astray=0.0)
    return (*((leaf,) if reach > node.accelerators else ()), *_pods(node, fabric, spine))


def _pods(node: Node, fabric: ScaleOutFabric, spine: Tier) -> tuple[Tier, ...]:
    """The spine as it is, or up to the pods of a fat tree of switches of ``arity`` k, (k / 2)^2 cards each, and the
    core above (Al-Fares et al. 2008); of pods that hold no two leaves the core alone."""
    pod = (fabric.arity // 2) ** 2 // cards_of(node) * node.accelerators if fabric.arity else spine.span
    if pod >= spine.span:
        return (spine,)
    core = replace(spine, name="core", latency=spine.latency + 2 * SWITCH_HOP)
    two_leaves = pod > leaf_nodes(node, fabric) * node.accelerators
    return (replace(spine, span=pod), core) if two_leaves else (core,)


def _chips(node: Node, fabric: ScaleOutFabric, total: int) -> Tier:
    """Accelerators that are joined by ports of their own, a node each."""
    if fabric.topology == "torus" and fabric.sides is None and fabric.link_bandwidth is None:
        return _torus(node, total)
    port = node.accelerator.scale_up
    if node.accelerators > 1 or port is None:
        lacks = f"nodes of {node.accelerators}" if node.accelerators > 1 else "accelerators without a scale-up port"
        raise InputError(
            f"a {fabric.topology} of {lacks} needs network cards to join them; give node.nics.",
            field="system.groups[0].node.nics",
        )
    tier = _shaped(fabric, total, port.bandwidth, link(port.link).latency, port.link)
    return replace(tier, lengths=(total,)) if tier.kind == "ring" else tier


def cards_of(node: Node) -> int:
    """Network cards that serve equally many accelerators of a node each."""
    count = min(node.nics.count if node.nics else 1, node.accelerators)
    return next(c for c in range(count, 0, -1) if node.accelerators % c == 0)


def _between_cards(node: Node, system: System) -> Tier:
    """The tier of nodes whose cards are joined to each other, or to the routers of a dragonfly."""
    assert system.fabric is not None
    assert node.nics is not None
    technology, wires = link(node.nics.link), between_cards(system)
    latency = (technology.latency if node.nics.latency is None else node.nics.latency) + SWITCH_HOP
    rate, name = wires.reach(wires.places, node.accelerators), system.fabric.topology
    port = min(one_card(node)[1], float(wires.topology.bandwidth.min()))
    return Tier(name, system.accelerators, rate, latency, technology.name, "wired", "inter", port=port, wires=wires)


@lru_cache(maxsize=16)
def between_cards(system: System) -> Wires:
    """The network between all cards, node after node: routers of nodes that are joined directly, or a dragonfly."""
    fabric, node, nodes = system.fabric, system.groups[0].node, system.groups[0].count
    assert fabric is not None
    count, card, wire = one_card(node)
    if fabric.topology == "dragonfly":
        built = dragonfly(fabric, nodes * count, card, wire + SWITCH_HOP, 2 * SWITCH_HOP)
    else:
        sides = sides_of(fabric, nodes, TORUS_DIMENSIONS if fabric.topology == "torus" else 2)
        rates = fabric.link_bandwidth or (card * count / links_of_port(fabric.topology, nodes, sides),)
        built = routed(direct(fabric.topology, nodes, sides, rates, SWITCH_HOP), count, card, wire)
    return Wires(built, node.accelerators, count)


def one_card(node: Node) -> tuple[int, float, float]:
    """Cards of a node that serve accelerators, B/s of each, and seconds from one over a cable to another."""
    assert node.nics is not None
    technology, count = link(node.nics.link), cards_of(node)
    rate = (node.nics.bandwidth or technology.bandwidth) * node.nics.count / count
    return count, rate, technology.latency if node.nics.latency is None else node.nics.latency


def leaf_nodes(node: Node, fabric: ScaleOutFabric) -> int:
    """Nodes below one leaf, unless the fabric says: a rail leaf takes one card of each, any other leaf all cards of a
    node; a port that is split takes more cards.
    """
    if fabric.leaf_nodes or node.nics is None:
        return fabric.leaf_nodes or 1
    technology = link(node.nics.link)
    split = max(1, int(technology.bandwidth / (node.nics.bandwidth or technology.bandwidth)))
    ports = fabric.arity // 2 if fabric.arity else technology.downlinks * split
    return ports if fabric.topology == "rail-optimized" else max(1, ports // node.nics.count)


def _torus(node: Node, total: int) -> Tier:
    port = node.accelerator.scale_up
    if port is None:
        raise InputError(
            f"a torus needs the scale-up port of accelerator '{node.accelerator.name}'; give accelerator.scale_up.",
            field="system.groups[0].node.accelerator.scale_up",
        )
    technology = link(port.link)
    dimensions = technology.torus_dimensions or TORUS_DIMENSIONS
    return Tier("torus", total, port.bandwidth, technology.latency, port.link, "torus", dimensions=dimensions)
