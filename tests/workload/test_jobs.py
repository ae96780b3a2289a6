"""The nouns of an inference workload."""

import pytest

from rapid_llm.documents import build
from rapid_llm.errors import InputError
from rapid_llm.workload import Inference, Speculation


def test_defaults():
    work = build(Inference, {"batch_size": 8, "prompt_tokens": 100, "output_tokens": 10})
    assert (work.prefix_tokens, work.batching, work.new_tokens, work.requests) == (0, "static", 100, 8)


@pytest.mark.parametrize(("prefix", "new"), [(0, 100), (60, 40), (100, 1), (500, 1)])
def test_a_cached_prefix_leaves_at_least_one_token(prefix, new):
    work = Inference(batch_size=1, prompt_tokens=100, output_tokens=10, prefix_tokens=prefix)
    assert work.new_tokens == new


def test_an_automatic_batch_is_one_request_until_the_engine_has_chosen():
    assert Inference(batch_size="auto", prompt_tokens=100, output_tokens=10).requests == 1


def test_other_words_for_a_batch_are_refused():
    with pytest.raises(InputError, match=r"batch_size"):
        build(Inference, {"batch_size": "many", "prompt_tokens": 100, "output_tokens": 10})


@pytest.mark.parametrize(("tokens", "sentence"), [
    (10**12, "output_tokens must be at most 100,000,000 (got 1000000000000)."),
    (100_000_001, "output_tokens must be at most 100,000,000 (got 100000001)."),
    (-1, "output_tokens must be at least 0 (got -1). Try 0."),
])  # fmt: skip
def test_an_output_has_a_bound(tokens, sentence):
    with pytest.raises(InputError) as error:
        build(Inference, {"batch_size": 1, "prompt_tokens": 100, "output_tokens": tokens})
    assert error.value.message == sentence


@pytest.mark.parametrize("tokens", [0, 100_000_000])
def test_up_to_its_bound_an_output_is_taken(tokens):
    assert build(Inference, {"batch_size": 1, "prompt_tokens": 100, "output_tokens": tokens}).output_tokens == tokens


@pytest.mark.parametrize(
    ("acceptance", "tokens"),
    [((0.0, 0.0), 1.0), ((1.0, 1.0), 3.0), ((0.8,), 1.8), ((0.9, 0.5, 0.2), 1 + 0.9 + 0.45 + 0.09)],
)
def test_tokens_of_a_step_count_drafts_whose_predecessors_were_accepted(acceptance, tokens):
    """With one rate a for n drafts this is (1 - a^(n+1)) / (1 - a) (Leviathan et al. 2023, equation 1)."""
    assert Speculation(acceptance=acceptance).tokens_per_step == pytest.approx(tokens)


def test_one_rate_is_the_closed_form():
    assert Speculation(acceptance=(0.7,) * 5).tokens_per_step == pytest.approx((1 - 0.7**6) / 0.3)


def test_acceptance_is_a_share():
    with pytest.raises(InputError, match=r"acceptance"):
        build(Speculation, {"acceptance": [1.2]})
