"""What decoding does beside one token of one sequence a step: draft models, beams, offload, skewed experts, cp."""

import numpy as np
import pytest

from rapid_llm.errors import InputError
from rapid_llm.predict import evaluate, fit, predict
from rapid_llm.scenario import from_mapping

BASE = {
    "model": "llama-3.1-70b",
    "system": "dgx-h100",
    "parallelism": {"tp": 4},
    "workload": {"kind": "inference", "batch_size": 8, "prompt_tokens": 1000, "output_tokens": 200},
}


def scenario(*, draft=None, plan=None, model=None, precision=None, **work):
    mapping = {**BASE, "workload": {**BASE["workload"], **work}}
    optional = {"draft": draft, "parallelism": plan, "model": model, "precision": precision}
    return from_mapping({**mapping, **{name: value for name, value in optional.items() if value is not None}})


AHEAD = {"draft": "mtp", "acceptance": [0.8]}


class TestPredictors:
    """One layer more, behind the model's own, and the LM head."""

    def test_weights_and_cache_of_one_more_layer(self):
        """2 norms and the projection of two hidden states to one beside a layer of Llama-3.1-70B, a quarter of each."""
        plain, ahead = (predict(scenario(speculation=spec)).memory.by_category for spec in (None, AHEAD))
        layer = 8192 * (2 * 8192 + 2 * 1024) + 3 * 8192 * 28672
        weights = 2 * ((layer + 2 * 8192 * 8192) / 4 + 4 * 8192)
        assert ahead["weights"] - plain["weights"] == pytest.approx(weights, rel=1e-6)
        assert ahead["kv_cache"] == pytest.approx(plain["kv_cache"] * 81 / 80, rel=1e-9)
        assert fit(scenario(speculation=AHEAD)).memory.by_category == ahead

    @pytest.mark.parametrize("batching", ["static", "continuous"])
    def test_it_reads_the_prompt_too(self, batching):
        plain, ahead = (
            evaluate(scenario(batching=batching, speculation={**AHEAD, "draft": draft})) for draft in ("ngram", "mtp")
        )
        assert plain.ttft_s < ahead.ttft_s < 1.04 * plain.ttft_s

    def test_who_has_none_is_told(self):
        said = [predict(scenario(model=m, speculation=AHEAD)).assumptions for m in ("llama-3.1-70b", "glm-4.5-air")]
        assert [any("predictor" in one for one in found) for found in said] == [True, False]


SPEC = {"draft": "model", "acceptance": [0.8, 0.7, 0.6]}
EXPERTS = {"tp": 1, "dp": 8, "ep": 8}


class TestDraftModels:
    """A second model drafts what the first verifies."""

    def test_drafts_that_are_never_accepted_cost_more_than_none(self):
        vain = {"draft": "model", "acceptance": [0.0, 0.0]}
        assert evaluate(scenario(draft="llama-3.2-1b", speculation=vain)).tpot_s > evaluate(scenario()).tpot_s

    def test_a_smaller_model_drafts_faster(self):
        times = [evaluate(scenario(draft=d, speculation=SPEC)).tpot_s for d in ("llama-3.2-1b", "llama-3.1-8b")]
        assert times[0] < times[1] < evaluate(scenario()).tpot_s

    def test_its_time_is_the_difference_to_free_drafts(self):
        free = evaluate(scenario(speculation={**SPEC, "draft": "ngram"}))
        model = evaluate(scenario(draft="llama-3.2-1b", speculation=SPEC))
        alone = evaluate(scenario(model="llama-3.2-1b", plan={"tp": 1}))
        drafting = (model.tpot_s - free.tpot_s) * 199 / free.decode.sum()
        engine = float(alone.steps.host[-1])
        assert drafting == pytest.approx(3 * (alone.tpot_s - engine), rel=0.02)

    def test_its_weights_and_cache_stand_beside(self):
        without, beside = (predict(scenario(draft=d, speculation=s)) for d, s in ((None, None), ("llama-3.2-1b", SPEC)))
        more = {k: beside.memory.by_category[k] - without.memory.by_category[k] for k in ("weights", "kv_cache")}
        assert more["weights"] == pytest.approx(2 * 1.236e9, rel=0.01)
        assert more["kv_cache"] == pytest.approx(8 * 1200 * 16 * 2 * 8 * 64 * 2, rel=0.02)
        assert fit(beside.origin).memory.by_category == beside.memory.by_category

    def test_leaves_sum_to_the_request(self):
        report = predict(scenario(draft={"model": "llama-3.2-1b", "tp": 2, "precision": "fp8"}, speculation=SPEC))
        assert sum(leaf.seconds for leaf in report.breakdown.leaves()) == pytest.approx(report.e2e_s, rel=1e-9)

    def test_reads_back(self):
        given = scenario(draft={"model": "llama-3.2-1b", "tp": 2}, speculation=SPEC)
        again = from_mapping(given.to_mapping())
        assert again.hash == given.hash
        assert again.draft == given.draft

    def test_other_vocabularies_and_degrees_are_refused(self):
        with pytest.raises(InputError, match=r"draft qwen2\.5-0\.5b has 151936 tokens and llama-3\.1-70b 128256"):
            scenario(draft="qwen2.5-0.5b", speculation=SPEC)
        with pytest.raises(
            InputError, match=r"draft\.tp 8 must divide the 32 heads of llama-3\.2-1b and be at most tp 4"
        ):
            scenario(draft={"model": "llama-3.2-1b", "tp": 8}, speculation=SPEC)
        with pytest.raises(InputError, match=r"llama-3\.2-1b"):
            scenario(draft="llama-3.2-1", speculation=SPEC)


