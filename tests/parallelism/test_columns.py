"""Columns of plans: groups, strides and derived degrees."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rapid_llm.parallelism import AXES, Parallelism, Plans

degree = st.sampled_from([1, 2, 3, 4, 8])


def columns(order: tuple[str, ...] = AXES, **degrees: int) -> Plans:
    return Plans.of(Parallelism(**degrees), micro_batch=1, micro_batches=1, order=order)


@given(degree, degree, degree, degree)
def test_groups_tile_the_job(tp: int, cp: int, dp: int, pp: int) -> None:
    plans = columns(tp=tp, cp=cp, dp=dp, pp=pp)
    ranks = tp * cp * dp * pp
    assert plans.ranks[0] == ranks
    strides = sorted(
        zip((float(plans.stride(axis)[0]) for axis in ("tp", "cp", "dp", "pp")), (tp, cp, dp, pp), strict=True)
    )
    reach = 1.0
    for stride, size in strides:
        assert stride == reach
        reach *= size
    assert reach == ranks


def test_innermost_axis_is_neighbouring() -> None:
    assert columns(tp=8, pp=4, dp=2).stride("tp")[0] == 1
    assert columns(tp=8, pp=4, dp=2).stride("dp")[0] == 8
    assert columns(tp=8, pp=4, dp=2).stride("pp")[0] == 16
    swapped = columns(("dp", "tp", "cp", "ep", "pp"), tp=8, pp=4, dp=2)
    assert (swapped.stride("dp")[0], swapped.stride("tp")[0]) == (1, 2)


def test_experts_regroup_the_same_ranks() -> None:
    # Megatron-Core parallel folding: etp x ep x edp = tp x cp x dp.
    plans = columns(tp=4, cp=2, dp=8, ep=16, etp=1)
    assert plans.edp[0] == 4
    assert plans.stride("ep")[0] == 1
    assert plans.stride("edp")[0] == 16
    assert plans.stride("dp")[0] == 8


def test_sharding_and_replicas_divide_the_data_ranks() -> None:
    plans = columns(tp=2, cp=2, dp=32, dp_shard=8)
    assert (plans.data[0], plans.shard[0], plans.replicas[0]) == (64, 16, 4)
    assert plans.stride("shard")[0] == 2
    assert plans.stride("replicas")[0] == 4 * 8


def test_the_ends_of_a_pipeline_stand_apart() -> None:
    plans = columns(tp=2, dp=4, pp=8)
    assert (plans.ends[0], plans.stride("ends")[0]) == (2, 7 * 8)
    assert columns(tp=2).ends[0] == 1


def test_stack_and_repeat_keep_every_column() -> None:
    both = Plans.stack([columns(tp=2), columns(pp=4, vpp=2, schedule="interleaved")])
    assert len(both) == 2
    assert np.array_equal(both.tp, [2, 1])
    many = columns(pp=4, vpp=2, schedule="interleaved").repeat(np.array([1.0, 2.0, 7.0]))
    assert np.array_equal(many.pp, [4, 4, 4])
    assert np.array_equal(many.micro_batch, [1, 2, 7])


def test_who_asks_for_a_plan_again_gets_the_same_read_only_columns() -> None:
    assert columns(tp=2) is columns(tp=2)
    with pytest.raises(ValueError, match="read-only"):
        columns(tp=2).tp[0] = 4.0
