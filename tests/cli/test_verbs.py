"""What each verb prints: keys, files, tables, and that a flag is the field of its name."""

import csv
import json
import shlex
import subprocess
import sys
import time
from pathlib import Path

import pytest

from .shell import rapid_llm

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
TRAINING, INFERENCE = EXAMPLES / "llama-3.1-70b-training.yaml", EXAMPLES / "llama-2-70b-inference.yaml"
SCENARIOS = sorted(path for path in EXAMPLES.glob("*.yaml") if path.name != "my-accelerator.yaml")
COMMON = {
    "feasible", "violations", "memory", "breakdown", "confidence", "interval", "scenario", "version", "hash",
}  # fmt: skip


@pytest.mark.parametrize("file", SCENARIOS, ids=lambda path: path.stem)
def test_every_example_fits_and_answers_in_30_lines(file: Path):
    ran = rapid_llm("run", file)
    assert ran.code == 0, ran.err
    assert len(ran.out.splitlines()) <= 30
    assert max(map(len, ran.out.splitlines())) <= 100
    assert "\x1b" not in ran.out


def test_training_json_has_the_stable_keys():
    report = json.loads(rapid_llm("run", TRAINING, "--json").out)
    training = {"step_time_s", "tokens_per_s", "tokens_per_s_per_accelerator", "mfu", "mfu_causal", "hfu"}
    assert COMMON | training <= report.keys()
    assert report["tokens_per_s"] == pytest.approx(64 * report["tokens_per_s_per_accelerator"])
    memory = report["memory"]
    assert sum(memory["by_category"].values()) == memory["peak_bytes"] <= memory["capacity_bytes"]


def test_inference_json_has_the_stable_keys():
    report = json.loads(rapid_llm("run", INFERENCE, "--json").out)
    assert COMMON | {"ttft_s", "tpot_s", "e2e_s", "output_tokens_per_s", "total_tokens_per_s"} <= report.keys()
    assert report["e2e_s"] == pytest.approx(report["ttft_s"] + 255 * report["tpot_s"], rel=1e-6)


@pytest.mark.parametrize("file", [TRAINING, INFERENCE])
def test_leaves_of_the_breakdown_sum_to_the_total(file: Path):
    def leaves(cost):
        return [cost] if not cost["children"] else [leaf for child in cost["children"] for leaf in leaves(child)]

    report = json.loads(rapid_llm("run", file, "--json").out)
    total = report.get("step_time_s") or report["e2e_s"]
    assert sum(leaf["seconds"] for leaf in leaves(report["breakdown"])) == pytest.approx(total, rel=1e-9)


def test_a_flag_and_its_override_and_the_file_say_the_same():
    words = ("--system", "dgx-h100", "--accelerators", "64", "--tp", "8", "--pp", "2", "--global-batch-size", "512",
             "--sequence-length", "8192", "--recompute", "selective")  # fmt: skip
    by_flag = json.loads(rapid_llm("train", "llama-3.1-70b", *words, "--json").out)
    by_file = json.loads(rapid_llm("run", TRAINING, "--json").out)
    assert by_flag["hash"] == by_file["hash"]
    other = json.loads(rapid_llm("run", TRAINING, "--set", "parallelism.pp=4", "--json").out)
    flagged = [*words[:7], "4", *words[8:]]
    assert other["hash"] == json.loads(rapid_llm("train", "llama-3.1-70b", *flagged, "--json").out)["hash"]


def test_set_reaches_a_number_of_the_catalogue():
    usual = json.loads(rapid_llm("run", INFERENCE, "--json").out)
    faster = json.loads(
        rapid_llm("run", INFERENCE, "--set", "system.accelerator.memory.hbm.bandwidth=20TB/s", "--json").out
    )
    assert faster["tpot_s"] < usual["tpot_s"]
    assert faster["hash"] != usual["hash"]


def test_out_writes_a_folder_that_reproduces_the_answer(tmp_path: Path):
    ran = rapid_llm("run", TRAINING, "--out", tmp_path / "run")
    assert ran.code == 0, ran.err
    names = {path.name for path in (tmp_path / "run").iterdir()}
    assert names == {"scenario.yaml", "report.json", "report.html", "breakdown.csv", "kernels.csv"}
    again = json.loads(rapid_llm("run", tmp_path / "run" / "scenario.yaml", "--json").out)
    first = json.loads((tmp_path / "run" / "report.json").read_text())
    assert again["hash"] == first["hash"]
    assert again["step_time_s"] == first["step_time_s"]
    with (tmp_path / "run" / "breakdown.csv").open() as stream:
        rows = list(csv.DictReader(stream))
    leaves = sum(float(row["seconds"]) for row in rows if row["leaf"] == "True")
    assert leaves == pytest.approx(first["step_time_s"], rel=1e-9)


