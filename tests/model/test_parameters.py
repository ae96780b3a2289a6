"""Exact parameter counts."""

import json
from importlib import resources
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rapid_llm import model
from rapid_llm.documents import read_yaml
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
    "deepseek-v4-pro": 1_572_997_179_491,
    "falcon-h1-34b": 33_642_221_312,
    "gemma-3n-e4b": 6_835_235_568,
    "gemma-4-31b": 31_273_086_512,
    "gemma-4-e2b": 4_628_569_344,
    "glm-4.7-flash": 29_943_390_976,
    "granite-4.0-h-small": 32_207_337_984,
    "granite-4.0-micro": 3_402_836_480,
    "kimi-k2.5": 1_026_879_353_328,
    "lfm2-8b-a1b": 8_339_929_856,
    "ministral-3-14b": 13_945_031_680,
    "mistral-large-3-675b": 673_421_089_792,
    "mistral-small-4-119b": 118_972_826_624,
    "nemotron-3-super-120b-a12b": 120_668_687_360,
    "nemotron-3-ultra-550b-a55b": 549_308_968_960,
    "nemotron-h-47b": 46_791_554_816,
    "nemotron-nano-12b-v2": 12_310_001_152,
    "nemotron-nano-9b-v2": 8_888_227_328,
    "qwen3-vl-235b-a22b": 235_670_022_896,
    "qwen3.5-9b": 8_953_803_264,
}
# Encoders, and decoders that read one, as the class that the file names; published as 110M and 340M (Devlin et al.
# 2018, table 1, which rounds), 406M (BART), 737.7M to 11.3B (T5), 1.54B (Whisper), 3.3B (NLLB), 10.7B (Llama 3.2).
TRANSFORMERS |= {
    "bert-base": 109_514_298,
    "bert-large": 335_174_458,
    "roberta-large": 355_412_057,
    "xlm-roberta-large": 560_142_482,
    "distilbert-base": 66_985_530,
    "modernbert-base": 149_655_232,
    "modernbert-large": 395_881_664,
    "bge-large-en-v1.5": 335_141_888,
    "bge-m3": 567_754_752,
    "bge-reranker-v2-m3": 567_755_777,
    "all-minilm-l6-v2": 22_713_216,
    "t5-large": 737_668_096,
    "t5-3b": 2_851_598_336,
    "t5-11b": 11_307_321_344,
    "t5-v1.1-xxl-encoder": 4_762_310_656,
    "bart-base": 139_420_416,
    "bart-large": 406_291_456,
    "mbart-large-50": 610_879_488,
    "pegasus-large": 570_797_056,
    "nllb-200-3.3b": 3_344_863_232,
    "whisper-small": 241_734_912,
    "whisper-large-v3": 1_543_490_560,
    "whisper-large-v3-turbo": 808_878_080,
    "nomic-embed-text-v1.5": 136_731_648,
    "gte-multilingual-base": 305_368_320,
    "all-mpnet-base-v2": 109_486_464,
    "llama-3.2-11b-vision": 10_670_220_835,
    "llama-3.2-90b-vision": 88_593_355_323,
}
# Source: safetensors metadata of the checkpoints on huggingface.co. Flan-T5 and mT5 have a head of their own, which the
# class of transformers 5 ties to the embedding whatever a file says: its counts and 32,128 x d (mT5: 250,112 x d) more.
CHECKPOINTS = {
    "flan-t5-base": 222_903_552 + 32_128 * 768,
    "flan-t5-large": 783_150_080,
    "flan-t5-xl": 2_849_757_184,
    "flan-t5-xxl": 11_135_332_352,
    "mt5-xxl": 11_896_598_528 + 250_112 * 4096,
    "baichuan2-13b": 13_896_668_160,
    "codellama-34b": 33_743_970_304,
    "dbrx": 131_596_523_520,
    "internlm2-20b": 19_861_149_696,
    "smollm2-1.7b": 1_711_376_384,
    "tinyllama-1.1b": 1_100_048_384,
}
# Computed from the configurations as the catalogue has them, and compared with no implementation: these hold what is
# counted today, so that a change of a reader does not move them unseen.
COMPUTED = {
    "chatglm3-6b": 6_243_584_000,
    "deepseek-moe-16b": 16_375_728_128,
    "embeddinggemma-300m": 302_863_104,
    "internvl2.5-8b": 8_075_365_376,
    "internvl3-8b": 7_944_373_760,
    "ling-mini-2.0": 16_255_643_392,
    "minicpm-2b": 2_724_880_896,
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


@pytest.mark.parametrize(("name", "count"), COMPUTED.items())
def test_count_stays(name, count):
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


def test_repositories_of_other_formats_are_not_names_of_a_model_in_16_bits():
    """A name such as GLM-4.7-FP8 means the checkpoint, whose bytes a job in 16 bits has twice."""
    words = ("-fp8", "-nvfp4", "-mxfp4", "-awq", "-gptq", "-int4")
    for name in model.names():
        fields = read_yaml(Path(str(resources.files("rapid_llm.model"))) / "data" / f"{name}.yaml").data
        if any(alias.lower().endswith(words) for alias in fields.get("aliases") or ()):
            assert model.load(name).quantization is not None, name


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


def test_bert_base_by_hand():
    """Embeddings (30,522 + 512 + 2) x 768 and their norm, 12 layers of 4 (768^2 + 768) + 2 x 768 x 3,072 + 3,072 + 768
    and two norms; the masked head adds a dense layer, a norm and a bias a word."""
    layer = 4 * (768**2 + 768) + 2 * 768 * 3072 + 3072 + 768 + 4 * 768
    around = (30_522 + 512 + 2) * 768 + 2 * 768
    head = 768**2 + 768 + 2 * 768 + 30_522
    assert model.parameters(model.load("bert-base")) == around + 12 * layer + head


def test_t5_11b_by_hand():
    """24 layers a side: 4 x 1,024 x 128 x 128 of attention, as much of cross attention, 2 x 1,024 x 65,536 of
    feed-forward part, a norm each; one table of 32,128 x 1,024; 32 distances x 128 heads a side and two last norms."""
    attention, ffn = 4 * 1024 * 128 * 128, 2 * 1024 * 65_536
    below, above = attention + ffn + 2 * 1024, 2 * attention + ffn + 3 * 1024
    assert model.parameters(model.load("t5-11b")) == 24 * (below + above) + 32_128 * 1024 + 2 * (32 * 128 + 1024)


def test_whisper_large_v3_by_hand():
    """Two convolutions over three frames of 128 bins and of 1,280, tables of 1,500 and 448 positions; keys have no
    bias."""
    d, ffn = 1280, 2 * 1280 * 5120 + 5120 + 1280
    attention = 4 * d * d + 3 * d
    below, above = attention + ffn + 4 * d, 2 * attention + ffn + 6 * d
    sound = 3 * 128 * d + d + 3 * d * d + d
    around = sound + (1500 + 448 + 51_866) * d + 2 * 2 * d
    assert model.parameters(model.load("whisper-large-v3")) == 32 * (below + above) + around


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
