"""Messages priced link by link: as the closed form where nothing contends, never faster with faults."""

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from rapid_llm import hardware
from rapid_llm.errors import InfeasibleError, InputError
from rapid_llm.network import Fabric, candidates, price
from rapid_llm.network.faults import read_faults
from rapid_llm.network.flow_prices import Carrier, Links, interconnect, price_flow, under_faults
from rapid_llm.network.groups import members_of
from rapid_llm.nouns import replaced

DGX = hardware.system("dgx-h100")


def seconds(op, size, ranks, stride, *faults, system=DGX, accelerators=64, axis=""):
    net = interconnect(system, Links(accelerators, read_faults(faults)))
    return price_flow(op, size, ranks, stride, Carrier(net, Fabric.of(system), "nccl"), axis=axis).seconds


@pytest.mark.parametrize(
    ("system", "op", "ranks", "stride", "size"),
    [
        ("dgx-h100", "all_reduce", 8, 1, 2**26),
        ("dgx-h100", "all_gather", 8, 8, 2**28),
        ("dgx-h100", "reduce_scatter", 4, 16, 2**30),
        ("dgx-h100", "all_to_all", 64, 1, 2**20),
        ("dgx-h100", "send_recv", 2, 32, 2**24),
        ("dgx-h100", "all_reduce", 64, 1, 2**30),
        ("mi300x-8", "all_gather", 8, 1, 2**28),
        ("l40s-pcie-8", "all_gather", 8, 1, 2**28),
        ("gb200-nvl72", "all_gather", 64, 1, 2**28),
    ],
)
def test_where_nothing_contends_both_agree(system, op, ranks, stride, size):
    known = hardware.system(system)
    closed = price(op, size, ranks, stride, fabric=Fabric.of(known), library="nccl")
    assert seconds(op, size, ranks, stride, system=known) == pytest.approx(closed.seconds, rel=0.01)


def test_rows_keep_their_shape_and_groups_of_one_are_free():
    got = seconds("all_gather", [[2**20, 2**21], [2**20, 0]], [[8, 8], [1, 8]], 1)
    assert got.shape == (2, 2)
    assert got[0, 1] > got[0, 0] > 0
    assert got[1].tolist() == [0, 0]


def test_groups_of_a_job():
    assert members_of(8, 2, 2).tolist() == [[0, 2], [1, 3], [4, 6], [5, 7]]
    assert members_of(8, 2, 6).tolist() == [[0, 6], [1, 7]]  # the first and the last of four stages
    assert members_of(8, 4, 2).tolist() == [[0, 2, 4, 6], [1, 3, 5, 7]]


def test_the_slowest_group_decides():
    near = {"nic": "node5.nic3", "latency": "20 us"}
    assert seconds("all_gather", 2**20, 4, 16, near) > seconds("all_gather", 2**20, 4, 16) + 20e-6
    assert seconds("all_gather", 2**28, 8, 1, near) == seconds("all_gather", 2**28, 8, 1)


@pytest.mark.parametrize("fault", [{"bandwidth": "50 %"}, {"bandwidth": "1 %"}, {"down": True}])
def test_groups_of_one_rank_a_node_share_a_hurt_rail_out(fault):
    """The traffic of a hurt card leaves over the other seven of its node, of which each carries a seventh more."""
    healthy, hurt = (seconds("all_gather", 2**30, 8, 8, *faults) for faults in ([], [{"nic": "node0.nic0", **fault}]))
    assert hurt == pytest.approx(healthy * 8 / 7, rel=0.02)


def test_groups_that_share_uplinks_run_at_once():
    """A leaf has a quarter of its downlinks' bandwidth upwards, which the data-parallel groups of all ranks below it
    share: four of the seven peers of each rank are beyond it.
    """
    oversubscribed = replaced(DGX, fabric=replaced(DGX.fabric, topology="leaf-spine", oversubscription=4.0))
    whole = replaced(DGX, fabric=replaced(DGX.fabric, topology="leaf-spine"))
    thin, wide = (seconds("all_to_all", 2**30, 8, 8, system=system) for system in (oversubscribed, whole))
    assert thin == pytest.approx(4 * 4 / 7 * wide, rel=0.01)


