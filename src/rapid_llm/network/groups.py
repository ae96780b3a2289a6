"""A group of ranks on the tiers of its fabric."""

from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from math import ceil
from operator import mul

from rapid_llm.errors import InputError
from rapid_llm.network.fabric import Fabric, Tier


@dataclass(frozen=True, slots=True)
class Group:
    """A group on its fabric: ``bounds`` (see templates) and the tier of each level; accelerators of a node."""

    bounds: tuple[int, ...]
    tiers: tuple[Tier, ...]
    stride: int
    nodes: int
    node_span: int

    @property
    def inside(self) -> int:
        """Levels that lie inside a node."""
        return sum(tier.scope == "intra" for tier in self.tiers)


def group_of(fabric: Fabric, ranks: int, stride: int) -> Group:
    """Nest a group in the tiers: a tier holds ``span / stride`` of its ranks."""
    reach = fabric.tiers[-1].span if fabric.tiers else 1
    if ranks < 1 or stride < 1 or (ranks - 1) * stride >= reach:
        raise InputError(
            f"a group of {ranks} ranks, {stride} apart, does not fit '{fabric.name}': "
            f"{reach} accelerators are connected. Use fewer ranks or a larger system.",
            field="accelerators",
        )
    bounds: list[int] = []
    tiers: list[Tier] = []
    for tier in fabric.tiers:
        inside = min(ranks, max(1, tier.span // stride))
        if inside > (bounds[-1] if bounds else 1):
            bounds.append(inside)
            tiers.append(tier)
    if not bounds or bounds[-1] < ranks:
        bounds.append(ranks)
        tiers.append(fabric.tiers[-1])
    inside = min(ranks, max(1, fabric.node_span // stride))
    return Group(tuple(bounds), tuple(tiers), stride, ceil(ranks / inside), fabric.node_span)


def by_medium(group: Group, laps: int) -> Group:
    """A group with a level for each medium: every dimension of a torus that it lies along, a ring with links of its
    own; else what is inside a node, and all of the network, which network cards share and rings go round in ``laps``.
    """
    alone = group.tiers[0].kind == "torus" and len(group.tiers) == 1
    return _by_dimension(group) if alone else _network_as_one(group, 2 * laps)


def in_whole_units(group: Group, laps: int) -> Group:
    """A group with the network as one level where its ranks do not fill leaves."""
    return group if whole(group.bounds) else _network_as_one(group, laps)


def whole(bounds: tuple[int, ...]) -> bool:
    """Whether every unit is full."""
    return all(outer % inner == 0 for inner, outer in pairwise(bounds))


def _by_dimension(group: Group) -> Group:
    tier = group.tiers[0]
    sides = tier.sides(group.bounds[0])
    rates = tier.rates or (tier.bandwidth / tier.dimensions,) * tier.dimensions
    axes = tuple(
        replace(tier, name=f"{tier.name} axis {k + 1}", kind="axis", bandwidth=rate / (2 if side == 2 else 1))
        for k, (side, rate) in enumerate(zip(sides, rates, strict=False))
    )
    return replace(group, bounds=tuple(accumulate(sides, mul)), tiers=axes)


def _network_as_one(group: Group, laps: int) -> Group:
    """The tiers between nodes as one, as the latest datum of a ring of nodes meets them: hops below a leaf, and those
    from leaf to leaf; of ``laps`` in a row it leaves out one hop each, the nearest where it can.
    """
    inside, n = group.inside, group.bounds[-1]
    if len(group.bounds) - inside < 2:
        return group
    inner = group.bounds[inside - 1] if inside else 1
    near, far = group.tiers[inside], group.tiers[-1]
    hops, between = ceil(n / inner) - 1, ceil(n / group.bounds[-2])
    apart = laps * between - laps * between // (hops + 1)
    joined = replace(
        near,
        span=far.span,
        latency=near.latency + (far.latency - near.latency) * min(1.0, apart / (laps * hops)),
        bandwidth=min(near.bandwidth, far.bandwidth * max(1.0, group.bounds[inside] / inner)),
    )
    return replace(group, bounds=(*group.bounds[:inside], n), tiers=(*group.tiers[:inside], joined))
