"""Encoders, and decoders that read one: what runs when, what is cached, and what is refused."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rapid_llm import model as models
from rapid_llm.errors import InputError
from rapid_llm.lowering import Shapes, lower
from rapid_llm.lowering.table import FORWARD
from rapid_llm.model.flops import step_flops
from rapid_llm.nouns import replaced
from rapid_llm.operators.work import attention_work
from rapid_llm.predict import evaluate, explain, fit, predict
from rapid_llm.predict.job import plans_of, training_shapes
from rapid_llm.predict.stepping import stepper
from rapid_llm.scenario import check, from_mapping

FEW = settings(max_examples=12, deadline=None)
READ = st.integers(16, 2048)
GIVEN = {
    "flan-t5-xl": {"prompt_tokens": 512, "output_tokens": 64},
    "bart-large": {"prompt_tokens": 512, "output_tokens": 64},
    "whisper-large-v3": {"output_tokens": 100},
    "bge-large-en-v1.5": {"prompt_tokens": 512},
    "t5-v1.1-xxl-encoder": {"prompt_tokens": 256},
    "modernbert-large": {"prompt_tokens": 2048},
}


def batch(model, *, system="dgx-h100", tp=1, runtime=None, **work):
    lengths = {} if "prompt_tokens" in work else GIVEN.get(model, {})
    mapping = {"model": model, "system": system, "parallelism": work.pop("parallelism", {"tp": tp})}
    given = {"kind": "inference", "batch_size": 8, **lengths, **work}
    return from_mapping({**mapping, "workload": given, **({"runtime": runtime} if runtime else {})})


def step(model, *, plan=None, runtime=None, **work):
    sizes = {"kind": "training", "global_batch_size": 32, "micro_batch_size": 4, "sequence_length": 512}
    mapping = {"model": model, "system": "dgx-h100", "accelerators": 8, "parallelism": plan or {}}
    return from_mapping({**mapping, "workload": {**sizes, **work}, **({"runtime": runtime} if runtime else {})})


def leaves(report, phase):
    return {leaf.name: leaf.seconds for leaf in report.phases[phase].leaves()}


# What runs when


@FEW
@given(model=st.sampled_from(["bart-large", "flan-t5-xl"]), short=READ, more=st.integers(1, 2048))
def test_decode_grows_with_the_prompt_in_cross_attention_alone(model, short, more):
    first, last = (
        leaves(predict(batch(model, prompt_tokens=length, output_tokens=64)), "decode")
        for length in (short, short + more)
    )
    assert last.pop("cross_attention") >= first.pop("cross_attention")
    assert last == pytest.approx(first, rel=1e-9)


@FEW
@given(length=st.integers(64, 4096))
def test_an_encoder_meets_twice_the_pairs_of_a_decoder(length):
    """Every token sees all of n, instead of (n + 1) / 2."""
    found = models.load("bge-large-en-v1.5")
    block, mixer = found.blocks[0], found.blocks[0].mixer
    flops = {}
    for causal in (False, True):
        whole = replaced(found, blocks=(replaced(block, mixer=replaced(mixer, causal=causal)),))
        kernels = lower(whole, shapes_of(batch("bge-large-en-v1.5", prompt_tokens=length)), vllm()).kernels
        flops[causal] = attention_flops(kernels)
    assert flops[False] / flops[True] == pytest.approx(2.0 * length / (length + 1.0))


def vllm():
    return batch("bge-large-en-v1.5").runtime


def shapes_of(scenario):
    work = scenario.workload
    lengths = {"new": np.array([float(work.prompt_tokens)]), "past": np.zeros(1)}
    software = {"precision": scenario.precision, "runtime": scenario.runtime}
    return Shapes.of(plans_of(scenario), training=False, **lengths, **software)


def attention_flops(tables):
    total = 0.0
    for rows in tables:
        if rows.family == "attention":
            total += float(attention_work(tuple(rows.columns.values()))[0].sum())
    return total


@pytest.mark.parametrize("model", GIVEN)
def test_one_rank_sends_nothing(model):
    report = predict(batch(model))
    assert not any("communication" in leaf.name or leaf.bound == "network" for leaf in report.breakdown.leaves())


@pytest.mark.parametrize("model", GIVEN)
@pytest.mark.parametrize("batching", ["static", "continuous"])
def test_leaves_sum_to_the_request(model, batching):
    report = predict(batch(model, batching=batching))
    assert sum(leaf.seconds for leaf in report.breakdown.leaves()) == pytest.approx(report.e2e_s, rel=1e-9)


@pytest.mark.parametrize("model", GIVEN)
def test_one_request_is_the_same_in_both_ways_of_batching(model):
    static, continuous = (evaluate(batch(model, batch_size=1, batching=b)) for b in ("static", "continuous"))
    assert continuous.e2e_s == pytest.approx(static.e2e_s, rel=0.03)


def test_the_encoder_and_the_keys_of_cross_attention_run_once():
    """Projections of the encoder's output are of all its tokens, and in no decode step."""
    lines = [line for line in explain(batch("bart-large")) if line.name == "cross_kv" or "encoder" in line.unit]
    assert {line.phase for line in lines} == {"prefill"}
    keys = next(line for line in lines if line.name == "cross_kv")
    assert keys.count == 12
    assert keys.flops == pytest.approx(2 * 8 * 512 * 1024 * 2048)


