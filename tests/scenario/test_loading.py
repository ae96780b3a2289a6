import json
from pathlib import Path

import pytest

from rapid_llm.documents import parse_yaml
from rapid_llm.errors import InputError
from rapid_llm.hardware import system
from rapid_llm.scenario import from_mapping, load, require

TEXT = """\
model: llama-3.1-70b
system: dgx-h100
accelerators: 64

parallelism: {tp: 8, pp: 2}
workload:
  kind: training
  global_batch_size: 512
  sequence_length: 8192
"""


@pytest.fixture
def write(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def written(text, name="scenario.yaml"):
        (tmp_path / name).write_text(text)
        return name

    return written


def read(*overrides, text=TEXT):
    return from_mapping(parse_yaml(text).data, overrides=overrides)


def test_defaults_are_resolved_and_named(write):
    scenario = load(write(TEXT))
    assert (scenario.parallelism.tp, scenario.parallelism.pp, scenario.parallelism.dp) == (8, 2, 4)
    assert all(value is not None for value in vars(scenario.parallelism).values())
    assert scenario.runtime.name == "megatron-core"
    assert scenario.defaults[0] == "runtime: megatron-core (default for training)"
    assert "parallelism.dp: 4 (what is left over)" in scenario.defaults
    assert {line.split(":")[0] for line in scenario.defaults} == {
        "runtime", "precision", "parallelism.dp", "parallelism.sp", "parallelism.zero_stage", "parallelism.schedule",
        "workload.recompute", "workload.micro_batch_size",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("model", "system", "preset", "why"),
    [
        ("deepseek-v3", "dgx-h200", "fp8-block", "checkpoint of deepseek-v3"),
        ("deepseek-v3", "dgx-a100", "fp8-wo", "checkpoint of deepseek-v3"),
        ("gpt-oss-20b", "a100-sxm", "mxfp4-experts", "checkpoint of gpt-oss-20b"),
        ("kimi-k2.5", "dgx-h200", "int4-experts", "checkpoint of kimi-k2.5"),
        ("llama-3.1-8b", "h100-sxm", "bf16", "default of vllm"),
    ],
)
def test_an_engine_runs_a_checkpoint_in_its_own_format(model, system, preset, why):
    work = {"kind": "inference", "batch_size": 1, "prompt_tokens": 8, "output_tokens": 8}
    scenario = from_mapping({"model": model, "system": system, "workload": work})
    assert scenario.precision.name == preset
    assert f"precision: {preset} ({why})" in scenario.defaults


@pytest.mark.parametrize(
    ("system", "tokens", "sequences"),
    [
        ("a100-sxm", 2048, 256),
        ("h200-sxm", 8192, 1024),
        ("rtx-pro-6000", 8192, 1024),
        ("rtx-5090", 2048, 256),
        ("gb10", 2048, 256),
        ("tpu-v6e", 1024, 256),
    ],
)
def test_an_engine_sizes_its_steps_by_the_accelerator(system, tokens, sequences):
    """vLLM engine/arg_utils.py: larger defaults on devices of 70 GiB and more, but the A100; of a unified memory NVML
    knows nothing."""
    work = {"kind": "inference", "batch_size": 1, "prompt_tokens": 8, "output_tokens": 8}
    given = {"model": "llama-3.1-8b", "system": system, "workload": work}
    serving = from_mapping(given).runtime.serving
    assert (serving.max_batched_tokens, serving.max_sequences) == (tokens, sequences)
    changed = from_mapping({**given, "runtime": {"serving": {"max_batched_tokens": 512}}}).runtime.serving
    assert (changed.max_batched_tokens, changed.max_sequences) == (512, sequences)


def test_inference_defaults():
    workload = "workload: {kind: inference, batch_size: 8, prompt_tokens: 9, output_tokens: 9}"
    text = f"model: llama-3.1-8b\nsystem: dgx-h100\n{workload}"
    scenario = read("parallelism.tp=4", "parallelism.dp=2", text=text)
    assert scenario.runtime.name == "vllm"
    assert scenario.accelerators == 8
    assert "accelerators: 8 (product of the degrees)" in scenario.defaults


@pytest.mark.parametrize(
    ("overrides", "etp"),
    [([], 1), (["parallelism.tp=4"], 4), (["parallelism.tp=4", "parallelism.ep=2"], 2), (["parallelism.ep=8"], 1)],
)
def test_experts_are_cut_over_the_tensor_ranks_that_ep_leaves(overrides, etp):
    text = (
        "model: mixtral-8x7b\nsystem: dgx-h100\nworkload: {kind: training, global_batch_size: 8, sequence_length: 4096}"
    )
    scenario = read(*overrides, text=text)
    assert scenario.parallelism.etp == etp
    assert scenario.accelerators == (8 if overrides == ["parallelism.ep=8"] else scenario.parallelism.tp)


def test_mapping_reads_back_with_the_same_hash():
    scenario = read("system.accelerator.memory.hbm.bandwidth=20TB/s", "precision.kv_cache=fp8")
    again = from_mapping(json.loads(json.dumps(scenario.to_mapping())))
    assert again.hash == scenario.hash
    assert (again.model, again.system, again.runtime, again.precision, again.workload) == (
        scenario.model, scenario.system, scenario.runtime, scenario.precision, scenario.workload
    )  # fmt: skip
    assert again.defaults == ()
    assert len(scenario.hash) == 64


def test_hash_covers_every_number():
    plain = read()
    assert read().hash == plain.hash
    for override in (
        "system.accelerator.memory.hbm.bandwidth=3.36 TB/s",
        "system.fabric.oversubscription=2",
        "runtime.host.per_step=9 ms",
        "workload.micro_batch_size=2",
        "precision.gradients=bf16",
        "placement.order=[tp, cp, ep, pp, dp]",
    ):
        assert read(override).hash != plain.hash, override


def test_overrides_reach_into_nouns():
    changed = read("system.accelerator.memory.hbm.bandwidth=20TB/s")
    chip = changed.system.groups[0].node.accelerator
    assert chip.memory.hbm.bandwidth == 2e13
    assert chip.memory.hbm.capacity == system("dgx-h100").groups[0].node.accelerator.memory.hbm.capacity
    assert (changed.system.name, chip.name) == ("dgx-h100 (changed)", "h100-sxm (changed)")
    assert changed.system.groups[0].count == system("dgx-h100").groups[0].count


@pytest.mark.parametrize(
    ("override", "value"),
    [
        ("system.node.accelerator.memory.hbm.bandwidth=20 TB/s",
         lambda s: s.system.groups[0].node.accelerator.memory.hbm.bandwidth == 2e13),
        ("system.accelerator=b200-sxm", lambda s: s.system.groups[0].node.accelerator.name == "b200-sxm"),
        ("system.nodes=256", lambda s: s.system.accelerators == 2048),
        ("system=dgx-a100", lambda s: s.system.name == "dgx-a100"),
        ("runtime.host.per_step=9 ms", lambda s: s.runtime.host.per_step == 0.009),
        ("precision=fp8-mixed", lambda s: s.precision.compute == "fp8"),
        ("precision.kv_cache=fp8", lambda s: (s.precision.kv_cache, s.precision.gradients) == ("fp8", "fp32")),
        ("workload.recompute=full", lambda s: s.workload.recompute.mode == "full"),
        ("workload.recompute={mode: full, every: 2}",
         lambda s: (s.workload.recompute.mode, s.workload.recompute.every) == ("full", 2)),
        ("workload.recompute={modules: [core_attn], every: 2}",
         lambda s: (s.workload.recompute.mode, s.workload.recompute.every) == ("selective", 2)),
        ("workload.recompute=[layernorm, mlp]",
         lambda s: s.workload.recompute.modules == ("layernorm", "mlp")),
        ("workload.recompute={modules: [layernorm, mlp]}",
         lambda s: s.workload.recompute.modules == ("layernorm", "mlp")),
        ("placement.order=[dp, tp, cp, ep, pp]", lambda s: s.placement.order[0] == "dp"),
        ("precision={compute: fp8, kv_cache: fp8}",
         lambda s: (s.precision.compute, s.precision.weights, s.precision.gradients) == ("fp8", "bf16", "fp32")),
        ("faults=[]", lambda s: s.faults == ()),
        ("network=closed-form", lambda s: s.network == "closed-form"),
        ("parallelism.sp=false", lambda s: s.parallelism.sp is False),
        ("parallelism={tp: 4}", lambda s: (s.parallelism.tp, s.parallelism.pp) == (4, 1)),
        ("model.num_hidden_layers=40", lambda s: s.model.num_hidden_layers == 40),
    ],
)  # fmt: skip
def test_override(override, value):
    assert value(read(override))


def test_racks_are_shared():
    scenario = read("system=gb200-nvl72", "accelerators=128")
    assert "system: 2 racks of 72 give 64 accelerators each" in scenario.defaults
    assert scenario.system.groups[0].node.accelerators == 64


def test_a_chip_alone():
    text = TEXT.replace("dgx-h100", "h200-sxm").replace("64", "1").replace("{tp: 8, pp: 2}", "{}")
    assert read(text=text).system.accelerators == 1
    changed = read("system.accelerator.memory.hbm.capacity=200 GB", text=text)
    assert changed.system.groups[0].node.accelerator.memory.hbm.capacity == 200_000_000_000


def test_saved_scenario_takes_overrides():
    saved = read().to_mapping()
    overrides = ["system.accelerator.memory.hbm.bandwidth=20TB/s", "parallelism.tp=4", "parallelism.dp=null"]
    changed = from_mapping(saved, overrides=overrides)
    assert changed.system.groups[0].node.accelerator.memory.hbm.bandwidth == 2e13
    assert (changed.parallelism.tp, changed.parallelism.dp) == (4, 8)


def test_base_and_paths(write):
    write(TEXT, "base.yaml")
    write("base: h100-sxm\nname: mine\nmemory: {hbm: {capacity: 96 GiB}}\n", "chip.yaml")
    scenario = load(write("base: base.yaml\nsystem: {accelerator: chip.yaml}\nparallelism: {pp: 4}\n"))
    assert scenario.system.groups[0].node.accelerator.name == "mine"
    assert (scenario.parallelism.tp, scenario.parallelism.pp) == (8, 4)


def test_an_accelerator_file_is_a_system_of_one(write):
    chip = "base: h100-sxm\nname: mine\nmemory:\n  hbm:\n    capacity: 96 GiB\n"
    one = TEXT.replace("64", "1").replace("{tp: 8, pp: 2}", "{}").replace("dgx-h100", "system.yaml")
    write(chip, "system.yaml")
    scenario = load(write(one))
    assert (scenario.system.name, scenario.system.accelerators) == ("mine", 1)
    write("\n" * 9 + chip.replace("96 GiB", "80"), "system.yaml")
    with pytest.raises(InputError) as error:
        load(write(one))
    assert str(error.value) == "system.yaml:14: memory.hbm.capacity needs a unit, such as '80 GiB' (got 80)."


def test_nouns_stand_for_themselves():
    scenario = read()
    again = from_mapping({**parse_yaml(TEXT).data, "system": scenario.system, "model": scenario.model})
    assert again.hash == scenario.hash


def test_sources():
    sources = read().sources
    assert sources["system.node.nics.count"].kind == "datasheet"
    assert any(path.startswith("runtime.") for path in sources)


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("parallelism", "\nparalelism", "scenario.yaml:6: unknown field 'paralelism'. Did you mean 'parallelism'?"),
        ("\nparallelism", "\n\nparalelism", "scenario.yaml:6: unknown field 'paralelism'. Did you mean 'parallelism'?"),
        ("sequence_length", "sequence_lenght",
         "scenario.yaml:9: unknown field 'workload.sequence_lenght'. Did you mean 'sequence_length'?"),
        ("llama-3.1-70b", "lama-3.1-8b",
         "scenario.yaml:1: model 'lama-3.1-8b' is not in the catalogue. Did you mean 'llama-3.1-8b'? "
         "See: rapid-llm list models"),
        ("dgx-h100", "dgx-h1000",
         "scenario.yaml:2: system 'dgx-h1000' is not in the catalogue. Did you mean 'dgx-h100'? "
         "A path to a YAML file works too."),
        ("8192", "1e30",
         "scenario.yaml:9: workload.sequence_length must be an integer of at most 1,000,000,000,000 (got 1e+30)."),
        ("tp: 8", "tp: -8", "scenario.yaml:5: parallelism.tp must be at least 1 (got -8). Try 1."),
        ("tp: 8", "tp: 7",
         "scenario.yaml:5: parallelism.tp must divide num_attention_heads: 64 heads / tp 7 leaves 1. "
         "Try 1, 2, 4, 8, 16, 32, 64."),
        ("system: dgx-h100\n", "", "scenario.yaml: the field 'system' is missing. Try system: dgx-h100. "
         "See: rapid-llm list systems"),
        ("dgx-h100", "5", "scenario.yaml:2: system must be a name, a path or a mapping of fields (got 5)."),
        ("dgx-h100", "{base: dgx-h100, accelerator: {memory: {hbm: {capacity: 80}}}}",
         "scenario.yaml:2: system.accelerator.memory.hbm.capacity needs a unit, such as '80 GiB' (got 80)."),
        ("dgx-h100", "{base: dgx-h10}",
         "scenario.yaml:2: system 'dgx-h10' is not in the catalogue. Did you mean 'dgx-h100'? "
         "A path to a YAML file works too."),
        ("dgx-h100", "nowhere.yaml", "nowhere.yaml: no such file."),
        ("accelerators: 64\n", "network: flows\n",
         "scenario.yaml:3: network 'flows' is unknown. Did you mean 'flow'? Known: closed-form, flow."),
        ("accelerators: 64\n", "faults: [{nic: node0.nic0}]\n",
         "scenario.yaml:3: faults[0] does nothing at nic; give down: true, bandwidth, latency or speed."),
        ("accelerators: 64\n", "faults: [{nic: node0.nic0, bandwidth: 150 %}]\n",
         "scenario.yaml:3: faults[0].bandwidth must be at most 1 (got 1.5). Try 1."),
        ("accelerators: 64\n", "accelerators: 64\nnetwork: flow\nfaults: [{nic: node0.nic9, down: true}]\n",
         "scenario.yaml:5: dgx-h100 x 8 has no node 'node0.nic9'. Did you mean 'node0.nic7' or "
         "'node0.nic6' or 'node0.nic5'?"),
        ("accelerators: 64\n", "faults: [{nic: node0.nic0, down: true}]\n",
         "scenario.yaml:3: faults of links, cards and switches need network: flow (got node0.nic0 down and network: "
         "closed-form). Try network: flow."),
        ("accelerators: 64\n", "accelerators: 64\nfaults: [{accelerator: 64, speed: 80 %}]\n",
         "scenario.yaml:4: faults name accelerator 64, but the job has 0 to 63."),
        ("accelerators: 64\n", "placement: {order: [tp, dp]}\n",
         "scenario.yaml:3: placement.order must name each of tp, cp, ep, dp, pp once (got tp, dp). "
         "Try [tp, cp, ep, dp, pp]."),
        ("kind: training", "kind: serving", "scenario.yaml:7: workload.kind: serving (a stream of requests) is not "
         "available yet. Try kind: inference, a batch."),
        ("accelerators: 64\n", "pools: {prefill: {}, decode: {}}\n",
         "scenario.yaml:3: pools are for inference, and workload.kind is training. Try to leave pools out."),
        ("llama-3.1-70b", "''", "scenario.yaml:1: the field 'model' is missing. Try model: llama-3.1-8b. "
         "See: rapid-llm list models"),
        ("dgx-h100", "{}", "scenario.yaml:2: the field 'system' is missing. Try system: dgx-h100. "
         "See: rapid-llm list systems"),
        ("kind: training", "kind: training\n  recompute: {every: 2}",
         "scenario.yaml:8: workload.recompute.every needs a mode, such as {mode: full, every: 2}."),
        ("kind: training", "kind: training\n  recompute: {modules: [mpl]}",
         "scenario.yaml:8: workload.recompute.modules is a list of core_attn, layernorm, mla_up_proj, moe_act, mlp, "
         "moe, shared_experts (got 'mpl'). Try [core_attn]."),
        ("kind: training", "kind: training\n  recompute: {modules: mlp}",
         "scenario.yaml:8: workload.recompute.modules is a list of core_attn, layernorm, mla_up_proj, moe_act, mlp, "
         "moe, shared_experts (got 'mlp'). Try [core_attn]."),
        ("kind: training", "kind: training\n  recompute: {mode: full, modules: [core_attn]}",
         "scenario.yaml:8: workload.recompute takes mode or modules, not both. Try mode alone."),
    ],
)  # fmt: skip
def test_sentences_of_a_file(write, old, new, sentence):
    with pytest.raises(InputError) as error:
        load(write(TEXT.replace(old, new, 1)))
    assert str(error.value) == sentence


