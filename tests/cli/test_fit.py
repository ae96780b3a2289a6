"""``fit`` at the command line: what it takes, what it finds, and what it says of a mistake."""

import json
from pathlib import Path

import pytest

from rapid_llm.errors import InputError
from rapid_llm.scenario import from_mapping
from rapid_llm.synonyms import SETTINGS

from .shell import rapid_llm

EXAMPLE = Path(__file__).parents[2] / "examples" / "gpt-175b-training.yaml"
BATCH = "--batch-size 1 --prompt-tokens 128 --output-tokens 64"
STEP = "--global-batch-size 12 --sequence-length 4096"

SENTENCES = [
    (
        f"fit infer llama-3.1-8b --system dgx-h100 --accelerator h200-sxm {BATCH}",
        "system dgx-h100 and accelerator h200-sxm both name the hardware. Keep one of them.",
    ),
    (
        f"train llama-3.1-8b --system dgx-h100 --accelerator h200-sxm {STEP}",
        "system dgx-h100 and accelerator h200-sxm both name the hardware. Keep one of them.",
    ),
    (
        f"fit infer llama-3.1-8b --accelerator dgx-h100 {BATCH}",
        "accelerator 'dgx-h100' is a system. Try --system dgx-h100.",
    ),
    (
        f"infer llama-3.1-8b --accelerator dgx-h100 {BATCH}",
        "accelerator 'dgx-h100' is a system. Try --system dgx-h100.",
    ),
    (
        f"fit infer llama-3.1-8b {BATCH}",
        "the field 'system' is missing. Try --system dgx-h100. See: rapid-llm list systems",
    ),
    (
        f"infer llama-3.1-8b --accelerator t4 --precision bf16 {BATCH}",
        "precision.compute bf16 needs a matrix rate for bf16, and t4 has fp16, int4, int8. Try --precision fp16.",
    ),
    (
        f"fit infer llama-3.1-8b --accelerator t4 --precision bf16 {BATCH}",
        "precision.compute bf16 needs a matrix rate for bf16, and t4 has fp16, int4, int8. Try --precision fp16.",
    ),
    (
        f"fit infer llama-3.1-8b --accelerator v100-sxm --set precision.activations=bf16 {BATCH}",
        "precision.activations bf16 needs a matrix rate for bf16, and v100-sxm has fp16, fp64. Try --precision fp16.",
    ),
    (
        f"fit infer {EXAMPLE} --accelerator h100-sxm {BATCH}",
        f"model '{EXAMPLE}' is a scenario file, which holds a model and its job. Try rapid-llm run {EXAMPLE}, or "
        f"rapid-llm fit {EXAMPLE} for its memory alone.",
    ),
    (
        f"fit train llama-3.1-8b --accelerator h100-sxm --accelerators 3 --tp 2 {STEP}",
        "tp 2 must divide accelerators 3: 3 / 2 leaves 1. Try tp 1.",
    ),
    (
        f"fit infer llama-3.1-8b --accelerator h100-sxm {BATCH} --max request",
        "--max 'request' is unknown. Did you mean 'requests'? Known: requests, sequence, layers.",
    ),
    (
        "fit infer llama-3.1-8b --accelerator h100-sxm --max request",
        "--max 'request' is unknown. Did you mean 'requests'? Known: requests, sequence, layers.",
    ),
    (
        f"fit train llama-3.1-8b --accelerator h100-sxm {STEP} --max batch",
        "--max 'batch' is unknown. Did you mean 'micro-batch'? Known: micro-batch, sequence, layers.",
    ),
    (
        f"fit infer llama-3.1-8b --accelerator h100-sxm {BATCH} --max sequence_length",
        "--max 'sequence_length' is unknown. Did you mean 'sequence'? Known: requests, sequence, layers.",
    ),
    (
        f"fit infer llama-3.1-8b --accelerator h100-sxm {BATCH} --max micro-batch",
        "--max micro-batch does not go with workload.kind inference. Try requests, sequence, layers.",
    ),
    (
        f"fit infer llama-3.1-8b --accelerator h100-sxm {BATCH} --max=",
        "--max '' is unknown. Known: requests, sequence, layers.",
    ),
    (
        "fit llama-3.1-8b",
        "'llama-3.1-8b' is not a verb of rapid-llm fit. Try: rapid-llm fit infer llama-3.1-8b, or rapid-llm fit train "
        "llama-3.1-8b. See: rapid-llm fit --help",
    ),
    (
        "infer llama-3.1-8b --max-model-len 4096",
        "--max-model-len is not a flag of 'rapid-llm infer'. Did you mean '--prompt-tokens'? "
        "See: rapid-llm infer --help",
    ),
    (
        "fit infer llama-3.1-8b --max-model-len 4096",
        "--max-model-len is not a flag of 'rapid-llm fit infer'. Did you mean '--prompt-tokens'? "
        "See: rapid-llm fit infer --help",
    ),
    (
        "fit infer llama-3.1-8b --gpu-memory-utilization 0.8",
        "--gpu-memory-utilization is not a flag of 'rapid-llm fit infer'. "
        "Try --set runtime.allocator.utilisation=0.8. See: rapid-llm fit infer --help",
    ),
    (
        "infer llama-3.1-8b --max-num-batched-tokens=4096",
        "--max-num-batched-tokens is not a flag of 'rapid-llm infer'. "
        "Try --set runtime.serving.max_batched_tokens=4096. See: rapid-llm infer --help",
    ),
    (
        "infer llama-3.1-8b --kv-cache-dtype fp8",
        "--kv-cache-dtype is not a flag of 'rapid-llm infer'. Try --set precision.kv_cache=fp8. "
        "See: rapid-llm infer --help",
    ),
    (
        f"fit train llama-3.1-8b --accelerator h100-sxm {STEP} --memory-timeline x.json",
        "--memory-timeline x.json: the page is HTML. Try --memory-timeline x.html.",
    ),
    (
        f"fit train llama-3.1-8b --accelerator h100-sxm {STEP} --memory-timeline=",
        "--memory-timeline needs a value (got an empty text).",
    ),
    (
        f"train llama-3.1-8b --system dgx-h100 {STEP} --timeline examples",
        "--timeline examples is a folder. Name a file in it, such as examples/page.html.",
    ),
    (
        f"fit train llama-3.1-8b --accelerator h100-sxm {STEP} --memory-timeline nowhere/x.html",
        "--memory-timeline nowhere/x.html: there is no folder nowhere. Create it, or name another file.",
    ),
]


