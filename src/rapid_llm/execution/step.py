"""The time of a whole step: stages in their schedule, then gradients, optimizer and the host."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from rapid_llm.execution.beside import occupied_share, on_side_stream
from rapid_llm.execution.cells import summed
from rapid_llm.execution.cluster import Cluster, Kind, Pipeline
from rapid_llm.execution.machine import Machine
from rapid_llm.execution.mapping import mapped
from rapid_llm.execution.messages import (
    Bulk,
    Cover,
    StepMessages,
    Taken,
    bulk_taken,
    bulks,
    job_wide,
    send_time,
    sends,
    step_messages,
)
from rapid_llm.execution.offload import Offloading, offloading
from rapid_llm.execution.passes import Passes, time_passes
from rapid_llm.execution.pricing import Priced, Request, price_step
from rapid_llm.execution.schedules import CODES
from rapid_llm.execution.stragglers import Slow, lateness
from rapid_llm.execution.timeline import Durations, pipeline_time
from rapid_llm.lowering import Lowered
from rapid_llm.lowering.table import BACKWARD, FORWARD, OPTIMIZER, PHASES, RECOMPUTE, WEIGHT_GRADIENT
from rapid_llm.nouns import light

Column = NDArray[np.float64]
Matrix = NDArray[np.float64]
SPLIT, PAIRED = np.array([one.splits for one in CODES]), np.array([one.pairs for one in CODES])
EXPERT_AXES = ("ep", "etp")


@light
class TrainingStep:
    """One optimizer step under P plans.

    stage: pacing stage [P]; forward, backward: seconds of a micro-batch on each stage [P, S]; send: pipeline messages
    of one micro-batch [P]; beside: what passes save beside each other [P, S]; times: of passes with these messages;
    pipeline: seconds until the last backward [P]; messages; optimizer [P, S]; offload, whose part is in forward and
    backward; mapping: seconds that the allocator adds to each pass of a stage, in forward and in backward too [P, S];
    late: what slow accelerators add [P]; host: what the host adds once [P]; total [P]. ``seats``: on unlike machines.
    Forward to total are then those of the pipeline that a plan waits for, priced and passes those of the machine that
    the pacing stage of the first plan waits for.
    """

    priced: Priced
    passes: Passes
    stage: NDArray[np.int64]
    forward: Matrix
    backward: Matrix
    send: Column
    beside: Matrix | None
    times: Durations
    pipeline: Column
    messages: tuple[StepMessages, ...]
    optimizer: Matrix
    offload: Offloading | None
    mapping: Matrix
    late: Column
    host: Column
    total: Column
    seats: Seats | None = None

    @property
    def end(self) -> NDArray[np.int64]:
        """The stage whose gradients and optimizer take longest [P]."""
        return np.asarray(tail(self.optimizer, self.messages, self.offload).argmax(axis=1))


@light
class Work:
    """What the stages of P plans take on one machine [P, S], before their messages to each other.

    forward, backward: seconds of a micro-batch, with offload and mapping; weight, beside as in ``Durations``, None
    where no schedule splits or pairs passes; cover: what hides messages once a step; optimizer; offload; mapping.
    """

    priced: Priced
    passes: Passes
    forward: Matrix
    backward: Matrix
    weight: Matrix | None
    beside: Matrix | None
    cover: Cover
    optimizer: Matrix
    offload: Offloading | None
    mapping: Matrix


@light
class Seats:
    """Where the stages of P plans sit: the pipelines of all plans, the one that each plan waits for [P], and the work
    of every machine; ``slowest``: the machine that the pacing stage of the first plan waits for."""

    cluster: Cluster
    pipelines: tuple[Pipeline, ...]
    critical: NDArray[np.int64]
    works: Mapping[Kind, Work]
    slowest: Kind

    def of_plan(self, plan: int) -> list[Pipeline]:
        """The pipelines of a plan that differ."""
        return [one for one in self.pipelines if one.plan == plan]


def training_step(
    lowered: Lowered, machine: Machine, slow: Slow | None = None, displaced: Matrix | None = None
) -> TrainingStep:
    """Time one optimizer step of every plan of a lowered training step; ``slow``: accelerators that compute slower;
    ``displaced``: bytes that each stage's allocator gives back and maps again in every pass [P, S]."""
    plans, runtime = lowered.shapes.plans, machine.runtime
    sent, once = sends(lowered, runtime), bulks(lowered, runtime)
    work = work_on(lowered, machine, displaced, [*sent, *(bulk.request for bulk in once)])
    priced, passes = work.priced, work.passes
    issued = plans.chunks * (runtime.host.per_send / machine.host_speed)
    send, passing = paced(send_time(priced.others[: len(sent)], lowered) + issued, priced)
    share = np.where(plans.pp > 1, send, 0.0)[:, None] * (np.arange(work.forward.shape[1]) < plans.pp[:, None])
    times = Durations.of(work.forward + share, work.backward + share, work.weight, work.beside)
    columns = (plans.pp, plans.micro_batches, plans.vpp, plans.schedule)
    pipeline = pipeline_time(times, *columns, unequal=bool(plans.stage_layers)) + passing
    taken = taken_once(once, work, len(sent))
    messages = step_messages(once, taken, priced, work.cover, sent=sent)
    late = _late(priced, passes, times, slow) if slow else np.zeros(len(plans))
    host = once_a_step(priced)
    return TrainingStep(
        priced=priced,
        passes=passes,
        stage=(work.forward + work.backward).argmax(axis=1),
        forward=work.forward,
        backward=work.backward,
        send=send,
        beside=work.beside,
        times=times,
        pipeline=pipeline,
        messages=messages,
        optimizer=work.optimizer,
        offload=work.offload,
        mapping=work.mapping,
        late=late,
        host=host,
        total=pipeline + late + tail(work.optimizer, messages, work.offload).max(axis=1) + host,
    )


