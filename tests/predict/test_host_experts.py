"""Experts that the CPUs of the host run: published runs, bounds, memory, sentences."""

import pytest

from rapid_llm.errors import InputError
from rapid_llm.predict import evaluate, fit, predict
from rapid_llm.scenario import from_mapping

WORK = {"kind": "inference", "batch_size": 1, "prompt_tokens": 969, "output_tokens": 300}
ONE_SOCKET = ("system.node.host_memory_bandwidth=246 GB/s", "system.node.host_matrix=72 TFLOP/s")


def scenario(*overrides, model="deepseek-v3", system="rtx-4090-xeon", runtime="ktransformers", experts=True, **work):
    return from_mapping(
        {
            "parallelism": work.pop("parallelism", {}),
            "model": model,
            "system": system,
            "runtime": runtime,
            "precision": "q4-k",
            "workload": {**WORK, "offload": {"experts": experts}, **work},
        },
        overrides=overrides,
    )


@pytest.mark.parametrize(
    ("prompt", "overrides", "prefill", "decode"),
    [
        (969, (), 88.2, 13.5),
        (1930, (), 88.5, 13.4),
        (3846, (), 81.9, 13.2),
        (500, (), 82.94, 12.208),
        (500, ONE_SOCKET, 54.21, 8.73),
    ],
)
def test_published_runs_of_deepseek_v3(prompt, overrides, prefill, decode):
    """KTransformers DeepSeek-R1/V3 tutorial, V0.2.1 and V0.2, 8 experts, Q4_K_M: tokens/s on one 4090."""
    table = evaluate(scenario(*overrides, runtime="ktransformers@0.2", prompt_tokens=prompt))
    assert prompt / table.ttft_s == pytest.approx(prefill, rel=0.26)
    assert 1.0 / table.tpot_s == pytest.approx(decode, rel=0.15)


@pytest.mark.parametrize(("overrides", "decode"), [((), 14), (ONE_SOCKET, 10)])
def test_published_runs_of_kimi_k2(overrides, decode):
    """KTransformers page of Kimi-K2: roughly so many tokens/s of Q4_K_M; no number was chosen by them."""
    given = scenario(*overrides, runtime="ktransformers@0.3", model="kimi-k2", prompt_tokens=500)
    assert 1.0 / evaluate(given).tpot_s == pytest.approx(decode, rel=0.12)


@pytest.mark.parametrize(("prompt", "prefill"), [(1024, 186.0), (2048, 255.3), (4096, 252.6)])
def test_published_prompts_with_amx(prompt, prefill):
    """The same tutorial, V0.3-preview with int8 kernels for AMX."""
    table = evaluate(scenario(runtime="ktransformers@0.3", prompt_tokens=prompt))
    assert prompt / table.ttft_s == pytest.approx(prefill, rel=0.25)


def test_decode_is_bound_by_the_memory_of_the_host():
    """All 58 layers read 8 experts of 44.04 million parameters of 4.8 bits: 12.3 GB at 0.65 of 491 GB/s are 39 ms."""
    report = predict(scenario())
    (leaf,) = [leaf for leaf in report.phases["decode"].leaves() if leaf.name == "experts on the host"]
    assert leaf.seconds / 299 == pytest.approx(0.0385, rel=0.08)
    assert leaf.bound == "host memory"
    faster = evaluate(scenario("system.node.host_memory_bandwidth=982 GB/s"))
    assert 0.015 < report.tpot_s - faster.tpot_s < 0.021


def test_what_a_faster_host_would_buy():
    found = {one.change: one.time_ratio for one in predict(scenario(), sensitivities=True).what_if}
    assert found["host memory bandwidth x2"] < -0.2
    assert found["host memory bandwidth x2"] < found["memory bandwidth x2"] < 0


def test_leaves_sum_to_the_request():
    report = predict(scenario())
    assert sum(leaf.seconds for leaf in report.breakdown.leaves()) == pytest.approx(report.e2e_s, rel=1e-9)


def test_more_tokens_touch_more_experts():
    times = [evaluate(scenario(batch_size=b)).tpot_s for b in (1, 2, 4, 8)]
    assert times == sorted(times)
    assert times[3] < 8 * times[0], "tokens share experts"


def test_memory_moves_to_the_host():
    report = predict(scenario())
    assert report.feasible
    assert report.memory.by_category["weights"] < 14 * 2**30, "the tutorial: at least 14 GB of VRAM"
    assert 340 * 2**30 < report.memory.host_bytes < 400 * 2**30, "the tutorial: 382 GB of DRAM"
    assert not predict(scenario(experts=0.5)).feasible


def test_part_of_the_experts_stays():
    """Half of them on the CPUs take half of their time; both run at once."""
    system = "dgx-h100"
    model = {"model": "qwen3-30b-a3b", "system": system}
    whole, half, none = (evaluate(scenario(experts=share, **model)).tpot_s for share in (1.0, 0.5, 0.0))
    assert none < half < whole


def test_a_long_prompt_fetches_what_the_cpus_would_run_too_slowly():
    """With slow CPUs experts cross the host link; their time then does not depend on the CPUs any more."""
    slow, slower = (
        evaluate(scenario(f"system.node.host_matrix={rate} TFLOP/s", prompt_tokens=8000)).ttft_s for rate in (10, 5)
    )
    assert slow == pytest.approx(slower)
    never = evaluate(scenario("system.node.host_matrix=5 TFLOP/s", runtime="ktransformers@0.3", prompt_tokens=8000))
    assert never.ttft_s > 2 * slow


