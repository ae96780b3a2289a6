"""Orders of axes and swaps of ranks."""

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rapid_llm import hardware
from rapid_llm.errors import InputError
from rapid_llm.network import Fabric
from rapid_llm.network.placement import AxisTraffic, best_order, best_places, pair_traffic, tier_distance
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


def test_pairs_carry_what_the_ring_sends():
    rows = [AxisTraffic("dp", "all_gather", 8e6, 4, 3)]
    matrix = pair_traffic(rows, plans(tp=2, dp=4), fabric=DGX, library="nccl")
    assert matrix.shape == (8, 8)
    assert matrix[0, 2] == pytest.approx(3 * 8e6 * 3 / 4)
    assert (matrix > 0).sum() == 8


def test_swaps_mend_a_scrambled_placement():
    rows = [AxisTraffic("tp", "all_gather", 1e8, 8, 10), AxisTraffic("dp", "all_gather", 1e8, 4, 1)]
    traffic = pair_traffic(rows, plans(tp=8, dp=4), fabric=DGX, library="nccl")
    distance = tier_distance(DGX, 32)
    sorted_cost = best_places(traffic, distance).before
    scrambled = np.random.default_rng(3).permutation(32)
    got = best_places(traffic, distance, start=scrambled)
    assert got.before > 2 * sorted_cost
    assert got.after <= 1.1 * sorted_cost
    assert got.gain > 0.5
    assert sorted(got.places) == list(range(32))


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
