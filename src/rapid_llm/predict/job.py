"""What a scenario says of its job: the plan as columns, and what the answer takes for granted."""

from __future__ import annotations

from math import ceil

import numpy as np
from numpy.typing import NDArray

from rapid_llm.dtypes import Precision
from rapid_llm.lowering import Shapes
from rapid_llm.parallelism import Plans
from rapid_llm.runtime import Runtime
from rapid_llm.scenario import Scenario
from rapid_llm.workload import Routing, Training


def plans_of(scenario: Scenario) -> Plans:
    """The scenario's plan as columns of length one."""
    plan, work = scenario.parallelism, scenario.workload
    dp = plan.dp or 1
    order = scenario.placement.order
    if isinstance(work, Training):
        recompute = work.recompute
        return Plans.of(
            plan,
            micro_batch=work.micro_batch_size,
            micro_batches=work.global_batch_size / (work.micro_batch_size * dp),
            recompute=recompute.mode if recompute else "none",
            recompute_every=recompute.every if recompute else 1,
            order=order,
        )
    return Plans.of(plan, micro_batch=ceil(work.requests / dp), micro_batches=1, order=order)


def capacities_of(scenario: Scenario, plans: Plans, stages: int) -> NDArray[np.float64] | None:
    """Bytes that the driver reports on each stage [P, S]; None on equal accelerators."""
    if len(scenario.system.groups) == 1:
        return None
    from rapid_llm.execution.cluster import Cluster, machines  # few jobs need it

    found = machines(scenario.system, scenario.runtime, None, plans, scenario.placement.stages)
    return found.capacities(plans, stages) if isinstance(found, Cluster) else None


def assumptions(scenario: Scenario) -> tuple[str, ...]:
    """What the answer takes for granted and a user could contradict."""
    found = []
    blocks = scenario.model.blocks
    kinds = {b.mixer.kind for b in blocks if b.mixer} - {"attention", "mla"}
    if kinds:
        found.append(f"{', '.join(sorted(kinds))} blocks are priced at the roofline of their bytes and FLOPs")
    work = scenario.workload
    uneven = work.routing != Routing()
    if any(b.ffn and b.ffn.kind == "moe" for b in blocks) and not uneven:
        found.append("tokens spread evenly over experts")
    if scenario.model.vision and not getattr(work, "images", None):
        found.append("text only: the vision tower holds memory and runs no image")
    return tuple(found)


def training_shapes(plans: Plans, work: Training, precision: Precision, runtime: Runtime) -> Shapes:
    """One rank's share of a micro-batch of a training job under every plan."""
    width = len(plans)
    return Shapes.of(
        plans,
        new=np.full(width, float(work.sequence_length)),
        past=np.zeros(width),
        training=True,
        precision=precision,
        runtime=runtime,
        work=work,
    )
