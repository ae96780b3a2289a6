"""A command line with a mistake in it: one sentence, exit code 2, the nearest verb or flag."""

import json
import os
import shlex
import subprocess
import sys

import pytest

from rapid_llm.cli.app import app, spelled_out
from rapid_llm.cli.door import run as rapid_llm_here
from rapid_llm.cli.flags import ALTERNATIVES
from rapid_llm.cli.help_examples import STARTS
from rapid_llm.validation.suites import SUITES

from .shell import rapid_llm

SERVED = "--dp 4 --batch-size 4 --prompt-tokens 8 --output-tokens 8"
TRAINED = ["llama-3.1-8b", "--system", "dgx-h100", "--global-batch-size", "8", "--sequence-length", "4096"]
ASKED = ("--prompt-tokens", "8", "--output-tokens", "8")
CLOCK = "system.node.accelerator.clocks.boost"
HELIX = "--cp 4 --exchange ulysses --set parallelism.helix=true"
SENTENCES = [
    (("trian",), "'trian' is not a verb of rapid-llm. Did you mean 'train'? See: rapid-llm --help"),
    (("fit", "trian", "x"), "'trian' is not a verb of rapid-llm fit. Did you mean 'train'? See: rapid-llm fit --help"),
    (
        ("train", "x", "--sequence-lenght", "1"),
        "--sequence-lenght is not a flag of 'rapid-llm train'. Did you mean '--sequence-length'? "
        "See: rapid-llm train --help",
    ),
    (
        ("train", "x", "--micro-batch", "1"),
        "--micro-batch is not a flag of 'rapid-llm train'. Did you mean '--micro-batch-size'? "
        "See: rapid-llm train --help",
    ),
    (
        ("train", "x", "--zzz", "1"),
        "--zzz is not a flag of 'rapid-llm train'. Any scenario field goes through --set a.b=c. "
        "See: rapid-llm train --help",
    ),
    (
        ("train", "x", "--lora", "8"),
        "--lora is not a flag of 'rapid-llm train'. Try --set workload.lora.rank=8. See: rapid-llm train --help",
    ),
    (
        ("explain", "x", "--system", "dgx-h100"),
        "--system is not a flag of 'rapid-llm explain'. It reads a file; train and infer write one with --out DIR. "
        "Try DIR/scenario.yaml --set system=VALUE. See: rapid-llm explain --help",
    ),
    (
        ("run", "x", "--acceptance", "0.8"),
        "--acceptance is not a flag of 'rapid-llm run'. It reads a file; train and infer write one with --out DIR. "
        "Try DIR/scenario.yaml --set workload.speculation.acceptance=VALUE. See: rapid-llm run --help",
    ),
    (
        ("run", "x", "--fault", "nic"),
        "--fault is not a flag of 'rapid-llm run'. Try --set \"faults=[{nic: node0.nic3, down: true}]\". "
        "See: rapid-llm run --help",
    ),
    (("train",), "'rapid-llm train' needs MODEL. Try: rapid-llm train llama-3.1-70b"),
    (("run",), "'rapid-llm run' needs FILE. Try: rapid-llm run examples/llama-3.1-70b-training.yaml"),
    (("show", "model"), "'rapid-llm show' needs NAME. Try: rapid-llm show accelerator h100-sxm"),
    (
        ("calibrate", "fabric", "dgx-h100"),
        "'rapid-llm calibrate fabric' needs --table. See: rapid-llm calibrate fabric --help",
    ),
    (("train", "x", "--tp"), "--tp needs a value. See: rapid-llm train --help"),
    (("train", "x", "--tp="), "--tp needs a value (got an empty text)."),
    (("diff", "a", "b", "--zzz"), "--zzz is not a flag of 'rapid-llm diff'. See: rapid-llm diff --help"),
    (("run", "a\nb.yaml"), "a b.yaml: no such file."),
    (
        ("diff", "mi300x-8", "dgx-h200"),
        "diff compares scenario files, or answers in JSON (got mi300x-8). Make one with: "
        "rapid-llm infer ... --json > a.json",
    ),
    (
        tuple(f"infer llama-3.1-8b --system dgx-h100 --zero-stage 3 {SERVED}".split()),
        "--zero-stage is not a flag of 'rapid-llm infer'. It is one of 'rapid-llm train'. See: rapid-llm infer --help",
    ),
    (
        tuple(f"infer llama-3.1-8b --system dgx-h100 --set parallelism.zero_stage=3 {SERVED}".split()),
        "parallelism.zero_stage 3 shards what is trained, and workload.kind is inference. Leave it out, or try tp.",
    ),
    (
        tuple(f"infer llama-3.1-8b --system dgx-h100 --set parallelism.dp_shard=2 {SERVED}".split()),
        "parallelism.dp_shard 2 shards what is trained, and workload.kind is inference. Leave it out, or try tp.",
    ),
    (
        tuple(f"infer llama-3.1-8b --system dgx-h100 --pp 2 --set parallelism.schedule=1f1b {SERVED}".split()),
        "parallelism.schedule 1f1b orders forward and backward passes, and workload.kind is inference, which has no "
        "backward pass. Leave it out.",
    ),
    (
        tuple(f"infer llama-3.1-8b --system dgx-h100 --pp 2 --set parallelism.vpp=2 {SERVED}".split()),
        "parallelism.vpp 2 deals chunks of layers for an interleaved schedule of training, and workload.kind is "
        "inference. Leave it out.",
    ),
    (
        ("fit", "infer", "x", "--recompute", "full"),
        "--recompute is not a flag of 'rapid-llm fit infer'. It is one of 'rapid-llm fit train'. "
        "See: rapid-llm fit infer --help",
    ),
    (
        ("train", "x", "--slo", "ttft=1s"),
        "--slo is not a flag of 'rapid-llm train'. It is one of 'rapid-llm infer'. See: rapid-llm train --help",
    ),
    (("sweep", "x"), f"'sweep' is not a verb of rapid-llm. {ALTERNATIVES}"),
    (
        ("train", *TRAINED, "--tp", "2,4,8"),
        f"parallelism.tp must be an integer (got '2,4,8'). {ALTERNATIVES}",
    ),
    (
        tuple(f"infer llama-3.1-8b --system dgx-h100 {HELIX} {SERVED}".split()),
        "parallelism.helix deals the cache of decode over cp, without an exchange of heads or shift (got cp 4, "
        "exchange ulysses, ulysses 4). Try to leave exchange and ulysses out.",
    ),
    (
        ("network", "collective", "all_reduce", "--system", "h100-sxm", "--size", "1MiB"),
        "'h100-sxm' is one accelerator, which has nobody to talk to. Try a system, such as dgx-h100.",
    ),
    (
        ("run", ""),
        "an argument is an empty text: is a variable of the shell unset? See: rapid-llm --help",
    ),
    (
        tuple(f"infer llama-3.1-8b --system h100-sxm --set model.num_hiden_layers=16 {SERVED}".split()),
        "model.num_hiden_layers changes nothing of llama-3.1-8b, whose reader knows no such field. "
        "Did you mean 'num_hidden_layers'?",
    ),
    (
        ("infer", "llama-3.1-8b", "--system", "h100-sxm", *ASKED, "--slo", "tpot=1s,tpot=2s"),
        "--slo tpot=1s,tpot=2s: tpot stands there twice. Keep one of them.",
    ),
    (
        tuple(f"infer llama-3.1-8b --system dgx-h100 --prefill tp=2,tp=4 {SERVED}".split()),
        "prefill tp=2,tp=4: tp stands there twice. Keep one of them.",
    ),
    (
        tuple(f"infer llama-3.1-8b --system h100-sxm --runtime vllm@ {SERVED}".split()),
        "runtime 'vllm' has no version ''. It has: 0.10, eager, 2025, 2024, 2023.",
    ),
    (("train", *TRAINED, "--out", ""), "--out needs a value (got an empty text)."),
    (
        ("validate", "training", "--rows", "no/such/rows.csv"),
        "--rows no/such/rows.csv: there is no folder no/such. Create it, or name another file.",
    ),
    (
        tuple(f"infer llama-3.1-8b --system h100-sxm --set {CLOCK}=1e9GHz {SERVED}".split()),
        "system.node.accelerator.clocks.boost must be at most 1e+15 Hz (got 1e+18 Hz). Try '1.98 GHz'.",
    ),
    (("network", "links", "no/such/links.csv"), "no/such/links.csv: no such file. There is no folder 'no/such'."),
    (
        ("network", "links", "dgx-h100"),
        "'rapid-llm network links' needs OP. Try: rapid-llm network links dgx-h100 all_reduce --size 256MiB",
    ),
    (
        ("network", "collective"),
        "'rapid-llm network collective' needs OP. "
        "Try: rapid-llm network collective all_reduce --system dgx-h100 --size 256MiB",
    ),
    (
        ("train", *TRAINED, "--set", "faults=[{nic: node0.nic3, down: true}]"),
        "faults of links, cards and switches need network: flow (got node0.nic3 down and network: closed-form). "
        "Try --set network=flow.",
    ),
    (("train", "x", "y"), "'rapid-llm train' does not take 'y'. See: rapid-llm train --help"),
    (("train", "x", "--tp", "1", "--tp", "2"), "--tp is given more than once. Keep one of them."),
    (
        ("run", "-"),
        "'rapid-llm run' reads files, and '-' is none. Standard input is /dev/stdin.",
    ),
    (
        ("train", "gpt2", "--system", "8x", "h100-sxm", "--global-batch-size", "8"),
        "'rapid-llm train' does not take 'h100-sxm'. Quote what holds spaces: --system '8x h100-sxm'.",
    ),
    (
        ("list", "modles"),
        "'modles' is not a part of the catalogue. Did you mean 'models'? "
        "Known: models, systems, accelerators, runtimes, links, kernels.",
    ),
]


