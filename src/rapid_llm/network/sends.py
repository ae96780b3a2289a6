"""How rings, chains and trees run through units, channel by channel: the sends of one phase, before routing."""

from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from rapid_llm.network.flows import SWITCH, double_tree
from rapid_llm.network.routing import Routes
from rapid_llm.network.tasks import Floats, Ints
from rapid_llm.network.templates import Bounds, Phase
from rapid_llm.network.tier import woven_steps
from rapid_llm.network.topology import LINK_KINDS, Topology

INSIDE: Final = (LINK_KINDS.index("scale-up"), LINK_KINDS.index("host"))
"""Kinds of links that stay in a box."""


@dataclass(slots=True, eq=False)
class Sends:
    """Columns of the sends of one or more phases, before routing: source and target rank, bytes a round, rounds,
    dependencies (task, other, lag), and how many rounds of the template each round represents (None: one). ``channels``
    run side by side, each on its part of what a rank can move; 0: a send takes all that it finds.
    """

    source: Ints
    target: Ints
    amount: Floats
    rounds: Ints
    edges: Ints
    stands: Floats | None = None
    channels: int = 0

    def __len__(self) -> int:
        return len(self.source)


def copies(sends: Sends, count: int, ranks: int) -> Sends:
    """The same sends among ``count`` groups of ``ranks``, group after group."""
    if count == 1:
        return sends
    later = np.arange(count)[:, None]

    def moved(ends: Ints) -> Ints:
        return np.where(ends < 0, ends - later * ranks, ends + later * ranks).ravel()

    edges = sends.edges[None] + later[:, :, None] * np.array([len(sends), len(sends), 0])
    stands = None if sends.stands is None else np.tile(sends.stands, count)
    return Sends(
        moved(sends.source), moved(sends.target), np.tile(sends.amount, count), np.tile(sends.rounds, count),
        edges.reshape(-1, 3), stands, sends.channels,
    )  # fmt: skip


