import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from rapid_llm.validation import metrics

positive = st.floats(0.1, 100.0)


def test_errors_of_hand_made_numbers():
    found = metrics.errors([1.1, 1.8, 3.0, 5.0], [1.0, 2.0, 3.0, 4.0])
    assert found is not None
    assert found.mape == pytest.approx((0.1 + 0.1 + 0.0 + 0.25) / 4)
    assert found.median == pytest.approx(0.1)
    assert found.p90 == pytest.approx(0.1 + 0.7 * 0.15)
    assert found.bias == pytest.approx((0.1 - 0.1 + 0.0 + 0.25) / 4)


def test_nothing_has_no_errors():
    assert metrics.errors([], []) is None
    assert metrics.verdict([], []) is None
    assert metrics.rank_within([]) is None


@given(st.lists(st.tuples(positive, positive), min_size=3, max_size=30))
def test_spearman_is_that_of_scipy(pairs):
    first, second = zip(*pairs, strict=True)
    found = metrics.spearman(first, second)
    if found is None:
        assert len(set(first)) == 1 or len(set(second)) == 1
    else:
        assert found == pytest.approx(stats.spearmanr(first, second).statistic)


def test_rank_within_is_the_mean_over_groups_of_three_or_more():
    up, down, short = ([1, 2, 3], [1, 2, 3]), ([1, 2, 3], [3, 2, 1]), ([1, 2], [2, 1])
    assert metrics.rank_within([up, up, down, short]) == pytest.approx(1 / 3)


def test_regret_is_what_the_plan_ranked_first_took_beyond_the_best():
    missed, found, alone = ([2.0, 1.0, 3.0], [10.0, 12.0, 30.0]), ([1.0, 2.0], [5.0, 6.0]), ([1.0], [7.0])
    assert metrics.regret([missed, found, alone]) == pytest.approx(0.1)
    assert metrics.regret([alone]) is None


def test_verdict_of_running_out_of_memory():
    found = metrics.verdict([True, True, False, False, False], [True, False, True, False, False])
    assert found == metrics.Verdict(accuracy=0.6, precision=0.5, recall=0.5)
    assert metrics.verdict([False], [False]) == metrics.Verdict(accuracy=1.0, precision=None, recall=None)


@given(st.lists(st.tuples(positive, positive), min_size=1, max_size=12))
def test_no_factor_beats_the_best_constant(pairs):
    predicted, measured = (np.array(x) for x in zip(*pairs, strict=True))
    best = metrics.best_constant(predicted, measured)

    def mape(factor):
        return np.abs(factor * predicted / measured - 1).mean()

    others = np.concatenate([measured / predicted, best * np.linspace(0.5, 2.0, 40)])
    assert all(mape(best) <= mape(other) + 1e-12 for other in others)
