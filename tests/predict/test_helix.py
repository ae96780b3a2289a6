"""Helix parallelism (arXiv 2507.07120): ranks share the tokens of a cache in decode and cut all the rest together."""

import numpy as np
import pytest

from rapid_llm import model as models
from rapid_llm.errors import InputError
from rapid_llm.lowering import Lowered
from rapid_llm.predict import evaluate, fit, predict
from rapid_llm.predict.replica import job_of
from rapid_llm.scenario import from_mapping
from rapid_llm.workload import points_of

BATCH, CACHED, BF16, FP32 = 8, 131072, 2.0, 4.0
Q, K, HSZ, H, F = 128, 8, 128, 16384, 53248  # Llama-3.1-405B, the dense model of the paper


def scenario(model="llama-3.1-405b", overlap=False, **plan):
    work = {"kind": "inference", "batch_size": BATCH, "prompt_tokens": CACHED, "output_tokens": 100}
    base = {"model": model, "system": "gb200-nvl72", "precision": "bf16", "parallelism": plan, "workload": work}
    runtime = {"base": "tensorrt-llm", "overlap": {"batch_exchange": overlap}, "serving": {"chunks_prompts": True}}
    return from_mapping({**base, "runtime": runtime})


def helix(tp=8, cp=8, **rest):
    return scenario(tp=tp, cp=cp, helix=True, **rest)


def decode(one, past=CACHED) -> Lowered:
    """One decode step with so many tokens cached."""
    return job_of(one).lower(points_of([(BATCH, 1, past, 1)]))


def message(lowered: Lowered, axis: str) -> tuple[float, float]:
    """Bytes of the buffers of one layer's messages of an axis, and the ranks of their group."""
    rows = [m for m in lowered.messages if m.axis == axis]
    return sum(float((m.size * m.count)[m.unit == 0].sum()) for m in rows), float(rows[0].ranks[0, 0])


def kernel(lowered: Lowered, name: str) -> dict[str, float]:
    rows, at = next((t, t.names.index(n)) for t in lowered.kernels for n in t.names if n.startswith(name))
    return {key: float(column[at, 0]) for key, column in rows.columns.items()}


@pytest.mark.parametrize(("tpa", "kvp"), [(8, 2), (8, 8), (1, 64), (4, 4)])
def test_one_exchange_of_partial_outputs_and_their_sums(tpa, kvp):
    """Section 2.1.2: B x Q / TPA heads of every kvp rank, and a logarithm each, whatever is cached."""
    size, ranks = message(decode(helix(tpa, kvp)), "kvp")
    assert ranks == kvp
    assert size == pytest.approx(BATCH * Q / tpa * (HSZ * BF16 + FP32))
    assert message(decode(helix(tpa, kvp), past=8 * CACHED), "kvp")[0] == size


@pytest.mark.parametrize(("tpa", "kvp"), [(8, 2), (8, 8), (4, 4)])
def test_attention_reads_its_share_and_the_rest_is_cut_over_all(tpa, kvp):
    """Appendix A: K / TPA heads of S / KVP tokens; F / N columns of the MLP."""
    step, n = decode(helix(tpa, kvp)), tpa * kvp
    core = kernel(step, "rotary+attention")
    assert core["past"] == pytest.approx(CACHED / kvp)
    assert (core["heads"], core["kv_heads"]) == (Q / tpa, max(1, K / tpa))
    assert kernel(step, "qkv")["n"] == (Q / tpa + 2 * K / tpa) * HSZ
    assert kernel(step, "out")["k"] == Q / n * HSZ
    assert kernel(step, "down")["k"] == F / n
    assert message(step, "tp")[1] == n, "sums of the output projection and of the MLP are over all ranks"


def test_memory_counts_what_is_held_twice_and_what_is_dealt():
    """Queries', keys' and values' projections of TPA ranks' heads, H x F x 3 / N of the MLP, S / KVP of the cache."""
    dealt, cut = (fit(one).memory.by_category for one in (helix(8, 8), scenario(tp=64)))
    assert dealt["kv_cache"] == pytest.approx(cut["kv_cache"] / 8, rel=1e-3), "tp 64 repeats 8 heads 8 times"
    layers = models.load("llama-3.1-405b").num_hidden_layers
    queries = layers * H * Q * HSZ * BF16 * (1 / 8 - 1 / 64)
    assert dealt["weights"] - cut["weights"] == pytest.approx(queries, rel=1e-3)


def test_prompts_are_read_as_tensor_parallelism_reads_them():
    dealt, cut = (evaluate(one).ttft_s for one in (helix(8, 4), scenario(tp=32)))
    assert cut < dealt < 1.03 * cut, "chunks gather what the other ranks have of the prompt"


