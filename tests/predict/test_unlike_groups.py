"""Jobs on unlike groups of nodes: who waits for whom, what links cost, and what memory each stage has."""

from math import ceil
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rapid_llm.errors import InputError
from rapid_llm.hardware import Node
from rapid_llm.nouns import FrozenDict, replaced
from rapid_llm.predict import evaluate, evaluate_many, fit, predict
from rapid_llm.predict.seating import dealt, dealt_by_memory
from rapid_llm.predict.training import TrainingTable
from rapid_llm.scenario import Scenario, from_mapping

GENERATIONS = "1x dgx-h100 + 1x dgx-a100"
REPLICAS_OUT = {"order": ["tp", "pp", "cp", "ep", "dp"]}
OTHER_NAME = {"base": "h100-sxm", "name": "same chip by another name"}


def job(
    system: Any = GENERATIONS, batch: int = 16, placement: Any = None, accelerators: int = 16, **plan: Any
) -> Scenario:
    return from_mapping({
        "model": "llama-3.1-8b",
        "system": system,
        "accelerators": accelerators,
        "runtime": "megatron-core",
        "parallelism": {"tp": 4, "pp": 2, **plan},
        "placement": placement or {},
        "workload": {
            "kind": "training", "global_batch_size": batch, "micro_batch_size": 1, "sequence_length": 4096,
        },
    })  # fmt: skip


def table(*args: Any, **plan: Any) -> TrainingTable:
    found = evaluate(job(*args, **plan))
    assert isinstance(found, TrainingTable)
    return found


def seconds(*args: Any, **plan: Any) -> float:
    return float(table(*args, **plan).step.total[0])


def sites(bandwidth: str = "100 GB/s", latency: str = "0 s", **group: Any) -> dict[str, Any]:
    one = {"node": "dgx-h100", "nodes": 1, **group}
    return {
        "name": "two sites",
        "groups": [{"name": "paris", **one}, {"name": "oslo", **one}],
        "links": [{"bandwidth": bandwidth, "latency": latency}],
    }


def test_two_stages_on_two_generations_by_hand():
    """1F1B of m micro-batches whose second stage is the slower one: F0 + m (F1 + B1) + B0, each stage as it is in a job
    on its own kind, messages between them at the slower card."""
    mixed, fast, slow = (table(name).step for name in (GENERATIONS, "dgx-h100", "dgx-a100"))
    for stage, own in enumerate((fast, slow)):
        assert mixed.forward[0, stage] == own.forward[0, stage]
        assert mixed.backward[0, stage] == own.backward[0, stage]
        assert mixed.optimizer[0, stage] == own.optimizer[0, stage]
        for here, there in zip(mixed.messages, own.messages, strict=True):
            assert here.seconds[0, stage] == there.seconds[0, stage]
    assert fast.send[0] < mixed.send[0] <= slow.send[0]
    send, m = mixed.send[0], 8.0
    first, second = fast.forward[0, 0] + send, slow.forward[0, 1] + send
    work = second + slow.backward[0, 1] + send
    assert mixed.pipeline[0] == pytest.approx(first + m * work + fast.backward[0, 0] + send, rel=1e-12)
    tail = mixed.optimizer[0, 1] + sum(message.exposed[0, 1] for message in mixed.messages)
    assert mixed.total[0] == pytest.approx(mixed.pipeline[0] + tail + mixed.host[0], rel=1e-12)


@pytest.mark.parametrize(
    "plan",
    [
        {},
        {"pp": 1},
        {"tp": 2, "pp": 4, "vpp": 2},
        {"tp": 2, "pp": 4, "schedule": "zb-v"},
        {"tp": 2, "pp": 4, "schedule": "dualpipe"},
        {"placement": REPLICAS_OUT},
        {"pp": 1, "tp": 2, "cp": 2},
    ],
)
def test_equal_groups_are_one_system(plan: dict[str, Any]):
    plan = {"batch": 32, "accelerators": 32, **plan}
    whole = seconds("dgx-h100", **plan)
    assert seconds("2x dgx-h100 + 2x dgx-h100", **plan) == whole
    named = [{"node": "dgx-h100", "nodes": 2}, {"node": "dgx-h100", "nodes": 2, "accelerator": OTHER_NAME}]
    found = table({"name": "alike", "groups": named}, **plan)
    assert found.step.seats is not None
    assert found.step.total[0] == pytest.approx(whole, rel=1e-12)


def test_groups_swapped_with_their_stages_are_the_same_job():
    other = "1x dgx-a100 + 1x dgx-h100"
    assert seconds(other) == seconds(placement={"stages": ["dgx-a100", "dgx-h100"]})
    assert seconds(GENERATIONS) == seconds(other, placement={"stages": ["dgx-h100", "dgx-a100"]})
    assert seconds(GENERATIONS) != seconds(other)


