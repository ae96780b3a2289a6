"""Lengths that vary: closed forms held to draws."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rapid_llm.workload import lengths

RANDOM = np.random.default_rng(3)


def drawn(mean, spread, shape):
    sigma = np.sqrt(np.log1p(spread**2))
    return mean * np.exp(sigma * RANDOM.standard_normal(shape) - sigma**2 / 2.0)


@pytest.mark.parametrize("spread", [0.1, 0.5, 1.0])
def test_moments_are_those_of_draws(spread):
    one = drawn(1000.0, spread, 400_000)
    assert lengths.by_token(1000.0, spread) == pytest.approx((one**2).mean() / one.mean(), rel=0.03)
    mean, deviation = lengths.written(1000.0, spread)
    at = RANDOM.choice(one, 400_000, p=one / one.sum()) * RANDOM.random(400_000)
    assert (mean, deviation) == (pytest.approx(at.mean(), rel=0.03), pytest.approx(at.std(), rel=0.08))
    left = lengths.running(np.array([600.0]), np.array([200.0]), 1000.0, spread)[0]
    assert left == pytest.approx(np.mean([(one > t + 0.5).mean() for t in range(600, 800)]), abs=0.005)


@pytest.mark.parametrize("spread", [0.1, 0.5, 1.0])
@pytest.mark.parametrize("requests", [2, 16, 256])
def test_the_longest_is_that_of_draws(spread, requests):
    expected = drawn(1000.0, spread, (4000, requests)).max(axis=1).mean()
    assert lengths.longest(1000, spread, requests) == pytest.approx(expected, rel=0.03)


@settings(max_examples=30, deadline=None)
@given(mean=st.integers(0, 10_000), spread=st.floats(0, 3), requests=st.integers(1, 500))
def test_the_longest_is_no_shorter_than_the_mean(mean, spread, requests):
    assert lengths.longest(mean, spread, requests) >= 0.97 * mean
    assert lengths.longest(mean, 0.0, requests) == lengths.longest(mean, spread, 1) == mean


def test_equal_lengths_are_spread_evenly_over_their_progress():
    assert lengths.written(1200.0, 0.0) == (600.0, pytest.approx(1200.0 / 12**0.5))
    assert lengths.by_token(7.0, 0.0) == 7.0
