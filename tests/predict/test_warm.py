"""What a prediction looks up is what it would work out: warm answers are cold ones, to the last bit."""

import sys
from typing import Any

import pytest

from rapid_llm.nouns import replaced
from rapid_llm.parallelism import Plans
from rapid_llm.predict import Report, fit, predict
from rapid_llm.scenario import Scenario, from_mapping, keywords

JOBS: dict[str, tuple[str, dict[str, Any]]] = {
    "dense": ("llama-3.1-70b", {"system": "dgx-h100", "tp": 4, "batch_size": 32}),
    "requests replaced as they finish": ("qwen3-32b", {"system": "dgx-h200", "tp": 4, "batching": "continuous"}),
    "stages and replicas": ("llama-3.1-8b", {"system": "dgx-a100", "tp": 2, "pp": 2, "dp": 2, "batch_size": 12}),
    "experts exchanged": ("deepseek-v3", {"system": "dgx-h200", "dp": 16, "ep": 16, "batch_size": 64}),
    "experts in 4 bits": ("gpt-oss-120b", {"system": "dgx-b200", "tp": 2, "runtime": "tensorrt-llm"}),
    "recurrent layers": ("qwen3-next-80b-a3b", {"system": "dgx-h100", "tp": 4, "runtime": "sglang"}),
    "windows": ("gemma-3-27b", {"system": "mi300x-8", "tp": 1, "batch_size": "auto"}),
    "an engine that sets nothing aside": ("llama-3.1-8b", {"system": "rtx-4090-2", "tp": 1, "runtime": "llama.cpp"}),
    "weights on the host": ("llama-3.1-70b", {"system": "dgx-a100", "tp": 1, "offload": {"weights": 0.6}}),
    "drafts": ("llama-3.1-70b", {"system": "dgx-h200", "tp": 4, "speculation": {"draft": "ngram", "acceptance": 0.6}}),
}  # fmt: skip
TRAINING = {"system": "dgx-h100", "accelerators": 64, "tp": 4, "pp": 2, "sequence_length": 4096}


def forget() -> None:
    """Empty every cache of the project."""
    Plans.of.cache_clear()  # type: ignore[attr-defined]
    for name, module in list(sys.modules.items()):
        for value in vars(module).values() if name.startswith("rapid_llm.") else ():
            if hasattr(value, "cache_clear"):
                value.cache_clear()


def said(report: Report, *, memory: bool = False) -> dict[str, Any]:
    """All of an answer; of one on memory alone that part."""
    whole = report.to_dict()
    return whole["memory"] if memory else whole


def held_to_cold(scenario: Scenario, neighbours: list[Scenario]) -> None:
    for one in neighbours:
        predict(one, allow_infeasible=True)
        fit(one)
    warm = said(predict(scenario, allow_infeasible=True)), said(fit(scenario), memory=True)
    forget()
    cold = said(predict(scenario, allow_infeasible=True)), said(fit(scenario), memory=True)
    assert warm == cold


@pytest.mark.parametrize("name", JOBS)
def test_a_warm_answer_is_a_cold_one(name: str) -> None:
    model, flags = JOBS[name]
    given = {"batch_size": 8, "prompt_tokens": 900, "output_tokens": 300, **flags}
    scenario = from_mapping(keywords.job("inference", model, given))
    work = scenario.workload
    batch = work.batch_size if work.batch_size == "auto" else work.batch_size * 2
    changes: list[dict[str, Any]] = [{"prompt_tokens": 3000}, {"output_tokens": 20}, {"batch_size": batch}]
    held_to_cold(scenario, [replaced(scenario, workload=replaced(work, **change)) for change in changes])


@pytest.mark.parametrize("model", ["llama-3.1-8b", "mixtral-8x7b"])
def test_a_warm_training_step_is_a_cold_one(model: str) -> None:
    scenario = from_mapping(keywords.job("training", model, {**TRAINING, "global_batch_size": 256}))
    changes = ({"sequence_length": 2048}, {"global_batch_size": 512})
    held_to_cold(scenario, [replaced(scenario, workload=replaced(scenario.workload, **change)) for change in changes])
