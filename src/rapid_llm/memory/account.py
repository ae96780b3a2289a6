"""What one rank of every stage holds at its peak, by category, from the tables that the timeline executes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rapid_llm.dtypes import Precision, dtype
from rapid_llm.execution.schedules import micro_batches_in_flight
from rapid_llm.hardware import Accelerator
from rapid_llm.lowering import Lowered
from rapid_llm.parallelism import SCHEDULES, Plans
from rapid_llm.runtime import Runtime

Column = NDArray[np.float64]
Matrix = NDArray[np.float64]

CATEGORIES = (
    "weights",
    "gradients",
    "optimizer",
    "activations",
    "kv_cache",
    "workspace",
    "communication",
    "framework",
)
FP32_BYTES = 4.0
GPIPE = SCHEDULES.index("gpipe")
COMMUNICATORS = ("tp", "pp", "cp", "data", "ep")


@dataclass(frozen=True, slots=True)
class Account:
    """Bytes of one rank of each stage under P plans.

    by_category [categories, P, S] at the peak; they sum to peak [P, S] (reserved, with context and libraries).
    allocated is the peak without the allocator's slack and what stands outside it; persistent lives all the time.
    capacity: bytes that the driver reports; limit: what the runtime may use of them.
    """

    by_category: Matrix
    persistent: Matrix
    allocated: Matrix
    capacity: float
    limit: float

    @property
    def peak(self) -> Matrix:
        """Bytes reserved at the peak [P, S]."""
        return np.asarray(self.by_category.sum(axis=0))

    @property
    def fullest(self) -> NDArray[np.int64]:
        """The fullest stage of each plan [P]."""
        return np.asarray(self.peak.argmax(axis=1))

    @property
    def fits(self) -> NDArray[np.bool_]:
        """Whether the fullest rank stays within the limit [P]."""
        return np.asarray(self.peak.max(axis=1) <= self.limit)


def training_account(lowered: Lowered, runtime: Runtime, precision: Precision, accelerator: Accelerator) -> Account:
    """Peak of each stage: states, activations of the micro-batches in flight, and the larger transient of layer and loss.

    The peak is reached at the end of warm-up, when a stage holds the activations of all its micro-batches in flight and
    runs its first backward pass (the recomputed layer, or on the last stage the logits).
    """
    s, layers = lowered.shapes, lowered.layers
    plans = s.plans
    facts = runtime.training
    weights, gradients, optimizer = _states(lowered, runtime, precision)
    flight = micro_batches_in_flight(
        plans.pp, plans.vpp, plans.micro_batches, plans.schedule == GPIPE, layers.shape[2]
    )
    kinds = len(lowered.units) - 2
    activations = flight * np.einsum("ups,up->ps", layers[:kinds], lowered.saved[:kinds])
    activations += np.einsum("ups,up->ps", layers[kinds:], lowered.saved[kinds:])
    present = (layers > 0).astype(float)
    rerun = (present * lowered.working[:, :, None]).max(axis=0)
    loss = present[-1] * (lowered.logits * FP32_BYTES * (facts.loss_copies if facts else 0.0))[:, None]
    gathered = _gathered(lowered, runtime)
    workspace = np.maximum(rerun, loss) + gathered
    alive = present.any(axis=0)
    persistent = np.where(alive, weights + gradients + optimizer, 0.0)
    categories = _with_overheads(
        {
            "weights": weights,
            "gradients": gradients,
            "optimizer": optimizer,
            "activations": activations,
            "workspace": workspace,
        },
        plans,
        runtime,
        alive,
    )
    allocated = np.where(alive, persistent + activations + workspace, 0.0)
    capacity = float(accelerator.memory.reported_capacity)
    return Account(categories, persistent, allocated, capacity, capacity)


def _states(lowered: Lowered, runtime: Runtime, precision: Precision) -> tuple[Matrix, Matrix, Matrix]:
    """Weights, gradients and optimizer states of each stage [P, S], sharded as the ZeRO stage says (arXiv 1910.02054)."""
    plans = lowered.shapes.plans
    zero = plans.zero_stage
    dense = np.einsum("ups,up->ps", lowered.layers, lowered.dense)
    expert = np.einsum("ups,up->ps", lowered.layers, lowered.expert)

    def held(size: float, stage: int) -> Matrix:
        cut = zero >= stage
        return size * (
            dense / np.where(cut, plans.shard, 1.0)[:, None] + expert / np.where(cut, plans.edp, 1.0)[:, None]
        )

    gradient = dtype(precision.gradients).bytes + (runtime.training.gradient_buffers if runtime.training else 0.0)
    return held(dtype(precision.weights).bytes, 3), held(gradient, 2), held(precision.optimizer.bytes, 1)


def _gathered(lowered: Lowered, runtime: Runtime) -> Matrix:
    """Unsharded weights and gradients of the layers in use under ZeRO-3 [P, S]."""
    plans = lowered.shapes.plans
    present = (lowered.layers > 0).astype(float)
    if not runtime.training or not np.any(plans.zero_stage >= 3):
        return np.zeros(present.shape[1:])
    largest = (present * (lowered.dense + lowered.expert)[:, :, None]).max(axis=0)
    alive = runtime.training.sharded_gather_layers * lowered.shapes.act + lowered.shapes.reduce
    return np.where((plans.zero_stage >= 3)[:, None], largest * alive, 0.0)


def _with_overheads(parts: dict[str, Matrix], plans: Plans, runtime: Runtime, alive: NDArray[np.bool_]) -> Matrix:
    """Add communicators, context, graphs and the allocator's slack; stack in the order of CATEGORIES."""
    allocator = runtime.allocator
    zero = np.zeros(alive.shape)
    groups = sum(((getattr(plans, axis) > 1).astype(float) for axis in COMMUNICATORS), np.zeros(len(plans)))
    slack = allocator.fragmentation * (parts.get("activations", zero) + parts.get("workspace", zero))
    full = {
        **parts,
        "communication": zero + (groups * allocator.communicator)[:, None],
        "framework": zero + allocator.context + allocator.graphs + slack,
    }
    return np.stack([np.where(alive, full.get(name, zero), 0.0) for name in CATEGORIES])


