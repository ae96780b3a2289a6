"""The most requests within a latency objective, and the fewest accelerators for a number of users."""

import time

import pytest

from rapid_llm.errors import InputError
from rapid_llm.nouns import replaced
from rapid_llm.predict import evaluate, objective
from rapid_llm.predict.objective import fewest_accelerators, largest_batch
from rapid_llm.scenario import from_mapping

MAPPING = {
    "model": "llama-3.1-70b",
    "system": "dgx-h100",
    "accelerators": 4,
    "parallelism": {"tp": 4},
    "runtime": "vllm",
    "workload": {"kind": "inference", "batch_size": 1, "prompt_tokens": 1000, "output_tokens": 500},
}


@pytest.fixture(scope="module")
def given():
    """One replica on four accelerators."""
    return from_mapping(MAPPING)


def with_requests(given, requests):
    work = replaced(given.workload, batch_size=requests, batching="continuous")
    return evaluate(replaced(given, workload=work))


def test_the_largest_batch_keeps_the_objective_and_one_more_breaks_it(given):
    found = largest_batch(given, ttft_s=1.0, tpot_s=0.03)
    assert found.binds == "tpot"
    assert with_requests(given, found.requests).tpot_s <= 0.03 < with_requests(given, found.requests + 1).tpot_s
    assert found.output_tokens_per_s == pytest.approx(found.requests * 500 / (found.ttft_s + 499 * found.tpot_s))


def test_a_looser_objective_admits_more_until_the_cache_is_full(given):
    tight, loose, free = (largest_batch(given, tpot_s=limit) for limit in (0.025, 0.05, None))
    assert tight.requests < loose.requests < free.requests
    assert free.binds == "memory"


def test_an_objective_below_one_request_admits_none(given):
    found = largest_batch(given, ttft_s=1e-3)
    assert (found.requests, found.binds) == (0, "ttft")


def test_replicas_multiply(given):
    plan = replaced(given.parallelism, dp=2, dp_shard=2)
    two = replaced(given, parallelism=plan, accelerators=8)
    assert largest_batch(two, tpot_s=0.03).requests == 2 * largest_batch(given, tpot_s=0.03).requests


def test_defaults_are_those_of_the_plan_that_was_found():
    job = {**MAPPING, "model": "llama-3.1-8b", "parallelism": {}}
    del job["accelerators"]
    given = from_mapping(job)
    assert "accelerators: 1 (product of the degrees)" in given.defaults
    found = fewest_accelerators(given, 600, tpot_s=0.03)
    assert found is not None and found.accelerators > 1
    assert not any(one.startswith("accelerators: ") for one in found.scenario.defaults)
    said = [one for one in found.scenario.defaults if one.startswith("parallelism.dp: ")]
    assert said == [f"parallelism.dp: {found.scenario.parallelism.dp} (what is left over)"]


def test_the_fewest_accelerators_serve_all_users_within_the_limits(given):
    found = fewest_accelerators(given, 300, ttft_s=1.0, tpot_s=0.05)
    assert found is not None
    assert found.requests >= 300
    assert found.ttft_s <= 1.0
    assert found.tpot_s <= 0.05
    more = fewest_accelerators(given, 3000, ttft_s=1.0, tpot_s=0.05)
    assert more is not None
    assert more.accelerators > found.accelerators
    assert fewest_accelerators(given, 10, tpot_s=1e-4) is None


EXPERTS = {
    **MAPPING,
    "model": "deepseek-r1",
    "system": "dgx-h200",
    "accelerators": 16,
    "parallelism": {"tp": 1, "ep": 16, "dp": 16},
    "workload": {"kind": "inference", "batch_size": 16, "prompt_tokens": 2000, "output_tokens": 500},
}


def test_a_plan_that_keeps_the_objective_is_not_answered_with_a_larger_one():
    given = from_mapping(EXPERTS)
    kept = largest_batch(given, ttft_s=2.0, tpot_s=0.04)
    found = fewest_accelerators(given, kept.requests, ttft_s=2.0, tpot_s=0.04)
    assert found is not None
    assert found.accelerators <= 16
    assert found.requests >= kept.requests


def test_expert_parallelism_is_found_where_nobody_says_it():
    said, left_open = (from_mapping({**EXPERTS, "parallelism": {"tp": 16, **ep}}) for ep in ({"ep": 16}, {}))
    best, found = (fewest_accelerators(one, 200, ttft_s=2.0, tpot_s=0.04) for one in (said, left_open))
    assert best is not None
    assert found is not None
    assert found.accelerators <= best.accelerators
    assert found.scenario.parallelism.ep > 1


def test_a_plan_whose_weights_do_not_fit_keeps_no_objective(given):
    """No batch of it waits for room, since none has any: it is full, not empty."""
    alone = replaced(given, accelerators=1, parallelism=replaced(given.parallelism, tp=1))
    found = largest_batch(alone, ttft_s=60.0)
    assert (found.requests, found.binds) == (0, "memory")
    fewest = fewest_accelerators(given, 1, ttft_s=60.0)
    assert fewest is not None
    assert evaluate(fewest.scenario).account.fits[-1]