@pytest.mark.parametrize(
    ("override", "sentence"),
    [
        ("paralelism.tp=4", "unknown field 'paralelism'. Did you mean 'parallelism'?"),
        ("system.accelerator.memory.hmb.bandwidth=3 TB/s",
         "unknown field 'system.accelerator.memory.hmb'. Did you mean 'hbm'?"),
        ("system.accelerator.memory.hbm.bandwidth=20",
         "system.accelerator.memory.hbm.bandwidth needs a unit, such as '3.35 TB/s' (got 20)."),
        ("system.accelerator=h100-sx", "accelerator 'h100-sx' is not in the catalogue. Did you mean 'h100-sxm'? "
         "See: rapid-llm list accelerators"),
        ("system.node.accelerator.peak.bf61=5 PFLOP/s",
         "system.node.accelerator.peak rate of 'bf61' is unknown. Did you mean 'bf16'? Known: bf16, fp16, fp32, tf32, "
         "fp64, fp8, mxfp8, fp6, fp4, int8, int4."),
        ("runtime=vlm", "runtime 'vlm' is not in the catalogue. Did you mean 'vllm'? See: rapid-llm list runtimes"),
        ("runtime.host.per_steps=1 ms", "unknown field 'runtime.host.per_steps'. Did you mean 'per_step'?"),
        ("precision.compute=bf61", "precision.compute 'bf61' is unknown. Did you mean 'bf16'? Known: bf16, fp16, fp32, "
         "tf32, fp64, fp8, fp8_delayed, fp8_row, fp8_block, mxfp8, mxfp6, nvfp4, mxfp4, int8, int32, fp8_wo, int8_wo, "
         "int4_wo, int4_g32_wo, nf4, nvfp4_wo, mxfp4_wo, q8_0, q6_k, q5_k, q4_k, q4_k_m, q5_k_m, q3_k_m, iq4_xs, "
         "q4_0."),
        ("parallelism.tp=two", "parallelism.tp must be an integer (got 'two')."),
        ("parallelism.tp", "'--set parallelism.tp' must name a field and a value, such as --set parallelism.tp=4."),
        ("parallelism..tp=1", "'--set parallelism..tp=1' must name a field and a value, such as "
         "--set parallelism.tp=4."),
        ("parallelism.tp={a: 1", "the value of parallelism.tp is not valid YAML (got '{a: 1')."),
        ("workload.recompute=5", "workload.recompute.mode 5 is unknown. Known: none, selective, full."),
        ("workload.batch_size=5", "unknown field 'workload.batch_size'. Did you mean 'global_batch_size'?"),
        ("faults=5", "faults must be a list (got 5). Try faults: [{nic: node0.nic0, down: true}]."),
        ("precision=true", "precision must be a name or a mapping of fields (got true)."),
        ("runtime=true", "runtime must be a name, a path or a mapping of fields (got true)."),
        ("model.blocks=5", "model.blocks describe a whole model and stand without base. Try the fields of a "
         "config.json, such as model.num_hidden_layers."),
        ("precision={name: fp8}", "precision.name 'fp8' is a label alone, and the fields under it stay those of "
         "bf16-mixed. Try precision: fp8, or base: fp8 beside what changes."),
        ("precision={name: fp8, base: bf16}", "precision.name 'fp8' is a label alone, and the fields under it stay "
         "those of bf16. Try precision: fp8, or base: fp8 beside what changes."),
        ("precision={name: fp8-blok}", "precision.name 'fp8-blok' is a label alone, and the fields under it stay those "
         "of bf16-mixed. Try precision: fp8-block, or base: fp8-block beside what changes."),
        ("precision={name: [1]}", "precision.name [1] is a label alone, and the fields under it stay those of "
         "bf16-mixed. Try precision: bf16-mixed, or base: bf16-mixed beside what changes."),
        ("runtime={name: nanotron}", "runtime.name 'nanotron' is a label alone, and the fields under it stay those of "
         "megatron-core. Try runtime: nanotron, or base: nanotron beside what changes."),
        ("runtime.kernels=5", "runtime.kernels must be a mapping of fields (got 5)."),
        ("accelerators.x=3", "accelerators is a single value and has no field 'x'."),
    ],
)  # fmt: skip
def test_sentences_of_overrides(override, sentence):
    with pytest.raises(InputError) as error:
        read(override)
    assert str(error.value) == sentence


