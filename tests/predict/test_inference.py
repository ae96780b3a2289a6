"""Inference batches: definitions, growth held to a sum over every step, properties, limits of the cache."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rapid_llm.execution import Machine
from rapid_llm.nouns import replaced
from rapid_llm.predict import evaluate, plans_of, predict
from rapid_llm.predict.admission import fed, room
from rapid_llm.predict.replica import Job
from rapid_llm.scenario import from_mapping
from rapid_llm.workload import points_of

BASE = {
    "model": "llama-3.1-8b",
    "system": "dgx-h100",
    "runtime": "vllm",
    "workload": {"kind": "inference", "batch_size": 8, "prompt_tokens": 300, "output_tokens": 200},
}
FEW = settings(max_examples=15, deadline=None)


def scenario(tp=1, model=None, runtime=None, *, system=None, precision=None, pp=1, **work):
    mapping = {**BASE, "accelerators": tp * pp, "parallelism": {"tp": tp, "pp": pp}}
    given_ = {"model": model, "runtime": runtime, "system": system, "precision": precision}
    mapping |= {key: value for key, value in given_.items() if value}
    return from_mapping({**mapping, "workload": {**BASE["workload"], **work}})


def job_of(given_):
    machine = Machine.of(given_.system, given_.runtime)
    return Job(given_.model, given_.runtime, given_.precision, plans_of(given_), given_.workload, machine)


def test_e2e_is_ttft_and_the_gaps_after_it():
    report = predict(scenario())
    assert report.e2e_s == pytest.approx(report.ttft_s + report.tpot_s * 199)
    assert report.output_tokens_per_s == pytest.approx(8 * 200 / report.e2e_s)
    assert report.total_tokens_per_s == pytest.approx(8 * 500 / report.e2e_s)
    assert report.running_requests == 8


class TestJobsOfSoManyRequests:
    @pytest.mark.parametrize("batching", ["static", "continuous"])
    def test_whole_waves_take_a_request_each_and_the_rest_its_own(self, batching):
        def alone(n):
            return predict(scenario(batch_size=n, batching=batching, total_requests=n)).run_time_s

        job = predict(scenario(batch_size=8, batching=batching, total_requests=27))
        assert job.run_time_s == pytest.approx(3 * alone(8) + alone(3))
        assert job.output_tokens_per_s == pytest.approx(27 * 200 / job.run_time_s)
        assert job.accelerator_hours == pytest.approx(job.run_time_s / 3600)
        assert job.running_requests == 8

    def test_fewer_requests_than_fit_run_together(self):
        auto = {"batch_size": "auto", "batching": "continuous"}
        few = predict(scenario(**auto, total_requests=5))
        assert few.running_requests == 5
        assert few.run_time_s == pytest.approx(
            predict(scenario(**{**auto, "batch_size": 5}, total_requests=5)).run_time_s
        )

    def test_a_long_queue_nears_the_rate_of_one_without_end(self):
        """But for prompts, which equal lengths read in bursts, where those of an endless queue are spread."""
        auto = {"batch_size": "auto", "batching": "continuous"}
        endless = predict(scenario(**auto)).output_tokens_per_s
        rates = [predict(scenario(**auto, total_requests=n)).output_tokens_per_s for n in (300, 3_000, 300_000)]
        assert rates == sorted(rates)
        assert rates[-1] == pytest.approx(endless, rel=0.05)

    def test_replicas_share_the_queue(self):
        one = scenario(batch_size=8, total_requests=80)
        plan = replaced(one.parallelism, dp=2, dp_shard=2)
        two = replaced(one, parallelism=plan, accelerators=2, workload=replaced(one.workload, batch_size=16))
        assert predict(two).run_time_s == pytest.approx(predict(one).run_time_s / 2)

    def test_memory_splits_rounds_as_it_does_without_a_queue(self):
        many = predict(scenario(batch_size=5_000, prompt_tokens=2_000, total_requests=5_000), allow_infeasible=True)
        plain = predict(scenario(batch_size=5_000, prompt_tokens=2_000), allow_infeasible=True)
        assert many.run_time_s == pytest.approx(plain.e2e_s, rel=0.05)

    @pytest.mark.parametrize("batching", ["static", "continuous"])
    def test_times_are_means_over_requests_that_all_wait_at_the_start(self, batching):
        alone = predict(scenario(batch_size=64, batching=batching, total_requests=64))
        reports = [predict(scenario(batch_size=64, batching=batching, total_requests=64 * n)) for n in (1, 2, 3)]
        assert [one.waves for one in reports] == [1, 2, 3]
        static = predict(scenario(batch_size=64, batching="static"))
        assert (0.5 if batching == "continuous" else 1.0) * static.ttft_s <= reports[0].ttft_s <= static.ttft_s
        for waves, one in enumerate(reports):
            assert one.ttft_s == pytest.approx(reports[0].ttft_s + waves / 2 * alone.run_time_s)
            assert one.tpot_s == pytest.approx(reports[0].tpot_s)
            assert one.e2e_s == pytest.approx(one.ttft_s + 199 * one.tpot_s) and one.e2e_s <= one.run_time_s
            assert min(leaf.seconds for leaf in one.breakdown.leaves()) >= 0.0

    def test_energy_is_of_the_whole_run(self):
        one = predict(scenario(batch_size=8, batching="continuous", total_requests=8))
        ten = predict(scenario(batch_size=8, batching="continuous", total_requests=80))
        assert one.energy.run_joules == pytest.approx(one.energy.mean_power_w * one.run_time_s)
        assert one.energy.joules_per_output_token == pytest.approx(one.energy.run_joules / (8 * 200))
        assert ten.energy.run_joules == pytest.approx(10 * one.energy.run_joules)

    def test_prompts_alone_have_their_first_token_as_they_are_read(self):
        done = predict(scenario(batch_size=64, batching="continuous", output_tokens=1, total_requests=64))
        assert 0.4 * done.run_time_s < done.ttft_s == done.e2e_s < done.run_time_s


def test_one_output_token_is_its_prefill():
    report = predict(scenario(output_tokens=1))
    assert report.tpot_s == 0.0
    assert report.e2e_s == report.ttft_s


def test_ttft_includes_the_way_to_the_engine():
    given_ = scenario()
    host = replaced(given_.runtime.host, ingress=0.0)
    without = replaced(given_, runtime=replaced(given_.runtime, host=host))
    saved = given_.runtime.host.ingress / Machine.of(given_.system, given_.runtime).host_speed
    assert predict(given_).ttft_s - predict(without).ttft_s == pytest.approx(saved)


@pytest.mark.parametrize("model", ["llama-3.1-8b", "mixtral-8x7b", "gpt-oss-20b"])
@pytest.mark.parametrize(("prompt", "output"), [(1, 40), (63, 130), (1000, 300)])
def test_growth_over_the_output_is_the_sum_over_every_step(model, prompt, output):
    given_ = scenario(model=model, prompt_tokens=prompt, output_tokens=output)
    job = job_of(given_)
    every = job.time(points_of([(8, 1, past, 1) for past in range(prompt, prompt + output - 1)]))[1]
    exact = (every.traversal + every.host).sum()
    assert evaluate(given_).decode_s == pytest.approx(exact, rel=2e-3)


@FEW
@given(batch=st.integers(1, 200), prompt=st.integers(1, 4000))
def test_decode_grows_with_batch_and_cache(batch, prompt):
    job = job_of(scenario())
    steps = job.time(points_of([(batch, 1, prompt, 1), (batch + 7, 1, prompt, 1), (batch, 1, prompt + 600, 1)]))[1]
    base, more, longer = (steps.traversal + steps.host).tolist()
    one_split = 1e-3  # more sequences need fewer splits of the cache, whose results need no merging
    assert more >= base * (1 - one_split)
    assert longer >= base * (1 - one_split)


@FEW
@given(prompt=st.integers(600, 9000), budget=st.sampled_from([256, 512, 1024]))
def test_chunks_lose_no_work(prompt, budget):
    whole = scenario(batch_size=1, prompt_tokens=prompt)
    engine = whole.runtime.serving
    one = replaced(whole, runtime=replaced(whole.runtime, serving=replaced(engine, max_batched_tokens=prompt)))
    cut = replaced(whole, runtime=replaced(whole.runtime, serving=replaced(engine, max_batched_tokens=budget)))
    assert evaluate(cut).ttft_s >= evaluate(one).ttft_s * (1 - 1e-9)


def test_one_accelerator_has_no_communication():
    report = predict(scenario())
    assert not any(leaf.bound == "network" and leaf.seconds for leaf in report.breakdown.leaves())
    assert all(not (m.rows.count * (m.rows.ranks > 1)).any() for m in evaluate(scenario()).steps.priced.messages)


def test_experts_that_no_token_chooses_cost_nothing():
    few, many = (scenario(model={"base": "mixtral-8x7b", "num_local_experts": n}, batch_size=1) for n in (8, 16))
    assert evaluate(many).tpot_s == pytest.approx(evaluate(few).tpot_s, rel=0.02)


def test_a_cached_prefix_saves_its_prefill_and_nothing_else():
    cold, warm, hot = (evaluate(scenario(prompt_tokens=3000, prefix_tokens=p)) for p in (0, 2000, 2999))
    assert cold.ttft_s > warm.ttft_s > hot.ttft_s
    assert warm.tpot_s == pytest.approx(cold.tpot_s)


def test_padding_to_a_captured_batch_costs_as_that_batch():
    nine, sixteen = (evaluate(scenario(batch_size=b, prompt_tokens=16, output_tokens=3)).tpot_s for b in (9, 16))
    assert nine == pytest.approx(sixteen, rel=0.02)
    assert nine <= sixteen


def test_pipeline_stages_share_the_batch():
    """With as many micro-batches as stages a token takes one traversal; prefill streams."""
    table = evaluate(scenario(tp=2, pp=2, batch_size=8))
    steps, decode = table.steps, table.decode > 0
    assert table.points.batch[decode].max() == 4
    step = np.maximum(steps.traversal, 2 * steps.pace) + steps.host
    assert table.decode_s == pytest.approx(float((step * table.decode)[decode].sum()))


LONG = {"batch_size": 400, "prompt_tokens": 4000, "output_tokens": 500}


class TestCache:
    """What the cache holds decides how many requests run."""

    def test_a_batch_beyond_the_cache_does_not_fit_and_would_run_in_rounds(self):
        given_ = scenario(**LONG)
        report = predict(given_)
        assert not report.feasible
        assert report.e2e_s is None
        table = evaluate(given_)
        assert table.rounds > 1
        assert table.running * table.rounds >= 400
        half = evaluate(scenario(**{**LONG, "batch_size": table.running}))
        assert table.e2e_s == pytest.approx(half.e2e_s * 400 / table.running)

    def test_an_automatic_batch_is_the_largest_that_fits(self):
        table = evaluate(scenario(**{**LONG, "batch_size": "auto", "runtime": "tensorrt-llm"}))
        assert table.rounds == 1
        job = job_of(scenario(runtime="tensorrt-llm", **{**LONG, "batch_size": table.running}))
        assert room(table, table.running, job, output=1.0) == table.running

    @pytest.mark.parametrize("batching", ["static", "continuous"])
    @pytest.mark.parametrize("runtime", ["vllm", "tensorrt-llm", "sglang"])
    def test_an_automatic_batch_fits(self, runtime, batching):
        report = predict(scenario(runtime=runtime, **{**LONG, "batch_size": "auto", "batching": batching}))
        assert report.feasible
        assert report.running_requests > 1

    def test_fewer_reserved_tokens_admit_more(self):
        given_ = scenario(**LONG)
        table = evaluate(given_)
        job = job_of(given_)
        assert room(table, 400, job, output=0.0) > room(table, 400, job, output=1.0)


class TestContinuous:
    """The mean field of requests that are replaced as they finish."""

    @pytest.mark.parametrize("runtime", ["vllm", "tensorrt-llm", "sglang", "vllm@2024"])
    def test_one_request_is_a_static_batch_of_one(self, runtime):
        static, continuous = (
            evaluate(scenario(runtime=runtime, batch_size=1, batching=b)) for b in ("static", "continuous")
        )
        assert continuous.ttft_s == pytest.approx(static.ttft_s)
        assert continuous.e2e_s == pytest.approx(static.e2e_s, rel=0.01)

    def test_other_prompts_slow_the_tokens(self):
        static, continuous = (evaluate(scenario(batch_size=64, batching=b)) for b in ("static", "continuous"))
        assert continuous.tpot_s > static.tpot_s
        assert continuous.ttft_s < static.ttft_s

    @FEW
    @given(users=st.integers(1, 200))
    def test_twice_the_users_never_get_less(self, users):
        fewer, more = (evaluate(scenario(batch_size=n, batching="continuous")) for n in (users, 2 * users))
        assert 2 / more.e2e_s >= 1 / fewer.e2e_s

    def test_littles_law_beyond_what_the_engine_feeds(self):
        given_ = scenario(batch_size=4000, prompt_tokens=2000, output_tokens=20, batching="continuous")
        limit = fed(job_of(given_))
        table, full = (
            evaluate(given_),
            evaluate(scenario(batch_size=limit, prompt_tokens=2000, output_tokens=20, batching="continuous")),
        )
        assert table.running == limit < 4000
        assert 4000 / table.e2e_s == pytest.approx(limit / (full.e2e_s - full.unread_s), rel=1e-6)
        assert table.tpot_s == pytest.approx(full.tpot_s)

    @pytest.mark.parametrize(
        ("system", "prompt", "outputs"),
        [("b200-sxm", 8000, (2, 4, 8)), ("h100-sxm", 20000, (4, 8, 16)), ("a100-sxm", 20000, (12, 24, 48))],
    )
    def test_longer_outputs_hardly_end_sooner_where_the_budget_limits(self, system, prompt, outputs):
        """Few long prompts fill the budget: whether one, two or four of them are read at once is the same work."""
        tables = [
            evaluate(scenario(system=system, prompt_tokens=prompt, output_tokens=n, batching="continuous"))
            for n in outputs
        ]
        assert tables[0].running < 8
        for shorter, longer in pairwise(tables):
            assert longer.e2e_s >= 0.97 * shorter.e2e_s


class TestSpeculation:
    """Drafts verified together: what they cost, and what accepted ones buy."""

    @pytest.mark.parametrize("draft", ["mtp", "ngram"])
    @pytest.mark.parametrize("batching", ["static", "continuous"])
    def test_drafts_that_are_never_accepted_cost_more_than_none(self, draft, batching):
        plain = evaluate(scenario(batching=batching))
        vain = evaluate(scenario(batching=batching, speculation={"draft": draft, "acceptance": [0.0, 0.0]}))
        assert vain.tpot_s > plain.tpot_s
        assert vain.ttft_s >= plain.ttft_s * 0.999

    def test_free_drafts_that_are_all_accepted_divide_the_steps_of_one_request(self):
        plain = evaluate(scenario(batch_size=1))
        sure = evaluate(scenario(batch_size=1, speculation={"draft": "ngram", "acceptance": [1.0, 1.0, 1.0]}))
        assert sure.decode.sum() == pytest.approx(plain.decode.sum() / 4)
        assert plain.tpot_s / 4 < sure.tpot_s < plain.tpot_s / 3

    def test_a_drafting_layer_costs_its_time(self):
        free, drafted = (
            evaluate(scenario(speculation={"draft": d, "acceptance": [0.8]})).tpot_s for d in ("ngram", "mtp")
        )
        assert free < drafted < 1.3 * free

    @pytest.mark.parametrize("name", ["eagle", "EAGLE3", "nextn"])
    def test_other_names_of_drafts_of_one_layer(self, name):
        one, other = (evaluate(scenario(speculation={"draft": d, "acceptance": [0.8, 0.6]})) for d in ("mtp", name))
        assert other.tpot_s == one.tpot_s

    def test_gains_vanish_with_the_batch(self):
        gains = []
        for batch in (1, 256):
            plain, ahead = (
                evaluate(scenario(batch_size=batch, prompt_tokens=100, speculation=spec)).tpot_s
                for spec in (None, {"draft": "ngram", "acceptance": [0.7, 0.6, 0.5]})
            )
            gains.append(plain / ahead)
        assert gains[0] > gains[1]

    def test_leaves_sum_to_the_request(self):
        report = predict(scenario(speculation={"acceptance": [0.8, 0.6]}))
        assert sum(leaf.seconds for leaf in report.breakdown.leaves()) == pytest.approx(report.e2e_s, rel=1e-9)
        assert any(leaf.name == "drafting tokens" for leaf in report.breakdown.leaves())


@pytest.mark.parametrize("batching", ["static", "continuous"])
def test_leaves_sum_to_the_request(batching):
    report = predict(scenario(tp=2, batch_size=32, batching=batching))
    assert sum(leaf.seconds for leaf in report.breakdown.leaves()) == pytest.approx(report.e2e_s, rel=1e-9)
    assert all(leaf.seconds >= 0 for leaf in report.breakdown.leaves())


@pytest.mark.parametrize(
    ("software", "tp", "batch", "prompt", "output", "milliseconds"),
    [  # NVIDIA Deep Learning Institute course, TensorRT-LLM 0.9, static batches; NVIDIA NIM 1.5, one user
        (("llama-2-70b", "dgx-a100", "tensorrt-llm@2024", "fp16"), 2, 1, 128, 128, (71, 49)),
        (("llama-2-70b", "dgx-a100", "tensorrt-llm@2024", "fp16"), 4, 64, 128, 128, (1282, 35)),
        (("llama-2-70b", "dgx-a100", "tensorrt-llm@2024", "fp16"), 8, 16, 128, 128, (243, 25)),
        (("llama-2-7b", "dgx-h100", "tensorrt-llm@2024", "fp16"), 1, 16, 128, 128, (48, 7.6)),
        (("llama-2-7b", "dgx-h100", "tensorrt-llm@2024", "fp8"), 1, 64, 128, 128, (109, 5.7)),
        (("llama-3.3-70b", "dgx-a100", "tensorrt-llm@0.16", "bf16"), 8, 1, 1000, 1000, (131.2, 18.4)),
    ],
)
def test_published_batches_within_twelve_percent(software, tp, batch, prompt, output, milliseconds):  # noqa: PLR0917
    model, system, runtime, precision = software
    lengths = {"batch_size": batch, "prompt_tokens": prompt, "output_tokens": output}
    table = evaluate(scenario(tp, model, runtime, system=system, precision=precision, **lengths))
    assert (table.ttft_s * 1e3, table.tpot_s * 1e3) == pytest.approx(milliseconds, rel=0.12)


def test_published_offline_throughput_within_twelve_percent():
    """TensorRT-LLM 0.20 performance overview, Llama-3.3-70B fp8 on one H200, 1000 + 1000 tokens: 2,744 tokens/s."""
    given_ = scenario(
        model="llama-3.3-70b", system="hgx-h200", runtime="tensorrt-llm", precision="fp8", batch_size="auto",
        prompt_tokens=1000, output_tokens=1000, batching="continuous",
    )  # fmt: skip
    assert predict(given_).output_tokens_per_s == pytest.approx(2744, rel=0.12)


@pytest.mark.parametrize(
    ("users", "ttft_s", "itl_ms", "tokens_per_s"), [(25, None, 38.75, 623.4), (250, 88.6, 93.2, 920.1)]
)
def test_published_closed_loops_within_six_percent(users, ttft_s, itl_ms, tokens_per_s):
    """NVIDIA NIM 1.8 benchmark pages, Llama-3.3-70B fp8 on two H100, 5000 + 500 tokens; the cache holds 86."""
    lengths = {"batch_size": users, "prompt_tokens": 5000, "output_tokens": 500, "batching": "continuous"}
    table = evaluate(scenario(2, "llama-3.3-70b", "tensorrt-llm@0.16", precision="fp8", **lengths))
    assert table.tpot_s * 1e3 == pytest.approx(itl_ms, rel=0.06)
    assert users * 500 / table.e2e_s == pytest.approx(tokens_per_s, rel=0.06)
    if ttft_s:
        assert table.ttft_s == pytest.approx(ttft_s, rel=0.06)


def test_rounds_keep_the_account_of_the_batch_as_given():
    given_ = scenario(**LONG)
    table = evaluate(given_)
    assert not bool(table.account.fits[-1])
    assert replace(table, rounds=1).e2e_s == table.e2e_s


@pytest.mark.parametrize("output", [1, 2, 200])
@pytest.mark.parametrize("runtime", ["vllm", "sglang"])
def test_no_part_of_a_loop_over_stages_is_negative(runtime, output):
    """Prompts of others pass the first stage while a request's own is in the last: they are not counted twice."""
    report = predict(scenario(tp=2, pp=2, batch_size=9, output_tokens=output, runtime=runtime, batching="continuous"))
    assert all(leaf.seconds >= 0 for leaf in report.breakdown.leaves())
    assert sum(leaf.seconds for leaf in report.breakdown.leaves()) == pytest.approx(report.e2e_s, rel=1e-9)
