"""A cluster: node groups (usually one) joined by a scale-out fabric."""

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
class NodeGroup:
    """Equal nodes. ``count`` is how many the system has at most."""

    node: Node
    count: Count


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
    """A cluster as a user buys it."""

    name: str
    groups: tuple[NodeGroup, ...]
    fabric: ScaleOutFabric | None = None

    @property
    def accelerators(self) -> int:
        """How many accelerators the whole system has."""
        return sum(group.count * group.node.accelerators for group in self.groups)


def shared_racks(system: System, total: int) -> System:
    """The system that a job of so many accelerators meets: racks which it would not fill give equal parts in whole
    trays, half of a rack at least (128 on racks of 72 are two times 64). The system itself where there is no such part.
    """
    group = system.groups[0]
    node = group.node
    size = node.accelerators
    if size < _RACK or total <= size or total % size == 0:
        return system
    racks = range(-(-total // size), 2 * total // size + 1)
    part = next((total // many for many in racks if total % (_TRAY * many) == 0), 0)
    if 2 * part < size:
        return system
    nics = node.nics and replaced(node.nics, count=max(node.nics.count * part // size, 1))
    memory = node.host_memory_bandwidth * part / size
    less = replaced(node, accelerators=part, nics=nics, host_memory_bandwidth=memory)
    return replaced(system, groups=(replaced(group, node=less), *system.groups[1:]))
