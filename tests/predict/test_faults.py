"""The dial from end to end: closed form or flow, with faults, in training and inference."""

import pytest

import rapid_llm
from rapid_llm import hardware, predict
from rapid_llm.cli.answer import answer
from rapid_llm.predict import evaluate
from rapid_llm.scenario import from_mapping

TRAINING = {
    "model": "llama-3.1-8b",
    "system": "dgx-h100",
    "accelerators": 16,
    "workload": {"kind": "training", "global_batch_size": 32, "sequence_length": 4096},
}
INFERENCE = {
    "model": "llama-3.1-8b",
    "system": "dgx-h100",
    "accelerators": 8,
    "parallelism": {"tp": 4},
    "workload": {"kind": "inference", "batch_size": 16, "prompt_tokens": 512, "output_tokens": 64},
}


def step(plan, network="flow", *faults, **changes):
    scenario = from_mapping({**TRAINING, **changes, "parallelism": plan, "network": network, "faults": faults})
    return predict(scenario, allow_infeasible=True)


@pytest.mark.parametrize("plan", [{"tp": 8}, {"tp": 4, "pp": 2}, {"zero_stage": 3}])
def test_both_fidelities_agree_where_nothing_contends(plan):
    assert step(plan).step_time_s == pytest.approx(step(plan, "closed-form").step_time_s, rel=0.01)


def test_messages_that_share_links_by_turns_are_told():
    """Ranks three apart straddle nodes at different places: an exchange's sends get ahead of each other."""
    plan = {"pp": 3, "ep": 16}
    asked = {"model": "qwen3-30b-a3b", "accelerators": 48, "placement": {"order": ["pp", "tp", "cp", "ep", "dp"]}}
    work = {"kind": "training", "global_batch_size": 48, "sequence_length": 4096}
    closed = step(plan, "closed-form", **asked, workload=work)
    assert closed.shares_links_by_turns == ("ep all_to_all",)
    assert closed.to_dict()["shares_links_by_turns"] == ["ep all_to_all"]
    assert any("share links by turns" in line for line in answer(closed))
    assert not step({"tp": 8}, "closed-form").shares_links_by_turns
    assert not step(plan, **asked, workload=work).shares_links_by_turns


def test_gradients_meet_other_axes_on_their_links():
    """They travel beside the passes, whose messages want the same NVLinks: both take longer, gradients most."""
    plan = {"tp": 2, "cp": 4}
    closed, flow = step(plan, "closed-form"), step(plan)
    assert closed.step_time_s <= flow.step_time_s == pytest.approx(closed.step_time_s, rel=0.03)
    pairs = list(zip(closed.breakdown.leaves(), flow.breakdown.leaves(), strict=True))
    assert {ours.name for ours, theirs in pairs if theirs.seconds > 1.001 * ours.seconds} == {"tp", "cp", "dp"}
    assert max(pairs, key=lambda pair: pair[1].seconds / pair[0].seconds)[0].name == "dp"
    assert flow.breakdown.seconds == pytest.approx(flow.step_time_s, rel=1e-9)