def test_a_reducing_switch_that_cannot_be_reached_is_done_without():
    hurt = {"link": ["node0.gpu0", "node0.nvswitch"], "bandwidth": "10 %"}
    assert seconds("all_reduce", 2**28, 8, 1, hurt) > seconds("all_reduce", 2**28, 8, 1)


def test_a_partition_names_the_ranks_it_cuts_off():
    with pytest.raises(InfeasibleError) as error:
        seconds("all_gather", 2**20, 8, 8, {"accelerator": 24, "down": True}, axis="dp")
    assert error.value.message == (
        "no live path joins accelerator 24 (node3.gpu0) with the other 63, with 2 links down: dp group 0 spans them. "
        "Try another placement or fewer faults."
    )


def test_faults_that_the_job_does_not_have():
    with pytest.raises(InputError, match=r"has no node 'node9.nic0'"):
        seconds("all_gather", 2**20, 8, 8, {"nic": "node9.nic0", "down": True})


@given(
    st.integers(0, 10**6),
    st.integers(1, 3),
    st.sampled_from([{"bandwidth": 0.5}, {"bandwidth": 0.05}, {"latency": "5 us"}, {"down": True}]),
    st.sampled_from(
        [("all_reduce", 8, 1), ("all_reduce", 16, 1), ("all_gather", 2, 8), ("all_to_all", 16, 1), ("send_recv", 2, 8)]
    ),
)
@settings(max_examples=30, deadline=None)
def test_a_fault_never_helps(seed, links, effect, message):
    op, ranks, stride = message
    size = np.array([2**14, 2**24])
    try:
        hurt = seconds(op, size, ranks, stride, {"random": {"links": links, "seed": seed}, **effect}, accelerators=16)
    except InfeasibleError:  # cut off
        assert effect == {"down": True}
        assume(False)
    assert (hurt >= seconds(op, size, ranks, stride, accelerators=16)).all()


def hurt(fault, op="all_reduce", size=2**28, ranks=64):
    net = interconnect(DGX, Links(ranks, read_faults([fault])))
    best = candidates(op, size, ranks, 1, fabric=Fabric.of(DGX), library="nccl")[0]
    return under_faults(best, size, net), under_faults(best, size, interconnect(DGX, Links(ranks)))


@pytest.mark.parametrize("fault", [{"down": True}, {"bandwidth": "50 %"}, {"bandwidth": "20 %"}])
def test_a_library_that_plans_again_drops_the_hurt_rail(fault):
    """Seven rails carry what eight did; a detour puts it on a neighbour's card, or waits for the slow one."""
    found, whole = hurt({"nic": "node1.nic3", **fault})
    assert found.plan == "without rail 3"
    assert found.best.seconds == found.replan < found.detour
    assert found.replan == pytest.approx(whole.best.seconds * 8 / 7, rel=0.04)  # hops take what they took
    into = {name: moved for name, moved, _ in found.best.busiest(10_000) if name.endswith(".nic3")}
    assert not any(moved for name, moved in into.items() if name.startswith("leaf"))


def test_a_rail_that_is_hardly_hurt_is_kept():
    found, whole = hurt({"nic": "node1.nic3", "bandwidth": "95 %"})
    assert found.plan == "the same plan"
    assert whole.best.seconds < found.best.seconds == found.detour == found.replan < 1.1 * whole.best.seconds


@given(
    st.integers(0, 10**6),
    st.sampled_from([{"down": True}, {"bandwidth": 0.5}, {"latency": "5 us"}]),
    st.sampled_from(["all_reduce", "all_gather", "all_to_all"]),
)
@settings(max_examples=20, deadline=None)
def test_neither_policy_is_faster_than_no_fault(seed, effect, op):
    try:
        found, whole = hurt({"random": {"links": 2, "seed": seed}, **effect}, op, 2**24, 32)
    except InfeasibleError:
        assert effect == {"down": True}
        assume(False)
    assert found.best.seconds == min(found.detour, found.replan)
    assert min(found.detour, found.replan) >= whole.best.seconds * (1 - 1e-9)
    assert found.replan <= found.detour
