"""The measurements nearest to a scenario: its accelerator first, then its architecture and runtime, else the mean."""

import pytest

from rapid_llm.predict import confidence as rules
from rapid_llm.predict import predict
from rapid_llm.predict.confidence import confidence_of
from rapid_llm.scenario import from_mapping


def scenario(system, runtime=None, **work):
    work = work or {"kind": "training", "global_batch_size": 8, "sequence_length": 2048}
    extra = {"runtime": runtime} if runtime else {}
    return from_mapping({"model": "llama-3.1-8b", "system": system, "workload": work, **extra})


def serving(system, runtime, **work):
    return scenario(
        system, runtime, **{"kind": "inference", "batch_size": 1, "prompt_tokens": 512, "output_tokens": 64, **work}
    )


def row(  # noqa: PLR0917
    group, metric, rows, p90, on=(), with_=(), *, suite="inference"
):
    return {
        "suite": suite, "group": group, "metric": metric, "rows": rows, "median": p90 / 2, "p90": p90,
        "accelerators": list(on), "runtimes": list(with_),
    }  # fmt: skip


def lent(own, much, on):
    return {"suite": "gemm", "metric": "latency", "groups": 2, "own": own, "lent": much, "accelerators": list(on)}


ROWS = [
    row("bench/h100", "e2e", 180, 0.1, ["h100-sxm"], ["vllm", "tensorrt-llm"]),
    row("rocm/mi300x", "e2e", 12, 0.11, ["mi300x"], ["vllm"]),
    row("intel/gaudi3", "throughput", 4, 0.084, ["gaudi3"], ["vllm"]),
    row("cpp/m3-max", "throughput", 1, 0.02, ["apple-m3-max"], ["llama.cpp"]),
    row("cpp/m2", "throughput", 20, 0.03, ["apple-m2-ultra"], ["llama.cpp"]),
    row("cpp/4090", "throughput", 12, 0.08, ["rtx-4090"], ["llama.cpp"]),
    row("all", "e2e", 192, 0.1),
    row("all", "throughput", 37, 0.13),
    row("engine-logs", "cache", 2, 0.01, ["a100-sxm"], ["vllm"], suite="memory"),
]
LENT = [lent(0.2, 0.4, ["a100-sxm"]), lent(0.2, 0.225, ["l40s"])]
ORDINARY, MOST = 1.5, 2.0
"""The mean of the ratios (geometric) and the largest."""


@pytest.fixture
def card(monkeypatch):
    monkeypatch.setattr(rules, "written", lambda: {"quantiles": ROWS, "lent": LENT})
    rules._nearest.cache_clear()
    yield
    rules._nearest.cache_clear()


def test_a_measured_accelerator_and_runtime_have_no_reservations():
    found = confidence_of(scenario("dgx-a100", "megatron-core@2021"))
    assert found.suite == "training" and found.reasons == ()
    assert 0 < found.median <= found.p90 <= found.within


def test_adapters_alone_were_measured_by_nobody():
    work = {"kind": "training", "global_batch_size": 8, "sequence_length": 4096}
    job = {"model": "llama-3.1-8b", "system": "dgx-h100", "accelerators": 8}
    whole, frozen = (
        confidence_of(from_mapping({**job, "workload": {**work, **lora}})) for lora in ({}, {"lora": {"rank": 16}})
    )
    assert whole is not None
    assert frozen is not None
    assert frozen.reasons == (*whole.reasons, "no measured job trains adapters alone")


def test_an_unmeasured_accelerator_is_named():
    found = confidence_of(scenario("mi300x-8"))
    assert "mi300x was not measured end to end: its datasheet and its architecture's constants answer" in found.reasons