def test_a_changed_noun_may_have_a_name_of_its_own():
    own = read("precision={base: bf16, name: my-formats, kv_cache: fp8}").precision
    assert (own.name, own.kv_cache, own.weights) == ("my-formats", "fp8", "bf16")
    assert read("precision={name: bf16, base: bf16}").precision == read("precision=bf16").precision


def test_precision_sentence():
    with pytest.raises(InputError) as error:
        read("precision=bf61")
    assert str(error.value).startswith(
        "precision 'bf61' is unknown. Did you mean 'bf16'? Known: bf16, fp16, fp8, bf16-mixed, "
    )
    assert error.value.suggestions == ("bf16",)
    assert error.value.field == "precision"


def test_bad_files_named_by_a_scenario(write):
    for text, sentence in (
        ("base: scenario.yaml\n", "scenario.yaml:1: base 'scenario.yaml' inherits from itself."),
        ("base: scenari.yaml\n", "scenario.yaml:1: base 'scenari.yaml': no such file. Did you mean 'scenario.yaml'?"),
        ("base: [a]\n", "scenario.yaml:1: base must be the path of a scenario file (got ['a'])."),
    ):
        with pytest.raises(InputError) as error:
            load(write(text))
        assert str(error.value) == sentence


@pytest.mark.parametrize("runtime", ["llama.cpp", "ktransformers", "vllm"])
def test_a_precision_reads_back_whatever_the_runtime_would_have_run(runtime):
    work = {"kind": "inference", "batch_size": 1, "prompt_tokens": 8, "output_tokens": 8}
    mapping = {
        "model": "qwen3-30b-a3b",
        "system": "h100-sxm",
        "runtime": runtime,
        "precision": "bf16",
        "workload": work,
    }
    scenario = from_mapping(mapping)
    assert from_mapping(scenario.to_mapping()).hash == scenario.hash


