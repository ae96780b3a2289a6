"""Rows over the spines of a leaf–spine network, placed so that no spine takes more than its share."""

import numpy as np
from numpy.typing import NDArray

from rapid_llm.network.jit import njit
from rapid_llm.network.tasks import Floats, Ints
from rapid_llm.network.topology import NODE_KINDS, Topology

Bools = NDArray[np.bool_]

CLASSES = 16
"""Different amounts that are placed class by class; of more, rows stay where they are."""


def over_spines(topology: Topology, length: Ints, links: Ints, amounts: Floats) -> bool:
    """Place rows on spines anew, in ``links``, and on the cores above them; whether the network has such that are all
    alike.

    It is rearrangeably non-blocking then: leaves that send and receive at most D equal rows need D / spines of them on
    a link, since edges of a bipartite graph of degree D take D colours (König 1916; Beneš 1965). Of a fat tree, the
    spines that the same cores join are one choice, over whose cores pods meet as leaves do over spines.
    """
    spine, core = (topology.node_kind == NODE_KINDS.index(kind) for kind in ("spine", "core"))
    source, target = topology.source, topology.target
    planes: dict[tuple[int, ...], int] = {}
    choice = np.zeros(topology.nodes, np.int64)
    for one in np.flatnonzero(spine).tolist():
        cores = target[(source == one) & core[target]]
        choice[one] = planes.setdefault(tuple(cores.tolist()) or (one,), len(planes))
        choice[cores] = np.arange(len(cores))
    lower = ~spine & ~core
    leaves, near = _ways(topology, lower[source] & spine[target], spine[source] & lower[target], choice)
    pods, far = _ways(topology, spine[source] & core[target], core[source] & spine[target], choice)
    at = np.flatnonzero(lower[source[links]] & spine[target[links]])
    row = np.repeat(np.arange(len(length)), length)[at]
    kind = np.unique(amounts[row], return_inverse=True)[1]
    if not near.size or (core.any() and not far.size) or kind.max(initial=0) >= CLASSES or len(set(row)) < len(row):
        return False
    high = core[target[links[at + 1]]]
    _place(links, at, at + np.where(high, 3, 1), topology, (leaves, near, kind))
    if high.any():
        _place(links, at[high] + 1, at[high] + 2, topology, (pods, far, kind[high]))
    return True


def _ways(topology: Topology, up: Bools, down: Bools, choice: Ints) -> tuple[Ints, Ints]:
    """Nodes from which links lead ``up``, and of each the link to every choice and the one ``down`` from it
    [2, nodes, choices]; nothing where some lack one, or carry less.
    """
    nodes, place = np.unique(topology.source[up], return_inverse=True)
    many, back = int(choice[topology.target[up]].max(initial=-1)) + 1, np.searchsorted(nodes, topology.target[down])
    table = np.full((2, len(nodes), many), -1, np.int64)
    table[0, place, choice[topology.target[up]]] = np.flatnonzero(up)
    alike = up.sum() == down.sum() == table[0].size and len(np.unique(topology.bandwidth[up | down])) == 1
    if not alike or not np.isin(topology.target[down], nodes).all():
        return nodes, table[:0]
    table[1, back, choice[topology.source[down]]] = np.flatnonzero(down)
    return nodes, table if (table >= 0).all() else table[:0]


def _place(links: Ints, up: Ints, down: Ints, topology: Topology, over: tuple[Ints, Ints, Ints]) -> None:
    """Choose a way for rows whose links ``up`` and ``down`` are at these places, amount by amount (``kind``)."""
    nodes, table, kind = over
    first = np.searchsorted(nodes, topology.source[links[up]])
    second = np.searchsorted(nodes, topology.target[links[down]])
    ways, turn = table.shape[2], 0
    for one in range(int(kind.max(initial=-1)) + 1):
        mine = np.flatnonzero(kind == one)
        if not len(mine):
            continue
        most = int(max(np.bincount(ends).max() for ends in (first[mine], second[mine])))
        chosen = (coloured(first[mine], second[mine], len(nodes), -(-most // ways) * ways) + turn) % ways
        links[up[mine]] = table[0, first[mine], chosen]
        links[down[mine]] = table[1, second[mine], chosen]
        turn += most


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