def test_replicas_wait_once_a_step_for_the_slowest_and_pipelines_for_their_own_stages():
    replicas, slow, fast = (table(s, placement=REPLICAS_OUT).step for s in (GENERATIONS, "dgx-a100", "dgx-h100"))
    assert replicas.seats is not None
    assert len(replicas.seats.pipelines) == 2
    assert replicas.pipeline[0] == pytest.approx(slow.pipeline[0], rel=1e-12)
    assert replicas.total[0] > 1.8 * fast.total[0]
    three = from_mapping({**job().to_mapping(), "system": "2x dgx-h100 + 1x dgx-a100", "accelerators": 24,
                          "parallelism": {"tp": 8, "pp": 3}})  # fmt: skip
    found = evaluate(three)
    assert isinstance(found, TrainingTable)
    (one,) = found.step.seats.pipelines if found.step.seats else ()
    assert [[kind[0] for kind in stage] for stage in one.stages] == [[0], [0], [1]]


@pytest.mark.parametrize(("zero", "pipelines"), [(1, 2), (3, 1)])
def test_replicas_that_gather_weights_wait_in_every_pass(zero: int, pipelines: int):
    given = replaced(job(pp=1), placement=job(placement=REPLICAS_OUT).placement)
    given = from_mapping({**given.to_mapping(), "runtime": "fsdp", "parallelism": {"tp": 1, "zero_stage": zero}}) \
        if zero == 3 else given  # fmt: skip
    found = evaluate(given)
    assert isinstance(found, TrainingTable)
    assert found.step.seats is not None
    assert len(found.step.seats.pipelines) == pipelines


def faster(node: Node, what: str, factor: float) -> Node:
    """A node whose accelerators, memory, links or network cards are better."""
    chip = node.accelerator
    if what == "nics":
        assert node.nics is not None
        return replaced(node, nics=replaced(node.nics, count=node.nics.count * ceil(factor)))
    if what == "peak":
        chip = replaced(chip, peak=FrozenDict({name: rate * factor for name, rate in chip.peak.items()}))
    elif what == "hbm":
        hbm = replaced(chip.memory.hbm, bandwidth=chip.memory.hbm.bandwidth * factor)
        chip = replaced(chip, memory=replaced(chip.memory, hbm=hbm))
    else:
        assert chip.scale_up is not None
        chip = replaced(chip, scale_up=replaced(chip.scale_up, bandwidth=chip.scale_up.bandwidth * factor))
    return replaced(node, accelerator=chip)


@settings(max_examples=12, deadline=None)
@given(
    what=st.sampled_from(["peak", "hbm", "scale_up", "nics"]),
    factor=st.floats(1.0, 4.0),
    group=st.integers(0, 1),
    pp=st.sampled_from([1, 2, 4]),
    out=st.booleans(),
)
def test_a_faster_group_never_hurts(what: str, factor: float, group: int, pp: int, out: bool):
    before = job(pp=pp, placement=REPLICAS_OUT if out else None)
    groups = list(before.system.groups)
    groups[group] = replaced(groups[group], node=faster(groups[group].node, what, factor))
    after = replaced(before, system=replaced(before.system, groups=tuple(groups)))
    was, now = (evaluate(one) for one in (before, after))
    assert isinstance(was, TrainingTable)
    assert isinstance(now, TrainingTable)
    assert now.step.total[0] <= was.step.total[0] * (1 + 1e-9)


def test_a_slow_node_of_a_group_delays_its_own_stage():
    given = job()
    first, last = (
        replaced(given, faults=from_mapping({**given.to_mapping(), "faults": [{"node": n, "speed": 0.5}]}).faults)
        for n in ("node0", "node1")
    )
    plain, early, late = (predict(one).step_time_s or 0.0 for one in (given, first, last))
    assert plain < early < late  # the first stage waits for the second, and at half its speed still does
    assert late > 1.7 * plain


def test_a_pipeline_pays_the_link_between_its_stages():
    wide, narrow, far = (table(sites(*link)).step for link in (("100 TB/s",), ("10 GB/s",), ("100 TB/s", "5 ms")))
    asked = 4096 * 4096 * 2 / 4  # activations of a micro-batch, a quarter on each rank of sequence parallelism
    assert wide.total[0] == pytest.approx(seconds("dgx-h100"), rel=1e-9)
    each = narrow.send[0] - wide.send[0]
    assert each == pytest.approx(asked * 8 / 10e9 - asked / 50e9, rel=0.35)  # eight ranks share it; library overheads
    assert narrow.pipeline[0] - wide.pipeline[0] == pytest.approx(2 * (8 + 1) * each, rel=1e-6)
    assert far.send[0] - wide.send[0] == pytest.approx(5e-3, rel=1e-6)