class TestBeams:
    """Beams decode beside each other and share the cache of their prompt."""

    @pytest.mark.parametrize("batching", ["static", "continuous"])
    def test_four_beams_decode_as_four_times_the_requests_and_are_prefilled_once(self, batching):
        one, beams, many = (
            evaluate(scenario(batch_size=n, beams=b, batching=batching)) for n, b in ((8, 1), (8, 4), (32, 1))
        )
        if batching == "static":
            assert beams.ttft_s == one.ttft_s
            assert beams.tpot_s == pytest.approx(many.tpot_s, rel=1e-6)
        assert one.e2e_s < beams.e2e_s <= many.e2e_s

    def test_only_outputs_are_held_apart(self):
        one, four = (predict(scenario(beams=b)).memory.by_category["kv_cache"] for b in (1, 4))
        assert four / one == pytest.approx((1000 + 4 * 200) / 1200, rel=0.02)


class TestOffload:
    """Weights and cache on the host: less memory, more time, never both less."""

    def test_fetched_weights_take_the_link(self):
        """Half of 35.3 GB a rank over PCIe 5 x16."""
        table = evaluate(scenario(offload={"weights": 0.5}))
        assert table.tpot_s == pytest.approx(0.5 * 35e9 / 64e9, rel=0.15)
        report = predict(scenario(offload={"weights": 0.5}))
        assert report.memory.host_bytes == pytest.approx(17.1e9, rel=0.05)
        assert sum(leaf.seconds for leaf in report.breakdown.leaves()) == pytest.approx(report.e2e_s, rel=1e-9)

    def test_what_hides_costs_nothing(self):
        assert evaluate(scenario(offload={"kv_cache": 0.1})).tpot_s == pytest.approx(evaluate(scenario()).tpot_s)

    def test_memory_falls_as_the_share_grows(self):
        held = [predict(scenario(offload={"kv_cache": s}), allow_infeasible=True).memory for s in (0.0, 0.5, 1.0)]
        caches = [use.by_category["kv_cache"] for use in held]
        assert caches[0] == pytest.approx(2 * caches[1])
        assert caches[2] == 0
        assert held[2].host_bytes == caches[0]

    def test_a_model_beyond_memory_fits_with_its_weights_on_the_host(self):
        assert not predict(scenario(plan={"tp": 1})).feasible
        assert predict(scenario(plan={"tp": 1}, offload={"weights": 0.6})).feasible


class TestRouting:
    """Experts that are not equally popular."""

    def of(self, **work):
        return evaluate(scenario(model="qwen3-235b-a22b", plan=EXPERTS, precision="fp8", **{"batch_size": 512, **work}))

    def test_the_hottest_rank_sets_the_pace(self):
        even, hot = (self.of(routing=r) for r in ({}, {"hottest": 2.0}))
        assert hot.ttft_s > even.ttft_s

    def test_skew_touches_fewer_experts_and_loads_one_rank_more(self):
        def rows(table):
            found = next(t.rows for t in table.steps.priced.kernels if t.rows.family == "moe")
            return found.columns["rows"][0], found.columns["hit"][0]

        (even, all_), (skewed, fewer) = (rows(self.of(routing=r, batch_size=16)) for r in ({}, {"skew": 1.0}))
        last = int(np.argmin(all_))
        assert skewed[0] > even[0]
        assert fewer[last] < all_[last]

    def test_counts_are_the_measured_popularity(self):
        counted = self.of(routing={"counts": [4] * 16 + [1] * 112})
        assert counted.ttft_s > self.of().ttft_s


class TestContextParallel:
    """Prefill deals its tokens to cp ranks; in decode each holds its share of the cache."""

    def test_prefill_falls_and_decode_of_long_caches_too(self):
        work = {"batch_size": 1, "prompt_tokens": 64000, "output_tokens": 20}
        one, two = (evaluate(scenario(plan={"tp": 4, "cp": cp}, **work)) for cp in (1, 2))
        assert 0.5 < two.ttft_s / one.ttft_s < 0.7
        assert two.tpot_s < one.tpot_s

    def test_the_cache_is_dealt(self):
        one, two = (predict(scenario(plan={"tp": 4, "cp": cp})).memory for cp in (1, 2))
        assert two.by_category["kv_cache"] == pytest.approx(one.by_category["kv_cache"] / 2)
        assert two.by_category["weights"] == one.by_category["weights"]

    def test_experts_across_it_are_refused(self):
        with pytest.raises(InputError, match=r"parallelism\.cp 2 in inference goes with experts inside tp"):
            scenario(model="qwen3-235b-a22b", plan={"tp": 1, "cp": 2, "dp": 4, "ep": 8})


class TestTurningPoint:
    """The batch from which the products of decode are bound by compute."""

    def test_dense_16_bit_is_the_ridge_of_the_accelerator(self):
        """FLOP/s over B/s, as a weight of two bytes is multiplied and added."""
        report = predict(scenario())
        chip = report.origin.system.groups[0].node.accelerator
        ridge = chip.peak["bf16"] * chip.sustained.matrix / (chip.memory.hbm.bandwidth * chip.sustained.hbm)
        assert report.compute_bound_batch == pytest.approx(ridge, rel=0.01)

    def test_sparse_models_turn_later_and_short_weights_earlier(self):
        dense = predict(scenario(), allow_infeasible=True).compute_bound_batch
        sparse = predict(scenario(model="mixtral-8x7b"), allow_infeasible=True).compute_bound_batch
        short = predict(scenario(precision="int4-wo"), allow_infeasible=True).compute_bound_batch
        assert short < dense < sparse
