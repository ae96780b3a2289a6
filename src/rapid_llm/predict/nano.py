"""Passes dealt into nano-batches: messages of one travel beside the kernels of the others.

SGLang calls it two-batch overlap (DeepSeek-V3, arXiv 2412.19437, section 3.4), vLLM dual batch overlap, NanoFlow (Zhu
et al. 2024, arXiv 2408.12757) nano-batches. With K and M seconds of kernels and messages of one of n nano-batches a
layer takes max(n K, n M) instead of the K + M of the whole batch: kernels of fewer tokens are less efficient, and read
weights n times.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from rapid_llm.execution import ForwardSteps, forward_steps
from rapid_llm.execution.forward import engine_time
from rapid_llm.lowering import Lowered
from rapid_llm.workload import Points

if TYPE_CHECKING:
    from rapid_llm.predict.replica import Job

Column = NDArray[np.float64]


def dealt(points: Points, count: int) -> tuple[Points, Column]:
    """The nano-batch of each pass, and how many of it there are [N]. Sequences are dealt out; a single prompt is cut,
    and its later half sees the earlier one.
    """
    whole = np.minimum(np.floor(points.batch), count)
    alone = (whole < count) & ~points.decode & (points.new >= count)
    parts = np.where(alone, float(count), np.maximum(whole, 1.0))
    new = np.where(alone, points.new / parts, points.new)
    return replace(
        points,
        batch=np.where(alone, points.batch, points.batch / parts),
        new=new,
        past=points.past + np.where(alone, (points.new - new) / 2.0, 0.0),
    ), parts


def in_nano_batches(
    job: Job, points: Points, verified: NDArray[np.bool_] | None, count: int
) -> tuple[Lowered, ForwardSteps]:
    """Lower and time forward passes of ``count`` nano-batches each; the engine's host time is that
    of the whole pass.
    """
    small, parts = dealt(points, count)
    lowered = job.lower(small, verified)
    lowered = replace(
        lowered,
        kernels=tuple(replace(table, count=table.count * parts) for table in lowered.kernels),
        messages=tuple(replace(table, count=table.count * parts) for table in lowered.messages),
    )
    steps = forward_steps(lowered, job.machine, job.slow, job.work.offload)
    further = (parts - 1.0) * steps.send
    last = np.arange(steps.stages.shape[1])[None, :] >= lowered.shapes.plans.pp[:, None] - 1
    stages = steps.stages + np.where(last, 0.0, further[:, None])
    host = engine_time(job.lower(points, verified), job.machine)
    if job.engine.async_scheduling:
        host = np.maximum(host - stages.sum(axis=1), 0.0)
    return lowered, replace(steps, stages=stages, send=steps.send * parts, host=host)
