"""What changes with the size of a message: channels that join, chunks that fill the way, caches that overflow.

Each regime is a line, and a collective takes one of a few: the lower where they grow into each other, or the one whose
sizes the library says.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import inf, sqrt
from typing import Final

from rapid_llm.network.channels import Bound, Channels
from rapid_llm.network.groups import Group
from rapid_llm.network.technologies import Library, LinkCost, Protocol
from rapid_llm.network.templates import ALGORITHMS, Template, hops
from rapid_llm.nouns import replaced


@dataclass(frozen=True, slots=True)
class Line:
    """Seconds ``fixed + per_byte S + root sqrt(S)`` of one algorithm under one protocol, and no fewer than those of
    ``others``: for instance the time of the busiest link alone, while hops elsewhere hide behind it. A library takes it
    for messages ``above`` one size and ``up_to`` another (bytes).
    """

    fixed: float
    per_byte: float
    root: float
    others: "tuple[Line, ...]" = ()
    above: float = -1.0
    up_to: float = inf

    @property
    def coefficients(self) -> list[tuple[float, float, float]]:
        """The line and the others."""
        return [(one.fixed, one.per_byte, one.root) for one in (self, *self.others)]

    def deeper(self, fixed: float, per_byte: float) -> "Line":
        """This line and the others with a further time and slope added."""
        others = tuple(one.deeper(fixed, per_byte) for one in self.others)
        return replace(self, fixed=self.fixed + fixed, per_byte=self.per_byte + per_byte, others=others)

    def holding(self, size: float) -> "Line":
        """The one that a message of ``size`` bytes takes."""
        return max((self, *self.others), key=lambda line: line._own(size))

    def seconds(self, size: float) -> float:
        """Seconds of a message of ``size`` bytes; infinite where the library does not take this way."""
        return self.holding(size)._own(size) if self.above < size <= self.up_to else inf

    def _own(self, size: float) -> float:
        return self.fixed + self.per_byte * size + self.root * sqrt(size)


HEADS: Final = 8
"""Ranks that share a reducing switch of one box: what a library says of chunks and of its tuner is for so many."""
NARROW: Final = 8192.0
"""Bytes of each rank above which a collective has its channels (NCCL adds one for every 4 KiB under LL)."""


def regimes(  # noqa: PLR0917
    op: str,
    template: Template,
    group: Group,
    costs: list[LinkCost],
    protocol: Protocol,
    library: Library,
    line: Callable[[list[LinkCost]], Line],
) -> tuple[Line, ...]:
    """The lines of one algorithm under one protocol; ``line`` prices it with the costs of its links."""
    if channels := channels_of(template, group, costs):
        return _carried(line(costs), template, group, costs[-1], protocol, channels, library)
    limit = _cached(group, costs, protocol)
    if not limit:
        return _growing(op, template, group, costs, protocol, line(costs))
    slow = line([_from_memory(cost) for cost in costs])
    return (
        *(replace(one, up_to=limit) for one in _growing(op, template, group, costs, protocol, line(costs))),
        *(replace(one, above=limit) for one in _growing(op, template, group, costs, protocol, slow)),
    )


def _growing(  # noqa: PLR0917
    op: str, template: Template, group: Group, costs: list[LinkCost], protocol: Protocol, line: Line
) -> tuple[Line, ...]:
    """The line with its channels and its first chunks, as both grow."""
    wider = _widening(line, group, costs)
    return tuple(filled for one in wider for filled in _filling(op, template, group, costs, protocol, one))


def _widening(line: Line, group: Group, costs: list[LinkCost]) -> tuple[Line, ...]:
    """The line with what further channels cost: more as they join, and all of it once a rank has ``NARROW`` to send."""
    wide = costs[-1].wide
    if not wide or group.nodes > 1:
        return (line,)
    joining = line.deeper(0.0, wide / NARROW / group.bounds[-1])
    return joining, line.deeper(wide, 0.0)


def _cached(group: Group, costs: list[LinkCost], protocol: Protocol) -> float:
    """S up to which a cache holds what the connections through host memory buffer; 0 where there are none."""
    staged = [level for level, cost in enumerate(costs) if cost.cache and cost.memory]
    if not staged or not protocol.slots:
        return 0.0
    below = group.bounds[staged[0] - 1] if staged[0] else 1
    return min(costs[level].cache or 0 for level in staged) * below / protocol.slots


def _from_memory(cost: LinkCost) -> LinkCost:
    return replaced(cost, efficiency=cost.memory or cost.efficiency)


def _filling(  # noqa: PLR0917
    op: str, template: Template, group: Group, costs: list[LinkCost], protocol: Protocol, line: Line
) -> tuple[Line, ...]:
    """The line with its first chunk on every hop: steeper while the chunks grow, higher beyond. A chain receives a
    piece in every channel completely before it passes it on, at each hop but the last, which waits for all of them.
    """
    pieces = costs[-1].relay if protocol.slots and op == "broadcast" and group.nodes == 1 else 0
    if pieces:
        behind = (group.bounds[-1] - 2.0) * line.per_byte
        return replace(line, per_byte=line.per_byte + behind), replace(line, fixed=line.fixed + behind * pieces)
    switched = ALGORITHMS[template.algorithm] == "nvls"
    everywhere = protocol.fill if op == "all_reduce" and (group.nodes > 1 or switched) else 0.0
    crossed = [hops(phase, group.bounds, group.crossings) for phase in template.phases]
    filled = sum(n * (everywhere + cost.fill) for phase in crossed for n, cost in zip(phase, costs, strict=True))
    if not filled:
        return (line,)
    slope = filled / max(protocol.chunk, *(cost.chunk for cost in costs if cost.fill), 0)
    if switched:  # every rank is the head of a share, with a first chunk of its own
        filled *= group.bounds[0] / HEADS
    return replace(line, per_byte=line.per_byte + slope), replace(line, fixed=line.fixed + filled)


def _carried(  # noqa: PLR0917
    line: Line,
    template: Template,
    group: Group,
    cost: LinkCost,
    protocol: Protocol,
    channels: Channels,
    library: Library,
) -> tuple[Line, ...]:
    """The line as the channels of messages between peers carry it, within the sizes for which the library takes it."""
    share = to_a_peer(template, group)
    limit = channels.flagged(library) / share
    above, up_to = (-1.0, limit) if protocol.until else (limit, inf)
    rate = protocol.channel or cost.channel
    sets = channels.bounds(share, rate) if rate else ((),)
    kept = copied("all_to_all" if template.phases[0].pattern == "direct" else "send_recv", group, cost)
    return tuple(replace(_held_up(line, bounds, kept), above=above, up_to=up_to) for bounds in sets)


def _held_up(line: Line, bounds: tuple[Bound, ...], copied: float) -> Line:
    """A line with the lower bounds that channels add to it."""
    set_by = (Line(line.fixed + seconds, per_byte + copied, 0.0) for seconds, per_byte in bounds)
    return replace(line, others=(*line.others, *set_by))


def channels_of(template: Template, group: Group, costs: list[LinkCost]) -> Channels | None:
    """Channels to every peer of a group, where its library assigns them by message."""
    exchange = ALGORITHMS[template.algorithm] in ("direct", "p2p")
    return Channels.of(costs[-1], group.bounds[-1]) if exchange and group.nodes == 1 else None


def to_a_peer(template: Template, group: Group) -> float:
    """Share of S that a rank sends to each other."""
    return template.sent / (group.bounds[-1] - 1 if template.phases[0].pattern == "direct" else 1)


def copied(op: str, group: Group, cost: LinkCost) -> float:
    """Seconds per byte of S in which a rank passes on, or keeps, its own share."""
    rate = {"send_recv": None, "all_to_all": cost.keep or cost.copy}.get(op, cost.copy)
    return 1 / group.bounds[-1] / rate if rate else 0.0
