"""Messages that no pass of a unit sends: activations between stages, gradients and weights once a step."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from rapid_llm.execution.beside import occupied_share, reads
from rapid_llm.execution.meeting import Stream, longer, stream
from rapid_llm.execution.pricing import Priced, Request, compared
from rapid_llm.lowering import Lowered, Messages
from rapid_llm.lowering.table import BACKWARD, FORWARD, OPTIMIZER, PHASES, RECOMPUTE
from rapid_llm.network import CollectivePrices
from rapid_llm.network.flow_prices import Message
from rapid_llm.nouns import light
from rapid_llm.runtime import Runtime

Column = NDArray[np.float64]
Matrix = NDArray[np.float64]
CLOSING_MATRICES = 3
"""Buckets that the gradients of one large block close at most: its down, its up, and both of its attention."""
JOB_WIDE = 3
"""Collectives of a step over the whole job: of the loss, of the norm of the gradients and of its overflow."""


@light
class StepMessages:
    """Messages once a step on the data-parallel groups, by axis and use [P, S] (s): all, and what is not hidden."""

    axis: str
    gather: bool
    seconds: Matrix
    exposed: Matrix


def sends(lowered: Lowered, runtime: Runtime) -> list[Request]:
    """What one micro-batch sends to the next stage, [P] each: its activations, and the all-gather that follows. Every
    rank of a tp group holds the whole tensor unless sequence parallelism shards it; a runtime that scatters and gathers
    sends 1/tp of it and all-gathers on the other side.
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
    if not prices:
        return np.zeros(len(plans))
    return np.asarray(sum((price.seconds for price in prices), np.zeros(len(plans))) * plans.chunks)


@light
class Bulk:
    """Messages of one table that a stage sends once a step [P, S]: all bytes, the number of messages, and the bytes of
    one. ``behind``: whether a plan's states are sharded and reduced together after the backward pass [P, 1].
    """

    rows: Messages
    size: Matrix
    count: Matrix
    request: Request
    behind: NDArray[np.bool_]

    @property
    def gathers(self) -> bool:
        """Whether they are weights, and not gradients."""
        return self.rows.op == "all_gather"


def bulks(lowered: Lowered, runtime: Runtime) -> list[Bulk]:
    """Gradients and weights of whole stages once a step."""
    found, facts = [], runtime.training
    behind = ((lowered.shapes.plans.zero_stage > 0) & bool(facts and facts.coalesced_shards))[:, None]
    for rows in lowered.messages:
        chosen, unit = _once(rows.cells)
        if not len(chosen):
            continue
        each, layers = rows.size[chosen] * rows.count[chosen], lowered.layers[unit]
        size = np.einsum("rps,rp->ps", layers, each)
        count = np.maximum(1.0, _messages(unit, each, layers, lowered, runtime))
        ranks, stride = (
            np.repeat(column[0], size.shape[1]).reshape(size.shape) for column in (rows.ranks, rows.stride)
        )
        found.append(Bulk(rows, size, count, Request(rows.op, size / count, ranks, stride, rows.axis), behind))
    return found


