"""What changes with the size of a message: tuners, channels, caches, chunks."""

import numpy as np
import pytest

from rapid_llm import hardware
from rapid_llm.network import Fabric, Library, LinkCost, Protocol, Tier, price
from rapid_llm.network.candidates import candidates
from rapid_llm.network.channels import FULL, PART, Channels
from rapid_llm.network.ports import crowded
from rapid_llm.network.tuner import between
from rapid_llm.units import Si
from rapid_llm.validation.suites.collectives import fabric_of

from .toys import fabric, node

KIB, MIB = 1024, 1024**2


def chosen(system, op, size, ranks):
    best = candidates(op, size, ranks, fabric=Fabric.of(hardware.system(system)), library="nccl")[0]
    return best.algorithm, best.protocol


@pytest.mark.parametrize(
    ("system", "op", "ranks", "edge", "before", "after"),
    [
        ("dgx-a100", "all_reduce", 2, 1.02e6, ("ring", "LL"), ("ring", "Simple")),
        ("dgx-a100", "all_gather", 4, 1.88e6, ("ring", "LL"), ("ring", "Simple")),
        ("dgx-a100", "all_gather", 8, 2.7e6, ("ring", "LL"), ("ring", "LL128")),
        ("dgx-h100", "all_reduce", 8, 1.2e6, ("ring", "LL"), ("nvls", "NVLS")),
        ("dgx-b200", "all_gather", 4, 5.8e6, ("ring", "LL"), ("ring", "Simple")),
        ("dgx-b200", "all_reduce", 8, 2.5e6, ("ring", "LL"), ("nvls", "NVLS")),
    ],
)
def test_protocols_change_where_the_tuner_changes_them(system, op, ranks, edge, before, after):  # noqa: PLR0917
    """Jumps of the measured tables: 512 KiB to 1 MiB on two A100, 1 to 2 MiB on four, 4 to 8 MiB on four B200."""
    assert chosen(system, op, 0.9 * edge, ranks) == before
    assert chosen(system, op, 1.1 * edge, ranks) == after


def test_four_ranks_do_not_reduce_in_the_switch():
    for size in (64 * KIB, 4 * MIB, 256 * MIB):
        assert chosen("dgx-h100", "all_reduce", size, 4)[0] == "ring"


def test_what_the_tuner_passes_over_is_listed_last():
    box = Fabric.of(hardware.system("dgx-a100"))
    first, *rest = candidates("all_reduce", 2 * MIB, 2, fabric=box, library="nccl")
    assert (first.protocol, first.passed) == ("Simple", False)
    assert first.seconds == price("all_reduce", 2 * MIB, 2, 1, fabric=box, library="nccl").seconds
    assert {c.protocol for c in rest} == {"LL", "LL128"}
    assert all(c.passed and c.seconds < first.seconds for c in rest)


def test_lowest_lines():
    lines = {"a": (1.0, 3.0), "b": (2.0, 2.0), "c": (2.9, 1.9), "d": (4.0, 1.0)}
    assert between(lines) == {"a": (-1.0, 1.0), "b": (1.0, 2.0), "d": (2.0, np.inf)}  # c is never the lowest
    assert between({}) == {}


@pytest.mark.parametrize(("ranks", "few", "many"), [(2, 16, 32), (4, 8, 32), (8, 4, 16), (72, 1, 1)])
def test_channels_to_a_peer(ranks, few, many):
    cost = LinkCost(launch=0, step=0, efficiency=1.0, channels=32)
    found = Channels.of(cost, ranks)
    assert (found.few, found.many) == (few, many)


def test_channels_join_as_a_message_grows():
    channels, rate = Channels(4, 16, 32), 14e9
    times = {size: channels.seconds(size, rate) for size in (PART / 2, PART, 3 * PART, 4 * FULL, 5 * FULL, 64 * FULL)}
    expected = [PART / 2, PART, PART, FULL, FULL, 4 * FULL]
    assert list(times.values()) == pytest.approx([size / rate for size in expected])


def test_a_message_between_eight_ranks_gets_half_the_channels_below_256_mib():
    """nccl-tests on eight A100: 110.8 GB/s with 128 MiB, 188.6 with 256 MiB, 195.1 with 1 GiB (li-plus/playground)."""
    box, sizes = Fabric.of(hardware.system("dgx-a100")), np.array([128, 256, 1024]) * MIB
    got = price("send_recv", sizes, 8, 1, fabric=box, library="nccl").seconds
    assert sizes / got / 1e9 == pytest.approx([110.8, 188.6, 195.1], rel=0.18)
    assert 16 * MIB / price("send_recv", 16 * MIB, 8, 1, fabric=box, library="nccl").seconds < 60e9  # four channels


def test_sends_have_no_ramp():
    """Two H100 send 8 MB in 30 us and 65 MB in 188 us, a straight line (Vidur profiles, MIT)."""
    box = Fabric.of(hardware.system("dgx-h100"))
    got = price("send_recv", [8257536, 65273856], 2, 1, fabric=box, library="nccl").seconds
    assert got == pytest.approx([30e-6, 188e-6], rel=0.12)


