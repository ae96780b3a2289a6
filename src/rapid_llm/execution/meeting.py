"""Messages of different axes on the same links at the same time, where messages are priced link by link.

A stream that is active in a share of a window makes another one longer in that share of its seconds (mean field): by
how much is what all groups of both axes do to each other when they run at once (``network.meeting``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from rapid_llm.execution.machine import Machine
from rapid_llm.lowering import Messages
from rapid_llm.lowering.table import OPTIMIZER
from rapid_llm.network.flow_prices import Message
from rapid_llm.network.meeting import meet

Matrix = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Stream:
    """Messages of one axis in a window: seconds of all, seconds of one, and whether computation runs beside them."""

    axis: str
    seconds: float
    message: Message
    beside: bool = True


def longer(one: Stream, other: Stream, window: float, machine: Machine) -> tuple[float, float]:
    """Seconds by which each of two streams takes longer in a window in which both run; streams of the same axis take
    turns.
    """
    carrier = machine.carrier
    if one.axis == other.axis or carrier is None or min(one.seconds, other.seconds, window) <= 0:
        return 0.0, 0.0
    first, second = meet(one.message, other.message, carrier)
    both = one.seconds * other.seconds / max(window, one.seconds, other.seconds)
    return both * first, both * second


def stream(rows: Messages, chosen: NDArray[np.bool_], seconds: Matrix, plan: int, beside: bool) -> Stream | None:
    """The ``chosen`` rows of a table under one plan as a stream; its longest message represents all."""
    own = np.where(chosen, seconds[:, plan], 0.0)
    at = int(own.argmax()) if len(own) else 0
    if not len(own) or own[at] <= 0:
        return None
    message = Message(rows.op, float(rows.size[at, plan]), int(rows.ranks[at, plan]), int(rows.stride[at, plan]))
    return Stream(rows.axis, float(own.sum()), message, beside)


def crowded(
    sent: Sequence[tuple[Messages, Matrix]], shares: Sequence[Matrix], own: Matrix, machine: Machine
) -> list[tuple[Messages, Matrix]]:
    """Seconds of the messages of passes, longer where those that run beside computation meet others. ``shares``: which
    rows of each table run beside computation; ``own``: seconds of kernels, and of messages on their stream [phases, U,
    P].
    """
    stretched = [np.ones_like(seconds) for _, seconds in sent]
    for phase, unit, plan in np.ndindex(OPTIMIZER, *own.shape[1:]) if any(share.any() for share in shares) else ():
        cells = [(rows.phase == phase) & (rows.unit == unit) for rows, _ in sent]
        found = [
            stream(rows, cell, seconds, plan, bool(share[cell].any()))
            for (rows, seconds), cell, share in zip(sent, cells, shares, strict=True)
        ]
        window = float(own[phase, unit, plan])
        for i, j in combinations(range(len(found)), 2):
            one, other = found[i], found[j]
            if one is None or other is None or not (one.beside or other.beside):
                continue
            for k, extra, mine in zip((i, j), longer(one, other, window, machine), (one, other), strict=True):
                stretched[k][cells[k], plan] += extra / mine.seconds
    return [(rows, seconds * more) for (rows, seconds), more in zip(sent, stretched, strict=True)]