def test_accelerators_of_a_job_share_the_cpus_of_their_node():
    """Experts on the host take as long for one accelerator as for four with a quarter each; nobody else is there."""
    times = []
    for tp in (1, 4):
        report = predict(scenario(model="qwen3-30b-a3b", system="dgx-h100", parallelism={"tp": tp}))
        leaves = report.phases["decode"].leaves()
        times += [leaf.seconds for leaf in leaves if leaf.name == "experts on the host"]
    assert times[0] == pytest.approx(times[1], rel=0.1)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"model": "llama-3.1-8b"}, "workload.offload.experts needs experts, and llama-3.1-8b has none"),
        ({"runtime": "vllm"}, "vllm does not. Try runtime: ktransformers"),
        ({"offload": {"experts": 2}}, "workload.offload.experts must be at most 1"),
        ({"offload": {"experts": True, "weights": 0.5}}, "or experts, which the CPUs run, not both"),
        ({"offload": {"experts": True, "to": "nvme"}}, "CPUs run experts from the memory of the host. Try to: host"),
    ],
)
def test_nonsense_is_refused(change, sentence):
    with pytest.raises(InputError, match=sentence):
        scenario(**change)


ALONE = {"model": "deepseek-v3", "system": "rtx-4090-xeon", "workload": WORK}


@pytest.mark.parametrize(
    ("given", "change"),
    [
        ({"runtime": "ktransformers"}, "workload.offload.experts true"),
        ({"runtime": "llama.cpp"}, "workload.offload.experts true"),
        ({}, "runtime ktransformers precision q4-k workload.offload.experts true"),
        (
            {"runtime": "vllm", "precision": "fp8-block"},
            "runtime ktransformers precision q4-k workload.offload.experts true",
        ),
        ({"model": "qwen3-235b-a22b"}, "runtime ktransformers precision bf16 workload.offload.experts true"),
        (
            {"model": "qwen3-235b-a22b", "runtime": "vllm", "precision": "bf16"},
            "runtime ktransformers workload.offload.experts true",
        ),
    ],
)
def test_experts_on_the_host_are_tried_where_the_rest_would_fit(given, change):
    """The fix, as it is written, is a scenario that fits; the precision stays where it can."""
    (violation,) = fit(from_mapping({**ALONE, **given})).violations
    assert change in [fix.change for fix in violation.fixes]
    words = iter(change.split())
    typed = fit(from_mapping({**ALONE, **given}, overrides=[f"{field}={next(words)}" for field in words]))
    assert typed.feasible
    saved = next(fix.saves_bytes for fix in violation.fixes if fix.change == change)
    assert typed.memory.peak_bytes == violation.need - saved


@pytest.mark.parametrize("changed", [{"system": "rtx-4090"}, {"model": "llama-3.1-405b"}])
def test_experts_are_not_sent_where_none_can_run(changed):
    (violation,) = fit(from_mapping({**ALONE, **changed})).violations
    assert not any("offload.experts" in fix.change for fix in violation.fixes)


def layers(share, *overrides, model="llama-3.1-70b", **work):
    given = {**WORK, "prompt_tokens": 512, "output_tokens": 64, "offload": {"weights": share}, **work}
    return from_mapping(
        {"model": model, "system": "rtx-4090", "runtime": "llama.cpp", "precision": "q4-k", "workload": given},
        overrides=overrides,
    )


def test_llama_cpp_runs_the_layers_that_it_leaves_to_the_host():
    """Half of 70B in Q4_K_M is 20.5 GB; two channels of DDR5-5200 stream 67 GB/s, of which products reach 0.85."""
    report = predict(layers(0.5))
    assert report.tpot_s == pytest.approx(20.5e9 / (0.85 * 67e9) + 0.025, rel=0.1)
    (leaf,) = [leaf for leaf in report.phases["decode"].leaves() if leaf.name == "layers on the host"]
    assert leaf.bound == "host memory" and leaf.seconds > 0.9 * report.tpot_s * 63
    assert report.memory.host_bytes > 20e9
    fetched = evaluate(layers(0.5, "runtime.host_experts.layers=0"))
    assert fetched.tpot_s > 1.5 * report.tpot_s  # over PCIe


def test_more_layers_on_the_host_are_slower():
    times = [evaluate(layers(share)).tpot_s for share in (0.5, 0.6, 0.8, 1.0)]
    assert times == sorted(times)


def test_a_long_prompt_is_fetched_and_a_short_one_multiplied_where_it_lies():
    few, most, fetched = (evaluate(layers(0.5, prompt_tokens=n)).ttft_s for n in (1, 31, 32))
    assert most > 2.0 * few  # the CPUs multiply
    assert fetched < most


def test_a_layer_of_experts_on_the_host_reads_those_that_were_chosen():
    dense, sparse = (evaluate(layers(1.0, model=name)).tpot_s for name in ("qwen3-32b", "qwen3-30b-a3b"))
    assert sparse < 0.2 * dense


def test_the_cache_of_layers_on_the_host_is_there():
    here, there = (predict(layers(share, model="llama-3.1-8b", batch_size=8)).memory for share in (0.0, 0.5))
    assert there.by_category["kv_cache"] == pytest.approx(0.5 * here.by_category["kv_cache"], rel=0.01)


def test_a_desktop_runs_experts_with_cpus_that_nothing_is_said_of():
    small = {"model": "qwen3-30b-a3b", "system": "rtx-4090", "runtime": "llama.cpp"}
    report = predict(scenario(**small))
    assert any("CPUs of 67 GB/s and 1.0 TFLOP/s" in one for one in report.assumptions)
    known = evaluate(scenario("system.node.host_matrix=144 TFLOP/s", **small))
    assert report.tpot_s == pytest.approx(known.tpot_s, rel=0.3)
