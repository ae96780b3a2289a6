"""What a scenario says of its job: the plan as columns, and what the answer takes for granted."""

from __future__ import annotations

from functools import lru_cache
from math import ceil

import numpy as np
from numpy.typing import NDArray

from rapid_llm.dtypes import Precision
from rapid_llm.execution.host_experts import FLOPS_PER_BYTE
from rapid_llm.lowering import Shapes
from rapid_llm.lowering.shapes import EVEN
from rapid_llm.model import Model
from rapid_llm.parallelism import Plans
from rapid_llm.runtime import Runtime
from rapid_llm.scenario import Scenario
from rapid_llm.workload import Inference, Training


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
    work = scenario.workload
    found = _assumed(scenario.model, work.routing == EVEN, getattr(work, "images", None) is not None)
    node = scenario.system.groups[0].node
    if not runs_on_cpus(scenario) or node.host_matrix is not None:
        return found
    rate = FLOPS_PER_BYTE * node.host_memory_bandwidth / 1e12
    cpus = f"CPUs of {node.host_memory_bandwidth / 1e9:.0f} GB/s and {rate:.1f} TFLOP/s (system.node.host_*)"
    return (*found, cpus)


@lru_cache(maxsize=256)
def _assumed(model: Model, even: bool, sees: bool) -> tuple[str, ...]:
    found = []
    kinds = {b.mixer.kind for b in model.blocks if b.mixer} - {"attention", "mla"}
    if kinds:
        found.append(f"{', '.join(sorted(kinds))} blocks are priced at the roofline of their bytes and FLOPs")
    if even and any(b.ffn and b.ffn.kind == "moe" for b in model.blocks):
        found.append("tokens spread evenly over experts")
    if model.vision and not sees:
        found.append("text only: the vision tower holds memory and runs no image")
    return tuple(found)


def runs_on_cpus(scenario: Scenario) -> bool:
    """Whether the CPUs of the host run a part of the model."""
    work = scenario.workload
    if not isinstance(work, Inference):
        return False
    return bool(work.offload.experts or (work.offload.weights and scenario.runtime.runs_layers_on_host))


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
