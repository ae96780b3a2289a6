"""The memory of an inference engine: weights, cache, and the widest pass."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from rapid_llm.dtypes import Precision, dtype
from rapid_llm.hardware import Accelerator
from rapid_llm.lowering import Lowered
from rapid_llm.memory.account import Account, stacked
from rapid_llm.runtime import Runtime

Matrix = NDArray[np.float64]
FP32_BYTES = 4.0


def inference_account(lowered: Lowered, runtime: Runtime, precision: Precision, accelerator: Accelerator) -> Account:
    """Weights, the KV cache of all requests at their longest, and the widest layer of a full token budget.

    ``lowered`` is the last decode step (past + new tokens are cached); its micro-batch holds all requests of a replica.
    The limit is the share of memory that the engine takes, of the total or of what weights and activations leave free.
    """
    s, layers = lowered.shapes, lowered.layers
    plans = s.plans
    kinds = len(lowered.units) - 2
    sizes = np.full(len(lowered.units), dtype(precision.weights).bytes)
    sizes[kinds:] = s.act
    weights = np.einsum("ups,up,u->ps", layers, lowered.dense + lowered.expert, sizes)
    cache = np.einsum("ups,up->ps", layers, lowered.cache)
    present = layers > 0
    workspace = (present * _prefill_workspace(lowered, runtime)[:, :, None]).max(axis=0)
    alive = np.arange(layers.shape[2])[None, :] < plans.pp[:, None]
    slack = runtime.allocator.fragmentation * workspace
    parts = {"weights": weights, "kv_cache": cache, "workspace": workspace, "allocator": slack}
    capacity = float(accelerator.memory.reported_capacity)
    return Account(
        by_category=stacked(parts, plans, runtime.allocator, alive),
        persistent=np.where(alive, weights, 0.0),
        allocated=np.where(alive, weights + cache + workspace, 0.0),
        reclaimable=np.zeros(alive.shape),
        limits=np.full(alive.shape, capacity),
        capacity=capacity,
    )


def _prefill_workspace(lowered: Lowered, runtime: Runtime) -> Matrix:
    """Bytes of the widest pass of a full token budget [U, P]; the head keeps fp32 logits of as many sequences as may run."""
    s, serving = lowered.shapes, runtime.serving
    budget = serving.max_batched_tokens if serving else 1
    width = lowered.working * (budget / np.maximum(s.tokens, 1.0))
    rows = min(serving.max_sequences, budget) if serving else 1
    width[-1] = lowered.logits / np.maximum(s.rows, 1.0) * rows * (s.act + FP32_BYTES)
    return width
