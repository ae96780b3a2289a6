"""Bus bandwidths and latencies that people report of machines nobody fitted, with the spread that such reports have."""

import pytest

from rapid_llm import hardware
from rapid_llm.network import Fabric, bus_bandwidth
from rapid_llm.network.candidates import candidates
from rapid_llm.network.technologies import library_for

GIB = 2**30


def best(name, op, size, ranks, algorithm=None):
    system = hardware.system(name)
    library = library_for(system.groups[0].node.accelerator.vendor)
    return candidates(op, size, ranks, fabric=Fabric.of(system), library=library, algorithm=algorithm)[0]


@pytest.mark.parametrize(
    ("system", "op", "ranks", "gigabytes", "rel"),
    [
        ("hgx-h200", "all_reduce", 8, 475, 0.05),  # nccl-tests#272
        ("dgx-h100", "all_gather", 8, 370, 0.05),  # nccl-tests#212, NVIDIA of anything but an all-reduce
        ("h800-8", "all_reduce", 8, 215, 0.05),  # nccl#1374
        ("dgx-a100", "all_reduce", 8, 231, 0.06),  # nccl#527, p4d
        ("gb200-nvl72", "all_reduce", 8, 811, 0.15),  # lixueduan.com, GB200 MNNVL
        ("gb200-nvl72", "all_reduce", 72, 840, 0.2),  # coreweave/nccl-tests#43
        ("hgx-a100", "all_reduce", 128, 91, 0.1),  # nccl-tests#100, two boxes of four HDR cards
        ("hgx-h100", "all_reduce", 512, 350, 0.1),  # nccl-tests#283, 248 servers
        ("p5", "all_reduce", 16, 444, 0.1),
        ("mi300x-8", "all_reduce", 8, 320, 0.1),
        ("mi300x-8", "all_reduce", 128, 360, 0.15),  # ROCm/rccl#2078, several nodes
    ],
)
def test_large_messages(system, op, ranks, gigabytes, rel):
    size = 8 * GIB
    found = best(system, op, size, ranks)
    assert bus_bandwidth(op, size, ranks, found.seconds) / 1e9 == pytest.approx(gigabytes, rel=rel)


@pytest.mark.parametrize(("ranks", "gigabytes"), [(5, 420), (6, 440), (7, 460), (8, 480)])
def test_a_switch_that_reduces_gains_with_its_ranks(ranks, gigabytes):
    """NCCL_ALGO=NVLS on an H100 box (NVIDIA/nccl#1455)."""
    found = best("dgx-h100", "all_reduce", 4 * GIB, ranks, "nvls")
    assert bus_bandwidth("all_reduce", 4 * GIB, ranks, found.seconds) / 1e9 == pytest.approx(gigabytes, rel=0.08)


@pytest.mark.parametrize(
    ("size", "seconds"), [(GIB / 2, 1807e-6), (GIB, 3109e-6), (2 * GIB, 5589e-6), (8 * GIB, 20.3e-3)]
)
def test_every_head_of_a_rack_fills_its_share(size, seconds):
    """Half of a rack's bandwidth is not reached below 512 MiB (72 GB200, coreweave/nccl-tests#43)."""
    assert best("gb200-nvl72", "all_reduce", size, 72).seconds == pytest.approx(seconds, rel=0.15)


@pytest.mark.parametrize(
    ("system", "ranks", "seconds"),
    [("dgx-h100", 128, 62e-6), ("dgx-h100", 16, 40e-6), ("p5", 16, 53e-6), ("dgx-h100", 8, 16e-6)],
)
def test_small_all_reduces(system, ranks, seconds):
    """nccl#1469 (16 nodes), nccl#1244 (two), dstack#3961 (two over EFA), nccl-tests elsewhere."""
    assert best(system, "all_reduce", 8, ranks).seconds == pytest.approx(seconds, rel=0.2)


@pytest.mark.parametrize(
    ("op", "size", "seconds"),
    [("all_reduce", 256 * 2**20, 915.8e-6), ("all_gather", 8 * 16 * 2**20, 230.6e-6)],
)
def test_eight_gaudi_reach_their_links(op, size, seconds):
    """hccl_demo (docs.habana.ai, Collectives Performance)."""
    assert best("gaudi3-8", op, size, 8).seconds == pytest.approx(seconds, rel=0.06)


def test_four_cards_with_peer_to_peer_over_pci_express():
    """Four RTX 4090 with an open driver, PCIe 4.0, 1 GiB at 26.0 GB/s (tinygrad/open-gpu-kernel-modules#36)."""
    found = best("a100-pcie-8", "all_reduce", GIB, 4)
    assert bus_bandwidth("all_reduce", GIB, 4, found.seconds) / 1e9 == pytest.approx(26, rel=0.1)
