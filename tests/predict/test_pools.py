"""Prefill and decode on pools of their own: definitions, conservation, limits, sentences."""

import pytest

from rapid_llm.errors import InputError
from rapid_llm.predict import evaluate, fit, predict
from rapid_llm.scenario import from_mapping, pool_scenario

BASE = {
    "model": "llama-3.1-8b",
    "system": "dgx-h100",
    "workload": {"kind": "inference", "batch_size": 32, "prompt_tokens": 2000, "output_tokens": 200},
    "pools": {"prefill": {"parallelism": {"tp": 1, "dp": 2}}, "decode": {"parallelism": {"tp": 2, "dp": 2}}},
}


def scenario(*, pools=None, system=None, **work):
    mapping = {**BASE, "workload": {**BASE["workload"], **work}}
    if system:
        mapping["system"] = system
    return from_mapping({**mapping, "pools": {**BASE["pools"], **(pools or {})}})


def test_the_scenario_is_the_decode_pools_and_reads_back():
    given = scenario()
    assert given.accelerators == 4
    assert given.parallelism.tp == 2
    assert pool_scenario(given, "prefill").accelerators == 2
    again = from_mapping(given.to_mapping())
    assert again.hash == given.hash
    assert again.pools == given.pools


@pytest.mark.parametrize("batching", ["static", "continuous"])
def test_leaves_sum_to_the_request(batching):
    report = predict(scenario(batching=batching))
    assert sum(leaf.seconds for leaf in report.breakdown.leaves()) == pytest.approx(report.e2e_s, rel=1e-9)
    assert report.e2e_s == pytest.approx(report.ttft_s + 199 * report.tpot_s)
    assert report.tokens_per_s_per_accelerator == pytest.approx(report.output_tokens_per_s / 6)


def test_a_static_batch_is_the_prefill_of_one_pool_and_the_decode_of_the_other():
    """Free of the transfer, each phase takes what the pool alone takes for its share of the requests."""
    table = evaluate(scenario(pools={"transfer": "layerwise"}))
    shared = {"model": BASE["model"], "system": "dgx-h100", "runtime": "vllm"}
    work = {**BASE["workload"], "batch_size": 16}
    first = evaluate(from_mapping({**shared, "workload": {**work, "output_tokens": 1}}))
    last = evaluate(from_mapping({**shared, "parallelism": {"tp": 2}, "workload": work}))
    assert table.ttft_s == pytest.approx(first.ttft_s)
    assert table.decode_s - table.exposed_s == pytest.approx(last.decode_s)


@pytest.mark.parametrize("users", [2, 8, 64, 512])
def test_a_closed_loop_keeps_its_requests(users):
    """Little: requests = rate x time; no pool runs more than it is able to."""
    table = evaluate(scenario(batch_size=users, batching="continuous"))
    assert table.rate * table.e2e_s == pytest.approx(users, rel=0.01)
    assert table.rate <= min(table.prefill_rate, table.decode_rate) * 1.001
    assert table.rate * table.decode.decode_s == pytest.approx(table.running * 2, rel=0.01)


def test_more_prefill_replicas_raise_the_rate_that_they_limit():
    few, many = (
        evaluate(scenario(batch_size=512, batching="continuous", pools={"prefill": {"parallelism": {"dp": n}}}))
        for n in (1, 4)
    )
    assert few.prefill_rate < few.decode_rate
    assert many.rate > 1.5 * few.rate
    assert many.prefill_rate == pytest.approx(4 * few.prefill_rate)


def test_the_cache_of_a_prompt_travels():
    """Llama-3.1-8B holds 128 KiB a token in 16 bit; a whole transfer shows, layer by layer all but its last hides."""
    whole, layers = (evaluate(scenario(pools={"transfer": how})) for how in ("whole", "layerwise"))
    assert whole.transfer_bytes == 2000 * 131072
    assert whole.exposed_s == pytest.approx(whole.transfer_s)
    assert layers.exposed_s < 0.1 * whole.exposed_s
    slow = evaluate(scenario(pools={"transfer": "whole", "link": "ethernet-100g"}))
    assert slow.transfer_s > whole.transfer_s


def test_one_output_token_needs_no_decode_pool():
    table = evaluate(scenario(output_tokens=1))
    assert table.e2e_s == table.ttft_s
    assert predict(scenario(output_tokens=1)).pools.decode.requests_per_s is None


def test_an_automatic_batch_fills_what_limits():
    table = evaluate(scenario(batch_size="auto", batching="continuous"))
    limit = min(table.prefill_rate, table.decode_rate)
    assert 0.9 * limit < table.rate <= limit * 1.001


def test_pools_of_different_accelerators():
    table = evaluate(scenario(pools={"prefill": {"system": "dgx-a100", "parallelism": {"tp": 1, "dp": 2}}}))
    assert table.ttft_s > evaluate(scenario()).ttft_s


def test_a_pool_that_does_not_fit_says_which():
    given = scenario(pools={"prefill": {"system": "rtx-4070-ti", "parallelism": {"tp": 1}}, "link": "ethernet-100g"})
    for report in (predict(given), fit(given)):
        assert not report.feasible
        assert report.violations[0].message.startswith("pools.prefill: does not fit")
        assert report.e2e_s is None


@pytest.mark.parametrize(
    ("pools", "sentence"),
    [
        ({"prefill": {"parallelism": {"tp": 3}}}, "pools.prefill: parallelism.tp must divide num_attention_heads"),
        ({"prefill": {"tp": 3}}, "tp"),
        ({"middle": {}}, "middle"),
        ({"link": "carrier-pigeon"}, "carrier-pigeon"),
        ({"transfer": "later"}, "transfer"),
    ],
)
def test_nonsense_is_refused(pools, sentence):
    with pytest.raises(InputError, match=sentence):
        scenario(pools=pools)


def test_pools_without_a_network_between_them_are_refused():
    with pytest.raises(
        InputError, match=r"nothing joins the pools: system h100-sxm is one node of 1 without a network"
    ):
        evaluate(
            scenario(system="h100-sxm", pools={n: {"parallelism": {"tp": 1, "dp": 1}} for n in ("prefill", "decode")})
        )


@pytest.mark.parametrize("size", [64, "auto"])
def test_a_loop_of_first_tokens_is_the_prefill_pools(size):
    report = predict(scenario(batch_size=size, output_tokens=1, batching="continuous"))
    assert report.e2e_s == report.ttft_s
    assert report.total_tokens_per_s / 2001 <= report.pools.prefill.requests_per_s * 1.001
    assert sum(leaf.seconds for leaf in report.breakdown.leaves()) == pytest.approx(report.e2e_s, rel=1e-9)
