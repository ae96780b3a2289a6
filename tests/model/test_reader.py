"""Reading configurations: sentences of the errors, and what is read besides counts."""

import json

import pytest

from rapid_llm import model
from rapid_llm.errors import InputError
from rapid_llm.model import huggingface

LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 100,
    "max_position_embeddings": 512,
    "rms_norm_eps": 1e-5,
    "tie_word_embeddings": False,
}


@pytest.fixture
def load(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def read(config):
        (tmp_path / "config.json").write_text(json.dumps(config))
        return model.load("config.json")

    return read


def said(load, config):
    with pytest.raises(InputError) as caught:
        load(config)
    return str(caught.value)


def without(*names, **changes):
    return {key: value for key, value in (LLAMA | changes).items() if key not in names}


SENTENCES = [
    (
        without("model_type", "num_attention_heads", architectures=["FooForCausalLM"]),
        "config.json: architecture 'FooForCausalLM' is unknown and num_attention_heads is missing; "
        "with it the file would be read as a Llama. Try base: llama-3.1-8b beside what differs, in a model YAML, or a "
        "whole config.json.",
    ),
    (
        without("model_type", architectures=["FooForCausalLM"], num_experts=8),
        "config.json: architecture 'FooForCausalLM' is unknown and num_experts says that it is not a plain decoder. "
        "Try a model YAML with a known architecture.",
    ),
    (
        {"hidden_size": 64},
        "config.json: no architecture is named and num_attention_heads is missing. Try base: llama-3.1-8b beside what "
        "differs, in a model YAML, or a whole config.json.",
    ),
    (without("hidden_size"), "config.json: hidden_size is missing; this architecture needs it."),
    (
        without("num_hidden_layers", num_hiden_layers=2),
        "config.json: num_hidden_layers is missing; this architecture needs it. Is 'num_hiden_layers' meant to be it?",
    ),
    (without(vocab_size=0), "config.json: vocab_size must be a whole number of at least 1 (got 0)."),
    (without(vocab_size="many"), "config.json: vocab_size must be a whole number of at least 0 (got 'many')."),
    (without(hidden_size=-64), "config.json: hidden_size must be a whole number of at least 0 (got -64)."),
    (without(attention_bias="no"), "config.json: attention_bias must be true or false (got 'no')."),
    (
        without(num_attention_heads=5),
        "config.json: num_attention_heads must divide hidden_size: 64 / 5 leaves 4. Or give head_dim.",
    ),
    (
        {"model_type": "gemma3", "vision_config": {}},
        "config.json: text_config is missing; this architecture needs it.",
    ),
    (
        without(model_type="deepseek_v2", kv_lora_rank=8, layer_types=[]),
        "config.json: num_experts_per_tok is missing; this architecture needs it.",
    ),
    (
        without(model_type="qwen3_moe", mlp_only_layers=3),
        "config.json: mlp_only_layers must be a list (got 3).",
    ),
    (
        without(model_type="gpt_oss", num_experts=4, num_experts_per_tok=2, layer_types=["full_attention"]),
        "config.json: layer_types has 1 items for 2 layers; it needs one for each.",
    ),
    (
        without(model_type="bert", architectures=["BertForQuestionAnswering"]),
        "config.json: architecture 'BertForQuestionAnswering' ends in a head that is not modelled. Try its class that "
        "ends in Model, which writes hidden states, or in ForMaskedLM.",
    ),
    (
        {"model_type": "whisper", "vocab_size": 10, "d_model": 64, "encoder_attention_heads": 5},
        "config.json: encoder_attention_heads must divide d_model: 64 / 5 leaves 4.",
    ),
]


@pytest.mark.parametrize(
    ("config", "sentence"), SENTENCES, ids=lambda value: value[:50] if isinstance(value, str) else ""
)
def test_error_is_one_sentence(load, config, sentence):
    assert said(load, config) == sentence


def test_a_folder_stands_for_its_config(load, tmp_path):
    assert model.parameters(load(LLAMA)) == model.parameters(model.load(tmp_path))


def test_a_folder_without_one_says_so(tmp_path):
    with pytest.raises(InputError) as caught:
        model.load(tmp_path)
    assert caught.value.message == ("is a folder without a config.json. Try the path of a config.json or a model YAML.")


def test_an_unknown_name_has_the_nearest_one():
    with pytest.raises(InputError) as caught:
        model.load("lama-3.1-70b")
    assert str(caught.value) == (
        "model 'lama-3.1-70b' is not in the catalogue. Did you mean 'llama-3.1-70b'? See: rapid-llm list models"
    )


def test_a_catalogue_name_wins_over_a_folder_of_that_name(tmp_path, monkeypatch):
    (tmp_path / "llama-2-7b").mkdir()
    monkeypatch.chdir(tmp_path)
    assert model.load("llama-2-7b").num_hidden_layers == 32


@pytest.mark.parametrize("name", ["", "x" * 5000, "a/b", "\0", "no/such/folder", "missing.json", "missing.yaml"])
def test_no_name_brings_a_traceback(name):
    with pytest.raises(InputError):
        model.load(name)


def test_aliases_are_hugging_face_names():
    assert model.load("meta-llama/Llama-3.1-70B-Instruct").name == "llama-3.1-70b"


def test_a_yaml_may_start_from_a_catalogue_model(tmp_path):
    file = tmp_path / "short.yaml"
    file.write_text("base: llama-3.1-70b\nnum_hidden_layers: 4\n")
    short = model.load(file)
    assert (short.name, short.num_hidden_layers, short.hidden_size) == ("short", 4, 8192)


BERT = {
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 128,
    "vocab_size": 100,
    "max_position_embeddings": 32,
}


@pytest.mark.parametrize(
    ("architecture", "head", "pooler", "labels"),
    [
        ("BertModel", "none", True, 0),
        ("BertForMaskedLM", "masked", False, 0),
        ("BertForPreTraining", "masked", True, 2),
        ("BertForSequenceClassification", "none", True, 3),
        ("DistilBertModel", "none", False, 0),
    ],
)
def test_the_class_of_an_encoder_says_what_stands_behind_it(load, architecture, head, pooler, labels):
    named = {"id2label": {"0": "a", "1": "b", "2": "c"}} if labels == 3 else {}
    found = load({"architectures": [architecture], **BERT, "hidden_dim": 128, **named})
    assert (found.head, found.pooler, found.labels) == (head, pooler, labels)
    assert not found.writes
    assert found.kind == "encoder"


def test_windows_of_modernbert_stand_on_two_of_three_layers():
    found = model.load("modernbert-base")
    windows = [found.blocks[kind].mixer.sliding_window for kind in found.pattern]
    assert windows[:4] == [None, 128, 128, None]
    assert not any(block.mixer.causal for block in found.blocks)


def test_both_sides_of_t5_are_read(load):
    shape = {"d_model": 64, "d_kv": 8, "d_ff": 128, "num_layers": 3, "num_decoder_layers": 2, "num_heads": 4}
    found = load({"model_type": "t5", **shape, "vocab_size": 100, "feed_forward_proj": "gated-gelu"})
    assert (found.encoder.num_hidden_layers, found.num_hidden_layers) == (3, 2)
    assert found.blocks[0].cross.head_dim == 8
    assert found.blocks[0].mixer.causal
    assert not found.encoder.blocks[0].mixer.causal
    alone = load({"architectures": ["T5EncoderModel"], **shape, "vocab_size": 100, "feed_forward_proj": "gated-gelu"})
    assert (alone.kind, alone.encoder) == ("encoder", None)


def test_an_unknown_plain_decoder_is_read_as_a_llama(load):
    plain = load(without("model_type", architectures=["FooForCausalLM"]))
    assert model.parameters(plain) == model.parameters(load(LLAMA))


def test_the_architecture_counts_where_the_model_type_is_unknown(load):
    assert model.parameters(load(LLAMA | {"model_type": "foo"})) == model.parameters(load(LLAMA))


@pytest.mark.parametrize(
    ("config", "name"),
    [
        ({"quant_method": "fp8"}, "fp8"),
        ({"quant_method": "mxfp4"}, "mxfp4"),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, "nvfp4"),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4", "ignore": ["model.layers.0.self_attn*"]}, "nvfp4-experts"),
        ({"quant_method": "awq", "bits": 4}, "int4"),
        ({"quant_method": "compressed-tensors", "bits": 4, "ignore": ["re:.*self_attn.*"]}, "int4-experts"),
        ({"quant_method": "gptq", "bits": 8}, "int8"),
        ({"quant_method": "compressed-tensors", "format": "mxfp4-pack-quantized"}, "mxfp4"),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True}, "int4"),
        (None, None),
    ],
)
def test_quantisation_of_the_checkpoint(load, config, name):
    assert load(LLAMA | {"quantization_config": config}).quantization == name


