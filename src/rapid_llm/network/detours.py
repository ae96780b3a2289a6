"""How far the sends of a collective go beyond one link for each hop."""

from rapid_llm.network.groups import Group
from rapid_llm.network.templates import Phase, hops


def detours(phase: Phase, group: Group, level: int | None = None) -> float:
    """Seconds that the links of a phase take beyond one link for each hop (for a phase that crosses a ``level``: the
    outermost it crosses): between ranks that are far apart on rings and tori, on the way back along an open chain, and
    to another rail.
    """
    low, high = phase.levels
    if phase.pattern in ("ring", "relay", "chain"):
        closing = phase.pattern == "ring" and high - low == 1
        links = group.tiers[low].hop_links(group.bounds[low], group.stride, closing=closing) if low == 0 else 1
        near, crossed = group.tiers[low].latency, hops(phase, group.bounds, group.crossings)[low]
        instead = (
            0.0  # of a ring a chain leaves out the closing link; one channel of a node has that inside, another out
        )
        if phase.pattern == "relay" and high - low > 1:
            alone = group.inside == 0 or group.bounds[group.inside - 1] == 1
            outer = group.tiers[high - 1]
            nearest = group.tiers[next(k for k, units in enumerate(group.units) if units < group.bounds[-1])]
            instead = (links - 1) * near + nearest.latency - outer.latency
            instead += nearest.astray - outer.astray if group.off_rails else 0.0
            instead = instead if alone else max(0.0, instead)
        return crossed * (links - 1) * near + instead + _off_rails(phase, group)
    if phase.pattern == "pair":
        at = next((k for k, bound in enumerate(group.bounds) if phase.distance < bound), len(group.bounds) - 1)
        tier, below = group.tiers[at], group.bounds[at - 1] if at else 1
        links = tier.pair(group.bounds[at] // below, phase.distance // below, group.stride * below)[0]
        return (links - 1) * tier.latency + (tier.astray if group.stride * phase.distance % group.node_span else 0.0)
    if phase.pattern not in ("direct", "neighbour"):
        return 0.0
    at = high - 1 if level is None else level
    tier, below = group.tiers[at], group.bounds[at - 1] if at else 1
    apart = tier.turn if phase.pattern == "neighbour" else tier.farthest
    far = apart(group.bounds[at] // below, group.stride * below)
    rails = group.stride * (group.bounds[low - 1] if low else 1) % group.node_span
    return (far - 1) * tier.latency + (tier.astray if rails else 0.0)


def both_ways(phase: Phase, group: Group) -> bool:
    """Whether half of the channels of a ring run backwards: where links form rings, and where the algorithm says so,
    but for a mesh, of which channels take all links, and an open chain, which returns over its own links anyway.
    """
    low = phase.levels[0]
    tier = group.tiers[low]
    if tier.kind == "full" or (tier.kind == "ring" and group.bounds[low] * group.stride < tier.span):
        return False
    return phase.both or tier.kind in ("axis", "torus", "ring", "wired")


def _off_rails(phase: Phase, group: Group) -> float:
    """Seconds, once a lap, in which a ring returns to the rail where it began. It leaves every node at another place
    than where it entered: at the opposite place, so that two nodes bring it back; or, where the number of places is odd
    or the ring runs both ways, at the next, so that only a lap over all places does (``sends._along``).
    """
    inside, low, high = group.inside, phase.levels[0], phase.levels[1]
    if phase.pattern == "chain" or group.off_rails or not low < inside < high:
        return 0.0
    if group.units[inside] > 1:  # it returns from leaf to leaf, where all rails are as far
        return 0.0
    places = group.bounds[inside - 1] // (group.bounds[low - 1] if low else 1)
    back = places if places % 2 or both_ways(phase, group) else 2
    return group.tiers[inside].astray if group.bounds[high - 1] // group.bounds[inside - 1] % back else 0.0
