"""The time of a whole step: stages in their schedule, then gradients, optimizer and the host."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rapid_llm.execution.passes import Passes, occupied_share, on_side_stream, time_passes
from rapid_llm.execution.pricing import Machine, Priced, further, price_group, price_step
from rapid_llm.execution.schedules import CODES
from rapid_llm.execution.timeline import Durations, pipeline_time
from rapid_llm.lowering import Lowered, Messages
from rapid_llm.lowering.table import OPTIMIZER, PHASES, WEIGHT_GRADIENT
from rapid_llm.network import OPS

Column = NDArray[np.float64]
Matrix = NDArray[np.float64]
SPLIT, PAIRED = np.array([one.splits for one in CODES]), np.array([one.pairs for one in CODES])
EXPERT_AXES = ("ep", "etp")


@dataclass(frozen=True, slots=True)
class StepMessages:
    """Messages once a step on the data-parallel groups, by axis and use [P, S] (s): all, and what is not hidden."""

    axis: str
    gather: bool
    seconds: Matrix
    exposed: Matrix


@dataclass(frozen=True, slots=True)
class TrainingStep:
    """One optimizer step under P plans.

    stage: pacing stage [P]; forward, backward: seconds of a micro-batch on each stage [P, S]; send: pipeline messages
    of one micro-batch [P]; beside: what passes save beside each other [P, S]; times: of passes with these messages;
    pipeline: seconds until the last backward [P]; messages; optimizer [P, S]; host [P]; total [P].
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
    total: Column

    @property
    def end(self) -> NDArray[np.int64]:
        """The stage whose gradients and optimizer take longest [P]."""
        tail = self.optimizer + sum((m.exposed for m in self.messages), np.zeros_like(self.optimizer))
        return np.asarray(tail.argmax(axis=1))


def training_step(lowered: Lowered, machine: Machine) -> TrainingStep:
    """Time one optimizer step of every plan of a lowered training step."""
    priced = price_step(lowered, machine)
    passes = time_passes(priced)
    plans = lowered.shapes.plans
    forward = np.einsum("ups,up->ps", lowered.layers, passes.forward)
    backward = np.einsum("ups,up->ps", lowered.layers, passes.backward)
    send, passing = _paced(send_time(priced), priced)
    share = np.where(plans.pp > 1, send, 0.0)[:, None] * (np.arange(forward.shape[1]) < plans.pp[:, None])
    beside = _beside(priced, passes)
    times = Durations.of(forward + share, backward + share, _weight_gradients(priced), beside)
    pipeline = pipeline_time(times, plans.pp, plans.micro_batches, plans.vpp, plans.schedule) + passing
    messages = _step_messages(priced, forward, backward)
    optimizer = np.einsum("ups,up->ps", lowered.layers, passes.kernels[OPTIMIZER])
    tail = optimizer + sum((m.exposed for m in messages), np.zeros_like(optimizer))
    total = pipeline + tail.max(axis=1) + machine.runtime.host.per_step / machine.host_speed
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
        total=total,
    )


def _weight_gradients(priced: Priced) -> Matrix | None:
    """Seconds of weight gradients of a micro-batch on each stage [P, S], where a schedule splits the backward pass."""
    lowered = priced.lowered
    if not SPLIT[lowered.shapes.plans.schedule.astype(np.int64)].any():
        return None
    seconds = np.zeros(lowered.dense.shape)
    for table in priced.kernels:
        rows = np.array([name.endswith(WEIGHT_GRADIENT) for name in table.rows.names])
        np.add.at(seconds, table.rows.unit[rows], (table.prices.seconds * table.rows.count)[rows])
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
    return np.asarray(np.minimum((1.0 - occupied_share(machine)) * sent, whole - sent))


def send_time(priced: Priced) -> Column:
    """Seconds that one micro-batch adds to one direction of one stage: its activations to the neighbour, per chunk.

    Every rank of a tp group holds the whole tensor unless sequence parallelism shards it; a runtime that scatters and
    gathers sends 1/tp of it and all-gathers on the other side.
    """
    lowered, machine = priced.lowered, priced.machine
    s, facts = lowered.shapes, machine.runtime.training
    plans = s.plans
    width = len(plans)
    if not (plans.pp > 1).any():
        return np.zeros(width)
    whole = s.shard * lowered.hidden_size * s.act
    scatters = np.full(width, bool(facts and facts.scatter_gather)) & (plans.sp == 0) & (plans.tp > 1)
    size = np.where(scatters, whole / plans.tp, whole)
    codes = np.repeat([OPS.index("send_recv"), OPS.index("all_gather")], width)
    ranks = np.concatenate([np.where(plans.pp > 1, 2, 1), np.where(scatters, plans.tp, 1)])
    strides = np.concatenate([plans.stride("pp"), plans.stride("tp")])
    price = price_group(codes, np.concatenate([size, whole]), ranks, strides, machine)
    return np.asarray(price.seconds.reshape(2, width).sum(axis=0) * plans.chunks)


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


def _step_messages(priced: Priced, forward: Matrix, backward: Matrix) -> tuple[StepMessages, ...]:
    """Gradient and weight messages of whole stages, hidden behind the last backward or the first forward pass.

    A runtime without buckets sends one message a layer. All but the last message can hide (the last gradient is ready
    when the backward pass ends); a hidden message slows the kernels beside it by the compute units that it occupies.
    """
    machine, overlap = priced.machine, priced.machine.runtime.overlap
    tables = [rows for rows in priced.lowered.messages if OPTIMIZER in rows.phase]
    found = []
    for rows, (seconds, count) in zip(tables, _whole_stages(tables, priced), strict=True):
        gather = rows.op == "all_gather"
        exposed = seconds
        if overlap.parameter_gather if gather else overlap.gradient_reduce:
            late = np.minimum(seconds, np.maximum(seconds / count, seconds - (forward if gather else backward)))
            exposed = late + occupied_share(machine) * (seconds - late)
        found.append(StepMessages(rows.axis, gather, seconds, exposed))
    return tuple(found)


def _whole_stages(tables: list[Messages], priced: Priced) -> list[tuple[Matrix, Matrix]]:
    """Seconds of all messages of each table on each stage, and how many they are (both [P, S]), priced in one call."""
    if not tables:
        return []
    lowered, machine = priced.lowered, priced.machine
    facts = machine.runtime.training
    stages = lowered.layers.shape[2]
    sizes, counts = [], []
    for rows in tables:
        chosen = rows.phase == OPTIMIZER
        size = np.einsum("rps,rp->ps", lowered.layers[rows.unit[chosen]], rows.size[chosen] * rows.count[chosen])
        count = np.ceil(size / facts.bucket) if facts and facts.bucket else lowered.layers.sum(axis=0)
        counts.append(np.maximum(1.0, count))
        sizes.append(size)
    codes = np.repeat([OPS.index(rows.op) for rows in tables], sizes[0].size)
    ranks = np.concatenate([np.repeat(rows.ranks[0], stages) for rows in tables])
    strides = np.concatenate([np.repeat(rows.stride[0], stages) for rows in tables])
    whole, count = np.stack(sizes), np.stack(counts)
    price = price_group(codes, (whole / count).ravel(), ranks, strides, machine)
    late = further(machine.runtime.host.per_peer_step / machine.host_speed, ranks, strides, machine)
    seconds = np.where(whole > 0, (price.seconds + late).reshape(whole.shape) * count, 0.0)
    return list(zip(seconds, count, strict=True))