def test_exchanges_keep_flags_up_to_what_nccl_says():
    for system, size in (("dgx-h100", 8 * 32 * 16 * KIB), ("l40s-pcie-8", 8 * 2 * 16 * KIB)):
        assert chosen(system, "all_to_all", size, 8) == ("direct", "exchange-LL")
        assert chosen(system, "all_to_all", size + 8, 8) == ("direct", "exchange-Simple")


def test_staged_rings_slow_down_once_a_cache_overflows():
    link = LinkCost(launch=0, step=0, efficiency=1.0, memory=0.5, cache=Si(8e6))
    ring = Protocol(algorithms=("ring",), slots=8)
    toy = Library(name="toy", protocols={"only": ring}, links={"intra": link, "inter": link})
    size = np.array([0.99e6, 1.01e6])  # of each rank's buffers 8 x S / n: eight of them fill 8 MB
    box = fabric(node(bandwidth=10e9))
    got = price("all_gather", size, 8, 1, fabric=box, library=toy).seconds
    assert got == pytest.approx(size * 8 / 8 / 10e9 * [1, 2], rel=1e-6)  # seven rounds, and its own share


def test_a_ring_through_host_memory_sends_its_own_share_before_it_reads():
    """Once in either operation: gathers among four L40S take more than half of an all-reduce (4.7 against 5.2 GB/s)."""
    staged, size = fabric_of("l40s-staged"), 256 * MIB
    gather, reduced = (
        price(op, size, 4, 1, fabric=staged, library="nccl").seconds.item() for op in ("all_gather", "all_reduce")
    )
    assert 1.04 < 2 * gather / reduced < 1.1
    direct = Fabric.of(hardware.system("l40s-pcie-8"))  # a peer's writes land while it sends
    gather, reduced = (
        price(op, size, 4, 1, fabric=direct, library="nccl").seconds.item() for op in ("all_gather", "all_reduce")
    )
    assert 2 * gather / reduced == pytest.approx(1.0, abs=0.02)


def test_an_empty_message_takes_no_more_than_the_smallest():
    box = Fabric.of(hardware.system("dgx-h100"))
    for op in ("all_reduce", "all_to_all", "send_recv"):
        none, some = price(op, [0.0, 8.0], 8, 1, fabric=box, library="nccl").seconds
        assert 0 < none <= some < 1e-4


def test_a_tuner_needs_rates():
    with pytest.raises(Exception, match="rate"):
        LinkCost(launch=0, step=0, efficiency=1.0, tuner={"hop": {"LL": "1 us"}})


def test_cards_that_share_host_memory_divide_their_waiting():
    assert crowded(0.3, 1) == pytest.approx(0.3)
    assert crowded(0.3, 4) == pytest.approx(1 / (1 + (1 / 0.3 - 1) / 4))  # 1 / rate: the path, and a part of the wait
    assert crowded(0.3, 1000) == pytest.approx(1.0, abs=0.01)
    shares = [crowded(0.3, cards) for cards in range(1, 9)]
    assert shares == sorted(shares)


def test_an_exchange_reaches_more_of_host_memory_than_a_ring():
    """Four cards of a socket read at once, where a ring has one on each way."""
    staged = fabric_of("l40s-staged")
    ring, exchange = (
        price(op, 64 * MIB, 8, 1, fabric=staged, library="nccl").seconds.item() for op in ("all_gather", "all_to_all")
    )
    crossing = {"ring": 7 / 8, "exchange": 2}  # of S, from socket to socket on one way
    assert 2 < (crossing["exchange"] / exchange) / (crossing["ring"] / ring) < 2.6


@pytest.mark.parametrize("library", ["vllm-custom-all-reduce", "sglang-custom-all-reduce"])
def test_engines_read_no_peer_through_host_memory(library):
    pair = Fabric.of(hardware.system("rtx-4090-2"))
    found = candidates("all_reduce", 4 * KIB, 2, fabric=pair, library="nccl", small=library)
    assert {one.algorithm for one in found} == {"ring"}


@pytest.mark.parametrize("library", ["vllm-custom-all-reduce", "sglang-custom-all-reduce"])
def test_engines_leave_more_than_two_cards_over_pci_express_to_nccl(library):
    box = Fabric.of(hardware.system("l40s-pcie-8"))
    two, four = (candidates("all_reduce", 4 * KIB, n, fabric=box, library="nccl", small=library) for n in (2, 4))
    assert any(c.algorithm == "one-shot" for c in two)
    assert all(c.algorithm not in ("one-shot", "two-shot") for c in four)


@pytest.mark.parametrize("library", ["trtllm-one-shot", "trtllm-barrier"])
def test_tensorrt_llm_leaves_cards_over_pci_express_to_nccl(library):
    box = Fabric.of(hardware.system("l40s-pcie-8"))
    found = candidates("all_reduce", 4 * KIB, 2, fabric=box, library="nccl", small=library)
    assert {c.algorithm for c in found} == {"ring"}


def test_chunks_begin_with_a_flush():
    """Two cards over PCI Express: an all-reduce takes what an all-gather of twice the size does, and a hop a chunk."""
    pair = fabric(Tier("pair", 2, Si(27.6e9), 0.4e-6, "pcie4-x16", "full"))
    gathered, reduced = (
        price(op, size, 2, 1, fabric=pair, library="nccl").seconds.item()
        for op, size in (("all_gather", 128 * MIB), ("all_reduce", 64 * MIB))
    )
    assert gathered > reduced  # twice as many chunks, each with a flush of its own
