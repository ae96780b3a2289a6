"""From a scenario to a report: golden figures from papers, the breakdown's sum, infeasible answers, sensitivities."""

import json
from dataclasses import replace

import numpy as np
import pytest

import rapid_llm
from rapid_llm.hardware import system as catalogued
from rapid_llm.nouns import replaced
from rapid_llm.predict import evaluate, evaluate_many, explain, fit, predict
from rapid_llm.scenario import from_mapping

TRAINING = {
    "model": "gpt-175b",
    "system": "selene",
    "runtime": "megatron-core@2021",
    "accelerators": 64,
    "parallelism": {"tp": 8, "pp": 8, "vpp": 3},
    "workload": {"kind": "training", "global_batch_size": 64, "sequence_length": 2048, "recompute": {"mode": "full"}},
}
INFERENCE = {
    "model": "llama-2-70b",
    "system": "dgx-a100",
    "parallelism": {"tp": 8},
    "workload": {"kind": "inference", "batch_size": 4, "prompt_tokens": 512, "output_tokens": 128},
}


def with_plan(mapping, **changes):
    return {**mapping, "parallelism": {**mapping["parallelism"], **changes}}


@pytest.mark.parametrize(
    ("model", "plan", "global_batch", "recompute", "seconds"),
    [  # Korthikanti et al. 2022, table 5: s per iteration, full recompute, and selective with sequence parallelism
        ("gpt-175b", {"tp": 8, "pp": 8, "vpp": 3}, 64, "full", 18.13),
        ("gpt-175b", {"tp": 8, "pp": 8, "vpp": 3}, 64, "selective", 13.75),
        ("gpt-530b", {"tp": 8, "pp": 35, "vpp": 3}, 280, "full", 49.05),
        ("gpt-530b", {"tp": 8, "pp": 35, "vpp": 3}, 280, "selective", 37.83),
        ("gpt-1t", {"tp": 8, "pp": 64}, 512, "full", 94.42),
        ("gpt-1t", {"tp": 8, "pp": 64}, 512, "selective", 71.49),
    ],
)
def test_published_step_times_within_eight_percent(model, plan, global_batch, recompute, seconds):
    mapping = {
        **TRAINING,
        "model": model,
        "runtime": "megatron-core@2022",
        "accelerators": plan["tp"] * plan["pp"],
        "parallelism": {**plan, "sp": recompute == "selective"},
        "workload": {
            "kind": "training",
            "global_batch_size": global_batch,
            "sequence_length": 2048,
            "recompute": {"mode": recompute},
        },
    }
    report = predict(from_mapping(mapping), allow_infeasible=True)
    assert report.step_time_s == pytest.approx(seconds, rel=0.08)


@pytest.mark.parametrize("mapping", [TRAINING, INFERENCE, with_plan(INFERENCE, tp=4, pp=2)])
def test_leaves_of_the_breakdown_sum_to_the_total(mapping):
    report = predict(from_mapping(mapping), allow_infeasible=True)
    total = report.step_time_s or report.e2e_s
    assert sum(leaf.seconds for leaf in report.breakdown.leaves()) == pytest.approx(total, rel=1e-9)
    assert all(leaf.seconds >= 0 for leaf in report.breakdown.leaves())


@pytest.mark.parametrize("mapping", [TRAINING, INFERENCE])
def test_categories_of_memory_sum_to_the_peak(mapping):
    use = predict(from_mapping(mapping), allow_infeasible=True).memory
    assert sum(use.by_category.values()) == use.peak_bytes


def test_inference_times_fit_together():
    report = predict(from_mapping(INFERENCE))
    work = INFERENCE["workload"]
    assert report.e2e_s == pytest.approx(report.ttft_s + report.tpot_s * (work["output_tokens"] - 1))
    assert report.output_tokens_per_s == pytest.approx(work["batch_size"] * work["output_tokens"] / report.e2e_s)


def test_model_flops_follow_narayanan_equation_3():
    # arXiv 2104.04473, eq. 3 over 4/3 (no recompute): 72 B l s h^2 (1 + s/6h + V/12lh) with B sequences
    scenario = from_mapping(TRAINING)
    report = predict(scenario, allow_infeasible=True)
    layers, hidden, vocabulary, length, batch = 96, 12288, 51200, 2048, 64
    flops = 72 * batch * length * layers * hidden**2 * (1 + length / (6 * hidden) + vocabulary / (12 * layers * hidden))
    peak = 312e12 * 64
    assert report.mfu == pytest.approx(flops / report.step_time_s / peak, rel=1e-6)
    assert report.mfu_causal < report.mfu < report.hfu
    assert report.flop_convention.endswith(f"over the dense {scenario.precision.compute} peak")


def test_a_scenario_that_does_not_fit_has_no_times_and_verified_fixes():
    mapping = {**INFERENCE, "system": "dgx-h100", "model": "llama-3.1-70b", "parallelism": {"tp": 1}}
    report = predict(from_mapping(mapping))
    assert not report.feasible
    assert report.e2e_s is None and report.breakdown is None
    (violation,) = report.violations
    assert violation.kind == "memory" and violation.need > violation.have
    assert violation.message.startswith("does not fit: rank 0 needs ")
    assert violation.fixes
    assert predict(from_mapping(mapping), allow_infeasible=True).e2e_s > 0


