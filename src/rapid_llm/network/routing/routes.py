"""Which links the traffic of a pair takes, for many pairs at once."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from rapid_llm.errors import InfeasibleError, InputError, unknown_name
from rapid_llm.network.connected import severed
from rapid_llm.network.tasks import Floats, Ints
from rapid_llm.network.topology import NODE_KINDS, NONE, Topology

if TYPE_CHECKING:
    from rapid_llm.network.routing.search import Graph, Search

POLICIES: Final = (
    "auto", "dimension-order", "alternating", "shortest", "ecmp", "spray", "balanced", "adaptive", "rail", "minimal",
    "ugal", "fan",
)  # fmt: skip
"""``auto``: dimension order on a grid, sprayed over other direct networks, else balanced. ``alternating``: dimension
order, reversed for odd pairs. ``shortest``: the first by id. ``ecmp``: by seeded hash (``ecmp:7``: of seed 7;
``ecmp:7:4``: over 4 queue pairs). ``spray``: all shortest paths alike. ``balanced``: shortest, least loaded as pairs
are placed, or shared out evenly among spines where links to those are then the busiest; ``adaptive``: placed again
until loads settle. ``rail``: over the accelerator of the own box that is on the rail of the target. ``minimal``,
``ugal``: dragonfly groups. ``fan``: as ``auto``, but round dead links over all shortest ways."""
Table = Mapping[tuple[int, int], tuple[int, ...]]
"""A user's own routes: links from one node to another; all other pairs are routed ``auto``."""
Indices = NDArray[np.int64] | NDArray[np.int32]
PASSES: Final = 4
"""Rounds of adaptive routing: loads settle within 2 to 4."""


@dataclass(frozen=True, slots=True, eq=False)
class Routes:
    """CSR rows in path order: links of row i are ``link[start[i]:start[i + 1]]``; ``share`` of the row's traffic on
    each, or empty where every row takes one path.
    """

    start: Ints
    link: Indices
    share: Floats

    def __len__(self) -> int:
        return len(self.start) - 1

    def row(self, index: int) -> Indices:
        """Links of one row."""
        found: Indices = self.link[self.start[index] : self.start[index + 1]]
        return found

    def load(self, links: int, amount: Floats | float = 1.0) -> Floats:
        """What each link carries where row i sends ``amount[i]``."""
        weight = np.repeat(np.broadcast_to(np.asarray(amount, np.float64), len(self)), np.diff(self.start))
        weight = weight * self.share if len(self.share) else weight
        total: Floats = np.bincount(self.link, weights=weight, minlength=links).astype(np.float64)
        return total


def gathered(parts: Sequence[Routes], rows: Ints) -> Routes:
    """These rows of several tables of routes, one behind the other."""
    shared = any(len(part.share) for part in parts)
    link: Indices = np.concatenate([part.link for part in parts])
    share = np.concatenate([part.share if len(part.share) else np.ones(len(part.link)) for part in parts])
    length = np.concatenate([np.diff(part.start) for part in parts])
    if (np.diff(rows) == 1).all():
        return Routes(_starts(length), link, share if shared else np.zeros(0))
    begin = _starts(length)[rows]
    start = _starts(length[rows])
    where = np.arange(start[-1]) + np.repeat(begin - start[:-1], length[rows])
    return Routes(start, link[where], share[where] if shared else np.zeros(0))


def route(
    topology: Topology,
    source: Ints,
    target: Ints,
    *,
    policy: str | Table = "auto",
    amount: Floats | float = 1.0,
    seed: int = 0,
    queue_pairs: int = 1,
    threshold: float = 0.0,
) -> Routes:
    """Routes from nodes ``source`` to nodes ``target``, a row each; ``amount`` (bytes) is what load is counted in.

    Routes are those of the healthy network; rows that meet a link that is down detour by load over live ones.
    ``queue_pairs``: with ``ecmp``, how many hashes a row is split over. ``threshold`` (load x hops) favours minimal
    paths of ``ugal``. InputError for an unknown policy or one that the topology cannot follow; InfeasibleError naming
    the accelerators that nothing reaches.
    """
    if not isinstance(policy, str):
        return _from_table(topology, source, target, policy, amount)
    if policy.startswith("ecmp:"):
        policy, seed, queue_pairs = _hashed(policy)
    if policy not in POLICIES:
        raise InputError(unknown_name("routing", policy, POLICIES), field="network.routing")
    source, target = np.asarray(source, np.int64), np.asarray(target, np.int64)
    amounts = np.array(np.broadcast_to(np.asarray(amount, np.float64), source.shape))  # a copy: always of one type
    usual = "spray" if topology.chips.all() else "balanced"
    usual = "dimension-order" if topology.grid is not None else usual
    chosen = usual if policy in ("auto", "fan") else policy
    if chosen in ("dimension-order", "alternating"):
        routes = _dimension_order(topology, source, target, chosen)
    elif chosen == "ecmp" and queue_pairs > 1:
        routes = _queue_pairs(topology, source, target, amounts, seed, queue_pairs)
    else:
        routes = _searched(topology, source, target, amounts, chosen, seed, threshold)
        if chosen == "balanced":
            routes = _inside(topology, routes, source, target)
    return repaired(topology, routes, source, target, amounts, fan=policy == "fan")


