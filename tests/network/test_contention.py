"""A collective on the explicit topology agrees with its closed form, and faults slow it down."""

import numpy as np
import pytest

from rapid_llm import hardware
from rapid_llm.errors import InfeasibleError
from rapid_llm.network import Fabric, candidates
from rapid_llm.network.contention import contend
from rapid_llm.network.faults import apply, read_faults
from rapid_llm.network.topology import NODE_KINDS, Topology
from rapid_llm.nouns import replaced

DGX = hardware.system("dgx-h100")
SIZE = 2**28


def ask(op, ranks, stride=1, algorithm=None, size=SIZE):
    (best, *_) = candidates(op, size, ranks, stride, fabric=Fabric.of(DGX), library="nccl", algorithm=algorithm)
    return best


@pytest.mark.parametrize(
    ("op", "ranks", "stride", "algorithm"),
    [
        ("all_reduce", 8, 1, "ring"),
        ("all_reduce", 8, 1, "nvls"),
        ("all_reduce", 32, 1, "tree"),
        ("all_reduce", 4, 8, "ring"),
        ("all_gather", 16, 1, "ring"),
        ("all_to_all", 16, 1, "direct"),
    ],
)
def test_where_nothing_contends_both_agree(op, ranks, stride, algorithm):
    best = ask(op, ranks, stride, algorithm)
    got = contend(best, SIZE, Topology.of(DGX, ranks * stride))
    assert got.seconds == pytest.approx(best.seconds, rel=0.02)
    assert got.flow == pytest.approx(got.bare, rel=0.02)


def test_the_busiest_links_are_the_cards():
    got = contend(ask("all_to_all", 16, algorithm="direct"), SIZE, Topology.of(DGX, 16))
    name, moved, use = got.busiest(1)[0]
    assert name == "node0.nic0 > leaf0.0"
    assert moved == pytest.approx(SIZE * 8 / 16)
    assert use == pytest.approx(1, rel=0.01)
    boxes, kinds, values = got.by_box()
    assert boxes == ["network", "box 0", "box 1"]
    assert max(v for row in values for v in row if v is not None) == pytest.approx(use)
    assert len(values[0]) == len(kinds)


def test_a_fault_never_helps():
    best, whole = ask("all_gather", 16, algorithm="ring"), Topology.of(DGX, 16)
    times = [contend(best, SIZE, whole).seconds]
    for share in (1.0, 0.5, 0.25):
        hurt = apply(whole, read_faults([{"link": ["node0.nic0", "leaf0.0"], "bandwidth": share}]))
        times.append(contend(best, SIZE, hurt).seconds)
    assert times[1] == times[0]
    assert (np.diff(times[1:]) > 0).all()


REDUCING = replaced(DGX, fabric=replaced(DGX.fabric, in_network_reduction=True, leaf_nodes=4))


def of_switches(ranks, stride=1, topology="rail-optimized", over=1.0):
    system = replaced(REDUCING, fabric=replaced(REDUCING.fabric, topology=topology, oversubscription=over))
    (best,) = candidates("all_reduce", SIZE, ranks, stride, fabric=Fabric.of(system), library="nccl", algorithm="sharp")
    return best, Topology.of(system, ranks * stride)


@pytest.mark.parametrize(
    ("topology", "over"), [("rail-optimized", 1.0), ("leaf-spine", 1.0), ("leaf-spine", 2.0), ("fat-tree", 1.0)]
)
@pytest.mark.parametrize(("ranks", "stride"), [(32, 1), (64, 1), (4, 8), (16, 8), (16, 4)])
def test_switches_of_a_network_reduce_in_one_leaf_and_over_several(topology, over, ranks, stride):
    best, links = of_switches(ranks, stride, topology, over)
    got = contend(best, SIZE, links)
    assert got.flow == pytest.approx(got.bare, rel=0.01)
    assert got.seconds == pytest.approx(best.seconds, rel=0.01)


def test_what_a_leaf_has_reduced_goes_up_once():
    """64 ranks, eight in each of eight nodes, four to a leaf: S / 8 of each card, and no more of its leaf."""
    best, links = of_switches(64)
    got = contend(best, SIZE, links)
    top = got.topology
    for here, there in (("nic", "leaf"), ("leaf", "nic"), ("leaf", "spine"), ("spine", "leaf")):
        ends = np.array([(top.node_kind[a], top.node_kind[b]) for a, b in zip(top.source, top.target, strict=True)])
        links = (ends == (NODE_KINDS.index(here), NODE_KINDS.index(there))).all(axis=1)
        count = {"nic": 64}.get(here if here == "nic" else there, 16)
        assert got.link_bytes[links].sum() == pytest.approx(count * SIZE / 8)


def test_a_tree_goes_round_spines_that_are_down():
    best, whole = of_switches(64)
    down = apply(whole, read_faults([{"switch": f"spine{k}", "down": True} for k in range(2)]))
    assert contend(best, SIZE, down).seconds == pytest.approx(contend(best, SIZE, whole).seconds)
    cut = apply(whole, read_faults([{"link": ["node0.nic0", "leaf0.0"], "down": True}]))
    with pytest.raises(InfeasibleError, match=r"to a switch that reduces"):
        contend(best, SIZE, cut)


@pytest.mark.parametrize(("ranks", "cards"), [(63, 7), (62, 6), (59, 3), (31, 7), (15, 7), (14, 6), (11, 3)])
@pytest.mark.parametrize("op", ["all_reduce", "all_gather", "reduce_scatter"])
def test_rings_take_the_cards_that_the_last_node_has(op, ranks, cards):
    """Seven of eight are 8/7 slower, not eight times; closed form and links are one number."""
    fabric, links, size = Fabric.of(DGX, ranks), Topology.of(DGX, -(-ranks // 8) * 8), 2.0**32
    (best, *_) = candidates(op, size, ranks, 1, fabric=fabric, library="nccl", algorithm="ring")
    got = contend(best, size, links)
    assert got.flow == pytest.approx(got.bare, rel=0.01)
    moved = size * (ranks - 1) / ranks * (2 if op == "all_reduce" else 1)
    assert got.bare == pytest.approx(moved / (cards * 50e9), rel=0.01)
    name, carried, _ = got.busiest(1)[0]
    assert (".nic" in name, carried) == (True, pytest.approx(moved / cards))


@pytest.mark.parametrize("ranks", [15, 63])
def test_a_node_that_is_not_full_costs_its_share_of_the_cards(ranks):
    whole, some = (ask("all_gather", n, algorithm="ring", size=2**32).seconds / 2**32 for n in (ranks + 1, ranks))
    assert 1.0 < some / whole < 1.2
