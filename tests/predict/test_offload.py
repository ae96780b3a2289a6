"""Offload: what leaves the accelerator stands on the host, and what crosses the link takes its time or hides."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rapid_llm import InputError, predict
from rapid_llm.predict import fit
from rapid_llm.scenario import from_mapping

GB = 1e9
WORK = {"kind": "training", "global_batch_size": 16, "sequence_length": 4096}
BASE = {
    "model": "llama-3.1-8b",
    "system": "dgx-h100",
    "accelerators": 8,
    "runtime": "deepspeed",
    "parallelism": {"zero_stage": 3},
}


def scenario(offload=None, *, plan=None, node=None, **work):
    mapping = {**BASE, "workload": {**WORK, **work, **({"offload": offload} if offload else {})}}
    mapping["parallelism"] = plan or BASE["parallelism"]
    if node:
        mapping["system"] = {"base": "dgx-h100", "node": node}
    return from_mapping(mapping)


def report(offload=None, **changes):
    return predict(scenario(offload, **changes), allow_infeasible=True)


def leaf(found, name):
    return next(leaf for leaf in found.breakdown.leaves() if leaf.name == name)


def test_nothing_offloaded_is_as_before():
    empty = {"optimizer": False, "gradients": 0.0, "weights": 0.0, "activations": 0.0}
    assert report(empty).step_time_s == report().step_time_s
    assert report(empty).memory == report().memory
    assert report().memory.host_bytes == 0


def test_zero_offload_leaves_two_bytes_a_parameter():
    """ZeRO-Offload, arXiv 2101.06840, section 3: fp16 weights stay (2 bytes), gradients (2) and fp32 states (12) go."""
    one = {"precision": {"base": "bf16-mixed", "gradients": "bf16"}, "accelerators": 1, "parallelism": {}}
    work = {**WORK, "offload": {"optimizer": True, "gradients": 1.0}}
    use = fit(from_mapping({**BASE, **one, "workload": work})).memory
    parameters = 8_030_261_248
    assert use.by_category["weights"] == 2 * parameters
    assert use.by_category["gradients"] == use.by_category["optimizer"] == 0
    assert use.host_bytes == 14 * parameters


shares = st.floats(0.0, 1.0)


@settings(max_examples=25, deadline=None)
@given(optimizer=shares, gradients=shares, weights=shares, activations=shares)
def test_the_host_holds_what_the_accelerator_no_longer_does(optimizer, gradients, weights, activations):
    moved = {"optimizer": optimizer, "gradients": gradients, "weights": weights, "activations": activations}
    use, whole = fit(scenario(moved)).memory, fit(scenario()).memory
    staging = use.by_category["workspace"] - whole.by_category["workspace"]
    assert 0 <= staging <= use.host_bytes + 1
    assert whole.allocated_bytes - use.allocated_bytes == pytest.approx(use.host_bytes - staging, abs=8)


@settings(max_examples=25, deadline=None)
@given(less=shares, more=shares, what=st.sampled_from(["optimizer", "gradients", "weights", "activations"]))
def test_more_offload_never_needs_more_of_the_accelerator(less, more, what):
    less, more = sorted((less, more))
    some, most = fit(scenario({what: less})).memory, fit(scenario({what: more})).memory
    assert most.persistent_bytes <= some.persistent_bytes + 1
    assert most.peak_bytes <= some.peak_bytes + 8


def test_fit_and_predict_agree():
    offload = {"optimizer": 0.5, "activations": 0.5}
    assert fit(scenario(offload)).memory == report(offload).memory


@settings(max_examples=10, deadline=None)
@given(slow=st.floats(5, 100), fast=st.floats(5, 100), stage=st.sampled_from([1, 2, 3]))
def test_a_faster_host_link_is_never_slower(slow, fast, stage):
    everything = {"optimizer": True, "gradients": 1.0, "weights": float(stage == 3), "activations": 1.0}
    times = [
        report(
            everything,
            plan={"zero_stage": stage},
            node={"host_link": {"link": "pcie5-x16", "bandwidth": f"{rate} GB/s"}},
        ).step_time_s
        for rate in sorted((slow, fast))
    ]
    assert times[1] <= times[0] * (1 + 1e-12)


def test_the_cpus_update_at_their_share_of_the_bandwidth_of_their_memory():
    """A gradient (4 bytes) is scaled in place and read, 12 bytes of states are read and written, the master is cast and
    the weight goes through the driver's buffer: 48 bytes. Of Adam's own 30, ZeRO-Offload's table 4 says 0.46 of the
    bandwidth (10 billion parameters in 2.57 s at 256 GB/s)."""
    found = report({"optimizer": True})
    seconds = 48 * 8_030_261_248 / 8 / (0.46 * 492 * GB / 8)
    assert pytest.approx(2.57, rel=0.03) == 30 * 10 / (0.46 * 256)
    assert leaf(found, "optimizer on the host").seconds == pytest.approx(seconds)
    assert sum(leaf.seconds for leaf in found.breakdown.leaves()) == pytest.approx(found.step_time_s)
    slower = report({"optimizer": True}, node={"host_memory_bandwidth": "246 GB/s"})
    assert leaf(slower, "optimizer on the host").seconds == pytest.approx(2 * seconds)


def test_copies_hide_behind_passes_that_are_longer():
    """Weights of 1/8 of 16 GB up and as many gradients down: 32 ms each, and a backward pass takes longer. What the
    CPUs updated goes up behind them."""
    found = leaf(report({"optimizer": True, "gradients": 1.0}), "offload")
    once = 2 * 8_030_261_248 / 8 / 63.015e9
    assert found.seconds == pytest.approx(once)
    assert found.hidden_seconds == pytest.approx(2 * once)  # the gradients of two micro-batches
    far = {"host_link": {"link": "pcie5-x16", "bandwidth": "1 GB/s"}}
    shown = leaf(report({"optimizer": True, "gradients": 1.0}, node=far), "offload")
    assert shown.seconds > 1.0


def test_a_step_that_waits_for_the_host_link_says_so():
    far = {"host_link": {"link": "pcie5-x16", "bandwidth": "0.2 GB/s"}}
    assert report({"weights": 1.0}, node=far).bound_by.startswith("host link (offload): ")


def test_activations_need_a_link_that_keeps_up():
    bound = {"node": {"host_link": {"link": "pcie5-x16", "bandwidth": "2 GB/s"}}, "recompute": "none"}
    assert leaf(report({"activations": 1.0}, **bound), "offload").seconds > 0
    assert leaf(report({"activations": 1.0}), "offload").seconds == 0  # checkpoints alone, under full recompute


def test_drives_pace_the_states_on_them():
    """24 bytes of states a parameter are read or written, at 25 GB/s for all accelerators of a node."""
    offload = {"optimizer": True, "to": "nvme"}
    slow = report(offload, node={"nvme": "25 GB/s"})
    host = report({"optimizer": True})
    update = leaf(host, "optimizer on the host").seconds
    drives = 24 * 8_030_261_248 / (25 * GB)
    assert slow.step_time_s - host.step_time_s >= 0.99 * (drives - update)


def test_drives_that_a_node_lacks():
    with pytest.raises(InputError) as failure:
        scenario({"optimizer": True, "to": "nvme"})
    assert str(failure.value) == (
        "workload.offload.to nvme needs drives, and a node of dgx-h100 has none. "
        "Try system.node.nvme: 25 GB/s, or to: host."
    )


def test_weights_leave_where_they_are_sharded():
    with pytest.raises(InputError) as failure:
        scenario({"weights": 1.0}, plan={"zero_stage": 2})
    assert str(failure.value) == (
        "workload.offload.weights needs parallelism.zero_stage 3 (got 2): below it every rank computes with whole "
        "weights that stay on the accelerator. Try zero_stage 3, or offload.optimizer."
    )


def test_megatron_core_offloads_no_activations_of_a_pipeline():
    mapping = {**BASE, "runtime": "megatron-core", "workload": {**WORK, "offload": {"activations": 0.5}}}
    assert from_mapping({**mapping, "parallelism": {"tp": 2}})
    with pytest.raises(InputError) as failure:
        from_mapping({**mapping, "parallelism": {"pp": 2}})
    assert str(failure.value) == (
        "workload.offload.activations goes with parallelism.pp 1 in megatron-core (got pp 2): it keeps track of one "
        "micro-batch. Try pp 1, or recompute: full."
    )


def test_a_share_is_between_none_and_all():
    with pytest.raises(InputError, match=r"workload\.offload\.weights"):
        scenario({"weights": 1.5})


SHARED = {
    "model": "llama-3.1-8b",
    "system": "gb10",
    "workload": {"kind": "training", "global_batch_size": 1, "sequence_length": 128},
}


def test_one_memory_offers_no_offload_to_the_host():
    (violation,) = fit(from_mapping(SHARED)).violations
    assert not any("offload" in fix.change for fix in violation.fixes)


def test_one_memory_has_nowhere_to_offload_to():
    work = {**SHARED["workload"], "offload": {"optimizer": True}}
    with pytest.raises(InputError) as caught:
        fit(from_mapping({**SHARED, "runtime": "deepspeed", "workload": work}))
    assert str(caught.value) == (
        "workload.offload moves nothing on gb10: its accelerators and their host share one memory. "
        "Try to leave it out, or to: nvme."
    )
