"""The scorecard as a table: one line per group, splits side by side."""

import gzip
import json

import pytest

from rapid_llm.cli.scoring import _lines, _page
from rapid_llm.validation import Scorecard, ScoreRow

from .shell import rapid_llm


def row(split, **fields):
    given = {"suite": "training", "group": "korthikanti", "metric": "step_time", "n": 9, "evaluated": 8, **fields}
    return ScoreRow(split=split, **given)


SIMPLER = {"one": 0.2, "two": 0.1}
CARD = Scorecard(
    rows=(
        row("fit", mape=0.02),
        row("unseen", mape=0.06, median=0.05, p90=0.1),
        row("all", mape=0.04, median=0.03, p90=0.09, bias=-0.01, rank=0.98, baselines=SIMPLER),
        row("all", group="all", mape=0.04, skipped={"the model is not described": 1}, baselines=SIMPLER),
        row("all", suite="memory", metric="verdict", accuracy=0.9, precision=1.0, recall=0.75),
    ),
    results=(),
)


def test_one_line_per_group_with_both_splits():
    lines = _lines(CARD)
    line = next(line for line in lines if "korthikanti" in line and "step_time" in line)
    cells = "training step_time korthikanti 9 8 4.0 % 6.0 % 3.0 % 9.0 % -1.0 % 0.98 20.0 % / 10.0 %"
    assert " ".join(line.split()) == cells
    assert "baselines    one / two: training step_time" in lines
    assert "skipped      1 row of training step_time: the model is not described" in lines


def test_verdicts_show_accuracy_precision_recall():
    line = next(line for line in _lines(CARD) if "verdict" in line)
    assert "acc 90.0 %" in line
    assert "prec 100.0 %" in line
    assert "rec 75.0 %" in line


def test_page_has_every_line():
    assert _page(CARD).count("<tr>") == (1 + 3) + (1 + 1)  # and why one row was skipped


def _table(folder, value):
    columns = "id source gpu n_gpus framework hidden layers heads seq_len global_batch micro_batch tp pp metric value"
    cells = f"a own A100-SXM 8 Megatron-LM 4096 32 32 2048 8 1 8 1 step_time_s {value}"
    (folder / "training.csv").write_text(",".join(columns.split()) + "\n" + ",".join(cells.split()) + "\n")


@pytest.mark.parametrize("value", ["x.xx", "-1", "nan"])
def test_table_of_broken_rows_alone_is_refused(tmp_path, value):
    _table(tmp_path, value)
    ran = rapid_llm("validate", "--data", tmp_path)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.strip() == (
        f"{tmp_path}/training.csv:2: value must be a number above 0, or blank (got '{value}'). "
        "Nothing is left to score. Try the table as it was measured."
    )


GEMM = "m,n,k,dtype,latency_us\n"
CASE = {
    "name": "two",
    "topology": {
        "name": "pair",
        "node_labels": ["a", "b"],
        "edges": [{"a": 0, "b": 1, "bw_ab_gbps": 400, "bw_ba_gbps": 400, "latency_ns": 500}],
    },
    "flows": [{"id": 0, "src": 0, "bytes": 4096, "paths": [[0, 1]]}],
    "transport": {"mtu_bytes": 4096, "ack_bytes": 64, "ack_every_packets": 4, "window_bytes": 131072},
    "results": {"fifo": {"completion_ns": 900.0, "flow_finish_ns": [900.0]}},
}


def _patterns(*places, value):
    """A file of one case with one value changed, at these keys."""
    data = json.loads(json.dumps({"cases": [CASE]}))
    inner = data["cases"][0]
    for place in places[:-1]:
        inner = inner[place]
    inner[places[-1]] = value
    return json.dumps(data)


@pytest.mark.parametrize(
    ("name", "text", "sentence"),
    [
        ("gemm_h100_sxm.csv", GEMM + "1,2,x,bf16,3\n", ":2: k must be a number above 0 (got 'x')."),
        ("gemm_h100_sxm.csv", GEMM + "\n1,2,,bf16,3\n", ":3: k must be a number above 0 (got '')."),
        ("gemm_h100_sxm.csv", GEMM + "1,2,3,bf16,inf\n", "microseconds, a number above 0 (got 'inf')."),
        ("gemm_h100_sxm.csv", GEMM + "1,2,3,bf16\n", ":2: this row has 4 cells, and the header names 5 columns."),
        ("gemm_h100_sxm.csv", "m,n,dtype,latency_us\n1,2,bf16,3\n", "is no table of kernel gemms: it lacks k."),
        ("t.json", '{"cases": [', "t.json: cannot be read as JSON: "),
        ("t.json", "[" * 100_000, "t.json: cannot be read as JSON: "),
        (
            "t.json",
            _patterns("topology", "edges", 0, "bw_ab_gbps", value="x"),
            "t.json: cases[0].topology.edges[0].bw_ab_gbps must be a number (got 'x').",
        ),
        ("t.json", _patterns("flows", 0, "paths", value=[[0, 7]]), "flows[0].paths has a path without cables: 0 7."),
        ("t.json", _patterns("flows", 0, "deps", value=[9]), "waits for flow 9, which the case does not have."),
        ("t.json", _patterns("flows", 0, "bytes", value=-1), "flows[0].bytes must be greater than 0 (got -1)."),
        ("t.json", _patterns("results", "red", value=CASE["results"]["fifo"]), "is no queueing mode. Known: fifo,"),
    ],
)  # fmt: skip
def test_broken_tables_of_kernels_and_of_patterns_are_one_sentence(tmp_path, name, text, sentence):
    (tmp_path / name).write_text(text)
    ran = rapid_llm("validate", "--data", tmp_path)
    assert (ran.code, ran.out) == (2, "")
    assert sentence in ran.err
    assert ran.err.count("\n") == 1


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (gzip.compress(GEMM.encode() * 20)[:-20], "the gzip file ends too early. Try to fetch it again."),
        (gzip.compress(GEMM.encode() * 20)[:20] + b"\xff" * 40, "cannot be read: "),
        (
            gzip.compress(b"0" * 1001),
            "is too large: at most 1,000 bytes are unpacked. Try a smaller file.",
        ),
    ],
)
def test_packed_tables_that_do_not_unpack(tmp_path, monkeypatch, data, sentence):
    monkeypatch.setattr("rapid_llm.documents.reading.MAX_UNPACKED_BYTES", 1000)
    table = tmp_path / "gemm.csv.gz"
    table.write_bytes(data)
    for words in (
        ("validate", "--data", tmp_path),
        ("calibrate", "fabric", "dgx-h100", "--table", table),
    ):
        ran = rapid_llm(*words)
        assert (ran.code, ran.out) == (2, "")
        assert ran.err.startswith(f"{table}: ")
        assert sentence in ran.err
