"""The explicit interconnect: nodes and directed links as columns."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rapid_llm.errors import InputError, unknown_name
from rapid_llm.units import MAX_SECONDS, MIN_BANDWIDTH

if TYPE_CHECKING:
    from rapid_llm.hardware.system import System

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

NODE_KINDS: Final = ("accelerator", "nvswitch", "nic", "host", "leaf", "spine", "core", "router", "idle")
"""What a node is; its code is the index here. ``idle``: an accelerator of no job, which forwards what passes."""
LINK_KINDS: Final = ("scale-up", "host", "nic", "fabric", "global")
"""What a link is: inside a box, to a network card, from card to leaf, between switches, between dragonfly groups."""
MAX_LINKS: Final = 1_000_000
"""Nodes, or directed links, that a topology holds: each is built and routed by itself."""
NONE: Final = -1
"""No box, no rail, no link."""


class Grid(NamedTuple):
    """Coordinates of direct networks: ``sides`` per axis (axis 0 varies fastest over accelerators), and whether an
    axis closes into a ring. ``neighbour[node, axis, 0 | 1]`` is the link one step up or down, or NONE.
    """

    sides: tuple[int, ...]
    wraps: tuple[bool, ...]
    neighbour: Ints


@dataclass(frozen=True, slots=False, eq=False, kw_only=True)
class Topology:
    """Directed links over nodes.

    source, target: node of each link; bandwidth (B/s) of a healthy link; latency (s); kind: index into LINK_KINDS;
    health: usable share of the bandwidth, 0 is down. names, node_kind (index into NODE_KINDS), box (scale-up domain,
    dragonfly group; or NONE) and rail (position of an accelerator or card in its box, rail of a switch; or NONE) by
    node; ``grid`` of a direct network.
    """

    name: str
    source: Ints
    target: Ints
    bandwidth: Floats
    latency: Floats
    kind: NDArray[np.int8]
    health: Floats
    names: tuple[str, ...]
    node_kind: NDArray[np.int8]
    box: Ints
    rail: Ints
    grid: Grid | None = None

    @staticmethod
    def of(system: "System", accelerators: int | None = None) -> "Topology":
        """The interconnect of a catalogue system, or of its first ``accelerators``."""
        from rapid_llm.network.systems import topology_of

        return topology_of(system, accelerators)

    @property
    def links(self) -> int:
        """How many directed links there are."""
        return len(self.source)

    @property
    def nodes(self) -> int:
        """How many nodes there are."""
        return len(self.names)

    @cached_property
    def accelerators(self) -> Ints:
        """Nodes that are accelerators, in order: the default place of rank r is ``accelerators[r]``."""
        return np.flatnonzero(self.node_kind == 0)

    @cached_property
    def chips(self) -> NDArray[np.bool_]:
        """Nodes that are accelerators, whether the job uses them or not."""
        found: NDArray[np.bool_] = (self.node_kind == 0) | (self.node_kind == NODE_KINDS.index("idle"))
        return found

    @cached_property
    def zones(self) -> Ints:
        """Group of a dragonfly that each node is in: what links between groups join is several, all else is one."""
        from rapid_llm.network.connected import parts

        near = self.kind != LINK_KINDS.index("global")
        return np.zeros(self.nodes, np.int64) if near.all() else parts(self, near)

    @cached_property
    def capacity(self) -> Floats:
        """B/s of each link as it is: bandwidth times health."""
        return self.bandwidth * self.health

    @cached_property
    def outgoing(self) -> tuple[Ints, Ints]:
        """CSR adjacency: links of node u are ``order[start[u]:start[u + 1]]``."""
        return _csr(self.source, self.nodes)

    @cached_property
    def incoming(self) -> tuple[Ints, Ints]:
        """CSR of the links that end at each node."""
        return _csr(self.target, self.nodes)

    @cached_property
    def _by_name(self) -> Mapping[str, int]:
        return {name: index for index, name in enumerate(self.names)}

    def node(self, name: str) -> int:
        """Index of a node by its name; InputError with the nearest names otherwise."""
        found = self._by_name.get(name)
        if found is None:
            from rapid_llm.errors import nearest

            close = nearest(name, self._by_name)
            hint = f" Did you mean {' or '.join(repr(c) for c in close)}?" if close else f" {self._examples()}"
            raise InputError(f"{self.name} has no node '{name}'.{hint}", field="faults", suggestions=close)
        return found

    def _examples(self) -> str:
        return f"Its nodes are such as {', '.join(dict.fromkeys((self.names[0], self.names[-1])))}."

    def links_between(self, a: int, b: int) -> Ints:
        """Directed links from node a to node b (parallel links each count)."""
        start, order = self.outgoing
        mine = order[start[a] : start[a + 1]]
        found: Ints = mine[self.target[mine] == b]
        return found

    def link_name(self, link: int) -> str:
        """``node0.gpu0 > node0.nvswitch``."""
        return f"{self.names[self.source[link]]} > {self.names[self.target[link]]}"

    def with_health(self, health: Floats, *, latency: Floats | None = None) -> "Topology":
        """The same links with another health each."""
        return replace(self, health=health, latency=self.latency if latency is None else latency)


def _csr(ends: Ints, nodes: int) -> tuple[Ints, Ints]:
    order = np.argsort(ends, kind="stable")
    start = np.zeros(nodes + 1, dtype=np.int64)
    np.cumsum(np.bincount(ends, minlength=nodes), out=start[1:])
    return start, order


@dataclass
class Builder:
    """Collects nodes and links, then ``build``."""

    name: str
    names: list[str] = field(default_factory=list)
    kinds: list[int] = field(default_factory=list)
    boxes: list[int] = field(default_factory=list)
    rails: list[int] = field(default_factory=list)
    _links: list[tuple[NDArray[np.generic], ...]] = field(default_factory=list)

    def add(self, names: Sequence[str], kind: str, box: Ints | int = NONE, rail: Ints | int = NONE) -> Ints:
        """Add nodes of one kind; returns their indices."""
        if kind not in NODE_KINDS:
            raise InputError(unknown_name("kind of node", kind, NODE_KINDS), field="topology")
        first, count = len(self.names), len(names)
        self.refuse_many(first + count)
        self.names.extend(names)
        self.kinds.extend([NODE_KINDS.index(kind)] * count)
        self.boxes.extend(np.broadcast_to(box, count).tolist())
        self.rails.extend(np.broadcast_to(rail, count).tolist())
        return np.arange(first, first + count, dtype=np.int64)

    def join(
        self,
        a: Ints,
        b: Ints,
        bandwidth: Floats | float,
        latency: Floats | float,
        kind: str | NDArray[np.int8] = "fabric",
        *,
        both: bool = True,
    ) -> None:
        """Links from each ``a`` to its ``b`` of ``bandwidth`` B/s per direction, and back unless ``both`` is false.

        ``kind`` is one of LINK_KINDS, or the index of one for each link.
        """
        a, b = np.broadcast_arrays(np.asarray(a, np.int64), np.asarray(b, np.int64))
        self.refuse_many(sum(len(links[0]) for links in self._links) + a.size * (1 + both))
        bandwidth = np.broadcast_to(np.asarray(bandwidth, np.float64), a.shape)
        latency = np.broadcast_to(np.asarray(latency, np.float64), a.shape)
        if not (np.isfinite(bandwidth).all() and (bandwidth >= MIN_BANDWIDTH).all()):
            worst = int(np.argmin(np.where(np.isfinite(bandwidth), bandwidth, -np.inf)))
            pair = f"{self.names[a.ravel()[worst]]} to {self.names[b.ravel()[worst]]}"
            raise InputError(
                f"{self.name}: bandwidth from {pair} must be at least 1 B/s (got {bandwidth.ravel()[worst]:g} B/s); "
                "leave out a link that does not exist.",
                field="topology.bandwidth",
            )
        if not (np.isfinite(latency).all() and ((latency >= 0) & (latency <= MAX_SECONDS)).all()):
            raise InputError(f"{self.name}: latency must be 0 s to {MAX_SECONDS:,.0f} s.", field="topology.latency")
        code = np.broadcast_to(np.asarray(LINK_KINDS.index(kind) if isinstance(kind, str) else kind, np.int8), a.shape)
        self._links.append((a.ravel(), b.ravel(), bandwidth.ravel(), latency.ravel(), code.ravel()))
        if both:
            self._links.append((b.ravel(), a.ravel(), bandwidth.ravel(), latency.ravel(), code.ravel()))

    def refuse_many(self, count: int) -> None:
        """InputError for more nodes or links than can be built one by one."""
        if count > MAX_LINKS:
            raise InputError(
                f"{self.name} has {count:,} nodes or links, and at most {MAX_LINKS:,} are built one by one. "
                "Try fewer, or topology: leaf-spine.",
                field="topology",
            )

    def build(self, grid: tuple[tuple[int, ...], tuple[bool, ...]] | None = None) -> Topology:
        """The topology; ``grid`` (sides, wraps) gives direct networks their coordinates."""
        empty = (np.zeros(0, np.int64),) * 2 + (np.zeros(0),) * 2 + (np.zeros(0, np.int8),)
        source, target, bandwidth, latency, kind = (
            np.concatenate(columns) for columns in zip(*(self._links or [empty]), strict=True)
        )
        table = None
        if grid is not None:
            table = Grid(*grid, _neighbours(*grid, source, target, len(self.names)))
        return Topology(
            name=self.name,
            source=source.astype(np.int64),
            target=target.astype(np.int64),
            bandwidth=bandwidth.astype(np.float64),
            latency=latency.astype(np.float64),
            kind=kind.astype(np.int8),
            health=np.ones(len(source)),
            names=tuple(self.names),
            node_kind=np.array(self.kinds, np.int8),
            box=np.array(self.boxes, np.int64),
            rail=np.array(self.rails, np.int64),
            grid=table,
        )


def _neighbours(
    sides: tuple[int, ...],
    wraps: tuple[bool, ...],
    source: NDArray[np.generic],
    target: NDArray[np.generic],
    nodes: int,
) -> Ints:
    """Link of each node one step up and down each axis: ``(nodes, axes, 2)``. Accelerators come first, in order.

    A ring of two has both directions on one link, unless it was built with two parallel ones.
    """
    table = np.full((nodes, len(sides), 2), NONE, dtype=np.int64)
    count, stride = int(np.prod(sides)), 1
    here = np.arange(count)
    lookup: dict[tuple[int, int], list[int]] = {}
    for link, pair in enumerate(zip(source.tolist(), target.tolist(), strict=True)):
        lookup.setdefault(pair, []).append(link)
    for axis, (side, wrap) in enumerate(zip(sides, wraps, strict=True)):
        place = here // stride % side
        for way, step in enumerate((1, -1)):
            moved = (place + step) % side
            there = here + (moved - place) * stride
            open_end = (place + step < 0) | (place + step >= side)
            for u, v, ends in zip(here.tolist(), there.tolist(), open_end.tolist(), strict=True):
                found = lookup.get((u, v))
                if found and u != v and (wrap or not ends):
                    table[u, axis, way] = found[min(way, len(found) - 1)]
        stride *= side
    return table
