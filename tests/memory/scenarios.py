"""Scenarios that the memory tests account for."""

from typing import Any

from rapid_llm.scenario import Scenario, from_mapping

GIB = 2.0**30


def training(model: Any = "llama-3.1-8b", *, runtime: str = "megatron-core", **given: Any) -> Scenario:
    """A training scenario; ``plan`` and ``work`` are laid over one sequence of 2,048 tokens on one accelerator."""
    plan, work = given.pop("plan", {}), given.pop("work", {})
    return from_mapping(
        {
            "model": model,
            "system": "dgx-superpod-h100",
            "runtime": runtime,
            "parallelism": plan,
            "workload": {"kind": "training", "global_batch_size": 1, "sequence_length": 2048, **work},
            **given,
        },
        checked=False,
    )


def inference(model: str = "llama-3.1-8b", *, runtime: Any = "vllm", **given: Any) -> Scenario:
    """An inference scenario of one request."""
    plan, work = given.pop("plan", {}), given.pop("work", {})
    return from_mapping(
        {
            "model": model,
            "system": "dgx-h100",
            "runtime": runtime,
            "parallelism": plan,
            "workload": {"kind": "inference", "batch_size": 1, "prompt_tokens": 1024, "output_tokens": 256, **work},
            **given,
        },
        checked=False,
    )
