"""Python's door: flags as keywords, and the memory of a report as a table."""

import pytest

import rapid_llm
from rapid_llm.errors import InputError
from rapid_llm.hardware import accelerator

BATCH = {"batch_size": 8, "prompt_tokens": 512, "output_tokens": 128}
STEP = {"global_batch_size": 16, "sequence_length": 4096}


def test_fit_takes_the_flags_of_either_job() -> None:
    batch = rapid_llm.fit("llama-3.1-8b", accelerator="h100-sxm", tp=2, **BATCH)
    step = rapid_llm.fit("llama-3.1-8b", accelerator="h100-sxm", tp=2, pp=4, **STEP)
    assert (batch.kind, step.kind) == ("inference", "training")
    assert step.scenario["system"]["name"] == "h100-sxm"
    assert step.scenario["accelerators"] == 8
    assert rapid_llm.fit(step.origin).hash == step.hash


def test_an_accelerator_is_a_system() -> None:
    by_name = rapid_llm.infer("llama-3.1-8b", accelerator="h100-sxm", **BATCH)
    assert by_name.e2e_s == rapid_llm.infer("llama-3.1-8b", system="h100-sxm", tp=None, **BATCH).e2e_s
    assert by_name.e2e_s == rapid_llm.infer("llama-3.1-8b", accelerator=accelerator("h100-sxm"), **BATCH).e2e_s
    assert rapid_llm.fit("gpt2", accelerator=accelerator("h100-sxm"), **STEP).feasible
    assert rapid_llm.train("gpt2", accelerator="h100-sxm", **STEP).step_time_s


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        (
            {},
            "the job must be of training, such as global_batch_size=512, sequence_length=8192, or of inference, such "
            "as batch_size=32, prompt_tokens=1024, output_tokens=256 (got neither).",
        ),
        (BATCH, "the field 'system' is missing. Try system: dgx-h100. See: rapid-llm list systems"),
        ({"accelerator": "dgx-h100", **BATCH}, "accelerator 'dgx-h100' is a system. Try system: dgx-h100."),
        (
            {"accelerator": "h100-sxm", "system": "dgx-h100", **BATCH},
            "system dgx-h100 and accelerator h100-sxm both name the hardware. Keep one of them.",
        ),
        (
            {"accelerator": "h100-sxm", "kind": "training", **STEP, "tpp": 2},
            "unknown field 'workload.tpp'. Known: kind, global_batch_size, micro_batch_size, sequence_length, "
            "recompute, documents, tokens, lora, mtp_layers, routing, offload, decoder_sequence_length, predictions.",
        ),
    ],
)
def test_sentences(flags: dict[str, object], sentence: str) -> None:
    with pytest.raises(InputError) as caught:
        rapid_llm.fit("llama-3.1-8b", **flags)
    assert caught.value.message == sentence


JOB = {"accelerator": "h100-sxm", "prompt_tokens": 512, "output_tokens": 128}


def test_a_latency_objective_gives_its_report() -> None:
    report = rapid_llm.infer("llama-3.1-8b", slo="ttft=1s,tpot=30ms", **JOB)
    assert report.objective is not None and report.objective.met
    requests = report.objective.requests_in_flight
    assert rapid_llm.infer("llama-3.1-8b", batch_size=requests, batching="continuous", **JOB).hash == report.hash
    with pytest.raises(
        rapid_llm.InfeasibleError, match=r"^no plan of h100-sxm keeps TPOT 1\.00 µs for even one user\. Try "
    ):
        rapid_llm.infer("llama-3.1-8b", slo="tpot=1us", users=4, **JOB)


@pytest.mark.parametrize("keyword", ["out", "json", "set", "allow_infeasible"])
def test_flags_of_output_are_no_keywords(keyword: str) -> None:
    with pytest.raises(InputError, match=rf"^{keyword} is a flag of the command line alone: in Python "):
        rapid_llm.infer("llama-3.1-8b", **JOB, batch_size=1, **{keyword: True})


def test_the_table_of_a_report_without_times_is_its_memory() -> None:
    pytest.importorskip("pandas")
    report = rapid_llm.fit("llama-3.1-8b", accelerator="h100-sxm", pp=2, **STEP)
    table = report.to_pandas()
    assert list(table.columns) == ["stage", "category", "bytes"]
    for stage, found in enumerate(report.memory.stages):
        assert table[table.stage == stage]["bytes"].sum() == pytest.approx(found.peak_bytes, abs=8)


def test_an_fp8_cache_is_widened_where_the_matrix_units_lack_fp8() -> None:
    flags = {"accelerator": "a100-sxm", "batch_size": 64, "prompt_tokens": 4096, "output_tokens": 64}
    wide = rapid_llm.infer("llama-3.1-8b", **flags)
    narrow = rapid_llm.infer("llama-3.1-8b", precision={"kv_cache": "fp8"}, **flags)
    assert narrow.memory.by_category["kv_cache"] == wide.memory.by_category["kv_cache"] // 2
    assert narrow.ttft_s == pytest.approx(wide.ttft_s, rel=0.05)
