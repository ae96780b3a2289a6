"""One tier of reach: what connects so many consecutive accelerators, and what patterns find there."""

from dataclasses import dataclass
from math import ceil, gcd, log
from typing import Literal

from rapid_llm.network.technologies import Scope
from rapid_llm.network.wiring import Wires

Kind = Literal["switch", "full", "ring", "torus", "axis", "shared", "wired"]

TORUS_SIDE = 4
"""Chips along a dimension of the smallest torus slice (TPU v4 and v5p: cubes of 4 x 4 x 4; Jouppi et al. 2023)."""


def woven_steps(count: int) -> tuple[int, ...]:
    """Steps of disjoint chains from one rank of a full mesh through all others, each of which always goes the same
    number of ranks further: numbers coprime to ``count``; for 8, with other constructions, there are 7. Of 4 and 6
    there are fewer such chains than links (Tillson 1980).
    """
    return tuple(step for step in range(1, count) if count == 8 or gcd(step, count) == 1)


def near_cube(count: int, dimensions: int) -> tuple[int, ...]:
    """Factors of ``count`` in a number of dimensions, the largest as small as possible: 64 in three is (4, 4, 4)."""
    if dimensions == 1:
        return (count,)
    root = round(count ** (1 / dimensions))
    side = next(f for f in range(min(count, root + 1), 0, -1) if count % f == 0 and f**dimensions <= count)
    return (side, *near_cube(count // side, dimensions - 1))


@dataclass(frozen=True, eq=False, slots=True)
class Tier:
    """What connects ``span`` consecutive accelerators. bandwidth: B/s per accelerator and direction while all
    communicate; latency: of one hop (s). kind: ``switch`` (non-blocking), ``full`` (a link per pair), ``ring``,
    ``torus`` of ``dimensions``, ``axis`` (one dimension of a torus), ``shared`` (one host bridge, whose units cross
    over a single link), ``wired`` (any other constructor, whose ``wires`` give the load of a pattern). ``behind``:
    accelerators that share such a link of a bridge, or a network card; ``port``: B/s of one accelerator while its
    neighbours are silent, where that is more; ``astray``: what a hop to another rail adds (s); ``lengths``: sides of a
    torus where its file gives them, or chips of a ring, and ``rates`` (B/s) of each side where they differ.
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
        """Whether a pattern loads links unevenly, depending on where ranks lie, so that its load is computed on the
        links.
        """
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
        """B/s per accelerator of rings that go through many rings of links like this one: all but one of their hops
        stay in it, and as many groups as their stride pass every link, but a channel takes no more than its part of a
        port.
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
        """Links on a hop from member to member; with ``closing``, the mean over the hops of the latest block on a ring,
        which returns over the links of an open chain.
        """
        if self.wires is not None:
            return self.wires.ring(members, stride).mean
        if self.kind != "ring":
            return 1.0
        return stride * (2 * members - 3) / (members - 1) if closing and members * stride < self.span else stride

    def pair(self, members: int, distance: int, stride: int) -> tuple[int, float]:
        """Of an exchange with the member whose number differs by ``distance`` (a power of two) in one bit: the links on
        the way, and what the busiest of them carries, relative to what ``reach`` gives a member. On a mesh only one
        link is used.
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

    def from_the_middle(self, members: int, stride: int) -> list[tuple[int, float]]:
        """Of an exchange along an open chain, for every link from an end to the middle: by how many links the first
        rank that sends over it has received everything before the end rank has, so that it starts the next exchange
        earlier, and the load of the link relative to the middle one.
        """
        if self.kind != "ring" or members * stride >= self.span or members < 3:
            return [(0, 1.0)]
        most = members // 2 * ceil(members / 2)
        return [((k - 1) * stride, k * (members - k) / most) for k in range(1, ceil(members / 2) + 1)]

    def turn(self, members: int, stride: int) -> float:
        """Links between the two neighbours of an order that are farthest apart: in a torus, where it turns from one
        face to the next.
        """
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
