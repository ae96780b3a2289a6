"""Exact parameter counts."""

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rapid_llm import model
from rapid_llm.errors import InputError

CONFIGS = Path(__file__).parents[3] / "shared" / "data" / "model_configs"

# Source: the implementation in transformers 5.24, built on the meta device (tools/verify_models.py).
TRANSFORMERS = {
    "bloom-176b": 176_247_271_424,
    "command-r-plus-104b": 103_810_674_688,
    "deepseek-v2-lite": 15_706_484_224,
    "deepseek-v3": 671_026_404_352,
    "falcon-40b": 41_303_293_952,
    "falcon-7b": 6_921_720_704,
    "gemma-2-27b": 27_227_128_320,
    "gemma-3-27b": 27_432_406_640,
    "glm-5": 743_911_199_232,
    "gpt-j-6b": 6_050_882_784,
    "gpt-neox-20b": 20_554_567_680,
    "gpt-oss-120b": 116_829_156_672,
    "gpt2-xl": 1_557_611_200,
    "jamba-v0.1": 51_570_323_328,
    "llama-2-70b": 68_976_648_192,
    "llama-3.1-70b": 70_553_706_496,
    "mamba-codestral-7b": 7_285_403_648,
    "mixtral-8x22b": 140_620_634_112,
    "mpt-7b": 6_649_286_656,
    "olmoe-1b-7b": 6_919_161_856,
    "opt-30b": 29_974_540_288,
    "phi-3.5-moe": 41_873_153_344,
    "qwen2.5-72b": 72_706_203_648,
    "qwen2.5-vl-7b": 8_292_166_656,
    "qwen3-235b-a22b": 235_093_634_560,
}
# Source: safetensors metadata of the checkpoints on huggingface.co.
CHECKPOINTS = {
    "baichuan2-13b": 13_896_668_160,
    "codellama-34b": 33_743_970_304,
    "dbrx": 131_596_523_520,
    "internlm2-20b": 19_861_149_696,
    "smollm2-1.7b": 1_711_376_384,
    "tinyllama-1.1b": 1_100_048_384,
}
# Source: Narayanan et al. 2021, table 1, and Korthikanti et al. 2022, table 3: billions as printed.
PRINTED = {
    "gpt-1.7b": "1.7",
    "gpt-3.6b": "3.6",
    "gpt-7.5b": "7.5",
    "gpt-18b": "18.4",
    "gpt-39b": "39.1",
    "gpt-76b": "76.1",
    "gpt-145b": "145.6",
    "gpt-175b": "174.6",
    "gpt-310b": "310.1",
    "gpt-530b": "529.6",
    "gpt-1t": "1008.0",
}
# Source: model cards, "activated parameters", billions.
ACTIVE = {
    "deepseek-v3": 37,
    "deepseek-v2": 21,
    "mixtral-8x7b": 12.9,
    "qwen3-30b-a3b": 3.3,
    "qwen3-235b-a22b": 22,
    "kimi-k2": 32,
    "gpt-oss-20b": 3.6 + 0.58,  # the card leaves out the embedding
    "llama-4-scout": 17,
}


@pytest.mark.parametrize(("name", "count"), [*TRANSFORMERS.items(), *CHECKPOINTS.items()])
def test_count_is_exact(name, count):
    assert model.parameters(model.load(name)) == count


@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("vit-l-16", 304_326_632),
        ("vit-h-14", 632_045_800),
    ],  # classifiers of 1000 labels, as transformers and timm count
)
def test_image_encoders_are_exact(name, count):
    assert model.parameters(model.load(name)) == count


@pytest.mark.parametrize(("name", "printed"), PRINTED.items())
def test_gpt_ladder_is_the_printed_one(name, printed):
    assert f"{model.parameters(model.load(name)) / 1e9:.1f}" == printed


@pytest.mark.parametrize(("name", "billions"), ACTIVE.items())
def test_active_parameters_are_those_of_the_model_card(name, billions):
    assert model.active_parameters(model.load(name)) / 1e9 == pytest.approx(billions, rel=0.03)


@pytest.mark.parametrize("name", model.names())
def test_every_catalogue_model_is_consistent(name):
    found = model.load(name)
    total, active = model.parameters(found), model.active_parameters(found)
    experts = any(isinstance(block.ffn, model.MoE) for block in found.blocks)
    assert found.name == name
    assert (active < total) if experts else (active == total)
    assert sum(model.parameters_by_group(found).values()) == total
    cited = model.document(name)[0].data.get("parameters")
    assert cited in (None, total)


def test_catalogue_is_wide_and_sourced():
    assert len(model.names()) >= 60
    assert all(source.text for name in model.names() for source in model.document(name)[1].values())


@pytest.mark.shared
@pytest.mark.skipif(not CONFIGS.is_dir(), reason="the table of configurations is not beside the checkout")
def test_published_configurations_are_counted_exactly():
    counts = json.loads((CONFIGS / "parameters.json").read_text())
    found = {}
    for name in counts:
        try:
            found[name] = model.parameters(model.load(CONFIGS / name))
        except InputError as error:
            found[name] = str(error)
    assert found == counts


@pytest.mark.shared
@pytest.mark.skipif(not CONFIGS.is_dir(), reason="the table of configurations is not beside the checkout")
@pytest.mark.parametrize("path", sorted(CONFIGS.glob("*_config.json")), ids=lambda p: p.name)
def test_catalogue_has_the_published_sizes(path):
    """The catalogue entry of a published configuration gives the same model."""
    repository = path.name.removesuffix("_config.json").replace("--", "/")
    named, read = model.load(repository), model.load(path)
    assert model.parameters(named) == model.parameters(read)
    assert named.quantization == read.quantization
    assert named.pattern == read.pattern or "Step" in repository


SHAPES = st.fixed_dictionaries(
    {
        "num_key_value_heads": st.integers(1, 16),
        "head_dim": st.integers(1, 64),
        "num_hidden_layers": st.integers(1, 8),
        "intermediate_size": st.integers(1, 512),
        "vocab_size": st.integers(1, 1000),
        "hidden_size": st.integers(1, 512),
        "tie_word_embeddings": st.booleans(),
    }
)


@settings(max_examples=50, deadline=None)
@given(shape=SHAPES, groups=st.integers(1, 4))
def test_llama_follows_its_formula(tmp_path_factory, shape, groups):
    hidden, kv, dim = shape["hidden_size"], shape["num_key_value_heads"], shape["head_dim"]
    config = {"architectures": ["LlamaForCausalLM"], "num_attention_heads": kv * groups, **shape}
    file = tmp_path_factory.mktemp("model") / "config.json"
    file.write_text(json.dumps(config))
    block = 2 * hidden * kv * dim * (groups + 1) + 3 * hidden * shape["intermediate_size"] + 2 * hidden
    outside = (1 if shape["tie_word_embeddings"] else 2) * shape["vocab_size"] * hidden + hidden
    assert model.parameters(model.load(file)) == shape["num_hidden_layers"] * block + outside
