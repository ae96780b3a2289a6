"""Collective algorithms as step templates on symbolic ranks.

A template says who sends what to whom after what, in units of the message size S; it knows no time. The closed form
(``collectives``) reads the loads and hops of its phases, a flow engine expands the same phases with ``flows``.

A group of ``n`` ranks is nested: ``bounds`` are the ranks inside one unit of each level, innermost first, ending in n;
``(8, 32)`` is eight ranks in each of four nodes. Level k joins units of ``bounds[k-1]`` ranks (level 0 joins ranks).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from math import ceil, log2
from typing import Final, Literal

Pattern = Literal["ring", "relay", "weave", "chain", "tree", "direct", "switch", "neighbour", "pair", "shift"]

OPS: Final = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send_recv", "broadcast")
"""What a collective does; its code is the index here."""
NCCL_TESTS: Final[Mapping[str, str]] = {"alltoall": "all_to_all", "sendrecv": "send_recv"}
"""Names of nccl-tests for two of these; its others differ in underscores only."""
ALGORITHMS: Final = (
    "none", "ring", "tree", "hierarchical", "nvls", "nvls-tree", "one-shot", "two-shot", "direct", "p2p",
    "two-way-ring", "halving-doubling", "orders", "pxn", "sharp", "custom",
)  # fmt: skip
"""How it is done; its code is the index here. ``none`` is a group of one."""

SLICES: Final = 128
"""Slices in which a pipelined phase is simulated."""


@dataclass(frozen=True, slots=True)
class Phase:
    """``steps`` rounds, each after the last, in which a rank sends ``load`` x S in all.

    ``ring``: to the next rank over all ``levels``, every rank at once; ``relay``: along that order from the first rank,
    ``weave``: in as many orders as a full mesh has disjoint ones; ``neighbour``: to the next rank, once; ``chain``:
    ranks of a unit in a row, one rotation a channel; ``tree``: two complementary binary trees over units, half of S
    each; ``direct``: to every member at once; ``switch``: to the
    reducing switch; ``pair``: with the rank whose number differs in the bit ``distance``; ``shift``: to the rank
    ``distance`` further on. ``levels`` is the half-open range of levels whose members take part; ``spread`` turns chain
    and tree around, from the root; ``both`` sends half of a ring each way.
    """

    pattern: Pattern
    levels: tuple[int, int]
    steps: int
    load: float
    spread: bool = False
    distance: int = 1
    both: bool = False


@dataclass(frozen=True, slots=True)
class Template:
    """Phases of one algorithm. ``pipelined`` phases run at once on slices of S, else one after another.

    ``lanes`` phases in a row are one stage: each works on its own share of S at the same time; the next stage waits for
    all of them.
    """

    algorithm: int
    phases: tuple[Phase, ...]
    pipelined: bool = False
    lanes: int = 1

    @property
    def sent(self) -> float:
        """Bytes that one rank sends, in units of S."""
        return sum(phase.load for phase in self.phases)


Bounds = tuple[int, ...]


def _code(name: str) -> int:
    return ALGORITHMS.index(name)


def members(bounds: Bounds) -> tuple[int, ...]:
    """Units that each level joins: ``(8, 32)`` is ``(8, 4)``; the last unit may be partly filled."""
    return tuple(ceil(b / a) for a, b in zip((1, *bounds), bounds, strict=False))


def ring(op: str, bounds: Bounds, inside: int) -> Template:
    """One ring through all ranks (Patarasuk and Yuan 2009): n - 1 rounds of S/n, twice for an all-reduce.

    Broadcast is the chain of the same order, S through every rank, in slices.
    """
    n, levels = bounds[-1], (0, len(bounds))
    if op == "broadcast":
        return Template(_code("ring"), (Phase("relay", levels, n - 1, 1.0),), pipelined=True)
    once = Phase("ring", levels, n - 1, (n - 1) / n)
    return Template(_code("ring"), (once, once) if op == "all_reduce" else (once,))


def hierarchical(op: str, bounds: Bounds, inside: int) -> Template:
    """Rings level by level: reduce-scatter outwards on S, S/m0, S/(m0 m1) ...; all-gather on the way back."""
    outward, share = [], 1.0
    for level, m in enumerate(members(bounds)):
        share /= m
        outward.append(Phase("ring", (level, level + 1), m - 1, (m - 1) * share))
    phases = {"reduce_scatter": outward, "all_gather": outward[::-1], "all_reduce": outward + outward[::-1]}[op]
    return Template(_code("hierarchical"), tuple(p for p in phases if p.steps))


def two_way_ring(op: str, bounds: Bounds, inside: int) -> Template:
    """Two rings, one each way, on half of S each."""
    base = ring(op, bounds, inside)
    return Template(_code("two-way-ring"), tuple(replace(phase, both=True) for phase in base.phases))


def halving_doubling(op: str, bounds: Bounds, inside: int) -> Template:
    """Exchange of half of S with the next rank, of a quarter with the one two away, ... and back (Thakur 2005).

    Needs a power of two. The nearest ranks, whose links are the fastest, exchange the most.
    """
    count, levels = bounds[-1].bit_length() - 1, (0, len(bounds))
    rounds = [Phase("pair", levels, 1, 0.5 ** (t + 1), distance=2**t) for t in range(count)]
    phases = {"reduce_scatter": rounds, "all_gather": rounds[::-1], "all_reduce": rounds + rounds[::-1]}[op]
    return Template(_code("halving-doubling"), tuple(phases))


def orders(op: str, bounds: Bounds, inside: int) -> Template:
    """Rings level by level in every rotation of the levels at once, each on its share of S: all links work always."""
    sizes = members(bounds)
    count = len(sizes)
    lanes = [[(first + k) % count for k in range(count)] for first in range(count)]
    stages: list[list[Phase]] = [[] for _ in range(count)]
    for lane in lanes:
        share = 1 / count
        for stage, level in enumerate(lane):
            share /= sizes[level]
            stages[stage].append(Phase("ring", (level, level + 1), sizes[level] - 1, (sizes[level] - 1) * share))
    chosen = {"reduce_scatter": stages, "all_gather": stages[::-1], "all_reduce": stages + stages[::-1]}[op]
    return Template(_code("orders"), tuple(phase for stage in chosen for phase in stage), lanes=count)


def tree(op: str, bounds: Bounds, inside: int) -> Template:
    """Chain inside a node, double binary tree between units, up and down in slices (NCCL; Sanders, Speck, Traff 2009).

    A unit is inner in one tree (S/2 to its parent, S/2 to each of two children) and a leaf in the other: with four
    units or more the busiest sends S in each direction of the reduction, with two units S/2, with three 3/4 S.
    """
    inner = bounds[inside - 1] if inside else 1
    units = ceil(bounds[-1] / inner)
    reduce = []
    if inner > 1:
        reduce.append(Phase("chain", (0, inside), inner - 1, (inner - 1) / inner))
    if units > 1:
        reduce.append(Phase("tree", (inside, len(bounds)), ceil(log2(units)), _busiest(units) / inner))
    spread = [replace(phase, spread=True) for phase in reversed(reduce)]
    return Template(_code("tree"), (*reduce, *spread), pipelined=True)


def _busiest(units: float) -> float:
    """Share of S that the busiest of ``units`` sends one way through the double tree."""
    return min(1.0, units / 4)


def nvls(op: str, bounds: Bounds, inside: int) -> Template:
    """The switch reduces and multicasts: a rank sends S (n + 1)/n, not 2 S (n - 1)/n."""
    n = bounds[0]
    return Template(_code("nvls"), (Phase("switch", (0, 1), 2, (n + 1) / n),), pipelined=True)


def nvls_tree(op: str, bounds: Bounds, inside: int) -> Template:
    """The switch reduces inside a node, a double binary tree joins the nodes, in slices."""
    switch = nvls(op, bounds, inside).phases
    between = tuple(p for p in tree(op, bounds, inside).phases if p.pattern == "tree")
    return Template(_code("nvls-tree"), switch + between, pipelined=True)


def one_shot(op: str, bounds: Bounds, inside: int) -> Template:
    """Every rank reads the whole message of every other and reduces by itself: one round, S (n - 1)."""
    return Template(_code("one-shot"), (Phase("direct", (0, len(bounds)), 1, bounds[-1] - 1.0),))


def two_shot(op: str, bounds: Bounds, inside: int) -> Template:
    """Direct reduce-scatter, then direct all-gather: two rounds of S/n to every peer."""
    n = bounds[-1]
    once = Phase("direct", (0, len(bounds)), 1, (n - 1) / n)
    return Template(_code("two-shot"), (once, once))


def direct(op: str, bounds: Bounds, inside: int) -> Template:
    """Every rank sends S/n to every other, all at once."""
    n = bounds[-1]
    return Template(_code("direct"), (Phase("direct", (0, len(bounds)), 1, (n - 1) / n),))


def pxn(op: str, bounds: Bounds, inside: int) -> Template:
    """All-to-all over rails: inside the node to the rank on the rail of the destination, then along the rail (NCCL)."""
    inner, n = bounds[inside - 1], bounds[-1]
    units = n / inner
    first = Phase("direct", (0, inside), 1, (inner - 1) / inner)
    return Template(
        _code("pxn"), (first, Phase("direct", (inside, len(bounds)), 1, (units - 1) / units)), pipelined=True
    )


def sharp(op: str, bounds: Bounds, inside: int) -> Template:
    """Reduce-scatter inside a node, S/g up to the reducing switches and back, all-gather (Graham et al. 2016)."""
    inner = bounds[inside - 1] if inside else 1
    up = (Phase("switch", (inside, len(bounds)), 2, 1 / inner),)
    if inner == 1:
        return Template(_code("sharp"), up, pipelined=True)
    once = Phase("chain", (0, inside), inner - 1, (inner - 1) / inner)
    return Template(_code("sharp"), (once, *up, replace(once, spread=True)), pipelined=True)


def p2p(op: str, bounds: Bounds, inside: int) -> Template:
    """Every rank sends S to the next; the time is that of the farthest neighbours."""
    return Template(_code("p2p"), (Phase("neighbour", (0, len(bounds)), 1, 1.0),))


BUILDERS: Final[dict[str, tuple[Callable[[str, Bounds, int], Template], tuple[str, ...]]]] = {
    "ring": (ring, ("all_reduce", "all_gather", "reduce_scatter", "broadcast")),
    "two-way-ring": (two_way_ring, ("all_reduce", "all_gather", "reduce_scatter")),
    "halving-doubling": (halving_doubling, ("all_reduce", "all_gather", "reduce_scatter")),
    "orders": (orders, ("all_reduce", "all_gather", "reduce_scatter")),
    "tree": (tree, ("all_reduce",)),
    "hierarchical": (hierarchical, ("all_reduce", "all_gather", "reduce_scatter")),
    "nvls": (nvls, ("all_reduce",)),
    "nvls-tree": (nvls_tree, ("all_reduce",)),
    "one-shot": (one_shot, ("all_reduce",)),
    "two-shot": (two_shot, ("all_reduce",)),
    "direct": (direct, ("all_to_all",)),
    "pxn": (pxn, ("all_to_all",)),
    "sharp": (sharp, ("all_reduce",)),
    "p2p": (p2p, ("send_recv",)),
}
"""Algorithm -> its template from (operation, bounds, levels inside a node), and the operations that it serves."""


def hops(phase: Phase, bounds: Bounds, crossings: tuple[int, ...] | None = None) -> tuple[float, ...]:
    """Dependent hops of a phase by level. The latest datum on a ring crosses every edge but one of the nearest; a tree
    joins neighbours first, and its root the next. ``crossings``: how many hops of a ring through all ranks leave what
    each level joins, where the units of ``bounds`` lie beside each other.
    """
    count = [0.0] * len(bounds)
    low, high = phase.levels
    inner = bounds[low - 1] if low else 1
    if phase.pattern in ("ring", "relay", "chain"):
        outer = bounds[high - 1]
        edges = outer / inner
        if crossings is not None and outer == bounds[-1]:
            leaving = [edges, *(0.0 if units == 1 else min(edges, units) for units in crossings)]
            ending = [a - b for a, b in pairwise(leaving)]
            nearest = next(level for level, number in enumerate(ending) if number > 0)
            return tuple(phase.steps * (a - (k == nearest)) / (edges - 1) for k, a in enumerate(ending))
        for level in range(low, high):
            below = bounds[level - 1] if level else 1
            crossing = outer / below - (outer / bounds[level] if level + 1 < high else 0)
            count[level] = phase.steps * (crossing - (level == low)) / (edges - 1)
    elif phase.pattern == "tree":
        for level in range(low, high):
            depth = ceil(log2(bounds[level] / inner))
            count[level] = max(0, depth - (level + 1 < high)) - sum(count)
    elif phase.pattern in ("pair", "shift"):
        count[_crossed(phase, bounds)] = float(phase.steps)
    else:
        count[high - 1] = float(phase.steps)
    return tuple(count)


def peers(phase: Phase, bounds: Bounds) -> float:
    """How many others a member of a phase exchanges with."""
    low, high = phase.levels
    return bounds[high - 1] / (bounds[low - 1] if low else 1) - 1


def _crossed(phase: Phase, bounds: Bounds) -> int:
    """The outermost level that ranks ``distance`` apart cross."""
    return next((k for k, bound in enumerate(bounds) if phase.distance < bound), len(bounds) - 1)


def loads(phase: Phase, bounds: Bounds, fewest: Bounds | None = None) -> tuple[float, ...]:
    """Bytes in units of S that a rank sends across each level, spread over the ports of its unit.

    A ring or tree enters a unit once per channel, and channels use all ports: the load falls by ``bounds[k-1]``.
    An exchange sends to ``bounds[k] - bounds[k-1]`` peers across level k; of ranks that all send ``distance`` further,
    the share ``distance / bounds[k-1]`` crosses level k. ``fewest``: ranks in a unit from where most leave it, where
    that is not ``bounds``.
    """
    result = [0.0] * len(bounds)
    low, high = phase.levels
    inner = bounds[low - 1] if low else 1
    if phase.pattern == "pair":
        result[_crossed(phase, bounds)] = phase.load
        return tuple(result)
    for level in range(low, high):
        below = bounds[level - 1] if level else 1
        if phase.pattern == "direct":
            near, far = (fewest[level - 1] if level else 1, fewest[level]) if fewest else (below, bounds[level])
            result[level] = phase.load * (far - near) / (bounds[high - 1] - inner)
        elif phase.pattern == "shift":
            result[level] = phase.load * min(1.0, phase.distance / below)
        elif phase.pattern in ("ring", "relay", "chain", "switch"):  # what a switch reduces leaves its unit once
            result[level] = phase.load * inner / below
        elif phase.pattern == "tree":
            outer = bounds[-1]
            result[level] = phase.load * inner / below * _busiest(outer / below) / _busiest(outer / inner)
        else:
            result[level] = phase.load
    return tuple(result)