def test_fit_gives_the_verdict_alone():
    report = fit(from_mapping(INFERENCE))
    assert report.feasible and report.e2e_s is None and report.memory.peak_bytes > 0


def test_many_plans_as_one_table_equal_plans_one_by_one():
    plans = [{"tp": 8, "pp": 8}, {"tp": 8, "pp": 4}, {"tp": 4, "pp": 8, "vpp": 3}, {"tp": 2, "pp": 8}]
    scenarios = [from_mapping({**TRAINING, "parallelism": plan}) for plan in plans]
    together = evaluate_many(scenarios)
    alone = [evaluate(scenario) for scenario in scenarios]
    np.testing.assert_allclose(together.step_time_s, [t.step_time_s[0] for t in alone], rtol=1e-9)
    np.testing.assert_allclose(together.peak_bytes, [t.peak_bytes[0] for t in alone], rtol=1e-9)


@pytest.mark.parametrize("mapping", [TRAINING, INFERENCE])
def test_more_memory_bandwidth_is_never_slower(mapping):
    scenario = from_mapping(mapping)
    faster = from_mapping(mapping, overrides=["system.accelerator.memory.hbm.bandwidth=4TB/s"])
    one, two = (predict(s, allow_infeasible=True) for s in (scenario, faster))
    assert (two.step_time_s or two.e2e_s) < (one.step_time_s or one.e2e_s)


def test_sensitivities_name_what_was_doubled():
    report = predict(from_mapping(INFERENCE), sensitivities=True)
    changes = {w.change: w.time_ratio for w in report.what_if}
    assert changes["memory bandwidth x2"] == min(changes.values()) < 0


@pytest.mark.parametrize(
    "fabric",
    [
        {"topology": "leaf-spine", "oversubscription": 8, "leaf_nodes": 1},
        {"topology": "ring", "link_bandwidth": "5 GB/s"},
        {"topology": "dragonfly", "groups": 2, "routers": 2, "global_bandwidth": "1 GB/s"},
    ],
    ids=lambda fabric: fabric["topology"],
)
def test_links_between_nodes_that_bind_are_worth_doubling(fabric):
    system = {"base": "dgx-h100", "nodes": 8, "fabric": fabric}
    work = {"kind": "training", "global_batch_size": 64, "sequence_length": 512}
    job = {"model": "llama-3.1-8b", "system": system, "accelerators": 64, "workload": work}
    report = predict(from_mapping(job), sensitivities=True, allow_infeasible=True)
    assert {w.change: w.time_ratio for w in report.what_if}["links between nodes x2"] < -0.05


def test_ports_of_chips_that_are_nodes_are_doubled():
    work = {"kind": "training", "global_batch_size": 64, "sequence_length": 512}
    job = {"model": "llama-3.1-8b", "system": "tpu-v5p-pod", "accelerators": 64, "workload": work}
    report = predict(from_mapping(job), sensitivities=True, allow_infeasible=True)
    assert {w.change: w.time_ratio for w in report.what_if}["scale-up bandwidth x2"] < -0.005


@pytest.mark.parametrize("system", ["l40s-pcie-8", "a100-pcie-4-nvlink-pairs", "rtx-4090-2"])
def test_links_to_the_host_that_accelerators_meet_over_are_doubled(system):
    tp = catalogued(system).groups[0].node.accelerators
    work = {"kind": "inference", "batch_size": 16, "prompt_tokens": 2048, "output_tokens": 1}
    job = {"model": "llama-3.1-8b", "system": system, "parallelism": {"tp": tp}, "workload": work}
    report = predict(from_mapping(job), sensitivities=True, allow_infeasible=True)
    changes = {w.change: w.time_ratio for w in report.what_if}
    assert changes["host link bandwidth x2"] == min(changes.values()) < -0.1


def test_a_host_that_binds_is_worth_doubling():
    work = {"kind": "training", "global_batch_size": 64, "sequence_length": 4096}
    job = {"model": "llama-3.1-8b", "system": "gb200-nvl72", "parallelism": {"tp": 4}, "workload": work}
    report = predict(from_mapping(job), sensitivities=True)
    changes = {w.change: w.time_ratio for w in report.what_if}
    assert "host" in report.bound_by
    assert changes["host speed x2"] == min(changes.values()) < -0.2


def _small(model, system, plan):
    work = {"kind": "inference", "batch_size": 1, "prompt_tokens": 1024, "output_tokens": 256}
    job = {"model": model, "system": system, "parallelism": plan, "runtime": "vllm", "workload": work}
    return predict(from_mapping(job))


