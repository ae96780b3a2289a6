"""The schedule of a step as data and as a page."""

import re

import pytest

from rapid_llm.errors import InputError
from rapid_llm.predict import predict
from rapid_llm.predict.schedule import timeline
from rapid_llm.predict.schedule_page import MOST_BARS, timeline_html
from rapid_llm.scenario import from_mapping

CHUNKED = {"interleaved": 2, "breadth-first": 2}


def scenario(schedule: str, *, pp: int = 4, micro_batches: int = 48, model: str = "llama-2-7b"):
    return from_mapping(
        {
            "model": model,
            "system": "dgx-h100",
            "accelerators": 8 * pp,
            "runtime": "megatron-core",
            "parallelism": {"tp": 8, "pp": pp, "vpp": CHUNKED.get(schedule, 1), "schedule": schedule},
            "workload": {"kind": "training", "global_batch_size": micro_batches, "sequence_length": 2048},
        }
    )


NAMES = ["gpipe", "1f1b", "interleaved", "breadth-first", "zb-h1", "zb-h2", "zb-v", "dualpipe", "dualpipe-v"]


@pytest.mark.parametrize("name", NAMES)
def test_tasks_of_a_stage_follow_each_other_and_end_with_the_pipeline(name: str) -> None:
    asked = scenario(name)
    found = timeline(asked)
    assert found.step_s == predict(asked, allow_infeasible=True).step_time_s
    last = max(line.boxes[-1].end for line in found.stages)
    assert last == pytest.approx(found.pipeline_s, rel=0.02 if name in ("interleaved", "zb-h2", "zb-v") else 5e-3)
    for line in found.stages:
        for before, after in zip(line.boxes, line.boxes[1:], strict=False):
            assert after.start >= before.end - 1e-9
        assert line.tail[0][1] >= line.boxes[-1].end - 1e-9
        assert 0 <= line.idle < found.pipeline_s
        assert line.busy + line.idle == pytest.approx(found.pipeline_s, rel=1e-6) or line.idle == 0
        highest = max(box.micro_batch for box in line.boxes)
        assert highest == found.micro_batches - 1 or name in ("gpipe", "breadth-first")


@pytest.mark.parametrize("name", ["1f1b", "zb-h1", "zb-v", "dualpipe"])
def test_what_is_left_out_grows_with_the_micro_batches_and_nothing_else(name: str) -> None:
    few, many = (timeline(scenario(name, micro_batches=m)) for m in (48, 480))
    assert many.left_out[2] - few.left_out[2] == 432
    assert many.left_out[0] == pytest.approx(few.left_out[0])
    for a, b in zip(few.stages, many.stages, strict=True):
        assert len(a.boxes) == len(b.boxes)
        assert [box.end - box.start for box in a.boxes] == pytest.approx([box.end - box.start for box in b.boxes])
    assert many.warm_up_end == pytest.approx(few.warm_up_end)
    assert many.warm_up_end < many.drain_start < many.pipeline_s


def test_every_task_is_listed_where_nothing_repeats() -> None:
    found = timeline(scenario("1f1b", micro_batches=4))
    assert found.left_out[2] == 0
    assert {len(line.boxes) for line in found.stages} == {8}


@pytest.mark.parametrize("name", NAMES)
def test_a_page_draws_a_few_hundred_bars_however_long_the_step(name: str) -> None:
    page = timeline_html(scenario(name, pp=8, micro_batches=512, model="gpt-145b"))
    assert page.count("<rect") < MOST_BARS + 60
    assert "http://" not in page.replace("http://www.w3.org/2000/svg", "")
    widths = [float(w) for w in re.findall(r'<rect x="[^"]*" y="[^"]*" width="([^"]*)"', page)]
    assert min(widths) >= 0.0


def test_a_page_says_what_it_leaves_out() -> None:
    page = timeline_html(scenario("1f1b", pp=16, micro_batches=512, model="gpt-145b"))
    assert "1f1b, 16 stages, 512 micro-batches" in page
    assert re.search(r"× \d+ more", page)
    assert "8 of 16 stages are drawn" in page


def test_a_page_counts_seconds_as_the_answer_does_and_tells_shades() -> None:
    page = timeline_html(scenario("interleaved", pp=8, micro_batches=512, model="gpt-145b"))
    assert re.search(r"512 micro-batches: [\d,]+\.\d s<", page)
    assert re.search(r"last task ends, [\d,]+\.\d s<", page)
    assert " min" not in page
    assert "The paler a bar, the later the chunk of the model." in page


def test_inference_has_no_timeline() -> None:
    asked = from_mapping(
        {
            "model": "llama-2-7b",
            "system": "dgx-a100",
            "workload": {"kind": "inference", "batch_size": 1, "prompt_tokens": 64, "output_tokens": 8},
        }
    )
    with pytest.raises(InputError) as caught:
        timeline(asked)
    assert caught.value.message == "--timeline is for training, and workload.kind is inference. Try rapid-llm train."


@pytest.mark.parametrize("name", [*NAMES, "pipedream-2bw"])
def test_the_breakdown_of_every_schedule_sums_to_the_step(name: str) -> None:
    report = predict(scenario(name), allow_infeasible=True)
    assert report.breakdown is not None

    def leaves(cost):
        return [cost] if not cost.children else [leaf for child in cost.children for leaf in leaves(child)]

    found = leaves(report.breakdown)
    assert sum(leaf.seconds for leaf in found) == pytest.approx(report.step_time_s, rel=1e-9)
    assert min(leaf.seconds for leaf in found) >= -1e-9


def test_pairs_hide_messages_of_experts_in_the_breakdown() -> None:
    asked = {
        "model": "deepseek-v2-lite",
        "system": "dgx-h100",
        "accelerators": 32,
        "parallelism": {"pp": 4, "ep": 8},
        "workload": {"kind": "training", "global_batch_size": 256, "sequence_length": 4096},
    }
    plain, pairs = (
        predict(
            from_mapping({**asked, "parallelism": {**asked["parallelism"], "schedule": name}}), allow_infeasible=True
        )
        for name in ("1f1b", "dualpipe")
    )

    def experts(report):
        (group,) = (child for child in report.breakdown.children if child.name == "exposed communication")
        return next(leaf for leaf in group.children if leaf.name == "ep")

    assert experts(pairs).hidden_seconds > 0.5 * experts(plain).seconds
    assert experts(pairs).seconds < 0.6 * experts(plain).seconds
    assert sum(child.seconds for child in pairs.breakdown.children) == pytest.approx(pairs.step_time_s)
    assert pairs.step_time_s < plain.step_time_s
