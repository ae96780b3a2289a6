"""Where ranks go: orders of the parallel axes by what their messages cost, and swaps of single ranks.

Messages are those of the algorithms which collectives really run, not an even spread over all pairs.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import permutations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rapid_llm.errors import InputError
from rapid_llm.network.collectives import price
from rapid_llm.network.fabric import Fabric
from rapid_llm.network.technologies import Library
from rapid_llm.parallelism import Plans
from rapid_llm.units import format_percent, format_seconds

Matrix = NDArray[np.float64]
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


@dataclass(frozen=True, slots=True)
class BestPlaces:
    """``places[r]`` is the accelerator of rank r; ``before`` and ``after`` are bytes x distance; ``swaps`` made."""

    places: tuple[int, ...]
    before: float
    after: float
    swaps: int

    @property
    def gain(self) -> float:
        """Share of bytes x distance that is saved."""
        return 1.0 - self.after / self.before if self.before else 0.0


def best_places(
    traffic: ArrayLike, distance: ArrayLike, *, start: Sequence[int] | None = None, most: int = 10_000
) -> BestPlaces:
    """Swap ranks pairwise, the best swap first, until none helps (or ``most`` were made).

    Starts are ``start`` and a placement that gives place after place to the rank with the most traffic to ranks already
    near; the better result is kept. traffic: bytes from rank to rank [n, n]; distance: cost of a byte between
    accelerators, n or more of them. The cost sum T_ij D(p_i, p_j) is a quadratic assignment problem; swaps find a local
    optimum. InputError for matrices that do not fit.
    """
    t, d = np.asarray(traffic, dtype=np.float64), np.asarray(distance, dtype=np.float64)
    n = len(t)
    if t.shape != (n, n) or d.ndim != 2 or d.shape[0] != d.shape[1] or len(d) < n:
        raise InputError(
            f"traffic {t.shape} and distances {d.shape} must be square, with a place for every rank.", field="placement"
        )
    places = np.arange(n) if start is None else np.array(start, dtype=np.int64)
    if len(places) != n or len(set(places.tolist())) != n or places.min(initial=0) < 0 or places.max() >= len(d):
        raise InputError(f"start must give each of {n} ranks an accelerator of its own.", field="placement")
    t, d = t + t.T, d + d.T
    np.fill_diagonal(t, 0.0)
    before = _cost(t, d, places)
    swapped, built = (_swapped(t, d, begin, most) for begin in (places, _filled(t, d)))
    found, made = min(swapped, built, key=lambda one: _cost(t, d, one[0]))
    return BestPlaces(tuple(found.tolist()), before, _cost(t, d, found), made)


def _filled(t: Matrix, d: Matrix) -> NDArray[np.int64]:
    """Places 0, 1, 2 ... each given to the rank with the nearest traffic to those already placed."""
    n = len(t)
    near = d.max(initial=0.0) - d
    pull, places = t.sum(axis=1), np.full(n, -1)
    holders: list[int] = []
    for place in range(n):
        rank = int(np.where(places < 0, pull, -np.inf).argmax())
        places[rank] = place
        holders.append(rank)
        if place + 1 < n:
            pull = t[:, holders] @ near[place + 1, : place + 1]
    return places


def _swapped(t: Matrix, d: Matrix, start: NDArray[np.int64], most: int) -> tuple[NDArray[np.int64], int]:
    """A placement in which no swap helps, and how many it took."""
    places = start.copy()
    least = TIE * max(_cost(t, d, places), 1e-300)
    for made in range(most):
        i, j, change = _best_swap(t, d[np.ix_(places, places)])
        if change >= -least:
            return places, made
        places[[i, j]] = places[[j, i]]
    return places, most


def _cost(t: Matrix, d: Matrix, places: NDArray[np.int64]) -> float:
    return float((t * d[np.ix_(places, places)]).sum() / 4)  # both matrices are doubled


def _best_swap(t: Matrix, p: Matrix) -> tuple[int, int, float]:
    """The pair whose swap lowers the cost most: delta = sum_k (t_ik - t_jk) (p_jk - p_ik), k other than i and j."""
    m = t @ p.T
    own = np.diag(m)
    delta = m + m.T - own[:, None] - own[None, :] + 2 * t * p
    np.fill_diagonal(delta, 0.0)
    at = int(delta.argmin())
    i, j = divmod(at, len(t))
    return i, j, float(delta[i, j]) / 2
