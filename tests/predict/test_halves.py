"""Attention and feed-forward parts of decode on pools of their own: halves, the published equation, sentences."""

import dataclasses

import pytest

import rapid_llm
from rapid_llm import model as models
from rapid_llm.cli.answer import answer
from rapid_llm.errors import InputError
from rapid_llm.model.halves import attention_half, feed_forward_half
from rapid_llm.predict import evaluate, explain, predict
from rapid_llm.predict.halves import copies
from rapid_llm.scenario import from_mapping, pool_scenario

WORK = {"kind": "inference", "batch_size": 2048, "prompt_tokens": 2000, "output_tokens": 500, "batching": "continuous"}
PLANS = {"prefill": {"tp": 8, "ep": 8, "dp": 32}, "decode": {"tp": 1, "dp": 16}, "ffn": {"tp": 1, "dp": 16, "ep": 16}}


def scenario(*, model="deepseek-v3", plans=None, pools=None, **work):
    given = {phase: {"parallelism": plan} for phase, plan in (PLANS | (plans or {})).items() if plan}
    given["prefill"]["accelerators"] = 256 if "prefill" not in (plans or {}) else None
    return from_mapping(
        {
            "model": model,
            "system": "dgx-h200",
            "workload": {**WORK, **work},
            "pools": given | (pools or {}),
        }
    )


@pytest.mark.parametrize("name", ["deepseek-v3", "llama-3.1-70b", "gpt-oss-120b", "qwen3-235b-a22b"])
def test_halves_have_the_weights_of_the_whole(name):
    """But for the norms, which each half counts, and the vocabulary, which is with attention."""
    whole = models.load(name)
    parts = models.parameters(attention_half(whole)) + models.parameters(feed_forward_half(whole))
    assert parts == pytest.approx(models.parameters(whole), rel=2e-3)


def test_each_pool_holds_its_half():
    report = predict(scenario())
    weights = [part.memory.by_category["weights"] for part in (report.pools.decode, report.pools.ffn)]
    cache = [part.memory.by_category["kv_cache"] for part in (report.pools.decode, report.pools.ffn)]
    assert weights[0] < 20e9 < weights[1] < 671e9 / 16 * 1.1
    assert cache[0] > 0 == cache[1]


@pytest.mark.parametrize("batching", ["static", "continuous"])
def test_leaves_sum_to_the_request(batching):
    report = predict(scenario(batching=batching))
    assert sum(leaf.seconds for leaf in report.breakdown.leaves()) == pytest.approx(report.e2e_s, rel=1e-9)
    assert report.tokens_per_s_per_accelerator == pytest.approx(report.output_tokens_per_s / (256 + 32))


@pytest.mark.parametrize("m", [1, 2, 3, 4])
def test_steps_follow_the_published_equation(m):
    """MegaScale-Infer (arXiv 2504.02263), equations 3 to 5: a step takes what its micro-batches take on the busiest
    side, or one micro-batch's own way where m < 2 (1 + Tc / T)."""
    found = evaluate(scenario(pools={"micro_batches": m})).halved
    mine, theirs, way = found.attention_s, found.ffn_s, found.transfer_s
    step = found.table.decode_s / found.table.gaps
    bound = max(m * mine, m * theirs, m * way, mine + theirs + 2 * way)
    assert bound <= step < 1.25 * bound + 2e-3, "beside it, embedding, head and the engine"
    if m >= 2 * (1 + way / max(mine, theirs)):
        assert found.binds in ("attention", "ffn")


@pytest.mark.parametrize(
    "work", [{"output_tokens": 1}, {"beams": 4}, {"batch_size": "auto"}, {"batching": "static", "output_tokens": 1}]
)
def test_other_batches_are_answered(work):
    report = predict(scenario(**work), allow_infeasible=True)
    assert sum(leaf.seconds for leaf in report.breakdown.leaves()) == pytest.approx(report.e2e_s, rel=1e-9)
    assert all(leaf.seconds > -1e-9 for leaf in report.breakdown.leaves())


def test_one_micro_batch_waits_for_every_hop():
    assert evaluate(scenario(pools={"micro_batches": 1})).halved.binds == "latency"


def test_the_fastest_number_of_micro_batches_is_the_default():
    chosen = evaluate(scenario()).halved
    others = [evaluate(scenario(pools={"micro_batches": m})).decode.decode_s for m in (1, 2, 3, 4)]
    assert chosen.table.decode_s <= min(others) * 1.001


def test_a_slow_link_binds():
    plans = {"ffn": {"tp": 1, "dp": 64, "ep": 64}, "decode": {"tp": 2, "dp": 16}}
    fast, slow = (
        evaluate(
            scenario(plans=plans, pools={"link": link, "micro_batches": 4}, batch_size=16384, prompt_tokens=200)
        ).halved
        for link in ("infiniband-ndr", "host-staged")
    )
    assert slow.transfer_s > fast.transfer_s
    assert fast.binds != slow.binds == "transfer"


def test_a_pool_that_nobody_gave_is_among_the_defaults():
    job = {"batch_size": 256, "prompt_tokens": 512, "output_tokens": 128, "batching": "continuous"}
    given = {"system": "dgx-h200", "tp": 8, "ffn": "dp=16,ep=16", **job}
    report = rapid_llm.infer("deepseek-v3", **given)
    assert {
        "pools.prefill: 8 accelerators, tp 8 dp 1 (like the job itself)",
        "pools.decode: 8 accelerators, tp 8 dp 1 (like the job itself)",
    } <= set(report.defaults)
    assert "prefill 8 accelerators, tp 8 dp 1" in " ".join(" ".join(answer(report)).split())
    said = rapid_llm.infer("deepseek-v3", prefill="tp=8", decode="tp=8", **given).defaults
    assert not any(one.startswith("pools.") for one in said)


