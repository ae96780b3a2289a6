"""Weights, gradients and optimizer states of one rank."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rapid_llm.dtypes import Precision, dtype
from rapid_llm.execution.schedules import CODES
from rapid_llm.lowering import Lowered
from rapid_llm.parallelism import Plans
from rapid_llm.runtime import Runtime

Matrix = NDArray[np.float64]
_NEVER_DRAINS = np.array([one.end == "stream" for one in CODES])
_SHARDED_FROM = np.array([[3.0], [2.0], [1.0]])
"""The ZeRO stage from which weights, gradients and optimizer states are sharded."""


@dataclass(frozen=True, slots=True)
class States:
    """Bytes of each stage [P, S]; ``between`` lives from one optimizer step to the next forward pass only."""

    weights: Matrix
    gradients: Matrix
    optimizer: Matrix
    between: Matrix

    @property
    def total(self) -> Matrix:
        """Bytes that live through the whole step [P, S]."""
        return self.weights + self.gradients + self.optimizer


def states(lowered: Lowered, runtime: Runtime, precision: Precision) -> States:
    """States of each stage, sharded as the ZeRO stage says (Rajbhandari et al. 2020, arXiv 1910.02054, section 3).

    Masters that a framework shards in place of weights are its weights. Gradients that data-parallel ranks reduce
    in another dtype stand in buffers of their own; frozen weights have neither masters nor gradients; replicas of
    one have none. A pipeline that never drains keeps a second version of the weights (PipeDream-2BW, arXiv
    2006.09503, section 3).
    """
    plans, facts = lowered.shapes.plans, runtime.training
    zero = plans.zero_stage
    trained, trained_experts = np.einsum("ups,kup->kps", lowered.layers, lowered.trained)
    whole, sharded = _shards(trained, trained_experts, plans)

    none = np.zeros(len(plans))
    packed = dtype(precision.weights).weight_only
    own = dtype(precision.activations if packed else precision.weights).bytes
    weight, gradient = none + own, none + dtype(precision.gradients).bytes
    optimizer, between = none + precision.optimizer.bytes, none
    if facts:
        if facts.sharded_masters and precision.optimizer.master:
            master = dtype(precision.optimizer.master).bytes
            weight = np.where(zero >= 3, master, weight)
            optimizer = optimizer - np.where(zero >= 3, master, 0.0)
        partly = (zero >= 1) & (zero < 3) & (plans.data > 1)
        gradient = gradient + np.where(plans.data > 1, facts.gradient_buffers, 0.0)
        optimizer = optimizer + np.where(partly, facts.owned_buffers, 0.0)
        between = np.where(partly, facts.step_buffers, 0.0)
    weight = weight * np.where(_NEVER_DRAINS[plans.schedule.astype(np.int64)] & (plans.pp > 1), 2.0, 1.0)
    held = np.where((zero >= _SHARDED_FROM)[:, :, None], sharded, whole)
    weights, gradients, optimizer = np.array([weight, gradient, optimizer])[:, :, None] * held
    if lowered.shapes.lora:
        sizes = np.full(len(lowered.units), dtype(precision.weights).bytes)
        sizes[-2:] = own  # embedding and head
        frozen = (np.stack([lowered.dense, lowered.expert]) - lowered.trained) * sizes[:, None]
        dense, expert = np.einsum("ups,kup->kps", lowered.layers, frozen)
        weights = weights + np.where((zero >= 3)[:, None], *_shards(dense, expert, plans)[::-1])
    return States(
        weights=weights,
        gradients=gradients,
        optimizer=optimizer,
        between=between[:, None] * whole,
    )


def _shards(dense: Matrix, expert: Matrix, plans: Plans) -> tuple[Matrix, Matrix]:
    """Parameters of a stage, whole and in data-parallel shards [P, S]."""
    return dense + expert, dense / plans.shard[:, None] + expert / plans.edp[:, None]
