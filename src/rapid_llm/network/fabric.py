"""A system seen by its network: tiers of reach, innermost first."""

from dataclasses import dataclass, replace
from functools import lru_cache
from math import ceil, gcd, log
from typing import Literal

from rapid_llm.errors import InputError
from rapid_llm.hardware.system import SHAPES, LinkUse, Node, ScaleOutFabric, ScaleUpFabric, System, part_of
from rapid_llm.network.technologies import Scope, link
from rapid_llm.network.wiring import Wires, direct, dragonfly, links_of_port, routed

Kind = Literal["switch", "full", "ring", "torus", "axis", "shared", "wired"]

SWITCH_HOP = 0.25e-6
"""Seconds through one network switch and its cable (Quantum-2: about 130 ns port to port; 20 m of fibre: 100 ns)."""
TORUS_SIDE = 4
"""Chips along a dimension of the smallest torus slice (TPU v4 and v5p: cubes of 4 x 4 x 4; Jouppi et al. 2023)."""
TORUS_DIMENSIONS = 3
"""Assumed of a torus whose links do not say."""


def woven_steps(count: int) -> tuple[int, ...]:
    """Disjoint chains from one rank of a full mesh through all others, by the step that each makes: those prime to
    ``count``; for 8 there are 7 (of other steps). Of 4 and 6 there are fewer than links (Tillson 1980).
    """
    return tuple(step for step in range(1, count) if count == 8 or gcd(step, count) == 1)


