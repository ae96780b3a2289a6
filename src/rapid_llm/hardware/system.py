"""A cluster: node groups (usually one) joined by a scale-out fabric."""

from typing import Literal

from pydantic.dataclasses import dataclass

from rapid_llm.hardware.accelerator import HOST_MEMORY_BANDWIDTH, Accelerator
from rapid_llm.nouns import STRICT, hash_once
from rapid_llm.units import BytesPerSecond, Count, FlopsPerSecond, Positive, Seconds


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
    ``in_network_reduction`` where its switches reduce (SHARP).
    """

    topology: Literal["rail-optimized", "leaf-spine", "fat-tree", "torus", "single-switch"]
    oversubscription: Positive = 1.0
    hops: Count = 3
    in_network_reduction: bool = False


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
