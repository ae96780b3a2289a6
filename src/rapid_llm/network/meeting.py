"""Two collectives at once: by how much each takes longer while the other runs beside it on the same links."""

from functools import lru_cache
from typing import Final

import numpy as np

from rapid_llm.network.contention import laid_out
from rapid_llm.network.engine import simulate
from rapid_llm.network.flow_prices import Carrier, Message, chosen, plan_of
from rapid_llm.network.tasks import Tasks, concatenate

LASTING: Final = 2.0
"""How much longer the one beside it runs than a collective that is watched."""
ROUNDS: Final = 16
"""Rounds of a ring: what two collectives share shows in few, and each of every rank and channel is an event."""


def meet(one: Message, other: Message, carrier: Carrier) -> tuple[float, float]:
    """Share by which each of two collectives takes longer for every second beside the other (0: they share no link).

    All groups of both run at once on the links of the job, under faults as they are planned by themselves. Of what
    links take longer shows as much as both are bound by links and not by launches and steps of their library.
    """
    return (0.0, 0.0) if one.empty or other.empty else _meet(one.near, other.near, carrier)


@lru_cache(maxsize=4096)
def _meet(one: Message, other: Message, carrier: Carrier) -> tuple[float, float]:
    (first, alone, taken), (second, beside, needed) = (_alone(message, 1.0, carrier) for message in (one, other))
    if not len(np.intersect1d(first.resource, second.resource)):
        return 0.0, 0.0
    bound = min(1.0, alone / taken) * min(1.0, beside / needed)
    longer = []
    for tasks, seconds, message, against in ((first, alone, other, beside), (second, beside, one, alone)):
        lasting, *_ = _alone(message, max(1.0, LASTING * seconds / against), carrier)
        both = simulate(concatenate([tasks, lasting]), carrier.net.topology, measured=False)
        longer.append(max(0.0, float(both.finish[: len(tasks)].max()) / seconds - 1.0) * bound)
    return longer[0], longer[1]


@lru_cache(maxsize=256)
def _alone(message: Message, times: float, carrier: Carrier) -> tuple[Tasks, float, float]:
    """Tasks of a collective of so many times its bytes, their seconds, and those of the collective with its library."""
    way, seconds = chosen(message, carrier)
    plan, net = plan_of(way.way, message.size, carrier.net), carrier.net
    tasks = laid_out(
        way.way, times * message.size, plan.routed or net.topology, plan.members,
        lanes=plan.lanes, fan=plan.fan, rounds=ROUNDS,
    )  # fmt: skip
    return tasks, simulate(tasks, net.topology, measured=False).seconds, times * seconds