def work_on(lowered: Lowered, machine: Machine, displaced: Matrix | None, requests: Sequence[Request]) -> Work:
    """Price a lowered step on a machine, and ``requests`` of its network; time the passes of its stages."""
    priced = price_step(lowered, machine, requests)
    passes = time_passes(priced)
    of_units = (
        passes.forward,
        passes.backward,
        passes.spare[BACKWARD],
        passes.kernels[OPTIMIZER],
        *_between_nodes(priced),
    )
    forward, backward, spare, optimizer, first, last = on_stages(lowered, of_units)
    offload = offloading(lowered, machine, forward, backward)
    if offload:
        forward, backward = forward + offload.forward, backward + offload.backward
    waits = np.zeros_like(forward) if displaced is None else mapped(displaced, machine)
    forward, backward = forward + waits, backward + waits
    return Work(
        priced,
        passes,
        forward,
        backward,
        _weight_gradients(priced),
        _beside(priced, passes),
        Cover(forward - first, backward - last, spare, *_reading(passes, lowered)),
        optimizer * (1.0 - lowered.shapes.offload.optimizer),
        offload,
        waits,
    )


def _reading(passes: Passes, lowered: Lowered) -> tuple[Matrix, Matrix]:
    """Shares of the forward and of the backward pass of each stage in which kernels wait for memory [P, S]."""
    reading = passes.reading
    if not reading.any():
        none = np.zeros(lowered.layers.shape[1:])
        return none, none
    of_units = reading[FORWARD], reading[RECOMPUTE] + reading[BACKWARD], passes.forward, passes.backward
    found = on_stages(lowered, of_units)
    waits, whole = found[:2], found[2:]
    forward, backward = np.divide(waits, whole, out=np.zeros_like(whole), where=whole > 0)
    return forward, backward


def on_stages(lowered: Lowered, seconds: Sequence[Matrix]) -> NDArray[np.float64]:
    """Several values of a pass of each unit [U, P], of all passes of each stage [values, P, S]."""
    return np.asarray(np.einsum("ups,kup->kps", lowered.layers, np.array(seconds)))


def taken_once(once: Sequence[Bulk], work: Work, sent: int) -> list[Taken]:
    """What the messages once a step take, priced behind ``sent`` others."""
    found = zip(once, work.priced.others[sent:], strict=True)
    return [bulk_taken(bulk, price, work.priced, work.cover.spare) for bulk, price in found]


def once_a_step(priced: Priced) -> Column:
    """Seconds that hosts add to a step: of their own, and of collectives over the whole job that they compare [P]."""
    return job_wide(priced) + priced.machine.runtime.host.per_step / priced.machine.host_speed


def tail(optimizer: Matrix, messages: Sequence[StepMessages], offload: Offloading | None) -> Matrix:
    """Seconds of a stage behind its last backward pass [P, S]."""
    found = optimizer + sum((m.exposed for m in messages), np.zeros_like(optimizer))
    return found + offload.update + offload.tail if offload else found


