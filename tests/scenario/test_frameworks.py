"""Frameworks by the names that people write, and what they run where they are not told."""

import pytest

from rapid_llm import predict, runtime
from rapid_llm.errors import InputError
from rapid_llm.runtime.catalogue import CATALOGUE, entry
from rapid_llm.scenario import from_mapping as load

JOB = {
    "system": "trn1", "accelerators": 32, "precision": "bf16-mixed",
    "workload": {"kind": "training", "global_batch_size": 64, "micro_batch_size": 1, "sequence_length": 4096},
}  # fmt: skip


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("nemo", "megatron-core@nemo"),  # an alias of a version
        ("Megatron-DeepSpeed", "megatron-core@deepspeed"),
        ("litgpt", "fsdp@eager"),
        ("megatron-lm", "megatron-core"),  # of a framework
        ("colossal-ai", "deepspeed"),
        ("torchtune", "torchtitan"),
        ("NeMo-AutoModel", "torchtitan@automodel"),
        ("llmfoundry", "composer"),
        ("paxml", "maxtext"),
        ("nxdt", "neuron"),
        ("trtllm", "tensorrt-llm"),
    ],
)
def test_a_framework_is_found_by_what_people_call_it(written, name):
    assert runtime.load(written) == runtime.load(name)
    assert entry(written)[0].data == entry(name)[0].data


@pytest.mark.parametrize(("kind", "name"), [("training", "deepspeed"), ("inference", "hf-transformers")])
def test_an_alias_of_several_is_the_one_that_runs_the_workload(kind, name):
    assert runtime.written("Transformers", kind) == name
    work = {"training": {"global_batch_size": 8, "sequence_length": 512},
            "inference": {"batch_size": 8, "prompt_tokens": 512, "output_tokens": 32}}[kind]  # fmt: skip
    job = {"model": "llama-3.1-8b", "system": "dgx-h100", "parallelism": {"dp": 8}, "workload": {"kind": kind, **work}}
    asked = load({**job, "runtime": "transformers"})
    assert asked.runtime == load({**job, "runtime": name}).runtime
    assert asked.sources == load({**job, "runtime": name}).sources


def test_what_one_name_stands_for_runs_different_workloads():
    aliases = {str(alias) for name in CATALOGUE.names() for fields in _entries(name) for alias in fields["aliases"]}
    for alias in sorted(aliases):
        runs = [runtime.load(one).workload for one in CATALOGUE.meanings(alias)]
        assert len(runs) == len(set(runs)), f"{alias} could be any of {CATALOGUE.meanings(alias)}"


def _entries(name):
    data = CATALOGUE.document(name).data
    return [one for one in (data, *(data.get("versions") or {}).values()) if one.get("aliases")]


def test_an_alias_of_a_version_takes_no_other_version():
    assert runtime.written("nemo") == "megatron-core@nemo"
    assert runtime.load("megatron-lm@nemo") == runtime.load("nemo")


def test_trainium_runs_neuron():
    assert load({**JOB, "model": "llama3-8b", "parallelism": {"tp": 32}}).runtime.name == "neuron"


def test_neuron_repeats_kv_heads_where_tensor_parallelism_is_wider():
    wide = {**JOB, "model": "llama3-8b", "parallelism": {"tp": 32}}
    assert predict(load({**wide, "runtime": "neuron"})).step_time_s
    with pytest.raises(InputError, match="keeps no copies of them"):
        predict(load({**wide, "system": "dgx-h100", "runtime": "megatron-core"}))