def _hashed(policy: str) -> tuple[str, int, int]:
    """Seed and queue pairs of ``ecmp:SEED`` or ``ecmp:SEED:QUEUE_PAIRS``; InputError for other words."""
    found = re.fullmatch(r"ecmp:(\d{1,9})(?::([1-9]\d{0,2}))?", policy)
    if found is None:
        raise InputError(
            f"routing '{policy}' is not ecmp:SEED or ecmp:SEED:QUEUE_PAIRS. Try ecmp:7 or ecmp:7:4.",
            field="network.routing",
        )
    return "ecmp", int(found[1]), int(found[2] or 1)


def _from_table(topology: Topology, source: Ints, target: Ints, table: Table, amount: Floats | float) -> Routes:
    """Routes of a table, and those of ``auto`` where it has none; rows that meet a dead link detour all the same."""
    amounts = np.array(np.broadcast_to(np.asarray(amount, np.float64), np.shape(source)))
    rest = route(topology, source, target, amount=amounts)
    pairs = zip(np.asarray(source).tolist(), np.asarray(target).tolist(), strict=True)
    rows = [table.get(pair) for pair in pairs]
    links = [rest.row(i).astype(np.int64) if row is None else np.array(row, np.int64) for i, row in enumerate(rows)]
    shares = rest.share if len(rest.share) else np.ones(len(rest.link))
    share = [shares[rest.start[i] : rest.start[i + 1]] if r is None else np.ones(len(r)) for i, r in enumerate(rows)]
    start = _starts(np.array([len(one) for one in links], np.int64))
    own = Routes(start, np.concatenate(links), np.concatenate(share) if len(rest.share) else np.zeros(0))
    return repaired(topology, own, np.asarray(source, np.int64), np.asarray(target, np.int64), amounts)


def _dimension_order(topology: Topology, source: Ints, target: Ints, policy: str) -> Routes:
    from rapid_llm.network.routing.drive import dimension_order

    grid = topology.grid
    if grid is None:
        raise InputError(
            f"{topology.name} has no axes to route along; use shortest, balanced or spray.", field="network.routing"
        )
    order = np.broadcast_to(np.arange(len(grid.sides)), (len(source), len(grid.sides))).copy()
    if policy == "alternating":
        odd = (source + target) % 2 == 1
        order[odd] = order[odd][:, ::-1]
    sides, wraps = np.array(grid.sides, np.int64), np.array(grid.wraps, np.int64)
    length, links, part = dimension_order(grid.neighbour, topology.target, sides, wraps, source, target, order)
    return Routes(_starts(length), links, np.repeat(part, length) if (part < 1).any() else np.zeros(0))


def _queue_pairs(topology: Topology, source: Ints, target: Ints, amounts: Floats, seed: int, count: int) -> Routes:
    split = partial(np.repeat, repeats=count)
    routes = _searched(topology, split(source), split(target), split(amounts) / count, "ecmp", seed, 0.0)
    return Routes(routes.start[::count].copy(), routes.link, np.full(len(routes.link), 1 / count))


