"""Rings over links of several levels, and trees of groups that straddle units at different places, hop by hop.

Blocks circulate on a ring: a link carries one block at a time, and a block leaves once it has arrived. The time is the
longest path of a max-plus system (Baccelli et al., Synchronization and Linearity, 1992, section 2.3): in every round a
path makes the next hop, or another transfer in the queue of its link. Among groups that lie differently, the slowest
decides.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rapid_llm.network.flows import double_tree
from rapid_llm.network.groups import Group, members_of
from rapid_llm.network.paths import Path, highest

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
NEGLIGIBLE = 1e-6
"""Share of what two paths differ by, by which one beyond both is none of its own."""


def ring_paths(group: Group, laps: int, hop: Floats, transfer: Floats, both: bool) -> list[Path]:
    """Seconds, and seconds per byte, of the longest paths of blocks that circulate ``laps`` times n - 1 rounds. With
    ``both``, half of them go backwards. ``hop`` (s): of a link of each level; ``transfer`` (s/B in a round): of a link
    where other groups leave or enter units too, and of one where a group is alone. A path makes all hops; or it passes
    the slowest links, and stays in their queue for the rounds that are left.
    """
    members = _everywhere(group)
    rounds = laps * (members.shape[1] - 1)
    inner = group.bounds[group.inside - 1] if group.inside else 1
    # channels leave a unit where they enter the next
    entered = members[:, np.arange(members.shape[1]) // inner * inner]
    level = _levels(members, np.roll(members, -1, axis=1), group)
    off = _off_rail(entered, np.roll(entered, -1, axis=1), group)
    for back in _returns(inner, members.shape[1] // inner, both):
        off[:, -1] |= _off_rail(entered[:, -1] + back * group.stride, entered[:, 0], group)
    if group.rails:  # from node to node by the rail that both have, to and fro
        off[:] = False
        off[:, -1] = group.nodes % 2 > 0
    lonely = ~_beside_others(members, level, group)
    hop, transfer = np.tile(_by_rail(hop, group), 2), np.repeat(transfer, 2, axis=0).ravel()
    found: list[tuple[Floats, Floats]] = []
    patterns = level + len(group.tiers) * (off + 2 * lonely)
    slow = transfer[patterns].max()
    cheap = (hop <= hop[patterns].min()) & (transfer <= transfer[patterns].min())  # where no path need begin or end
    for ring in np.unique(patterns, axis=0) if len(patterns) > 1 else patterns:
        at = np.flatnonzero(transfer[ring] == slow)
        pattern = np.roll(ring, -1 - at[-1]) if len(at) else ring
        edges = np.tile(pattern, laps + 1)
        late, moving = (np.concatenate([[0.0], np.cumsum(column[edges])]) for column in (hop, transfer))
        begin = np.arange(len(pattern))
        found.append((_between(begin, begin + rounds, late), _between(begin, begin + rounds, moving)))
        if not len(at):
            continue  # groups that lie unlike: the slowest links are on others' rings
        kinds = transfer[edges] == slow, ~cheap[edges] | (transfer[edges] == slow)
        queue = _Queue(late, moving - slow * np.arange(len(moving)), kinds, len(pattern), rounds)
        added, sent = queue.farthest().T
        found.append((added, sent + rounds * slow))
    return highest(*(np.concatenate(column) for column in zip(*found, strict=True)))


class _Queue:
    """Paths over a slow link. They begin on a costly link of the ring's first lap whose last link is slow, and end
    behind a costly link at most ``rounds`` later; what they add to two sums along the ring. ``kinds``: which links are
    slow, and which are costly.
    """

    def __init__(
        self, late: Floats, moving: Floats, kinds: tuple[NDArray[np.bool_], NDArray[np.bool_]], ring: int, rounds: int
    ) -> None:
        slow, dear = kinds
        self.sums, self.rounds = np.array([late, moving]), rounds
        self.begins = np.flatnonzero(dear[:ring])
        self.ends = np.flatnonzero(dear) + 1
        self.ends = self.ends[(self.ends > np.argmax(slow)) & (self.ends - rounds <= self.begins[-1])]
        # what begins where: up to the last slow link, or from where the rounds of a later end begin
        self.last = np.maximum.accumulate(np.where(slow, np.arange(len(slow)), -1))[self.ends - 1]
        self.near = self.ends <= rounds
        self.upto = np.searchsorted(self.begins, self.last[self.near], "right") - 1
        self.since = np.searchsorted(self.begins, self.ends[~self.near] - rounds)

    def farthest(self) -> Floats:
        """The points [paths, 2] that are extreme in some direction, found by asking between each two for one beyond
        both.
        """
        corners = [self._highest(1.0, 0.0), self._highest(0.0, 1.0)]
        least = NEGLIGIBLE * np.abs(self.sums).max(axis=1)  # corners that are less apart are so by rounding
        k = 0
        while k < len(corners) - 1:
            (a, b), (c, d) = corners[k], corners[k + 1]
            if a - c > least[0] and d - b > least[1]:
                beyond = self._highest(d - b, a - c)
                if (beyond[0] - a) * (d - b) + (beyond[1] - b) * (a - c) > NEGLIGIBLE * (a - c) * (d - b):
                    corners.insert(k + 1, beyond)
                    continue
            k += 1
        return np.array(corners)

    def _highest(self, late: float, moving: float) -> tuple[float, float]:
        """The path that maximises a weighted sum of both sums: for every end, with the lowest begin
        that it may have.
        """
        height = late * self.sums[0] + moving * self.sums[1]
        start = height[self.begins]
        low = np.empty(len(self.ends))
        low[self.near] = np.minimum.accumulate(start)[self.upto]
        low[~self.near] = np.minimum.accumulate(start[::-1])[::-1][self.since]
        best = int(np.argmax(height[self.ends] - low))
        end = self.ends[best]
        able = self.begins[(self.begins <= self.last[best]) & (self.begins >= end - self.rounds)]
        begin = able[np.argmin(height[able])]
        added = self.sums[:, end] - self.sums[:, begin]
        return float(added[0]), float(added[1])


def _everywhere(group: Group) -> Ints:
    """Accelerators of every group; of one group where all lie alike."""
    n, stride = group.bounds[-1], group.stride
    return members_of(group.job, n, stride) if group.scattered else stride * np.arange(n)[None, :]


def _returns(inner: int, units: int, both: bool) -> list[int]:
    """By how many places channels are further on where they leave the last unit than where they enter the first: back
    and forth through each unit, or both ways round (``sends._along``).
    """
    ahead = units * (1 if both else inner // 2 if inner % 2 == 0 else -(inner // 2)) % inner
    return [ahead, ahead - inner] if ahead else []


def _between(begin: Ints, end: Ints, sums: Floats) -> Floats:
    """Sums over the links from ``begin`` up to ``end`` exclusive, from cumulative sums along the ring."""
    return np.asarray(sums[end] - sums[begin])


class Trees(NamedTuple):
    """A double binary tree, up and down again: its longest chains of hops over all groups, and the bytes, in units of
    S, that the busiest rank sends beyond each level in one of the two trees.
    """

    paths: list[Path]
    sent: Floats


def trees(group: Group, hop: Floats, rates: Floats, beside: Floats) -> Trees:
    """The time of trees through the units of ``bounds``. ``hop``: seconds of a hop of each level; ``rates``: of a port
    (B/s); ``beside``: seconds per byte of S for which a port moves other traffic of the collective.

    For every edge, the longest chain through it up to the root and on down the deepest branch; it moves S at the pace
    of the busier of the edge's ends, or in a full mesh of the link between them.
    """
    inner = group.bounds[group.inside - 1] if group.inside else 1
    units = _everywhere(group)[:, ::inner]
    count = units.shape[1]
    _, tree, child, parent = edges = np.array(sorted(row[:4] for row in double_tree(1, count, spread=False))).T
    level = _levels(units[:, child], units[:, parent], group)
    way = level + len(hop) * _off_rail(units[:, child], units[:, parent], group)
    way, first = np.unique(way, axis=0, return_index=True)
    wait, level = _by_rail(hop, group)[way.T], level[first].T
    below, above = _chains(edges, wait, count)
    deepest = below.max(axis=1)
    through = deepest[tree] + below[tree, child] + wait + above[tree, parent]
    sent, moving, ports = np.zeros(len(hop)), np.zeros_like(wait), list[Floats]()
    for k in range(len(hop)):
        far = level == k if k < group.inside else level >= k
        ends, pace, other = [child, parent], rates[k], beside[k]
        if group.tiers[k].kind == "full":  # a link either way between each two, that no chain inside a unit takes
            ends = [np.minimum(child, parent) * count + np.maximum(child, parent)]
            pace, other = pace / max(1, inner - 1), 0.0
        touched = np.zeros((max(int(end.max(initial=0)) for end in ends) + 1, len(way)))
        for end in ends:
            np.add.at(touched, end, far * 1.0)
        touched /= 4 * inner  # half of S in each tree, up in one phase and down in the other
        sent[k] = touched.max()
        if k < group.inside and inner > 1 and len(ends) > 1:
            ports.append(2 * touched / pace + other)
        for end in ends:
            np.maximum(moving, np.where(far, 2 * touched[end] / pace + other, 0.0), out=moving)
    waits, moves = [through.ravel(), [through.max()]], [moving.ravel(), [beside.max()]]
    for port in ports:  # chains inside a unit wait for what else its ranks send there, on their way to the root or back
        waits.append((deepest[:, None] + above).ravel())
        moves.append(np.broadcast_to(port, above.shape).ravel())
    return Trees(highest(np.concatenate(waits), np.concatenate(moves)), sent)


def _chains(edges: Ints, wait: Floats, count: int) -> tuple[Floats, Floats]:
    """Seconds of the longest chain from a leaf up to each of ``count`` units of both trees, and of that from there to
    the root [2, count, way]; ``edges``: rows of level, tree, child and parent, leaves first; ``wait``: of each edge."""
    below, above = np.zeros((2, 2, count, wait.shape[1]))
    for (_, t, a, b), seconds in zip(edges.T.tolist(), wait, strict=True):
        np.maximum(below[t, b], below[t, a] + seconds, out=below[t, b])
    for (_, t, a, b), seconds in zip(edges.T[::-1].tolist(), wait[::-1], strict=True):
        above[t, a] = above[t, b] + seconds
    return below, above


def _levels(a: Ints, b: Ints, group: Group) -> Ints:
    """The level that each hop from ``a`` to ``b`` stays in."""
    found = np.full(a.shape, len(group.tiers) - 1)
    for k in range(len(group.tiers) - 2, -1, -1):
        found[a // group.tiers[k].span == b // group.tiers[k].span] = k
    return found


def _beside_others(members: Ints, level: Ints, group: Group) -> NDArray[np.bool_]:
    """For every hop of the rings of all groups, whether hops of other groups leave or enter the same unit."""
    found = np.zeros(level.shape, np.bool_)
    for k in range(group.inside, len(group.tiers)):
        span = group.tiers[k - 1].span if k > group.inside else group.node_span
        unit, crossing = members // span, level >= k
        leaving, entered = unit[crossing], np.roll(unit, -1, axis=1)[crossing]
        found[crossing] |= np.bincount(leaving)[leaving] > group.stride
        found[crossing] |= np.bincount(entered)[entered] > group.stride
    return found


def _off_rail(a: Ints, b: Ints, group: Group) -> NDArray[np.bool_]:
    """Which hops lead to another place of a node."""
    return np.asarray((a - b) % group.node_span != 0)


def _by_rail(hop: Floats, group: Group) -> Floats:
    """Seconds of a hop of each level that stays on its rail, and of one that does not."""
    return np.concatenate([hop, hop + np.array([tier.astray for tier in group.tiers])])
