"""Images of prompts: the work of a vision tower before its prompt, and who has one."""

import pytest

from rapid_llm import model as models
from rapid_llm.errors import InputError
from rapid_llm.model.tower import encoder
from rapid_llm.predict import evaluate, predict
from rapid_llm.scenario import check, from_mapping

WORK = {"kind": "inference", "batch_size": 4, "prompt_tokens": 2000, "output_tokens": 32}


def scenario(images=None, model="qwen2.5-vl-7b", tp=1, system="dgx-h100", **work):
    shown = {"images": images} if images else {}
    plan = {"model": model, "system": system, "runtime": "vllm", "parallelism": {"tp": tp}}
    return from_mapping({**plan, "workload": {**WORK, **shown, **work}})


@pytest.mark.parametrize(("name", "gated"), [("qwen2.5-vl-7b", True), ("gemma-3-12b", False), ("llava-1.5-7b", False)])
def test_layers_of_a_tower_are_most_of_its_parameters(name, gated):
    tower = models.load(name).vision
    layers = models.parameters(encoder(tower)) - 2 * tower.hidden_size
    assert encoder(tower).blocks[0].ffn.gated == gated
    assert 0.8 * tower.parameters < layers < tower.parameters


def test_a_tower_computes_what_its_patches_do():
    """CLIP ViT-L/14 on 336 x 336 pixels: 576 patches of 302 million parameters and 24 layers of attention, about
    0.37 TFLOP an image; 32 of them take at least what the peak of an H100 allows."""
    shown, blind = (evaluate(scenario(i, "llava-1.5-7b", batch_size=32)) for i in ({"width": 336, "height": 336}, None))
    seconds = shown.ttft_s - blind.ttft_s
    flops = 32 * (2 * 576 * 302e6 + 24 * 4 * 576**2 * 1024)
    assert flops / 989e12 < seconds < 4 * flops / 989e12
    assert shown.tpot_s == blind.tpot_s


def test_time_grows_with_images_and_with_pixels():
    one, two, large = (
        evaluate(scenario({"count": n, "width": side, "height": side})).ttft_s
        for n, side in ((1, 448), (2, 448), (1, 896))
    )
    assert one < two < large


def test_tensor_parallelism_cuts_the_tower():
    image = {"count": 8, "width": 896, "height": 896}
    gains = [evaluate(scenario(image, tp=tp)).ttft_s - evaluate(scenario(tp=tp)).ttft_s for tp in (1, 4)]
    assert 0.2 * gains[0] < gains[1] < 0.7 * gains[0]


@pytest.mark.parametrize("batching", ["static", "continuous"])
def test_leaves_sum_to_the_request(batching):
    report = predict(scenario({"width": 896, "height": 896}, batching=batching))
    assert sum(leaf.seconds for leaf in report.breakdown.leaves()) == pytest.approx(report.e2e_s, rel=1e-9)
    names = [part.name for part in report.phases["prefill"].children]
    assert ("encoding images" in names) == (batching == "static")
    assert not any("text only" in one for one in report.assumptions)


@pytest.mark.parametrize(
    ("model", "tokens"),
    [("qwen2.5-vl-7b", 1024), ("llava-1.5-7b", 64 * 64), ("gemma-3-12b", 256), ("internvl3-8b", 1024)],
)
def test_a_prompt_that_cannot_hold_its_images_is_noted(model, tokens):
    """Patches of 14 pixels; Qwen and InternVL merge four of them, Gemma leaves 256 tokens of any image."""
    image = {"width": 896, "height": 896}
    notes = [one for one in check(scenario(image, model, prompt_tokens=tokens - 1)) if one.message]
    said = f"workload.prompt_tokens {tokens - 1} is less than the {tokens} tokens that the images of a prompt become"
    assert [one.message for one in notes if one.name == "a prompt holds its images"] == [f"{said} in {model}."]
    assert not any(one.message for one in check(scenario(image, model, prompt_tokens=tokens)) if "images" in one.name)


def test_who_sees_no_images_is_refused():
    with pytest.raises(InputError, match=r"workload.images needs a vision tower, and llama-3.1-8b has none"):
        scenario({"width": 336, "height": 336}, "llama-3.1-8b")
    with pytest.raises(InputError, match=r"workload\.images"):
        scenario({"width": 336})
