"""A collective on the explicit topology agrees with its closed form, and faults slow it down."""

import numpy as np
import pytest

from rapid_llm import hardware
from rapid_llm.errors import InputError
from rapid_llm.network import Fabric, candidates
from rapid_llm.network.contention import contend
from rapid_llm.network.faults import apply, read_faults
from rapid_llm.network.topology import Topology
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


def test_an_algorithm_that_the_engine_does_not_lay_out():
    reducing = replaced(DGX, fabric=replaced(DGX.fabric, in_network_reduction=True))
    (best,) = candidates("all_reduce", SIZE, 16, fabric=Fabric.of(reducing), library="nccl", algorithm="sharp")[:1]
    with pytest.raises(InputError, match=r"^the flow engine does not run 'sharp'; it runs ring, two-way-ring, "):
        contend(best, SIZE, Topology.of(reducing, 16))
