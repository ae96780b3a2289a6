"""The verdict: its probability, the fixes, the largest that fits."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rapid_llm.errors import InputError
from rapid_llm.lowering import Shapes, lower
from rapid_llm.memory import fit_probability, inference_footprint, spread, training_footprint, verdict
from rapid_llm.nouns import replaced
from rapid_llm.predict import fit, plans_of, predict
from rapid_llm.predict.fitting import footprint, largest

from .scenarios import inference, training


@given(need=st.floats(1.0, 1e12), limit=st.floats(1.0, 1e12))
def test_probability_falls_with_need(need: float, limit: float) -> None:
    p = fit_probability(need, limit)
    assert 0.0 <= p <= 1.0
    assert fit_probability(need * 1.1, limit) <= p
    assert (p >= 0.5) == (need <= limit) or need == pytest.approx(limit)


def test_verdicts() -> None:
    assert [verdict(need, 80.0) for need in (60.0, 78.0, 81.0)] == ["fits", "fits narrowly", "does not fit"]
    assert fit_probability(80.0, 80.0) == 0.5
    assert fit_probability(0.0, 80.0) == 1.0
    assert fit_probability(1.0, 0.0) == 0.0


@settings(deadline=None, max_examples=30)
@given(
    name=st.sampled_from(["llama-3.1-8b", "mixtral-8x7b", "deepseek-v3", "gpt-22b"]),
    runtime=st.sampled_from(["megatron-core", "megatron-core@2021", "nanotron", "torchtitan"]),
    length=st.sampled_from([512, 2048, 6144]),
    tp=st.sampled_from([1, 2, 8]),
    recompute=st.sampled_from(["none", "selective", "full"]),
)
def test_footprint_is_the_lowered_pass(name: str, runtime: str, length: int, tp: int, recompute: str) -> None:
    work = {"global_batch_size": 24, "micro_batch_size": 3, "sequence_length": length, "recompute": recompute}
    s = training(name, runtime=runtime, plan={"tp": tp, "pp": 2}, accelerators=2 * tp, work=work)
    plans = plans_of(s)
    shapes = Shapes.of(
        plans, new=np.array([float(length)]), past=np.zeros(1), training=True, precision=s.precision, runtime=s.runtime
    )
    whole = lower(s.model, shapes, s.runtime)
    quick = training_footprint(s.model, s.runtime, s.precision, plans, sequence_length=length)
    for part in ("saved", "working", "gathered", "logits", "dense", "expert", "layers"):
        np.testing.assert_allclose(getattr(quick, part), getattr(whole, part), rtol=1e-9, atol=1.0)


def test_footprint_of_a_decode_step() -> None:
    s = inference(plan={"tp": 2}, accelerators=2, work={"batch_size": 24})
    plans = plans_of(s)
    shapes = Shapes.of(
        plans, new=np.ones(1), past=np.array([1279.0]), training=False, precision=s.precision, runtime=s.runtime
    )
    whole, quick = (
        lower(s.model, shapes, s.runtime),
        inference_footprint(s.model, s.runtime, s.precision, plans, cached=1280, prompt=1024),
    )
    np.testing.assert_allclose(quick.cache, whole.cache, rtol=1e-12)
    for part in ("working", "logits"):
        np.testing.assert_allclose(getattr(quick.unit, part), getattr(whole, part), rtol=1e-12)


@pytest.mark.parametrize("scenario", [
    training(plan={"tp": 2}, accelerators=8, work={"global_batch_size": 32, "sequence_length": 4096}),
    inference(work={"batch_size": 8}),
])  # fmt: skip
def test_fit_says_what_predict_says(scenario: Any) -> None:
    quick, whole = fit(scenario), predict(scenario)
    assert quick.memory == whole.memory
    assert quick.feasible == whole.feasible
    assert quick.step_time_s is None and quick.e2e_s is None


@pytest.mark.parametrize(("what", "field"), [
    ("micro-batch", "micro_batch_size"), ("sequence", "sequence_length"), ("layers", ""),
])  # fmt: skip
def test_largest_is_the_edge(what: str, field: str) -> None:
    scenario = training(plan={"tp": 2, "pp": 2}, accelerators=4, work={"global_batch_size": 8, "sequence_length": 1024})
    most = largest(scenario, what)
    step = {"micro-batch": 1, "sequence": 2, "layers": 2}[what]

    def at(size: int) -> bool:
        if what == "layers":
            model = scenario.model
            grown = replaced(scenario, model=replaced(model, pattern=(0,) * size))
        else:
            more = {"global_batch_size": 8 * size} if what == "micro-batch" else {}
            grown = replaced(scenario, workload=replaced(scenario.workload, **{field: size}, **more))
        return footprint(grown).fits

    assert most > 0
    assert at(most)
    assert not at(most + step)


def test_largest_batch_is_what_the_cache_holds() -> None:
    scenario = inference(work={"prompt_tokens": 2000, "output_tokens": 48})
    cache = fit(scenario).memory.cache
    assert cache is not None
    assert largest(scenario, "requests") == cache.sequences


def test_largest_of_another_workload() -> None:
    with pytest.raises(InputError) as caught:
        largest(training(), "requests")
    assert caught.value.message == (
        "--max requests does not go with workload.kind training. Try micro-batch, sequence, layers."
    )


def test_fixes_are_verified_and_ranked() -> None:
    scenario = inference("llama-3.1-70b", accelerators=1)
    report = fit(scenario)
    (violation,) = report.violations
    assert report.memory.verdict == "does not fit"
    assert violation.message.startswith("does not fit: rank 0 needs ")
    assert " of weights + " in violation.message
    assert "Try tp 4 on 4 accelerators (" in violation.message
    assert {fix.change.split()[0] for fix in violation.fixes} >= {"tp", "pp", "precision"}


def test_wider_plans_take_up_sequence_parallelism() -> None:
    scenario = training(
        "llama-3.1-70b", plan={"pp": 2}, accelerators=64, work={"global_batch_size": 512, "sequence_length": 8192}
    )
    (violation,) = fit(scenario).violations
    assert violation.fixes[0].change.startswith(("tp", "pp"))
    assert violation.fixes[0].step_time_ratio is not None


def test_degrees_grow_together_where_no_single_one_suffices() -> None:
    """A first question: a 70B model on one accelerator. The plan that is offered runs, and fits with room to spare."""
    (violation,) = fit(training("llama-3.1-70b", accelerators=1, work={"sequence_length": 4096})).violations
    (fix,) = violation.fixes
    assert fix.change == "tp 8 pp 4 on 32 accelerators"
    wider = training("llama-3.1-70b", plan={"tp": 8, "pp": 4}, accelerators=32, work={"sequence_length": 4096})
    assert fit(wider).memory.verdict == "fits"


def test_a_fix_is_what_typing_it_gives() -> None:
    """Fields that the user left open follow the degrees that a fix changes, as they do when it is typed."""
    work = {"global_batch_size": 4, "sequence_length": 2048}
    (violation,) = fit(training("mixtral-8x7b", plan={"pp": 4}, accelerators=16, work=work)).violations
    assert {fix.change for fix in violation.fixes} == {"tp 2", "ep 4", "pp 16", "zero_stage 3"}
    for fix in violation.fixes:
        axis, degree = fix.change.split()
        typed = fit(training("mixtral-8x7b", plan={"pp": 4, axis: int(degree)}, accelerators=16, work=work))
        assert typed.feasible
        assert typed.memory.peak_bytes == violation.need - fix.saves_bytes


def test_an_8_bit_cache_is_a_fix_where_the_accelerator_has_no_8_bit_rate() -> None:
    many = inference(system="a100-sxm", accelerators=1, work={"batch_size": 500})
    (violation,) = fit(many).violations
    assert "precision.kv_cache fp8" in {fix.change for fix in violation.fixes}


def test_bytes_that_can_be_given_back_do_not_decide() -> None:
    """Where slack ends exactly at the limit the plan fits, as the report says: the limit is met by what remains."""
    at = [training(runtime="nanotron@2024-10", plan={"tp": 8}, work={"sequence_length": n}) for n in (55040, 57280)]
    for scenario in at:
        assert fit(scenario).feasible == footprint(scenario).fits


def test_an_engine_that_chooses_its_batch_has_no_odds() -> None:
    """It fills its own share: full by construction."""
    for report in (fit(inference(work={"batch_size": "auto"})), predict(inference(work={"batch_size": "auto"}))):
        assert report.memory is not None
        assert (report.memory.verdict, report.memory.probability) == ("fits", None)


def test_odds_of_an_engine_are_those_of_engines() -> None:
    scenario = inference(work={"prompt_tokens": 2000, "output_tokens": 48})
    edge = replaced(scenario, workload=replaced(scenario.workload, batch_size=largest(scenario, "requests")))
    memory = fit(edge).memory
    assert memory is not None and memory.verdict == "fits narrowly"
    need = memory.peak_bytes
    assert memory.probability == pytest.approx(fit_probability(need, memory.limit_bytes, "inference"), abs=0.01)
    assert spread("inference") < spread("training")
