"""Waits of prompts: held to queues that are run, and to limits."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rapid_llm.errors import InputError
from rapid_llm.predict import arrivals, predict
from rapid_llm.scenario import from_mapping

FEW = settings(max_examples=15, deadline=None)


def scenario(**work):
    given_ = {"batch_size": 32, "prompt_tokens": 4000, "output_tokens": 500, "batching": "continuous"}
    return from_mapping(
        {
            "model": "llama-3.1-8b",
            "system": "dgx-h100",
            "accelerators": 1,
            "runtime": "vllm",
            "workload": {"kind": "inference", **given_, **work},
        }
    )


def queue(times, each):
    """Mean wait of prompts that come at these times, read one after the other."""
    free, waited = 0.0, 0.0
    for time in np.sort(times):
        free = max(free, time)
        waited += free - time
        free += each
    return waited / len(times)


@pytest.mark.parametrize("load", [0.2, 0.5, 0.8])
def test_prompts_within_a_window_wait_as_in_a_queue(load):
    random, prompts = np.random.default_rng(11), 200
    waits = [queue(random.random(prompts) * prompts / load, 1.0) for _ in range(100)]
    assert arrivals.within(prompts / load, prompts, 1.0) == pytest.approx(np.mean(waits), rel=0.12)


def test_as_many_as_are_served_wait_as_a_bridge_does():
    random, prompts = np.random.default_rng(12), 400
    waits = [queue(random.random(prompts) * prompts, 1.0) for _ in range(200)]
    assert arrivals.AT_RANDOM * np.sqrt(prompts) == pytest.approx(np.mean(waits), rel=0.5)


@FEW
@given(spread=st.floats(0.01, 2.0), each=st.floats(1e-3, 0.1), prompts=st.integers(1, 500))
def test_waves_wait_no_less_than_chance_and_ever_less(spread, each, prompts):
    near, far = (arrivals.in_waves(n, 60.0, spread, prompts, each) for n in (1, 20))
    assert near >= far - 1e-12 >= -1e-9
    assert arrivals.in_waves(9, 60.0, 0.0, prompts, each) == 0.0


class TestClosedLoop:
    def test_the_burst_is_a_part_of_the_mean(self):
        steady = predict(scenario())
        few, many = (predict(scenario(closed_loop=True, total_requests=n)) for n in (64, 32_000))
        together = predict(scenario(total_requests=32))
        assert steady.ttft_s < few.ttft_s < together.ttft_s
        assert many.ttft_s == pytest.approx(steady.ttft_s, rel=0.02)
        assert few.ttft_s == pytest.approx((steady.ttft_s + together.ttft_s) / 2, rel=1e-6)

    def test_a_request_takes_as_long_as_before(self):
        steady, loop = predict(scenario()), predict(scenario(closed_loop=True, total_requests=320))
        assert loop.e2e_s == pytest.approx(steady.e2e_s)

    @FEW
    @given(users=st.integers(1, 50))
    def test_more_users_never_wait_less(self, users):
        assert predict(scenario(batch_size=users)).ttft_s <= predict(scenario(batch_size=users + 8)).ttft_s * (1 + 1e-9)

    def test_one_user_waits_for_none(self):
        alone = predict(scenario(batch_size=1, batching="static"))
        assert predict(scenario(batch_size=1)).ttft_s == pytest.approx(alone.ttft_s)

    @pytest.mark.parametrize(
        ("work", "said"),
        [
            ({"total_requests": None}, "closed_loop, of so many users"),
            ({"batch_size": "auto"}, "closed_loop, of so many users"),
            ({"batching": "static"}, "closed_loop and batching static"),
        ],
    )
    def test_what_says_nothing_is_refused(self, work, said):
        with pytest.raises(InputError, match=said):
            scenario(**{"closed_loop": True, "total_requests": 64, **work})
