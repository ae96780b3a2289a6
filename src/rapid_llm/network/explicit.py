"""The closed form of a collective on an explicit topology: the load of its own steps on the busiest links, the hops
that depend on each other, and no simulation. It is that of flow simulation where the sends of a step share links alike.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from rapid_llm.network.paths import Path, upper
from rapid_llm.network.programs import program, run_on
from rapid_llm.network.routing import Table
from rapid_llm.network.tasks import Floats, Ints, Tasks
from rapid_llm.network.templates import Bounds, Template
from rapid_llm.network.topology import Topology

CIRCLES: Final = ("ring",)
"""Patterns whose blocks circulate."""
UNIT: Final = 1e9
"""Bytes of a message that is laid out: all that it moves is proportional."""
ENDS: Final = (1.0, 2.0**40)
"""Bytes between which a time is drawn as lines."""
NEAR: Final = 1e-4
"""Share by which sizes are apart whose times give a slope, and up to which a further line is left out."""
DEEP: Final = 4
"""Times that what lies between two lines is halved."""


@dataclass(frozen=True, slots=True, eq=False)
class _Stage:
    """Sends that begin together: ``rows`` of the program; seconds per byte of S that a round takes on the slowest link,
    and seconds of its hop; the send ``before`` each on its ring, if blocks circulate; ``after``: which sends follow.
    """

    rows: Ints
    transfer: Floats
    latency: Floats
    rounds: Ints
    before: Ints | None
    handed: Ints
    after: Ints


@dataclass(frozen=True, slots=True, eq=False)
class Laid:
    """A program whose stages are priced: the seconds of a message of any size, all groups at once; for a ``pipelined``
    program, lines up to the end of each chain of hops.
    """

    stages: tuple[_Stage, ...]
    pipelined: tuple[Path, ...]

    @classmethod
    def of(cls, tasks: Tasks, template: Template, capacity: Floats) -> "Laid":
        """Of tasks that move ``UNIT`` bytes, in a single slice each."""
        if template.pipelined:
            return cls((), tuple(_chains(tasks, _slowest(tasks, _busy(tasks, capacity)) / UNIT)))
        circles = _circles(template)
        return cls(tuple(_stage(tasks, k, circle, capacity) for k, circle in enumerate(circles)), ())

    def seconds(self, size: float) -> float:
        """Seconds of a message of ``size`` bytes."""
        if self.pipelined:
            return max(wait + moving * size for wait, moving in self.pipelined)
        finish = np.zeros(sum(len(stage.rows) for stage in self.stages))
        for stage in self.stages:
            start = np.zeros(len(stage.rows))
            np.maximum.at(start, stage.after, finish[stage.handed])
            finish[stage.rows] = _ended(stage, start, stage.transfer * size)
        return float(finish.max(initial=0.0))

    def lines(self) -> list[Path]:
        """Lines of which the highest counts: a time of maxima and sums is convex in the size, and straight between
        kinks.
        """
        if self.pipelined:
            return list(self.pipelined)
        small, large = map(self._tangent, ENDS)
        return upper([small, large, *self._between(small, large, DEEP)])

    def _tangent(self, size: float) -> Path:
        at = self.seconds(size)
        slope = (self.seconds(size * (1 + NEAR)) - at) / (size * NEAR)
        return max(at - slope * size, 0.0), slope

    def _between(self, low: Path, high: Path, deep: int) -> list[Path]:
        (a, b), (c, d) = low, high
        if not deep or d <= b * (1 + NEAR) or a <= c:
            return []
        size = (a - c) / (d - b)
        if self.seconds(size) <= (a + b * size) * (1 + NEAR):
            return []
        one = self._tangent(size)
        return [one, *self._between(low, one, deep - 1), *self._between(one, high, deep - 1)]


def closed_form(
    template: Template,
    bounds: Bounds,
    size_bytes: float,
    topology: Topology,
    *,
    placement: Sequence[int] | Ints | None = None,
    policy: str | Table = "auto",
) -> float:
    """Seconds of a collective among ``bounds[-1]`` ranks; arguments as of ``programs.program``.

    Pipelined phases take the hops of a chain and the bytes of its busiest link, or of its slowest channel. Else
    a rank goes on to the next phase once it has received all of one: blocks on a ring hop, or wait for the one before
    them; other sends take their hops and their busiest link.
    """
    return laid(template, bounds, topology, placement=placement, policy=policy).seconds(size_bytes)


def laid(
    template: Template,
    bounds: Bounds,
    topology: Topology,
    *,
    placement: Sequence[int] | Ints | None = None,
    policy: str | Table = "auto",
) -> Laid:
    """``closed_form`` of every size."""
    tasks = program(template, bounds, UNIT, topology, placement=placement, policy=policy, slices=1)
    return Laid.of(tasks, run_on(template), topology.capacity)


def takes_turns(
    template: Template, bounds: Bounds, topology: Topology, *, placement: Sequence[int] | Ints | None = None
) -> bool:
    """``by_turns`` of a template's own steps."""
    tasks = program(template, bounds, UNIT, topology, placement=placement, slices=1)
    return by_turns(tasks, run_on(template), topology.capacity)


