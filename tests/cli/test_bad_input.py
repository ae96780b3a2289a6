"""Bad input through the command line: one sentence, exit code 2 or 3, no traceback; the same as JSON."""

import json
from pathlib import Path

import pytest

from rapid_llm import runtime

from .shell import Ran, rapid_llm

TRAIN = (
    "model: llama-3.1-8b\n"
    "system: dgx-h100\n"
    "accelerators: 64\n"
    "workload: {kind: training, global_batch_size: 128, sequence_length: 4096}\n"
)
BOMB = "a: &a [1, 2, 3, 4, 5, 6, 7, 8, 9]\n" + "".join(
    f"{name}: &{name} [{', '.join([f'*{below}'] * 9)}]\n" for below, name in zip("abcdefgh", "bcdefghi", strict=True)
)

# What is in the file, what is set on the command line, and the sentence; {f} stands for the file.
FILES = [
    (TRAIN + "paralelism: {tp: 2}\n", "{f}:5: unknown field 'paralelism'. Did you mean 'parallelism'?"),
    (
        TRAIN.replace("sequence_length", "sequence_lenght"),
        "{f}:4: unknown field 'workload.sequence_lenght'. Did you mean 'sequence_length'?",
    ),
    (
        TRAIN.replace("llama-3.1-8b", "lama-3.1-8b"),
        "{f}:1: model 'lama-3.1-8b' is not in the catalogue. Did you mean 'llama-3.1-8b'? See: rapid-llm list models",
    ),
    (
        TRAIN.replace("dgx-h100", "dgx-h1000"),
        "{f}:2: system 'dgx-h1000' is not in the catalogue. Did you mean 'dgx-h100'? A path to a YAML file works too.",
    ),
    ("", "{f}: is empty."),
    ("model: x\n\tsystem: y\n", "{f}:2: a tab indents this line; YAML wants spaces."),
    (BOMB, "{f}:6: expands to more than 200000 values; use fewer aliases."),
    ("- 1\n- 2\n", "{f}:1: must be a mapping of fields at its top level (got a list)."),
    ("system: dgx-h100\n", "{f}: the field 'model' is missing. Try model: llama-3.1-8b. See: rapid-llm list models"),
    (
        TRAIN.replace("dgx-h100", "{base: dgx-h100, accelerator: {memory: {hbm: {capacity: 80}}}}"),
        "{f}:2: system.accelerator.memory.hbm.capacity needs a unit, such as '80 GiB' (got 80).",
    ),
]

SETS = [
    (
        "parallelism.tp=3",
        "parallelism.tp must divide num_attention_heads: 32 heads / tp 3 leaves 2. Try 1, 2, 4, 8, 16, 32.",
    ),
    ("parallelism.tp=-8", "parallelism.tp must be at least 1 (got -8). Try 1."),
    ("parallelism.tp=two", "parallelism.tp must be an integer (got 'two')."),
    ("workload.sequence_length=8k", "workload.sequence_length must be an integer (got '8k'). Try 8192."),
    (
        "parallelism.tp=8 parallelism.pp=3",
        "{f}: tp 8 x pp 3 = 24 must divide accelerators 64: 64 / 24 leaves 16. Try pp 1, 2, 4, 8.",
    ),
    (
        "workload.global_batch_size=100 parallelism.tp=4",
        "workload.global_batch_size 100 must be a multiple of micro_batch_size 1 x dp 16 = 16: remainder 4. "
        "Try 96 or 112.",
    ),
    (
        "workload.sequence_length=1e30",
        "workload.sequence_length must be an integer of at most 1,000,000,000,000 (got 1e+30).",
    ),
    ("accelerators=0", "accelerators must be at least 1 (got 0). Try 1."),
    ("nonsense", "'--set nonsense' must name a field and a value, such as --set parallelism.tp=4."),
    (
        "precision=q4-k",
        "precision.weights q4_k_m is a format of weights that nobody trains, and workload.kind is training. "
        "Try precision: bf16-mixed, or precision: nf4 with --set workload.lora.rank=16.",
    ),
    (
        "precision=fp8 system=dgx-a100",
        "precision.compute fp8 needs a matrix rate for fp8, and a100-sxm has bf16, fp16, fp64, int4, int8, tf32. "
        "Try precision: bf16.",
    ),
    ("parallelism.ep=2", "parallelism.ep 2 needs a model with experts, and llama-3.1-8b has none. Try ep 1."),
    ("accelerators=60", "accelerators 60 do not fill nodes of 8: 60 / 8 leaves 4. Try 56 or 64."),
    (
        "accelerators=100000",
        "accelerators 100000 is more than system dgx-h100 has: 2048 nodes x 8 = 16384. Try accelerators 16384, or "
        "--set system.nodes=12500.",
    ),
    (
        "parallelism.tp=4 parallelism.dp=3 accelerators=8",
        "{f}: tp 4 x dp 3 = 12 must be accelerators 8. Try dp 2, or accelerators 12.",
    ),
    (
        "workload.micro_batch_size=999999999989 workload.global_batch_size=999999999988",
        "workload.micro_batch_size 999999999989 is above global_batch_size 999999999988. "
        "Try 1, 2, 4, 11, 22, 44, 124847, 182041, 249694, 364082, 499388, 728164.",
    ),
    ("parallelism.tp=@", "the value of parallelism.tp is not valid YAML (got '@')."),
    ("runtime=megatron-cor", "runtime 'megatron-cor' is not in the catalogue. Did you mean 'megatron-core'? "
     "See: rapid-llm list runtimes"),
    ("runtime=vllm@2022", "runtime 'vllm' has no version '2022'. Did you mean '2025'? "
     "It has: 0.10, eager, 2025, 2024, 2023."),
]  # fmt: skip


