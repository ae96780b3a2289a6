"""Where ranks go: orders of the parallel axes by what their messages cost.

Messages are priced by the algorithms which the collectives really run, not as an even spread over all pairs.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import permutations

from rapid_llm.errors import InputError
from rapid_llm.network.collectives import price
from rapid_llm.network.fabric import Fabric
from rapid_llm.network.technologies import Library
from rapid_llm.parallelism import Plans
from rapid_llm.units import format_percent, format_seconds

TIE = 1e-9
"""Orders closer than this (relative) cost the same; the one that was asked for, or comes first, is kept."""


@dataclass(frozen=True, slots=True)
class AxisTraffic:
    """Messages of one parallel axis in a step: ``count`` times ``op`` on ``size`` bytes among ``ranks``."""

    axis: str
    op: str
    size: float
    ranks: int
    count: float


@dataclass(frozen=True, slots=True)
class Placed:
    """One order of axes, innermost first: seconds of all messages of a step (hidden or not), and by axis."""

    order: tuple[str, ...]
    seconds: float
    by_axis: tuple[tuple[str, float], ...]


@dataclass(frozen=True, slots=True)
class BestOrder:
    """The best order beside the one that was asked for; ``tried`` are all orders that differ, the best first."""

    best: Placed
    asked: Placed
    tried: tuple[Placed, ...]

    @property
    def gain(self) -> float:
        """Share of the communication that the best order saves."""
        return 1.0 - self.best.seconds / self.asked.seconds if self.asked.seconds else 0.0

    def sentence(self) -> str:
        """What it gained, in words."""
        order, before = ", ".join(self.best.order), format_seconds(self.asked.seconds)
        if self.best.order == self.asked.order:
            return f"order [{order}] is the best of {len(self.tried)}: {before} of communication a step."
        return (
            f"order [{order}] takes {format_seconds(self.best.seconds)} of communication a step, "
            f"[{', '.join(self.asked.order)}] takes {before}: {format_percent(self.gain)} less."
        )


def best_order(
    traffic: Iterable[AxisTraffic],
    plans: Plans,
    *,
    fabric: Fabric,
    library: str | Library,
    small: str | Library | None = None,
) -> BestOrder:
    """Try every order of the axes of one plan and price the messages of a step under each.

    ``plans`` holds one plan; its own order is the one that was asked for. InputError for several plans.
    """
    if len(plans) != 1:
        raise InputError(f"placement is found for one plan at a time (got {len(plans)}).", field="placement")
    rows = [row for row in traffic if row.ranks > 1 and row.count > 0]
    found: dict[tuple[int, ...], Placed] = {}
    for order in [plans.order, *permutations(plans.order)]:
        placed = replace(plans, order=order)
        strides = tuple(int(placed.stride(row.axis)[0]) for row in rows)
        if strides not in found:  # axes of degree 1 may stand anywhere
            found[strides] = _priced(order, rows, strides, fabric=fabric, library=library, small=small)
    asked = next(iter(found.values()))
    tried = sorted(found.values(), key=lambda p: p.seconds)
    best = asked if tried[0].seconds >= asked.seconds * (1 - TIE) else tried[0]
    return BestOrder(best, asked, tuple(tried))


def _priced(
    order: tuple[str, ...],
    rows: Sequence[AxisTraffic],
    strides: Sequence[int],
    *,
    fabric: Fabric,
    library: str | Library,
    small: str | Library | None,
) -> Placed:
    spent: dict[str, float] = {}
    for row, stride in zip(rows, strides, strict=True):
        one = price(row.op, row.size, row.ranks, stride, fabric=fabric, library=library, small=small).seconds.item()
        spent[row.axis] = spent.get(row.axis, 0.0) + one * row.count
    return Placed(order, sum(spent.values()), tuple(spent.items()))
