"""Messages of sharded states: ZeRO gathers and reductions per pass, gradients and updated weights per step."""

from __future__ import annotations

from rapid_llm.lowering.operators import Column, Operator
from rapid_llm.lowering.shapes import Shapes
from rapid_llm.lowering.table import BACKWARD, FORWARD, OPTIMIZER, Builder
from rapid_llm.operators.elementwise import Mask, some, where

Held = tuple[Column | float, Column | float]
"""Parameters of one rank [P]: all of them, and those that are trained."""


def shard_rows(builder: Builder, unit: int, dense: Held, expert: Held, s: Shapes, *, element: float) -> None:
    """Data-parallel messages of one pass of a unit (sizes in bytes of the whole buffer, as nccl-tests counts them).

    ZeRO-3 gathers weights before the forward and again before the backward pass and reduce-scatters gradients of every
    micro-batch; stage 2 reduce-scatters every micro-batch; below that gradients travel once a step: all-reduce (stage
    0), or reduce-scatter and all-gather of the updated weights (arXiv 1910.02054, section 7). Sharding inside dp_shard
    leaves an all-reduce of each shard over its replicas behind every reduce-scatter (HSDP). Experts do the same over
    the replicas of an expert. ``element``: bytes of a gathered weight.
    """
    gradient_copy(builder, unit, dense[1] + expert[1], s)
    reduced = s.plans.zero_stage < 1
    _rows(builder, unit, dense, s, groups=("data", "shard"), reduced=reduced, element=element)
    _rows(builder, unit, expert, s, groups=("edp", "edp"), reduced=reduced, element=element)


def gradient_copy(builder: Builder, unit: int, parameters: Column | float, s: Shapes) -> None:
    """What a sharding framework does to the gradients of a pass before it reduces them: copy them into one flat buffer
    and divide them by the number of ranks (torch FSDP 1 and 2, DeepSpeed ZeRO-2 and 3): two reads and two writes."""
    every = where(s.plans.zero_stage >= 2, 1.0, 0.0)
    if some(every):
        op = Operator("gradient_copy", "pointwise", {}, {}, kind="stream")
        columns: dict[str, Column | float] = {
            "read_bytes": parameters * (s.act + s.reduce),
            "write_bytes": parameters * 2.0 * s.reduce,
            "flops": 0.0,
        }
        builder.kernel(op, (unit, BACKWARD), columns, count=every)


def gradient_sum(builder: Builder, unit: int, parameters: Column | float, s: Shapes) -> None:
    """Gradients of a micro-batch added to those of the step by a kernel apart: read both, write one."""
    op = Operator("gradient_sum", "pointwise", {}, {}, kind="stream")
    columns: dict[str, Column | float] = {
        "read_bytes": parameters * (s.act + s.gradient),
        "write_bytes": parameters * s.gradient,
        "flops": 0.0,
    }
    builder.kernel(op, (unit, BACKWARD), columns, count=1.0)


def _rows(
    builder: Builder,
    unit: int,
    parameters: Held,
    s: Shapes,
    *,
    groups: tuple[str, str],
    reduced: Mask,
    element: float,
) -> None:
    """Messages of parameters that live on a group of replicas and are sharded over another; ``reduced``: plans that
    all-reduce their gradients [P]."""
    held, trained = parameters
    if not some(held > 0):
        return
    zero = s.plans.zero_stage
    whole, shard = groups
    label = "expert weights" if whole == "edp" else "weights"
    gradients = trained * s.reduce

    def add(op: str, axis: str, phase: int, plans: Mask) -> None:
        if not some(plans):
            return
        what = "gather" if op == "all_gather" else "gradient"
        size = (trained if phase == OPTIMIZER else held) * element if op == "all_gather" else gradients
        if axis == "replicas":
            size = gradients / getattr(s.plans, shard)
        builder.message(f"{label} {what}", op, axis, (unit, phase), size=size, count=where(plans, 1.0, 0.0))

    for stages, phase in (((zero == 1) & ~reduced, OPTIMIZER), (zero >= 2, BACKWARD)):
        add("reduce_scatter", shard, phase, stages)
        if shard != whole:
            add("all_reduce", "replicas", phase, stages & (s.plans.replicas > 1))
    add("all_gather", shard, OPTIMIZER, (zero >= 1) & (zero < 3))
    for phase in (FORWARD, BACKWARD):
        add("all_gather", shard, phase, zero >= 3)
    add("all_reduce", whole, OPTIMIZER, reduced)