def by_turns(tasks: Tasks, template: Template, capacity: Floats) -> bool:
    """Whether unlike sends meet on a link and take turns there: they mostly end sooner than the closed form says, and
    later where they meet those of the next step. That is so, within one step, where some need more time on another
    link, or have more hops in a step that continues round by round; on a ring of unequal hops, for any two that share a
    link; between two steps, for those on one link, where not all sends of the first end together. A step by itself,
    such as an exchange, is judged by those of its sends that may be the last.
    """
    links = len(capacity)
    if template.pipelined:
        free = ~np.isfinite(tasks.limit) if len(tasks.limit) else np.ones(len(tasks), np.bool_)
        return _gets_ahead(tasks, capacity) or _differs(tasks, _depth(tasks), links, free)
    if _circles(template) == [False]:
        return _gets_ahead(tasks, capacity)
    used, apart = np.zeros(links, np.int64), False
    for k, ring in enumerate(_circles(template)):
        step = _part(tasks, tasks.stage == k)
        on = np.bincount(step.resource, minlength=links)
        if apart and ((on > 0) & (used > 0)).any():
            return True
        transfer = _slowest(step, _busy(step, capacity, 1.0 / step.rounds))
        free = ~np.isfinite(step.limit) if len(step.limit) else np.ones(len(step), np.bool_)
        alike = np.ptp(transfer) <= 1e-6 * transfer.max() and np.ptp(step.latency) <= 1e-6 * step.latency.max()
        unlike = _differs(step, transfer, links, np.ones_like(free))
        unlike |= ring and _differs(step, step.latency, links, free)
        unlike |= ring and not alike and _differs(step, np.arange(len(step), dtype=np.float64), links, free)
        if unlike:
            return True
        used, apart = used + on, apart or not alike
    return False


def _gets_ahead(tasks: Tasks, capacity: Floats) -> bool:
    """Whether a send that may be the last of its step, or end a chain of slices that is, has ended before its busiest
    link has: every link that is as busy has sends that another link delays for longer.
    """
    busy = _busy(tasks, capacity)
    transfer = _slowest(tasks, busy)
    row = np.repeat(np.arange(len(tasks)), np.diff(tasks.resource_start))
    longest = np.zeros(len(capacity))
    np.maximum.at(longest, tasks.resource, transfer[row])
    alike = np.minimum(busy, longest)[tasks.resource] >= transfer[row] * (1 - NEAR)
    alike &= longest[tasks.resource] <= transfer[row] * (1 + NEAR)
    sure = np.zeros(len(tasks))
    sure[row[alike]] = transfer[row[alike]]
    if len(tasks.limit):  # what its own pace holds up ends when it says
        sure = np.maximum(sure, np.where(np.isfinite(tasks.limit), tasks.amount / tasks.limit, 0.0))
    ends, told = (np.array(_chains(tasks, one)) for one in (transfer, sure))
    return ends.shape != told.shape or not np.allclose(ends, told, rtol=NEAR, atol=0.0)


def _circles(template: Template) -> list[bool]:
    """For each stage, whether its blocks circulate."""
    phases, lanes = template.phases, template.lanes
    stages = [phases] if template.pipelined else [phases[k : k + lanes] for k in range(0, len(phases), lanes)]
    return [any(phase.pattern in CIRCLES for phase in stage) for stage in stages]


def _part(tasks: Tasks, chosen: NDArray[np.bool_]) -> Tasks:
    """Some of the tasks, with their dependencies among each other."""
    rows = np.flatnonzero(chosen)
    place = np.cumsum(chosen) - 1
    on, length = chosen[tasks.row], np.diff(tasks.resource_start)[rows]
    waiting = np.repeat(np.arange(len(tasks)), np.diff(tasks.dependency_start))
    kept = chosen[waiting] & chosen[tasks.dependency]
    count = np.bincount(place[waiting[kept]], minlength=len(rows))
    return replace(
        tasks,
        kind=tasks.kind[rows], queue=tasks.queue[rows], amount=tasks.amount[rows], rounds=tasks.rounds[rows],
        delay=tasks.delay[rows], latency=tasks.latency[rows], stage=tasks.stage[rows],
        resource_start=np.concatenate([[0], np.cumsum(length)]), resource=tasks.resource[on],
        coefficient=tasks.coefficient[on] if len(tasks.coefficient) else tasks.coefficient,
        dependency_start=np.concatenate([[0], np.cumsum(count)]),
        dependency=place[tasks.dependency[kept]].astype(np.int32), lag=tasks.lag[kept],
        limit=tasks.limit[rows] if len(tasks.limit) else tasks.limit,
    )  # fmt: skip


