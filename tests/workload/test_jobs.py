"""The nouns of an inference workload."""

import pytest

from rapid_llm.documents import build
from rapid_llm.errors import InputError
from rapid_llm.workload import Inference


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
