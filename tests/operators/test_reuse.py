"""What a replayed GEMM finds in L2: the distance to the next use of each operand decides."""

import pytest

from rapid_llm import hardware, operators
from rapid_llm.operators import Replay


def seconds(m, n, k, accelerator="h100-sxm", *, replayed):
    columns = {"m": m, "n": n, "k": k, "groups": 1, "x_bytes": 2, "w_bytes": 2, "y_bytes": 2}
    device = hardware.accelerator(accelerator)
    priced = operators.price("gemm", columns, dtype="bf16", kernel="cublas", accelerator=device, replayed=replayed)
    return priced.seconds[0]


def test_an_input_that_all_launches_share_stays_and_one_of_its_own_does_not():
    shape = (8192, 64, 2048)  # X 32 MiB, W 256 KiB
    shared, own = Replay(6), Replay(6, inputs=True)
    assert seconds(*shape, replayed=shared) < 0.75 * seconds(*shape, replayed=own)
    assert seconds(*shape, replayed=own) == pytest.approx(seconds(*shape, replayed=False), rel=0.01)


def test_fewer_copies_of_the_weights_stay():
    shape = (1, 4096, 4096)  # 32 MiB a copy, L2 of 96 MiB
    one, six = (seconds(*shape, "l40s", replayed=Replay(n)) for n in (1, 6))
    assert one < 0.8 * six
    assert six == pytest.approx(seconds(*shape, "l40s", replayed=False), rel=0.01)


def test_copies_up_to_l2():
    weights = hardware.accelerator("l40s").memory.l2.capacity
    rule = Replay(5, to_l2=True)
    assert rule.rotated(weights / 1.5, weights) == 2
    assert rule.rotated(weights * 2, weights) == 1
    assert rule.rotated(weights / 100, weights) == 5


def test_a_model_never_comes_back():
    assert seconds(1, 2048, 2048, replayed=True) <= seconds(1, 2048, 2048, replayed=False)
