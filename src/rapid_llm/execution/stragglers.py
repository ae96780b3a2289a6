"""Slow accelerators delay exactly those who wait for them: the ranks of their stage in every pass, the pipeline of
their replica, and all replicas once a step."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from rapid_llm.execution.timeline import Durations, pipeline_time
from rapid_llm.parallelism import Plans

Column = NDArray[np.float64]
Matrix = NDArray[np.float64]
Slow = Mapping[int, float]
"""Share of its compute that an accelerator has left, by its place in the job."""


def paces(plans: Plans, plan: int, slow: Slow, stages: int) -> Matrix:
    """How many times longer computation takes on each stage, a row for every set of replicas that has a slow one
    [classes, S].

    The slowest member of replicas that wait for each other (``together``) paces the stage.
    """
    dp, pp = (int(getattr(plans, axis)[plan]) for axis in ("dp", "pp"))
    strides, alike = {axis: int(plans.stride(axis)[plan]) for axis in ("dp", "pp")}, together(plans, plan)
    found: dict[int, Column] = {}
    for place, speed in slow.items():
        replica, stage = place // strides["dp"] % dp, place // strides["pp"] % pp
        pace = found.setdefault(replica // alike, np.ones(stages))
        pace[stage] = max(pace[stage], 1.0 / speed)
    return np.array(list(found.values())).reshape(-1, stages)


def together(plans: Plans, plan: int) -> int:
    """How many replicas wait for each other within a pass of a stage: ranks do that where they exchange activations
    (tp, cp, experts) or gather weights (ZeRO-3)."""
    experts = int(plans.ep[plan] * plans.etp[plan]) // int(plans.tp[plan] * plans.cp[plan])
    shards = int(plans.dp_shard[plan]) if plans.zero_stage[plan] >= 3 else 1
    return max(experts, shards, 1)


def lateness(
    plans: Plans, slow: Slow, times: Durations, work: tuple[Matrix, Matrix], idle: tuple[Matrix, Matrix]
) -> Column:
    """Seconds by which slow accelerators delay the end of the last pipeline [P].

    ``times`` of healthy stages; ``work``: seconds of kernels of a forward and of a backward pass of each stage, which
    stretch; ``idle``: those in which its accelerators wait for their hosts, which absorb some of that [P, S].
    """
    late = np.zeros(len(plans))
    for plan in range(len(plans)):
        pace = paces(plans, plan, slow, times.forward.shape[1]) - 1.0
        extra = [np.maximum(pace * w[plan] - i[plan], 0.0) for w, i in zip(work, idle, strict=True)]
        rows = np.zeros(len(pace) + 1, dtype=np.int64) + plan
        healthy = np.zeros((1, pace.shape[1]))
        forward, backward = (np.concatenate([healthy, more]) for more in extra)
        own = times.take(rows, pace.shape[1])
        stretched = Durations(
            own.forward + forward,
            own.backward + backward,
            own.weight * (1.0 + np.concatenate([healthy, pace])),
            own.hidden,
            own.delay,
        )
        shape = (getattr(plans, name)[rows] for name in ("pp", "micro_batches", "vpp", "schedule"))
        ends = pipeline_time(stretched, *shape, unequal=True)
        late[plan] = ends.max() - ends[0]
    return late
