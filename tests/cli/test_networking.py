"""``network collective`` through the command line."""

import json

import pytest

from .shell import rapid_llm

FLAGS = {"--system": "dgx-h100", "--accelerators": "64", "--size": "256MiB"}


def run(*more, **flags):
    given = {**FLAGS, **{f"--{name}": value for name, value in flags.items()}}
    ran = rapid_llm("network", "collective", "all_reduce", *(text for pair in given.items() for text in pair), *more)
    return ran.code, ran.out, ran.err


def test_time_bandwidths_algorithm_and_tiers():
    code, out, _ = run()
    assert code == 0
    lines = {line[:13].strip(): line[13:] for line in out.splitlines() if line[:1].isalpha()}
    assert lines["all_reduce"] == "256 MiB on 64 accelerators of dgx-h100, 8 nodes"
    assert {"time", "algbw", "busbw", "algorithm", "each rank"} <= lines.keys()
    assert "tree       LL128" in out
    assert len(out.splitlines()) <= 30


def test_json_agrees_with_nccl_tests_conventions():
    code, out, _ = run("--json")
    answer = json.loads(out)
    assert code == 0
    assert answer["algbw_bytes_per_s"] == pytest.approx(2**28 / answer["seconds"])
    assert answer["busbw_bytes_per_s"] == pytest.approx(answer["algbw_bytes_per_s"] * 2 * 63 / 64)
    assert answer["seconds"] == min(c["seconds"] for c in answer["candidates"])
    assert [tier["tier"] for tier in answer["tiers"]] == ["node", "leaf"]


def test_one_algorithm_only():
    _, out, _ = run("--json", algorithm="ring")
    assert {c["algorithm"] for c in json.loads(out)["candidates"]} == {"ring"}


def test_an_algorithm_of_ones_own(tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_text("ops: [all_reduce]\nphases: [{pattern: direct, load: n - 1}]\n")
    code, out, _ = run("--json", algorithm=str(file))
    assert code == 0
    assert json.loads(out)["algorithm"] == "custom"


def test_a_folder_with_the_answer_and_its_page(tmp_path):
    code, _, _ = run(out=str(tmp_path / "run"))
    assert code == 0
    assert json.loads((tmp_path / "run" / "collective.json").read_text())["op"] == "all_reduce"
    page = (tmp_path / "run" / "collective.html").read_text()
    assert page.count("<svg") == 3
    assert "nvls-tree NVLS" in page


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (("size", "256"), "--size needs a unit, such as '80 GiB' (got 256)."),
        (("size", "0MB"), "--size must be above 0 (got 0MB)."),
        (("accelerators", "1"), "one accelerator has nobody to talk to. Use --accelerators 2 or more."),
        (
            ("accelerators", "0"),
            "a group of 0 ranks, 1 apart, does not fit 'dgx-h100': 16384 accelerators are connected. "
            "Use fewer ranks or a larger system.",
        ),
        (("algorithm", "rong"), "algorithm 'rong' is unknown. Did you mean 'ring'?"),
        (("library", "ncll"), "collective library 'ncll' is not in the catalogue. Did you mean 'nccl'?"),
        (("system", "dgx-h10"), "'dgx-h10' is not in the catalogue"),
    ],
)
def test_bad_input_is_one_sentence(change, sentence):
    code, out, err = run(**dict([change]))
    assert (code, out) == (2, "")
    assert sentence in err
    assert err.count("\n") == 1


def test_calibrate_fabric_from_a_table(tmp_path):
    table, out = tmp_path / "t.csv", tmp_path / "mine.yaml"
    rows = [f"all_reduce,16,{2**k},{60 + 2**k / 1e5}" for k in range(10, 30)]
    table.write_text("\n".join(["op,ranks,bytes,time_us", *rows]))
    ran = rapid_llm("calibrate", "fabric", "dgx-h100", "--table", str(table), "--out", str(out))
    assert ran.code == 0, ran.err
    assert "infiniband-ndr, costs of nccl" in ran.out
    assert "before" in ran.out and "rows held out" in ran.out
    again = run("--json", accelerators="16", library=str(out))
    assert json.loads(again[1])["library"] == str(out)
    ran = rapid_llm("calibrate", "fabric", "dgx-h100", "--table", str(tmp_path / "none.csv"))
    assert (ran.code, ran.err.count("\n")) == (2, 1)


SCENARIO = """\
model: llama-3.1-8b
system: dgx-h100
parallelism: {tp: 4, pp: 2, dp: 4}
placement: {order: [dp, tp, cp, ep, pp]}
workload: {kind: training, global_batch_size: 32, micro_batch_size: 1, sequence_length: 4096}
"""


def test_placement_says_what_it_gained(tmp_path):
    file = tmp_path / "job.yaml"
    file.write_text(SCENARIO)
    ran = rapid_llm("network", "placement", str(file), "--json")
    answer = json.loads(ran.out)
    assert answer["asked"] == ["dp", "tp", "cp", "ep", "pp"]
    assert answer["best"].index("tp") < answer["best"].index("dp")
    assert answer["gain"] > 0.3
    assert answer["best_step_time_s"] < answer["step_time_s"]
    words = rapid_llm("network", "placement", str(file)).out
    assert "of communication a step" in words
    assert "step time" in words


def test_link_by_link_with_a_fault(tmp_path):
    page = tmp_path / "page.html"
    code, out, _ = run(
        accelerators="16", network="flow", fault="link: [node0.nic0, leaf0.0], bandwidth: 80 %", html=str(page)
    )
    assert code == 0
    assert "link by link (closed form " in out
    assert "re-plan: without rail 0 " in out
    assert "busiest link node" in out
    assert "box 1" in page.read_text()
    code, _, err = run(accelerators="16", network="flow", fault="accelerator: 9, down: true")
    assert (code, err) == (
        3,
        "no path from node1.gpu1 to node0.gpu0 with 2 links down: group 0 spans them. "
        "Try another placement or fewer faults.\n",
    )
    code, _, err = run(fault="link: [node0.nic0, leaf0.0], down: true")
    assert (code, err) == (2, "the closed form knows no single link: faults need --network flow.\n")