@pytest.mark.parametrize(("text", "sentence"), FILES)
def test_file(tmp_path: Path, text: str, sentence: str):
    file = tmp_path / "scenario.yaml"
    file.write_text(text)
    ran = rapid_llm("run", file)
    assert (ran.code, ran.out, ran.err) == (2, "", sentence.replace("{f}", str(file)) + "\n")


@pytest.mark.parametrize(("sets", "sentence"), SETS)
def test_override(tmp_path: Path, sets: str, sentence: str):
    file = tmp_path / "scenario.yaml"
    file.write_text(TRAIN)
    ran = rapid_llm("run", file, *(word for one in sets.split() for word in ("--set", one)))
    assert (ran.code, ran.out, ran.err) == (2, "", sentence.replace("{f}", str(file)) + "\n")


def test_precision_names_the_known_ones(tmp_path: Path):
    ran = rapid_llm("train", "llama-3.1-8b", "--system", "dgx-h100", "--precision", "bf61",
                    "--global-batch-size", "8", "--sequence-length", "4096")  # fmt: skip
    assert ran.code == 2
    assert ran.err.startswith("precision 'bf61' is unknown. Did you mean 'bf16'? Known: bf16, fp16, fp8, bf16-mixed")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("train llama-3.1-8b", "the field 'system' is missing. Try --system dgx-h100. See: rapid-llm list systems"),
        (
            "train llama-3.1-8b --system dgx-h100",
            "the field 'workload.global_batch_size' is missing. Try --global-batch-size 512.",
        ),
        (
            "infer llama-3.1-8b --system dgx-h100 --batch-size 1",
            "the field 'workload.prompt_tokens' is missing. Try --prompt-tokens 1024.",
        ),
    ],
)
def test_a_job_says_what_it_cannot_do_without(words: str, sentence: str):
    ran = rapid_llm(*words.split())
    assert (ran.code, ran.out, ran.err) == (2, "", sentence + "\n")


def test_missing_file_names_the_nearest(tmp_path: Path):
    (tmp_path / "scenario.yaml").write_text(TRAIN)
    ran = rapid_llm("run", tmp_path / "scenaro.yaml")
    expected = f"{tmp_path}/scenaro.yaml: no such file. Did you mean 'scenario.yaml'?\n"
    assert (ran.code, ran.err) == (2, expected)


def test_folder(tmp_path: Path):
    ran = rapid_llm("run", tmp_path)
    assert (ran.code, ran.err) == (2, f"{tmp_path}: is a folder, not a file.\n")


def test_binary_file(tmp_path: Path):
    file = tmp_path / "scenario.yaml"
    file.write_bytes(bytes(range(256)))
    ran = rapid_llm("run", file)
    assert (ran.code, ran.err) == (2, f"{file}: is a binary file; a YAML or JSON text is needed.\n")