def test_replicas_pay_the_link_once_a_step():
    wide, narrow = (table(sites(bandwidth), pp=1).step for bandwidth in ("100 TB/s", "10 GB/s"))
    assert wide.total[0] == pytest.approx(seconds("dgx-h100", pp=1), rel=1e-9)
    assert narrow.pipeline[0] == wide.pipeline[0]
    reduce, gather = (message.seconds[0, 0] for message in narrow.messages)
    crossing = 8.03e9 / 4 * 4 * 3 / 4 * 4  # fp32 gradients of each of 4 tp ranks: a ring of 4 replicas crosses once
    assert reduce == pytest.approx(crossing / 10e9, rel=0.3)
    assert gather == pytest.approx(reduce / 2, rel=0.1)


def test_memory_of_each_stage_is_of_its_own_accelerator():
    small = "1x hgx-a100-40 + 1x dgx-a100"
    use = fit(job(small)).memory
    capacities = [group.node.accelerator.memory.reported_capacity for group in job(small).system.groups]
    assert [stage.limit_bytes for stage in use.stages] == [round(one) for one in capacities]
    assert predict(job(small)).memory.stages == use.stages
    full = fit(job(small, tp=1, pp=2, batch=64))
    assert not full.feasible
    assert full.memory.stage == 0
    assert full.memory.capacity_bytes == round(capacities[0])
    assert full.violations[0].fixes


def test_layers_dealt_by_memory_fit():
    given = from_mapping({**job("1x hgx-a100-40 + 1x dgx-a100", tp=2).to_mapping(), "model": "llama-2-13b"})
    assert not fit(given).feasible
    changed = dealt_by_memory(given)
    assert changed is not None
    assert changed.parallelism.layers_per_stage[0] < changed.parallelism.layers_per_stage[1]
    assert fit(changed).feasible


def test_the_answer_says_where_stages_sit_and_what_would_balance_them():
    report = predict(job(batch=32))
    seats = report.seats
    assert seats is not None
    assert [stage.groups for stage in seats.stages] == [("dgx-h100",), ("dgx-a100",)]
    assert [stage.layers for stage in seats.stages] == [16, 16]
    assert seats.pacing_stage == 1
    assert seats.balanced_layers_per_stage is not None
    again = predict(job(batch=32, layers_per_stage=list(seats.balanced_layers_per_stage)))
    assert again.step_time_s == pytest.approx((report.step_time_s or 0) * (seats.balanced_time_ratio or 0), rel=1e-12)
    assert again.step_time_s < 0.8 * (report.step_time_s or 0)
    assert again.seats is not None
    assert again.seats.balanced_layers_per_stage is None
    leaves = sum(leaf.seconds for leaf in report.breakdown.leaves()) if report.breakdown else 0.0
    assert leaves == pytest.approx(report.step_time_s, rel=1e-9)
    assert report.to_dict()["seats"]["stages"][1]["accelerators"] == ["a100-sxm"]


def test_chunks_of_a_stage_share_its_layers_evenly():
    given = job(batch=32, tp=4, pp=2, vpp=2)
    report, seats = predict(given), predict(given).seats
    assert seats is not None
    layers = seats.balanced_layers_per_stage
    assert layers is not None
    assert (len(layers), sum(layers)) == (4, 32)
    assert 0 <= layers[0] - layers[2] <= 1
    assert layers[0] > 2 * layers[1]
    again = predict(job(batch=32, tp=4, pp=2, vpp=2, layers_per_stage=list(layers)))
    assert again.step_time_s == pytest.approx((report.step_time_s or 0) * (seats.balanced_time_ratio or 0), rel=1e-12)


def test_mfu_is_over_the_peaks_of_all_accelerators():
    report, alone = predict(job()), predict(job("dgx-h100"))
    peaks = [group.node.accelerator.peak["bf16"] for group in job().system.groups]
    work = (alone.mfu or 0) * (alone.step_time_s or 0) * 16 * peaks[0]
    assert report.mfu == pytest.approx(work / ((report.step_time_s or 0) * 8 * sum(peaks)), rel=1e-12)
    assert report.flop_convention.endswith("over the dense bf16 peaks of all accelerators together")


def test_layers_go_where_the_stage_is_the_shortest():
    assert dealt(12, [1.0, 3.0], [0.0, 0.0], {}) == (9, 3)
    assert dealt(12, [1.0, 3.0], [0.0, 3.0], {}) == (10, 2)
    assert dealt(12, [1.0, 3.0], [0.0, 0.0], {0: 6}) == (6, 6)
    assert dealt(12, [1.0, 3.0], [0.0, 0.0], {0: 6, 1: 5}) is None


