"""Routes to switches that reduce: up a tree of switches, over which what meets goes on once, and down again.

An NVSwitch reduces what the accelerators of its box send; in a network every leaf reduces what its cards send, and the
switch at the root of the tree what the leaves send (SHARP; Graham et al. 2016, section 3). A tree is rooted at the
lowest switch above all of its leaves; of several such it takes the one whose links fewest others have taken.
"""

from collections import Counter
from collections.abc import Mapping
from typing import Final

import numpy as np

from rapid_llm.errors import InfeasibleError, InputError
from rapid_llm.network.routing import Routes
from rapid_llm.network.tasks import Floats, Ints
from rapid_llm.network.topology import NODE_KINDS, Topology

_HEIGHT: Final = {"accelerator": 0, "host": 1, "nic": 2, "leaf": 3, "spine": 4, "core": 5}
"""What stands above what in a network of switches."""
_LEAF: Final = _HEIGHT["leaf"]

_Path = tuple[int, ...]


def with_switches(topology: Topology, routes: Routes, source: Ints, target: Ints) -> tuple[Routes, Floats]:
    """Routes of all sends, given the ``routes`` of those to other nodes, and the seconds along each of the rest (else
    0). A negative ``target`` is a team that reduces: its nodes' first sends go up and their second ones down. What
    several of a team send over one link is one stream there, of which each send has its share.
    """
    up = _Above(topology)
    teams: dict[int, list[int]] = {}
    for row in np.flatnonzero(target < 0).tolist():
        teams.setdefault(int(target[row]), []).append(row)
    found: dict[int, tuple[_Path, list[float]]] = {}
    for rows in teams.values():
        nodes = source[rows].tolist()
        paths = up.tree(list(dict.fromkeys(nodes)))
        merged = Counter(link for path in paths.values() for link in path)
        seen: Counter[int] = Counter()
        for row, node in zip(rows, nodes, strict=True):
            path = paths[node]
            share = [1.0 / merged[link] for link in path]
            found[row] = (path, share) if seen[node] % 2 == 0 else (up.back(path), share[::-1])
            seen[node] += 1
    links: list[Ints] = []
    shares: list[Floats] = []
    at = 0
    for row in range(len(source)):
        if row in found:
            links.append(np.array(found[row][0], np.int64))
            shares.append(np.array(found[row][1]))
            continue
        part = slice(int(routes.start[at]), int(routes.start[at + 1]))
        links.append(np.asarray(routes.link[part], np.int64))
        shares.append(routes.share[part] if len(routes.share) else np.ones(len(links[-1])))
        at += 1
    every = np.concatenate(shares)
    start = np.concatenate([[0], np.cumsum([len(link) for link in links])])
    along = np.zeros(len(source))
    for row, (path, _) in found.items():
        along[row] = topology.latency[list(path)].sum()
    return Routes(start, np.concatenate(links), every if (every < 1).any() else np.zeros(0)), along


class _Above:
    """Ways up from nodes to the switches above them over live links, and how many trees have ``taken`` each link."""

    def __init__(self, topology: Topology) -> None:
        self.topology, self.taken = topology, Counter[int]()
        self.height = [_HEIGHT.get(NODE_KINDS[kind], -1) for kind in topology.node_kind.tolist()]
        self.box_switch = NODE_KINDS.index("nvswitch")
        self.above: dict[int, Mapping[int, _Path]] = {}

    def tree(self, nodes: list[int]) -> dict[int, _Path]:
        """Links up from each of ``nodes`` to the switch where all of them meet."""
        for reach in (self._in_box, self._leaf):
            ways = {node: reach(node) for node in nodes}
            if len(tops := {self._end(path) for path in ways.values() if path}) == 1 and all(ways.values()):
                return ways
        if lost := [node for node, path in ways.items() if not path]:
            raise self._lacks(lost[0])
        meeting = set.intersection(*(set(self._over(leaf)) for leaf in tops))
        if not meeting:
            raise self._lacks(nodes[0])
        lowest = min(self.height[one] for one in meeting)
        roots = [one for one in sorted(meeting) if self.height[one] == lowest]
        trees = {one: {link for leaf in tops for link in self._over(leaf)[one]} for one in roots}
        root = min(roots, key=lambda one: max(self.taken[link] for link in trees[one]))
        self.taken.update(trees[root])
        return {node: path + self._over(self._end(path))[root] for node, path in ways.items()}

    def back(self, path: _Path) -> _Path:
        """The same links downwards."""
        top = self.topology
        return tuple(int(top.links_between(int(top.target[k]), int(top.source[k]))[0]) for k in reversed(path))

    def _end(self, path: _Path) -> int:
        return int(self.topology.target[path[-1]])

    def _up(self, node: int) -> list[int]:
        """Live links that lead higher."""
        start, order = self.topology.outgoing
        here = self.height[node]
        return [
            k
            for k in order[start[node] : start[node + 1]].tolist()
            if self.height[self.topology.target[k]] > here and self.topology.health[k] > 0
        ]

    def _in_box(self, node: int) -> _Path:
        """The link to the switch of a box."""
        start, order = self.topology.outgoing
        ends = order[start[node] : start[node + 1]].tolist()
        return next(((k,) for k in ends if self.topology.node_kind[self.topology.target[k]] == self.box_switch), ())

    def _leaf(self, node: int) -> _Path:
        """The links to the leaf of a node; none where it has none."""
        path: _Path = ()
        while self.height[node] < _LEAF and (links := self._up(node)):
            path, node = (*path, links[0]), int(self.topology.target[links[0]])
        return path if self.height[node] == _LEAF else ()

    def _over(self, leaf: int) -> Mapping[int, _Path]:
        """Every switch above a leaf, and the links to it."""
        if leaf not in self.above:
            found: dict[int, _Path] = {}
            front: list[tuple[int, _Path]] = [(leaf, ())]
            while front:
                front = [(int(self.topology.target[k]), (*path, k)) for node, path in front for k in self._up(node)]
                found |= {node: path for node, path in front if node not in found}
            self.above[leaf] = found
        return self.above[leaf]

    def _lacks(self, node: int) -> Exception:
        name = self.topology.names[node]
        if (self.topology.health > 0).all():
            return InputError(f"{name} is not at a switch that reduces.", field="algorithm")
        return InfeasibleError(
            f"no live path joins {name} to a switch that reduces. Try another algorithm, such as ring.", field="faults"
        )