@pytest.mark.parametrize("name", hardware.system_names())
def test_both_fidelities_agree_on_every_system_of_the_catalogue(name):
    """8 ranks of tensor parallelism in a node, the rest data parallel; within 1 %, on a torus of cubes within 3 %."""
    system = hardware.system(name)
    node = system.groups[0].node.accelerators
    count = min(64, system.accelerators)
    count = max(node, count // node * node)
    plan = {"tp": min(8, node)}
    work = {**TRAINING["workload"], "global_batch_size": 8 * count // plan["tp"]}
    job = {"system": name, "accelerators": count, "workload": work, "model": "llama-3.1-70b"}
    closed = step(plan, "closed-form", **job).step_time_s
    torus = system.fabric is not None and system.fabric.topology == "torus"
    assert step(plan, "flow", **job).step_time_s == pytest.approx(closed, rel=0.03 if torus else 0.01)


def test_experts_agree_too():
    plan, moe = {"ep": 8}, {"model": "qwen3-30b-a3b"}
    flow, closed = step(plan, "flow", **moe), step(plan, "closed-form", **moe)
    assert flow.step_time_s == pytest.approx(closed.step_time_s, rel=0.01)


@pytest.mark.parametrize(
    "fault",
    [
        {"nic": "node0.nic0", "bandwidth": "25 %"},
        {"link": ["node1.nic3", "leaf0.3"], "down": True},
        {"link": ["node0.gpu1", "node0.nvswitch"], "bandwidth": "20 %"},
        {"node": 1, "latency": "50 us"},
        {"switch": "leaf0.2", "bandwidth": "10 %"},
    ],
)
def test_faults_of_links_cost_time(fault):
    plan = {"tp": 4, "zero_stage": 3}
    assert step(plan, "flow", fault).step_time_s > step(plan).step_time_s


def test_links_and_accelerators_at_fault_add_up():
    plan, slow = {"tp": 8}, {"accelerator": 3, "speed": "80 %"}
    both = step(plan, "flow", slow, {"link": ["node0.gpu1", "node0.nvswitch"], "bandwidth": "20 %"})
    assert both.step_time_s > step(plan, "flow", slow).step_time_s > step(plan).step_time_s
    assert sum(leaf.seconds for leaf in both.breakdown.leaves()) == pytest.approx(both.step_time_s, rel=1e-9)


def test_a_partition_is_an_answer_without_times():
    report = step({"tp": 8}, "flow", {"accelerator": 5, "down": True})
    (violation,) = report.violations
    assert (report.feasible, report.step_time_s, violation.kind) == (False, None, "network")
    assert violation.message == (
        "no live path joins accelerator 5 (node0.gpu5) with the other 15, with 2 links down: tp group 0 spans them. "
        "Try another placement or fewer faults."
    )
    assert report.to_dict()["scenario"]["faults"] == [{"accelerator": 5, "down": True}]


def test_resolved_faults_are_read_back_and_named_by_the_hash():
    fault = {"random": {"links": 2, "seed": 7}, "bandwidth": "50 %"}
    scenario = from_mapping({**TRAINING, "network": "flow", "faults": [fault, {"node": 0, "speed": 0.9}]})
    again = from_mapping(scenario.to_mapping())
    assert (again.network, again.faults, again.hash) == (scenario.network, scenario.faults, scenario.hash)
    assert scenario.hash != from_mapping(TRAINING).hash


def served(network="closed-form", *faults):
    return predict(from_mapping({**INFERENCE, "network": network, "faults": faults}))


@pytest.mark.parametrize("network", ["closed-form", "flow"])
def test_the_slowest_replica_is_what_a_batch_waits_for(network):
    healthy = served(network)
    hurt = served(network, {"accelerator": 6, "speed": "50 %"})
    assert hurt.tpot_s > 1.3 * healthy.tpot_s
    for phase in hurt.phases.values():
        assert sum(leaf.seconds for leaf in phase.leaves()) == pytest.approx(phase.seconds, rel=1e-9)
    assert served(network, {"accelerator": 1, "speed": "50 %"}).tpot_s == pytest.approx(hurt.tpot_s)


def test_inference_agrees_and_feels_its_links():
    assert served("flow").e2e_s == pytest.approx(served().e2e_s, rel=0.02)
    slow = served("flow", {"link": ["gpu1", "nvswitch"], "bandwidth": "5 %"})
    assert slow.e2e_s > served("flow").e2e_s


def test_512_accelerators_take_a_moment():
    scenario = from_mapping(
        {
            **TRAINING,
            "accelerators": 512,
            "parallelism": {"tp": 8, "pp": 2},
            "workload": {**TRAINING["workload"], "global_batch_size": 512},
            "network": "flow",
            "faults": [{"nic": "node0.nic0", "bandwidth": "50 %"}],
        }
    )
    assert evaluate(scenario).step_time_s[0] > 0


def test_axes_that_overlap_on_the_same_links_share_them(monkeypatch):
    """Context-parallel traffic crosses the cards over which gradients are reduced behind the backward pass."""
    from rapid_llm.execution import meeting

    plan, job = {"tp": 4, "cp": 4}, {"accelerators": 64, "workload": {**TRAINING["workload"], "sequence_length": 65536}}
    together = step(plan, **job).step_time_s
    monkeypatch.setattr(meeting, "meet", lambda *_, **__: (0.0, 0.0))
    assert together > step(plan, **job).step_time_s


def test_the_report_says_which_policy_won_and_what_a_healthy_step_takes():
    plan = {"tp": 4}
    report = step(plan, "flow", {"nic": "node0.nic0", "bandwidth": "50 %"})
    assert report.faults.healthy_s == step(plan).step_time_s < report.step_time_s
    hurt = {one.op: one for one in report.faults.messages}
    assert {one.axis for one in report.faults.messages} == {"dp"}
    assert hurt["reduce_scatter"].policy == "replan"
    assert 1 < hurt["reduce_scatter"].slowdown < hurt["reduce_scatter"].detour_slowdown
    said = report.to_dict()["faults"]
    assert said["healthy_s"] == report.faults.healthy_s
    assert said["messages"][0]["policy"] in {"detour", "replan"}
    assert step(plan).faults is None


def test_slow_accelerators_alone_need_no_policy():
    report = step({"tp": 8}, "closed-form", {"accelerator": 3, "speed": "80 %"})
    assert report.faults.messages == ()
    assert report.faults.healthy_s < report.step_time_s


def test_serving_says_so_too():
    report = served("flow", {"link": ["gpu1", "nvswitch"], "bandwidth": "20 %"})
    assert report.faults.healthy_s < report.e2e_s
    assert {one.axis for one in report.faults.messages} == {"tp"}


def test_links_that_were_drawn_are_named():
    fault = {"random": {"links": 2, "seed": 3}, "bandwidth": "50 %"}
    report = step({"tp": 8}, "flow", fault)
    named = report.faults.drawn_links
    assert len(named) == 2
    assert report.to_dict()["faults"]["drawn_links"] == list(named)
    assert report.faults.drawn_links == step({"tp": 8}, "flow", fault).faults.drawn_links
    written = [{"link": name.split(" - "), "bandwidth": "50 %"} for name in named]
    assert step({"tp": 8}, "flow", *written).step_time_s == report.step_time_s
    assert step({"tp": 8}, "flow", *written).faults.drawn_links == ()


def test_costs_add_up_to_the_step_where_faults_crowd_links():
    report = rapid_llm.train(
        "llama-3.1-8b", system="dgx-h100", accelerators=32, tp=8, zero_stage=3, global_batch_size=32,
        sequence_length=4096, network="flow", faults=[{"nic": "node1.nic3", "bandwidth": "10 %"}],
    )  # fmt: skip
    assert report.breakdown.seconds == pytest.approx(report.step_time_s, rel=1e-9)