def test_a_micro_batch_that_was_filled_in_is_a_default():
    job = {"model": "llama-3.1-8b", "system": "dgx-h100"}
    work = {"kind": "training", "global_batch_size": 8, "sequence_length": 512}
    named = [from_mapping({**job, "workload": one}).defaults for one in (work, {**work, "micro_batch_size": 2})]
    assert "workload.micro_batch_size: 1 (default)" in named[0]
    assert not any("micro_batch_size" in one for one in named[1])


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        (lambda: load(None), "load takes the path of a scenario file (got nothing). Try 'scenario.yaml'."),
        (lambda: load("/a" * 5000), "cannot be read: file name too long."),
        (
            lambda: from_mapping({}, overrides="parallelism.tp=4"),
            "overrides are a list of texts (got 'parallelism.tp=4'). Try ['parallelism.tp=4'].",
        ),
        (lambda: from_mapping({}, overrides=[5]), "overrides are a list of texts (got [5]). Try ['parallelism.tp=4']."),
        (lambda: from_mapping({"model": Path("none.json")}), "none.json: no such file."),
        (lambda: require({}), "this is no scenario. Try rapid_llm.load('scenario.yaml'), or rapid_llm.train(...)."),
        (
            lambda: from_mapping({"parallelism": {"tp": 10**400}}, parse_yaml(TEXT)),
            "parallelism.tp must be an integer of at most 1,000,000,000,000 (got more than 1e300).",
        ),
    ],
)  # fmt: skip
def test_python_callers_get_a_sentence_too(asked, sentence):
    with pytest.raises(InputError) as error:
        asked()
    assert sentence in str(error.value)


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ("precision.compute=fp8", "bf16 (changed)"),
        ("precision.compute=bf16", "bf16"),
        ("model.hidden_size=8192", "llama-3.1-8b (changed)"),
        ("system.node.accelerator.memory.hbm.bandwidth=8 TB/s", "h100-sxm (changed)"),
        ("runtime.host.per_step=1 ms", "vllm (changed)"),
    ],
)
@pytest.mark.parametrize("resolved", [False, True])
def test_what_was_changed_is_called_so(tmp_path, resolved, change, name):
    text = (
        "{model: llama-3.1-8b, system: h100-sxm, precision: bf16, runtime: vllm, "
        "workload: {kind: inference, batch_size: 1, prompt_tokens: 8, output_tokens: 8}}"
    )
    if resolved:
        (tmp_path / "first.yaml").write_text(text)
        text = json.dumps(load(tmp_path / "first.yaml").to_mapping())
    (tmp_path / "scenario.yaml").write_text(text)
    found = load(tmp_path / "scenario.yaml", overrides=[change], checked=False)
    assert getattr(found, change.partition(".")[0]).name == name