def test_long_contexts_decode_faster_than_with_repeated_heads_or_without_regrouping():
    regrouped, repeated, apart = (evaluate(one).tpot_s for one in (helix(8, 8), scenario(tp=64), scenario(tp=8, cp=8)))
    assert regrouped < 0.8 * repeated
    assert regrouped < apart


def test_latents_are_dealt_and_experts_regrouped():
    """DeepSeek-R1 of the paper: TPA 1; the exchange is of latents, before they are projected up."""
    plan = {"tp": 1, "cp": 16, "ep": 4}
    one = scenario("deepseek-r1", helix=True, **plan)
    assert one.parallelism.etp == 4, "TPF x EP = N"
    size, ranks = message(decode(one), "kvp")
    assert (size, ranks) == (pytest.approx(BATCH * 128 * (512 * BF16 + FP32)), 16)
    tensor = scenario("deepseek-r1", tp=16, ep=4)
    assert fit(one).memory.by_category["kv_cache"] == pytest.approx(
        fit(tensor).memory.by_category["kv_cache"] / 16, rel=5e-3
    )
    assert evaluate(one).tpot_s < evaluate(tensor).tpot_s


def test_the_exchange_hides_behind_attention_of_other_requests():
    """Section 2.1.3 (HOP-B): of 8 requests whose attention takes longer, one exchange shows."""
    plain, hidden = (predict(helix(8, 8, overlap=overlap)) for overlap in (False, True))
    shown = [_exchange(one) for one in (plain, hidden)]
    assert shown[0] > 0
    assert shown[1] == pytest.approx(shown[0] / BATCH, rel=0.02)
    for one in (plain, hidden):
        assert sum(leaf.seconds for leaf in one.breakdown.leaves()) == pytest.approx(one.e2e_s, rel=1e-9)


def _exchange(report) -> float:
    """Seconds of the exchange that decode shows."""
    decoding = next(part for part in report.breakdown.children if part.name == "decode")
    return sum(leaf.seconds for leaf in decoding.leaves() if leaf.name == "cp (helix)")


def test_cached_prefixes_are_gathered():
    first, further = (job_of(helix(8, 4)).lower(points_of([(1, 4096, past, 0)])) for past in (0, CACHED))
    assert not [m for m in first.messages if m.axis == "kvp" and (m.count > 0).any()]
    assert message(further, "kvp") == (pytest.approx(CACHED * 2 * HSZ * BF16), 4)


def test_groups_lie_beside_those_of_the_heads():
    plans = job_of(helix(4, 2, dp=2)).plans
    assert [float(part[0]) for part in (*plans.group("kvp"), *plans.group("tp"))] == [2, 4, 8, 1]


def test_windows_are_dealt_too():
    one = scenario("gpt-oss-120b", tp=2, cp=4, helix=True)
    assert kernel(decode(one), "rotary+attention")["window"] in (0.0, 128 / 4)
    assert np.isfinite(evaluate(one).tpot_s)


@pytest.mark.parametrize(
    ("plan", "said"),
    [
        (
            {"tp": 8, "cp": 1},
            "parallelism.helix deals the cache of decode over cp, without an exchange of heads or shift (got",
        ),
        (
            {"tp": 1, "cp": 4, "ulysses": 4},
            "parallelism.helix deals the cache of decode over cp, without an exchange of heads",
        ),
        (
            {"tp": 8, "cp": 3},
            "parallelism.helix cuts num_attention_heads 128 over tp 8 x cp 3 = 24 ranks, which leaves",
        ),
        ({"tp": 2, "cp": 2, "model": "deepseek-v3.2"}, "parallelism.helix deals the tokens of a cache of which"),
    ],
)
def test_impossible_shapes_are_refused(plan, said):
    with pytest.raises(InputError) as refused:
        scenario(**plan, helix=True)
    assert str(refused.value).startswith(said)
    assert "Try " in str(refused.value)


def test_training_and_scattered_ranks_are_refused():
    given = helix(4, 2, dp=2).to_mapping()
    order = {**given, "placement": {"order": ["tp", "dp", "cp", "ep", "pp"]}}
    with pytest.raises(InputError, match=r"regroups tp and cp ranks, which placement.order separates"):
        from_mapping(order)
    work = {"kind": "training", "global_batch_size": 8, "sequence_length": 4096}
    with pytest.raises(InputError, match=r"parallelism.helix is for inference"):
        from_mapping({**given, "runtime": "megatron-core", "precision": "bf16-mixed", "workload": work})
