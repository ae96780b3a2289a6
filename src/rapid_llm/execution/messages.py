"""Messages that no pass of a unit sends: activations between stages, gradients and weights once a step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rapid_llm.execution.passes import occupied_share
from rapid_llm.execution.pricing import Machine, Priced, Request, further
from rapid_llm.lowering import Lowered, Messages
from rapid_llm.lowering.table import OPTIMIZER
from rapid_llm.network import CollectivePrices
from rapid_llm.runtime import Runtime

Column = NDArray[np.float64]
Matrix = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class StepMessages:
    """Messages once a step on the data-parallel groups, by axis and use [P, S] (s): all, and what is not hidden."""

    axis: str
    gather: bool
    seconds: Matrix
    exposed: Matrix


def sends(lowered: Lowered, runtime: Runtime) -> list[Request]:
    """What one micro-batch sends to the next stage, [P] each: its activations, and what gathers them behind.

    Every rank of a tp group holds the whole tensor unless sequence parallelism shards it; a runtime that scatters and
    gathers sends 1/tp of it and all-gathers on the other side.
    """
    s, facts = lowered.shapes, runtime.training
    plans = s.plans
    if not (plans.pp > 1).any():
        return []
    whole = s.shard * lowered.hidden_size * s.act
    scatters = (plans.sp == 0) & (plans.tp > 1) if facts and facts.scatter_gather else np.zeros(len(plans), bool)
    size = np.where(scatters, whole / plans.tp, whole)
    peers = np.where(scatters, plans.tp, 1)
    return [
        Request("send_recv", size, plans.pp, plans.stride("pp"), "pp"),
        Request("all_gather", whole, peers, plans.stride("tp"), "tp"),
    ]


def send_time(prices: Sequence[CollectivePrices], lowered: Lowered) -> Column:
    """Seconds that one micro-batch adds to one direction of one stage, all chunks of it [P]; prices of ``sends``."""
    plans = lowered.shapes.plans
    return np.asarray(sum((price.seconds for price in prices), np.zeros(len(plans))) * plans.chunks)


@dataclass(frozen=True, slots=True)
class Bulk:
    """Messages of one table that a stage sends once a step [P, S]: all its bytes, in how many, and one of them."""

    rows: Messages
    size: Matrix
    count: Matrix
    request: Request


def bulks(lowered: Lowered, runtime: Runtime) -> list[Bulk]:
    """Gradients and weights of whole stages: in buckets, or one message a layer where the runtime has none."""
    facts = runtime.training
    found = []
    for rows in lowered.messages:
        chosen = rows.phase == OPTIMIZER
        if not chosen.any():
            continue
        size = np.einsum("rps,rp->ps", lowered.layers[rows.unit[chosen]], rows.size[chosen] * rows.count[chosen])
        count = np.ceil(size / facts.bucket) if facts and facts.bucket else lowered.layers.sum(axis=0)
        count = np.maximum(1.0, count)
        ranks, stride = (
            np.repeat(column[0], size.shape[1]).reshape(size.shape) for column in (rows.ranks, rows.stride)
        )
        found.append(Bulk(rows, size, count, Request(rows.op, size / count, ranks, stride, rows.axis)))
    return found


def step_messages(
    bulks: Sequence[Bulk], prices: Sequence[CollectivePrices], priced: Priced, forward: Matrix, backward: Matrix
) -> tuple[StepMessages, ...]:
    """The time of ``bulks``, hidden behind the last backward or the first forward pass of a stage [P, S].

    All but the last message can hide (the last gradient is ready when the backward pass ends); a hidden message slows
    the kernels beside it by the compute units that it occupies.
    """
    machine, overlap = priced.machine, priced.machine.runtime.overlap
    found = []
    for bulk, price in zip(bulks, prices, strict=True):
        gather = bulk.rows.op == "all_gather"
        seconds = exposed = _seconds(bulk, price, machine)
        if overlap.parameter_gather if gather else overlap.gradient_reduce:
            late = np.minimum(seconds, np.maximum(seconds / bulk.count, seconds - (forward if gather else backward)))
            exposed = late + occupied_share(machine) * (seconds - late)
        found.append(StepMessages(bulk.rows.axis, gather, seconds, exposed))
    return tuple(found)


def _seconds(bulk: Bulk, price: CollectivePrices, machine: Machine) -> Matrix:
    request = bulk.request
    late = further(machine.runtime.host.per_peer_step / machine.host_speed, request.ranks, request.stride, machine)
    return np.where(bulk.size > 0, (price.seconds + late) * bulk.count, 0.0)
