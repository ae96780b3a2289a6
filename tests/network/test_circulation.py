"""The longest queue on a ring, against all pairs of its links."""

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
    pattern[-1] = 2
    edges = np.tile(pattern, laps + 1)
    late, moving = (np.concatenate([[0.0], np.cumsum(draw.random(3)[edges])]) for _ in range(2))
    slow, dear = edges == 2, edges > 0
    found = _Queue(late, moving, (slow, dear), ring, rounds).farthest()
    begins, ends = (np.flatnonzero(dear[:n]) for n in (ring, len(edges)))
    pairs = [(b, e) for b in begins for e in ends + 1 if e - b <= rounds and slow[b:e].any()]
    every = np.array([(late[e] - late[b], moving[e] - moving[b]) for b, e in pairs])
    for way in np.array([(1.0, 0.0), (0.0, 1.0), (1.0, 1.0), (0.1, 1.0), (1.0, 0.1)]):
        assert (found @ way).max() == pytest.approx((every @ way).max(), rel=1e-5)


def test_corners_that_differ_by_rounding_alone_are_one():
    """Rings of seven nodes of four, where sums of transfers cancel on the slow links but for their last bits: asking
    between two such corners for one beyond both never ended.
    """
    slow = np.tile([False, False, False, True], 21)
    far = np.tile(np.repeat([2.75e-6, 2.25e-6, 2.25e-6, 2.25e-6, 2.25e-6, 2.25e-6, 2.75e-6], 4), 3)
    rounding = 1e-28 * np.random.default_rng(33).integers(0, 9, 85)
    late = np.concatenate([[0.0], np.cumsum(np.where(slow, far, 6e-7))])
    moving = np.concatenate([[0.0], np.cumsum(np.where(slow, 0.0, -2.4e-13))]) + rounding
    assert len(_Queue(late, moving, (slow, slow), 28, 54).farthest()) < 28
