import pytest

from rapid_llm.validation.suites import inference, memory, training
from rapid_llm.validation.tables import Table


def table(schema, path, *rows):
    return Table(schema, path, rows)


GPT_175B = {
    "id": "k3",
    "source": "korthikanti2022",
    "gpu": "A100-SXM4-80GB",
    "n_gpus": "64",
    "gpus_per_node": "8",
    "interconnect": "NVLink3+NVSwitch; 8x200Gb/s HDR IB per node (Selene)",
    "framework": "Megatron-LM",
    "model": "GPT-175B",
    "hidden": "12288",
    "layers": "96",
    "heads": "96",
    "kv_heads": "96",
    "ffn_hidden": "49152.0",
    "vocab": "51200",
    "seq_len": "2048",
    "gated_mlp": "0",
    "global_batch": "64",
    "micro_batch": "1.0",
    "tp": "8",
    "sp": "1.0",
    "pp": "8",
    "vpp": "3.0",
    "cp": "1",
    "zero_stage": "0",
    "recompute": "selective",
    "precision": "fp16",
    "metric": "step_time_s",
    "value": "13.75",
    "case_group": "korthikanti-175B",
}
LLAMA_70B = {
    "id": "i1",
    "source": "rapid_llm_nim",
    "gpu": "NVIDIA A100 SXM4 80GB",
    "gpu_key": "A100_80GB",
    "n_gpus": "8",
    "engine": "vLLM",
    "model": "Llama-2-70B",
    "dtype_weights": "bf16",
    "tp": "8.0",
    "pp": "1",
    "dp": "1.0",
    "batch_or_concurrency": "1",
    "arrival": "concurrency 1",
    "input_len": "1000.0",
    "output_len": "1000.0",
    "metric": "output_tok_s",
    "value": "50.0",
    "completeness": "A",
    "case_key": "x",
}


def test_a_training_row_becomes_a_scenario(tmp_path):
    (case,) = training.cases(table("training", tmp_path, GPT_175B))
    assert (case.group, case.key, case.split, case.measured) == ("korthikanti2022", "korthikanti-175B", "unseen", 13.75)
    assert case.scenario is not None, case.reason
    assert case.scenario["model"] == {
        "model_type": "gpt2",
        "n_embd": 12288,
        "n_layer": 96,
        "n_head": 96,
        "n_inner": 49152,
        "n_positions": 2048,
        "vocab_size": 51200,
    }
    assert case.scenario["runtime"] == "megatron-core@2022"
    assert case.scenario["accelerators"] == 64
    assert case.scenario["precision"] == "fp16-mixed"
    assert case.scenario["parallelism"] == {
        "tp": 8,
        "pp": 8,
        "vpp": 3,
        "schedule": "interleaved",
        "sp": True,
        "zero_stage": 0,
    }
    assert case.scenario["workload"] == {
        "kind": "training",
        "global_batch_size": 64,
        "micro_batch_size": 1,
        "sequence_length": 2048,
        "recompute": "selective",
    }


def reason(row, tmp_path):
    (case,) = training.cases(table("training", tmp_path, row))
    assert case.scenario is None
    return case.reason


def test_what_cannot_be_a_case_says_why(tmp_path):
    assert reason(GPT_175B | {"gpu": "Abacus 3000"}, tmp_path) == "no accelerator 'Abacus 3000' in the catalogue"
    assert reason(GPT_175B | {"micro_batch": ""}, tmp_path) == "the micro-batch size is not stated"
    assert reason(GPT_175B | {"zero_stage": "sharded somehow"}, tmp_path) == "no sharding 'sharded somehow'"
    assert reason(GPT_175B | {"metric": "joy"}, tmp_path) == "metric joy is not of a step"
    assert reason(GPT_175B | {"precision": "int3"}, tmp_path) == "no precision 'int3'"
    assert reason(GPT_175B | {"hidden": ""}, tmp_path) == "the shape of the model is not stated"
    unknown = GPT_175B | {"source": "someone2031", "framework": "Abacist"}
    assert reason(unknown, tmp_path) == "no rule for the software 'Abacist'"


def test_vtrain_is_split_by_model():
    row = GPT_175B | {"source": "vtrain-single", "hidden": "1024", "layers": "24", "case_group": "vtrain-single"}
    assert training.split_key(row) == "vtrain-single/h1024-l24"