def test_windows_stand_on_their_layers(load):
    gemma = model.load("gemma-2-9b")
    windows = [gemma.blocks[i].mixer.sliding_window for i in gemma.pattern]
    assert windows[:4] == [4096, None, 4096, None]


def test_hybrids_keep_the_order_of_their_layers():
    jamba = model.load("jamba-v0.1")
    kinds = [jamba.blocks[i].mixer.kind for i in jamba.pattern]
    assert kinds.count("attention") == 4
    assert kinds[4] == "attention"


def test_models_hash_by_value():
    first, second = model.load("deepseek-v3"), model.load("deepseek-r1")
    assert first != second
    assert hash(first.blocks) == hash(second.blocks)


def test_searched_blocks_drop_and_thin_parts(load):
    """Llama-Nemotron: a grouped attention, one replaced by a projection, and a block without feed-forward part."""
    blocks = [
        {"attention": {"n_heads_in_group": 2}, "ffn": {"ffn_mult": 4.0}},
        {"attention": {"replace_with_linear": True}, "ffn": {"no_op": True}},
    ]
    found = load(
        {**LLAMA, "architectures": ["DeciLMForCausalLM"], "model_type": "nemotron-nas", "block_configs": blocks}
    )
    full = 2 * 64 * 64 + 2 * 64 * 32 + 3 * 64 * 256 + 2 * 64
    assert model.parameters(found) == full + (64 * 64 + 64) + 2 * 100 * 64 + 64


def test_a_field_that_a_file_leaves_out_is_what_its_class_says(load):
    """Qwen2MoeConfig of transformers: 60 experts."""
    config = {**LLAMA, "architectures": ["Qwen2MoeForCausalLM"], "model_type": "qwen2_moe"}
    assert load(config) == load({**config, "num_experts": 60})
    assert load(config) != load({**config, "num_experts": 59})


def test_every_file_of_defaults_belongs_to_a_class_that_is_read():
    assert set(huggingface.DEFAULTS.names()) <= set(huggingface.CLASSES.values())


def test_a_slip_in_a_field_beside_a_base_is_not_passed_over(tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_text("base: llama-3.1-8b\nhiden_size: 4096\n")
    with pytest.raises(InputError, match=r"unknown field 'hiden_size'. Did you mean 'hidden_size'\?"):
        model.load(file)
    file.write_text("base: llama-3.1-8b\nnum_kv_heads: 8\ntransformers_version: 5.0\nsliding_window: null\n")
    assert model.load(file).hidden_size == 4096
