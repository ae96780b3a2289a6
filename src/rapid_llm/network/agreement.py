"""Closed forms compared with flow simulation of the same sends on the same links: how far apart
they are, case by case.
"""

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import combinations, groupby
from typing import Final

import numpy as np

from rapid_llm.hardware import System, system, system_names
from rapid_llm.network.carried import MOST_SENDS
from rapid_llm.network.contention import RUNS, laid_out, lies_in_whole_units, on_links
from rapid_llm.network.engine import simulate
from rapid_llm.network.engine.state import solo_rates
from rapid_llm.network.explicit import UNIT, Laid, by_turns, laid, takes_turns
from rapid_llm.network.fabric import Fabric
from rapid_llm.network.groups import Members, group_of, members_of
from rapid_llm.network.lines import FREE, Way, bare_line, ways
from rapid_llm.network.links_alone import nesting, templates
from rapid_llm.network.programs import program, run_in_slices, run_on
from rapid_llm.network.regimes import Line
from rapid_llm.network.specimens import BANDWIDTH, FAMILIES, LATENCY, WRITTEN, written
from rapid_llm.network.tasks import Floats, Result, Tasks
from rapid_llm.network.technologies import Library, Protocol
from rapid_llm.network.templates import OPS, Bounds, Template
from rapid_llm.network.topology import LINK_KINDS, Topology

LINKS: Final = Library(
    name="links", protocols={"only": Protocol(algorithms=RUNS)}, links={"intra": FREE, "inter": FREE}
)
"""A library that adds nothing to what links take, and has every algorithm that the flow engine lays out."""
EXCHANGES: Final = ("direct", "pxn", "one-shot", "two-shot")
MOST_RANKS: Final = 1024
MOST_PAIRS: Final = 1 << 14
"""Pairs of ranks that exchange at once in the largest cases: in what is alike for all ranks, more show nothing else."""
LONG_CHAIN: Final = 8
"""Ranks of an open chain up to which every link is busy from its first send on, where exchanges follow one another."""
SMALLEST: Final = 2.0**10
LARGEST: Final = 2.0**30
"""Bytes of the messages that are compared."""

Sizes = Sequence[float] | None
"""Bytes; None: ``telling``."""


@dataclass(frozen=True, slots=True)
class Compared:
    """A collective of ``size`` bytes in groups of ``ranks``, ``stride`` apart, on a system or topology of ``total``
    accelerators: seconds of both; ``meets``: by what links carry in a step, its sends meet beyond what the closed form
    counts (systems), or share links by turns (topologies). What meets is not ``simulated`` (nan) unless asked for.
    """

    where: str
    total: int
    op: str
    algorithm: str
    ranks: int
    stride: int
    size: float
    closed: float
    simulated: float
    meets: bool

    @property
    def off(self) -> float:
        """Simulated over closed, less 1."""
        return self.simulated / self.closed - 1.0


def telling(line: Line) -> list[float]:
    """The sizes at which two times may be farthest apart. Both are piecewise linear and convex in the size, so these
    are the ends, the sizes where the lines of the closed form meet, and those where waiting for a message takes as long
    as moving it.
    """
    lines = [(one.fixed, one.per_byte) for one in (line, *line.others)]
    found = [fixed / per_byte for fixed, per_byte in lines if per_byte > 0]
    found += [(a - c) / (d - b) for (a, b), (c, d) in combinations(lines, 2) if d != b]
    return [SMALLEST, *sorted({float(f"{size:.3g}") for size in found if SMALLEST < size < LARGEST}), LARGEST]


def on_system(
    system: System, total: int, shapes_of: Sequence[tuple[int, int]], sizes: Sizes = None, *, meeting: bool = False
) -> Iterator[Compared]:
    """Every collective and algorithm of groups (ranks, stride) that fill a job, all groups at once."""
    fabric = Fabric.of(system, total)
    for ranks, stride in shapes_of:
        if total % (ranks * stride) or (_a_slice(fabric) and total != ranks):
            continue
        group = group_of(fabric, ranks, stride)
        for op in OPS:
            for way in ways(op, group, LINKS):
                wide = way.algorithm in EXCHANGES and total * ranks > MOST_PAIRS
                if not wide and lies_in_whole_units(way):
                    yield from compared(system, total, op, way, sizes, meeting=meeting)