def test_pools_whose_replicas_share_experts_are_sized_together():
    pools = {"prefill": {"parallelism": {"tp": 8}}, "decode": {"parallelism": {"tp": 1, "ep": 16, "dp": 16}}}
    job = {key: value for key, value in EXPERTS.items() if key not in ("parallelism", "accelerators")}
    found = fewest_accelerators(from_mapping({**job, "pools": pools}), 200, ttft_s=2.0, tpot_s=0.04)
    assert found is not None
    assert found.requests >= 200
    assert found.scenario.parallelism.dp == 16


def test_training_has_no_latency_objective():
    job = {"kind": "training", "global_batch_size": 8, "sequence_length": 128}
    training = from_mapping({"model": "llama-3.1-8b", "system": "h100-sxm", "workload": job})
    with pytest.raises(
        InputError, match=r"^workload.kind must be inference for a latency objective \(got training\)\.$"
    ):
        largest_batch(training)


POOLS = {"prefill": {"parallelism": {"tp": 2, "dp": 2}}, "decode": {"parallelism": {"tp": 4, "dp": 1}}}


def of_pools(**pools):
    mapping = {name: value for name, value in MAPPING.items() if name not in ("accelerators", "parallelism")}
    return from_mapping({**mapping, "model": "llama-3.1-8b", "pools": {**POOLS, **pools}})


@pytest.fixture(scope="module")
def pooled():
    """Two prefill replicas before one that decodes."""
    return of_pools()


def test_pools_keep_an_objective_and_one_more_breaks_it(pooled):
    found = largest_batch(pooled, ttft_s=0.5, tpot_s=0.01)
    assert found.binds in ("ttft", "tpot")
    within, beyond = (with_requests(pooled, found.requests + more) for more in (0, 1))
    assert within.ttft_s <= 0.5 and within.tpot_s <= 0.01
    assert beyond.ttft_s > 0.5 or beyond.tpot_s > 0.01
    assert found.requests_per_s == pytest.approx(within.rate, rel=0.01)
    assert found.accelerators == 8


def test_pools_end_where_prefill_is_as_busy_as_it_may_be(pooled):
    """Without a limit on the time to first token the wait before the prefill would grow for ever."""
    given = replaced(pooled, workload=replaced(pooled.workload, output_tokens=50))
    found = largest_batch(given, tpot_s=10.0)
    assert found.binds == "prefill"
    table = with_requests(given, found.requests)
    assert table.rate == pytest.approx(0.95 * table.prefill_rate, rel=0.02)


def test_more_of_the_pool_that_binds_serves_more(pooled):
    wider = of_pools(prefill={"parallelism": {"tp": 2, "dp": 4}})
    few, many = (
        largest_batch(replaced(one, workload=replaced(one.workload, output_tokens=50)), tpot_s=10.0)
        for one in (pooled, wider)
    )
    assert many.requests_per_s > 1.3 * few.requests_per_s


def test_the_fewest_accelerators_of_both_pools(pooled):
    found = fewest_accelerators(pooled, 300, ttft_s=0.5, tpot_s=0.02)
    assert found is not None
    assert found.requests >= 300
    assert found.ttft_s <= 0.5 and found.tpot_s <= 0.02
    pools = found.scenario.pools
    assert pools.accelerators == found.accelerators
    fewer = replaced(pools.prefill.parallelism, dp=1)
    assert pools.prefill.parallelism.tp == fewer.tp == 2
    more = fewest_accelerators(pooled, 1200, ttft_s=0.5, tpot_s=0.02)
    assert more.accelerators > found.accelerators
    assert fewest_accelerators(pooled, 10, tpot_s=1e-4) is None


@pytest.fixture(scope="module")
def large():
    """The same two pools, with many nodes for each."""
    system = {"base": "dgx-superpod-h100", "nodes": 1 << 17}
    return of_pools(
        prefill={"parallelism": {"tp": 2, "dp": 2}, "system": system},
        decode={"parallelism": {"tp": 4, "dp": 1}, "system": system},
    )


@pytest.mark.parametrize(
    ("users", "limits"), [(40, (0.5, 0.02)), (300, (0.5, 0.02)), (500, (None, 0.012)), (700, (0.2, None))]
)
def test_the_fewest_prefill_replicas_are_those_of_a_search_one_by_one(large, users, limits):
    for decode in (1, 4):
        most = objective._most_prefill(large, decode, None)
        tried = (
            (prefill, objective._with_requests(objective._with_replicas(large, prefill, decode), users))
            for prefill in range(1, most + 1)
        )
        kept = (
            prefill
            for prefill, scenario in tried
            if not objective._contradicts(scenario)
            and not objective._full(table := evaluate(scenario))
            and not objective._late(table, *limits)
        )
        assert objective._fewest_prefill(large, users, decode, most, limits) == next(kept, 0)


def test_a_million_users_are_planned_in_a_moment(large):
    start = time.process_time()
    found = fewest_accelerators(large, 1_000_000, ttft_s=0.5, tpot_s=0.02)
    assert time.process_time() - start < 30.0
    assert found is not None
    assert found.requests >= 1_000_000


def test_a_pool_of_feed_forward_parts_is_not_sized():
    halved = of_pools(ffn={"parallelism": {"tp": 4}})
    assert largest_batch(halved, tpot_s=0.03).requests > 0
    with pytest.raises(InputError, match=r"^--users does not size a pool of feed-forward parts\."):
        fewest_accelerators(halved, 10, tpot_s=0.03)
