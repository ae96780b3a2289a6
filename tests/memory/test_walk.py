"""The walk over a schedule: the closed form, and what is allocated is freed."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rapid_llm.execution.schedules import SCHEDULES
from rapid_llm.memory import CATEGORIES
from rapid_llm.predict.fitting import footprint, memory_of
from rapid_llm.predict.timeline import courses, memory_timeline, memory_walks

from .scenarios import inference, training

PLANS: list[dict[str, Any]] = [
    {"tp": tp, "pp": pp, "schedule": name, "vpp": 2 if one.chunks is None else 1}
    for tp in (1, 8)
    for pp in (2, 4)
    for name, one in SCHEDULES.items()
] + [{"tp": 1, "pp": 1}]
SHARES = ("optimizer", "gradients", "weights", "activations")
RUNTIMES = ["megatron-core", "nanotron", "torchtitan", "deepspeed"]


@settings(deadline=None, max_examples=60)
@given(
    runtime=st.sampled_from(RUNTIMES),
    plan=st.sampled_from(PLANS),
    rounds=st.integers(1, 4),
    recompute=st.sampled_from(["none", "selective", "full"]),
    sharded=st.tuples(st.integers(0, 3), st.sampled_from([0.0, 0.5, 1.0])),
)
def test_walk_agrees_with_the_closed_form(
    runtime: str, plan: dict[str, Any], rounds: int, recompute: str, sharded: tuple[int, float]
) -> None:
    zero, away = sharded
    tp, pp = plan["tp"], plan["pp"]
    plan = {**plan, "zero_stage": zero}
    scenario = training(
        runtime=runtime, plan=plan, accelerators=2 * tp * pp,
        work={"global_batch_size": 4 * pp * rounds, "recompute": recompute, "offload": dict.fromkeys(SHARES, away)},
    )  # fmt: skip
    account = footprint(scenario).account
    for stage, one in enumerate(memory_walks(scenario)):
        assert one.total.max() == pytest.approx(account.allocated[0, stage], rel=1e-9)
        assert one.allocated == pytest.approx(one.freed, rel=1e-9)
        np.testing.assert_allclose(one.held[:, 0], one.held[:, -1], atol=1.0)


@settings(deadline=None, max_examples=30)
@given(runtime=st.sampled_from(RUNTIMES), pp=st.sampled_from([1, 4]), length=st.sampled_from([512, 2048, 8192]))
def test_categories_sum_to_the_peak(runtime: str, pp: int, length: int) -> None:
    scenario = training(
        runtime=runtime, plan={"pp": pp}, accelerators=8, work={"global_batch_size": 32, "sequence_length": length}
    )
    account = footprint(scenario).account
    np.testing.assert_allclose(account.by_category.sum(axis=0), account.peak, rtol=1e-12)
    assert account.by_category.shape[0] == len(CATEGORIES)
    assert (account.allocated <= account.reserved * (1 + 1e-12)).all()
    assert (account.reserved <= account.peak).all()
    assert (account.peak - account.reclaimable <= account.limits).all(axis=1) == account.fits


def test_page_of_every_stage() -> None:
    scenario = training(plan={"tp": 8, "pp": 2}, accelerators=16, work={"global_batch_size": 64})
    page = memory_timeline(scenario)
    assert page.count("<svg") == 3
    assert "peak: backward 1" in page
    assert len(page) < 200_000


@settings(deadline=None, max_examples=20)
@given(runtime=st.sampled_from(RUNTIMES), pp=st.sampled_from([1, 4]))
def test_the_page_peaks_where_the_headline_does(runtime: str, pp: int) -> None:
    scenario = training(runtime=runtime, plan={"pp": pp}, accelerators=8, work={"global_batch_size": 32})
    use = memory_of(scenario)
    assert [round(float(one.total.max())) for one in courses(scenario)] == pytest.approx(
        [stage.peak_bytes for stage in use.stages], abs=8
    )
    assert courses(scenario)[use.stage].limit == pytest.approx(use.limit_bytes, abs=1)


def test_the_page_of_a_batch_ends_at_the_headline() -> None:
    (one,) = courses(inference())
    assert float(one.total[-1]) == pytest.approx(memory_of(inference()).peak_bytes, abs=8)
    assert "may use" in memory_timeline(inference())


def test_two_ways_hold_the_weights_twice() -> None:
    """DeepSeek-AI 2024, arXiv 2412.19437, table 2: twice the parameters, pp + 1 activations."""

    def account(schedule: str) -> Any:
        plan = {"pp": 4, "schedule": schedule}
        return footprint(training(plan=plan, accelerators=8, work={"global_batch_size": 32})).account

    one, two = account("1f1b"), account("dualpipe")
    weights, activations = CATEGORIES.index("weights"), CATEGORIES.index("activations")
    never_drains = account("pipedream-2bw")
    assert never_drains.by_category[weights].sum() == pytest.approx(2 * one.by_category[weights].sum(), rel=1e-12)
    assert two.by_category[weights].sum() == pytest.approx(2 * one.by_category[weights].sum(), rel=1e-12)
    assert two.by_category[activations, 0, 1] == pytest.approx(5 / 3 * one.by_category[activations, 0, 1], rel=0.01)