def _stage(tasks: Tasks, number: int, circle: bool, capacity: Floats) -> _Stage:
    chosen = tasks.stage == number
    rows, part = np.flatnonzero(chosen), _part(tasks, chosen)
    transfer = _slowest(part, _busy(part, capacity, 1.0 / part.rounds))
    before = None
    if circle and (np.ptp(transfer) > 0 or np.ptp(part.latency) > 0 or number):
        before = np.arange(len(part))
        before[part.dependency_start[:-1] < part.dependency_start[1:]] = part.dependency
    waiting = np.repeat(np.arange(len(tasks)), np.diff(tasks.dependency_start))
    handed = chosen[waiting] & ~chosen[tasks.dependency]
    after = (np.cumsum(chosen) - 1)[waiting[handed]]
    return _Stage(rows, transfer / UNIT, part.latency, part.rounds, before, tasks.dependency[handed], after)


def _ended(stage: _Stage, start: Floats, transfer: Floats) -> Floats:
    """When each send of a stage has arrived.

    Where blocks circulate on unequal links, a link carries one at a time, and a block leaves once it has arrived (the
    recurrence of a max-plus system; Baccelli et al. 1992, section 2.3).
    """
    if stage.before is None or np.ptp(transfer) == 0.0 == np.ptp(stage.latency) == np.ptp(start):
        return np.asarray(start + stage.rounds * (transfer + stage.latency))
    free = arrived = start
    ended, fewest = start, int(stage.rounds.min())
    for k in range(int(stage.rounds.max())):
        free = np.maximum(arrived, free) + transfer
        arrived = (free + stage.latency)[stage.before]
        if k >= fewest - 1:
            ended = np.where(stage.rounds > k, free + stage.latency, ended)
    return ended


def _differs(tasks: Tasks, value: Floats, links: int, chosen: NDArray[np.bool_]) -> bool:
    """Whether a link carries ``chosen`` tasks of different values."""
    row = np.repeat(np.arange(len(tasks)), np.diff(tasks.resource_start))
    row, link = row[chosen[row]], tasks.resource[chosen[row]]
    least, most = np.full(links, np.inf), np.zeros(links)
    np.minimum.at(least, link, value[row])
    np.maximum.at(most, link, value[row])
    return bool((most > least * (1 + 1e-6)).any())


def _busy(tasks: Tasks, capacity: Floats, share: Floats | float = 1.0) -> Floats:
    """Seconds that each link needs for ``share`` of what all tasks move."""
    moved = np.repeat(tasks.total * share, np.diff(tasks.resource_start))
    moved = moved * tasks.coefficient if len(tasks.coefficient) else moved
    return np.bincount(tasks.resource, moved, len(capacity)) / np.maximum(capacity, 1e-300)


def _slowest(tasks: Tasks, busy: Floats) -> Floats:
    """Seconds of each task on the busiest of its links, and no faster than its pace."""
    found = np.zeros(len(tasks))
    row = np.repeat(np.arange(len(tasks)), np.diff(tasks.resource_start))
    np.maximum.at(found, row, busy[tasks.resource])
    return np.maximum(found, tasks.amount / tasks.limit) if len(tasks.limit) else found


def _depth(tasks: Tasks) -> Floats:
    """Seconds of the longest chain of dependent hops up to each task."""
    return _along(tasks, 0.0, np.zeros(len(tasks), np.bool_), tasks.latency)


def _chains(tasks: Tasks, transfer: Floats) -> list[Path]:
    """The longest chains of sends that wait for each other: the seconds of their hops, and the seconds in which the
    slowest of a chain can ``transfer`` all slices. For each such pace, the longest chain with a send as slow.
    """
    depth, found = _depth(tasks), list[Path]()
    paces = np.unique(transfer)
    for pace in paces[np.concatenate([np.diff(paces) > NEAR * paces[:-1], [True]])].tolist():
        slow = transfer >= pace * (1 - NEAR)
        found.append((float(_along(tasks, -np.inf, slow, depth).max()), pace))
    return upper(found)


def _along(tasks: Tasks, begin: float, known: NDArray[np.bool_], value: Floats) -> Floats:
    """Seconds of the longest chain of hops up to each task: ``value`` for ``known`` tasks; for others one hop more than
    the longest of those that they wait for, from ``begin`` where they wait for none.
    """
    row = np.repeat(np.arange(len(tasks)), np.diff(tasks.dependency_start))
    reached = np.where(known, value, begin + tasks.latency)
    for _ in range(len(tasks)):
        before = np.full(len(tasks), begin)
        np.maximum.at(before, row, reached[tasks.dependency])
        later = np.where(known, value, before + tasks.latency)
        if (later == reached).all():
            break
        reached = later
    return reached
