"""The terminal answer: complete, short, narrow, every number with its unit."""

import dataclasses
import re

import pytest

from rapid_llm.cli import words
from rapid_llm.cli.answer import WHOLE, answer, title
from rapid_llm.cli.door import run
from rapid_llm.cli.page import page
from rapid_llm.predict.report import Cost

from . import reports

ALL = [reports.training, reports.inference, reports.infeasible]


@pytest.mark.parametrize("make", ALL)
def test_at_most_30_lines_of_100_columns(make):
    lines = answer(make())
    assert len(lines) <= 30
    assert max(map(len, lines)) <= 100


@pytest.mark.parametrize("make", ALL)
@pytest.mark.parametrize("width", [60, 80])
def test_fits_a_narrow_terminal(make, width):
    lines = answer(make(), width=width)
    assert max(map(len, lines)) <= width
    assert len(lines) <= (30 if width == 80 else 40)
    assert not any(line.endswith((" 62.0", " 79.0", " 11.0")) for line in lines)  # a number stays with its unit


def test_leaves_are_named_in_words():
    assert words.cost(("decode", "memory-bound kernels", "up")) == "decode / MLP up projection"
    assert words.cost(("prefill", "exposed communication", "tp")) == "prefill / tp communication"
    assert words.cost(("pipeline bubble",)) == "pipeline bubble"
    assert words.kernel("mlp n2 gather grad") == "MLP input gather, gradient"
    assert words.kernel("dropout+residual") == "dropout and residual"
    assert words.kernel("up_lora_add grad") == "MLP up projection, LoRA sum, gradient"


def test_warnings_of_checks_are_notes():
    long = reports.from_mapping({**reports.SCENARIO, **reports.BATCH, "workload": {
        "kind": "inference", "batch_size": 8, "prompt_tokens": 200_000, "output_tokens": 5}})  # fmt: skip
    text = " ".join("\n".join(answer(dataclasses.replace(reports.inference(), origin=long))).split())
    assert "note prompt_tokens + output_tokens = 200005 is beyond max_position_embeddings 131072" in text


def test_stays_short_when_everything_is_long():
    many = tuple(
        Cost(f"a very long name of a cost that nobody shortened {i}", 1.0, 1.0, bound="network") for i in range(40)
    )
    long = "a sentence that goes on about what was assumed " * 20
    report = dataclasses.replace(
        reports.training(),
        where=reports.where(Cost("step", 40.0, children=many), long),
        assumptions=(long,),
        defaults=(long,),
    )
    lines = answer(report)
    assert len(lines) <= 30
    assert max(map(len, lines)) <= 100


def test_training_says_all_that_a_first_look_needs():
    text = "\n".join(answer(reports.training()))
    for part in (
        "llama-3.1-70b training · 64 accelerators of dgx-h100 · megatron-core@2021 · tp 8 pp 2 dp 4",
        "fits         yes: 62.0 GiB of 79.0 GiB on the fullest rank (rank 0, stage 0), 17.0 GiB free",
        "step time    11.0 s   (90 % of validated cases: 10.1 s to 11.9 s)",
        "throughput   381,300 tokens/s, 5,958 tokens/s per accelerator",
        "MFU          43.0 % (causal 40.5 %, HFU 45.1 %): matrix multiplications and LM head",
        "no recompute, over the dense fp8 peak",
        "bound by     compute",
        "optimizer 12.0",
        "free 17.0 GiB",
        "gemm  ",
        "what if      scale-up bandwidth x2: -4.0 % time   network cards x2: -0.1 % time",
        "assumed      every rank starts the step together",
        "defaults     sp true, zero_stage 1, recompute none",
        "error median 3.4 %",
        f"reproduce    rapid-llm 0.1.0, scenario {reports.training().hash[:12]}",
    ):
        assert part in text


def test_an_interval_wider_than_measured_says_so():
    report = reports.training()
    wide = dataclasses.replace(report.confidence, within=2.0 * report.confidence.p90)
    text = "\n".join(answer(dataclasses.replace(report, confidence=wide)))
    assert "(wider than validated cases: 10.1 s to 11.9 s)" in text


def test_inference_names_its_times():
    text = "\n".join(answer(reports.inference()))
    assert "TTFT         200 ms     arrival to first token" in text
    assert "TPOT         15.7 ms    per output token after the first: 63.7 tokens/s per user" in text
    assert "throughput   1,950 output tokens/s, 30.5 tokens/s per accelerator, 9,750 tokens/s with the prompt" in text


