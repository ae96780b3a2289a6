"""A cluster: node groups (usually one) joined by a scale-out fabric, or by links between groups."""

from functools import lru_cache
from itertools import accumulate
from math import prod
from typing import Annotated, Any, Final, Literal

from pydantic import BeforeValidator, Field
from pydantic.dataclasses import dataclass

from rapid_llm.hardware.accelerator import HOST_MEMORY_BANDWIDTH, Accelerator
from rapid_llm.nouns import STRICT, hash_once, replaced
from rapid_llm.units import BytesPerSecond, Count, FlopsPerSecond, Positive, Seconds

MAX_ACCELERATORS: Final = 1 << 20
"""Of one job, and of one system's nodes: ranks and nodes are placed one by one, and no system is near."""
Many = Annotated[Count, Field(le=MAX_ACCELERATORS)]
_RACK: Final = 32  # accelerators of a node and more are a rack, which jobs share by its trays
_TRAY: Final = 4  # accelerators of a compute tray (GB200 NVL72)


@dataclass(frozen=True, kw_only=True, config=STRICT)
class LinkUse:
    """Links of one technology (a name in ``network/data/links``): how many per accelerator or node, and their rate.

    ``bandwidth`` is B/s per direction of one link and defaults to the technology's own; ``latency`` likewise.
    """

    link: str
    count: Count = 1
    bandwidth: BytesPerSecond | None = None
    latency: Seconds | None = None


SHAPES: Final = ("ring", "mesh", "torus", "hypercube", "king-mesh", "full")
"""Direct networks: their places are joined to each other, without a switch."""
_SIDED: Final = ("mesh", "torus", "king-mesh")


def _per_axis(value: Any) -> Any:
    return value if isinstance(value, (list, tuple)) else (value,)


PerAxis = Annotated[tuple[BytesPerSecond, ...], BeforeValidator(_per_axis)]
"""One value for all axes, or a list with one for each."""


def _check_shape(topology: str, sides: tuple[int, ...] | None, link_bandwidth: tuple[float, ...] | None) -> None:
    """ValueError for sides or bandwidths that a topology does not have."""
    if sides is not None and topology not in _SIDED:
        raise ValueError(f"takes sides with {', '.join(_SIDED)} only (got {topology}); leave them out")
    if sides is not None and topology == "king-mesh" and len(sides) != 2:
        raise ValueError(f"needs two sides for a king-mesh (got {len(sides)}), such as [4, 4]")
    if link_bandwidth is None:
        return
    if topology not in SHAPES:
        raise ValueError(f"takes link_bandwidth with {', '.join(SHAPES)} only (got {topology}); leave it out")
    many = len(link_bandwidth)
    if many > 1 and topology not in ("mesh", "torus"):
        raise ValueError(f"takes one link_bandwidth for a {topology} (got {many}); axes are of mesh and torus")
    if many > 1 and (sides is None or len(sides) != many):
        raise ValueError(f"has {many} link bandwidths, one for each axis, and {len(sides or ())} sides; give as many")


def _check_count(topology: str, sides: tuple[int, ...] | None, count: int, what: str, where: str = "") -> None:
    """ValueError where a shape does not hold so many places; ``where`` it is written."""
    if sides == ():
        raise ValueError(f"{where}has no sides; give sides whose product is {count}, or leave sides out")
    if sides is not None and prod(sides) != count:
        times = " x ".join(map(str, sides))
        raise ValueError(
            f"{where}has sides {times} = {prod(sides)}, but {count} {what}; give sides whose product is {count}"
        )
    if topology == "hypercube" and count & (count - 1):
        below = 1 << (count.bit_length() - 1)
        raise ValueError(
            f"{where}is a hypercube of {count} {what}; it needs a power of two, such as {below} or {2 * below}"
        )


@dataclass(frozen=True, kw_only=True, config=STRICT)
class ScaleUpFabric:
    """How the accelerators of one node reach each other.

    ``switch``: non-blocking, every accelerator at its full port rate; ``full``: a dedicated link per pair; ``ring``;
    ``pairs``: ``group`` neighbours share the fast link and the rest crosses ``host_link``; ``none``: host link only;
    ``mesh``, ``torus``, ``king-mesh`` of ``sides`` (accelerators along each axis, the first varies fastest; as near to
    a cube as can be unless given) and ``hypercube``. ``bandwidth`` is that of an accelerator's port, over all its links
    (B/s per direction); of these shapes ``link_bandwidth``, of one link or of one along each axis, may say it instead.
    """

    topology: Literal["switch", "full", "ring", "pairs", "none", "mesh", "torus", "hypercube", "king-mesh"]
    link: str | None = None
    bandwidth: BytesPerSecond | None = None
    latency: Seconds | None = None
    group: Count | None = None
    sides: tuple[Count, ...] | None = None
    link_bandwidth: PerAxis | None = None
    in_network_reduction: bool = False

    def __post_init__(self) -> None:
        """Refuse what the topology does not have."""
        _check_shape(self.topology, self.sides, self.link_bandwidth)


