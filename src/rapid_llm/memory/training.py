"""The memory of a training step: states, the activations of the micro-batches in flight, and what runs beside them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rapid_llm.dtypes import Precision
from rapid_llm.execution.schedules import CODES, micro_batches_in_flight
from rapid_llm.hardware import Accelerator
from rapid_llm.lowering import Lowered
from rapid_llm.lowering.operators import FP32_BYTES
from rapid_llm.memory.account import Account, stacked
from rapid_llm.memory.offload import staying
from rapid_llm.memory.states import States, states
from rapid_llm.parallelism import RECOMPUTE_MODES, Plans
from rapid_llm.runtime import Allocator, Runtime, Training

Column = NDArray[np.float64]
Matrix = NDArray[np.float64]

FULL = RECOMPUTE_MODES.index("full")
OUTER = 2
"""Units beside the layers: embedding and head, the last ones."""


@dataclass(frozen=True, slots=True)
class Holdings:
    """What a stage holds and when [P, S], the terms that the closed form and the walk over the schedule share.

    micro: activations that one micro-batch leaves until its backward pass; gathered: bytes by which gathered inputs
    exceed what is kept of them; rerun, loss: bytes beside them while a backward pass runs (one layer computed again;
    the logits, on the last stage); lasting: buffers and workspaces, between steps too [P]; always: those and the
    unsharded weights and staging buffers, through the whole step; flight: micro-batches at the peak; host: bytes that
    the host holds then; alive: whether the stage exists.
    """

    states: States
    micro: Matrix
    gathered: Matrix
    rerun: Matrix
    loss: Matrix
    lasting: Column
    always: Matrix
    flight: Matrix
    host: Matrix
    alive: NDArray[np.bool_]


def holdings(lowered: Lowered, runtime: Runtime, precision: Precision) -> Holdings:
    """What each stage of each plan holds."""
    plans, layers = lowered.shapes.plans, lowered.layers
    facts = runtime.training or Training()
    present = layers > 0
    lasting = _buffers(lowered, facts) + runtime.allocator.workspace
    flight = micro_batches_in_flight(plans.pp, plans.vpp, plans.micro_batches, plans.schedule, layers.shape[2])
    micro = np.einsum("ups,up->ps", layers, _kept(lowered, facts))
    stays = staying(lowered, states(lowered, runtime, precision), micro, flight, float(facts.bucket))
    return Holdings(
        states=stays.states,
        micro=stays.micro,
        gathered=np.einsum("ups,up->ps", layers[:-OUTER], lowered.gathered[:-OUTER]),
        rerun=(present * lowered.working[:, :, None]).max(axis=0),
        loss=present[-1] * (lowered.logits * FP32_BYTES * facts.loss_copies)[:, None],
        lasting=lasting,
        always=_unsharded(lowered, facts) + lasting[:, None] + stays.staging,
        flight=flight,
        host=stays.host_states + flight * stays.host_micro,
        alive=np.arange(layers.shape[2])[None, :] < plans.pp[:, None],
    )


def training_account(
    lowered: Lowered,
    runtime: Runtime,
    precision: Precision,
    accelerator: Accelerator,
    capacities: Matrix | None = None,
) -> Account:
    """Peak of each stage: states, activations of the micro-batches in flight, the larger transient of layer and loss.

    The closed form of the largest moment of ``walk``. ``capacities``: what the driver reports on each stage [P, S],
    where that is not the same on all.
    """
    h = holdings(lowered, runtime, precision)
    plans, allocator = lowered.shapes.plans, runtime.allocator
    gradients, activations, workspace = _at_peak(h, plans, runtime.training or Training())
    tensors = np.where(h.alive, h.states.weights + gradients + h.states.optimizer + activations + workspace, 0.0)
    slack, behind = _slack(h, np.maximum(activations + workspace - h.always, 0.0), allocator, plans.pp > 1)
    parts = {
        "weights": h.states.weights,
        "gradients": gradients,
        "optimizer": h.states.optimizer,
        "activations": activations,
        "workspace": workspace,
        "allocator": slack,
    }
    capacity = float(accelerator.memory.reported_capacity)
    limit = (allocator.utilisation or 1.0) * (capacity if capacities is None else capacities)
    by_category = stacked(parts, plans, allocator, h.alive)
    room = limit - by_category.sum(axis=0)
    reclaimable = np.where(h.alive, np.minimum(behind, np.maximum(room, 0.0)), 0.0)
    by_category[-1] += reclaimable
    return Account(
        by_category=by_category,
        persistent=np.where(h.alive, h.states.total + h.states.between + h.lasting[:, None], 0.0),
        allocated=tensors,
        reclaimable=reclaimable,
        displaced=np.where(h.alive & (room >= 0.0), behind - reclaimable, 0.0),
        limits=np.zeros(tensors.shape) + limit,
        capacity=capacity,
        host=np.where(h.alive, h.host, 0.0),
        capacities=capacities,
    )


def _at_peak(h: Holdings, plans: Plans, facts: Training) -> tuple[Matrix, Matrix, Matrix]:
    """Gradients, activations and workspace at the peak [P, S].

    The peak is at the end of warm-up, when a stage holds the activations of all its micro-batches in flight and runs
    its first backward pass (with the recomputed layer, or on the last stage the logits). Where a framework frees its
    gradients and no micro-batch follows, gradients appear while activations are freed: the larger of the start and the
    end of that pass counts. Buffers that live between steps count where they exceed what a small step needs.
    """
    gradients, activations = h.states.gradients, h.flight * h.micro
    workspace = np.maximum(h.rerun, h.loss) + h.always
    if facts.frees_gradients:
        parts = _parts(plans)[:, None]
        forwards = plans.micro_batches[:, None] * np.where(plans.two_way[:, None], parts / 2.0, parts)
        left = np.maximum(h.flight - 1.0 / parts, 0.0) * h.micro
        after = np.where(left > 0.0, workspace, h.rerun + h.always)
        fresh = forwards <= h.flight * parts
        late = fresh & (gradients + left + after > activations + workspace)
        gradients = np.where(fresh & ~late, 0.0, gradients)
        activations = np.where(late, left, activations)
        workspace = np.where(late, after, workspace)
    if facts.step_buffers:
        idle = h.lasting[:, None] + h.states.between
        quiet = idle + h.states.gradients > activations + workspace + gradients
        gradients = np.where(quiet, h.states.gradients, gradients)
        activations = np.where(quiet, 0.0, activations)
        workspace = np.where(quiet, idle, workspace)
    return gradients, activations, workspace


def _parts(plans: Plans) -> Column:
    """Parts in which a micro-batch's activations come and go on a stage [P]."""
    found = np.array([one.chunks or 0 for one in CODES])[plans.schedule.astype(np.int64)]
    return np.where(found > 0, found, plans.vpp)


