"""Dispatch and combine: published times, counting arguments, properties, and error sentences."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rapid_llm import hardware
from rapid_llm.errors import InputError
from rapid_llm.network import Fabric, expert_library, price_experts
from rapid_llm.network.experts import LIBRARIES, distinct

V3 = {"hidden_size": 7168, "experts_per_token": 8, "experts": 256}


def fabric(name="h800-8"):
    return Fabric.of(hardware.system(name))


def ask(phase, tokens, ranks, system="h800-8", **more):
    return price_experts(phase, tokens, ranks=ranks, fabric=fabric(system), **{**V3, **more})


@pytest.mark.parametrize(
    ("ranks", "out", "back"), [(16, 118, 195), (32, 155, 273), (64, 173, 314), (128, 192, 369), (256, 194, 360)]
)
def test_low_latency_between_nodes(ranks, out, back):
    """DeepEP's README: 128 tokens on H800 with 400 Gb/s InfiniBand, FP8 out and BF16 back (us)."""
    for phase, published in (("dispatch", out), ("combine", back)):
        seconds = ask(phase, 128, ranks, mode="low-latency").seconds
        assert seconds == pytest.approx(published * 1e-6, rel=0.1)


@pytest.mark.parametrize(("nodes", "out", "back"), [(2, 43, 43), (4, 58, 57), (8, 51, 50)])
def test_normal_between_nodes(nodes, out, back):
    """DeepEP's README: 4,096 tokens, four nodes a token, 24 units; GB/s of copies to nodes, the own node counted."""
    for phase, published, element in (("dispatch", out, 1.03125), ("combine", back, 2)):
        got = ask(phase, 4096, 8 * nodes, mode="normal", units=24, node_limit=4)
        counted = 4096 * 7168 * element * distinct(min(nodes, 4), 8)
        assert counted / got.seconds / 1e9 == pytest.approx(published, rel=0.15)


def test_groups_of_neighbouring_experts_limit_the_nodes_of_a_token():
    """Half of eight groups of experts are half of the nodes, as DeepSeek-V3 routes (arXiv 2412.19437, 2.1.2)."""
    half, four, free = (
        ask("dispatch", 4096, 64, mode="normal", **m) for m in ({"node_share": 0.5}, {"node_limit": 4}, {})
    )
    assert half.seconds == four.seconds < free.seconds
    assert (
        ask("dispatch", 4096, 8, mode="normal", node_share=0.5).seconds
        == ask("dispatch", 4096, 8, mode="normal").seconds
    )


@pytest.mark.parametrize(("phase", "published"), [("dispatch", 734.95), ("combine", 673.84)])
def test_hybrid_exchange_inside_a_box(phase, published):
    """Hybrid-EP's documentation: eight B200, 4096 tokens of 7168 BF16, GB/s of the kernel of what a rank receives."""
    got = ask(phase, 4096, 8, "dgx-b200", mode="normal", library="hybridep", experts=64, element_bytes=2)
    kernel = got.seconds - 60e-6
    assert 4096 * distinct(8, 8) * 7168 * 2 / kernel / 1e9 == pytest.approx(published, rel=0.02)


def test_a_token_visits_each_place_once():
    assert distinct(8, 1) == pytest.approx(1)
    assert distinct(8, 8) == pytest.approx(8 * (1 - (7 / 8) ** 8))
    draws = np.random.default_rng(0).integers(0, 8, (20000, 6))
    assert distinct(8, 6) == pytest.approx(np.mean([len(set(row)) for row in draws]), rel=0.01)


def test_bytes_inside_one_node():
    got = ask("combine", 1000, 8, "dgx-h100", mode="normal")
    assert got.wire_bytes == pytest.approx(1000 * 7168 * 2 * distinct(8, 8) * 7 / 8)
    assert got.node_bytes == 0
    assert got.units == 20


def test_routing_to_fewer_nodes_sends_less_over_the_network():
    free, limited = (ask("dispatch", 4096, 64, mode="normal", node_limit=limit) for limit in (None, 4))
    assert limited.node_bytes < free.node_bytes
    assert limited.seconds < free.seconds


def test_the_mode_of_decode_is_taken_as_far_as_its_buffers_hold():
    names = list(expert_library("deepep").modes)
    for ranks in (8, 64):
        got = ask("dispatch", [1, 128, 129, 65536], ranks, "dgx-h100")
        assert [names[m] for m in got.mode] == ["low-latency", "low-latency", "normal", "normal"]
    kernels = [ask("dispatch", 128, 64, "dgx-h100", mode=mode).seconds for mode in names]
    assert ask("dispatch", 128, 64, "dgx-h100").seconds == kernels[names.index("low-latency")] > min(kernels)


def test_without_a_wait_of_the_host_the_faster_mode_is_taken():
    given = [1, 128, 4096, 65536]
    modes = expert_library("trtllm-alltoall").modes
    got = ask("dispatch", given, 8, "dgx-h100", library="trtllm-alltoall").seconds
    each = [ask("dispatch", given, 8, "dgx-h100", library="trtllm-alltoall", mode=mode).seconds for mode in modes]
    assert list(got) == list(np.min(each, axis=0))


def test_speed_is_bought_with_compute_units():
    times = ask("dispatch", 65536, 8, "dgx-h100", mode="normal", units=[4, 8, 12, 16, 20]).seconds
    assert (np.diff(times) < 0).all()
    assert times[0] / times[1] == pytest.approx(2, rel=0.05)


def test_a_group_of_one_moves_nothing():
    got = price_experts("dispatch", 4096, ranks=1, fabric=fabric("h100-sxm"), **V3)
    assert (got.seconds, got.wire_bytes, got.units) == (0, 0, 0)


@given(
    phase=st.sampled_from(["dispatch", "combine"]),
    ranks=st.sampled_from([2, 8, 16, 64]),
    tokens=st.integers(1, 10**6),
    factor=st.integers(1, 100),
    k=st.integers(1, 16),
)
def test_more_work_is_never_faster(phase, ranks, tokens, factor, k):
    few, more, wider = (
        ask(phase, t, ranks, "dgx-b200", experts_per_token=c).seconds
        for t, c in ((tokens, k), (tokens * factor, k), (tokens, k + 1))
    )
    assert few <= more * (1 + 1e-12)
    assert few <= wider * (1 + 1e-12)


@pytest.mark.parametrize("name", LIBRARIES.names())
def test_every_number_has_a_source(name):
    data, sources = LIBRARIES.load(name)
    assert expert_library(name).name == name
    for mode, parts in data["modes"].items():
        for phase in ("dispatch", "combine"):
            for link, cost in parts[phase]["links"].items():
                assert {f"modes.{mode}.{phase}.links.{link}.{field}" for field in cost} <= sources.keys()


def test_errors_are_sentences():
    with pytest.raises(InputError, match=r"^phase 'gather' is unknown\. Known: dispatch, combine\.$"):
        ask("gather", 1, 8)
    with pytest.raises(InputError, match=r"^mode of 'deepep' 'fast' is unknown\. Known: normal, low-latency\.$"):
        ask("dispatch", 1, 8, mode="fast")
    with pytest.raises(InputError) as caught:
        price_experts("dispatch", 1, ranks=8, fabric=fabric("h100-sxm"), **V3)
    assert str(caught.value) == (
        "a group of 8 ranks, 1 apart, does not fit 'h100-sxm': 1 accelerators are connected. "
        "Use fewer ranks or a larger system."
    )