def _a_slice(fabric: Fabric) -> bool:
    """Whether jobs get parts of a torus, in the shape that suits their size."""
    return fabric.tiers[-1].kind == "torus" and not fabric.tiers[-1].by_links


def compared(
    system: System, total: int, op: str, way: Way, sizes: Sizes = None, *, meeting: bool = False
) -> Iterator[Compared]:
    """One algorithm of all groups of a job at once."""
    topology, line = Topology.of(system, total), bare_line(way)
    ranks, stride = way.group.bounds[-1], way.group.stride
    members = members_of(total, ranks, stride)
    apart = not meets(way, topology, members)
    for size in telling(line) if sizes is None else sizes:
        simulated = on_links(way, size, topology, members).seconds if apart or meeting else np.nan
        closed = line.seconds(size)
        yield Compared(system.name, total, op, way.algorithm, ranks, stride, size, closed, simulated, not apart)


def may_meet(system: System, way: Way) -> bool:
    """``meets`` of the groups of a way that fill as many accelerators as the first needs. Not asked, and False, where
    all groups lie alike on tiers that have formulas, where the flow engine does not run it, or sends are too many.
    """
    group = way.group
    if not group.unlike or way.algorithm not in RUNS or not lies_in_whole_units(way):
        return False
    node, ranks = system.groups[0].node.accelerators, group.bounds[-1]
    total = min(system.accelerators, -(-ranks * group.stride // node) * node)
    members = members_of(total, ranks, group.stride)
    wide = MOST_SENDS // (ranks if way.algorithm in EXCHANGES else 1)
    return 0 < members.size <= wide and meets(way, Topology.of(system, total), members)


def meets(way: Way, topology: Topology, members: Members) -> bool:
    """Whether sends of all groups at once share links in ways that the closed form does not follow: by turns, those of
    one step with those of the next, or of unlike groups more than a link has.
    """
    if way.group.links is not None:  # what links carry is counted, group by group and all together
        return by_turns(laid_out(way, UNIT, topology, members, slices=1), run_on(way.template), topology.capacity)
    if _one_by_one(way):
        return True
    line = bare_line(way)
    counted = max(one.per_byte for one in (line, *line.others))
    if _carried(way, topology, members) > counted * 1.005:
        return True
    cards = any(tier.port > tier.bandwidth * 1.005 for tier in way.group.tiers)
    by_chance = cards and any(phase.pattern == "tree" for phase in way.template.phases)  # which of a card's ranks cross
    if not way.group.scattered:
        return False
    above = len(line.others) > 0 and _uneven_above(way, topology, members)
    return by_chance or above or _at_odds(way, topology, members)


def _one_by_one(way: Way) -> bool:
    """Whether ranks begin an exchange one after another, and links wait for the next: of two exchanges along an open
    chain, whose middle has heard of all first. What goes to near ranks over the link of rank 2, of n, is through in
    (n - 3) / 2 sends, where n - 5 would keep it busy until the next rank begins; far sends wait for the middle, and
    make up for the rest where n is 8 at most.
    """
    if [phase.pattern for phase in way.template.phases] != ["direct", "direct"]:
        return False
    bounds, stride = way.group.bounds, way.group.stride
    return way.group.links is None and len(way.group.tiers[0].from_the_middle(bounds[0], stride)) > LONG_CHAIN // 2


def _steps(way: Way, topology: Topology, members: Members) -> Iterator[Tasks]:
    """What each step of a way sends, all groups at once."""
    phases, lanes = way.template.phases, way.template.lanes
    for step in [phases] if way.template.pipelined else [phases[k : k + lanes] for k in range(0, len(phases), lanes)]:
        part = replace(way, template=replace(way.template, phases=tuple(step)))
        yield laid_out(part, UNIT, topology, members, slices=1)


def _carried(way: Way, topology: Topology, members: Members) -> float:
    """Seconds per byte that the busiest link of each step needs for what the step moves over it."""
    total = 0.0
    for tasks in _steps(way, topology, members):
        moved = np.bincount(tasks.resource, _spread(tasks, tasks.total), topology.links)
        total += float((moved / topology.capacity).max(initial=0.0)) / UNIT
    return total


def _uneven_above(way: Way, topology: Topology, members: Members) -> bool:
    """Whether a group meets others on a link between switches that is busier than all of its cards: the closed form
    knows the cards of each of those that lie unlike.
    """
    rates = [tier.bandwidth for tier in way.group.tiers if tier.scope == "inter"]
    between, groups = topology.kind == LINK_KINDS.index("fabric"), len(members)
    for tasks in _steps(way, topology, members):
        moved = _spread(tasks, tasks.total)
        busy = np.bincount(tasks.resource, moved, topology.links) / topology.capacity
        row = np.repeat(np.arange(len(tasks)) * groups // len(tasks), np.diff(tasks.resource_start))
        above, below = np.zeros(groups), np.zeros(groups)
        high = between[tasks.resource]
        np.maximum.at(above, row[high], busy[tasks.resource[high]])
        np.maximum.at(below, row[~high], busy[tasks.resource[~high]])
        if (above > 1.005 * max(rates) / min(rates) * below).any():
            return True
    return False


def _at_odds(way: Way, topology: Topology, members: Members) -> bool:
    """Whether unlike sends share links by turns, or unlike groups may together exceed a link: they are not in the same
    step at the same time.
    """
    most = np.zeros((len(members), topology.links))
    if by_turns(laid_out(way, UNIT, topology, members, slices=1), run_on(way.template), topology.capacity):
        return True
    for tasks in _steps(way, topology, members):
        rate = solo_rates(tasks, topology.capacity)
        rate = np.minimum(rate, tasks.limit) if len(tasks.limit) else rate
        row = np.repeat(np.arange(len(tasks)) * len(members) // len(tasks), np.diff(tasks.resource_start))
        asked = np.bincount(row * topology.links + tasks.resource, _spread(tasks, rate), most.size)
        most = np.maximum(most, asked.reshape(most.shape))
    return bool((most.sum(axis=0) > topology.capacity * 1.005).any())


def _spread(tasks: Tasks, value: Floats) -> Floats:
    """A value of each task at each of its resources, by what it uses of them."""
    found = np.repeat(value, np.diff(tasks.resource_start))
    return found * tasks.coefficient if len(tasks.coefficient) else found


def on_topology(
    topology: Topology,
    ranks: int,
    sizes: Sizes = None,
    *,
    takes: Callable[[str, str], bool] = lambda op, algorithm: True,
    where: str = "",
    meeting: bool = False,
) -> Iterator[Compared]:
    """Every collective and algorithm that ``takes`` holds of, among the first accelerators of a topology."""
    bounds, total = nesting(topology, ranks), len(topology.accelerators)
    for op in OPS:
        for algorithm, template, _ in templates(op, bounds, None):
            if not takes(op, algorithm):
                continue
            turns, closed = takes_turns(template, bounds, topology), laid(template, bounds, topology)
            wanted = _telling(closed) if sizes is None else sizes
            run = _Runs(template, bounds, topology)
            for size in wanted[:1] if turns and not meeting else wanted:
                simulated = np.nan
                if meeting or not turns:
                    simulated = run_in_slices(template, partial(run, size)).seconds
                yield Compared(where, total, op, algorithm, ranks, 1, size, closed.seconds(size), simulated, turns)


def _telling(closed: Laid) -> list[float]:
    """``telling`` of the closed form on a topology: its ends, and where their lines meet."""
    return telling(Line(closed.seconds(SMALLEST), closed.seconds(LARGEST) / LARGEST, 0.0))


class _Runs:
    """Flow simulation of one program in many sizes: laid out once, since all that it moves is proportional."""

    def __init__(self, template: Template, bounds: Bounds, topology: Topology) -> None:
        self.topology = topology
        self.laid_out = cache(lambda slices: program(template, bounds, UNIT, topology, slices=slices))

    def __call__(self, size: float, slices: int) -> Result:
        tasks = self.laid_out(slices)
        return simulate(replace(tasks, amount=tasks.amount * (size / UNIT)), self.topology, measured=False)


def worst(found: Sequence[Compared]) -> list[tuple[str, str, str, int, Compared | None, int]]:
    """By place, collective and algorithm: cases that do not meet, the one farthest off, and cases that meet."""
    rows = []

    def key(one: Compared) -> tuple[str, str, str]:
        return one.where, one.op, one.algorithm

    for (where, op, algorithm), same in groupby(sorted(found, key=key), key):
        cases = list(same)
        apart = [one for one in cases if not one.meets]
        farthest = max(apart, key=lambda one: abs(one.off), default=None)
        rows.append((where, op, algorithm, len(apart), farthest, len(cases) - len(apart)))
    return rows


def sampled(count: int, seed: int, names: Sequence[str] = ()) -> Iterator[Compared]:
    """A number of random cases: of systems (of the catalogue, or whose file names a constructor) and of constructors
    (or of ``names`` alone), with messages of any size.
    """
    draw, found = random.Random(seed), 0
    families = [name for name in names or FAMILIES if name in FAMILIES]
    known = [name for name in names or (*system_names(), *WRITTEN) if name not in FAMILIES]
    systems = [one for one in (written(name) if name in WRITTEN else system(name) for name in known)
               if Fabric.of(one).tiers]  # fmt: skip
    while found < count:
        of_tiers = draw.random() < (0.5 if families else 1.0) if systems else False
        for one in _of_a_system(draw, draw.choice(systems)) if of_tiers else _of_a_family(draw, draw.choice(families)):
            found += 1
            yield one


def _of_a_system(draw: random.Random, of: System) -> Iterator[Compared]:
    """One collective and algorithm of a job of any size."""
    node, most = of.groups[0].node.accelerators, min(MOST_RANKS, of.accelerators)
    if _a_slice(Fabric.of(of)):
        total = ranks = 2 ** draw.randint(1, most.bit_length() - 1)
        stride = 1
    else:
        total = node * (int((most // node) ** draw.random()) if of.fabric else 1)
        stride = draw.choice(_divisors(total)[:-1] or [1])
        ranks = draw.choice(_divisors(total // stride)[1:] or [1])
    if ranks == 1:
        return
    group = group_of(Fabric.of(of, total), ranks, stride)
    every = [(op, way) for op in OPS for way in ways(op, group, LINKS) if lies_in_whole_units(way)]
    op, way = draw.choice(every)
    if way.algorithm not in EXCHANGES or total * ranks <= MOST_PAIRS:
        yield from compared(of, total, op, way, [_any_size(draw)])


def _of_a_family(draw: random.Random, name: str) -> Iterator[Compared]:
    """One collective and algorithm of a topology of any size, on all of it or on some."""
    family = FAMILIES[name]
    total = draw.choice(
        [n for n in range(2, MOST_RANKS + 1) if family.has(n)]
        if draw.random() < 0.2
        else [n for n in range(2, 65) if family.has(n)] or [72]
    )
    topology = family.of(total, BANDWIDTH * draw.uniform(0.5, 8.0), LATENCY * draw.uniform(0.3, 5.0))
    ranks = total if draw.random() < 0.5 else draw.randint(2, total)
    chosen = draw.choice([(op, a) for op in OPS for a, _, _ in templates(op, nesting(topology, ranks), None)])
    if chosen[1] not in EXCHANGES or ranks * ranks <= MOST_PAIRS:
        yield from on_topology(topology, ranks, [_any_size(draw)], takes=lambda *one: one == chosen, where=name)


def _any_size(draw: random.Random) -> float:
    return float(2.0 ** draw.uniform(np.log2(SMALLEST), np.log2(LARGEST)))


def _divisors(number: int) -> list[int]:
    return [d for d in range(1, number + 1) if number % d == 0]
