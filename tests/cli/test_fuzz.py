"""Whatever is written, an answer or one sentence comes out: never a traceback, never two lines of complaint."""

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rapid_llm import model
from rapid_llm.scenario import from_mapping

from .shell import rapid_llm

SCENARIOS = {
    kind: from_mapping(
        {"model": name, "system": "dgx-h100", "parallelism": {"tp": 2}, "workload": {"kind": kind, **work}}
    )
    for kind, name, work in (
        ("training", "qwen3-30b-a3b", {"global_batch_size": 8, "sequence_length": 1024}),
        ("inference", "deepseek-v2-lite", {"batch_size": 2, "prompt_tokens": 100, "output_tokens": 4}),
    )
}  # fmt: skip


def paths(value: object, above: str = "") -> list[str]:
    if not isinstance(value, dict):
        return [above]
    return [above, *(path for key, item in value.items() for path in paths(item, f"{above}.{key}".lstrip(".")))]


FIELDS = {kind: [path for path in paths(one.to_mapping()) if path] for kind, one in SCENARIOS.items()}
ODD = st.one_of(
    st.sampled_from(["", "null", "true", "[]", "{}", "[1, 2]", "{a: 1}", "0", "-1", "1.5", "1e30", "1e400", ".nan"]),
    st.sampled_from(["80", "80 GiB", "3 TB/s", "0 B", "-3 s", "1 Hz", "200 %", "fp8", "nvfp4", "gpt2", "vllm", "é"]),
    st.integers(-10, 10**13).map(str),
    st.floats().map(str),
    st.text(max_size=6),
)  # fmt: skip
FAST = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], derandomize=True
)


def one_sentence(ran, argv):
    assert ran.code in (0, 2, 3), (argv, ran.err)
    assert "Traceback" not in ran.err
    if ran.code == 2:
        assert (ran.out, ran.err.count("\n")) == ("", 1), (argv, ran.err)


@pytest.mark.parametrize("kind", SCENARIOS)
@given(data=st.data())
@FAST
def test_any_value_in_any_field(kind, data, tmp_path):
    file = tmp_path / "scenario.json"
    if not file.exists():
        file.write_text(json.dumps(SCENARIOS[kind].to_mapping()))
    changes = data.draw(st.dictionaries(st.sampled_from(FIELDS[kind]), ODD, min_size=1, max_size=2))
    sets = [f"--set={field}={value}" for field, value in changes.items()]
    one_sentence(rapid_llm("run", file, "--allow-infeasible", *sets), sets)


AXES = st.sampled_from(["tp", "pp", "cp", "ep", "etp", "vpp", "dp", "accelerators"])


@given(
    degrees=st.dictionaries(AXES, st.sampled_from([1, 2, 3, 4, 8, 64])),
    name=st.sampled_from(model.names()),
    kind=st.sampled_from(["train", "infer"]),
)
@FAST
def test_any_plan_of_any_model(degrees, name, kind):
    work = {
        "train": "--global-batch-size 64 --sequence-length 1024",
        "infer": "--batch-size 64 --prompt-tokens 9 --output-tokens 3",
    }
    flags = [f"--{axis}={value}" for axis, value in degrees.items()]
    argv = [kind, name, "--system", "dgx-h100", *flags, *work[kind].split(), "--allow-infeasible"]
    one_sentence(rapid_llm(*argv), argv)


CONFIG = {
    "architectures": ["DeepseekV3ForCausalLM"], "model_type": "deepseek_v3", "hidden_size": 512, "num_hidden_layers": 4,
    "num_attention_heads": 8, "num_key_value_heads": 8, "intermediate_size": 1024, "vocab_size": 1000,
    "n_routed_experts": 8, "n_shared_experts": 1, "num_experts_per_tok": 2, "moe_intermediate_size": 256,
    "first_k_dense_replace": 1, "moe_layer_freq": 1, "q_lora_rank": 64, "kv_lora_rank": 64, "qk_nope_head_dim": 32,
    "qk_rope_head_dim": 16, "v_head_dim": 32, "max_position_embeddings": 4096, "tie_word_embeddings": False,
    "hidden_act": "silu",
}  # fmt: skip
VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 10**20),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=5),
    st.lists(st.integers(-1, 3), max_size=3),
    st.dictionaries(st.text(max_size=3), st.integers(), max_size=2),
)


@given(field=st.sampled_from(sorted(CONFIG)), value=VALUES, drop=st.booleans())
@FAST
def test_any_field_of_a_config(field, value, drop, tmp_path):
    changed = {key: item for key, item in CONFIG.items() if not (drop and key == field)}
    file = tmp_path / "config.json"
    file.write_text(json.dumps(changed if drop else {**changed, field: value}))
    argv = ["fit", "infer", file, "--system", "h100-sxm", "--batch-size=1", "--prompt-tokens=9", "--output-tokens=3"]
    one_sentence(rapid_llm(*argv), (field, value, drop))
