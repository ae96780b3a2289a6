"""Parts of a request's time: none is negative, they sum to it, and what is hidden stands beside."""

import pytest

from rapid_llm.predict import evaluate, predict
from rapid_llm.scenario import from_mapping

WAVES = {"batch_size": 16, "total_requests": 100, "prompt_tokens": 2000, "output_tokens": 100}
SPEC = {"batch_size": 4, "prompt_tokens": 17, "output_tokens": 100}


def scenario_of(model, system, runtime, **work):
    mapping = {"model": model, "system": system, "workload": {"kind": "inference", **work}, "runtime": runtime}
    return from_mapping(mapping)


def report(model, system, runtime, **work):
    return predict(scenario_of(model, system, runtime, **work), allow_infeasible=True)


@pytest.mark.parametrize(
    ("model", "runtime", "work"),
    [
        ("qwen3.6-35b-a3b", "vllm", SPEC),
        ("glm-5", "sglang", SPEC),
        ("deepseek-v2-lite", "tensorrt-llm", {**SPEC, "batching": "continuous"}),
        ("llama-3.1-8b", "vllm", WAVES),
        ("llama-3.1-8b", "tensorrt-llm@2023", WAVES),
        ("qwen3-4b", "llama.cpp", {**WAVES, "batching": "continuous", "output_tokens": 1}),
    ],
)
def test_no_part_is_negative_and_all_sum_to_the_request(model, runtime, work):
    found = report(model, "h200-sxm", runtime, **work)
    leaves = list(found.breakdown.leaves())
    assert all(leaf.seconds >= 0 and leaf.hidden_seconds >= 0 for leaf in leaves)
    assert sum(leaf.seconds for leaf in leaves) == pytest.approx(found.e2e_s, rel=1e-9)


def test_what_a_shared_expert_hides_behind_the_routed_ones_is_said():
    leaves = report("qwen3.6-35b-a3b", "h200-sxm", "vllm", **SPEC).phases["decode"].leaves()
    hidden = {leaf.name for leaf in leaves if leaf.hidden_seconds > 0}
    assert hidden and all(name.startswith("shared_") for name in hidden)


@pytest.mark.parametrize("batching", ["static", "continuous"])
def test_a_request_of_one_token_ends_with_it(batching):
    """Also where the cache holds part of the batch at once, and the last ones wait for a round."""
    found = report("llama-2-7b", "l4", "vllm", batch_size=200, prompt_tokens=1000, output_tokens=1, batching=batching)
    assert found.ttft_s == found.e2e_s


@pytest.mark.parametrize("prompt", [8000, 20_000, 60_000])
@pytest.mark.parametrize("output", [2, 5, 50])
def test_one_request_in_a_loop_is_a_batch_of_one(prompt, output):
    """Chunks of its own prompt are no steps in which it decodes."""
    loop, alone = (
        report(
            "granite-4.0-micro", "a100-sxm", "vllm", batch_size=1, prompt_tokens=prompt, output_tokens=output,
            batching=kind,
        )
        for kind in ("continuous", "static")
    )  # fmt: skip
    assert loop.tpot_s == pytest.approx(alone.tpot_s, rel=0.02)
    assert loop.ttft_s == pytest.approx(alone.ttft_s, rel=0.1)


def test_a_job_that_writes_nothing_is_sized_by_nobody():
    work = {"batch_size": "auto", "total_requests": 100, "prompt_tokens": 1000, "output_tokens": 0}
    sized, user = (
        report("llama-3.1-8b", "h100-sxm", {"base": "tensorrt-llm", "serving": {"sized_by": who}}, **work)
        for who in ("trtllm-bench", "user")
    )
    assert sized.e2e_s == user.e2e_s


def test_a_wave_of_one_has_its_tokens_after_the_first():
    """Its first token is no later than its decode steps allow, though a prompt's chunks are read in steps unlike."""
    lengths = {"batch_size": 1, "prompt_tokens": 20_000, "output_tokens": 2}
    found = report("kimi-k2.5", "hgx-h200", "tensorrt-llm@0.16", **lengths, batching="continuous", total_requests=3)
    assert found.tpot_s > 0.0


def test_no_step_runs_beyond_the_rate_of_its_format():
    """V100 has no matrix rate for fp32: its vector units multiply, and utilisation is over what they do."""
    work = {"kind": "training", "global_batch_size": 16, "sequence_length": 2048}
    given = {"model": "gpt-18b", "system": "dgx-2", "precision": "fp32", "parallelism": {"tp": 8}, "workload": work}
    assert 0.5 < predict(from_mapping(given), allow_infeasible=True).mfu < 1.0


def test_cross_attention_over_nothing_is_quiet(recwarn):
    report("llama-3.2-11b-vision", "h100-sxm", "tensorrt-llm", **SPEC)
    assert not recwarn.list


@pytest.mark.parametrize("serving", [{"receive_interval": 50}, {"batch_wait": 50, "batch_wait_share": 1.0}])
def test_no_pass_reads_more_prompts_than_there_are_requests(serving):
    """Once all of them wait, none decodes, and the engine looks."""
    work = {"batch_size": 4, "prompt_tokens": 128, "output_tokens": 2, "batching": "continuous"}
    table = evaluate(scenario_of("llama-3.1-8b", "h100-sxm", {"base": "sglang", "serving": serving}, **work))
    assert table.points.batch[0] <= 4
    calm = evaluate(scenario_of("llama-3.1-8b", "h100-sxm", "sglang", **work))
    assert table.ttft_s < 2.0 * calm.e2e_s