def rings(  # noqa: PLR0917
    phase: Phase, bounds: Bounds, load: float, channels: int | None, both: bool, lanes: tuple[int, ...] | None
) -> Sends:
    """Rings through units: every channel of a ring over several levels leaves a unit at another place."""
    low, high = phase.levels
    inner, outer, n = bounds[low - 1] if low else 1, bounds[high - 1], bounds[-1]
    span = _unit(phase, bounds, channels)
    two_ways = phase.both or (both and outer == n)
    spots = np.array(lanes or range(span)) if span > 1 else np.zeros(1, np.int64)
    around = len(spots) * (2 if phase.both and span > 1 else 1)
    count = channels or (around if span > 1 else 2 if two_ways and outer // inner > 2 else 1)
    members = outer // inner
    place = np.arange(members)
    found: list[tuple[Ints, Ints, Ints]] = []
    for channel in range(count):
        if span > 1:
            order = _along(spots, channel, place, span, phase.both)
        else:
            order = place if channel % 2 == 0 else place[::-1]
        start = np.arange(0, n, outer)[:, None, None] + np.arange(inner)[None, :, None]
        ranks = (start + (order * inner)[None, None, :]).reshape(-1, members)
        first = channel * n + np.arange(len(ranks))[:, None] * members
        index = first + np.arange(members)
        found.append((ranks.ravel(), np.roll(ranks, -1, axis=1).ravel(), np.roll(index, 1, axis=1).ravel()))
    source, target, before = (np.concatenate(column) for column in zip(*found, strict=True))
    index = np.arange(len(source))
    edges = np.stack([index, before, np.ones_like(index)], 1)
    share = load / phase.steps / count
    rounds = np.full(len(source), phase.steps)
    return Sends(source, target, np.full(len(source), share), rounds, edges, channels=count if span > 1 else 0)


def _unit(phase: Phase, bounds: Bounds, channels: int | None) -> int:
    """Ranks of one unit on a ring of several levels, which channels leave at different places; 1 where there is a
    single channel, or a unit is partly filled.
    """
    low, high = phase.levels
    inner, outer = bounds[low - 1] if low else 1, bounds[high - 1]
    alone = high - low < 2 or channels == 1 or outer % bounds[low]
    return 1 if alone else bounds[low] // inner


def through(uneven: tuple[int, int], n: int, steps: int, load: float) -> Sends:
    """Rings through nodes of ``uneven[0]`` ranks and a last node with fewer: a channel enters every node at its place
    or at the next, alternately, and leaves it at the other of the two.
    """
    span, count = uneven
    orders = []
    for channel in range(count):
        near, far = channel, (channel + 1) % count
        for first in range(0, n, span):
            entry, leave = (near, far) if first // span % 2 == 0 else (far, near)
            size = min(span, n - first)
            inside = [(entry + k) % size for k in range(size)]
            orders += [first + place for place in (entry, *(p for p in inside if p not in (entry, leave)), leave)]
    ranks = np.array(orders).reshape(count, n)
    index = np.arange(ranks.size).reshape(count, n)
    edges = np.stack([index.ravel(), np.roll(index, 1, axis=1).ravel(), np.ones(ranks.size, np.int64)], 1)
    amount, rounds = np.full(ranks.size, load / steps / count), np.full(ranks.size, steps)
    return Sends(ranks.ravel(), np.roll(ranks, -1, axis=1).ravel(), amount, rounds, edges, channels=count)


def relay(  # noqa: PLR0917
    phase: Phase, bounds: Bounds, load: float, slices: int, channels: int | None, lanes: tuple[int, ...] | None
) -> Sends:
    """From rank 0 along the order of every ring to all others; channels over several levels as of ``rings``."""
    n, span = bounds[-1], _unit(phase, bounds, channels)
    spots = np.array(lanes or range(span)) if span > 1 else np.zeros(1, np.int64)
    place = np.arange(n)
    if phase.pattern == "weave":
        orders = woven(n)
    elif span > 1:
        count = len(spots) * (2 if phase.both else 1)
        orders = [_along(spots, channel, place, span, phase.both) for channel in range(count)]
    else:
        orders = [place, -place % n] if phase.both and n > 2 else [place]
    ranks = np.stack([np.roll(order, -int(np.flatnonzero(order == 0)[0])) for order in orders])
    index = np.arange(ranks[:, 1:].size).reshape(len(orders), n - 1)
    task, before = index[:, 1:].ravel(), index[:, :-1].ravel()
    amount = np.full(index.size, load / slices / len(orders))
    edges = np.stack([task, before, np.zeros_like(task)], 1)
    rounds = np.full(index.size, slices)
    channels = len(orders) if span > 1 else 0
    return Sends(ranks[:, :-1].ravel(), ranks[:, 1:].ravel(), amount, rounds, edges, channels=channels)


_WOVEN: Final = {8: ((1, 2, 3, 4, 5, 6, 7), (2, 4, 6, 1, 3, 7, 5), (3, 5, 7, 1, 4, 2, 6), (4, 7, 2, 1, 6, 5, 3),
                     (5, 1, 7, 6, 4, 3, 2), (6, 3, 1, 5, 2, 7, 4), (7, 3, 6, 2, 5, 4, 1))}  # fmt: skip
"""Paths from rank 0 over every link of a full mesh of eight that does not lead to it (found by search)."""


def woven(count: int) -> list[Ints]:
    """Paths from rank 0 through all ranks of a full mesh, no two over one link (``woven_steps``)."""
    if count in _WOVEN:
        return [np.array((0, *path)) for path in _WOVEN[count]]
    return [np.arange(count) * step % count for step in woven_steps(count)]


def _along(spots: Ints, channel: int, place: Ints, span: int, both: bool) -> Ints:
    """Ranks of units of ``span`` in the order of one channel. Rail-aligned: a unit is left at the place where the next
    is entered. ``both``: as many channels again run backwards along a ring of links.
    """
    unit, step = np.divmod(place, span)
    if both and len(spots) == span:
        way = 1 if channel < span else -1
        return np.asarray(unit * span + (channel + way * (step - unit)) % span)
    return unit * span + _through(spots, channel, unit, step, span)


def swing(step: Ints) -> Ints:
    """0, 1, -1, 2, -2, ...: from every place of a full mesh such a path, and no two of them take one link (the
    Hamiltonian paths of Walecki; Alspach 2008).
    """
    return (step + 1) // 2 * np.where(step % 2 == 1, 1, -1)


def _through(spots: Ints, channel: int, unit: Ints, step: Ints, span: int) -> Ints:
    """The place at each step through a unit of a channel's ring, entered and left at one of ``spots``. Where all places
    are spots, back and forth from the entry to the opposite place.
    """
    if len(spots) == span:
        across = span // 2 if span % 2 == 0 else -(span // 2)
        return (channel + unit * across + swing(step)) % span
    turn = channel - unit
    first, last = spots[turn % len(spots)], spots[(turn - 1) % len(spots)]
    if len(spots) == 1:
        last = (first - 1) % span
    ahead = (last - first) % span
    # the places after the entry in order, but the exit at the end
    inside = first + step + (step >= ahead)
    return np.where(step == span - 1, last, np.where(step == 0, first, inside)) % span


def longer(sends: Sends, steps: int, rounds: int) -> Sends:
    """Fewer rounds, each of which represents several."""
    stands = np.full(len(sends), steps / rounds)
    return replace(sends, amount=sends.amount * stands, rounds=np.full(len(sends), rounds), stands=stands)


def chains(phase: Phase, bounds: Bounds, load: float, slices: int, lanes: tuple[int, ...] | None) -> Sends:
    """One chain per lane of every unit, towards its rank or from it, on an equal share of the message: back and forth,
    or along a ring of links (``both``), tier by tier where a unit is left once.
    """
    unit, n, spread = bounds[phase.levels[1] - 1], bounds[-1], phase.spread
    ends = np.array(lanes or range(unit))
    base, channel, step = (
        a.ravel() for a in np.meshgrid(np.arange(0, n, unit), ends, np.arange(unit - 1), indexing="ij")
    )
    around = phase.both or phase.levels[1] - phase.levels[0] > 1
    near, far = (base + (channel + (-at if around else swing(at))) % unit for at in (step, step + 1))
    source, target = (near, far) if spread else (far, near)
    index = np.arange(len(source))
    # a reduction starts at the far end: its step s waits for s + 1, a spread step for s - 1
    waits = step > 0 if spread else step < unit - 2
    other = index + (-1 if spread else 1)
    edges = np.stack([index[waits], other[waits], np.zeros(waits.sum(), np.int64)], 1)
    share = load / (unit - 1) / slices * unit / len(ends)
    return Sends(source, target, np.full(len(source), share), np.full(len(source), slices), edges, channels=1)


def trees(  # noqa: PLR0917
    inner: int, units: int, load: float, slices: int, spread: bool, lanes: tuple[int, ...] | None
) -> Sends:
    """Two mirrored binary trees over units for every lane of a unit; an edge waits for those below (above) it."""
    used = lanes or tuple(range(inner))
    rows = [row for row in double_tree(inner, units, spread=spread) if row[1] % inner in used]
    into: dict[tuple[int, int], list[int]] = {}
    for index, (_, channel, _, target, _) in enumerate(rows):
        into.setdefault((channel, target), []).append(index)
    edges = [
        (i, other, 0) for i, (_, channel, source, _, _) in enumerate(rows) for other in into.get((channel, source), [])
    ]
    total = sum(share for *_, share in rows)
    scale = load / min(1.0, units / 4)  # the load of a phase is that of its busiest rank
    ends = np.array([row[2:4] for row in rows], np.int64).reshape(-1, 2)
    share = np.array([row[4] for row in rows]) * scale * inner * inner / len(used) if total else np.zeros(0)
    return Sends(
        ends[:, 0],
        ends[:, 1],
        share / slices,
        np.full(len(rows), slices),
        np.array(edges, np.int64).reshape(-1, 3),
        channels=1,
    )


def switched(  # noqa: PLR0917
    inner: int, unit: int, n: int, load: float, slices: int, lanes: tuple[int, ...] | None
) -> Sends:
    """Every rank sends to the switch of the ranks with its place (modulo ``inner``) in a unit, and receives from it: a
    slice comes back once all of them have sent it.
    """
    rank, used = np.arange(n), inner
    if lanes and inner > 1:
        rank, used = rank[np.isin(rank % inner, lanes)], len(lanes)
    team, size = rank // unit * inner + rank % inner, unit // inner
    order = np.argsort(team, kind="stable")
    rank, ends = rank[order], SWITCH - team[order]
    index = np.arange(len(rank))
    task, other = np.repeat(len(rank) + index, size), np.repeat(index.reshape(-1, size), size, axis=0).ravel()
    edges = np.stack([task, other, np.zeros_like(task)], 1)
    amount = np.full(2 * len(rank), load * inner / used / slices)
    # the second half is the way back: both are told apart by their order (see ``reduction``)
    return Sends(np.tile(rank, 2), np.tile(ends, 2), amount, np.full(len(amount), slices), edges)


def paces(sends: Sends, channels: Ints, team: Ints, topology: Topology, routes: Routes) -> Floats:
    """The highest rate of each send that is one of several channels (B/s), else infinite. Every channel has threads of
    its own, which move it at the pace at which all channels together fill what they share: of a link, each has its
    share of the bytes of its ``team``; of all links by which a rank reaches its box, no more than one part in
    ``channels``.
    """
    row = np.repeat(np.arange(len(sends)), np.diff(routes.start))
    link = np.asarray(routes.link, np.int64)
    side = channels[row] > 0
    row, link = row[side], link[side]
    weight = routes.share[side] if len(routes.share) else np.ones(len(row))
    moved = (sends.amount * sends.rounds)[row]
    _, key = np.unique(team[row] * topology.links + link, return_inverse=True)
    part = np.bincount(key, weights=moved * weight)[key]
    leaves = np.bincount(row, ~np.isin(topology.kind[link], INSIDE), len(sends)) > 0
    inside = np.unique(link[~leaves[row]])
    direct = inside[topology.kind[inside] == INSIDE[0]]  # a pair's own cable, say, is a port beside that to its host
    near = np.unique(topology.source[direct if len(direct) else inside], return_counts=True)
    ports = near[1][topology.node_kind[near[0]] == 0].max(initial=1)
    cut = np.where(leaves[row], 0.0, channels[row] / ports)
    least = np.full(len(sends), np.inf)
    np.minimum.at(least, row, topology.capacity[link] / np.maximum(part / moved, cut))
    return np.floor(least + 0.01)  # float noise must not tell equal sends apart
