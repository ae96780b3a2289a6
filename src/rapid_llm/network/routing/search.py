"""Paths, compiled: shortest paths between pairs from both ends, dimension order, and detours by load.

A graph is handed over as ``Graph``; a search writes its links into ``found`` and returns how many (-1: no path).
"""

from heapq import heappop, heappush
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rapid_llm.network.engine.compiled import checksum, compiled
from rapid_llm.network.jit import njit
from rapid_llm.network.tasks import Floats, Ints

VERSION: Final = np.dtype([(f"source_{checksum(__package__, ('drive', 'search')):08x}", np.bool_)])
FIRST = 0
HASHED = 1
LOADED = 2
ENCLOSED = 32
"""Nodes that may lead to one that is cut off, such as those of its box."""
FEW = 4
"""Links of a node up to which paths of two hops are looked up instead of searched."""


class Graph(NamedTuple):
    """CSR out and in, ends and capacity of links, whether a node forwards traffic, its zone (group), loads so far;
    ``version`` is empty, its type names the sources (see ``compiled.checksum``).
    """

    out_start: Ints
    out_link: Ints
    in_start: Ints
    in_link: Ints
    source: Ints
    target: Ints
    capacity: Floats
    forwards: NDArray[np.bool_]
    zone: Ints
    load: Floats
    version: NDArray[np.void]


class Search(NamedTuple):
    """Work space by node and side (0 from the source, 1 from the target): the search that reached it, its depth, the
    best way in and its cost, the number of shortest ways, and the nodes in order of depth.
    """

    stamp: Ints
    depth: Ints
    way: Ints
    cost: Floats
    ways: Floats
    order: Ints


@compiled
def mix(a: int, b: int) -> int:
    """A hash of two whole numbers in 62 bits (finaliser of SplitMix64; Steele et al. 2014)."""
    z = np.uint64(a) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(b) * np.uint64(0xD1B54A32D192ED03)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return int((z ^ (z >> np.uint64(31))) >> np.uint64(2))


@compiled
def _step_cost(g: Graph, link: int, mode: int, amount: float, key: int) -> float:
    if mode == LOADED:
        return float(((g.load[link] + amount) / g.capacity[link]) ** 2)
    if mode == HASHED:
        return float(mix(link, key)) * 2.0**-62
    return 0.0


@compiled
def _grow(
    g: Graph,
    w: Search,
    side: int,
    first: int,
    last: int,
    run: int,
    mode: int,
    amount: float,
    key: int,
    zones: tuple[int, int],
) -> int:
    """One more level from one side: nodes ``order[side, first:last]`` are expanded; where the new level ends."""
    end = last
    for k in range(first, last):
        here = w.order[side, k]
        if k > 0 and not g.forwards[here]:
            continue
        begin, stop = (
            (g.out_start[here], g.out_start[here + 1]) if side == 0 else (g.in_start[here], g.in_start[here + 1])
        )
        for i in range(begin, stop):
            link = g.out_link[i] if side == 0 else g.in_link[i]
            there = g.target[link] if side == 0 else g.source[link]
            if g.capacity[link] <= 0.0:
                continue
            if zones[0] >= 0 and g.zone[there] != zones[0] and g.zone[there] != zones[1]:
                continue
            cost = w.cost[side, here] + _step_cost(g, link, mode, amount, key)
            if w.stamp[side, there] != run:
                w.stamp[side, there] = run
                w.depth[side, there] = w.depth[side, here] + 1
                w.way[side, there] = link
                w.cost[side, there] = cost
                w.ways[side, there] = w.ways[side, here]
                w.order[side, end] = there
                end += 1
            elif w.depth[side, there] == w.depth[side, here] + 1:
                w.ways[side, there] += w.ways[side, here]
                if cost < w.cost[side, there]:
                    w.cost[side, there] = cost
                    w.way[side, there] = link
    return end


