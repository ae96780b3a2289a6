"""The measurements nearest to a scenario: its accelerator first, then its runtime, else the mean over groups."""

from rapid_llm.predict.confidence import confidence_of
from rapid_llm.scenario import from_mapping


def scenario(system, runtime=None):
    work = {"kind": "training", "global_batch_size": 8, "sequence_length": 2048}
    extra = {"runtime": runtime} if runtime else {}
    return from_mapping({"model": "llama-3.1-8b", "system": system, "workload": work, **extra})


def test_a_measured_accelerator_and_runtime_have_no_reservations():
    found = confidence_of(scenario("dgx-a100", "megatron-core@2021"))
    assert found.suite == "training" and found.reasons == ()
    assert 0 < found.median <= found.p90


def test_an_unmeasured_accelerator_is_named():
    found = confidence_of(scenario("mi300x-8"))
    assert "mi300x was not measured end to end: its datasheet and its architecture's constants answer" in found.reasons