def _late(priced: Priced, passes: Passes, times: Durations, slow: Slow) -> Column:
    work, idle = kernels_and_gaps(priced, passes)
    return lateness(priced.lowered.shapes.plans, slow, times, work, idle)


def kernels_and_gaps(priced: Priced, passes: Passes) -> tuple[tuple[Matrix, Matrix], tuple[Matrix, Matrix]]:
    """Seconds of kernels, and those in which accelerators wait for their hosts, of a forward and of a backward pass of
    each stage [P, S]."""
    work, idle = passes.kernels, passes.host
    of_units = [(seconds[FORWARD], seconds[RECOMPUTE] + seconds[BACKWARD]) for seconds in (work, idle)]
    found = on_stages(priced.lowered, [part for pair in of_units for part in pair])
    return (found[0], found[1]), (found[2], found[3])


def _weight_gradients(priced: Priced) -> Matrix | None:
    """Seconds of weight gradients of a micro-batch on each stage [P, S], where a schedule splits the backward pass."""
    lowered = priced.lowered
    if not SPLIT[lowered.shapes.plans.schedule.astype(np.int64)].any():
        return None
    seconds = np.zeros(lowered.dense.shape)
    for table in priced.kernels:
        rows = np.array([name.endswith(WEIGHT_GRADIENT) for name in table.rows.names])
        np.add.at(seconds, table.rows.unit[rows], (table.seconds * table.rows.count)[rows])
    return np.asarray(np.einsum("ups,up->ps", lowered.layers, seconds))


def _beside(priced: Priced, passes: Passes) -> Matrix | None:
    """Seconds that forward and backward passes save beside each other [P, S], where a schedule pairs them.

    Tokens of one travel to and from their experts while the other computes, slowed by the share sigma of the compute
    units that their messages occupy: of C seconds of computation and E of such messages in both, (1 - sigma) E hides,
    at most C (DeepSeek-AI 2024, arXiv 2412.19437, section 3.2.1).
    """
    lowered, machine = priced.lowered, priced.machine
    if not PAIRED[lowered.shapes.plans.schedule.astype(np.int64)].any():
        return None
    shown = np.zeros_like(passes.kernels)
    ratio = np.divide(passes.exposed, passes.side, out=np.zeros_like(shown), where=passes.side > 0)
    for message in priced.messages:
        rows = message.rows
        if rows.axis in EXPERT_AXES:
            seconds = message.prices.seconds * rows.count * (rows.ranks > 1)
            cell = (rows.phase, rows.unit)
            np.add.at(shown, cell, seconds * ratio[cell] if on_side_stream(machine, rows.axis) else seconds)
    step = [phase for phase in range(len(PHASES)) if phase != OPTIMIZER]
    sent = np.einsum("ups,up->ps", lowered.layers, shown[step].sum(axis=0))
    whole = np.einsum("ups,up->ps", lowered.layers, passes.total[step].sum(axis=0))
    return np.asarray(np.minimum((1.0 - occupied_share(machine, "ep")) * sent, whole - sent))


def _between_nodes(priced: Priced) -> tuple[Matrix, Matrix]:
    """Seconds of a forward pass, and of a backward pass with what it recomputes, in which its own messages between
    nodes keep the network cards busy [U, P]: nothing hides behind them that needs the cards itself. None where
    messages share the links that they meet on (``machine.net``)."""
    sent, shape = priced.sent, (len(PHASES), *priced.lowered.dense.shape)
    if priced.machine.net is not None:
        return np.zeros(shape[1:]), np.zeros(shape[1:])
    crosses = (sent.ranks - 1.0) * sent.stride >= priced.machine.fabric.node_span
    busy = summed(sent.seconds * sent.count * crosses, sent.cells, shape)
    return busy[FORWARD], busy[[RECOMPUTE, BACKWARD]].sum(axis=0)


def paced(send: Column, priced: Priced) -> tuple[Column, Column]:
    """Of ``send``, the seconds that every micro-batch waits in one direction, and those of filling and draining [P].

    Between two chunks of an interleaved schedule a message may travel beside another chunk's computation, which it
    slows by the compute units that it occupies (Megatron-Core ``overlap_p2p_comm``); while the pipeline fills and
    drains each of the pp - 1 hops shows, once each way.
    """
    plans, machine = priced.lowered.shapes.plans, priced.machine
    hidden = (plans.chunks > 1) & machine.runtime.overlap.pipeline
    paced = np.where(hidden, occupied_share(machine) * send, send)
    return paced, 2.0 * (plans.pp - 1.0) * (send - paced) / plans.chunks