@pytest.mark.parametrize(
    ("system", "runtime", "group"),
    [
        ("mi300x-8", "vllm", "rocm/mi300x"),
        ("gaudi3-8", "vllm", "intel/gaudi3"),
        ("apple-m3-max", "llama.cpp", "cpp/m3-max"),
        ("apple-m4-max", "llama.cpp", "cpp/m3-max"),
        ("apple-m1-max", "llama.cpp", "cpp/m2"),
        ("rtx-4090", "vllm", "cpp/4090"),
        ("dgx-h100", "vllm", "bench/h100"),
    ],
)
def test_the_nearest_shares_accelerator_then_architecture_then_runtime(card, system, runtime, group):
    """A group that printed a rate alone is as near as one that printed the time of a request."""
    assert confidence_of(serving(system, runtime)).group == group


def test_a_measured_pair_is_as_wide_as_its_rows(card):
    found = confidence_of(serving("mi300x-8", "vllm"))
    assert found.reasons == () and found.within == found.p90


@pytest.mark.parametrize("model", ["bge-large-en-v1.5", "whisper-small", "flan-t5-xl"])
def test_no_encoder_was_measured(card, model):
    work = {"kind": "inference", "batch_size": 1, "prompt_tokens": 1500}
    work |= {} if model.startswith("bge") else {"output_tokens": 64}
    system = {"base": "dgx-h100"}
    runtime = "tensorrt-llm" if model.startswith("flan") else "vllm"
    job = {"model": model, "system": system, "runtime": runtime, "workload": work}
    if model.startswith(("bge", "flan")):
        job["workload"] = {**work, "prompt_tokens": 512}
    found = confidence_of(from_mapping(job))
    assert found.within == pytest.approx(0.1 * MOST)
    assert any(one.startswith("no encoder was measured end to end: interval 2.0 times") for one in found.reasons)


def test_few_rows_do_not_narrow_the_interval(card):
    found = confidence_of(serving("gaudi3-8", "vllm"))
    assert (found.p90, found.within) == (0.084, 0.13)
    assert found.reasons == ("so few rows: the interval is that of the mean over groups, 13.0 %",)


@pytest.mark.parametrize(
    ("system", "runtime", "within"),
    [
        ("rtx-4090", "vllm", 0.08 * ORDINARY),  # measured under another engine
        ("apple-m2-max", "llama.cpp", 0.03 * ORDINARY),  # others of its architecture were measured
        ("l4", "vllm", 0.08 * ORDINARY),  # kernels of its architecture
        ({"base": "dgx-h100", "accelerator": {"base": "h100-sxm", "name": "mine"}}, "vllm", 0.1 * ORDINARY),
        ("tpu-v5e", "vllm", 0.1 * MOST),  # nothing of its architecture
    ],
)
def test_what_was_not_measured_has_a_wider_interval(card, system, runtime, within):
    found = confidence_of(serving(system, runtime))
    assert found.within == pytest.approx(within)
    assert f"interval {within / found.p90:.1f} times as wide" in " ".join(found.reasons)


def test_the_interval_of_a_report_is_the_wide_one(card):
    found = predict(serving("l40s", "vllm"))
    low, high = found.interval
    assert high / found.e2e_s == pytest.approx(1.0 + found.confidence.within)
    assert low / found.e2e_s == pytest.approx(1.0 - found.confidence.within)


def test_memory_of_an_engine_rests_on_measured_caches(card):
    found = confidence_of(serving("dgx-h100", "vllm"), memory=True)
    assert (found.suite, found.group) == ("memory", "engine-logs")


def test_power_strays_as_on_its_accelerator_where_enough_was_measured(monkeypatch):
    rows = [
        row("a/h100-sxm", "power", 23, 0.11, ["h100-sxm"], suite="energy"),
        row("b/a100-sxm", "power", 4, 0.07, ["a100-sxm"], suite="energy"),
        row("all", "power", 27, 0.26, suite="energy"),
    ]
    monkeypatch.setattr(rules, "written", lambda: {"quantiles": rows, "lent": []})
    assert [rules.power_strays(serving(chip, None)) for chip in ("h100-sxm", "a100-sxm", "l4")] == [0.11, 0.26, 0.26]
    assert rules.power_strays(scenario("h100-sxm")) == 0.26  # no training step was metered
    monkeypatch.setattr(rules, "written", lambda: {"quantiles": [], "lent": []})
    assert rules.power_strays(scenario("h100-sxm")) is None