def test_many_plans_as_one_table_are_those_one_by_one():
    every = [job(), job(pp=1), job(tp=2, pp=4), job(tp=8)]
    together = evaluate_many(every)
    alone = [evaluate(one) for one in every]
    for row, one in enumerate(alone):
        assert isinstance(one, TrainingTable)
        assert together.step_time_s[row] == pytest.approx(float(one.step.total[0]), rel=1e-12)
        assert together.fits[row] == one.fits[0]


def test_a_stage_on_two_groups_waits_for_the_slower():
    mapping = {**job().to_mapping(), "system": "1x dgx-h100 + 2x dgx-a100", "accelerators": 24}
    found = evaluate(from_mapping({**mapping, "parallelism": {"tp": 4, "pp": 2, "dp": 3}, "workload": {
        "kind": "training", "global_batch_size": 12, "micro_batch_size": 1, "sequence_length": 4096}}))  # fmt: skip
    assert isinstance(found, TrainingTable)
    assert found.step.forward[0, 0] == table("dgx-a100", batch=12, accelerators=24, dp=3).step.forward[0, 0]


def test_groups_read_back_as_they_were_written():
    for system in (GENERATIONS, sites("10 GB/s", "1 ms")):
        given = job(system)
        again = from_mapping(given.to_mapping())
        assert again.system == given.system
        assert again.hash == given.hash


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"placement": {"stages": ["dgx-h100"]}},
         "placement.stages must name the group of each of the 2 pipeline stages (got 1). Known: dgx-h100, dgx-a100."),
        ({"placement": {"stages": ["dgx-h100", "dgx-b100"]}},
         "placement.stages[1] 'dgx-b100' is unknown. Did you mean 'dgx-h100'? Known: dgx-h100, dgx-a100."),
        ({"placement": {"stages": ["dgx-a100", "dgx-a100"]}},
         "placement.stages puts 2 stages of 8 accelerators on dgx-a100, which has 8. "
         "Try 1 of them there, or more nodes in the group."),
        ({"placement": {**REPLICAS_OUT, "stages": ["dgx-a100", "dgx-h100"]}},
         "placement.stages needs pp as the last axis of placement.order. Try order: [tp, cp, ep, dp, pp]."),
        ({"system": "dgx-h100", "placement": {"stages": ["dgx-h100", "dgx-h100"]}},
         "placement.stages names groups of nodes, and the system has one. Try to leave it out."),
        ({"placement": {"stages": ["dgx-a100", "dgx-h100"]}, "faults": [{"node": 0, "speed": 0.5}]},
         "placement.stages does not go with faults, which count accelerators and nodes through the groups in their "
         "order. Try system.groups in the order of the stages."),
        ({"network": "flow"},
         "network: flow lays out equal nodes, and system 1x dgx-h100 + 1x dgx-a100 joins dgx-h100 and dgx-a100. "
         "Try network: closed-form."),
        ({"system": "1x dgx-h100 + 1x mi300x-8"},
         "system 1x dgx-h100 + 1x mi300x-8 joins accelerators of NVIDIA and AMD, which no collective library of "
         "megatron-core joins in one job. Try groups of one vendor."),
        ({"accelerators": 32, "parallelism": {"tp": 4, "pp": 2}},
         "accelerators 32 is more than system 1x dgx-h100 + 1x dgx-a100 has: 1 x 8 + 1 x 8 = 16. "
         "Try accelerators 16, or more nodes in a group."),
        ({"system": "1x dgx-h100 + 2x dgx-a100", "accelerators": 20, "parallelism": {"tp": 4, "pp": 1}},
         "accelerators 20 do not fill the nodes of 8 of group dgx-a100, which are taken last: 12 / 8 leaves 4. "
         "Try 16 or 24."),
        ({"precision": "fp8-mixed"},
         "precision.compute fp8 needs a matrix rate for fp8, and a100-sxm has bf16, fp16, fp64, int4, int8, tf32. "
         "Try precision: bf16."),
        ({"runtime": "vllm", "parallelism": {"tp": 4},
          "workload": {"kind": "inference", "batch_size": 4, "prompt_tokens": 9, "output_tokens": 9}},
         "system 1x dgx-h100 + 1x dgx-a100 joins unlike groups of nodes, dgx-h100 and dgx-a100, which only the stages "
         "and replicas of a training job can be laid over. "
         "Try system: dgx-h100, or pools: {prefill: {system: dgx-h100}, decode: {system: dgx-a100}}."),
    ],
)  # fmt: skip
def test_what_groups_cannot_do_is_said(given: dict[str, Any], sentence: str):
    with pytest.raises(InputError) as error:
        from_mapping({**job().to_mapping(), "system": GENERATIONS, **given})
    assert str(error.value) == sentence


def test_groups_that_nothing_joins_are_refused():
    with pytest.raises(InputError, match="does not say what joins rtx-4090 and rtx-3090"):
        job("1x rtx-4090 + 1x rtx-3090", accelerators=2, tp=1, pp=2)
