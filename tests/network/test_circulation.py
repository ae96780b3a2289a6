"""The longest queue on a ring, against all pairs of its slow links."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rapid_llm.network.circulation import _Queue


@settings(max_examples=100)
@given(ring=st.integers(2, 40), laps=st.integers(1, 2), seed=st.integers(0, 10**6))
def test_the_longest_queue_is_that_of_all_pairs(ring, laps, seed):
    draw, rounds = np.random.default_rng(seed), laps * (ring - 1)
    pattern = draw.integers(0, 3, ring)
    pattern[draw.integers(ring)] = 2
    edges = np.tile(pattern, laps + 1)
    late, moving = (np.concatenate([[0.0], np.cumsum(draw.random(3)[edges])]) for _ in range(2))
    found = _Queue(late, moving, edges == 2, ring, rounds).farthest()
    slow = np.flatnonzero(edges == 2)
    pairs = [(b, e) for b in slow[slow < ring] for e in slow + 1 if 0 < e - b <= rounds]
    every = np.array([(late[e] - late[b], moving[e] - moving[b]) for b, e in pairs])
    for way in np.array([(1.0, 0.0), (0.0, 1.0), (1.0, 1.0), (0.1, 1.0), (1.0, 0.1)]):
        assert (found @ way).max() == pytest.approx((every @ way).max(), rel=1e-5)