@pytest.mark.parametrize(("argv", "sentence"), SENTENCES)
def test_sentence(argv, sentence):
    ran = rapid_llm(*argv)
    assert (ran.code, ran.out, ran.err) == (2, "", sentence + "\n")


def test_json_error_is_one_object():
    ran = rapid_llm("train", "x", "--tpp", "3", "--json")
    assert ran.code == 2
    assert ran.err == ""
    error = json.loads(ran.out)["error"]
    assert error.keys() == {"message", "field", "line", "suggestions"}
    assert error["suggestions"][0] == "--tp"


@pytest.mark.parametrize("argv", [("--help",), (), ("train", "--help"), ("fit", "--help"), ("--version",)])
def test_help_goes_to_standard_output(argv):
    ran = rapid_llm(*argv)
    assert ran.code == 0
    assert ran.err == ""
    assert "\x1b" not in ran.out
    assert ran.out


def test_a_fault_of_ours_is_one_sentence_without_traceback(monkeypatch):
    from rapid_llm.cli import catalogue

    def broken(*_, **__):
        raise ZeroDivisionError("float division by zero")

    monkeypatch.setattr(catalogue, "list_names", broken)
    ran = rapid_llm("list", "models")
    assert ran.code == 4
    assert ran.err.startswith("internal error at test_usage.py:")
    assert "please report" in ran.err
    assert "'rapid-llm list models'" in ran.err
    assert ran.err.count("\n") == 1