def test_out_names_a_file_that_is_in_the_way(tmp_path: Path):
    (tmp_path / "run").write_text("")
    ran = rapid_llm("run", TRAINING, "--out", tmp_path / "run")
    assert (ran.code, ran.err) == (2, f"--out {tmp_path}/run is a file. Name a folder.\n")


def test_fit_gives_memory_and_no_time():
    ran = rapid_llm("fit", "infer", "llama-3.1-8b", "--accelerator", "h100-sxm", "--batch-size", "1",
                    "--prompt-tokens", "128", "--output-tokens", "128", "--json")  # fmt: skip
    report = json.loads(ran.out)
    assert ran.code == 0
    assert report["memory"]["by_category"]["weights"] > 14 * 2**30
    assert report["e2e_s"] is None


def test_explain_names_kernels_with_their_numbers():
    out = rapid_llm("explain", INFERENCE).out
    assert "bound by memory." in out
    assert "GFLOP take" in out
    assert "all_reduce of" in out
    kernels = json.loads(rapid_llm("explain", INFERENCE, "--json").out)["kernels"]
    assert {"unit", "phase", "name", "implementation", "seconds", "count", "bound", "words"} <= kernels[0].keys()


def test_check_lists_every_check_by_name():
    ran = rapid_llm("check", TRAINING)
    assert ran.code == 0
    assert "ok       tp divides heads" in ran.out
    assert "ok       memory fits" in ran.out
    failed = rapid_llm("check", TRAINING, "--set", "parallelism.tp=5")
    assert failed.code == 2
    assert "FAILS    tp divides heads\n         parallelism.tp must divide num_attention_heads" in failed.out


def test_diff_shows_what_was_asked_and_what_came_out(tmp_path: Path):
    a = tmp_path / "a.json"
    a.write_text(rapid_llm("run", TRAINING, "--json").out)
    b = tmp_path / "b.yaml"
    b.write_text(f"base: {TRAINING}\nparallelism: {{pp: 4}}\n")
    ran = rapid_llm("diff", a, b)
    assert ran.code == 0, ran.err
    assert "parallelism.pp  " in ran.out
    assert "step_time_s" in ran.out
    pairs = {row["field"]: row for row in json.loads(rapid_llm("diff", a, b, "--json").out)["results"]}
    assert pairs["step_time_s"]["ratio"] > 0


def test_diff_lays_a_kernel_beside_itself_whatever_bounds_it(tmp_path: Path):
    job = shlex.split("qwen3-235b-a22b --tp 8 --batch-size 64 --prompt-tokens 1024 --output-tokens 64 --json")
    files = [tmp_path / f"{system}.json" for system in ("mi300x-8", "dgx-h200")]
    for file in files:
        file.write_text(rapid_llm("infer", *job, "--system", file.stem).out)
    rows = json.loads(rapid_llm("diff", *files, "--json").out)["results"]
    core = [row for row in rows if row["field"] == "breakdown.decode/attention"]
    assert len(core) == 1
    assert core[0]["ratio"] > 0


def test_diff_wants_a_result(tmp_path: Path):
    file = tmp_path / "a.json"
    file.write_text("{}")
    ran = rapid_llm("diff", file, TRAINING)
    sentence = f"{file} is not a result: it has no 'feasible'. Make one with: rapid-llm run FILE --json\n"
    assert (ran.code, ran.err) == (2, sentence)


@pytest.mark.parametrize("what", ["models", "systems", "accelerators", "runtimes"])
def test_list(what: str):
    names = json.loads(rapid_llm("list", what, "--json").out)[what]
    assert len(names) >= 10
    assert f"{len(names)} {what}" in rapid_llm("list", what).out


def test_show_model_counts_parameters(tmp_path: Path):
    shown = json.loads(rapid_llm("show", "model", "llama-3.1-70b", "--json").out)
    assert shown["parameters"] == shown["active_parameters"] == 70_553_706_496
    assert sum(shown["parameters_by_group"].values()) == shown["parameters"]
    assert "MLP 56,371,445,760; attention 12,079,595,520" in " ".join(
        rapid_llm("show", "model", "llama-3.1-70b").out.split()
    )
    config = {
        "architectures": ["LlamaForCausalLM"], "hidden_size": 4096, "intermediate_size": 14336,
        "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256,
        "max_position_embeddings": 8192, "tie_word_embeddings": False,
    }  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert json.loads(rapid_llm("show", "model", tmp_path, "--json").out)["parameters"] == 8_030_261_248


@pytest.mark.parametrize(("what", "name"), [("accelerator", "h100-sxm"), ("system", "dgx-h100"), ("runtime", "vllm")])
def test_show_gives_sources(what: str, name: str):
    out = rapid_llm("show", what, name).out
    assert "sources\n  [1]" in out
    assert json.loads(rapid_llm("show", what, name, "--json").out)["sources"]


