"""What the ports of an accelerator carry of a collective, level by level: their rates, and their loads."""

import numpy as np
from numpy.typing import NDArray

from rapid_llm.network.detours import both_ways
from rapid_llm.network.groups import Group
from rapid_llm.network.technologies import LinkCost
from rapid_llm.network.templates import ALGORITHMS, Phase, Template, loads
from rapid_llm.network.tier import TORUS_SIDE

Vector = NDArray[np.float64]


def port_rates(template: Template, group: Group, costs: list[LinkCost]) -> Vector:
    """B/s of one accelerator across each level, efficiency included."""
    return np.array(
        [_carried(template, group, level) * _share(template, group, level, cost) for level, cost in enumerate(costs)]
    )


def _share(template: Template, group: Group, level: int, cost: LinkCost) -> float:
    """What of a level's rate a library reaches, by how an algorithm uses it."""
    tier, pattern = group.tiers[level], template.phases[0].pattern
    share = cost.efficiency
    if level == 0 and ALGORITHMS[template.algorithm].startswith("nvls"):
        share = cost.switch or share
    elif pattern in ("direct", "neighbour"):
        share = cost.spread or cost.memory or share
    if cost.memory and tier.kind == "shared":
        below = _below(group, level) if pattern == "direct" else 1
        share = crowded(share, below * min(group.stride, tier.behind))
    return share


def _carried(template: Template, group: Group, level: int) -> float:
    """B/s of one accelerator across a level, as its links could."""
    tier, below, pattern = group.tiers[level], _below(group, level), template.phases[0].pattern
    apart, members = group.stride * below, group.bounds[level] // below
    if pattern == "neighbour":
        return _crossed(group, level)
    if group.scattered and tier.port and pattern in ("ring", "relay"):
        return _few(level, below, group, 2 if pattern == "ring" else 1)  # one of a unit's two: where a ring comes back
    if group.scattered and tier.scope == "inter":  # few cross, over cards that they need not share
        return max(tier.bandwidth, tier.port / min(apart, group.node_span))
    # of a unit, one beside the other, which chains inside them do not cross
    parts = group.units[level] * group.bounds[level] < group.bounds[-1] and pattern != "chain"
    members = max(2, members + parts)
    if tier.kind == "torus" and pattern in ("ring", "relay"):  # one ring, both ways
        members = min(members, TORUS_SIDE)
    if tier.kind == "ring" and mixed(template):
        return tier.passing(members, apart)
    if tier.wires is not None and mixed(template):
        return tier.wires.reach(members, apart, both=False)
    if tier.kind == "full" and pattern == "relay" and len(group.bounds) == 1:
        return tier.chains(members)
    return tier.reach(members, apart, group.stride)


def _crossed(group: Group, level: int) -> float:
    """B/s of a send to the next rank: only the last of a unit crosses a level, over a port of its own."""
    tier, below = group.tiers[level], _below(group, level)
    if tier.wires:
        members, crossing = group.bounds[level] // below, min(group.stride, group.node_span)
        return max(tier.wires.reach(members, group.stride * below, both=False), tier.port / crossing)
    return _few(level, 1, group, 1) if tier.port else tier.reach(2, group.stride * below, group.stride)


def _below(group: Group, level: int) -> int:
    """Ranks of a unit of the level below; one rank is the innermost unit."""
    return group.bounds[level - 1] if level else 1


def _few(level: int, ranks: int, group: Group, ends: int) -> float:
    """B/s of each of the few that leave a unit, so many ``ranks`` of a group side by side with those of the next: on
    its part of a card that serves several, and of the way up, which all of the unit could share. Of groups that
    straddle units, those of both ``ends`` of one may leave it.
    """
    tier, below = group.tiers[level], group.tiers[level - 1] if level else None
    held = below.span if below and below.scope == "inter" else group.node_span
    crossing = group.stride * ranks
    up = tier.bandwidth * held / crossing / (ends if group.scattered else 1)
    return max(tier.bandwidth, min(tier.port / min(crossing, tier.behind), up))


def alone(template: Template, group: Group) -> Vector:
    """Share of the seconds of each level for which a ring of groups that straddle units keeps what it crosses where it
    is the only one that leaves a unit there, so that it has the card, or the way up, to itself.
    """
    found = np.ones(len(group.tiers))
    for level, tier in enumerate(group.tiers):
        if group.scattered and tier.port and template.phases[0].pattern == "ring":
            below = _below(group, level)
            found[level] = _few(level, below, group, 2) / _few(level, below, group, 1)
    return found


def port_loads(load: tuple[float, ...], phase: Phase, group: Group) -> list[float]:
    """Loads as the ports see them.

    Far traffic of an exchange passes the nearer network tiers too and repeats on every hop; units behind a shared
    bridge have one port, not one a rank.
    """
    seen = list(load)
    exchange = phase.pattern == "direct"
    for level in range(len(seen) - 1, -1, -1):
        tier = group.tiers[level]
        below = _below(group, level)
        if level + 1 < len(seen) and tier.scope == "inter" and exchange:
            seen[level] += seen[level + 1]
        if exchange:
            seen[level] *= tier.exchange_hops(group.bounds[level] // below, group.stride * below)
        if phase.pattern == "pair" and seen[level]:
            seen[level] *= tier.pair(group.bounds[level] // below, phase.distance // below, group.stride * below)[1]
        if tier.kind == "shared" and phase.pattern != "neighbour":
            seen[level] *= below
    return seen


def crowded(alone: float, cards: int) -> float:
    """Share of what host memory carries that several cards reach at once, each of which reaches so much ``alone``.

    A card has so many reads under way and waits for them as long as an empty path and the queue of all take: n cards
    move n w in l + n w / B seconds (Little's law), so that 1 / rate is 1 / B and a part that n divides.
    """
    return cards * alone / (1 + (cards - 1) * alone)


def leaving(phase: Phase, group: Group) -> tuple[float, ...]:
    """``loads`` of a group; where a single ring enters and leaves a node at ranks apart, either way round has its card
    to itself.
    """
    if not group.scattered:
        return loads(phase, group.bounds)
    found = loads(phase, group.bounds, group.fewest)
    if group.rails and phase.pattern == "ring" and phase.levels == (0, len(found)):
        return (found[0], *(phase.load / group.rails for _ in found[1:]))
    single = group.inside > 0 and group.bounds[0] == 1 < group.fewest[0]
    if phase.pattern != "ring" or not both_ways(phase, group) or not single:
        return found
    return tuple(load / 2 if tier.scope == "inter" else load for load, tier in zip(found, group.tiers, strict=True))


def by_one_card(busy: Vector, group: Group) -> Vector:
    """Seconds per byte by level, of which no tier of the network takes less than the nearer ones: all that leaves a
    node does so by the same card.
    """
    return np.hstack([busy[:, : group.inside], np.maximum.accumulate(busy[:, group.inside :], axis=1)])


def mixed(template: Template) -> bool:
    """Whether links of several levels form one ring."""
    return all(p.pattern in ("ring", "relay") and p.levels[1] - p.levels[0] > 1 for p in template.phases)
