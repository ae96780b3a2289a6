"""Messages of sharded states: ZeRO-3 gathers per pass, gradients and updated weights per step."""

from __future__ import annotations

import numpy as np

from rapid_llm.lowering.operators import Column
from rapid_llm.lowering.shapes import Shapes
from rapid_llm.lowering.table import BACKWARD, FORWARD, OPTIMIZER, Builder


def shard_rows(builder: Builder, unit: int, dense: Column, expert: Column, s: Shapes) -> None:
    """Data-parallel messages of one pass of a unit (sizes in bytes of the whole buffer, as nccl-tests counts them).

    ZeRO-3 gathers weights before the forward and again before the backward pass and reduce-scatters gradients of every
    micro-batch; below that gradients travel once a step: all-reduce (stage 0), or reduce-scatter and all-gather of the
    updated weights (stages 1, 2). Experts do the same over the replicas of an expert.
    """
    zero = s.plans.zero_stage
    three = np.where(zero >= 3, 1.0, 0.0)
    one = np.where((zero >= 1) & (zero < 3), 1.0, 0.0)
    none = np.where(zero < 1, 1.0, 0.0)
    for parameters, whole, shard, label in (
        (dense, "data", "shard", "weights"),
        (expert, "edp", "edp", "expert weights"),
    ):
        if not np.any(parameters > 0):
            continue
        weights, gradients = parameters * s.act, parameters * s.reduce
        if three.any():
            builder.message(f"{label} gather", "all_gather", shard, unit, FORWARD, weights, three)
            builder.message(f"{label} gather", "all_gather", shard, unit, BACKWARD, weights, three)
            builder.message(f"{label} gradient", "reduce_scatter", shard, unit, BACKWARD, gradients, three)
            if shard == "shard":
                share = gradients / s.plans.shard
                builder.message(f"{label} gradient", "all_reduce", "replicas", unit, OPTIMIZER, share, three)
        if one.any():
            builder.message(f"{label} gradient", "reduce_scatter", whole, unit, OPTIMIZER, gradients, one)
            builder.message(f"{label} gather", "all_gather", whole, unit, OPTIMIZER, weights, one)
        if none.any():
            builder.message(f"{label} gradient", "all_reduce", whole, unit, OPTIMIZER, gradients, none)