def test_show_a_version_gives_its_own_numbers():
    def shown(name: str):
        return json.loads(rapid_llm("show", "runtime", name, "--json").out)

    first, later = shown("vllm@2023"), shown("vllm")
    assert first["fields"]["version"] == "2023"
    assert "versions" not in first["fields"]
    assert first["fields"]["host"]["per_kernel"] != later["fields"]["host"]["per_kernel"]
    assert "Splitwise" in first["sources"]["host.per_kernel"]["text"]


def test_the_package_is_the_command_too():
    ran = subprocess.run([sys.executable, "-m", "rapid_llm", "--version"], capture_output=True, text=True, check=True)
    assert ran.stdout == rapid_llm("--version").out


def test_schema_is_a_json_schema():
    schema = json.loads(rapid_llm("schema").out)
    assert {"model", "system", "workload", "parallelism"} <= schema["properties"].keys()


def cpu_seconds(code: str) -> float:
    timed = f"import time; start = time.process_time()\n{code}\nprint(time.process_time() - start)"
    runs = [subprocess.run([sys.executable, "-c", timed], capture_output=True, text=True, check=True) for _ in range(3)]
    return min(float(ran.stdout.splitlines()[-1]) for ran in runs)


def test_import_and_help_are_quick():
    assert cpu_seconds("import rapid_llm") <= 0.15
    assert cpu_seconds("from rapid_llm.cli.door import run; run(['--help'])") <= 0.4


def test_import_loads_nothing_heavy():
    code = "import rapid_llm, sys; print(','.join(sorted(m for m in sys.modules if '.' not in m)))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split(",")
    assert not {"numpy", "pydantic", "ruamel", "rich", "cyclopts", "scipy", "pandas"} & {
        name.strip() for name in loaded
    }


def test_an_answer_is_quick_once_loaded():
    rapid_llm("run", TRAINING)
    start = time.process_time()
    rapid_llm("run", TRAINING, "--set", "workload.global_batch_size=1024")
    assert time.process_time() - start < 0.5


def test_ports_that_nothing_joins_are_said(tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_text("node: {accelerator: h100-sxm, accelerators: 8}\n")
    note = (
        "h100-sxm of a node meet over pcie5-x16 alone, not nvlink4 (node.scale_up: {topology: switch} would join them)"
    )
    sizes = ["--batch-size", "8", "--prompt-tokens", "100", "--output-tokens", "10"]
    shown = " ".join(rapid_llm("show", "system", str(file)).out.split())
    assert note in shown

    def assumed(*more):
        ran = rapid_llm("infer", "llama-3.1-8b", "--system", str(file), *sizes, *more, "--json")
        return json.loads(ran.out)["assumptions"]

    assert assumed("--tp", "8") == [note]
    assert assumed("--tp", "8", "--set", "system.node.scale_up.topology=switch") == []


def test_what_differs_is_named_first_and_in_words(tmp_path):
    job = "workload: {kind: inference, batch_size: 4, prompt_tokens: 64, output_tokens: 8}\n"
    (tmp_path / "a.yaml").write_text(f"model: llama-3.1-8b\nsystem: h100-sxm\n{job}")
    (tmp_path / "b.yaml").write_text(f"model: llama-3.1-8b\nsystem: h200-sxm\nprecision: fp8\nbase: a.yaml\n{job}")
    (tmp_path / "c.yaml").write_text("base: a.yaml\nprecision: {base: bf16, kv_cache: fp8}\n")
    fields, results = rapid_llm("diff", str(tmp_path / "a.yaml"), str(tmp_path / "b.yaml")).out.split("\n\n")
    assert [line.split()[0] for line in fields.splitlines()[1:3]] == ["precision.name", "system.name"]
    assert "precision.compute" not in fields
    units = {line.split()[0]: line.split()[2] for line in results.splitlines() if "_per_s" in line}
    assert units == {
        "tokens_per_s_per_accelerator": "tokens/s",
        "output_tokens_per_s_per_user": "tokens/s",
        "output_tokens_per_s": "tokens/s",
        "total_tokens_per_s": "tokens/s",
        "requests_per_s": "requests/s",
    }
    changed = rapid_llm("diff", str(tmp_path / "a.yaml"), str(tmp_path / "c.yaml")).out.split("\n\n")[0]
    assert [line.split() for line in changed.splitlines()[1:]] == [
        ["precision.name", "bf16", "bf16", "(changed)"],
        ["precision.kv_cache", "bf16", "fp8"],
    ]


def test_one_accelerator_needs_no_rank_to_be_named():
    job = ("--batch-size", "4", "--prompt-tokens", "64", "--output-tokens", "8")
    alone = rapid_llm("infer", "llama-3.1-8b", "--system", "h100-sxm", *job).out
    pair = rapid_llm("infer", "llama-3.1-8b", "--system", "dgx-h100", "--tp", "2", *job).out
    assert "fullest rank" not in alone
    assert "on the fullest rank (rank" in pair
