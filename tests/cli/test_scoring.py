"""The scorecard as a table: one line per group, splits side by side."""

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
    assert "skipped      1 rows of training step_time: the model is not described" in lines


def test_verdicts_show_accuracy_precision_recall():
    line = next(line for line in _lines(CARD) if "verdict" in line)
    assert "acc 90.0 %" in line
    assert "prec 100.0 %" in line
    assert "rec 75.0 %" in line


def test_page_has_every_line():
    assert _page(CARD).count("<tr>") == 1 + 3


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