def _searched(
    topology: Topology, source: Ints, target: Ints, amounts: Floats, policy: str, seed: int, threshold: float
) -> Routes:
    from rapid_llm.network.routing import drive
    from rapid_llm.network.routing.clos import over_spines
    from rapid_llm.network.routing.search import FIRST, HASHED, LOADED

    graph, work = graph_of(topology, topology.bandwidth), search_of(topology)
    none = np.full(len(source), NONE, np.int64)
    shares: Floats = np.zeros(0)
    if policy == "spray":
        length, links, shares = drive.each_spread(graph, work, source, target)
    elif policy == "ugal":
        routers = np.flatnonzero(topology.node_kind == NODE_KINDS.index("router"))
        _needs_groups(topology, policy)
        length, links = drive.each_ugal(graph, work, source, target, amounts, seed, routers, threshold)
    else:
        if policy == "minimal":
            _needs_groups(topology, policy)
        mode = {"shortest": FIRST, "ecmp": HASHED}.get(policy, LOADED)
        via = _rail_peers(topology, source, target) if policy == "rail" else none
        zoned = policy == "minimal"
        length, links = drive.each_shortest(graph, work, source, target, via, amounts, seed, mode, zoned)
    if (length < 0).any():
        _cut_off(topology, source[length < 0], target[length < 0], topology.bandwidth)
    start = _starts(length)
    if policy == "balanced" and (_level(graph, start, links, amounts) or over_spines(topology, length, links, amounts)):
        return Routes(start, links, shares)
    for _ in range(PASSES if policy in ("adaptive", "balanced") else 0):
        work.stamp[:] = 0
        drive.improve(graph, work, source, target, amounts, length, links)
    return Routes(start, links, shares)


def _level(graph: "Graph", start: Ints, links: Ints, amounts: Floats) -> bool:
    """Whether no link is busier than the busiest of those at the ends of rows, which have no other way."""
    rows = np.diff(start) > 0
    ends = np.zeros(len(graph.load))
    for at in (start[:-1][rows], start[1:][rows] - 1):
        np.maximum.at(ends, links[at], graph.load[links[at]])
    busy: Floats = graph.load / graph.capacity
    return bool(busy.max(initial=0.0) <= (ends / graph.capacity).max(initial=0.0) * (1 + 1e-9))


def _inside(topology: Topology, routes: Routes, source: Ints, target: Ints) -> Routes:
    """The same routes, but those between accelerators of one box stay on the links that join its accelerators, which
    forward there (Infinity Fabric): network cards are not the way to a neighbour's neighbour. Equal ways take equal
    shares, as both ways round a ring do.
    """
    ours = topology.chips[topology.source] & topology.chips[topology.target]
    near = (topology.box[source] == topology.box[target]) & (topology.box[source] != NONE)
    rows = np.flatnonzero(near & (np.diff(routes.start) > 1)) if ours.any() else np.zeros(0, np.int64)
    if not len(rows) or ours.all():
        return routes
    from rapid_llm.network.routing import drive

    graph = graph_of(topology, np.where(ours, topology.bandwidth, 0.0), transit=True)
    length, links, shares = drive.each_spread(graph, search_of(topology), source[rows], target[rows])
    lengths = np.diff(routes.start)
    moved = np.zeros(len(routes), np.bool_)
    moved[rows[length > 0]] = True
    stay = np.repeat(~moved, lengths)
    lengths[moved] = length[length > 0]
    link = _interleave(lengths, moved, routes.link[stay].astype(np.int64), links)
    if (shares == 1).all():
        return Routes(_starts(lengths), link, np.zeros(0))
    share = np.ones(len(link))
    share[np.repeat(moved, lengths)] = shares
    return Routes(_starts(lengths), link, share)


def _needs_groups(topology: Topology, policy: str) -> None:
    if (topology.zones == topology.zones[0]).all():
        raise InputError(
            f"routing '{policy}' is for a dragonfly, whose routers form groups; {topology.name} has no links between "
            "groups. Try auto, balanced or ecmp.",
            field="network.routing",
        )


def _rail_peers(topology: Topology, source: Ints, target: Ints) -> Ints:
    """The accelerator of the source's box on the rail of the target, where the two differ (PXN of NCCL 2.12)."""
    width = int(topology.rail.max(initial=0)) + 1
    place = {
        (int(topology.box[n]) * width + int(topology.rail[n])): int(n)
        for n in topology.accelerators.tolist()
        if topology.box[n] != NONE and topology.rail[n] != NONE
    }
    far = (topology.box[source] != topology.box[target]) & (topology.rail[source] != topology.rail[target])
    wanted = topology.box[source] * width + topology.rail[target]
    peers = [place.get(int(key), NONE) if out else NONE for key, out in zip(wanted, far, strict=True)]
    return np.array(peers, np.int64)


