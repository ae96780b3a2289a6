"""Routes of many pairs, compiled: loops over ``search`` and dimension order on grids."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from rapid_llm.network.engine.compiled import compiled
from rapid_llm.network.jit import njit
from rapid_llm.network.routing.search import HASHED, LOADED, Graph, Search, detour, mix, near, shortest, spread
from rapid_llm.network.tasks import Floats, Ints

LOST = -1
"""Length of a row without a path."""


@njit(cache=True)
def _room(links: Ints, used: int, wanted: int) -> Ints:
    """The same links with space for ``wanted`` more."""
    if used + wanted <= len(links):
        return links
    grown = np.empty(2 * (used + wanted), np.int64)
    grown[:used] = links[:used]
    return grown


@compiled
def _carry(g: Graph, links: Ints, begin: int, end: int, amount: float) -> None:
    for k in range(begin, end):
        g.load[links[k]] += amount


@njit(cache=True)
def each_shortest(
    g: Graph, w: Search, source: Ints, target: Ints, via: Ints, amount: Floats, seed: int, mode: int, zoned: bool
) -> tuple[Ints, Ints]:
    """One shortest path a row, over ``via`` where it is not -1; loads grow as rows are placed. (length, links)."""
    length, links, used = np.zeros(len(source), np.int64), np.empty(8 * len(source) + 64, np.int64), 0
    found = np.empty(4 * len(g.forwards), np.int64)
    run = 0
    for row in range(len(source)):
        a, b, middle = source[row], target[row], via[row]
        key = mix(row, seed)
        count, stops = 0, (b if middle < 0 else middle, b)
        for leg in range(1 if middle < 0 else 2):
            run += 1
            start = a if leg == 0 else middle
            zones = (g.zone[start], g.zone[stops[leg]]) if zoned else (-1, -1)
            more = 0 if zoned else near(g, start, stops[leg], mode, amount[row], key, found[count:])
            if more == 0:
                more = shortest(g, w, run, start, stops[leg], mode, amount[row], key, zones, found[count:])
            if more < 0:
                count = LOST
                break
            count += more
        length[row] = count
        if count > 0:
            links = _room(links, used, count)
            links[used : used + count] = found[:count]
            if mode == LOADED:
                _carry(g, links, used, used + count, amount[row])
            used += count
    return length, links[:used]


@njit(cache=True)
def improve(g: Graph, w: Search, source: Ints, target: Ints, amount: Floats, length: Ints, links: Ints) -> None:
    """One pass of adaptive routing: take each row off the links and place it again where load is least."""
    found = np.empty(4 * len(g.forwards), np.int64)
    begin = 0
    for row in range(len(source)):
        end = begin + length[row]
        _carry(g, links, begin, end, -amount[row])
        count = shortest(g, w, -row - 2, source[row], target[row], LOADED, amount[row], 0, (-1, -1), found)
        if count == length[row]:
            links[begin:end] = found[:count]
        _carry(g, links, begin, end, amount[row])
        begin = end


@njit(cache=True)
def each_spread(g: Graph, w: Search, source: Ints, target: Ints) -> tuple[Ints, Ints, Floats]:
    """All shortest paths of every row: (length, links, shares)."""
    length, links, used = np.zeros(len(source), np.int64), np.empty(8 * len(source) + 64, np.int64), 0
    shares = np.empty(len(links))
    found, share = np.empty(len(g.source) + 1, np.int64), np.empty(len(g.source) + 1)
    for row in range(len(source)):
        count = spread(g, w, row + 1, source[row], target[row], (-1, -1), found, share)
        length[row] = count
        if count > 0:
            if used + count > len(links):
                links = _room(links, used, count)
                wider = np.empty(len(links))
                wider[:used] = shares[:used]
                shares = wider
            links[used : used + count] = found[:count]
            shares[used : used + count] = share[:count]
            used += count
    return length, links[:used], shares[:used]


@njit(cache=True)
def each_detour(g: Graph, source: Ints, target: Ints, amount: Floats) -> tuple[Ints, Ints]:
    """The least loaded live path of every row, one after another."""
    length, links, used = np.zeros(len(source), np.int64), np.empty(8 * len(source) + 64, np.int64), 0
    found = np.empty(len(g.forwards) + 1, np.int64)
    for row in range(len(source)):
        count = detour(g, source[row], target[row], amount[row], found)
        length[row] = count
        if count > 0:
            links = _room(links, used, count)
            links[used : used + count] = found[:count]
            _carry(g, links, used, used + count, amount[row])
            used += count
    return length, links[:used]


@compiled
def _worst(g: Graph, found: Ints, count: int) -> float:
    most = 0.0
    for k in range(count):
        most = max(most, g.load[found[k]] / g.capacity[found[k]])
    return most


@njit(cache=True)
def each_ugal(
    g: Graph, w: Search, source: Ints, target: Ints, amount: Floats, seed: int, routers: Ints, threshold: float
) -> tuple[Ints, Ints]:
    """Minimal, or by a random router of another group where load x hops is less (UGAL-G; Singh 2005)."""
    length, links, used = np.zeros(len(source), np.int64), np.empty(12 * len(source) + 64, np.int64), 0
    minimal, other = np.empty(4 * len(g.forwards), np.int64), np.empty(4 * len(g.forwards), np.int64)
    run = 0
    for row in range(len(source)):
        a, b = source[row], target[row]
        run += 1
        near = shortest(g, w, run, a, b, HASHED, amount[row], mix(row, seed), (g.zone[a], g.zone[b]), minimal)
        middle = routers[mix(row, seed + 1) % len(routers)]
        far = -1
        if g.zone[middle] != g.zone[a] and g.zone[middle] != g.zone[b] and g.zone[a] != g.zone[b]:
            run += 2
            key = mix(row, seed + 2)
            far = shortest(g, w, run - 1, a, middle, HASHED, amount[row], key, (g.zone[a], g.zone[middle]), other)
            if far >= 0:
                more = shortest(
                    g, w, run, middle, b, HASHED, amount[row], key, (g.zone[middle], g.zone[b]), other[far:]
                )
                far = far + more if more >= 0 else -1
        direct = near >= 0 and (far < 0 or _worst(g, minimal, near) * near <= _worst(g, other, far) * far + threshold)
        count = near if direct else far
        length[row] = count
        if count > 0:
            links = _room(links, used, count)
            links[used : used + count] = minimal[:count] if direct else other[:count]
            _carry(g, links, used, used + count, amount[row])
            used += count
    return length, links[:used]


@compiled
def _moves(sides: Ints, wraps: Ints, a: int, b: int, axis: int) -> tuple[int, bool, bool]:
    """Steps along an axis, whether they go down, and whether both ways are equally long."""
    stride = 1
    for k in range(axis):
        stride *= sides[k]
    side = sides[axis]
    ahead = b // stride % side - a // stride % side
    if not wraps[axis]:
        return abs(ahead), ahead < 0, False
    ahead %= side
    return min(ahead, side - ahead), ahead > side - ahead, ahead > 0 and 2 * ahead == side


@njit(cache=True)
def dimension_order(
    neighbour: Ints, ends: Ints, sides: Ints, wraps: Ints, source: Ints, target: Ints, order: Ints
) -> tuple[Ints, NDArray[np.int32], Floats]:
    """Axis by axis, the shorter way around; a tie takes both ways with half of the traffic each.

    ``ends`` is the target node of each link; ``order`` (rows, axes). (length, links, share of each path) a row.
    """
    rows, axes = order.shape
    length, part = np.zeros(rows, np.int64), np.ones(rows)
    for row in range(rows):
        steps, ways = 0, 1
        for axis in range(axes):
            moves, _, tie = _moves(sides, wraps, source[row], target[row], axis)
            steps += moves
            ways *= 2 if tie else 1
        length[row] = steps * ways
        part[row] = 1.0 / ways
    links = np.empty(length.sum(), np.int32)
    at = 0
    for row in range(rows):
        for choice in range(int(1.0 / part[row] + 0.5)):
            here, bit = source[row], choice
            for k in range(axes):
                axis = order[row, k]
                moves, down, tie = _moves(sides, wraps, source[row], target[row], axis)
                if tie:
                    down = bit & 1 == 1
                    bit >>= 1
                way = 1 if down else 0
                for _ in range(moves):
                    link = neighbour[here, axis, way]
                    links[at] = link
                    here = ends[link]
                    at += 1
    return length, links, part


@njit(cache=True)
def row_sums(start: Ints, index: Any, values: Floats, weights: Floats) -> Floats:
    """Sum of ``values[index]`` over each CSR row, times ``weights`` where there are any."""
    sums = np.zeros(len(start) - 1)
    for row in range(len(sums)):
        total = 0.0
        for k in range(start[row], start[row + 1]):
            total += values[index[k]] * weights[k] if len(weights) > 0 else values[index[k]]
        sums[row] = total
    return sums
