"""Forward passes of a batch: every token once, chunks lose nothing, tiles stand for their steps."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rapid_llm.workload import KV_TILE_TOKENS, decode_points, join, points_of, prefill_points

SIZES = st.integers(1, 300)


@given(batch=SIZES, new=st.integers(1, 5000), budget=st.integers(1, 4096), past=st.integers(0, 5000))
def test_prefill_computes_every_token_once(batch, new, budget, past):
    points = prefill_points(batch, new, budget, past)
    assert (points.batch * points.new * points.count).sum() == batch * new
    assert (points.batch * points.new).max() <= max(budget, new if new <= budget else 0)


@given(batch=SIZES, new=st.integers(1, 5000), budget=st.integers(1, 4096), past=st.integers(0, 5000))
def test_chunks_see_the_pairs_of_the_whole_prompt(batch, new, budget, past):
    """Pairs of new and visible tokens: new (past + new / 2), however the prompt is cut."""
    points = prefill_points(batch, new, budget, past)
    pairs = (points.batch * points.new * (points.past + points.new / 2.0) * points.count).sum()
    assert pairs == pytest.approx(batch * new * (past + new / 2.0))


@given(batch=SIZES, prompt=st.integers(1, 5000), output=st.integers(1, 3000))
def test_decode_steps_sum_to_those_of_every_token(batch, prompt, output):
    points = decode_points(batch, prompt, output)
    past = np.arange(prompt, prompt + output - 1)
    assert points.count.sum() == output - 1
    assert (points.count * points.past).sum() == pytest.approx(past.sum())
    assert len(points.count) <= output // KV_TILE_TOKENS + 2
    assert points.decode.all()


def test_one_output_token_has_no_decode_step():
    assert len(decode_points(4, 100, 1).count) == 0


def test_decode_runs_the_next_captured_batch():
    points = points_of([(3, 1, 50, 1), (8, 1, 50, 1), (9, 1, 50, 1), (40, 1, 50, 1), (3, 7, 0, 1)])
    assert points.padded((1, 2, 4, 8, 16), 64).tolist() == [4, 8, 16, 40, 3]
    assert points.padded((1, 2, 4, 8, 16), 12).tolist() == [4, 8, 12, 40, 3], "no graph of more than ever run"
    assert points.padded((), 64).tolist() == [3, 8, 9, 40, 3]


def test_join_keeps_the_order():
    points = join([prefill_points(2, 10, 100), decode_points(2, 10, 3)])
    assert points.new.tolist() == [10, 1]


def test_a_huge_prompt_and_output_are_few_groups_with_the_same_sums():
    prompt, output = 10**8 + 5, 10**8
    read, written = prefill_points(3, prompt, 8192), decode_points(3, prompt, output)
    assert max(len(read.count), len(written.count)) <= 4098
    assert (read.new * read.count).sum() == 3 * prompt
    pairs = (read.new * (read.past + read.new / 2.0) * read.count).sum()
    assert pairs == pytest.approx(3 * prompt**2 / 2)
    assert written.count.sum() == output - 1
    assert (written.count * written.past).sum() == pytest.approx((prompt + (output - 2) / 2) * (output - 1))
