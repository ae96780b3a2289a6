"""Sequence and tensor parallelism on the same ranks: each pass in the faster form, both held, no more than either."""

import numpy as np
import pytest

from rapid_llm.errors import InputError
from rapid_llm.predict import evaluate, fit, predict
from rapid_llm.scenario import from_mapping

WORK = {"kind": "inference", "batch_size": 16, "prompt_tokens": 4096, "output_tokens": 100}
SHIFT = {"tp": 1, "cp": 8, "ulysses": 8, "shift": True}


def scenario(model="llama-3.1-70b", **plan):
    base = {"model": model, "system": "dgx-h200", "runtime": "vllm", "precision": "fp8"}
    return from_mapping({**base, "parallelism": plan, "workload": WORK})


def test_prompts_run_in_one_form_and_decode_in_the_other():
    tensor, sequence, both = (evaluate(scenario(**p)) for p in ({"tp": 8}, {**SHIFT, "shift": False}, SHIFT))
    assert both.ttft_s == pytest.approx(sequence.ttft_s)
    assert both.tpot_s == pytest.approx(tensor.tpot_s, rel=1e-3)
    assert tensor.ttft_s > 1.4 * both.ttft_s, "Arctic Inference: up to 1.5 times faster responses than tp 8"
    assert sequence.tpot_s > both.tpot_s


def test_each_pass_takes_the_faster_form():
    """A short prompt reads too many weights to deal its tokens."""
    short = from_mapping({**scenario(**SHIFT).to_mapping(), "workload": {**WORK, "batch_size": 1, "prompt_tokens": 8}})
    tensor = from_mapping({**scenario(tp=8).to_mapping(), "workload": {**WORK, "batch_size": 1, "prompt_tokens": 8}})
    assert evaluate(short).ttft_s == pytest.approx(evaluate(tensor).ttft_s, rel=1e-3)


@pytest.mark.parametrize("batching", ["static", "continuous"])
def test_leaves_sum_to_the_request(batching):
    given = {**scenario(**SHIFT).to_mapping(), "workload": {**WORK, "batching": batching}}
    report = predict(from_mapping(given))
    assert sum(leaf.seconds for leaf in report.breakdown.leaves()) == pytest.approx(report.e2e_s, rel=1e-9)


def test_both_forms_of_the_weights_are_held():
    tensor, sequence, both = (fit(scenario(**p)) for p in ({"tp": 8}, {**SHIFT, "shift": False}, SHIFT))
    weights = [one.memory.by_category["weights"] for one in (tensor, sequence, both)]
    assert weights[2] == pytest.approx(weights[0] + weights[1])
    cache = [one.memory.by_category["kv_cache"] for one in (tensor, sequence, both)]
    assert np.allclose(cache, cache[0], rtol=0.02), "the cache lies alike"
    assert predict(scenario(**SHIFT)).memory.by_category == both.memory.by_category


def test_experts_too():
    report = predict(scenario("qwen3-30b-a3b", tp=1, cp=4, ulysses=4, shift=True))
    assert report.feasible


@pytest.mark.parametrize("plan", [{"tp": 8}, {"cp": 8}, {"cp": 8, "ulysses": 4}, {"cp": 4, "ulysses": 4, "pp": 2}])
def test_what_does_not_switch_is_refused(plan):
    with pytest.raises(InputError, match=r"^parallelism.shift switches all cp ranks between ulysses and tp"):
        scenario(**plan, shift=True)


def test_training_does_not_switch():
    job = {"kind": "training", "global_batch_size": 8, "sequence_length": 4096}
    plan = {"cp": 8, "ulysses": 8, "shift": True}
    with pytest.raises(InputError, match=r"^parallelism.shift is for inference"):
        from_mapping({"model": "llama-3.1-70b", "system": "dgx-h200", "parallelism": plan, "workload": job})