def repaired(
    topology: Topology, routes: Routes, source: Ints, target: Ints, amounts: Floats, *, fan: bool = False
) -> Routes:
    """The same routes, but rows over a link that is down detour by load, or take all shortest ways alike (``fan``: a
    library shares a dead rail out among the others); InfeasibleError where there is no way.
    """
    if (topology.capacity > 0).all():
        return routes
    down = topology.capacity[routes.link] <= 0
    if not down.any():
        return routes
    owner = np.repeat(np.arange(len(routes)), np.diff(routes.start))
    hit = np.zeros(len(routes), np.bool_)
    hit[owner[down]] = True
    keep = ~hit[owner]
    share = routes.share if len(routes.share) else np.ones(len(routes.link))
    load = np.bincount(routes.link[keep], (amounts[owner] * share)[keep], topology.links).astype(np.float64)
    rows = np.flatnonzero(hit)
    length, links, weights = _around(topology, source[rows], target[rows], amounts[rows], load, fan=fan)
    lengths = np.where(hit, 0, np.diff(routes.start))
    lengths[rows] = length
    start = _starts(lengths)
    merged = np.empty(start[-1], np.int64)
    shares = np.ones(start[-1])
    new_owner = np.repeat(hit, lengths)
    merged[~new_owner], shares[~new_owner] = routes.link[keep], share[keep]
    merged[new_owner] = links
    if fan:
        shares[new_owner] = weights
    return Routes(start, merged, shares if len(routes.share) or fan else np.zeros(0))


def _around(
    topology: Topology, source: Ints, target: Ints, amounts: Floats, load: Floats, *, fan: bool
) -> tuple[Ints, Ints, Floats]:
    """Ways around links that are down: links of each row, all of them one after the other, and the share of each
    (``fan``). ``load`` (B) is what other rows already put on links. InfeasibleError where there is no way."""
    from rapid_llm.network.routing.drive import each_detour, each_spread

    graph = graph_of(topology, topology.capacity, load=load)
    weights: Floats = np.zeros(0)
    if fan:
        graph = graph_of(topology, topology.capacity, transit=True)
        length, links, weights = each_spread(graph, search_of(topology), source, target)
        if (length < 0).any():
            _cut_off(topology, source, target, topology.capacity)
    else:
        length, links = each_detour(graph, source, target, amounts)
    lost = length < 0
    if lost.any():  # only through accelerators, as PXN does
        graph = graph_of(topology, topology.capacity, load=graph.load, transit=True)
        length[lost], more = each_detour(graph, source[lost], target[lost], amounts[lost])
        if (length < 0).any():
            _cut_off(topology, source, target, topology.capacity)
        links = _interleave(length, lost, links, more)
    return length, links, weights


def _interleave(length: Ints, second: Any, first_links: Ints, second_links: Ints) -> Ints:
    """Links of rows in order, where the rows of ``second`` come from another list."""
    owner = np.repeat(second, length)
    links = np.empty(int(length.sum()), np.int64)
    links[owner], links[~owner] = second_links, first_links
    return links


def graph_of(
    topology: Topology, capacity: Floats, *, load: Floats | None = None, transit: bool | None = None
) -> "Graph":
    """The columns that searches read. Accelerators forward traffic where nothing else does, or with ``transit``."""
    from rapid_llm.network.routing.search import VERSION, Graph

    out_start, out_link = topology.outgoing
    in_start, in_link = topology.incoming
    direct = bool(topology.chips.all()) if transit is None else transit
    forwards = np.ones(topology.nodes, np.bool_) if direct else topology.node_kind != 0
    return Graph(
        out_start, out_link, in_start, in_link, topology.source, topology.target, capacity, forwards, topology.zones,
        np.zeros(topology.links) if load is None else load, np.zeros(0, VERSION),
    )  # fmt: skip


def search_of(topology: Topology) -> "Search":
    """Work space of a search."""
    from rapid_llm.network.routing.search import Search

    shape = (2, topology.nodes)
    whole = [np.zeros(shape, np.int64) for _ in range(4)]
    return Search(whole[0], whole[1], whole[2], np.zeros(shape), np.zeros(shape), whole[3])


def _starts(length: Ints) -> Ints:
    start = np.zeros(len(length) + 1, np.int64)
    np.cumsum(length, out=start[1:])
    return start


def _cut_off(topology: Topology, source: Ints, target: Ints, capacity: Floats) -> None:
    """Raise InfeasibleError naming the accelerators that no live path joins with the most of them."""
    cut = severed(topology, capacity > 0)
    if cut is not None:
        raise InfeasibleError(
            f"{topology.name} is disconnected: no live path joins {cut}; remove a fault or leave these accelerators "
            "out.",
            field="faults",
        )
    ends = f"{topology.names[source[0]]} to {topology.names[target[0]]}"
    raise InfeasibleError(
        f"{topology.name} has no live path from {ends} that routing may take; remove a fault or try another routing.",
        field="faults",
    )
