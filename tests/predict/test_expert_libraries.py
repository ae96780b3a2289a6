"""A runtime that names a library for dispatch and combine prices those messages by it."""

import pytest

from rapid_llm import runtime
from rapid_llm.errors import InputError
from rapid_llm.predict import predict
from rapid_llm.scenario import from_mapping


def report(expert, **workload):
    scenario = {
        "model": "deepseek-v3",
        "system": "dgx-h200",
        "accelerators": 16,
        "runtime": "sglang",
        "parallelism": {"tp": 1, "dp": 16, "ep": 16},
        "workload": {"kind": "inference", "batch_size": 256, "prompt_tokens": 1024, "output_tokens": 16, **workload},
    }
    given = [f"runtime.communication.expert={expert or 'null'}"]
    return predict(from_mapping(scenario, overrides=given), allow_infeasible=True)


def test_prefill_sends_each_token_once_to_a_node():
    plain, library = report(None), report("deepep")
    assert library.ttft_s < plain.ttft_s
    assert library.tpot_s == pytest.approx(plain.tpot_s, rel=0.2)


def test_engines_that_serve_wide_expert_parallelism_run_such_a_library():
    scenario = from_mapping(report("deepep").scenario)
    assert {runtime.load(name).communication.expert for name in ("sglang", "vllm")} == {"deepep"}
    assert scenario.runtime.communication == runtime.load("sglang").communication


def test_an_unknown_library_is_a_sentence():
    with pytest.raises(
        InputError, match=r"library of expert exchanges 'deepap' is not in the catalogue\. Did you mean 'deepep'\?"
    ):
        report("deepap")
