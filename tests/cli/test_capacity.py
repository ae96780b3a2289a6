"""``infer --slo``, ``fit --max`` and the pages of a step, through the command line."""

import json

import pytest

from rapid_llm.cli.door import run

JOB = ["llama-3.1-8b", "--system", "dgx-h100", "--prompt-tokens", "512", "--output-tokens", "128"]


def test_the_most_requests_within_a_latency(capsys):
    assert run(["infer", *JOB, "--tp", "1", "--slo", "ttft=1s,tpot=30ms", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["feasible"] and found["requests_in_flight"] > 1
    assert found["ttft_s"] <= 1.0 and found["tpot_s"] <= 0.03
    assert run(["infer", *JOB, "--tp", "1", "--slo", "tpot=15ms", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["requests_in_flight"] < found["requests_in_flight"]


def test_the_fewest_accelerators_for_some_users(capsys):
    assert run(["infer", *JOB, "--slo", "tpot=30ms", "--users", "64"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("objective    TPOT 30.0 ms for 64 users: ") and "requests in flight, " in out


@pytest.mark.parametrize(
    "more",
    [
        ["--tp", "1", "--price-per-hour", "2.5"],
        ["--users", "64", "--price-per-hour", "2.5"],
        ["--prefill", "tp=1", "--decode", "tp=2", "--users", "256", "--price-per-hour", "2.5"],
        [
            "--prefill",
            "tp=1,accelerators=2",
            "--decode",
            "tp=2,accelerators=2",
            "--users",
            "256",
            "--price-per-hour",
            "2",
        ],
    ],
)
def test_the_answer_within_an_objective_is_whole_and_comes_out_again_with_its_flags(more, capsys, tmp_path):
    slo = ["--slo", "ttft=1s,tpot=30ms"]
    assert run(["infer", *JOB, *more, *slo, "--out", str(tmp_path / "slo")]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) <= 30 and max(map(len, lines)) <= 100
    for label in ("fits", "TTFT", "memory", "energy", "price", "trust", "reproduce", "same with"):
        assert any(line.startswith(label) for line in lines), label
    assert (tmp_path / "slo" / "report.json").exists()
    assert "<title>llama-3.1-8b inference" in (tmp_path / "slo" / "report.html").read_text("utf-8")
    assert run(["infer", *JOB, *more, *slo, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    kept = [flag for flag in more if flag not in ("--users", "64", "256")]
    plain = ["infer", *JOB, *(kept[2:] if "--tp" in kept else kept), *found["flags"].split()]
    assert run([*plain, *(kept[:2] if "--tp" in kept else ()), "--json"]) == 0
    again = json.loads(capsys.readouterr().out)
    assert again["hash"] == found["report"]["hash"]
    assert again["tpot_s"] == found["tpot_s"] == found["report"]["tpot_s"]
    assert found["report"]["objective"]["requests_in_flight"] == found["requests_in_flight"]


def test_an_objective_that_nothing_keeps(capsys):
    assert run(["infer", *JOB, "--tp", "1", "--slo", "tpot=1us"]) == 3
    out = capsys.readouterr().out
    assert "NO, not one request in flight" in out
    assert "same with" not in out


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        (
            ["--slo", "tpt=1s"],
            "--slo tpt=1s: 'tpt=1s' is not a limit, such as ttft=1s or tpot=30ms. Did you mean 'tpot'?",
        ),
        (["--slo", "ttft"], "--slo ttft: 'ttft' is not a limit, such as ttft=1s or tpot=30ms."),
        (["--slo", "ttft=1"], "--slo: ttft needs a unit (got 1). Try ttft=1s or ttft=1ms."),
        (
            ["--slo", "ttft=1s", "--batch-size", "8"],
            "--slo finds the batch (got --batch-size 8). Leave one of them out.",
        ),
        (
            ["--slo", "ttft=1s", "--total-requests", "8"],
            "--slo asks of requests that never end (got --total-requests 8). Leave one of them out.",
        ),
        (["--users", "8"], "--users needs --slo, such as --slo ttft=1s,tpot=30ms."),
        (["--slo", "ttft=1s", "--users", "0"], "--users must be a whole number of at least 1 (got 0). Try --users 16."),
        (["--slo", "ttft=-1s"], "--slo: ttft must be above 0 (got -1s). Try ttft=1s,tpot=30ms."),
    ],
)
def test_objectives_that_cannot_be_read(flags, sentence, capsys):
    assert run(["infer", *JOB, *flags]) == 2
    assert capsys.readouterr().err.strip() == sentence


def test_the_largest_that_fits(capsys):
    job = ["llama-3.1-8b", "--accelerator", "h100-sxm", "--batch-size", "64"]
    lengths = ["--prompt-tokens", "1024", "--output-tokens", "256"]
    assert run(["fit", "infer", *job, *lengths, "--max", "requests", "--json"]) == 0
    most = json.loads(capsys.readouterr().out)["largest"]["requests"]
    for requests, code in ((most, 0), (most + 1, 3)):
        job[-1] = str(requests)
        assert run(["fit", "infer", *job, *lengths, "--json"]) == code


def test_pages_of_a_step(tmp_path):
    job = ["llama-3.1-8b", "--system", "dgx-h100", "--accelerators", "8", "--pp", "2", "--tp", "2"]
    sizes = ["--global-batch-size", "16", "--sequence-length", "2048"]
    pages = ["--timeline", str(tmp_path / "t.html"), "--memory-timeline", str(tmp_path / "m.html")]
    assert run(["train", *job, *sizes, *pages]) == 0
    for name in ("t.html", "m.html"):
        assert "<svg" in (tmp_path / name).read_text("utf-8")


def test_a_chip_is_enough_to_ask_about_memory(capsys):
    sizes = ["--global-batch-size", "512", "--sequence-length", "8192"]
    plan = ["--tp", "8", "--pp", "4", "--accelerators", "64"]
    assert run(["fit", "train", "llama-3.1-70b", "--accelerator", "h100-sxm", *plan, *sizes]) == 0
    assert capsys.readouterr().out.startswith("llama-3.1-70b training · 64 accelerators of h100-sxm · ")


def test_the_room_of_a_cache_is_shown_term_by_term(capsys):
    # LLMServingSim's recorded vLLM run on an RTX 4090: 2,588 blocks of 16 tokens
    flags = ["--batch-size", "4", "--prompt-tokens", "512", "--output-tokens", "128"]
    assert run(["fit", "infer", "llama-3.1-8b", "--accelerator", "rtx-4090", *flags]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "cache capacity 23.5 GiB - left free 1.2 GiB - weights 15.0 GiB" in out
    assert "2,613 blocks of 16 tokens: 65 requests of 640 tokens at once, per replica" in out
