"""What a scenario says of its job: the plan as columns, and what the answer takes for granted."""

from __future__ import annotations

from functools import lru_cache
from math import ceil

import numpy as np
from numpy.typing import NDArray

from rapid_llm.dtypes import Precision
from rapid_llm.execution.host_experts import FLOPS_PER_BYTE
from rapid_llm.hardware import unjoined
from rapid_llm.lowering import Shapes
from rapid_llm.lowering.shapes import EVEN
from rapid_llm.model import Model
from rapid_llm.nouns import replaced
from rapid_llm.parallelism import Plans
from rapid_llm.runtime import Runtime
from rapid_llm.scenario import Scenario
from rapid_llm.workload import BY_CHANCE, NATURAL_SKEW, Inference, Training


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
    spec = getattr(work, "speculation", None)
    routed = work.kind if work.routing == EVEN else ""
    asked = routed, getattr(work, "images", None) is not None, spec is not None and spec.draft == "mtp"
    found = (*_apart(scenario), *_assumed(scenario.model, *asked))
    node = scenario.system.groups[0].node
    if not runs_on_cpus(scenario) or node.host_matrix is not None:
        return found
    rate = FLOPS_PER_BYTE * node.host_memory_bandwidth / 1e12
    cpus = f"CPUs of {node.host_memory_bandwidth / 1e9:.0f} GB/s and {rate:.1f} TFLOP/s (system.node.host_*)"
    return (*found, cpus)


def _apart(scenario: Scenario) -> tuple[str, ...]:
    """What to know of nodes whose accelerators have scale-up ports that nothing joins, where a job takes several
    accelerators.
    """
    if scenario.accelerators == 1:
        return ()
    return tuple(dict.fromkeys(said for group in scenario.system.groups if (said := unjoined(group.node))))


@lru_cache(maxsize=256)
def _assumed(model: Model, even: str, sees: bool, predicts: bool) -> tuple[str, ...]:
    found = []
    kinds = {b.mixer.kind for b in model.blocks if b.mixer}
    if "mamba" in kinds:
        found.append("scans of Mamba-1 are priced at the roofline of their bytes, FLOPs and exponentials")
    if kinds & {"mamba2", "linear"}:
        found.append("scans of Mamba-2 and linear attention take the measured steps of the gated delta rule")
    experts = [b.ffn for b in model.blocks if b.ffn and b.ffn.kind == "moe"]
    if even and experts:
        touched = "" if all(part.balanced for part in experts) else "; so do the experts that a step touches"
        falls = f"popularity of experts falls as i^-{NATURAL_SKEW} on up to {BY_CHANCE} ep ranks"
        served = f"{falls}, and is even on more{touched}"
        found.append(served if even == "inference" else "tokens spread evenly over ranks of experts")
    if predicts and not model.num_nextn_predict_layers:
        found.append(
            "a predictor of further tokens is trained beside the model: a layer like its last, and the LM head"
        )
    if model.position_embeddings == "relative":
        found.append("learned biases of distances are added within attention, at no cost of their own")
    if model.vision and not sees:
        found.append("text only: the vision tower holds memory and runs no image")
    return tuple(found)


def decoded(model: Model, work: Inference) -> tuple[Inference, float]:
    """The job of the decoder layers, and the tokens of another sequence that their cross attention reads.

    An encoder reads the prompt once; its decoder continues ``decoder_prompt_tokens``. A request without output is done
    with its first pass. Cross attention to images reads the tokens of their tiles.
    """
    if model.encoder is not None:
        return replaced(work, prompt_tokens=work.decoder_prompt_tokens), float(work.prompt_tokens)
    if not work.output_tokens:
        return replaced(work, output_tokens=1), 0.0
    if model.crosses and model.vision is not None and work.images is not None:
        return work, float(work.images.count * model.vision.tokens(work.images.width, work.images.height))
    return work, 0.0


def runs_on_cpus(scenario: Scenario) -> bool:
    """Whether the CPUs of the host run a part of the model."""
    work = scenario.workload
    if not isinstance(work, Inference):
        return False
    return bool(work.offload.experts or (work.offload.weights and scenario.runtime.runs_layers_on_host))


def training_shapes(plans: Plans, work: Training, precision: Precision, runtime: Runtime) -> Shapes:
    """One rank's share of a micro-batch of a training job under every plan."""
    width = len(plans)
    written = work.decoder_sequence_length
    return Shapes.of(
        plans,
        new=np.full(width, float(written or work.sequence_length)),
        source=float(work.sequence_length) if written else 0.0,
        past=np.zeros(width),
        training=True,
        precision=precision,
        runtime=runtime,
        work=work,
    )
