"""Waits of prompts: held to queues that are run, and to limits."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rapid_llm.errors import InputError
from rapid_llm.predict import arrivals, predict
from rapid_llm.runtime import Serving
from rapid_llm.scenario import from_mapping

FEW = settings(max_examples=15, deadline=None)


def scenario(runtime="vllm", **work):
    given_ = {"batch_size": 32, "prompt_tokens": 4000, "output_tokens": 500, "batching": "continuous"}
    return from_mapping(
        {
            "model": "llama-3.1-8b",
            "system": "dgx-h100",
            "accelerators": 1,
            "runtime": runtime,
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


def facts(**changes):
    return Serving(**{"mixed_steps": True, **changes})


class TestLooks:
    """When an engine looks for prompts, and how many of them it then reads."""

    def until(self, engine, rate=0.01, filled=8.0, decoding=1.0):
        return arrivals.until_read(engine, rate, filled, step=2.0, mean=3.0, decoding=decoding)

    def test_what_is_left_of_a_step_and_the_steps_that_are_decided(self):
        assert self.until(facts()) == pytest.approx(1.0)
        assert self.until(facts(), decoding=0.0) == 0.0
        assert self.until(facts(steps_ahead=1)) == pytest.approx(1.0 + 3.0)
        assert self.until(facts(receive_interval=30)) == pytest.approx(30.0)

    def test_prompts_between_two_looks_are_read_together(self):
        assert arrivals.gathered(facts(receive_interval=30), 0.14, 8.0) == pytest.approx(4.2)
        assert arrivals.gathered(facts(receive_interval=30), 0.01, 8.0) == 1.0

    def test_a_prompt_alone_waits_as_long_as_the_engine_does(self):
        patient = facts(batch_wait=20, batch_wait_share=0.9)
        assert self.until(patient, rate=1e-9) == pytest.approx(1.0 + 20 * 2.0)
        assert arrivals.gathered(patient, 0.1, 100.0) == pytest.approx(3.0)

    def test_it_waits_no_longer_than_others_take_to_fill_the_budget(self):
        patient = facts(batch_wait=20, batch_wait_share=0.9)
        assert arrivals.patience(patient, 1.0, 4.0) == pytest.approx(3.0)
        assert arrivals.patience(patient, 1.0, 0.5) == 0.0

    @FEW
    @given(rate=st.floats(1e-6, 10.0), filled=st.floats(0.0, 50.0), wait=st.integers(0, 40))
    def test_waits_are_between_none_and_all_of_it(self, rate, filled, wait):
        engine = facts(batch_wait=wait, batch_wait_share=0.5)
        put_off = self.until(engine, rate, filled) - self.until(facts(), rate, filled)
        assert -1e-9 <= put_off <= 2.0 * wait + 1e-9
        assert 1.0 <= arrivals.gathered(engine, rate, filled) <= max(1.0, rate, filled) + 1e-9

    @FEW
    @given(
        users=st.integers(2, 64),
        changes=st.sampled_from(
            [{"steps_ahead": 1}, {"receive_interval": 30}, {"batch_wait": 20, "batch_wait_share": 0.9}]
        ),
    )
    def test_later_looks_never_make_the_first_token_sooner(self, users, changes):
        soon, late = (
            predict(scenario(batch_size=users, runtime={"base": "vllm", "serving": {"steps_ahead": 0, **more}}))
            for more in ({}, changes)
        )
        assert late.ttft_s > soon.ttft_s


class TestStreams:
    @FEW
    @given(users=st.integers(1, 64), tokens=st.integers(2, 600))
    def test_tokens_of_the_first_event_come_later_and_the_last_as_before(self, users, tokens):
        at_once, held = (
            predict(scenario(batch_size=users, runtime={"base": "sglang", "serving": {"first_event": n}}))
            for n in (1, tokens)
        )
        assert held.e2e_s == pytest.approx(at_once.e2e_s)
        assert held.ttft_s == pytest.approx(at_once.ttft_s + min(tokens - 1, 499) * at_once.tpot_s)
        assert held.ttft_s + 499 * held.tpot_s == pytest.approx(held.e2e_s)

    def test_the_breakdown_stays_whole(self):
        report = predict(scenario(runtime={"base": "sglang", "serving": {"first_event": 30, "receive_interval": 10}}))
        assert sum(phase.seconds for phase in report.phases.values()) == pytest.approx(report.e2e_s)
        assert all(child.seconds >= -1e-9 for phase in report.phases.values() for child in phase.children)


def test_tokenising_is_a_part_of_arriving():
    none, some, twice = (
        predict(scenario(batch_size=1, runtime={"base": "vllm", "host": {"per_prompt_token": each}})).ttft_s
        for each in ("0 s", "2 us", "4 us")
    )
    assert 0.0 < some - none <= 4000 * 2e-6
    assert twice - some == pytest.approx(some - none)


def test_prompts_of_a_burst_are_tokenised_together():
    def burst(together):
        serving = {"tokenised_together": together}
        given_ = {"batch_size": 32, "closed_loop": True, "total_requests": 320}
        return predict(scenario(**given_, runtime={"base": "vllm", "serving": serving})).ttft_s

    assert burst(1) < burst(32) == pytest.approx(burst(64))


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
