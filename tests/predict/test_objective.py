"""The most requests within a latency objective, and the fewest accelerators for a number of users."""

import pytest

from rapid_llm.errors import InputError
from rapid_llm.nouns import replaced
from rapid_llm.predict import evaluate
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


def test_training_has_no_latency_objective():
    job = {"kind": "training", "global_batch_size": 8, "sequence_length": 128}
    training = from_mapping({"model": "llama-3.1-8b", "system": "h100-sxm", "workload": job})
    with pytest.raises(
        InputError, match=r"^workload.kind must be inference for a latency objective \(got training\)\.$"
    ):
        largest_batch(training)


def test_pools_have_no_objective_yet():
    pools = {"prefill": {"parallelism": {"tp": 1}}, "decode": {"parallelism": {"tp": 1}}}
    work = {"kind": "inference", "batch_size": 8, "prompt_tokens": 100, "output_tokens": 10}
    given = from_mapping({"model": "llama-3.1-8b", "system": "dgx-h100", "workload": work, "pools": pools})
    with pytest.raises(InputError, match=r"a latency objective is answered for one pool"):
        largest_batch(given, tpot_s=0.03)
