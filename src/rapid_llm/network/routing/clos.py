"""Rows over the spines of a leaf–spine network, placed so that no spine takes more than its share."""

import numpy as np

from rapid_llm.network.jit import njit
from rapid_llm.network.tasks import Floats, Ints
from rapid_llm.network.topology import NODE_KINDS, Topology

CLASSES = 16
"""Different amounts that are placed class by class; of more, rows stay where they are."""


def over_spines(topology: Topology, length: Ints, links: Ints, amounts: Floats) -> bool:
    """Place rows on spines anew, in ``links``; whether the network has spines that are all alike.

    Such a network is rearrangeably non-blocking: leaves that send and receive at most D equal rows need D / spines of
    them on a link, since edges of a bipartite graph of degree D take D colours (König 1916; Beneš 1965).
    """
    spine = topology.node_kind == NODE_KINDS.index("spine")
    tops, up, down = np.flatnonzero(spine), spine[topology.target], spine[topology.source]
    leaves, place = np.unique(topology.source[up], return_inverse=True)
    table = np.full((2, len(leaves), len(tops)), -1, np.int64)
    table[0, place, np.searchsorted(tops, topology.target[up])] = np.flatnonzero(up)
    back = np.searchsorted(leaves, topology.target[down])
    alike = not (up & down).any() and up.sum() == down.sum() == table[0].size > 0
    alike = alike and len(np.unique(topology.bandwidth[up | down])) == 1
    if not alike or not np.isin(topology.target[down], leaves).all():
        return False
    table[1, back, np.searchsorted(tops, topology.source[down])] = np.flatnonzero(down)
    if (table < 0).any():
        return False
    at = np.flatnonzero(up[links])  # the link to a spine; the next one leads down
    row = np.repeat(np.arange(len(length)), length)[at]
    values, kind = np.unique(amounts[row], return_inverse=True)
    if len(values) > CLASSES or len(np.unique(row)) < len(row):
        return False
    first = np.searchsorted(leaves, topology.source[links[at]])
    second = np.searchsorted(leaves, topology.target[links[at + 1]])
    turn = 0
    for one in range(len(values)):
        mine = np.flatnonzero(kind == one)
        most = max(np.bincount(ends).max() for ends in (first[mine], second[mine]))
        slots = -(-int(most) // len(tops)) * len(tops)
        chosen = (coloured(first[mine], second[mine], len(leaves), slots) + turn) % len(tops)
        links[at[mine]] = table[0, first[mine], chosen]
        links[at[mine] + 1] = table[1, second[mine], chosen]
        turn += int(most)
    return True


@njit(cache=True)
def coloured(first: Ints, second: Ints, ends: int, colours: int) -> Ints:
    """Colours of the edges of a bipartite graph, no two alike at an end: the first that is free at both ends, else
    one that is free at each, after a path of edges in these two has swapped them.
    """
    colour = np.full(len(first), -1, np.int64)
    taken = np.full((2, ends, colours), -1, np.int64)
    path = np.empty(len(first), np.int64)
    for edge in range(len(first)):
        u, v = first[edge], second[edge]
        here, there, both = -1, -1, -1
        for c in range(colours):
            near, far = taken[0, u, c] < 0, taken[1, v, c] < 0
            if near and far:
                both = c
                break
            if near and here < 0:
                here = c
            if far and there < 0:
                there = c
        if both < 0:
            both, count, side, node, c = here, 0, 1, v, here
            while taken[side, node, c] >= 0:
                path[count] = taken[side, node, c]
                node = first[path[count]] if side == 1 else second[path[count]]
                side, c = 1 - side, here + there - c
                count += 1
            for k in range(count):
                taken[0, first[path[k]], colour[path[k]]] = -1
                taken[1, second[path[k]], colour[path[k]]] = -1
            for k in range(count):
                colour[path[k]] = here + there - colour[path[k]]
                taken[0, first[path[k]], colour[path[k]]] = path[k]
                taken[1, second[path[k]], colour[path[k]]] = path[k]
        colour[edge] = both
        taken[0, u, both] = taken[1, v, both] = edge
    return colour
