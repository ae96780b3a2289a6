"""Two collectives at once: by how much each takes longer while the other runs beside it on the same links."""

from dataclasses import dataclass
from functools import lru_cache
from math import log
from typing import Final

import numpy as np

from rapid_llm.network.contention import laid_out
from rapid_llm.network.engine import simulate
from rapid_llm.network.fabric import Fabric
from rapid_llm.network.flow_prices import ANCHOR, Interconnect, chosen, plan_of
from rapid_llm.network.tasks import Tasks, concatenate
from rapid_llm.network.technologies import Library

LASTING: Final = 2.0
"""How much longer the one beside it runs than a collective that is watched."""


ROUNDS: Final = 16
"""Rounds of a ring: what two collectives share shows in few, and each of every rank and channel is an event."""


@dataclass(frozen=True, slots=True)
class Message:
    """A collective of all groups of an axis: operation, bytes, ranks of a group and stride between them."""

    op: str
    size: float
    ranks: int
    stride: int

    @property
    def near(self) -> "Message":
        """The same of the nearest size that is simulated."""
        return Message(self.op, ANCHOR ** round(log(self.size, ANCHOR)), self.ranks, self.stride)


def meet(
    one: Message,
    other: Message,
    *,
    net: Interconnect,
    fabric: Fabric,
    library: str | Library,
    small: str | Library | None = None,
) -> tuple[float, float]:
    """Share by which each of two collectives takes longer for every second beside the other (0: they share no link).

    All groups of both run at once on the links of the job, under faults as they are planned by themselves. Of what
    links take longer shows as much as both are bound by links and not by launches and steps of their library.
    """
    if min(one.ranks, other.ranks) < 2 or min(one.size, other.size) <= 0:
        return 0.0, 0.0
    return _meet(one.near, other.near, net, fabric, library, small)


@lru_cache(maxsize=4096)
def _meet(  # noqa: PLR0917
    one: Message,
    other: Message,
    net: Interconnect,
    fabric: Fabric,
    library: str | Library,
    small: str | Library | None,
) -> tuple[float, float]:
    found = [_alone(message, 1.0, net, fabric, library, small) for message in (one, other)]
    (first, alone, taken), (second, beside, needed) = found
    if not len(np.intersect1d(first.resource, second.resource)):
        return 0.0, 0.0
    bound = min(1.0, alone / taken) * min(1.0, beside / needed)
    longer = []
    for tasks, seconds, message, against in ((first, alone, other, beside), (second, beside, one, alone)):
        lasting, *_ = _alone(message, max(1.0, LASTING * seconds / against), net, fabric, library, small)
        finish = simulate(concatenate([tasks, lasting]), net.topology, measured=False).finish[: len(tasks)].max()
        longer.append(max(0.0, float(finish) / seconds - 1.0) * bound)
    return longer[0], longer[1]


@lru_cache(maxsize=256)
def _alone(  # noqa: PLR0917
    message: Message,
    times: float,
    net: Interconnect,
    fabric: Fabric,
    library: str | Library,
    small: str | Library | None,
) -> tuple[Tasks, float, float]:
    """Tasks of a collective of so many times its bytes, their seconds, and those of the collective with its library."""
    way, seconds = chosen(message.op, message.size, message.ranks, message.stride, net, fabric, library, small)
    plan = plan_of(way.way, message.size, net)
    tasks = laid_out(
        way.way, times * message.size, plan.routed or net.topology, plan.members,
        lanes=plan.lanes, fan=plan.fan, rounds=ROUNDS,
    )  # fmt: skip
    return tasks, simulate(tasks, net.topology, measured=False).seconds, times * seconds