def inference_account(lowered: Lowered, runtime: Runtime, precision: Precision, accelerator: Accelerator) -> Account:
    """Weights, the KV cache of all requests at their longest, and the widest layer of a full token budget.

    ``lowered`` is the last decode step (past + new tokens are cached); its micro-batch holds every request of a replica.
    The limit is the share of memory that the engine takes, of the total or of what weights and activations leave free.
    """
    s, layers = lowered.shapes, lowered.layers
    plans = s.plans
    weight = dtype(precision.weights).bytes
    embedding = s.act
    kinds = len(lowered.units) - 2
    sizes = np.full(len(lowered.units), weight)
    sizes[kinds:] = embedding
    weights = np.einsum("ups,up,u->ps", layers, lowered.dense + lowered.expert, sizes)
    cache = np.einsum("ups,up->ps", layers, lowered.cache)
    present = (layers > 0).astype(float)
    workspace = (present * _prefill_workspace(lowered, runtime)[:, :, None]).max(axis=0)
    alive = present.any(axis=0)
    categories = _with_overheads(
        {"weights": weights, "kv_cache": cache, "workspace": workspace}, plans, runtime, alive
    )
    persistent = np.where(alive, weights, 0.0)
    allocated = np.where(alive, weights + cache + workspace, 0.0)
    capacity = float(accelerator.memory.reported_capacity)
    return Account(categories, persistent, allocated, capacity, capacity)


def _prefill_workspace(lowered: Lowered, runtime: Runtime) -> Matrix:
    """Bytes of the widest layer pass when a full token budget is in one forward pass [U, P]."""
    s = lowered.shapes
    budget = runtime.serving.max_batched_tokens if runtime.serving else 1
    return lowered.working * (budget / np.maximum(s.tokens, 1.0))
