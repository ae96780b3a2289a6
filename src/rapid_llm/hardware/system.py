"""A cluster: node groups (usually one) joined by a scale-out fabric, or by links between groups."""

from functools import lru_cache
from itertools import accumulate
from typing import Final, Literal

from pydantic.dataclasses import dataclass

from rapid_llm.hardware.accelerator import HOST_MEMORY_BANDWIDTH, Accelerator
from rapid_llm.nouns import STRICT, hash_once, replaced
from rapid_llm.units import BytesPerSecond, Count, FlopsPerSecond, Positive, Seconds

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


@dataclass(frozen=True, kw_only=True, config=STRICT)
class ScaleUpFabric:
    """How the accelerators of one node reach each other.

    ``switch``: non-blocking, every accelerator at its full port rate; ``full``: a dedicated link per pair; ``ring``;
    ``pairs``: ``group`` neighbours share the fast link and the rest crosses ``host_link``; ``none``: host link only.
    """

    topology: Literal["switch", "full", "ring", "pairs", "none"]
    link: str | None = None
    bandwidth: BytesPerSecond | None = None
    latency: Seconds | None = None
    group: Count | None = None
    in_network_reduction: bool = False


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
    accelerators: Count
    scale_up: ScaleUpFabric = ScaleUpFabric(topology="none")
    host_link: LinkUse
    socket_link: LinkUse | None = None
    host_speed: Positive = 1.0
    host_memory_bandwidth: BytesPerSecond = HOST_MEMORY_BANDWIDTH
    host_matrix: FlopsPerSecond | None = None
    nvme: BytesPerSecond | None = None
    nics: LinkUse | None = None


@dataclass(frozen=True, kw_only=True, config=STRICT)
class ScaleOutFabric:
    """The network between nodes: ``oversubscription`` is the ratio of down-link to up-link bandwidth at the leaf;
    ``in_network_reduction`` where its switches reduce (SHARP); ``leaf_nodes`` how many nodes share a leaf, where
    that is not what the ports of a switch allow.
    """

    topology: Literal["rail-optimized", "leaf-spine", "fat-tree", "torus", "single-switch"]
    oversubscription: Positive = 1.0
    hops: Count = 3
    in_network_reduction: bool = False
    leaf_nodes: Count | None = None


@dataclass(frozen=True, kw_only=True, config=STRICT)
class NodeGroup:
    """Equal nodes. ``count`` is how many the system has at most; where it has several groups, each has a ``name``, and
    a ``fabric`` between its nodes where that is not the system's."""

    node: Node
    count: Count
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
    nodes: Count = 1
    fabric: ScaleOutFabric | None = None


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
    """What a job of so many accelerators sees of a system: the groups that it reaches, alike ones as one."""
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
    """The system that a job of so many accelerators meets: racks which it would not fill give equal parts in whole
    trays, half of a rack at least (128 on racks of 72 are two times 64). The system itself where there is no such part.
    """
    group = system.groups[0]
    node = group.node
    size = node.accelerators
    if len(system.groups) > 1 or size < _RACK or total <= size or total % size == 0:
        return system
    racks = range(-(-total // size), 2 * total // size + 1)
    part = next((total // many for many in racks if total % (_TRAY * many) == 0), 0)
    if 2 * part < size:
        return system
    nics = node.nics and replaced(node.nics, count=max(node.nics.count * part // size, 1))
    memory = node.host_memory_bandwidth * part / size
    less = replaced(node, accelerators=part, nics=nics, host_memory_bandwidth=memory)
    return replaced(system, groups=(replaced(group, node=less),))