@pytest.mark.parametrize(("words", "sentence"), SENTENCES)
def test_sentence(words, sentence, monkeypatch):
    monkeypatch.chdir(EXAMPLE.parents[1])
    ran = rapid_llm(*words.split(" "))
    assert (ran.code, ran.out, ran.err) == (2, "", sentence + "\n")


@pytest.mark.parametrize("setting", SETTINGS.values())
def test_hints_for_flags_of_other_tools_are_taken(setting):
    job = {"kind": "inference", "batch_size": 1, "prompt_tokens": 4096, "output_tokens": 4}
    given = {"model": "llama-3.1-8b", "system": "h100-sxm"}
    if "experts" in setting:
        given = {"model": "qwen3-30b-a3b", "system": "rtx-4090-xeon", "runtime": "ktransformers"}
    elif "helix" in setting:
        given |= {"system": "gb200-nvl72", "parallelism": {"tp": 8, "cp": 8}, "model": "llama-3.1-405b"}
    elif "faults" in setting:
        given |= {"system": "dgx-h100", "network": "flow", "accelerators": 16}
        job["batch_size"] = 16
    elif "offload" in setting or "lora" in setting or "workload.tokens" in setting:
        job = {"kind": "training", "global_batch_size": 8, "sequence_length": 4096}
    plain, changed = (from_mapping({**given, "workload": job}, overrides=own) for own in ([], [setting]))
    assert changed != plain


def fit(words: str) -> str:
    return " ".join(rapid_llm("fit", *words.split()).out.split())


def largest(words: str) -> str:
    return fit(words).partition("largest ")[2]


def test_a_scenario_file():
    assert fit(str(EXAMPLE)) == fit(f"run {EXAMPLE}")
    assert "gpt-175b training" in fit(f"{EXAMPLE} --set workload.micro_batch_size=1")
    assert largest(f"{EXAMPLE} --max layers").startswith("layers that fit: ")
    assert largest(f"--max layers {EXAMPLE}") == largest(f"{EXAMPLE} --max layers")


def test_a_chip_without_bf16_computes_in_fp16():
    for chip in ("v100-sxm", "t4"):
        assert f"precision fp16 ({chip} has no bf16)" in fit(f"infer gpt2 --accelerator {chip} {BATCH}")
        ran = rapid_llm("infer", "gpt2", "--accelerator", chip, *BATCH.split())
        assert (ran.code, f"precision fp16 ({chip} has no bf16)" in " ".join(ran.out.split())) == (0, True)
    assert "precision fp16-mixed (v100-sxm has no bf16)" in fit(f"train gpt2 --accelerator v100-sxm {STEP}")