@pytest.mark.parametrize(
    ("replicas", "words"),
    [
        (1.0004, "both equally busy with 1 attention replica"),
        (1.14, "both equally busy with 1.14 attention replicas"),
        (0.0, "ffn the slower one even with a single attention replica"),
    ],
)
def test_the_balance_in_words(replicas, words):
    report = predict(scenario(pools={"micro_batches": 3}, batch_size=8192))
    ffn = dataclasses.replace(report.pools.ffn, balanced_replicas=replicas)
    lines = answer(dataclasses.replace(report, pools=dataclasses.replace(report.pools, ffn=ffn)))
    text = " ".join(" ".join(lines).split())
    assert f"; {words} " in text and len(lines) <= 30


def test_balance_is_where_both_take_as_long():
    table = predict(scenario(pools={"micro_batches": 3}, batch_size=8192)).pools.ffn
    assert 8 < table.balanced_replicas < 16
    fewer, more = (
        predict(
            scenario(plans={"decode": {"tp": 1, "dp": n}}, pools={"micro_batches": 3}, batch_size=512 * n),
            allow_infeasible=True,
        ).pools.ffn
        for n in (8, 16)
    )
    assert fewer.ffn_s < fewer.attention_s * 1.01 and more.attention_s < more.ffn_s * 1.01


def test_a_larger_ffn_pool_is_no_slower():
    small, large = (
        evaluate(scenario(plans={"ffn": {"tp": 1, "dp": n, "ep": n}}, pools={"micro_batches": 3})) for n in (16, 32)
    )
    assert large.halved.ffn_s < small.halved.ffn_s
    assert large.decode.decode_s <= small.decode.decode_s * 1.001


def test_dense_models_too():
    report = predict(
        scenario(
            model="llama-3.1-70b",
            plans={"prefill": {"tp": 4, "dp": 8}, "decode": {"tp": 1, "dp": 8}, "ffn": {"tp": 8}},
            batch_size=256,
        )
    )
    assert report.pools.ffn.binds in ("attention", "ffn", "latency")
    assert report.energy.mean_power_w_per_accelerator <= 700


def test_faster_hardware_is_faster_in_every_pool():
    plain = evaluate(scenario(batch_size=8192)).halved
    found = {one.change for one in predict(scenario(batch_size=8192), sensitivities=True).what_if}
    assert {"memory bandwidth x2", "network cards x2"} <= found
    chip = {"base": "h200-sxm", "memory": {"hbm": {"capacity": "141 GiB", "bandwidth": "9.6 TB/s"}}}
    faster = scenario(
        batch_size=8192,
        pools={"ffn": {"parallelism": PLANS["ffn"], "system": {"base": "dgx-h200", "accelerator": chip}}},
    )
    assert evaluate(faster).halved.ffn_s < plain.ffn_s


def test_copies_of_a_token():
    """8 picks of 256 experts on 16 ranks: 16 (1 - (15/16)^9) = 7.05 ranks with the shared expert's, one rank for all on
    a tensor-parallel group of one."""
    given = scenario()
    block = given.model.blocks[-1]
    assert copies(block, given.pools.ffn) == pytest.approx(16 * (1 - (15 / 16) ** 9))
    assert copies(given.model.blocks[0], given.pools.ffn) == 1


def test_explanation_has_the_kernels_of_both_pools():
    """Their steps, with all micro-batches, fill the busy side of a step."""
    given = scenario(pools={"micro_batches": 4}, batch_size=8192)
    found, lines = evaluate(given).halved, [line for line in explain(given) if line.phase == "decode"]
    names = {line.name for line in lines}
    assert "experts" in names
    assert any("attention" in name for name in names)
    busy = sum(line.total_seconds for line in lines) / found.table.gaps
    assert busy == pytest.approx(4 * (found.attention_s + found.ffn_s), rel=0.15)


def test_reads_back():
    given = scenario(pools={"micro_batches": 3})
    again = from_mapping(given.to_mapping())
    assert again.pools == given.pools
    assert again.hash == given.hash
    assert pool_scenario(given, "ffn").model.vocab_size == 1


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"plans": {"ffn": None}, "pools": {"micro_batches": 2}}, "and pools.ffn is missing. Try pools.ffn: "),
        ({"plans": {"decode": {"pp": 2}}}, r"pools.decode.parallelism.pp must be 1 beside pools.ffn: .* \(got 2\)"),
        ({"model": "falcon-mamba-7b"}, "pools.ffn needs layers of attention and a feed-forward part"),
        ({"model": "gpt-j-6b"}, "pools.ffn needs layers of attention and a feed-forward part"),
        ({"speculation": {"acceptance": [0.8]}}, "workload.speculation does not go with pools.ffn"),
        ({"offload": {"weights": 0.5}}, "workload.offload does not go with pools.ffn"),
        ({"plans": {"ffn": {"dp": 3, "ep": 3}}}, "pools.ffn: parallelism.ep must divide num_experts"),
        ({"plans": {"ffn": {"tp": "x"}}}, r"pools.ffn.parallelism.tp must be an integer \(got 'x'\)"),
        ({"plans": {"prefill": {"dp": "x"}}}, r"pools.prefill.parallelism.dp must be an integer \(got 'x'\)"),
        ({"pools": {"micro_batches": 0}}, "pools.micro_batches must be at least 1"),
    ],
)
def test_nonsense_is_refused(change, sentence):
    with pytest.raises(InputError, match=sentence):
        scenario(**change)
