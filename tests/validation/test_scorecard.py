import csv
import io
import json
from dataclasses import replace

import pytest

from rapid_llm.documents import parse_yaml
from rapid_llm.errors import InputError
from rapid_llm.predict.report import Report
from rapid_llm.predict.uses import MemoryUse, StageMemory
from rapid_llm.scenario import from_mapping
from rapid_llm.validation import confidence, run
from rapid_llm.validation.cases import Baseline, Case
from rapid_llm.validation.evaluation import evaluate
from rapid_llm.validation.scorecard import score
from rapid_llm.validation.scorecard_page import sections

MEMORY = MemoryUse(
    persistent_bytes=3,
    allocated_bytes=4,
    peak_bytes=6,
    capacity_bytes=8,
    by_category={"communication": 1},
    rank=0,
    stage=0,
)


def report(seconds):
    return Report(kind="training", feasible=True, step_time_s=seconds, memory=MEMORY)


def case(group, name, key, measured, seconds, **changed):
    fields = {
        "suite": "training",
        "group": group,
        "metric": "step_time",
        "id": name,
        "key": key,
        "quantity": "step_time",
        "measured": measured,
        "scenario": {"seconds": seconds},
    }
    return Case(**(fields | changed))


# keys: korthikanti-22B is unseen, narayanan-1.7B fit
CASES = (
    case("a", "a1", "narayanan-1.7B", 1.0, 1.2, baselines={"constant": Baseline(5.0, "x")}),
    case("a", "a2", "korthikanti-22B", 2.0, 2.2, baselines={"constant": Baseline(10.0, "x")}),
    case("a", "a3", "korthikanti-22B", 2.0, 0.0, scenario=None, reason="no such thing"),
    case("b", "b1", "korthikanti-22B", 4.0, 2.0),
    case("c", "c1", "korthikanti-22B", 4.0, 4.4, headline=False),
)


@pytest.fixture(scope="module")
def card():
    return score(evaluate(CASES, lambda scenario: report(scenario["seconds"])))


def line(card, group, split, metric="step_time"):
    return next(r for r in card.rows if (r.group, r.split, r.metric) == (group, split, metric))


def test_groups_and_splits(card):
    whole = line(card, "a", "all")
    assert (whole.n, whole.evaluated, whole.skipped) == (3, 2, {"no such thing": 1})
    assert whole.mape == pytest.approx(0.15)
    assert whole.bias == pytest.approx(0.15)
    assert whole.baseline_mape == pytest.approx(0.0)
    assert line(card, "a", "fit").mape == pytest.approx(0.2)
    assert line(card, "a", "unseen").mape == pytest.approx(0.1)
    assert (line(card, "a", "unseen").n, line(card, "a", "unseen").evaluated) == (2, 1)


def test_the_group_all_is_the_mean_over_groups_of_the_headline(card):
    assert line(card, "all", "all").mape == pytest.approx((0.15 + 0.5) / 2)
    assert line(card, "all", "unseen").mape == pytest.approx((0.1 + 0.5) / 2)
    assert line(card, "all", "all").n == 4
    assert line(card, "c", "all").mape == pytest.approx(0.1)


def test_json_is_the_promised_object(card):
    found = json.loads(json.dumps(card.to_json()))["suites"][0]
    promised = {"suite", "group", "metric", "split", "n", "evaluated", "skipped", "mape", "median", "p90", "bias"}
    assert promised | {"rank", "baseline_mape", "baselines"} <= set(found)


def test_every_case_has_its_line(card, tmp_path):
    card.write_rows(tmp_path / "rows.csv")
    lines = list(csv.DictReader(io.StringIO((tmp_path / "rows.csv").read_text())))
    assert [x["id"] for x in lines] == ["a1", "a2", "a3", "b1", "c1"]
    assert lines[0]["error"] == "0.2"
    assert (lines[2]["predicted"], lines[2]["skipped"]) == ("", "no such thing")


def test_sections_of_a_page_stand_alone(card):
    shown = dict(sections(card))
    assert "no such thing" in shown["Skipped"]
    plots = [html for title, html in shown.items() if title != "Skipped"]
    assert plots
    for html in plots:
        assert "<svg" in html
        assert "http://" not in html.replace("http://www.w3.org/", "")


def test_equal_scenarios_are_predicted_once_and_faults_show():
    asked = []

    def predict(scenario):
        asked.append(scenario)
        if scenario["seconds"] == 9.0:
            raise ZeroDivisionError("by us")
        return report(scenario["seconds"])

    same = [case("a", "1", "k", 1.0, 1.0), case("a", "2", "k", 2.0, 1.0), case("a", "3", "k", 1.0, 9.0)]
    results = evaluate(same, predict)
    assert len(asked) == 2
    assert [r.predicted for r in results] == [1.0, 1.0, None]
    assert results[2].reason == "fault: ZeroDivisionError: by us"