@dataclass(frozen=True, kw_only=True, config=STRICT)
class Node:
    """One server (or rack-scale NVLink domain): its accelerators, their fabric, and its network cards.

    ``socket_link`` joins the halves of a node with two CPU sockets where it is narrower than ``host_link``, which then
    joins those of one half. ``host_speed``: single-thread speed of its CPUs over an EPYC 7742; launches
    and engine steps take that much less. ``host_memory_bandwidth``: B/s that its CPUs stream, and ``nvme`` that its
    drives read or write; its accelerators share both, and ``host_matrix``: the rate at which its CPUs multiply in 16
    bit (None: not known).
    """

    accelerator: Accelerator
    accelerators: Many
    scale_up: ScaleUpFabric = ScaleUpFabric(topology="none")
    host_link: LinkUse
    socket_link: LinkUse | None = None
    host_speed: Positive = 1.0
    host_memory_bandwidth: BytesPerSecond = HOST_MEMORY_BANDWIDTH
    host_matrix: FlopsPerSecond | None = None
    nvme: BytesPerSecond | None = None
    nics: LinkUse | None = None

    def __post_init__(self) -> None:
        """Refuse a scale-up fabric that does not hold the accelerators."""
        _check_count(self.scale_up.topology, self.scale_up.sides, self.accelerators, "accelerators")


def unjoined(node: Node) -> str:
    """A sentence on a node whose accelerators have ports that nothing joins; empty for other nodes."""
    port = node.accelerator.scale_up
    if port is None or node.accelerators == 1 or node.scale_up.topology != "none":
        return ""
    return (
        f"{node.accelerator.name} of a node meet over {node.host_link.link} alone, not {port.link} (node.scale_up: "
        "{topology: switch} would join them)"
    )


@dataclass(frozen=True, kw_only=True, config=STRICT)
class ScaleOutFabric:
    """The network between nodes: ``oversubscription`` is the ratio of down-link to up-link bandwidth at the leaf;
    ``in_network_reduction`` where its switches reduce (SHARP); ``leaf_nodes`` how many nodes share a leaf, where
    that is not what the ports of a switch allow; ``spines`` above the leaves; ``arity``: ports of the switches of a
    three-tier fat tree (without it a fat tree is seen as leaves and spines).

    A direct network (``SHAPES``; ``sides`` in nodes, and ``link_bandwidth`` as of ``ScaleUpFabric``) joins card r of a
    node to card r of its neighbours, each card's rate over its links; nodes without cards are joined by the port of
    their accelerator. A ``dragonfly`` has ``groups`` of ``routers`` with equally many cards each; links between routers
    and between groups have ``local_bandwidth`` and ``global_bandwidth`` (a card's unless given).
    """

    topology: Literal[
        "rail-optimized", "leaf-spine", "fat-tree", "torus", "single-switch",
        "ring", "mesh", "hypercube", "king-mesh", "full", "dragonfly",
    ]  # fmt: skip
    oversubscription: Positive = 1.0
    hops: Count = 3
    in_network_reduction: bool = False
    leaf_nodes: Count | None = None
    spines: Count | None = None
    arity: Count | None = None
    sides: tuple[Count, ...] | None = None
    link_bandwidth: PerAxis | None = None
    groups: Count | None = None
    routers: Count | None = None
    local_bandwidth: BytesPerSecond | None = None
    global_bandwidth: BytesPerSecond | None = None

    def __post_init__(self) -> None:
        """Refuse what the topology does not have."""
        _check_shape(self.topology, self.sides, self.link_bandwidth)
        for names, owners in _OWN.items():
            given = [name for name in names if getattr(self, name) is not None]
            if given and self.topology not in owners:
                raise ValueError(
                    f"takes {given[0]} with {' and '.join(owners)} only (got {self.topology}); leave it out"
                )
        if self.topology == "dragonfly" and not (self.groups and self.routers):
            raise ValueError("needs groups and routers for a dragonfly, such as groups: 9, routers: 4")
        if self.arity is not None and (self.arity < 2 or self.arity % 2):
            raise ValueError(f"needs an even number of ports per switch, 2 or more, as arity (got {self.arity})")
        if self.arity is not None and self.oversubscription > 1:
            raise ValueError("has full bisection where arity says its switches; leave oversubscription out, or arity")


_OWN: Final = {
    ("groups", "routers", "local_bandwidth", "global_bandwidth"): ("dragonfly",),
    ("arity",): ("fat-tree",),
    ("spines",): ("leaf-spine", "rail-optimized", "fat-tree"),
}
"""Fields of a scale-out fabric, and the topologies that have them."""


