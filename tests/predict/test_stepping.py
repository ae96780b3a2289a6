"""The step predictor: exact at its nodes, half a per cent between them, fast, and what its arguments mean."""

import time

import numpy as np
import pytest

from rapid_llm.errors import InputError
from rapid_llm.execution import Machine
from rapid_llm.predict import plans_of, stepper
from rapid_llm.predict.replica import Job
from rapid_llm.scenario import from_mapping
from rapid_llm.workload import points_of

WORK = {"kind": "inference", "batch_size": 1, "prompt_tokens": 10, "output_tokens": 10}
ENGINES = {
    "vllm": {"model": "llama-3.1-70b", "system": "dgx-h100", "parallelism": {"tp": 4}, "runtime": "vllm"},
    "eager": {"model": "llama-3.1-8b", "system": "a100-sxm", "runtime": "vllm@2023"},
    "tensorrt-llm": {"model": "llama-2-7b", "system": "h100-sxm", "runtime": "tensorrt-llm", "precision": "fp8"},
    "experts": {"model": "gpt-oss-20b", "system": "h100-sxm", "runtime": "sglang", "precision": "bf16"},
}


@pytest.fixture(scope="module", params=ENGINES)
def engine(request):
    """A step predictor and the job whose passes it stands for."""
    given = from_mapping({**ENGINES[request.param], "workload": WORK})
    machine = Machine.of(given.system, given.runtime)
    job = Job(given.model, given.runtime, given.precision, plans_of(given), given.workload, machine)
    return stepper(given), job


def exact(job, rows):
    steps = job.time(points_of([(*row, 1) for row in rows]))[1]
    return steps.traversal + steps.host


def test_nodes_are_exact(engine):
    step, job = engine
    decode = [(n, 1, kv) for n in (1, 2, 17, 64, 128) for kv in (63, 64, 639, 2047)]
    got = [step(n, 0, n, n * kv, kv) for n, _, kv in decode]
    assert got == pytest.approx(exact(job, decode).tolist(), rel=1e-9)
    prefill = [(1, n, past) for n in (2, 33, 64, 65, 1024, 4096) for past in (0, 63, 2047)]
    got = [step(n, n * (past + n / 2), 0, 0, 0) for _, n, past in prefill]
    assert got == pytest.approx(exact(job, prefill).tolist(), rel=1e-9)


def test_between_nodes_within_half_a_percent(engine):
    """Where a kernel changes how it splits its work within a tile, a single composition may be off by more."""
    step, job = engine
    rng = np.random.default_rng(7)
    decode = [(int(n), 1, int(kv)) for n, kv in zip(rng.integers(1, 250, 90), rng.integers(64, 30000, 90), strict=True)]
    got = np.array([step(n, 0, n, n * kv, kv) for n, _, kv in decode])
    within(got / exact(job, decode) - 1)
    prefill = [(1, int(n), int(p)) for n, p in zip(rng.integers(2, 8000, 90), rng.integers(0, 20000, 90), strict=True)]
    got = np.array([step(n, n * (past + n / 2), 0, 0, 0) for _, n, past in prefill])
    within(got / exact(job, prefill) - 1)


@pytest.mark.parametrize("new", [14_001, 16_510, 20_000, 50_000])
def test_a_prompt_that_is_read_whole_beyond_the_budget(new):
    """An engine that cuts no prompt reads it in one step, however long: attention grows with its square."""
    given = from_mapping({**ENGINES["tensorrt-llm"], "model": "llama-3.1-8b", "workload": WORK})
    machine = Machine.of(given.system, given.runtime)
    job = Job(given.model, given.runtime, given.precision, plans_of(given), given.workload, machine)
    assert not given.runtime.serving.chunks_prompts
    assert stepper(given)(new, new * new / 2, 0, 0, 0) == pytest.approx(exact(job, [(1, new, 0)])[0], rel=0.01)


def within(error):
    assert np.abs(error).mean() < 2.5e-3
    assert np.quantile(np.abs(error), 0.9) < 5e-3
    assert np.abs(error).max() < 5e-2


def test_a_mixed_step_costs_less_than_its_parts_and_more_than_each(engine):
    step, _ = engine
    decode = step(64, 0, 64, 64 * 1000, 1000)
    prompt = step(512, 512 * 256, 0, 0, 0)
    mixed = step(576, 512 * 256, 64, 64 * 1000, 1000)
    assert max(decode, prompt) <= mixed <= decode + prompt


def test_prompts_and_sequences_share_a_launch_where_one_kernel_takes_both():
    """A mixed step of vLLM 1.x is one flash_attn_varlen_func and one append a layer; vLLM of 2023 launched two each."""
    shared = {name: stepper(from_mapping({**given, "workload": WORK})).shared for name, given in ENGINES.items()}
    layers = 80
    assert 4e-6 < shared["vllm"] / layers < 12e-6
    assert shared["eager"] == shared["tensorrt-llm"] == shared["experts"] == 0.0


def test_two_prompts_cost_less_than_one_of_both_lengths(engine):
    step, _ = engine
    assert step(4096, 2 * 2048 * 1024, 0, 0, 0) <= step(4096, 4096 * 2048, 0, 0, 0)


def test_a_long_cache_among_short_ones_shows(engine):
    step, _ = engine
    assert step(4, 0, 4, 103_000, 100_000) >= step(4, 0, 4, 103_000, 26_000)


def test_a_call_is_fast(engine):
    step, _ = engine
    best = 1.0
    for _ in range(20):
        start = time.process_time()
        for _ in range(200):
            step(600, 300_000.0, 100, 200_000.0, 5000.0)
        best = min(best, (time.process_time() - start) / 200)
    assert best < 20e-6


def test_training_has_no_engine_step():
    job = {"kind": "training", "global_batch_size": 8, "sequence_length": 128}
    given = from_mapping({"model": "llama-3.1-8b", "system": "h100-sxm", "workload": job})
    with pytest.raises(InputError, match=r"^workload.kind must be inference for a step predictor \(got training\)\.$"):
        stepper(given)


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"pools": {"prefill": {}, "decode": {}}}, "a step predictor knows no pools. Try to leave it out."),
        ({"workload": {"offload": {"weights": 0.5}}}, "a step predictor knows no offload. Try to leave it out."),
        (
            {"parallelism": {"cp": 4, "ulysses": 4, "shift": True}},
            "a step predictor knows no shift. Try to leave it out.",
        ),
        (
            {"runtime": {"base": "vllm", "overlap": {"nano_batches": 2}}},
            "a step predictor knows no nano_batches. Try to leave it out.",
        ),
    ],
)
def test_what_no_grid_holds_is_refused(changed, sentence):
    work = {"kind": "inference", "batch_size": 8, "prompt_tokens": 100, "output_tokens": 10}
    mapping = {"model": "llama-3.1-8b", "system": "dgx-h100", **changed}
    mapping["workload"] = {**work, **changed.get("workload", {})}
    with pytest.raises(InputError) as error:
        stepper(from_mapping(mapping))
    assert str(error.value) == sentence


@pytest.mark.parametrize("batch", [(-1, 0, 1, 10, 10), (0, 0, 0, 0, 0), (4, 0, 8, 80, 10), (8, 0, 8, 80, -1)])
def test_an_impossible_batch_is_refused(batch):
    step = stepper(from_mapping({"model": "llama-3.1-8b", "system": "h100-sxm", "workload": WORK}))
    with pytest.raises(InputError, match=r"^a step has tokens, at most so many sequences, and caches \(got tokens="):
        step(*batch)