LLAMA = {
    "architectures": ["LlamaForCausalLM"], "hidden_size": 512, "num_hidden_layers": 2, "num_attention_heads": 8,
    "intermediate_size": 1024, "vocab_size": 1000,
}  # fmt: skip
CONFIGS = [
    (
        {"architectures": ["FooForCausalLM"], "hidden_size": 4096, "num_hidden_layers": 32},
        "{f}: architecture 'FooForCausalLM' is unknown and num_attention_heads is missing; with it the file "
        "would be read as a Llama. Try base: llama-3.1-8b beside what differs, in a model YAML, or a whole "
        "config.json.",
    ),
    (
        {"architectures": ["LlamaForCausalLM"], "hidden_size": 4096},
        "{f}: num_attention_heads is missing; this architecture needs it.",
    ),
    (
        {"architectures": ["LlamaForCausalLM"], "hidden_act": "silu", "num_hidden_layers": 2, "num_attention_heads": 8},
        "{f}: hidden_size is missing; this architecture needs it.",
    ),
    (
        {**LLAMA, "num_key_value_heads": 3},
        "{f}: num_key_value_heads must divide num_attention_heads: 8 / 3 leaves 2. Try 1, 2, 4, 8.",
    ),
    (
        {**LLAMA, "architectures": ["LlamaForCausalLm"], "rms_norm_eps": None},
        "{f}: architecture 'LlamaForCausalLm' is unknown. Did you mean 'LlamaForCausalLM'?",
    ),
]


@pytest.mark.parametrize(("config", "sentence"), CONFIGS)
def test_config_json(tmp_path: Path, config: dict[str, object], sentence: str):
    file = tmp_path / "config.json"
    file.write_text(json.dumps(config))
    ran = rapid_llm("show", "model", file)
    assert (ran.code, ran.err) == (2, sentence.replace("{f}", str(file)) + "\n")


INFER_70B = ("infer", "llama-3.1-70b", "--batch-size", "1", "--prompt-tokens", "1024", "--output-tokens", "64")


def test_infeasible_is_an_answer_with_fixes_and_exit_code_3():
    ran = rapid_llm(*INFER_70B, "--system", "dgx-h100", "--json")
    report = json.loads(ran.out)
    assert ran.code == 3
    assert ran.err == ""
    assert report["feasible"] is False
    assert report["e2e_s"] is None
    (violation,) = report["violations"]
    assert violation["kind"] == "memory"
    assert violation["need"] > violation["have"]
    assert violation["fixes"]


def test_infeasible_says_so_in_one_sentence():
    ran = rapid_llm(*INFER_70B, "--system", "dgx-h100")
    assert ran.code == 3
    assert ran.err.startswith("does not fit: rank 0 needs ")
    assert "of weights" in ran.err
    assert " Try tp 4" in ran.err
    assert ran.err.count("\n") == 1
    assert "NO: " in ran.out
    assert "E2E" not in ran.out


def test_times_of_what_does_not_fit_only_on_demand():
    ran = rapid_llm(*INFER_70B, "--system", "dgx-h100", "--allow-infeasible", "--json")
    assert ran.code == 3
    assert json.loads(ran.out)["e2e_s"] > 0


def test_json_error_carries_field_and_line(tmp_path: Path):
    file = tmp_path / "scenario.yaml"
    file.write_text(TRAIN + "paralelism: {tp: 2}\n")
    ran = rapid_llm("run", file, "--json")
    assert ran.code == 2
    assert ran.err == ""
    error = json.loads(ran.out)["error"]
    assert error["line"] == 5
    assert error["field"] == "paralelism"
    assert error["suggestions"] == ["parallelism"]