@pytest.mark.parametrize(
    ("model", "system", "plan"), [("deepseek-r1", "dgx-b200", {"tp": 8}), ("qwen3-0.6b", "h100-sxm", {})]
)
def test_kernels_that_only_launch_are_no_memory_bandwidth(model, system, plan):
    report = _small(model, system, plan)
    phrase = report.bound_by.rpartition("decode by ")[2]
    assert phrase.startswith("launch and latency of small kernels: ")
    assert 0 < float(phrase.partition(": ")[2].split(" %")[0]) <= 100


def test_a_part_has_one_bound():
    decode = _small("qwen3-0.6b", "h100-sxm", {}).phases["decode"]
    kernels = [leaf.name for group in decode.children if "kernels" in group.name for leaf in group.children]
    assert len(kernels) == len(set(kernels)) > 0


def test_the_report_is_plain_json_with_the_stable_keys():
    data = json.loads(json.dumps(predict(from_mapping(TRAINING), allow_infeasible=True).to_dict()))
    stable = {
        "feasible", "violations", "step_time_s", "tokens_per_s", "tokens_per_s_per_accelerator", "mfu", "mfu_causal",
        "hfu", "memory", "breakdown", "confidence", "interval", "scenario", "version", "hash",
    }  # fmt: skip
    assert stable <= data.keys()
    assert {"persistent_bytes", "allocated_bytes", "peak_bytes", "capacity_bytes", "by_category", "rank"} <= data[
        "memory"
    ].keys()
    assert {"name", "seconds", "hidden_seconds", "children"} <= data["breakdown"].keys()


def test_the_resolved_scenario_predicts_the_same():
    report = predict(from_mapping(INFERENCE))
    again = predict(from_mapping(dict(report.scenario)))
    assert again.e2e_s == report.e2e_s


def test_every_kernel_is_explained_and_the_lines_cover_the_busy_time():
    scenario = from_mapping(INFERENCE)
    lines = explain(scenario)
    names = {line.name for line in lines}
    assert {"qkv", "attention", "up", "down", "out", "lm_head"} <= names
    busy = sum(line.total_seconds for line in lines)
    report = predict(scenario)
    host = sum(leaf.seconds for leaf in report.breakdown.leaves() if leaf.bound == "host")
    assert busy == pytest.approx(report.e2e_s - host, rel=1e-6)


def test_the_python_functions_take_the_flags_as_keywords():
    report = rapid_llm.infer("llama-2-70b", system="dgx-a100", tp=8, batch_size=4, prompt_tokens=512, output_tokens=128)
    assert report.e2e_s == predict(from_mapping(INFERENCE)).e2e_s
    step = rapid_llm.train(
        "llama-3.1-8b", system="dgx-h100", accelerators=8, tp=2, global_batch_size=64, sequence_length=4096
    )
    assert step.step_time_s > 0
    assert rapid_llm.predict(from_mapping(INFERENCE)).e2e_s == report.e2e_s


def test_a_report_draws_itself():
    report = predict(from_mapping(INFERENCE))
    assert "<svg" in report._repr_html_()
    assert "decode" in " ".join(report.to_pandas()["path"])


def test_twice_the_nodes_of_a_data_parallel_job_halve_the_step_less_its_messages():
    small = predict(from_mapping({**TRAINING, "parallelism": {"tp": 8, "pp": 8}}), allow_infeasible=True)
    large = predict(
        from_mapping({**TRAINING, "accelerators": 128, "parallelism": {"tp": 8, "pp": 8}}), allow_infeasible=True
    )
    assert small.step_time_s / 2 < large.step_time_s < small.step_time_s


def test_a_faster_host_only_shortens_host_time():
    scenario = from_mapping({**TRAINING, "model": "gpt-1.7b", "parallelism": {"tp": 8}, "accelerators": 8})
    group = catalogued("selene").groups[0]
    quick = replaced(group, node=replaced(group.node, host_speed=2.0))
    faster = replaced(scenario, system=replaced(scenario.system, groups=(quick,)))
    slow, fast = predict(scenario), predict(faster)
    host = [sum(c.seconds for c in r.breakdown.children if c.name == "host") for r in (slow, fast)]
    assert fast.step_time_s < slow.step_time_s
    assert slow.step_time_s - fast.step_time_s == pytest.approx(host[0] - host[1])


def test_replacing_a_report_field_keeps_its_scenario():
    report = predict(from_mapping(INFERENCE))
    assert replace(report, where=None).hash == report.hash


@pytest.mark.parametrize(
    ("accelerator", "runtime", "closest"),
    [
        ("tpu-v5e", "vllm", "precision int8-wo"),  # no 8-bit floats
        ("rtx-4080", "vllm", "precision fp8"),
    ],
)
def test_the_format_that_is_closest_in_precision_is_offered_first(accelerator, runtime, closest):
    work = {"kind": "inference", "batch_size": 1, "prompt_tokens": 512, "output_tokens": 64}
    report = predict(
        from_mapping({"model": "llama-3.1-8b", "system": accelerator, "runtime": runtime, "workload": work})
    )
    assert not report.feasible
    changes = [fix.change for violation in report.violations for fix in violation.fixes]
    assert [change for change in changes if change.startswith("precision ")] == [closest]