def test_one_closed_loop_user_also_gives_its_end_to_end_time(tmp_path):
    rate, whole = inference.cases(table("inference", tmp_path, LLAMA_70B))
    assert (rate.metric, rate.measured) == ("throughput", 50.0)
    assert (whole.metric, whole.measured, whole.id) == ("e2e", 20.0, "i1-e2e")
    assert rate.group == "rapid_llm_nim/a100-sxm"


def test_several_users_are_a_question_of_serving(tmp_path):
    row = LLAMA_70B | {"arrival": "concurrency 25", "batch_or_concurrency": "25", "metric": "ttft_ms"}
    (case,) = inference.cases(table("inference", tmp_path, row))
    assert case.scenario is None
    assert case.reason == "several closed-loop users: a question of serving"


def test_milliseconds_and_rates_per_accelerator(tmp_path):
    per_gpu = LLAMA_70B | {"metric": "tok_s_gpu", "value": "100", "arrival": "offline static batch"}
    first = LLAMA_70B | {"metric": "ttft_ms", "value": "131.21", "id": "i2"}
    prefill = LLAMA_70B | {"metric": "prefill_tok_s", "value": "2000", "id": "i3"}
    found = list(inference.cases(table("inference", tmp_path, per_gpu, first, prefill)))
    assert [(c.metric, c.quantity, pytest.approx(c.measured)) for c in found] == [
        ("throughput", "output_rate", 800.0),
        ("ttft", "ttft", 0.13121),
        ("ttft", "ttft", 0.5),
    ]


def test_memory_rows_give_a_verdict_and_a_peak(tmp_path):
    row = GPT_175B | {"outcome": "ok", "mem_gb": "40", "mem_unit": "GiB", "mem_kind": "max_memory_allocated"}
    verdict, peak = memory.cases(table("memory", tmp_path, row))
    assert (verdict.metric, verdict.quantity, verdict.measured) == ("verdict", "out_of_memory", 0.0)
    assert (peak.metric, peak.quantity, peak.measured) == ("peak", "allocated", 40 * 2.0**30)
    (out,) = memory.cases(table("memory", tmp_path, row | {"outcome": "OOM"}))
    assert (out.metric, out.measured) == ("verdict", 1.0)


NANOTRON = {
    "id": "hf-1",
    "gpu": "H100-SXM5-80GB",
    "n_gpus": "64",
    "gpus_per_node": "8",
    "framework": "nanotron",
    "model_label": "8.86G",
    "hidden": "4096",
    "layers": "32",
    "heads": "32",
    "kv_heads": "32",
    "ffn_hidden": "14336",
    "vocab": "131072",
    "seq_len": "4096",
    "gated_mlp": "1",
    "global_batch_seqs": "256",
    "micro_batch": "2",
    "tp": "4",
    "sp": "1",
    "pp": "1",
    "zero_stage": "1",
    "precision": "bf16",
    "outcome": "ok",
    "qa_flags": "",
    "tokens_per_s_per_gpu": "8000",
    "mem_alloc_gb": "20",
    "mem_reserved_gb": "40",
    "ar_busbw_gbs": "100",
}


def test_the_sweep_has_a_second_group_that_knows_its_fabric(tmp_path):
    plain, own = training.cases(table("nanotron", tmp_path, NANOTRON))
    assert plain.headline
    assert not own.headline
    assert plain.measured == pytest.approx(256 * 4096 / (8000 * 64))
    assert plain.key == own.key == "nanotron/8.86G-64"
    assert plain.scenario is not None, plain.reason
    assert own.scenario is not None, own.reason
    assert plain.scenario["system"] == own.scenario["system"]["base"] == "p5"
    assert own.scenario["system"]["fabric"]["leaf_nodes"] == 1  # groups of one node do not span the job
    assert own.scenario["system"]["fabric"]["oversubscription"] > 1.5  # 32 cards reach far more than 100 GB/s
    assert {k: v for k, v in own.scenario.items() if k != "system"} == {
        k: v for k, v in plain.scenario.items() if k != "system"
    }


