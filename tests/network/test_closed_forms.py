"""Closed forms with nothing but bandwidth and latency, against the textbook (Thakur 2005; Patarasuk and Yuan 2009)."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rapid_llm import hardware
from rapid_llm.errors import InputError
from rapid_llm.network import (
    ALGORITHMS,
    OPS,
    Fabric,
    Library,
    LinkCost,
    Protocol,
    Tier,
    bus_bandwidth,
    candidates,
    price,
)
from rapid_llm.network.groups import group_of
from rapid_llm.units import Si

from .toys import fabric, leaf, library, node

S, B, L = 64e6, 100e9, 1e-6


def seconds(op, algorithm, ranks, *tiers, size=S, stride=1):
    return price(op, size, ranks, stride, fabric=fabric(*tiers), library=library(algorithm)).seconds.item()


@pytest.mark.parametrize("n", [2, 3, 4, 8])
def test_ring(n):
    tier = node(bandwidth=B, latency=L)
    step = S / n / B + L
    assert seconds("all_reduce", "ring", n, tier) == pytest.approx(2 * (n - 1) * step)
    assert seconds("all_gather", "ring", n, tier) == pytest.approx((n - 1) * step)
    assert seconds("reduce_scatter", "ring", n, tier) == pytest.approx((n - 1) * step)
    assert seconds("broadcast", "ring", n, tier) == pytest.approx(S / B + (n - 1) * L)


def test_direct_exchange_and_point_to_point():
    assert seconds("all_to_all", "direct", 8, node(latency=L)) == pytest.approx(L + S * 7 / 8 / B)
    assert seconds("send_recv", "p2p", 8, node(latency=L)) == pytest.approx(L + S / B)


def test_one_shot_and_two_shot():
    assert seconds("all_reduce", "one-shot", 8, node(latency=L)) == pytest.approx(L + 7 * S / B)
    assert seconds("all_reduce", "two-shot", 8, node(latency=L)) == pytest.approx(2 * L + 2 * S * 7 / 8 / B)


@pytest.mark.parametrize(("n", "gain"), [(8, 14 / 9), (4, 6 / 5)])
def test_switch_reduction_sends_less_than_a_ring(n, gain):
    tier = node(span=n, in_network_reduction=True)
    assert seconds("all_reduce", "nvls", n, tier) == pytest.approx(S * (n + 1) / n / B)
    assert seconds("all_reduce", "ring", n, tier) / seconds("all_reduce", "nvls", n, tier) == pytest.approx(gain)


def test_double_binary_tree_of_single_ranks():
    assert seconds("all_reduce", "tree", 8, leaf(bandwidth=B, latency=L)) == pytest.approx(2 * S / B + 2 * 3 * L)
    assert seconds("all_reduce", "tree", 2, leaf(bandwidth=B, latency=L)) == pytest.approx(S / B + 2 * L)


def test_halving_and_doubling_needs_fewer_rounds():
    both, back = 2 * S * 7 / 8 / B + 2 * 3 * L, S * 7 / 8 / B + 3 * L
    assert seconds("all_reduce", "halving-doubling", 8, node(bandwidth=B, latency=L)) == pytest.approx(both)
    assert seconds("all_gather", "halving-doubling", 8, node(bandwidth=B, latency=L)) == pytest.approx(back)


def test_two_rings_cost_as_one_on_ports_that_carry_both():
    one, two = (seconds("all_reduce", name, 8, node(latency=L)) for name in ("ring", "two-way-ring"))
    assert one == two


def test_every_order_of_a_torus_at_once():
    """4 x 4 with links of 400 Gb/s, 32 MiB: packet-level 322 us (ns-3 patterns); 2 (1 - 1/n) S over all four links."""
    torus = Tier("torus", 16, 4 * 50e9, L, "toy", "torus", "intra", dimensions=2)
    got = seconds("all_reduce", "orders", 16, torus, size=2**25)
    assert got == pytest.approx(2 * 15 / 16 * 2**25 / 200e9 + 2 * 2 * 3 * L)
    assert got == pytest.approx(322e-6, rel=0.03)


def test_orders_over_tiers_keep_both_busy():
    inside, between = node(span=4, bandwidth=10e9), leaf(bandwidth=10e9)
    stages = 2 * max(S / 2 * 3 / 4, S / 2 * 3 / 4) / 10e9 + 2 * S / 8 * 3 / 4 / 10e9
    assert seconds("all_reduce", "orders", 16, inside, between) == pytest.approx(stages)


def test_reduction_in_the_network_sends_each_byte_once():
    switch = Tier("leaf", 1024, 10e9, L, "toy", "switch", "inter", True)
    assert seconds("all_reduce", "sharp", 64, node(bandwidth=1e12), switch) == pytest.approx(S / 8 / 10e9 + 2 * L)


def test_exchange_along_rails_speaks_to_fewer_peers():
    cost = LinkCost(launch=0, step=0, efficiency=1.0, peer=Si(1e-6))
    for algorithm, others in (("direct", 63), ("pxn", 7 + 7)):
        toy = library(algorithm, link=cost)
        got = price("all_to_all", S, 64, 1, fabric=fabric(node(), leaf()), library=toy).seconds
        assert got == pytest.approx(S * 56 / 64 / 10e9 + others * 1e-6)


def circulate(rounds: int, hop: np.ndarray, transfer: np.ndarray) -> float:
    """Seconds until the last block has made ``rounds`` hops on a ring of edges: an edge carries one block at a time, a
    block leaves once it has arrived (notes: max-plus recurrence of a ring).
    """
    arrived, free = np.zeros(len(hop)), np.zeros(len(hop))
    for _ in range(rounds):
        free = np.maximum(arrived, free) + transfer
        arrived = np.roll(free + hop, 1)
    return float(arrived.max())


@pytest.mark.parametrize("size", [1e4, 1e6, 1e7, 1e8, 1e9])
def test_ring_over_nodes_is_that_of_circulating_blocks(size):
    inside, between = node(bandwidth=100e9, latency=L), leaf(bandwidth=10e9, latency=3 * L)
    far = np.arange(32) % 8 == 7
    hop, rate = np.where(far, 3 * L, L), np.where(far, 8 * 10e9, 100e9)  # channels enter a node over all of its cards
    exact = circulate(2 * 31, hop, size / 32 / rate)
    toy = library("ring")
    got = price("all_reduce", size, 32, 1, fabric=fabric(inside, between), library=toy).seconds.item()
    assert got == pytest.approx(exact, rel=0.02)


def test_hierarchical_all_reduce_is_the_sum_of_its_parts():
    inside, between = node(bandwidth=100e9), leaf(bandwidth=10e9)
    parts = 2 * S * 7 / 8 / 100e9 + 2 * (S / 8) * 3 / 4 / 10e9
    assert seconds("all_reduce", "hierarchical", 32, inside, between) == pytest.approx(parts)


def test_a_group_with_one_rank_a_node_uses_its_own_card():
    inside, between = node(), leaf(bandwidth=10e9)
    assert seconds("all_gather", "ring", 4, inside, between, stride=8) == pytest.approx(S * 3 / 4 / 10e9)


def test_exchange_over_nodes_sends_the_far_share_through_the_cards():
    assert seconds("all_to_all", "direct", 32, node(), leaf(bandwidth=10e9)) == pytest.approx(S * 24 / 32 / 10e9)


def test_exchange_on_a_ring_takes_the_mean_distance():
    port = 2 * 50e9  # two links of B = 50 GB/s: S n / (8 B), ties split
    tier = node(span=8, bandwidth=port, kind="ring")
    assert seconds("all_to_all", "direct", 8, tier) == pytest.approx(S * 8 / (8 * 50e9))


def test_full_mesh_gives_a_small_group_its_own_links_only():
    tier = node(span=8, bandwidth=70e9, kind="full")
    assert seconds("send_recv", "p2p", 2, tier) == pytest.approx(S / 10e9)
    assert seconds("all_to_all", "direct", 8, tier) == pytest.approx(S * 7 / 8 / 70e9)


def test_units_behind_a_host_bridge_share_one_crossing():
    pair, host = node(span=2, bandwidth=300e9, kind="full"), node(span=4, bandwidth=30e9, kind="shared")
    assert seconds("all_reduce", "ring", 4, pair, host) == pytest.approx(2 * S * 3 / 4 / 30e9)


def test_ramp_is_the_best_slicing():
    cost = LinkCost(launch=0, step=0, efficiency=1.0, slice=Si(1e-6))
    toy = library("ring", link=cost)
    ramped = type(toy)(
        name="toy",
        protocols={"only": type(toy.protocols["only"])(algorithms=("ring",), ramp=1.0)},
        links=toy.links,
    )
    w = S * 7 / 8 / B
    got = price("all_gather", S, 8, 1, fabric=fabric(), library=ramped).seconds
    assert got == pytest.approx(w + 2 * np.sqrt(1e-6 * w))


def test_a_fence_is_paid_on_every_hop_and_trees_keep_their_share():
    cost = LinkCost(launch=0, step=0, efficiency=1.0, fence=Si(9e-6))
    fenced = Protocol(algorithms=("ring", "tree"), fence=1, tree=0.8)
    toy = Library(name="toy", protocols={"only": fenced}, links={"intra": cost, "inter": cost})
    two = fabric(leaf(bandwidth=10e9))
    assert price("all_gather", S, 8, 1, fabric=two, library=toy).seconds == pytest.approx(S * 7 / 8 / 10e9 + 7 * 9e-6)
    times = {c.algorithm: c.seconds for c in candidates("all_reduce", S, 8, fabric=two, library=toy)}
    assert times == pytest.approx({"ring": 2 * S * 7 / 8 / 10e9 + 14 * 9e-6, "tree": 2 * S / 10e9 / 0.8 + 6 * 9e-6})


def test_a_protocol_that_a_link_lacks_is_not_used():
    pair = Fabric.of(hardware.system("rtx-4090-2"))
    found = [candidates("all_gather", size, 2, fabric=pair, library="nccl") for size in (1e3, S)]
    assert [[c.protocol for c in one] for one in found] == [["LL", "Simple"], ["Simple", "LL"]]  # LL128 needs NVLink


def test_bus_bandwidth_as_nccl_tests_defines_it():
    assert bus_bandwidth("all_reduce", 1e9, 8, 1e-2) == pytest.approx(100e9 * 1.75)
    assert bus_bandwidth("all_gather", 1e9, 8, 1e-2) == pytest.approx(100e9 * 0.875)
    assert bus_bandwidth("send_recv", 1e9, 2, 1e-2) == pytest.approx(100e9)


def test_rows_and_results():
    got = price(
        [0, 1, 0], [1e6, 2e6, 3e6], [8, 16, 1], [1, 8, 4], fabric=fabric(node(), leaf()), library=library("ring")
    )
    assert [ALGORITHMS[a] for a in got.algorithm] == ["ring", "ring", "none"]
    assert got.nodes.tolist() == [1, 16, 1]
    assert got.wire_bytes == pytest.approx([1.75e6, 15 / 16 * 2e6, 0])
    assert got.seconds[2] == 0


def test_no_rows():
    empty = np.array([], dtype=int)
    got = price(empty, empty, empty, empty, fabric=fabric(), library="nccl")
    assert got.seconds.shape == got.nodes.shape == (0,)


@pytest.mark.parametrize("op", OPS)
def test_a_group_of_one_moves_nothing_anywhere(op):
    got = price(op, 1e9, 1, 1, fabric=Fabric.of(hardware.system("h100-sxm")), library="nccl")
    assert (got.seconds, got.wire_bytes) == (0, 0)


_GROUPS = st.sampled_from([(2, 1), (4, 1), (8, 1), (2, 8), (16, 1), (64, 1), (8, 8), (32, 8), (256, 1)])
_CLUSTERS = st.sampled_from(
    ["dgx-h100", "dgx-a100", "gb200-nvl72", "p5", "mi300x-8", "lumi-g", "a3-mega", "l40s-pcie-8"]
)


@given(op=st.sampled_from(OPS), group=_GROUPS, cluster=_CLUSTERS, size=st.floats(1, 1e11), factor=st.floats(1, 100))
def test_more_bytes_are_never_faster(op, group, cluster, size, factor):
    got = price(op, [size, size * factor], *group, fabric=Fabric.of(hardware.system(cluster)), library="nccl").seconds
    assert got[0] <= got[1] * (1 + 1e-12)
    assert got[0] > 0


@given(op=st.sampled_from(OPS), group=_GROUPS, size=st.floats(1, 1e11), inner=st.floats(1, 10), outer=st.floats(1, 10))
def test_more_bandwidth_is_never_slower(op, group, size, inner, outer):
    slow = fabric(node(in_network_reduction=True), leaf())
    fast = fabric(node(bandwidth=100e9 * inner, in_network_reduction=True), leaf(bandwidth=10e9 * outer))
    before, after = (price(op, size, *group, fabric=f, library="nccl").seconds.item() for f in (slow, fast))
    assert after <= before * (1 + 1e-12)


@given(op=st.sampled_from(OPS), group=_GROUPS, cluster=_CLUSTERS, size=st.floats(1e3, 1e11))
def test_no_link_carries_more_than_it_can(op, group, cluster, size):
    """Lower bound: what a rank must receive from outside its node, over the card share of the whole node."""
    system = Fabric.of(hardware.system(cluster))
    got = price(op, size, *group, fabric=system, library="nccl")
    ranks, stride = group
    inside = max(1, min(ranks, system.node_span // stride))
    if got.nodes > 1 and op == "all_gather":
        assert got.seconds >= size * (1 - inside / ranks) / inside / system.tiers[-1].bandwidth * (1 - 1e-9)


def test_order_of_rows_changes_nothing():
    rng = np.random.default_rng(1)
    rows = [
        np.array(c)
        for c in zip(
            *[(rng.integers(6), 10 ** rng.uniform(2, 9), 2 ** rng.integers(0, 6), 1) for _ in range(40)], strict=True
        )
    ]
    order = rng.permutation(40)
    system = Fabric.of(hardware.system("dgx-h100"))
    one = price(rows[0], *rows[1:], fabric=system, library="nccl").seconds
    two = price(rows[0][order], *(r[order] for r in rows[1:]), fabric=system, library="nccl").seconds
    assert (one[order] == two).all()


def test_a_small_library_only_helps():
    system = Fabric.of(hardware.system("dgx-h100"))
    sizes = np.logspace(2, 9, 30)
    plain = price("all_reduce", sizes, 8, 1, fabric=system, library="nccl").seconds
    both = price("all_reduce", sizes, 8, 1, fabric=system, library="nccl", small="vllm-custom-all-reduce").seconds
    assert (both <= plain).all()
    assert plain[0] / both[0] > 3
    assert both[-1] == plain[-1]


def test_errors_are_sentences():
    with pytest.raises(InputError) as caught:
        price("allreduce", 1e6, 8, 1, fabric=fabric(), library="nccl")
    assert str(caught.value) == (
        "collective 'allreduce' is unknown. Did you mean 'all_reduce'? "
        "Known: all_reduce, all_gather, reduce_scatter, all_to_all, send_recv, broadcast."
    )
    with pytest.raises(InputError) as caught:
        price("all_reduce", 1e6, 16, 1, fabric=fabric(), library="nccl")
    assert str(caught.value) == (
        "a group of 16 ranks, 1 apart, does not fit 'toy': no network joins its nodes of 8. "
        "Use fewer ranks or a system with one, such as fabric: {topology: leaf-spine}."
    )
    with pytest.raises(InputError) as caught:
        price("all_to_all", 1e6, 8, 1, fabric=fabric(), library="vllm-custom-all-reduce")
    assert str(caught.value) == (
        "collective library 'vllm-custom-all-reduce' has no algorithm for all_to_all on 8 ranks; "
        "it has one-shot, two-shot."
    )


@pytest.mark.parametrize(
    ("ranks", "size", "measured"), [(4, 1 << 28, 18.98e-3), (8, 1 << 30, 90.2e-3), (8, 1 << 25, 2.86e-3)]
)
def test_a_sound_pcie_box(ranks, size, measured):
    """Large all-reduces of L40S under SGLang 0.5.12 (aiconfigurator collection): not the fitted box."""
    box = Fabric.of(hardware.system("l40s-pcie-8"))
    assert price("all_reduce", size, ranks, 1, fabric=box, library="nccl").seconds == pytest.approx(measured, rel=0.1)


def test_ranks_at_both_ends_of_a_job_are_a_group():
    """Tied embeddings of the first and the last stage: twice their distance is more than the system holds."""
    selene = Fabric.of(hardware.system("selene"), 3072)
    group = group_of(selene, 2, 3024)
    assert group.bounds[-1] == 2
