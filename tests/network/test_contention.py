"""A collective on the explicit topology agrees with its closed form, and faults slow it down."""

import numpy as np
import pytest

from rapid_llm import hardware
from rapid_llm.errors import InputError
from rapid_llm.network import Fabric, candidates
from rapid_llm.network.contention import broken, contend, topology_for

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
    got = contend(best, SIZE, topology_for(DGX, ranks, stride))
    assert got.seconds == pytest.approx(best.seconds, rel=0.02)
    assert got.flow == pytest.approx(got.bare, rel=0.02)


def test_the_busiest_links_are_the_cards():
    got = contend(ask("all_to_all", 16, algorithm="direct"), SIZE, topology_for(DGX, 16, 1))
    name, moved, use = got.busiest(1)[0]
    assert name == "node0.nic0 > leaf0.0"
    assert moved == pytest.approx(SIZE * 8 / 16)
    assert use == pytest.approx(1, rel=0.01)
    boxes, kinds, values = got.by_box()
    assert boxes == ["network", "box 0", "box 1"]
    assert max(v for row in values for v in row if v is not None) == pytest.approx(use)
    assert len(values[0]) == len(kinds)


def test_a_fault_never_helps():
    best, whole = ask("all_gather", 16, algorithm="ring"), topology_for(DGX, 16, 1)
    times = [contend(best, SIZE, whole).seconds]
    for share in (1.0, 0.5, 0.25):
        hurt = broken(whole, [{"link": ["node0.nic0", "leaf0.0"], "bandwidth": share}])
        times.append(contend(best, SIZE, hurt).seconds)
    assert times[1] == times[0]
    assert (np.diff(times[1:]) > 0).all()


@pytest.mark.parametrize(
    ("fault", "sentence"),
    [
        ({"link": ["node0.nic0"]}, "a fault is {link: [node, node], bandwidth: 0.5}"),
        ({"link": ["node0.nic0", "leaf0.0"]}, "a fault is {link: [node, node], bandwidth: 0.5}"),
        ({"link": ["node0.nik0", "leaf0.0"], "down": True}, "has no node 'node0.nik0'. Did you mean 'node0.nic0'"),
        ({"link": ["node0.nic0", "leaf0.1"], "down": True}, "has no link between node0.nic0 and leaf0.1."),
        ({"link": ["node0.nic0", "leaf0.0"], "bandwidth": 2}, "must be from 0 % to 100 % (got 2)."),
    ],
)
def test_bad_faults_are_sentences(fault, sentence):
    with pytest.raises(InputError) as caught:
        broken(topology_for(DGX, 16, 1), [fault])
    assert sentence in str(caught.value)


def test_an_algorithm_that_the_engine_does_not_lay_out():
    with pytest.raises(InputError, match=r"^the flow engine does not run 'halving-doubling'; it runs ring, tree, "):
        contend(ask("all_reduce", 16, algorithm="halving-doubling"), SIZE, topology_for(DGX, 16, 1))
