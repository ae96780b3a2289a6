"""Tokens of each expert from a file."""

import json

import pytest

from rapid_llm.errors import InputError
from rapid_llm.predict import predict
from rapid_llm.scenario import from_mapping, load
from rapid_llm.workload import read_counts

COUNTS = [[5, 1, 0, 2], [1, 1, 3, 3]]
WIDE = "5,1,0,2\n1,1,3,3\n"
LONG = "tokens,layer,expert\n5,3,0\n1,3,1\n2,3,3\n1,4,0\n1,4,1\n3,4,2\n3,4,3\n"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("wide.csv", WIDE),
        ("spaced.csv", "\n" + WIDE.replace(",", " , ").replace("\n", "\r\n")),
        ("long.csv", LONG),
        ("counts.json", json.dumps({"counts": COUNTS})),
        ("counts.yaml", f"counts: {COUNTS}\n"),
    ],
)
def test_every_form_says_the_same(tmp_path, name, text):
    (tmp_path / name).write_text(text)
    assert read_counts(tmp_path / name) == COUNTS


def test_one_layer_needs_no_column_of_layers(tmp_path):
    (tmp_path / "one.csv").write_text("expert,tokens\n1,7\n0,4e3\n")
    assert read_counts(tmp_path / "one.csv") == [[4000, 7]]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "{f}: is empty: a line a layer is needed, with a number for each expert."),
        ("1,2\n3\n", "{f}:2: has 1 numbers in this line and 2 in the first."),
        ("1,-2\n", "{f}:1: must hold whole numbers of at least 0 (got '-2')."),
        ("1,nan\n", "{f}:1: must hold whole numbers of at least 0 (got 'nan')."),
        ("1,1e400\n", "{f}:1: must hold whole numbers of at least 0 (got '1e400')."),
        ("a,b\n1,2\n", "{f}:1: must hold whole numbers of at least 0 (got 'a')."),
        ("layer,expert,tokens\n", "{f}: has a header and no line below it."),
        ("layer,expert,tokens,step\n1,2,3,4\n", "{f}:1: has a column 'step'. Try layer, expert, tokens."),
        ("layer,expert,tokens\n1,2\n", "{f}:2: has 2 cells in this line, and 3 columns."),
        ("layer,expert,tokens\n0,1,3\n0,1,4\n", "{f}:3: counts expert 1 of layer 0 twice."),
        (
            "expert,tokens\n99999999,3\n",
            "{f}:2: names layer 0, expert 99999999: numbers start at 0 and end at 4096.",
        ),
    ],
)
def test_what_is_wrong_with_a_table(tmp_path, text, sentence):
    file = tmp_path / "counts.csv"
    file.write_text(text)
    with pytest.raises(InputError) as told:
        read_counts(file)
    assert str(told.value) == sentence.replace("{f}", str(file))


def test_a_file_of_another_thing(tmp_path):
    (tmp_path / "a.yaml").write_text("experts: [1, 2]\n")
    with pytest.raises(InputError, match=r"must hold a list 'counts', tokens of each expert \(got experts\)"):
        read_counts(tmp_path / "a.yaml")


def test_a_scenario_reads_counts_from_beside_it(tmp_path):
    counts = [*range(1, 129)]
    (tmp_path / "experts.csv").write_text(",".join(map(str, counts)))
    written = {
        "model": "qwen3-30b-a3b",
        "system": "dgx-h100",
        "parallelism": {"dp": 8, "ep": 8},
        "workload": {"kind": "inference", "batch_size": 64, "prompt_tokens": 512, "output_tokens": 64},
    }
    (tmp_path / "scenario.yaml").write_text(
        json.dumps({**written, "workload": {**written["workload"], "routing": {"counts": "experts.csv"}}})
    )
    found = load(tmp_path / "scenario.yaml")
    told = from_mapping({**written, "workload": {**written["workload"], "routing": {"counts": counts}}})
    assert found.hash == told.hash
    assert predict(found).e2e_s > predict(from_mapping(written)).e2e_s
    with pytest.raises(InputError, match=r"workload\.routing\.counts must count each of num_experts 128 \(got 3\)"):
        (tmp_path / "experts.csv").write_text("1,2,3")
        load(tmp_path / "scenario.yaml")


def test_a_missing_file_is_told():
    given = {
        "kind": "inference",
        "batch_size": 1,
        "prompt_tokens": 8,
        "output_tokens": 8,
        "routing": {"counts": "no.csv"},
    }
    with pytest.raises(InputError, match=r"no\.csv: no such file"):
        from_mapping({"model": "qwen3-30b-a3b", "system": "h100-sxm", "workload": given})
