"""Orders of axes and swaps of ranks."""

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rapid_llm import hardware
from rapid_llm.errors import InputError
from rapid_llm.network import Fabric
from rapid_llm.network.files import topology_of_matrix
from rapid_llm.network.links_alone import runs
from rapid_llm.network.placement import AxisTraffic, best_order, best_places
from rapid_llm.parallelism import Parallelism, Plans

DGX = Fabric.of(hardware.system("dgx-h100"))


def plans(order=("tp", "cp", "ep", "dp", "pp"), **degrees):
    return Plans.of(Parallelism(**degrees), micro_batch=1, micro_batches=8, order=order)


TP = AxisTraffic("tp", "all_reduce", 64e6, 8, 320)
DP = AxisTraffic("dp", "all_reduce", 4e9, 8, 1)


def test_chatty_axes_go_inside():
    got = best_order([TP, DP], plans(("dp", "tp", "cp", "ep", "pp"), tp=8, dp=8), fabric=DGX, library="nccl")
    order = got.best.order
    assert order.index("tp") < order.index("dp")
    assert got.gain > 0.5
    assert got.sentence().startswith(f"order [{', '.join(order)}] takes ")
    assert "[dp, tp, cp, ep, pp] takes " in got.sentence()


def test_the_best_order_is_kept():
    got = best_order([TP, DP], plans(tp=8, dp=8), fabric=DGX, library="nccl")
    assert got.best is got.asked
    assert got.gain == 0
    assert got.sentence().startswith("order [tp, cp, ep, dp, pp] is the best of 2: ")


def test_every_order_is_tried():
    rows = [AxisTraffic(a, "all_gather", 1e8, 4, 1) for a in ("tp", "cp", "dp", "pp")]
    got = best_order(rows, plans(tp=4, cp=4, dp=4, pp=4), fabric=DGX, library="nccl")
    assert len(got.tried) == 24
    assert got.best.seconds == pytest.approx(min(p.seconds for p in got.tried))


@given(seed=st.integers(0, 500))
def test_no_swap_is_left_that_helps(seed):
    rng = np.random.default_rng(seed)
    traffic, distance = rng.uniform(0, 1, (2, 5, 5))
    np.fill_diagonal(distance, 0)
    got = best_places(traffic, distance)

    def cost(places):
        return sum(
            traffic[i, j] * (distance[a, b] + distance[b, a]) / 2
            for i, a in enumerate(places)
            for j, b in enumerate(places)
            if i != j
        )

    assert got.after == pytest.approx(cost(got.places))
    assert got.after <= got.before * (1 + 1e-12)
    for i in range(5):
        for j in range(i):
            other = list(got.places)
            other[i], other[j] = other[j], other[i]
            assert cost(other) >= got.after * (1 - 1e-9)
    assert got.after <= 1.6 * min(cost(p) for p in permutations(range(5)))


def test_bad_input():
    with pytest.raises(InputError, match=r"^traffic \(2, 3\) and distances \(2, 2\) must be square"):
        best_places(np.ones((2, 3)), np.ones((2, 2)))
    with pytest.raises(InputError, match=r"^start must give each of 2 ranks an accelerator of its own\.$"):
        best_places(np.ones((2, 2)), np.ones((2, 2)), start=[1, 1])
    with pytest.raises(InputError, match=r"^placement is found for one plan at a time \(got 2\)\.$"):
        best_order([], Plans.stack([plans(tp=1), plans(tp=2)]), fabric=DGX, library="nccl")


UNEVEN = topology_of_matrix(np.array([[0, 20, 200, 20], [20, 0, 20, 200], [200, 20, 0, 20], [20, 200, 20, 0]]) * 1e9)
"""Two pairs of accelerators, joined ten times as fast as the rest, that do not stand beside each other."""


def test_exchanges_in_pairs_go_where_links_are_fast():
    """Half of S goes over the fast links instead of the slow ones, once each way; a quarter stays on slow ones."""
    (before,) = runs("all_reduce", 64e6, UNEVEN, algorithm="halving-doubling")
    (after,) = runs("all_reduce", 64e6, UNEVEN, algorithm="halving-doubling", places="best")
    (there,) = runs("all_reduce", 64e6, UNEVEN, algorithm="halving-doubling", places=after.nodes.tolist())
    assert after.seconds == there.seconds == pytest.approx(2 * (32e6 / 200e9 + 16e6 / 20e9), rel=0.2)
    assert after.seconds < 0.7 * before.seconds


def test_ranks_go_to_accelerators_that_would_be_idle():
    (found, *_) = runs("all_reduce", 64e6, UNEVEN, ranks=2, places="best")
    assert sorted(found.nodes.tolist()) in ([0, 2], [1, 3])


def test_the_places_found_are_never_slower():
    for op in ("all_reduce", "all_gather", "all_to_all"):
        ours, theirs = (
            {one.algorithm: one.seconds for one in runs(op, 8e6, UNEVEN, places=places)} for places in ("best", None)
        )
        assert all(ours[name] <= seconds for name, seconds in theirs.items())


def test_an_accelerator_holds_one_rank():
    with pytest.raises(InputError, match="placement puts ranks 0 and 2 both on gpu1"):
        runs("all_reduce", 8e6, UNEVEN, ranks=3, places=[1, 2, 1])