@lru_cache(maxsize=512)
def _once(cells: bytes) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The rows of a table that are sent once a step, and their units."""
    unit, phase = np.divmod(np.frombuffer(cells, np.int64), len(PHASES))
    (chosen,) = np.nonzero(phase == OPTIMIZER)
    return chosen, unit[chosen]


def _messages(
    unit: NDArray[np.int64], each: Matrix, layers: NDArray[np.float64], lowered: Lowered, runtime: Runtime
) -> Matrix:
    """The number of messages in which a stage sends what its units hold [P, S]: buckets, each closed by the matrix that
    fills it, or one message a layer where the runtime has no buckets; a single one where it reduces sharded states
    together.
    """
    facts = runtime.training
    if not facts or not facts.bucket:
        return np.asarray(lowered.layers.sum(axis=0))
    most = np.where(unit < len(lowered.units) - 2, CLOSING_MATRICES, 1.0)[:, None]
    buckets = np.einsum("rps,rp->ps", layers, np.minimum(most, each / float(facts.bucket)))
    at_once = (lowered.shapes.plans.zero_stage > 0)[:, None] & facts.coalesced_shards
    return np.where(at_once, 1.0, np.ceil(buckets))


@light
class Cover:
    """Seconds of one micro-batch on a stage [P, S] behind which messages can hide: its forward and backward passes
    without the time for which their own messages use the network cards, and the part of the backward pass in which the
    host is idle. ``forward_reads``, ``backward_reads``: the shares of these passes in which kernels wait for memory.
    """

    forward: Matrix
    backward: Matrix
    spare: Matrix
    forward_reads: Matrix
    backward_reads: Matrix


@light
class Taken:
    """What a ``Bulk`` takes on each stage (s): in all, and of the memory of a rank [P, S]."""

    seconds: Matrix
    memory: Matrix


def step_messages(
    bulks: Sequence[Bulk],
    taken: Sequence[Taken],
    priced: Priced,
    cover: Cover,
    *,
    sent: Sequence[Request] = (),
    occupied: Matrix | None = None,
) -> tuple[StepMessages, ...]:
    """The time of ``bulks`` (``taken`` seconds), hidden behind the first forward or the last backward pass of a stage
    [P, S].

    All but the last message can hide (the last gradient is ready when the backward pass ends). A hidden message slows
    the kernels beside it: by the compute units that it occupies (``occupied``: their share on each stage, where
    accelerators differ), and those that wait for memory by the bandwidth it takes. Link by link, it also slows the
    messages of the pass and those ``sent`` to the next stage, as they slow it.
    """
    machine, overlap = priced.machine, priced.machine.runtime.overlap
    share = occupied_share(machine) if occupied is None else occupied
    found = []
    for bulk, whole in zip(bulks, taken, strict=True):
        gather, seconds, exposed = bulk.gathers, whole.seconds, whole.seconds
        beside = cover.forward if gather else cover.backward
        if overlap.parameter_gather if gather else overlap.gradient_reduce:
            among, slowed = seconds, np.zeros_like(seconds)
            if machine.net is not None:
                among, slowed = _among(bulk, seconds, priced, beside, sent)
            late = np.minimum(among, np.maximum(among / bulk.count, among - beside))
            behind = among - late
            memory = whole.memory * np.divide(behind, among, out=np.zeros_like(among), where=among > 0)
            reads = cover.forward_reads if gather else cover.backward_reads
            hidden = late + np.minimum(share * behind + reads * memory, behind) + slowed
            seconds, exposed = np.where(bulk.behind, seconds, (among, hidden))
        found.append(StepMessages(bulk.rows.axis, gather, seconds, exposed))
    return tuple(found)


def job_wide(priced: Priced) -> Column:
    """Seconds for which hosts that check collectives against each other wait for checks over all ranks; the messages
    themselves are short [P].
    """
    ranks = priced.lowered.shapes.plans.ranks * 1.0
    return JOB_WIDE * compared(ranks, np.ones_like(ranks), priced.machine) / priced.machine.host_speed


def bulk_taken(bulk: Bulk, price: CollectivePrices, priced: Priced, idle: Matrix) -> Taken:
    """Seconds of the messages with what their hosts do for them: checking calls against each other, and slicing states
    by rank; ``idle``: of the hosts in a backward pass [P, S].
    """
    spare = 0.0 if bulk.gathers else idle
    request, machine = bulk.request, priced.machine
    each = compared(request.ranks, request.stride, machine) / machine.host_speed
    waits = np.maximum(0.0, each * bulk.count - spare)
    if machine.runtime.host.per_slice:
        slices = request.ranks * priced.lowered.layers.sum(axis=0) * machine.runtime.host.per_slice / machine.host_speed
        waits += np.where(bulk.behind & (request.ranks > 1), slices, 0.0)
    seconds = np.where(bulk.size > 0, price.seconds * bulk.count + waits, 0.0)
    return Taken(seconds, reads(request.op, price.wire_bytes * bulk.count * (request.ranks > 1), machine))


def _among(
    bulk: Bulk, seconds: Matrix, priced: Priced, window: Matrix, sent: Sequence[Request]
) -> tuple[Matrix, Matrix]:
    """Seconds of ``bulk`` among the messages of the pass that hides it, and by how much those take longer [P, S]."""
    phases = (FORWARD,) if bulk.rows.op == "all_gather" else (RECOMPUTE, BACKWARD)
    taken, slowed = seconds.copy(), np.zeros_like(seconds)
    for plan, stage in zip(*np.nonzero(seconds), strict=True):
        request = bulk.request
        one = Message(
            request.op,
            float(request.size[plan, stage]),
            int(request.ranks[plan, stage]),
            int(request.stride[plan, stage]),
        )
        mine = Stream(bulk.rows.axis, float(seconds[plan, stage]), one)
        for other in _streams(priced, phases, int(plan), int(stage), sent):
            more, less = longer(mine, other, float(window[plan, stage]), priced.machine)
            taken[plan, stage] += more
            slowed[plan, stage] += less
    return taken, slowed


def _streams(
    priced: Priced, phases: tuple[int, ...], plan: int, stage: int, sent: Sequence[Request]
) -> Iterator[Stream]:
    """What a stage sends in one pass: the messages of each table, and those to the next stage."""
    passes = priced.lowered.layers[:, plan, stage]
    for message in priced.messages:
        rows = message.rows
        seconds = message.prices.seconds * rows.count * passes[rows.unit][:, None]
        found = stream(rows, np.isin(rows.phase, phases), seconds, plan, beside=False)
        if found is not None:
            yield found
    for request, price in zip(sent, priced.others, strict=False):
        one = Message(request.op, float(request.size[plan]), int(request.ranks[plan]), int(request.stride[plan]))
        yield Stream(request.axis, float(price.seconds[plan]), one, beside=False)