def test_infeasible_says_no_with_fixes_and_no_time():
    text = "\n".join(answer(reports.infeasible()))
    assert "fits         NO: 141 GiB of 79.1 GiB on the fullest rank (rank 0, stage 0), 61.9 GiB missing" in text
    assert "  try        tp 2: saves 66.0 GiB" in text
    assert "MISSING 62.0 GiB" in text
    assert "E2E" not in text


def test_memory_bar_is_as_long_as_its_share():
    bar = next(line for line in answer(reports.training()) if line.startswith("memory"))
    inside = bar[bar.index("[") + 1 : bar.index("]")]
    assert len(inside) == 60
    assert len(inside.rstrip()) == round(62 / 79 * 60)


def test_page_is_self_contained():
    html = page(reports.training())
    assert html.startswith("<!doctype html>")
    assert "src=" not in html
    assert "href=" not in html
    assert "communication" in html


def test_a_note_that_has_no_room_is_left_out_whole():
    cost = Cost("decode", 4.67, children=(Cost("offload", 4.67, 4.67, bound="host link"),))
    report = dataclasses.replace(reports.inference(), where=reports.where(Cost("request", 4.67, children=(cost,))))
    for width in range(70, 101):
        line = next(line for line in answer(report, width=width) if line.startswith("  decode"))
        assert len(line) <= width
        assert line.endswith(("%", "bound by host link", "4.67 s hidden"))


def test_a_job_says_what_runs_at_once_and_in_how_many_waves(capsys):
    sizes = ["--prompt-tokens", "1024", "--output-tokens", "256", "--batching", "continuous"]
    job = ["infer", "llama-3.1-8b", "--accelerator", "h100-sxm", *sizes, "--price-per-hour", "2.5"]
    assert run([*job, "--batch-size", "300", "--total-requests", "1000"]) == 0
    out = capsys.readouterr().out
    assert "\nin flight    300 requests at once, 1,000 requests in 4 waves\n" in out
    assert "mean from arrival to first token, all waiting at the start" in out
    assert re.search(r"\b0\.0\d+\sfor all tokens", out) and " 0 kWh" not in out
    assert run([*job, "--batch-size", "8"]) == 0
    assert "\nin flight    8 requests at once\n" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("formats", "said"),
    [("nvfp4", " · nvfp4 · KV cache fp8"), ("bf16", " · bf16\n"), ("fp8-block", " · fp8-block\n"),
     ({"base": "bf16", "kv_cache": "fp8"}, " · KV cache fp8")],
)  # fmt: skip
def test_a_cache_of_other_than_16_bits_is_named(formats, said):
    asked = reports.from_mapping({
        "model": "llama-3.1-8b", "system": "b200-sxm", "precision": formats,
        "workload": {"kind": "inference", "batch_size": 8, "prompt_tokens": 512, "output_tokens": 32}})  # fmt: skip
    assert said in " ".join(title(asked.to_mapping(), 100)) + "\n"


def test_long_notes_are_folded_before_the_largest_costs_and_full_gives_all_back(monkeypatch):
    notes = [
        f"note {i} says what a reader may know beside the numbers, in two lines of the answer or so" for i in range(12)
    ]
    monkeypatch.setattr("rapid_llm.cli.answer.found_notes", lambda _: notes)
    costs = tuple(Cost(f"part {i}", 9.0 - i, bound="memory") for i in range(7))
    whole = Cost("request", sum(cost.seconds for cost in costs), children=costs)
    report = dataclasses.replace(reports.inference(), where=reports.where(whole))
    short = answer(report)
    assert len(short) <= 30
    assert sum(line.startswith("  part ") for line in short) == 3
    told = sum(line.startswith("note ") for line in short)
    made = f"reproduce    rapid-llm 0.1.0, scenario {report.hash[:12]}"
    assert short[-1] == f"{made}; --full also prints {12 - told} notes and 2 costs"
    full = answer(report, shown=WHOLE)
    assert full[-1] == made
    assert sum(line.startswith("note ") for line in full) == 12
    assert sum(line.startswith("  part ") for line in full) == 7
    assert not any(line.endswith("…") for line in full)


def test_full_is_a_flag_of_answers(capsys):
    job = ["infer", "deepseek-v3", "--system", "dgx-h200", "--tp", "8", "--batch-size", "64"]
    job += ["--prompt-tokens", "4000", "--output-tokens", "1000"]
    assert run(job) == 0
    short = capsys.readouterr().out.splitlines()
    assert len(short) <= 30
    assert short[-1].endswith("; --full also prints 2 costs")
    assert run([*job, "--full"]) == 0
    assert len(capsys.readouterr().out.splitlines()) > 60
    assert run(["fit", *job, "--full"]) == 0