@pytest.mark.parametrize(
    ("argv", "sentence"),
    [
        (
            "infer qwen3-8b --system dgx-h100 --prefill tp=1 --decode tp=2 --batch-size 4 --prompt-tokens 1500 "
            "--output-tokens 0",
            "pools need output tokens, and workload.output_tokens is 0. Try to leave pools out.",
        ),
        (
            f"network collective dispatch --system dgx-h100 --accelerators 32 --tokens 1{'0' * 320}",
            f"--tokens must be an integer of at most 1,000,000,000,000 (got 1{'0' * 39}).",
        ),
        (
            f"kernel gemm --accelerator h100-sxm --m 1{'0' * 200} --n 8 --k 8",
            f"--m must be an integer of at most 1,000,000,000,000 (got 1{'0' * 39}).",
        ),
        (
            "train llama-3.1-8b --system dgx-h100 --set system.nodes=1000000 --accelerators 8000000 "
            "--global-batch-size 8000000 --sequence-length 4096",
            "accelerators 8,000,000 is more than a job takes. Try at most 1,048,576.",
        ),
    ],
)
def test_numbers_beyond_any_use_are_refused(argv, sentence):
    found = rapid_llm(*argv.split())
    assert (found.code, found.err.strip()) == (2, sentence)


WRONG_RESULTS = [
    ('{"feasible": 3}', "feasible"),
    ('{"feasible": true, "scenario": 3}', "scenario"),
    ('{"feasible": true, "scenario": {}, "mfu": "x"}', "mfu"),
    ('{"feasible": true, "scenario": {}, "step_time_s": [1]}', "step_time_s"),
    ('{"feasible": true, "scenario": {}, "breakdown": {"children": [1]}}', "breakdown"),
    ('{"feasible": true, "scenario": {}, "breakdown": {"name": "a", "seconds": 1, "children": [{}]}}', "breakdown"),
]


@pytest.mark.parametrize(("text", "field"), WRONG_RESULTS)
def test_a_result_that_is_none(tmp_path, text, field):
    file = tmp_path / "a.json"
    file.write_text(text)
    ran = rapid_llm("diff", str(file), str(file))
    sentence = f"{file} is not a result as --json prints it: see '{field}'. Make one with: rapid-llm run FILE --json\n"
    assert (ran.code, ran.out, ran.err) == (2, "", sentence)


def test_more_experts_are_chosen_than_there_are():
    job = ("--system", "dgx-h100", "--batch-size", "1", "--prompt-tokens", "8", "--output-tokens", "8")
    ran = rapid_llm("infer", "mixtral-8x7b", *job, "--tp", "2", "--set", "model.num_experts_per_tok=9")
    assert (ran.code, ran.err) == (
        2,
        "num_experts_per_tok of mixtral-8x7b (changed) is more than its 8 experts. Try at most 8.\n",
    )


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (
            "run llama-3.1-8b",
            "'llama-3.1-8b' is a model, not a scenario file. Try rapid-llm infer llama-3.1-8b, or train.",
        ),
        (
            "run dgx-h100",
            "'dgx-h100' is a system, not a scenario file. Try rapid-llm infer MODEL --system dgx-h100, or train.",
        ),
        (
            "show model https://huggingface.co/meta-llama/Llama-3.1-8B/config.json",
            "https://huggingface.co/meta-llama/Llama-3.1-8B/config.json: nothing is downloaded. Save it as a file, "
            "and name that.",
        ),
        ("show kernel cubla", "kernel 'cubla' is not in the catalogue. Did you mean 'cublas'? "
         "See: rapid-llm list kernels"),
        ("completion tcsh", "shell 'tcsh' is unknown. Known: bash, zsh, fish."),
    ],
)  # fmt: skip
def test_what_is_meant_is_said(words: str, sentence: str):
    assert rapid_llm(*words.split()) == Ran(2, "", sentence + "\n")