def test_only_groups_that_span_a_job_of_the_sweep_feel_its_probe(tmp_path):
    across = NANOTRON | {"tp": "16", "ar_busbw_gbs": "100"}
    _, own = training.cases(table("nanotron", tmp_path, across))
    assert own.scenario["system"]["fabric"]["leaf_nodes"] == 2
    whole = NANOTRON | {"tp": "16", "n_gpus": "16"}
    _, own = training.cases(table("nanotron", tmp_path, whole))
    assert own.scenario["system"]["fabric"]["leaf_nodes"] == 1
    _, healthy = training.cases(table("nanotron", tmp_path, NANOTRON | {"ar_busbw_gbs": "400"}))
    assert healthy.scenario["system"]["fabric"]["oversubscription"] == 1.0


def test_runs_of_the_sweep_on_what_was_not_well_are_shown_beside_it(tmp_path):
    """Nodes of a slow fabric, and a pipeline before its fix, say nothing of a description: no target, never quoted."""
    flag = "very low throughput (<5 TFLOP/s): likely sick"
    groups = {
        training.SICK_FABRIC: [{"ar_busbw_gbs": "59"}, {"qa_flags": flag}],
        training.BEFORE_FIX: [{"qa_flags": "pp>1 before PP fix"}],
        training.NANOTRON: [{"ar_busbw_gbs": "59", "n_gpus": "8"}, {"ar_busbw_gbs": "61"}],
    }
    for group, found in groups.items():
        for changed in found:
            case, *_ = training.cases(table("nanotron", tmp_path, NANOTRON | changed))
            well = group == training.NANOTRON
            assert (case.group, case.headline, case.quoted) == (group, well, well)
            assert case.scenario is not None, case.reason


def test_jobs_of_the_sweep_that_compared_their_collectives(tmp_path):
    # What their probe says is their hosts' own: the second group knows no more than the first.
    plain, own = training.cases(table("nanotron", tmp_path, NANOTRON | {"after_pp_fix": "True"}))
    assert plain.scenario["runtime"] == own.scenario["runtime"] == "nanotron@checked"
    assert plain.scenario["system"] == own.scenario["system"] == "p5"


def test_runs_of_the_sweep_that_failed(tmp_path):
    found = [
        case.reason
        for outcome in ("OOM", "failed (non-OOM: crash/timeout/cancel; exclude)")
        for case in training.cases(table("nanotron", tmp_path, NANOTRON | {"outcome": outcome}))
    ]
    assert found == ["ran out of memory"] * 2 + ["failed for another reason"] * 2
    verdict, *banded = memory.cases(table("nanotron", tmp_path, NANOTRON | {"outcome": "OOM"}))
    assert (verdict.metric, verdict.measured) == ("verdict", 1.0)
    assert [case.group for case in banded] == ["nanotron, pp 1", "nanotron, tp 2 to 8"]
    assert not any(case.headline for case in banded)
    found = memory.cases(table("nanotron", tmp_path, NANOTRON))
    assert [(c.metric, c.quantity) for c in found if c.headline] == [
        ("verdict", "out_of_memory"),
        ("peak", "first_reserved"),
        ("persistent", "first_persistent"),
    ]


@pytest.mark.parametrize(
    ("framework", "name"),
    [
        ("NVIDIA NeMo Framework 25.04", "megatron-core@nemo"),
        ("LLM Foundry", "composer"),
        ("GPT-NeoX (Megatron + DeepSpeed)", "megatron-core@deepspeed"),
        ("Optimum Habana", "deepspeed"),
        ("AMD Primus (Megatron backend)", "megatron-core"),
    ],
)
def test_frameworks_without_a_rule_are_those_of_the_catalogue(tmp_path, framework, name):
    row = {**GPT_175B, "source": "somebody", "framework": framework, "recompute": ""}
    (case,) = training.cases(table("training", tmp_path, row))
    assert case.scenario is not None, case.reason
    assert case.scenario["runtime"] == name


def test_recompute_that_an_unknown_source_does_not_state_is_left_to_the_framework(tmp_path):
    row = {**GPT_175B, "source": "somebody", "framework": "LLM Foundry", "recompute": ""}
    (case,) = training.cases(table("training", tmp_path, row))
    assert "recompute" not in case.scenario["workload"]