def near_cube(count: int, dimensions: int) -> tuple[int, ...]:
    """Factors of ``count`` in so many dimensions, the largest as small as it can be: 64 in three is (4, 4, 4)."""
    if dimensions == 1:
        return (count,)
    root = round(count ** (1 / dimensions))
    side = next(f for f in range(min(count, root + 1), 0, -1) if count % f == 0 and f**dimensions <= count)
    return (side, *near_cube(count // side, dimensions - 1))


@dataclass(frozen=True, eq=False, slots=True)
class Tier:
    """What connects ``span`` consecutive accelerators.

    bandwidth: B/s per accelerator and direction while all of them communicate; latency: one hop (s); kind: ``switch``
    non-blocking, ``full`` a link per pair, ``ring``, ``torus`` of ``dimensions``, ``axis`` one of those, ``shared`` one
    host bridge, whose units cross over a single link; ``behind`` accelerators each, whose groups share it, ``wired``
    any other constructor, whose ``wires`` say what a pattern loads on them. ``port``: B/s of one whose neighbours are
    silent, where that is more; ``astray``: what a hop to another rail adds (s); ``lengths`` of a torus's dimensions
    where its file says them, or of a ring of chips, and ``rates`` (B/s) of them where they differ.
    """

    name: str
    span: int
    bandwidth: float
    latency: float
    link: str
    kind: Kind = "switch"
    scope: Scope = "intra"
    in_network_reduction: bool = False
    dimensions: int = 1
    behind: int = 1
    port: float = 0.0
    astray: float = 0.0
    wires: Wires | None = None
    lengths: tuple[int, ...] = ()
    rates: tuple[float, ...] = ()

    @property
    def by_links(self) -> bool:
        """Whether a pattern loads its links unevenly, by where ranks lie, so that what it loads is looked up."""
        return self.wires is not None or bool(self.lengths)

    def reach(self, members: int, stride: int, beside: int = 1) -> float:
        """B/s per accelerator that a group of ``members``, ``stride`` apart, can use of this tier, where ``beside``
        groups alternate."""
        if self.kind == "full":
            return self.bandwidth * (members - 1) / (self.span - 1)
        if self.kind == "ring":  # every hop passes `stride` links; an open chain returns over its own links
            closed = members * stride >= self.span
            return self.bandwidth / stride / (1 if closed else 2)
        if self.kind == "torus":  # a group along d of D dimensions drives d/D of the links, two chips a single one
            along = self.used(members)
            drives = sum(self.rates[:along]) if self.rates else self.bandwidth * along / self.dimensions
            return drives / (2 if members == 2 else 1)
        if self.wires is not None:
            return self.wires.reach(members, stride)
        if self.kind == "shared":  # groups that take one accelerator of each unit cross at once
            return self.bandwidth / min(beside, self.behind)
        return self.bandwidth

    def passing(self, members: int, stride: int) -> float:
        """B/s per accelerator of rings through many such rings of links: all but one of their hops stay in this one,
        and as many groups as their stride pass every link, but a channel takes no more than its part of a port.
        """
        return self.bandwidth * members / max(stride * (members - 1), members)

    def chains(self, members: int) -> float:
        """B/s of chains from one member of a full mesh through all others, on as many disjoint ones as there are."""
        return self.bandwidth * len(woven_steps(members)) / (self.span - 1)

    def exchange_hops(self, members: int, stride: int = 1) -> float:
        """Mean links that a byte crosses in an exchange among all members, shortest way, ties split.

        Ring of n: n^2 / (4 (n - 1)), of an odd n (n + 1) / 4; a torus sums its dimensions (notes: all-to-all on a ring
        takes S n / (8 B)). Of wires it is what their busiest link carries over what a ring's busiest does.
        """
        if self.wires is not None and members > 1:
            return self.wires.exchange(members, stride).seconds / self.wires.ring(members, stride).seconds
        if self.kind not in ("ring", "torus") or members < 2:
            return 1.0
        sides = self.sides(members)
        # a side of two has one link, not two; of an odd one no chip is opposite
        longest = max(4 if side == 2 < members else side - side % 2 / side for side in sides)
        return max(1.0, len(sides) * longest / 4 * members / (members - 1))

    def farthest(self, members: int, stride: int) -> int:
        """Links between the two members that are farthest from each other."""
        if self.wires is not None:
            return self.wires.exchange(members, stride).longest
        if self.kind == "ring":
            return (members // 2 if members * stride >= self.span else members - 1) * stride
        return sum(side // 2 for side in self.sides(members)) if self.kind == "torus" else 1

    def hop_links(self, members: int, stride: int, *, closing: bool = False) -> float:
        """Links on a hop from member to member; with ``closing``, on a mean one of the latest datum on a ring of them,
        which returns over the links of an open chain.
        """
        if self.wires is not None:
            return self.wires.ring(members, stride).mean
        if self.kind != "ring":
            return 1.0
        return stride * (2 * members - 3) / (members - 1) if closing and members * stride < self.span else stride

    def pair(self, members: int, distance: int, stride: int) -> tuple[int, float]:
        """Of an exchange with the member whose number differs by ``distance`` (a power of two) in one bit: links on the
        way, and what the busiest of them carries over what ``reach`` gives a member. Of a mesh only one link is used.
        """
        if self.wires is not None:
            found = self.wires.pair(members, distance, stride)
            return found.longest, found.seconds / self.wires.ring(members, stride).seconds
        if self.kind == "full":
            return 1, members - 1.0
        if self.kind == "ring":
            closed, opposite = members * stride >= self.span, 2 * distance == members
            return distance * stride, distance * (2.0 if closed and not opposite else 1.0)
        if self.kind != "torus":
            return 1, 1.0
        for side in self.sides(members):
            if distance < side:
                break
            distance //= side
        both = 2.0 if side == 2 * distance > 2 else 1.0  # to the opposite chip both ways alike
        return distance, distance / both * self.used(members) * (1.0 if members == 2 else 2.0)

    def from_the_middle(self, members: int, stride: int) -> tuple[int, float]:
        """Of an exchange along an open chain: links by which those in its middle have heard of all before its ends
        have, so that they start the next one earlier, and what its end links carry of what the middle one does.
        """
        if self.kind != "ring" or members * stride >= self.span or members < 3:
            return 0, 1.0
        return (members - 1 - members // 2) * stride, (members - 1) / (members // 2 * ceil(members / 2))

    def turn(self, members: int, stride: int) -> float:
        """Links between the two of a row that are farthest apart: of a torus, at the turn from one face to the next."""
        return len(self.sides(members)) if self.kind == "torus" else self.hop_links(members, stride)

    def sides(self, members: int) -> tuple[int, ...]:
        """Chips of a group along each dimension of a torus that it uses."""
        if filled := self._filled(members):
            return tuple(side for side in filled if side > 1) or (1,)
        return tuple(side for side in near_cube(members, self.used(members)) if side > 1) or (1,)

    def used(self, members: int) -> int:
        """Dimensions along which a group lies: cubes of TORUS_SIDE fill one dimension after another."""
        if filled := self._filled(members):
            return max(1, sum(side > 1 for side in filled))
        return min(self.dimensions, max(1, ceil(log(members, TORUS_SIDE) - 1e-9)))

    def _filled(self, members: int) -> tuple[int, ...]:
        """Chips along each dimension of a torus of known sides, filled one after another; () of any other."""
        found, left = [], members
        for length in self.lengths:
            found.append(min(length, left) if left % length == 0 or length % left == 0 else gcd(length, left))
            left //= found[-1]
        return tuple(found) if left == 1 else ()


@dataclass(frozen=True, eq=False, slots=True)
class Fabric:
    """Tiers of a system, innermost first; ``accelerators`` of the job that groups fill (0: of one group); ``links``:
    the system, whose links say more than tiers do of some groups.
    """

    tiers: tuple[Tier, ...]
    name: str = "fabric"
    accelerators: int = 0
    links: System | None = None

    @staticmethod
    def of(system: System, accelerators: int = 0) -> "Fabric":
        """The tiers of a system of equal nodes; ``network.mixed`` has those of others."""
        return _of(system) if not accelerators else _for_job(system, accelerators)

    def without_reduction(self) -> "Fabric":
        """The same fabric for data that its switches do not reduce, such as integers."""
        return _without_reduction(self)

    @property
    def node_span(self) -> int:
        """Accelerators of one node (or rack-scale domain)."""
        return max((tier.span for tier in self.tiers if tier.scope == "intra"), default=1)


@lru_cache(maxsize=64)
def _without_reduction(fabric: Fabric) -> Fabric:
    return replace(fabric, tiers=tuple(replace(tier, in_network_reduction=False) for tier in fabric.tiers))


@lru_cache(maxsize=256)
def _for_job(system: System, accelerators: int) -> Fabric:
    fabric = _of(system)
    sizes = [accelerators, *(tier.span for tier in fabric.tiers if tier.span < accelerators)]
    if fabric.links is None and all(size & (size - 1) == 0 for size in sizes):  # groups of such a job straddle nothing
        return fabric
    return replace(fabric, accelerators=accelerators)


@lru_cache(maxsize=64)
def _of(system: System) -> Fabric:
    system = of_equal_nodes(system)
    node = system.groups[0].node
    tiers = (*node_tiers(node), *network_tiers(node, system))
    told = any(tier.by_links or tier.kind == "ring" for tier in tiers)
    return Fabric(tiers, system.name, links=system if told else None)


def of_equal_nodes(system: System) -> System:
    """The system with its groups as one; InputError where they are unlike."""
    whole = part_of(system, system.accelerators)
    if whole.mixed:
        names = [group.name for group in system.groups]
        raise InputError(
            f"system '{system.name}' joins unlike groups of nodes, {' and '.join(names)}, and its links are told apart "
            f"for the stages of a training job alone. Try one of them, such as {names[0]}.",
            field="system.groups",
        )
    return whole


def node_tiers(node: Node) -> tuple[Tier, ...]:
    """Tiers inside one node: the scale-up fabric, and the host links where it does not reach all."""
    count, use = node.accelerators, node.host_link
    if count == 1:
        return ()
    up = node.scale_up
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
    port = (node.nics.bandwidth or technology.bandwidth) * max(1.0, node.nics.count / node.accelerators)
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
        port=port,
        astray=upper if fabric.topology == "rail-optimized" else 0.0,
    )
    spine = Tier(
        "spine",
        total,
        rate / max(fabric.oversubscription, 1.0),
        wire + fabric.hops * SWITCH_HOP,
        technology.name,
        "switch",
        "inter",
        reduces,
        port=port,
    )
    if total <= reach:
        return (leaf,)
    return (leaf, spine) if reach > node.accelerators else (spine,)


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
    port = min(_card(node)[1], float(wires.topology.bandwidth.min()))
    return Tier(name, system.accelerators, rate, latency, technology.name, "wired", "inter", port=port, wires=wires)


@lru_cache(maxsize=16)
def between_cards(system: System) -> Wires:
    """The network between all cards, node after node: routers of nodes that are joined directly, or a dragonfly."""
    fabric, node, nodes = system.fabric, system.groups[0].node, system.groups[0].count
    assert fabric is not None
    count, card, wire = _card(node)
    if fabric.topology == "dragonfly":
        built = dragonfly(fabric, nodes * count, card, wire + SWITCH_HOP, 2 * SWITCH_HOP)
    else:
        sides = sides_of(fabric, nodes, TORUS_DIMENSIONS if fabric.topology == "torus" else 2)
        rates = fabric.link_bandwidth or (card * count / links_of_port(fabric.topology, nodes, sides),)
        built = routed(direct(fabric.topology, nodes, sides, rates, SWITCH_HOP), count, card, wire)
    return Wires(built, node.accelerators, count)


def _card(node: Node) -> tuple[int, float, float]:
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