@dataclass(frozen=True, kw_only=True, config=STRICT)
class NodeGroup:
    """Equal nodes. ``count`` is how many the system has at most; where it has several groups, each has a ``name``, and
    a ``fabric`` between its nodes where that is not the system's."""

    node: Node
    count: Many
    name: str = ""
    fabric: ScaleOutFabric | None = None

    @property
    def accelerators(self) -> int:
        """How many accelerators the group has."""
        return self.count * self.node.accelerators


@dataclass(frozen=True, kw_only=True, config=STRICT)
class GroupLink:
    """A link between two groups of nodes, in place of a fabric that joins them: another site, another hall.

    ``bandwidth``: B/s each way of all of it, which those share who send at once; ``latency``: one way (s). ``between``:
    the names of both groups, nothing where every two are joined so.
    """

    bandwidth: BytesPerSecond
    latency: Seconds = 0.0
    between: tuple[str, ...] = ()

    def joins(self, one: str, other: str) -> bool:
        """Whether it is the link between these two."""
        return not self.between or {one, other} == {*self.between}


@dataclass(frozen=True, kw_only=True, config=STRICT)
class GroupedDescription:
    """A system of several groups as its file writes it: the groups, in the order in which ranks fill them, the fabric
    that joins their nodes, and links between groups."""

    name: str
    aliases: tuple[str, ...] = ()
    groups: tuple[NodeGroup, ...]
    fabric: ScaleOutFabric | None = None
    links: tuple[GroupLink, ...] = ()


@dataclass(frozen=True, kw_only=True, config=STRICT)
class SystemDescription:
    """A system as its file writes it: up to ``nodes`` equal nodes and the network between them."""

    name: str
    aliases: tuple[str, ...] = ()
    node: Node
    nodes: Many = 1
    fabric: ScaleOutFabric | None = None

    def __post_init__(self) -> None:
        """Refuse a network that does not hold the nodes."""
        if self.fabric is not None:
            _check_count(self.fabric.topology, self.fabric.sides, self.nodes, "nodes", "fabric ")


@hash_once
@dataclass(frozen=True, kw_only=True, config=STRICT)
class System:
    """A cluster as a user buys it. Accelerators are counted through its groups in their order."""

    name: str
    groups: tuple[NodeGroup, ...]
    fabric: ScaleOutFabric | None = None
    links: tuple[GroupLink, ...] = ()

    @property
    def accelerators(self) -> int:
        """How many accelerators the whole system has."""
        return sum(group.accelerators for group in self.groups)

    @property
    def ends(self) -> tuple[int, ...]:
        """How many accelerators there are up to the end of each group."""
        return tuple(accumulate(group.accelerators for group in self.groups))

    def link(self, one: int, other: int) -> GroupLink | None:
        """The link between two groups, the one that names them before one for all; None where a fabric joins them."""
        names = self.groups[one].name, self.groups[other].name
        found = [link for link in self.links if link.joins(*names)]
        return max(found, key=lambda link: len(link.between), default=None)

    @property
    def mixed(self) -> bool:
        """Whether groups differ, or are joined by links."""
        first = self.groups[0]
        return bool(self.links) or any((g.node, g.fabric) != (first.node, first.fabric) for g in self.groups[1:])


@lru_cache(maxsize=64)
def part_of(system: System, total: int) -> System:
    """The part of a system that a job of a number of accelerators uses: the groups that it reaches, equal groups
    merged.
    """
    if len(system.groups) == 1:
        return system
    used = tuple(g for g, end in zip(system.groups, system.ends, strict=True) if end - g.accelerators < total)
    part = replaced(system, groups=used, links=system.links if len(used) > 1 else ())
    if part.mixed:
        return part
    first = used[0]
    whole = replaced(first, count=sum(group.count for group in used), name="", fabric=None)
    return replaced(part, groups=(whole,), fabric=first.fabric or system.fabric)


@lru_cache(maxsize=64)
def node_starts(system: System) -> tuple[int, ...]:
    """The place of the first accelerator of each node, and one behind the last."""
    sizes = [group.node.accelerators for group in system.groups for _ in range(group.count)]
    return tuple(accumulate(sizes, initial=0))


def shared_racks(system: System, total: int) -> System:
    """The system that a job of a number of accelerators uses: racks that it would not fill are used in equal parts of
    whole trays, at least half a rack each (128 on racks of 72 are two times 64). The system itself where there are no
    such parts.
    """
    group = system.groups[0]
    node = group.node
    size = node.accelerators
    if len(system.groups) > 1 or node.scale_up.topology not in ("switch", "none"):
        return system
    if size < _RACK or total <= size or total % size == 0:
        return system
    racks = range(-(-total // size), 2 * total // size + 1)
    part = next((total // many for many in racks if total % (_TRAY * many) == 0), 0)
    if 2 * part < size:
        return system
    nics = node.nics and replaced(node.nics, count=max(node.nics.count * part // size, 1))
    memory = node.host_memory_bandwidth * part / size
    less = replaced(node, accelerators=part, nics=nics, host_memory_bandwidth=memory)
    return replaced(system, groups=(replaced(group, node=less),))
