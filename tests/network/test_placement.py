"""Orders of axes."""

import pytest

from rapid_llm import hardware
from rapid_llm.errors import InputError
from rapid_llm.network import Fabric
from rapid_llm.network.placement import AxisTraffic, best_order
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


def test_bad_input():
    with pytest.raises(InputError, match=r"^placement is found for one plan at a time \(got 2\)\.$"):
        best_order([], Plans.stack([plans(tp=1), plans(tp=2)]), fabric=DGX, library="nccl")
