"""Lengths that vary, and replicas that share experts and so step together."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rapid_llm.errors import InputError
from rapid_llm.predict import evaluate, predict
from rapid_llm.predict.lockstep import Lockstep, lockstep
from rapid_llm.scenario import from_mapping

FEW = settings(max_examples=15, deadline=None)
TALK = {"prompt_spread": 0.96, "output_spread": 0.77}


def scenario(model="qwen3-30b-a3b", *, dp=1, ep=1, runtime="vllm", **work):
    return from_mapping(
        {
            "model": model,
            "system": "dgx-h100",
            "accelerators": dp,
            "runtime": runtime,
            "parallelism": {"dp": dp, "ep": ep},
            "workload": {
                "kind": "inference",
                "batch_size": 32,
                "prompt_tokens": 2000,
                "output_tokens": 500,
                "batching": "continuous",
                **work,
            },
        }
    )


class TestLockstep:
    @FEW
    @given(replicas=st.integers(2, 256), share=st.floats(1e-4, 0.999))
    def test_prompts_of_all_are_read_once_each(self, replicas, share):
        shared = lockstep(float(replicas), 1000 * share, 1000.0)
        assert shared.spread * shared.at_once == pytest.approx(replicas)
        assert 1.0 <= shared.at_once <= replicas
        assert shared.spread * share <= 1.0 + 1e-12

    def test_one_that_waits_for_none_is_as_it_was(self):
        assert lockstep(1.0, 20.0, 100.0) == Lockstep(1.0)

    def test_ranks_that_read_in_every_step_do_so_together(self):
        assert lockstep(8.0, 100.0, 100.0).spread == 1.0

    def test_chance_is_that_of_draws(self):
        reads = np.random.default_rng(5).random((200_000, 8)) < 0.1
        some = reads.any(axis=1)
        shared = lockstep(8.0, 10.0, 100.0)
        assert shared.spread * 0.1 == pytest.approx(some.mean(), rel=0.01)
        assert shared.at_once == pytest.approx(reads[some].sum(axis=1).mean(), rel=0.01)

    def test_equal_lengths_stay_in_phase(self):
        one = predict(scenario(dp=8, ep=8, batch_size=256))
        assert one.tpot_s < predict(scenario(dp=8, ep=8, batch_size=256, output_spread=0.01)).tpot_s

    def test_padded_ranks_take_longer(self):
        newer = predict(scenario(dp=8, ep=8, batch_size=256, **TALK)).tpot_s
        assert newer < predict(scenario(dp=8, ep=8, batch_size=256, runtime="vllm@2025", **TALK)).tpot_s * 1.001
        padded = {"base": "vllm", "serving": {"pads_ranks": True}}
        assert newer < predict(scenario(dp=8, ep=8, batch_size=256, runtime=padded, **TALK)).tpot_s

    def test_replicas_without_shared_experts_do_not_wait(self):
        one = predict(scenario("llama-3.1-8b", batch_size=32, **TALK))
        assert one.tpot_s == pytest.approx(predict(scenario("llama-3.1-8b", dp=8, batch_size=256, **TALK)).tpot_s)

    @FEW
    @given(runtime=st.sampled_from(["vllm", "sglang", "tensorrt-llm"]), batch=st.sampled_from([8, 64, 512]))
    def test_no_steps_are_lost(self, runtime, batch):
        table = evaluate(scenario(dp=8, ep=8, batch_size=batch, runtime=runtime, **TALK))
        own, steps = table.points.count[0], table.decode[1] + table.crossing[0] + table.prefill[0] + table.streamed[0]
        assert steps >= 499 - 1e-9
        assert steps <= 500 + own


class TestSpread:
    def test_longer_outputs_hold_more_of_the_cache(self):
        even = predict(scenario("llama-3.1-8b", batch_size="auto", prompt_tokens=500, output_tokens=8000))
        spread = predict(
            scenario("llama-3.1-8b", batch_size="auto", prompt_tokens=500, output_tokens=8000, output_spread=1.0)
        )
        assert spread.running_requests == pytest.approx(even.running_requests * 4500 / 8500, rel=0.02)

    def test_running_requests_have_written_more(self):
        points = evaluate(scenario("llama-3.1-8b", output_spread=1.0)).points
        assert points.past[1] == pytest.approx(2000 + 500 - 0.5)

    def test_a_static_batch_waits_for_its_longest(self):
        even, spread = (evaluate(scenario("llama-3.1-8b", batching="static", output_spread=s)) for s in (0.0, 0.8))
        assert spread.gaps > 2 * even.gaps
        tokens = [float(t.points.batch @ (t.decode * (t.points.new <= 1))) for t in (even, spread)]
        assert tokens[1] == pytest.approx(tokens[0], rel=0.05)
        assert spread.e2e_s > 1.5 * even.e2e_s

    @FEW
    @given(batching=st.sampled_from(["static", "continuous"]), spread=st.floats(0.0, 2.0))
    def test_a_spread_never_makes_a_batch_faster(self, batching, spread):
        even, varied = (predict(scenario("llama-3.1-8b", batching=batching, output_spread=s)) for s in (0.0, spread))
        assert varied.output_tokens_per_s <= even.output_tokens_per_s * (1 + 1e-9)

    def test_long_prompts_have_most_of_the_pairs(self):
        even, varied = (
            predict(scenario("llama-3.1-8b", batching="static", prompt_tokens=8000, prompt_spread=s))
            for s in (0.0, 1.0)
        )
        assert even.ttft_s * 1.02 < varied.ttft_s < even.ttft_s * 2.0

    def test_one_request_has_the_mean_length(self):
        one = [predict(scenario("llama-3.1-8b", batch_size=1, batching="static", output_spread=s)) for s in (0, 1)]
        assert one[0].e2e_s == one[1].e2e_s

    def test_a_negative_spread_is_refused(self):
        with pytest.raises(InputError, match=r"output_spread must be .*0"):
            scenario(output_spread=-1)
