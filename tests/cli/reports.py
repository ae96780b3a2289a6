"""Reports made by hand: what the renderer must cope with, from a comfortable fit to an overflow."""

from rapid_llm.lazy import Later
from rapid_llm.predict.report import FLOP_CONVENTION, Confidence, Cost, Fix, Report, Violation, WhatIf, Where
from rapid_llm.predict.uses import MemoryUse
from rapid_llm.scenario import from_mapping

GIB = 2**30

SCENARIO = {
    "model": "llama-3.1-70b",
    "system": "dgx-h100",
    "accelerators": 64,
    "runtime": "megatron-core@2021",
    "parallelism": {"tp": 8, "pp": 2},
    "precision": "bf16-mixed",
    "workload": {"kind": "training", "global_batch_size": 512, "sequence_length": 8192},
}
BATCH = {
    "runtime": "vllm",
    "parallelism": {"tp": 8},
    "precision": "bf16",
    "workload": {"kind": "inference", "batch_size": 8, "prompt_tokens": 1024, "output_tokens": 256},
}


def memory(peak: int = 62, capacity: int = 79) -> MemoryUse:
    parts = {
        "weights": 9,
        "gradients": 16,
        "optimizer": 12,
        "activations": peak - 41,
        "communication": 1,
        "framework": 3,
    }
    by_category = {name: size * GIB for name, size in parts.items()}
    return MemoryUse(
        persistent_bytes=37 * GIB,
        allocated_bytes=(peak - 4) * GIB,
        peak_bytes=peak * GIB,
        capacity_bytes=capacity * GIB,
        by_category=by_category,
        rank=0,
        stage=0,
    )


def breakdown() -> Cost:
    compute = Cost(
        "compute", 8.0, children=(Cost("gemm", 7.0, bound="compute"), Cost("attention", 1.0, bound="compute"))
    )
    exposed = Cost(
        "communication", 1.5, children=(Cost("tp", 1.2, 0.5, bound="network"), Cost("pp", 0.3, bound="network"))
    )
    return Cost("step", 11.0, children=(compute, exposed, Cost("bubble", 1.0, bound="schedule"), Cost("host", 0.5)))


def where(tree: Cost, bound_by: str = "") -> Later[Where]:
    return Later(lambda: Where(tree, bound_by))


def training() -> Report:
    return Report(
        kind="training",
        feasible=True,
        step_time_s=11.0,
        tokens_per_s=381_300.4,
        tokens_per_s_per_accelerator=5957.8,
        mfu=0.43,
        mfu_causal=0.405,
        hfu=0.451,
        flop_convention=FLOP_CONVENTION.format("fp8"),
        memory=memory(),
        where=where(breakdown(), "compute: 73 % of the step; next exposed tp communication, 11 %"),
        confidence=Confidence("training", "korthikanti", 22, 0.034, 0.081, ("dgx-h100 is newer than these rows",)),
        interval=(10.1, 11.9),
        what_if=(WhatIf("scale-up bandwidth x2", -0.04), WhatIf("network cards x2", -0.001)),
        defaults=("sp true", "zero_stage 1", "recompute none"),
        assumptions=("every rank starts the step together",),
        origin=from_mapping(SCENARIO),
    )


def infeasible() -> Report:
    message = (
        "does not fit: rank 0 needs 131.4 GiB of weights + 9.1 GiB of KV cache, has 79.1 GiB. "
        "Try tp 2, or fp8 weights (65.7 GiB)."
    )
    fixes = (Fix("tp 2", 66 * GIB, None), Fix("fp8 weights", 65 * GIB, 0.62))
    return Report(
        kind="inference",
        feasible=False,
        violations=(Violation("memory", message, 141.0 * GIB, 79.1 * GIB, fixes),),
        memory=memory(peak=141),
        origin=from_mapping({**SCENARIO, **BATCH}),
    )


def inference() -> Report:
    prefill = Cost("prefill", 0.2, children=(Cost("gemm", 0.2, bound="compute"),))
    decode = Cost("decode", 4.0, children=(Cost("gemm", 3.0, bound="memory"), Cost("tp", 1.0, bound="network")))
    return Report(
        kind="inference",
        feasible=True,
        ttft_s=0.2,
        tpot_s=0.0157,
        e2e_s=4.2,
        output_tokens_per_s=1950.4,
        total_tokens_per_s=9750.2,
        memory=memory(),
        where=where(Cost("request", 4.2, children=(prefill, decode)), "memory bandwidth of decode: 71 %"),
        interval=(3.9, 4.6),
        origin=from_mapping({**SCENARIO, **BATCH}),
    )