ACCELERATOR = """\
name: mine
source: a datasheet
architecture: hopper
compute_units: 132
clocks: {base: 1.5 GHz, boost: 1.8 GHz}
peak: {bf16: 900 TFLOP/s}
vector: 60 TFLOP/s
memory: {hbm: {capacity: 80 GiB, bandwidth: 3 TB/s}}
power: {limit: 700 W}
host_link: pcie5-x16
"""


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        (
            ("hopper", "dorado"),
            "{f}:3: architecture 'dorado' is not known, so the accelerator must give 'vendor' and 'sustained'. Known: ",
        ),
        (("host_link: pcie5-x16\n", ""), "{f}: the field 'host_link' is missing. Try host_link: pcie5-x16.\n"),
        (("power: {limit: 700 W}\n", ""), "{f}: the field 'power' is missing. Try power: {limit: 700 W}.\n"),
        (("architecture: hopper\n", ""), "{f}: the field 'architecture' is missing. Known: volta, "),
        (("base: 1.5 GHz, ", ""), "{f}:5: the field 'clocks.base' is missing. Try base: 1.98 GHz.\n"),
        (("vector: 60 TFLOP/s\n", ""), "{f}: the field 'vector' is missing. Try vector: 66.9 TFLOP/s.\n"),
        (("name: mine", "name: 4090"), "{f}:1: name must be text (got 4090). Write '4090', in quotes.\n"),
    ],
)
def test_a_file_of_an_accelerator(tmp_path: Path, changes: tuple[str, str], sentence: str):
    file = tmp_path / "mine.yaml"
    file.write_text(ACCELERATOR.replace(*changes))
    ran = rapid_llm("show", "accelerator", file)
    assert ran.code == 2
    assert ran.err.startswith(sentence.replace("{f}", str(file))), ran.err


def test_an_accelerator_without_any_matrix_rate_has_none_at_all(tmp_path: Path):
    file = tmp_path / "mine.yaml"
    file.write_text(ACCELERATOR.replace("{bf16: 900 TFLOP/s}", "{}"))
    ran = rapid_llm(*INFER_70B, "--system", file)
    said = "precision.compute bf16 needs a matrix rate for bf16, and mine has none at all. Try --precision fp32.\n"
    assert (ran.code, ran.err) == (2, said)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("node: {accelerator: h100-sxm}\n", "{f}:1: the field 'node.accelerators' is missing. Try accelerators: 8.\n"),
        (
            "node: {accelerator: h100-sxm, accelerators: 8, scale_up: {link: nvlink4}}\n",
            "{f}:1: the field 'node.scale_up.topology' is missing. Try topology: switch.\n",
        ),
    ],
)
def test_a_file_of_a_system_is_told_in_fields(tmp_path: Path, text: str, sentence: str):
    file = tmp_path / "mine.yaml"
    file.write_text(text)
    ran = rapid_llm(*INFER_70B, "--system", file)
    assert (ran.code, ran.err) == (2, sentence.replace("{f}", str(file)))


def test_a_speed_in_percent_wants_its_sign(tmp_path: Path):
    file = tmp_path / "scenario.yaml"
    file.write_text(TRAIN + "faults: [{accelerator: 3, speed: 80}]\n")
    sentence = f"{file}:5: faults[0].speed is the share that is left, at most 1 (got 80). Try '80 %'.\n"
    assert rapid_llm("run", file) == Ran(2, "", sentence)


def test_a_runtime_without_a_kernel_has_none_at_all(tmp_path: Path):
    file = tmp_path / "mine.yaml"
    file.write_text("base: vllm\nkernels: {convolution: {}, pointwise: {default: null}}\n")
    ran = rapid_llm(*INFER_70B, "--accelerator", "h100-sxm", "--runtime", file)
    assert (ran.code, ran.err) == (2, f"{file}:2: kernels.pointwise.default must be text (got nothing).\n")


def test_an_unknown_format_of_a_checkpoint_is_told(tmp_path: Path):
    file = tmp_path / "config.json"
    file.write_text(json.dumps({**LLAMA, "quantization_config": {"quant_method": "foo"}}))
    ran = rapid_llm("infer", file, *INFER_70B[2:], "--system", "h100-sxm")
    assert ran.code == 0
    assert "precision bf16 (the checkpoint's own format, foo, is not known)" in " ".join(ran.out.split())


def test_what_no_system_of_one_holds_fits_a_larger_one():
    ran = rapid_llm("infer", "llama-3.1-8b", "--system", "h100-sxm", "--batch-size", "1", "--prompt-tokens", "1000000",
                    "--output-tokens", "4")  # fmt: skip
    assert ran.code == 3
    assert "Try system dgx-h100 with tp 4 on 4 accelerators (39." in ran.err


def test_a_runtime_of_a_file_is_read_again(tmp_path: Path):
    file = tmp_path / "mine.yaml"
    for version in ("1.0", "2.0"):
        file.write_text(f"base: vllm\nversion: '{version}'\n")
        assert runtime.load(str(file)).version == version
