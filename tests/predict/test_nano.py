"""Nano-batches, asynchronous scheduling and eager execution: what a user switches on, and what it costs."""

import numpy as np
import pytest

from rapid_llm.predict import evaluate, predict
from rapid_llm.predict.nano import dealt
from rapid_llm.scenario import from_mapping
from rapid_llm.workload import points_of

WORK = {"kind": "inference", "batch_size": 64, "prompt_tokens": 2048, "output_tokens": 64}
EXPERTS = {
    "model": "deepseek-v3",
    "system": "dgx-h100",
    "runtime": "sglang",
    "parallelism": {"tp": 1, "dp": 32, "ep": 32},
}


def scenario(*overrides, **changes):
    dense = {"model": "llama-3.1-70b", "system": "dgx-h100", "runtime": "vllm", "parallelism": {"tp": 8}}
    return from_mapping({**dense, "workload": WORK, **changes}, overrides=overrides)


def nano(count, **changes):
    return scenario(f"runtime.overlap.nano_batches={count}", **changes)


def test_dealing_keeps_tokens_and_pairs():
    """Sequences go to nano-batches; a single prompt is cut, and its second half sees the first."""
    points = points_of([(8, 1, 500, 1), (3, 100, 0, 1), (1, 1000, 40, 1), (1, 1, 700, 1)])
    small, parts = dealt(points, 2)
    assert parts.tolist() == [2, 2, 2, 1]
    assert np.allclose(small.batch * small.new * parts, points.batch * points.new)
    pairs = parts * small.batch * small.new * (small.past + small.new / 2)
    assert np.allclose(pairs, points.batch * points.new * (points.past + points.new / 2))


def test_one_nano_batch_is_none():
    assert evaluate(nano(1)).e2e_s == evaluate(scenario()).e2e_s


def test_messages_hide_behind_the_kernels_of_the_other():
    """Where messages are less than kernels they go from the sum, but for the units that they take."""
    plain, two = (predict(nano(n, **EXPERTS, workload={**WORK, "batch_size": 128, "output_tokens": 1})) for n in (1, 2))
    exposed = [
        next(c for c in one.phases["prefill"].children if c.name == "exposed communication") for one in (plain, two)
    ]
    assert exposed[1].seconds < 0.4 * exposed[0].seconds
    assert exposed[1].hidden_seconds > 0.6 * exposed[0].seconds
    assert 0.6 * plain.ttft_s < two.ttft_s < 0.85 * plain.ttft_s, "SGLang: prefill on 32 H100 gains 27 to 35 %"


def test_weights_are_read_once_a_nano_batch():
    """Small batches lose: decode of few sequences streams all weights twice."""
    few = {**WORK, "batch_size": 2}
    assert evaluate(nano(2, workload=few)).tpot_s > 1.3 * evaluate(nano(1, workload=few)).tpot_s


@pytest.mark.parametrize("batching", ["static", "continuous"])
def test_leaves_sum_to_the_request(batching):
    report = predict(nano(2, workload={**WORK, "batching": batching}))
    assert sum(leaf.seconds for leaf in report.breakdown.leaves()) == pytest.approx(report.e2e_s, rel=1e-9)


def test_without_messages_nothing_is_gained():
    one = {"parallelism": {"tp": 1}, "model": "llama-3.1-8b"}
    assert evaluate(nano(2, **one)).ttft_s > 0.999 * evaluate(nano(1, **one)).ttft_s


def test_asynchronous_scheduling_hides_the_host_behind_the_step():
    """As long as a step takes longer than its preparation nothing of that shows."""
    plain, beside = (evaluate(scenario(f"runtime.serving.async_scheduling={on}")) for on in ("false", "true"))
    host = float(plain.decode @ plain.steps.host)
    assert plain.decode_s - beside.decode_s == pytest.approx(host)
    assert host > 0
    slow = evaluate(scenario("runtime.serving.async_scheduling=true", "runtime.host.per_step=1 s"))
    speed = slow.steps.priced.machine.host_speed
    assert slow.tpot_s == pytest.approx(1.0 / speed, rel=0.01), "a host slower than its steps paces them"


def test_prompts_beyond_captured_sizes_are_launched_from_python():
    def first(tokens, captured):
        alone = {**WORK, "batch_size": 1, "prompt_tokens": tokens}
        wide = {"model": "qwen3-30b-a3b", "accelerators": 4, "parallelism": {"tp": 4}, "workload": alone}
        return evaluate(scenario(f"runtime.host.pieces.tokens={captured}", **wide)).ttft_s

    assert first(500, 512) == first(500, 2048)
    assert first(1000, 512) > 1.5 * first(1000, 2048)


def test_eager_execution_costs_launches():
    eager = scenario("runtime.host.captured=[]", model="llama-3.1-8b", parallelism={"tp": 1})
    assert evaluate(eager).tpot_s > evaluate(scenario(model="llama-3.1-8b", parallelism={"tp": 1})).tpot_s
