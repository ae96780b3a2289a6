"""The time of a whole step: stages in their schedule, then gradients, optimizer and the host."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from rapid_llm.execution.mapping import mapped
from rapid_llm.execution.messages import Cover, StepMessages, bulks, job_wide, send_time, sends, step_messages
from rapid_llm.execution.offload import Offloading, offloading
from rapid_llm.execution.passes import Passes, occupied_share, on_side_stream, time_passes
from rapid_llm.execution.pricing import Machine, Priced, price_step
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
    late: what slow accelerators add [P]; total [P].
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
    total: Column

    @property
    def end(self) -> NDArray[np.int64]:
        """The stage whose gradients and optimizer take longest [P]."""
        return np.asarray(_tail(self.optimizer, self.messages, self.offload).argmax(axis=1))


def training_step(
    lowered: Lowered, machine: Machine, slow: Slow | None = None, displaced: Matrix | None = None
) -> TrainingStep:
    """Time one optimizer step of every plan of a lowered training step; ``slow``: accelerators that compute slower;
    ``displaced``: bytes that each stage's allocator gives back and maps again in every pass [P, S]."""
    plans, runtime = lowered.shapes.plans, machine.runtime
    sent, once = sends(lowered, runtime), bulks(lowered, runtime)
    priced = price_step(lowered, machine, [*sent, *(bulk.request for bulk in once)])
    passes = time_passes(priced)
    forward = np.einsum("ups,up->ps", lowered.layers, passes.forward)
    backward = np.einsum("ups,up->ps", lowered.layers, passes.backward)
    offload = offloading(lowered, machine, forward, backward)
    if offload:
        forward, backward = forward + offload.forward, backward + offload.backward
    waits = np.zeros_like(forward) if displaced is None else mapped(displaced, machine)
    forward, backward = forward + waits, backward + waits
    issued = plans.chunks * (runtime.host.per_send / machine.host_speed)
    send, passing = _paced(send_time(priced.others[: len(sent)], lowered) + issued, priced)
    share = np.where(plans.pp > 1, send, 0.0)[:, None] * (np.arange(forward.shape[1]) < plans.pp[:, None])
    beside = _beside(priced, passes)
    times = Durations.of(forward + share, backward + share, _weight_gradients(priced), beside)
    pipeline = pipeline_time(times, plans.pp, plans.micro_batches, plans.vpp, plans.schedule) + passing
    spare = np.einsum("ups,up->ps", lowered.layers, passes.spare[BACKWARD])
    first, last = (np.einsum("ups,up->ps", lowered.layers, seconds) for seconds in _between_nodes(priced))
    cover = Cover(forward - first, backward - last, spare)
    messages = step_messages(once, priced.others[len(sent) :], priced, cover, sent)
    optimizer = np.einsum("ups,up->ps", lowered.layers, passes.kernels[OPTIMIZER])
    optimizer = optimizer * (1.0 - lowered.shapes.offload.optimizer)
    tail = _tail(optimizer, messages, offload).max(axis=1)
    late = _late(priced, passes, times, slow) if slow else np.zeros(len(plans))
    total = pipeline + late + tail + job_wide(priced) + runtime.host.per_step / machine.host_speed
    return TrainingStep(
        priced=priced,
        passes=passes,
        stage=(forward + backward).argmax(axis=1),
        forward=forward,
        backward=backward,
        send=send,
        beside=beside,
        times=times,
        pipeline=pipeline,
        messages=messages,
        optimizer=optimizer,
        offload=offload,
        mapping=waits,
        late=late,
        total=total,
    )


def _tail(optimizer: Matrix, messages: Sequence[StepMessages], offload: Offloading | None) -> Matrix:
    """Seconds of a stage behind its last backward pass [P, S]."""
    tail = optimizer + sum((m.exposed for m in messages), np.zeros_like(optimizer))
    return tail + offload.update + offload.tail if offload else tail


def _late(priced: Priced, passes: Passes, times: Durations, slow: Slow) -> Column:
    layers, again = priced.lowered.layers, [RECOMPUTE, BACKWARD]

    def on_stages(seconds: Matrix) -> tuple[Matrix, Matrix]:
        forward, backward = seconds[FORWARD], seconds[again].sum(axis=0)
        return np.einsum("ups,up->ps", layers, forward), np.einsum("ups,up->ps", layers, backward)

    return lateness(priced.lowered.shapes.plans, slow, times, on_stages(passes.kernels), on_stages(passes.host))


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
    lowered, span = priced.lowered, priced.machine.fabric.node_span
    busy = np.zeros((len(PHASES), *lowered.dense.shape))
    for message in priced.messages if priced.machine.net is None else ():
        rows = message.rows
        crosses = (rows.ranks > 1) & ((rows.ranks - 1.0) * rows.stride >= span)
        if crosses.any():
            np.add.at(busy, (rows.phase, rows.unit), message.prices.seconds * rows.count * crosses)
    return busy[FORWARD], busy[[RECOMPUTE, BACKWARD]].sum(axis=0)


def _paced(send: Column, priced: Priced) -> tuple[Column, Column]:
    """Of ``send``, the seconds that every micro-batch waits in one direction, and those of filling and draining [P].

    Between two chunks of an interleaved schedule a message may travel beside another chunk's computation, which it
    slows by the compute units that it occupies (Megatron-Core ``overlap_p2p_comm``); while the pipeline fills and
    drains each of the pp - 1 hops shows, once each way.
    """
    plans, machine = priced.lowered.shapes.plans, priced.machine
    hidden = (plans.chunks > 1) & machine.runtime.overlap.pipeline
    paced = np.where(hidden, occupied_share(machine) * send, send)
    return paced, 2.0 * (plans.pp - 1.0) * (send - paced) / plans.chunks