def test_memory_readings():
    written = {"kind": "training", "global_batch_size": 8, "sequence_length": 2048}
    scenario = from_mapping({"model": "llama-3.1-8b", "system": "dgx-h100", "accelerators": 8, "workload": written})
    stage = StageMemory(persistent_bytes=7, allocated_bytes=1, reserved_bytes=8, peak_bytes=9)
    memory = replace(MEMORY, peak_bytes=6, reserved_bytes=5, stages=(stage,))
    kinds = ("persistent", "allocated", "reserved", "process", "out_of_memory", "first_persistent", "first_reserved")
    cases = [case("m", q, "k", 2.0, 1.0, quantity=q, metric="peak") for q in kinds]
    found = evaluate(cases, lambda _: replace(report(1.0), memory=memory, origin=scenario))
    assert [r.predicted for r in found] == [3.0, 4.0, 5.0, 6.0, 0.0, 7.0, 8.0]


def test_quantiles_for_confidence_are_of_unseen_rows(card):
    text = confidence.quantiles_yaml((card,))
    head = "  - {suite: training, group: 'a', metric: step_time, split: unseen, rows: 1, "
    assert head + "median: 0.1000, p90: 0.1000, bias: 0.1000, accelerators: [" in text
    assert "split: fit" not in text
    parsed = parse_yaml(text).data["quantiles"]
    assert parsed[-1]["group"] == "all"
    what = {"suite", "group", "metric", "split", "rows", "median", "p90", "bias", "accelerators", "runtimes"}
    assert set(parsed[0]) == what


def test_an_unknown_suite():
    with pytest.raises(InputError, match=r"^suite 'trainin' is unknown\. Did you mean 'training'\? Known: "):
        run(["trainin"])


@pytest.mark.parametrize("suite", ["network", "energy"])
def test_a_suite_without_published_figures_wants_a_folder(suite):
    with pytest.raises(InputError) as error:
        run([suite])
    assert error.value.message == (
        "the published figures have no row for these suites: name a folder of tables with --data FOLDER."
    )


def test_a_folder_without_tables(tmp_path):
    with pytest.raises(InputError, match="has no row for these suites: tables are known by their columns"):
        run(data_dir=tmp_path)


def kernels(group, metric, predicted):
    """A group of one kernel that took 1 s."""
    return case(group, f"{group}-{metric}", "korthikanti-22B", 1.0, predicted, suite="gemm", metric=metric)


def test_what_a_fit_of_its_own_is_worth_is_written_beside_the_quantiles():
    """By device: groups with both figures, the means of their p90."""
    rows = [kernels("a/bf16/x", "latency", 1.1), kernels("a/bf16/x", "latency_lent", 1.3)]
    rows += [kernels("a/bf16/y", "latency", 1.3), kernels("a/bf16/y", "latency_lent", 1.5)]
    rows += [kernels("b/fp8/x", "latency", 1.9)]
    found = score(evaluate((*CASES, *rows), lambda scenario: report(scenario["seconds"])))
    (lent,) = parse_yaml(confidence.quantiles_yaml((found,))).data["lent"]
    assert lent == {
        "suite": "gemm", "metric": "latency", "groups": 2, "own": 0.2, "lent": 0.4, "accelerators": ["a"],
    }  # fmt: skip


def test_groups_that_only_the_published_figures_have_are_written_too(card):
    other = (case("a", "a9", "korthikanti-22B", 1.0, 3.0), case("z", "z1", "korthikanti-22B", 1.0, 1.5))
    published = score(evaluate(other, lambda scenario: report(scenario["seconds"])))
    parsed = parse_yaml(confidence.quantiles_yaml((card, published))).data["quantiles"]
    assert {row["group"]: row["median"] for row in parsed if row["group"] in "az"} == {"a": 0.1, "z": 0.5}
    assert parsed[-1]["group"] == "all"


@pytest.mark.parametrize(
    ("scenario", "accelerators", "runtimes"),
    [
        ({"system": "gaudi3-8", "runtime": {"base": "vllm", "serving": {}}}, ["gaudi3"], ["vllm"]),
        ({"system": {"base": "dgx-h100", "accelerator": "h200-sxm"}, "runtime": "sglang"}, ["h200-sxm"], ["sglang"]),
    ],
)
def test_what_a_group_ran_on_is_read_from_changed_systems_and_runtimes(scenario, accelerators, runtimes):
    one = score(evaluate([case("g", "1", "korthikanti-22B", 1.0, 0.0, scenario=scenario)], lambda _: report(1.1)))
    row = parse_yaml(confidence.quantiles_yaml((one,))).data["quantiles"][0]
    assert (row["accelerators"], row["runtimes"]) == (accelerators, runtimes)