def test_the_encoder_takes_what_its_flops_take():
    """24 layers of 12.6 million weights (BERT-large), 8 x 512 tokens: at least what the peak of an H100 allows."""
    seconds = evaluate(batch("bge-large-en-v1.5", batch_size=64)).e2e_s
    flops = 64 * 512 * (2 * 24 * 12.6e6 + 24 * 4 * 512 * 1024)
    assert flops / 989e12 < seconds < 3 * flops / 989e12


def test_tensor_parallelism_cuts_both_sides():
    alone, cut = (evaluate(batch("flan-t5-xl", tp=tp)) for tp in (1, 4))
    assert cut.ttft_s < alone.ttft_s
    assert cut.account.by_category[0, -1, 0] < 0.35 * alone.account.by_category[0, -1, 0]


# What is cached and held


def test_the_cache_is_that_of_both_attentions():
    """Keys and values of 24 layers x 32 heads x 64: whole blocks of what is written, and of what the encoder wrote."""
    scenario = batch("flan-t5-xl", runtime="hf-transformers", prompt_tokens=500, output_tokens=29)
    report = predict(scenario)
    block = scenario.runtime.serving.kv_block_tokens if scenario.runtime.serving else 1
    tokens = sum(-(-length // block) * block for length in (1 + 29, 500))
    assert report.memory.by_category["kv_cache"] == 8 * tokens * 2 * 24 * 32 * 64 * 2


def test_an_encoder_keeps_nothing_between_passes():
    report = predict(batch("bge-large-en-v1.5"))
    assert report.memory.by_category["kv_cache"] == 0
    assert report.memory.cache is None
    assert report.memory.by_category["weights"] == 2 * models.parameters(models.load("bge-large-en-v1.5"))


@pytest.mark.parametrize("model", ["flan-t5-xl", "whisper-large-v3"])
def test_weights_of_both_sides_are_held_once(model):
    held = predict(batch(model)).memory.by_category["weights"]
    assert held == pytest.approx(2 * models.parameters(models.load(model)), rel=1e-3)
    assert fit(batch(model)).memory.by_category == predict(batch(model)).memory.by_category


# What is told


def test_an_encoder_answers_with_one_pass():
    report = predict(batch("bge-large-en-v1.5"))
    assert report.tpot_s is None
    assert report.output_tokens_per_s is None
    assert report.ttft_s == report.e2e_s
    assert list(report.phases) == ["pass"]
    assert report.requests_per_s == pytest.approx(8 / report.e2e_s)
    assert report.total_tokens_per_s == pytest.approx(512 * report.requests_per_s)


def test_a_decoder_may_read_alone():
    report = predict(batch("qwen3-8b", prompt_tokens=512, output_tokens=0))
    assert report.tpot_s is None
    assert report.memory.by_category["kv_cache"] > 0


def test_sound_comes_in_windows_of_thirty_seconds():
    scenario = batch("whisper-large-v3")
    assert scenario.workload.prompt_tokens == 1500
    report = predict(scenario)
    assert report.sound_s_per_s == pytest.approx(30 * report.requests_per_s)


@pytest.mark.parametrize(
    ("model", "name"),
    [("flan-t5-xl", "tensorrt-llm"), ("bart-large", "vllm"), ("bge-large-en-v1.5", "vllm"), ("llama-3.1-8b", "vllm")],
)
def test_a_runtime_that_has_the_model_is_the_default(model, name):
    assert batch(model, prompt_tokens=100, output_tokens=0 if "bge" in model else 8).runtime.name == name


# Training


@pytest.mark.parametrize(
    ("model", "work"),
    [
        ("bert-large", {}),
        ("bert-large", {"predictions": 76}),
        ("t5-3b", {"decoder_sequence_length": 128}),
        ("bart-large", {"decoder_sequence_length": 256}),
        ("whisper-large-v3", {"sequence_length": 1500}),
    ],
)
def test_rows_multiply_what_the_model_is_said_to(model, work):
    """Matrix FLOPs of the forward rows, vocabulary not padded, are those that MFU counts."""
    scenario = step(model, runtime="fsdp", **work)
    lowered = lower(scenario.model, training_shapes(*job_of(scenario)), scenario.runtime)
    passes = lowered.layers[:, 0, :].sum(axis=1)
    total = 0.0
    for rows in lowered.kernels:
        forward = rows.phase == FORWARD
        if rows.family == "gemm":
            c = rows.columns
            flops = 2.0 * c["m"] * c["n"] * c["k"] * c["groups"] * rows.count
            total += float((flops[forward, 0] * passes[rows.unit[forward]]).sum())
        elif rows.family == "attention":
            flops = attention_work(tuple(rows.columns.values()))[0] * rows.count
            total += float((flops[forward, 0] * passes[rows.unit[forward]]).sum())
    written = scenario.workload.decoder_sequence_length
    lengths = (written, scenario.workload.sequence_length) if written else (scenario.workload.sequence_length, 0)
    _, causal, _ = step_flops(scenario.model, *lengths, scenario.workload.predictions)
    assert total / scenario.workload.micro_batch_size == pytest.approx(causal, rel=0.01)


def job_of(scenario):
    return plans_of(scenario), scenario.workload, scenario.precision, scenario.runtime


def test_words_that_are_not_masked_cost_no_vocabulary():
    every, some = (evaluate(step("bert-large", **given)) for given in ({}, {"predictions": 76}))
    assert float(some.step.total[0]) < float(every.step.total[0])
    assert float(some.peak_bytes[0]) < float(every.peak_bytes[0])


def test_what_is_trained_of_both_sides_is_updated_once():
    """Adam: 18 bytes a parameter where nothing is sharded (2 of weights, 4 of gradients, 12 of states)."""
    report = predict(step("t5-large", plan={"zero_stage": 0}, decoder_sequence_length=128))
    held = report.memory.by_category
    states = held["weights"] + held["gradients"] + held["optimizer"]
    assert states == pytest.approx(18 * models.parameters(models.load("t5-large")), rel=0.01)


@pytest.mark.parametrize("recompute", ["selective", "full"])
def test_recomputing_saves_memory_and_costs_time(recompute):
    kept, again = (
        predict(step("t5-large", runtime="fsdp", decoder_sequence_length=128, recompute=mode))
        for mode in ("none", recompute)
    )
    assert again.memory.by_category["activations"] < kept.memory.by_category["activations"]
    assert again.step_time_s > kept.step_time_s


def test_an_encoder_is_trained_over_stages_and_tensor_ranks():
    report = predict(step("bert-large", plan={"tp": 2, "pp": 2}))
    assert {leaf.name for leaf in report.breakdown.leaves()} >= {"tp", "pp"}


# What is refused

REFUSED = [
    (
        lambda: batch("bge-m3", prompt_tokens=512, output_tokens=4),
        "workload.output_tokens must be 0 (got 4): bge-m3 is an encoder, done with one pass over its prompt. Try to "
        "leave it out.",
    ),
    (
        lambda: batch("flan-t5-xl", prompt_tokens=512, output_tokens=0),
        "workload.output_tokens must be at least 1 (got 0): the decoder of flan-t5-xl writes. Try output_tokens 64.",
    ),
    (
        lambda: batch("flan-t5-xl", runtime="vllm"),
        "runtime vllm does not run an encoder with a decoder and learned biases of distances, which flan-t5-xl is. "
        "Try runtime: tensorrt-llm.",
    ),
    (
        lambda: batch("whisper-large-v3", prompt_tokens=800, output_tokens=10),
        "workload.prompt_tokens must be 1500, the frames of a window of 30 s that whisper-large-v3 pads sound to (got "
        "800). Try 1500, and a request for each window.",
    ),
    (
        lambda: batch("bart-large", prefix_tokens=10),
        "workload.prefix_tokens is not modelled for an encoder with a decoder, which bart-large is. Try to leave it "
        "out.",
    ),
    (
        lambda: batch("bart-large", parallelism={"pp": 2}),
        "parallelism.pp is not modelled for an encoder with a decoder, which bart-large is. Try parallelism.pp 1.",
    ),
    (
        lambda: batch("llama-3.1-8b", prompt_tokens=8, output_tokens=8, decoder_prompt_tokens=4),
        "workload.decoder_prompt_tokens is of an encoder with a decoder, and llama-3.1-8b is none. Try to leave it "
        "out.",
    ),
    (
        lambda: step("t5-3b", plan={"tp": 4, "pp": 2}, decoder_sequence_length=128),
        "parallelism.pp is not modelled for an encoder with a decoder and learned biases of distances, which t5-3b is. "
        "Try parallelism.pp 1.",
    ),
    (
        lambda: step("llama-3.1-8b", plan={"tp": 8}, predictions=76),
        "workload.predictions are of a head for masked words, and llama-3.1-8b has none. Try to leave it out.",
    ),
    (
        lambda: step("bert-large", predictions=600),
        "workload.predictions 600 is more than sequence_length 512. Try 76, the usual 15 %.",
    ),
    (
        lambda: step("t5-3b", plan={"tp": 8}, decoder_sequence_length=114),
        "workload.decoder_sequence_length 114 must be a multiple of tp 8: remainder 2. Try 112 or 120.",
    ),
    (
        lambda: step("bert-large", plan={"cp": 2}),
        "parallelism.cp is not modelled for an encoder, which bert-large is. Try parallelism.cp 1.",
    ),
    (
        lambda: step("whisper-large-v3", sequence_length=1500, runtime="megatron-core"),
        "runtime megatron-core does not run an encoder of sound with a decoder, which whisper-large-v3 is. Try "
        "runtime: fsdp.",
    ),
    (
        lambda: from_mapping(
            {
                "model": "llama-2-7b",
                "system": "dgx-h100",
                "draft": "flan-t5-base",
                "workload": {
                    "kind": "inference",
                    "batch_size": 8,
                    "prompt_tokens": 64,
                    "output_tokens": 8,
                    "speculation": {"draft": "model", "acceptance": [0.5]},
                },
            }
        ),
        "draft flan-t5-base must be a decoder, which has no encoder beside it. Try draft: llama-3.2-1b.",
    ),
    (
        lambda: stepper(batch("bart-large")),
        "a step predictor knows decoders alone, and bart-large has an encoder. Try rapid_llm.predict.",
    ),
]


@pytest.mark.parametrize(("asked", "sentence"), REFUSED)
def test_what_is_not_modelled_is_one_sentence(asked, sentence):
    with pytest.raises(InputError) as caught:
        asked()
    assert caught.value.message == sentence


# Cross attention to images


def seen(width=None, height=None, **work):
    shown = {"images": {"width": width, "height": height}} if width else {}
    return batch("llama-3.2-11b-vision", prompt_tokens=512, output_tokens=32, **shown, **work)


def test_layers_that_see_an_image_are_left_out_without_one():
    """32 of 40 layers run and cache a text: 8 sequences of 544 tokens, 1,024 keys and as many values a layer."""
    assert predict(seen()).memory.by_category["kv_cache"] == 8 * 544 * 32 * 2 * 1024 * 2
    blind, shown = predict(seen()), predict(seen(500, 500))
    assert "cross_attention" not in leaves(blind, "decode")
    assert shown.tpot_s > blind.tpot_s


def test_tiles_are_what_cross_attention_reads():
    """A tile of 560 pixels is 1,600 patches and a class; the tower runs four, the decoder reads those of the image."""
    one, four = (predict(seen(side, side)) for side in (560, 1120))
    block = 16
    rows = [-(-tiles * 1601 // block) * block for tiles in (1, 4)]
    grows = four.memory.by_category["kv_cache"] - one.memory.by_category["kv_cache"]
    assert grows == 8 * (rows[1] - rows[0]) * 8 * 2 * 1024 * 2
    assert four.ttft_s == pytest.approx(one.ttft_s, rel=0.1)


@pytest.mark.parametrize(
    ("model", "lengths", "said"),
    [
        ("whisper-large-v3", {"sequence_length": 1500}, []),
        (
            "whisper-large-v3",
            {"sequence_length": 1500, "decoder_sequence_length": 600},
            ["workload.decoder_sequence_length 600 is beyond max_position_embeddings 448 of whisper-large-v3, and "
             "taken as if it were made for that."],
        ),
        (
            "bart-large",
            {"sequence_length": 2048, "decoder_sequence_length": 64},
            ["workload.sequence_length 2048 is beyond the 1026 positions of the encoder of bart-large, and taken as "
             "if it were made for that."],
        ),
    ],
)  # fmt: skip
def test_encoder_and_decoder_are_held_to_their_own_positions(model: str, lengths: dict[str, int], said: list[str]):
    work = {"kind": "training", "global_batch_size": 64, **lengths}
    scenario = from_mapping({"model": model, "system": "dgx-a100", "accelerators": 8, "workload": work})
    assert [one.message for one in check(scenario) if one.message] == said