@compiled
def meet(
    g: Graph, w: Search, run: int, a: int, b: int, mode: int, amount: float, key: int, zones: tuple[int, int]
) -> tuple[int, int, int]:
    """Search from both ends, the smaller frontier first, until they meet.

    Returns (best meeting node or -1, first and last place of its level in ``order[0]``).
    """
    for side in range(2):
        node = a if side == 0 else b
        w.stamp[side, node], w.depth[side, node], w.cost[side, node], w.ways[side, node] = run, 0, 0.0, 1.0
        w.order[side, 0], w.way[side, node] = node, -1
    near_first, near_last, far_first, far_last = 0, 1, 0, 1
    while True:
        side = 0 if near_last - near_first <= far_last - far_first else 1
        first, last = (near_first, near_last) if side == 0 else (far_first, far_last)
        end = _grow(g, w, side, first, last, run, mode, amount, key, zones)
        if end == last:
            return -1, 0, 0
        if side == 0:
            near_first, near_last = last, end
        else:
            far_first, far_last = last, end
        best, least = -1, np.inf
        goal = w.depth[1, w.order[1, far_last - 1]]
        for k in range(near_first, near_last):
            node = w.order[0, k]
            if w.stamp[1, node] == run and w.depth[1, node] == goal and (g.forwards[node] or node in (a, b)):
                cost = w.cost[0, node] + w.cost[1, node]
                if cost < least:
                    best, least = node, cost
        if best >= 0:
            return best, near_first, near_last


@compiled
def near(g: Graph, a: int, b: int, mode: int, amount: float, key: int, found: Ints) -> int:
    """A path of one or two hops between nodes of few links, or 0: most pairs below one switch end here."""
    out_first, out_last, in_first, in_last = g.out_start[a], g.out_start[a + 1], g.in_start[b], g.in_start[b + 1]
    if out_last - out_first > FEW or in_last - in_first > FEW:
        return 0
    least, hops = np.inf, 3
    for i in range(out_first, out_last):
        first = g.out_link[i]
        middle = g.target[first]
        if g.capacity[first] <= 0.0:
            continue
        if middle == b:
            cost = _step_cost(g, first, mode, amount, key)
            if hops > 1 or cost < least:
                found[0], least, hops = first, cost, 1
        elif hops > 1 and g.forwards[middle]:
            for j in range(in_first, in_last):
                second = g.in_link[j]
                if g.source[second] != middle or g.capacity[second] <= 0.0:
                    continue
                cost = _step_cost(g, first, mode, amount, key) + _step_cost(g, second, mode, amount, key)
                if hops > 2 or cost < least:
                    found[0], found[1], least, hops = first, second, cost, 2
    return hops if hops < 3 else 0


@compiled
def shortest(
    g: Graph,
    w: Search,
    run: int,
    a: int,
    b: int,
    mode: int,
    amount: float,
    key: int,
    zones: tuple[int, int],
    found: Ints,
) -> int:
    """One shortest path: the first, one by hash of ``key``, or the least loaded."""
    if a == b:
        return 0
    node, _, _ = meet(g, w, run, a, b, mode, amount, key, zones)
    if node < 0:
        return -1
    count = int(w.depth[0, node])
    here = node
    for k in range(count):
        found[count - 1 - k] = w.way[0, here]
        here = g.source[w.way[0, here]]
    here = node
    while here != b:
        found[count] = w.way[1, here]
        here = g.target[found[count]]
        count += 1
    return count


@compiled
def _enclosed(g: Graph, a: int, b: int, seen: Ints) -> bool:
    """Whether only a few nodes, and not ``a``, lead to ``b``: then there is no need to search from ``a``."""
    seen[0], count, at = b, 1, 0
    while at < count:
        here = seen[at]
        at += 1
        if here == a:
            return False
        if here != b and not g.forwards[here]:
            continue
        for i in range(g.in_start[here], g.in_start[here + 1]):
            there = g.source[g.in_link[i]]
            known = g.capacity[g.in_link[i]] <= 0.0
            for k in range(count):
                known = known or seen[k] == there
            if known:
                continue
            if count == len(seen):
                return False
            seen[count] = there
            count += 1
    return True


