"""Messages that no pass of a unit sends: activations between stages, gradients and weights once a step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rapid_llm.execution.passes import occupied_share
from rapid_llm.execution.pricing import Machine, Priced, Request, compared, further
from rapid_llm.lowering import Lowered, Messages
from rapid_llm.lowering.table import OPTIMIZER
from rapid_llm.network import CollectivePrices
from rapid_llm.runtime import Runtime

Column = NDArray[np.float64]
Matrix = NDArray[np.float64]
DDP_BUCKET = 2 * 25 * 2**20
"""Bytes of fp32 gradients of a bucket of 25 MiB of 16-bit ones, DistributedDataParallel's default."""
CLOSING_MATRICES = 3
"""Buckets that the gradients of one large block close at most: its down, its up, and both of its attention."""
JOB_WIDE = 3
"""Collectives of a step over the whole job: of the loss, of the norm of the gradients and of its overflow."""


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
    ends, peers = np.where(plans.pp > 1, 2, 1), np.where(scatters, plans.tp, 1)
    return [
        Request("send_recv", size, ends, plans.stride("pp"), "pp"),
        Request("all_gather", whole, peers, plans.stride("tp"), "tp"),
    ]


def send_time(prices: Sequence[CollectivePrices], lowered: Lowered) -> Column:
    """Seconds that one micro-batch adds to one direction of one stage, all chunks of it [P]; prices of ``sends``."""
    plans = lowered.shapes.plans
    return np.asarray(sum((price.seconds for price in prices), np.zeros(len(plans))) * plans.chunks)


@dataclass(frozen=True, slots=True)
class Bulk:
    """Messages of one table that a stage sends once a step [P, S]: all its bytes, in how many, one of them, and the
    calls that launch them."""

    rows: Messages
    size: Matrix
    count: Matrix
    request: Request
    calls: Matrix


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
        request = Request(rows.op, size / count, ranks, stride, rows.axis)
        found.append(Bulk(rows, size, count, request, _calls(rows, count, lowered, runtime)))
    return found


def _calls(rows: Messages, count: Matrix, lowered: Lowered, runtime: Runtime) -> Matrix:
    """Calls that launch ``count`` messages [P, S]: one for those of sharded states where the runtime hands all over at
    once; of whole gradients one for each full bucket of DistributedDataParallel, which the matrix that fills it closes.
    """
    facts = runtime.training
    if not facts or not facts.coalesced_shards:
        return count
    chosen = rows.phase == OPTIMIZER
    unit, size = rows.unit[chosen], rows.size[chosen] * rows.count[chosen]
    most = np.where(unit < len(lowered.units) - 2, CLOSING_MATRICES, 1.0)[:, None]
    buckets = np.einsum("rps,rp->ps", lowered.layers[unit], np.minimum(most, size / DDP_BUCKET))
    return np.where((lowered.shapes.plans.zero_stage > 0)[:, None], 1.0, np.ceil(buckets))


@dataclass(frozen=True, slots=True)
class Cover:
    """Seconds of one micro-batch on a stage [P, S] behind which messages can hide: its forward and backward passes, and
    of the backward pass those in which its host is idle."""

    forward: Matrix
    backward: Matrix
    spare: Matrix


def step_messages(
    bulks: Sequence[Bulk], prices: Sequence[CollectivePrices], priced: Priced, cover: Cover
) -> tuple[StepMessages, ...]:
    """The time of ``bulks``, hidden behind the last backward or the first forward pass of a stage [P, S].

    All but the last message can hide (the last gradient is ready when the backward pass ends); a hidden message slows
    the kernels beside it by the compute units that it occupies.
    """
    machine, overlap = priced.machine, priced.machine.runtime.overlap
    found = []
    for bulk, price in zip(bulks, prices, strict=True):
        gather = bulk.rows.op == "all_gather"
        seconds = exposed = _seconds(bulk, price, machine, 0.0 if gather else cover.spare)
        beside = cover.forward if gather else cover.backward
        if overlap.parameter_gather if gather else overlap.gradient_reduce:
            late = np.minimum(seconds, np.maximum(seconds / bulk.count, seconds - beside))
            hidden = late + occupied_share(machine) * (seconds - late)
            exposed = np.where(_behind(priced), seconds, hidden)
        found.append(StepMessages(bulk.rows.axis, gather, seconds, exposed))
    return tuple(found)


def _behind(priced: Priced) -> NDArray[np.bool_]:
    """Whether the states of a plan are sharded, and handed over at once behind the backward pass [P, 1]."""
    facts, plans = priced.machine.runtime.training, priced.lowered.shapes.plans
    return ((plans.zero_stage > 0) & bool(facts and facts.coalesced_shards))[:, None]


def job_wide(priced: Priced) -> Column:
    """Seconds in which hosts that compare collectives wait for those over all ranks, which are short otherwise [P]."""
    ranks = priced.lowered.shapes.plans.ranks * 1.0
    return JOB_WIDE * compared(ranks, np.ones_like(ranks), priced.machine) / priced.machine.host_speed


def _seconds(bulk: Bulk, price: CollectivePrices, machine: Machine, spare: Matrix | float) -> Matrix:
    request = bulk.request
    late = further(machine.runtime.host.per_peer_step / machine.host_speed, request.ranks, request.stride, machine)
    each = compared(request.ranks, request.stride, machine) / machine.host_speed
    waits = np.maximum(0.0, each * bulk.calls - spare)
    return np.where(bulk.size > 0, (price.seconds + late) * bulk.count + waits, 0.0)