def _slack(h: Holdings, moving: Matrix, allocator: Allocator, piped: NDArray[np.bool_]) -> tuple[Matrix, Matrix]:
    """Slack of the caching allocator, and gathered inputs that wait behind a side stream [P, S].

    The second part is given back once memory runs short: the allocator then waits for the stream.
    """
    pipeline = allocator.pipeline_fragmentation
    share = np.where(piped, allocator.fragmentation if pipeline is None else pipeline, allocator.fragmentation)
    stays = np.where(piped, allocator.pipeline_gathered_slack, allocator.gathered_slack)
    return share[:, None] * moving + allocator.slack, stays[:, None] * h.gathered * h.flight


def _kept(lowered: Lowered, facts: Training) -> Matrix:
    """Activations that a pass leaves [U, P], with the hidden states that a recomputed layer keeps beyond its input."""
    s = lowered.shapes
    if facts.checkpoint_inputs == 1.0:
        return lowered.saved
    more = (facts.checkpoint_inputs - 1.0) * s.shard * lowered.hidden_size * s.act / s.plans.recompute_every
    kept = lowered.saved.copy()
    kept[:-OUTER] += np.where(s.plans.recompute == FULL, more, 0.0)
    return kept


def _unsharded(lowered: Lowered, facts: Training) -> Matrix:
    """Unsharded weights and gradients of the layers in use, and the outer weights, under ZeRO-3 [P, S].

    The root group (embedding, final norm, head) is not sharded again between its forward and its backward pass. Beside
    a pipeline a framework may keep every layer whole for all micro-batches, and add up whole gradients.
    """
    s = lowered.shapes
    present = lowered.layers > 0
    if not (s.plans.zero_stage >= 3).any():
        return np.zeros(present.shape[1:])
    sizes = present * (lowered.dense + lowered.expert)[:, :, None]
    largest, root = sizes[:-OUTER].max(axis=0), sizes[-OUTER:].sum(axis=0)
    whole = largest * (facts.sharded_gather_layers * s.act + s.reduce) + root * s.act
    if facts.pipeline_keeps_whole:
        stage = np.einsum("ups,up->ps", lowered.layers, lowered.dense + lowered.expert)
        whole = np.where((s.plans.pp > 1)[:, None], stage * (s.act + s.reduce), whole)
    return np.where((s.plans.zero_stage >= 3)[:, None], whole, 0.0)


def _buffers(lowered: Lowered, facts: Training) -> Column:
    """Buffers for inputs that sequence parallelism gathers, whole, kept through the job [P]."""
    s = lowered.shapes
    whole = s.tokens * lowered.hidden_size * s.act
    return np.where((s.plans.tp > 1) & (s.plans.sp > 0), facts.gather_buffers * whole, 0.0)