@njit(cache=True)
def detour(g: Graph, a: int, b: int, amount: float, found: Ints) -> int:
    """The live path of least summed squared load (Dijkstra), so that a busy short way loses to an idle longer one."""
    if _enclosed(g, a, b, np.empty(ENCLOSED, np.int64)):
        return -1
    nodes = len(g.forwards)
    cost = np.full(nodes, np.inf)
    way = np.full(nodes, -1, np.int64)
    cost[a] = 0.0
    heap = [(0.0, a)]
    while len(heap) > 0:
        here_cost, here = heappop(heap)
        if here == b:
            break
        if here_cost > cost[here] or (here != a and not g.forwards[here]):
            continue
        for i in range(g.out_start[here], g.out_start[here + 1]):
            link = g.out_link[i]
            if g.capacity[link] <= 0.0:
                continue
            there = g.target[link]
            total = here_cost + ((g.load[link] + amount) / g.capacity[link]) ** 2
            if total < cost[there]:
                cost[there] = total
                way[there] = link
                heappush(heap, (total, there))
    if way[b] < 0:
        return -1
    count, here = 0, b
    while here != a:
        found[count] = way[here]
        here = g.source[way[here]]
        count += 1
    for k in range(count // 2):
        found[k], found[count - 1 - k] = found[count - 1 - k], found[k]
    return count


@njit(cache=True)
def spread(g: Graph, w: Search, run: int, a: int, b: int, zones: tuple[int, int], found: Ints, share: Floats) -> int:
    """All shortest paths at once: links and the share of the traffic on each, every path the same."""
    if a == b:
        return 0
    node, first, last = meet(g, w, run, a, b, FIRST, 0.0, 0, zones)
    if node < 0:
        return -1
    goal, total, kept = w.depth[1, node], 0.0, 0
    walk = np.empty(last - first, np.int64)
    for k in range(first, last):
        here = w.order[0, k]
        if w.stamp[1, here] == run and w.depth[1, here] == goal:
            total += w.ways[0, here] * w.ways[1, here]
            walk[kept] = here
            kept += 1
    count = _spread_side(g, w, run, 0, a, walk[:kept], total, found, share)
    return count + _spread_side(g, w, run, 1, b, walk[:kept], total, found[count:], share[count:])


@njit(cache=True)
def _spread_side(
    g: Graph, w: Search, run: int, side: int, end: int, walk: Ints, total: float, found: Ints, share: Floats
) -> int:
    """Walk level by level from the meeting nodes to one end; ``cost`` holds the share that passes a node."""
    count = 0
    for here in walk:
        w.cost[side, here] = w.ways[0, here] * w.ways[1, here] / total
    while len(walk) > 0 and walk[0] != end:
        ahead, reached = np.empty(len(g.forwards), np.int64), 0
        for here in walk:
            begin, stop = g.out_start[here], g.out_start[here + 1]
            if side == 0:
                begin, stop = g.in_start[here], g.in_start[here + 1]
            for i in range(begin, stop):
                link = g.in_link[i] if side == 0 else g.out_link[i]
                there = g.source[link] if side == 0 else g.target[link]
                onward = w.stamp[side, there] == run and w.depth[side, there] == w.depth[side, here] - 1
                if not onward or g.capacity[link] <= 0.0 or not (g.forwards[there] or there == end):
                    continue
                piece = w.cost[side, here] * w.ways[side, there] / w.ways[side, here]
                found[count], share[count] = link, piece
                count += 1
                if w.way[side, there] != -2:
                    w.way[side, there], w.cost[side, there] = -2, 0.0
                    ahead[reached] = there
                    reached += 1
                w.cost[side, there] += piece
        walk = ahead[:reached]
    return count