def test_the_size_that_is_asked_for_need_not_be_given():
    sizes = "--prompt-tokens 1024 --output-tokens 256"
    given = json.loads(
        rapid_llm("fit", "infer", "llama-3.1-8b", "--accelerator", "h100-sxm", *sizes.split(), "--batch-size", "1",
                  "--max", "requests", "--json").out
    )  # fmt: skip
    found = json.loads(
        rapid_llm("fit", "infer", "llama-3.1-8b", "--accelerator", "h100-sxm", *sizes.split(), "--max", "requests",
                  "--json").out
    )  # fmt: skip
    assert found["largest"] == given["largest"]
    assert found["scenario"]["workload"]["batch_size"] == found["largest"]["requests"]
    step = "--accelerator h100-sxm --accelerators 16 --tp 8 --cp 2 --global-batch-size 8"
    assert largest(f"train llama-3.1-8b {step} --max sequence").startswith("sequence that fits: ")
    bad = rapid_llm("fit", "train", "llama-3.1-8b", *step.replace("tp 8", "tp 3").split(), "--max", "sequence")
    assert bad.code == 2


def test_the_memory_shown_is_that_of_the_largest_micro_batch():
    job = "train llama-3.1-8b --system dgx-h100 --accelerators 8 --tp 8 --global-batch-size 512 --sequence-length 4096"
    found = json.loads(rapid_llm("fit", *job.split(), "--max", "micro-batch", "--json").out)
    work = found["scenario"]["workload"]
    assert work["micro_batch_size"] == found["largest"]["micro-batch"] > 1
    assert work["global_batch_size"] == 512 * work["micro_batch_size"]
    said = fit(f"{job} --max micro-batch")
    assert "% likely: memory of measured training runs" in said
    given = json.loads(rapid_llm("fit", *job.split(), "--micro-batch-size", "2", "--max", "micro-batch", "--json").out)
    assert given["scenario"]["workload"]["micro_batch_size"] == 2


def test_words_of_the_largest():
    chip = "--accelerator h100-sxm"
    assert "tokens of prompt, and 64 of output" in largest(f"infer llama-3.1-8b {chip} {BATCH} --max sequence")
    assert largest(f"infer falcon-mamba-7b {chip} {BATCH} --max sequence") == (
        "any sequence: memory does not grow with it"
    )
    assert largest(f"train llama-3.1-70b {chip} {STEP} --max micro-batch") == "no micro-batch fits"
    none = f"infer llama-3.1-70b {chip} --prompt-tokens 1024 --output-tokens 256 --max requests"
    assert largest(none) == "no requests fit"
    said = largest(f"infer gpt2 {chip} {BATCH} --max sequence")
    assert said.endswith("is beyond max_position_embeddings 1024 of gpt2, and taken as if it were made for that.")
    one = largest(f"train llama-3.1-8b {chip} --tp 4 --global-batch-size 1 --sequence-length 32768 --max micro-batch")
    assert one == "micro-batch that fits: 1 sequence"


def test_fixes_of_a_batch_speak_of_its_time():
    out = fit(f"infer llama-3.1-70b --accelerator h100-sxm {BATCH}")
    assert "end-to-end time x" in out
    assert "step time" not in out


def test_the_title_has_the_name_of_a_file(tmp_path):
    (tmp_path / "mine.yaml").write_text("base: h100-sxm\nname: my-chip\n")
    assert " of my-chip " in fit(f"infer gpt2 --accelerator {tmp_path / 'mine.yaml'} {BATCH}")


def test_pages(tmp_path):
    page = tmp_path / "m.html"
    for job in (f"infer llama-3.1-8b {BATCH}", f"train llama-3.1-8b --tp 4 {STEP}"):
        fit(f"{job} --accelerator h100-sxm --memory-timeline {page}")
        text = page.read_text("utf-8")
        assert "may use" in text and "framework" in text
        page.unlink()


def test_recompute_of_one_layer_in_a_thousand():
    with pytest.raises(InputError) as caught:
        from_mapping(
            {
                "model": "llama-3.1-8b",
                "system": "dgx-h100",
                "parallelism": {"tp": 8},
                "workload": {
                    "kind": "training",
                    "global_batch_size": 8,
                    "sequence_length": 4096,
                    "recompute": {"mode": "full", "every": 1000},
                },
            }
        )
    assert caught.value.message == (
        "workload.recompute.every 1000 is more than num_hidden_layers 32: no layer would be computed again. "
        "Try every 1, or recompute: none."
    )


def test_the_most_requests_are_no_gamble():
    """The engine fills its share: that it is full at the largest says nothing of whether it fits."""
    words = "fit infer llama-3.1-8b --accelerator h100-sxm --prompt-tokens 128 --output-tokens 64 --max requests"
    ran = rapid_llm(*words.split())
    assert ran.code == 0 and "largest" in ran.out
    assert "narrowly" not in ran.out and "likely" not in ran.out
