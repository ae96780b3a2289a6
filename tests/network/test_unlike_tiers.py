"""Tiers of systems of unlike groups: inside one, across several, from one to another."""

from itertools import pairwise

import pytest

from rapid_llm import hardware
from rapid_llm.documents import parse_yaml
from rapid_llm.errors import InputError
from rapid_llm.hardware import build_system
from rapid_llm.network import Fabric, price
from rapid_llm.network.mixed import Crossing, across, between, inside

GENERATIONS = hardware.system("4x dgx-h100 + 4x dgx-a100")
NDR, HDR = 50e9, 25e9


def sites(bandwidth: str, latency: str = "0 s", node: str = "dgx-h100"):
    text = f"groups: [{{node: {node}, nodes: 4}}, {{node: {node}, nodes: 4}}]\n"
    return build_system(parse_yaml(f"{text}links: [{{bandwidth: {bandwidth}, latency: {latency}}}]"))


def seconds(fabric: Fabric, op: str, size: float, ranks: int, stride: int) -> float:
    return float(price(op, size, ranks, stride, fabric=fabric, library="nccl").seconds)


@pytest.mark.parametrize("index", [0, 1])
@pytest.mark.parametrize(("ranks", "stride"), [(8, 1), (32, 1), (4, 8), (16, 2)])
def test_messages_inside_a_group_are_those_of_its_own_system(index: int, ranks: int, stride: int):
    alone = Fabric.of(hardware.system(GENERATIONS.groups[index].name))
    for op in ("all_reduce", "all_to_all"):
        assert seconds(inside(GENERATIONS, index), op, 1e8, ranks, stride) == seconds(alone, op, 1e8, ranks, stride)


def test_messages_across_groups_go_at_the_slowest_cards():
    crossing = Crossing((0, 1), 0, 0)
    slow = seconds(Fabric.of(hardware.system("dgx-a100")), "all_reduce", 1e9, 8, 8)
    for index in (0, 1):
        fabric = across(GENERATIONS, index, crossing)
        assert {tier.bandwidth for tier in fabric.tiers if tier.scope == "inter"} == {HDR}
        assert seconds(fabric, "all_reduce", 1e9, 8, 8) == pytest.approx(slow, rel=1e-12)
        inner = Fabric.of(hardware.system(GENERATIONS.groups[index].name))
        assert seconds(fabric, "all_reduce", 1e8, 8, 1) == seconds(inner, "all_reduce", 1e8, 8, 1)


def test_a_link_is_shared_by_those_who_send_over_it_at_once():
    system = sites("100 GB/s", "3 ms")
    one, eight = (between(system, 0, 1, many).tiers[0] for many in (1, 8))
    assert one.bandwidth == NDR  # its own card is narrower
    assert eight.bandwidth == 100e9 / 8
    assert one.latency > 3e-3


def test_a_ring_crosses_a_link_once_each_way():
    """All-reduce of n ranks, half of them at either site: 2 (n - 1) / n of its bytes pass the link."""
    ranks, stride, size = 8, 8, 4e9
    fabric = across(sites("10 GB/s"), 0, Crossing((0, 1), 32, 32))
    passing = 2.0 * (ranks - 1) / ranks * size * stride  # of all rings that are interleaved
    assert seconds(fabric, "all_reduce", size, ranks, stride) == pytest.approx(passing / 10e9, rel=0.25)


def test_a_wider_link_is_never_slower():
    found = []
    for rate in ("1 GB/s", "10 GB/s", "100 GB/s", "1 TB/s", "100 TB/s"):
        fabric = across(sites(rate), 0, Crossing((0, 1), 32, 32))
        found.append([seconds(fabric, op, 1e9, 8, 8) for op in ("all_reduce", "all_gather", "all_to_all")])
    assert all(a >= b for before, after in pairwise(found) for a, b in zip(before, after, strict=True))


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("groups: [{node: rtx-4090, nodes: 1}, {node: rtx-3090, nodes: 1}]",
         "system '1x rtx-4090 + 1x rtx-3090' does not say what joins rtx-4090 and rtx-3090. "
         "Try links: [{bandwidth: 100 Gb/s, latency: 10 us, between: [rtx-4090, rtx-3090]}]."),
        ("groups: [{node: dgx-h100, nodes: 1}, {node: rtx-4090, nodes: 1}]",
         "system '1x dgx-h100 + 1x rtx-4090': group rtx-4090 has no network cards, so no fabric joins it. "
         "Try links: [{bandwidth: 100 Gb/s, latency: 10 us, between: [dgx-h100, rtx-4090]}]."),
        ("groups: [{node: tpu-v5p-pod, nodes: 1}, {node: tpu-v5e-pod, nodes: 1}]",
         "system '1x tpu-v5p-pod + 1x tpu-v5e-pod': a torus joins chips of one kind, so no fabric joins it. "
         "Try links: [{bandwidth: 100 Gb/s, latency: 10 us, between: [tpu-v5p-pod, tpu-v5e-pod]}]."),
    ],
)  # fmt: skip
def test_what_no_fabric_joins_is_said(text: str, sentence: str):
    system = build_system(parse_yaml(text))
    with pytest.raises(InputError) as error:
        between(system, 0, 1, 1)
    assert str(error.value) == sentence


def test_nodes_of_a_group_need_a_fabric_of_their_own():
    groups = "[{name: a, node: rtx-4090, nodes: 2}, {name: b, node: rtx-4090, nodes: 1}]"
    text = f"groups: {groups}\nlinks: [{{bandwidth: 1 GB/s}}]"
    with pytest.raises(InputError) as error:
        inside(build_system(parse_yaml(text)), 0)
    assert str(error.value) == (
        "system '2x a + 1x b' does not say what joins the 2 nodes of group a. "
        "Try fabric: {topology: single-switch} in the group, with nics in its node."
    )


def test_cards_alone_over_a_link():
    """Workstations without network cards: the link is all there is between them."""
    text = "groups: [{node: rtx-4090, nodes: 1}, {node: rtx-3090, nodes: 1}]\nlinks: [{bandwidth: 1.25 GB/s}]"
    fabric = between(build_system(parse_yaml(text)), 0, 1, 1)
    assert fabric.tiers[0].bandwidth == 1.25e9
    assert seconds(fabric, "send_recv", 1e9, 2, 1) == pytest.approx(1e9 / 1.25e9, rel=0.3)