def test_interrupt_is_130(monkeypatch):
    from rapid_llm.cli import catalogue

    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(catalogue, "list_names", interrupted)
    assert rapid_llm("list", "models").code == 130


def test_a_reader_that_leaves_early_is_no_error():
    command = f"{sys.executable} -c 'from rapid_llm.cli import main; main()' train --help | head -1"
    ran = subprocess.run(command, shell=True, capture_output=True, text=True, check=False, env=dict(os.environ))
    assert ran.stderr == ""


@pytest.mark.parametrize("verb", sorted(STARTS))
def test_every_help_ends_with_a_command_of_its_own(verb, capsys):
    line = STARTS[verb]
    assert not verb or line.startswith(verb.removesuffix(" run"))
    app.parse_args(spelled_out(shlex.split(line)), exit_on_error=False, print_error=False)
    assert rapid_llm_here([*verb.split(), "--help"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert said.endswith(f"Start here: rapid-llm {line}")


def test_inference_offers_no_timeline_of_a_training_step(capsys):
    assert rapid_llm_here(["infer", "--help"]) == 0
    assert " --timeline" not in capsys.readouterr().out


def test_the_help_of_validate_names_every_suite(capsys):
    assert rapid_llm_here(["validate", "--help"]) == 0
    said = capsys.readouterr().out
    assert all(name in said for name in SUITES)


def test_degrees_have_flags():
    from dataclasses import fields

    from rapid_llm.cli.flags import TrainingPlanFlags, overrides

    given = {field.name: "2" for field in fields(TrainingPlanFlags)}
    assert set(overrides(TrainingPlanFlags(**given))) == {f"parallelism.{name}=2" for name in given}
    assert {"tp", "pp", "vpp", "cp", "ulysses", "ep", "etp", "dp", "dp_shard"} <= given.keys()
