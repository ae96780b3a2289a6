"""Which family reads a Hugging Face ``config.json``, or the same fields in YAML."""

from collections.abc import Callable

from rapid_llm.documents import Document
from rapid_llm.model.architecture import Model
from rapid_llm.model.families import classic, deepseek, encoders, gemma, hybrid, llama, moe, vision
from rapid_llm.model.families.multimodal import WRAPPERS, Wrapper, assemble, text_fields
from rapid_llm.model.fields import Fields
from rapid_llm.provenance import Catalogue

Reader = Callable[[Fields], Model]


def _heads(names: str, *more: str) -> str:
    """Class names of encoders: hidden states, masked words, a classifier."""
    heads = ("Model", "ForMaskedLM", "ForSequenceClassification", *(f"For{one}" for one in more))
    return " ".join(name + head for name in names.split() for head in heads)


_FAMILIES: tuple[tuple[Reader, str, str], ...] = (
    (classic.gpt2, "gpt2 gpt-sw3", "GPT2LMHeadModel"),
    (classic.gpt_bigcode, "gpt_bigcode", "GPTBigCodeForCausalLM"),
    (classic.gpt_neo, "gpt_neo", "GPTNeoForCausalLM"),
    (classic.gpt_neox, "gpt_neox", "GPTNeoXForCausalLM"),
    (classic.gptj, "gptj", "GPTJForCausalLM"),
    (classic.gptj, "codegen", "CodeGenForCausalLM"),
    (classic.opt, "opt", "OPTForCausalLM"),
    (classic.opt, "biogpt", "BioGptForCausalLM"),
    (classic.nemotron, "jais2", "Jais2ForCausalLM"),
    (classic.bloom, "bloom", "BloomForCausalLM"),
    (classic.mpt, "mpt", "MptForCausalLM MPTForCausalLM"),
    (classic.falcon, "falcon RefinedWeb RefinedWebModel", "FalconForCausalLM RWForCausalLM"),
    (classic.starcoder2, "starcoder2", "Starcoder2ForCausalLM"),
    (classic.phi, "phi", "PhiForCausalLM"),
    (classic.nemotron, "nemotron", "NemotronForCausalLM"),
    (classic.persimmon, "persimmon", "PersimmonForCausalLM"),
    (classic.stablelm, "stablelm", "StableLmForCausalLM"),
    (llama.llama, "llama Yi", "LlamaForCausalLM YiForCausalLM LLaMAForCausalLM"),
    (llama.llama, "minicpm", "MiniCPMForCausalLM"),
    (llama.llama, "iquestcoder", ""),
    (llama.chatglm, "chatglm", "ChatGLMModel ChatGLMForConditionalGeneration"),
    (llama.qwen2, "mimo", "MiMoForCausalLM"),
    (llama.llama, "granite", "GraniteForCausalLM"),
    (llama.llama, "exaone", "ExaoneForCausalLM"),
    (llama.llama, "cwm", "CwmForCausalLM"),
    (llama.llama, "internlm3", "InternLM3ForCausalLM"),
    (llama.deci, "nemotron-nas deci", "DeciLMForCausalLM"),
    (llama.mllama, "mllama_text_model", "MllamaForCausalLM"),
    (llama.mistral, "mistral", "MistralForCausalLM"),
    (llama.ministral, "ministral", "MinistralForCausalLM"),
    (llama.mistral, "ministral3", "Ministral3ForCausalLM"),
    (llama.qwen, "qwen", "QWenLMHeadModel"),
    (llama.qwen2, "qwen2", "Qwen2ForCausalLM"),
    (llama.qwen2, "qwen2_vl_text", ""),
    (llama.qwen2, "qwen2_5_vl_text", ""),
    (llama.qwen3, "qwen3", "Qwen3ForCausalLM"),
    (llama.qwen3, "qwen3_vl_text", ""),
    (llama.mistral, "phi3", "Phi3ForCausalLM"),
    (llama.glm, "glm", "GlmForCausalLM"),
    (llama.glm4, "glm4", "Glm4ForCausalLM"),
    (llama.glm4, "glm4v_text", ""),
    (llama.cohere, "cohere", "CohereForCausalLM"),
    (llama.cohere2, "cohere2", "Cohere2ForCausalLM"),
    (llama.olmo, "olmo", "OlmoForCausalLM"),
    (llama.olmo2, "olmo2", "Olmo2ForCausalLM"),
    (llama.olmo2, "olmo3", "Olmo3ForCausalLM"),
    (llama.smollm3, "smollm3", "SmolLM3ForCausalLM"),
    (llama.seed_oss, "seed_oss", "SeedOssForCausalLM"),
    (llama.arcee, "arcee", "ArceeForCausalLM"),
    (llama.apertus, "apertus", "ApertusForCausalLM"),
    (llama.exaone4, "exaone4", "Exaone4ForCausalLM"),
    (llama.ernie, "ernie4_5", "Ernie4_5ForCausalLM"),
    (llama.hunyuan, "hunyuan_v1_dense", "HunYuanDenseV1ForCausalLM"),
    (llama.internlm2, "internlm internlm2", "InternLMForCausalLM InternLM2ForCausalLM"),
    (llama.baichuan, "baichuan", "BaichuanForCausalLM BaiChuanForCausalLM"),
    (llama.bitnet, "bitnet", "BitNetForCausalLM"),
    (gemma.gemma, "gemma", "GemmaForCausalLM"),
    (gemma.gemma2, "gemma2", "Gemma2ForCausalLM"),
    (gemma.gemma3, "gemma3_text", "Gemma3ForCausalLM"),
    (gemma.gemma3n, "gemma3n_text", "Gemma3nForCausalLM"),
    (gemma.gemma4, "gemma4_text", "Gemma4ForCausalLM"),
    (moe.mixtral, "mixtral", "MixtralForCausalLM"),
    (moe.phimoe, "phimoe", "PhimoeForCausalLM PhiMoEForCausalLM"),
    (moe.qwen2_moe, "qwen2_moe", "Qwen2MoeForCausalLM"),
    (moe.qwen3_moe, "qwen3_moe", "Qwen3MoeForCausalLM"),
    (moe.qwen3_moe, "qwen3_vl_moe_text", ""),
    (moe.olmoe, "olmoe", "OlmoeForCausalLM"),
    (moe.olmoe, "flex_olmo", "FlexOlmoForCausalLM"),
    (moe.granite_moe, "granitemoe", "GraniteMoeForCausalLM"),
    (moe.granite_moe, "granitemoeshared", "GraniteMoeSharedForCausalLM"),
    (moe.gpt_oss, "gpt_oss", "GptOssForCausalLM"),
    (moe.glm4_moe, "glm4_moe", "Glm4MoeForCausalLM"),
    (moe.glm4_moe, "glm4v_moe_text", ""),
    (moe.glm4_moe, "solar_open", "SolarOpenForCausalLM"),
    (moe.qwen3_moe, "mellum", "MellumForCausalLM"),
    (moe.glm4_moe, "sarvam_moe", ""),
    (moe.deepseek_moe, "deepseek", "DeepseekForCausalLM"),
    (moe.bailing, "bailing_moe bailing_moe_v2", "BailingMoeForCausalLM BailingMoeV2ForCausalLM"),
    (moe.dots1, "dots1", "Dots1ForCausalLM"),
    (moe.ernie_moe, "ernie4_5_moe", "Ernie4_5_MoeForCausalLM"),
    (moe.hunyuan_moe, "hunyuan_v1_moe", "HunYuanMoEV1ForCausalLM"),
    (moe.minimax_m2, "minimax_m2", "MiniMaxM2ForCausalLM"),
    (moe.minimax_m3, "minimax_m3_vl_text minimax_m3", "MiniMaxM3VLForCausalLM MiniMaxM3ForCausalLM"),
    (moe.mimo_v2, "mimo_v2_flash", "MiMoV2FlashForCausalLM"),
    (moe.step3, "step3p5", "Step3p5ForCausalLM"),
    (moe.exaone_moe, "exaone_moe", "ExaoneMoeForCausalLM"),
    (moe.hy_v3, "hy_v3", "HYV3ForCausalLM"),
    (moe.afmoe, "afmoe", "AfmoeForCausalLM"),
    (moe.llama4, "llama4_text", "Llama4ForCausalLM"),
    (moe.dbrx, "dbrx", "DbrxForCausalLM"),
    (moe.cohere2_moe, "cohere2_moe", "Cohere2MoeForCausalLM"),
    (deepseek.deepseek, "deepseek_v2", "DeepseekV2ForCausalLM"),
    (deepseek.deepseek, "deepseek_v3 kimi_k2", "DeepseekV3ForCausalLM"),
    (deepseek.deepseek, "mistral4", "Mistral4ForCausalLM"),
    (deepseek.deepseek_v32, "deepseek_v32", "DeepseekV32ForCausalLM"),
    (deepseek.deepseek_v4, "deepseek_v4", "DeepseekV4ForCausalLM"),
    (deepseek.glm_dsa, "glm_moe_dsa", "GlmMoeDsaForCausalLM"),
    (deepseek.glm4_lite, "glm4_moe_lite", "Glm4MoeLiteForCausalLM"),
    (deepseek.deepseek, "sarvam_mla", ""),
    (deepseek.minicpm3, "youtu", "YoutuForCausalLM"),
    (deepseek.minicpm3, "minicpm3", "MiniCPM3ForCausalLM"),
    (deepseek.longcat, "longcat_flash", "LongcatFlashForCausalLM"),
    (hybrid.qwen3_next, "qwen3_next", "Qwen3NextForCausalLM"),
    (hybrid.qwen35, "qwen3_5_text", "Qwen3_5ForCausalLM"),
    (hybrid.qwen35_moe, "qwen3_5_moe_text", "Qwen3_5MoeForCausalLM"),
    (hybrid.olmo_hybrid, "olmo_hybrid", "OlmoHybridForCausalLM"),
    (hybrid.kimi_linear, "kimi_linear", "KimiLinearForCausalLM"),
    (hybrid.minimax, "minimax", "MiniMaxForCausalLM"),
    (hybrid.minimax, "minimax_text_01 minimax_m1", "MiniMaxText01ForCausalLM MiniMaxM1ForCausalLM"),
    (hybrid.granite_hybrid, "granitemoehybrid", "GraniteMoeHybridForCausalLM"),
    (hybrid.bamba, "bamba", "BambaForCausalLM"),
    (hybrid.falcon_h1, "falcon_h1", "FalconH1ForCausalLM"),
    (hybrid.jamba, "jamba", "JambaForCausalLM"),
    (hybrid.mamba1, "mamba", "MambaForCausalLM"),
    (hybrid.mamba1, "falcon_mamba", "FalconMambaForCausalLM"),
    (hybrid.mamba2, "mamba2", "Mamba2ForCausalLM"),
    (hybrid.nemotron_h, "nemotron_h", "NemotronHForCausalLM"),
    (vision.vit, "vit", "ViTForImageClassification ViTModel"),
    (encoders.bert, "bert", _heads("Bert", "PreTraining")),
    (encoders.bert, "roberta xlm-roberta camembert", _heads("Roberta XLMRoberta Camembert")),
    (encoders.bert, "ernie megatron-bert data2vec-text", _heads("Ernie MegatronBert")),
    (encoders.bert, "xlm-roberta-xl", _heads("XLMRobertaXL")),
    (encoders.mpnet, "mpnet", _heads("MPNet")),
    (encoders.nomic, "nomic_bert", _heads("NomicBert")),
    (encoders.gte, "gte new", _heads("Gte New")),
    (encoders.distilbert, "distilbert", _heads("DistilBert")),
    (encoders.modernbert, "modernbert", _heads("ModernBert")),
    (encoders.eurobert, "eurobert", _heads("EuroBert")),
    (encoders.t5, "t5", "T5ForConditionalGeneration T5EncoderModel T5WithLMHeadModel"),
    (encoders.t5, "mt5", "MT5ForConditionalGeneration MT5EncoderModel"),
    (encoders.umt5, "umt5", "UMT5ForConditionalGeneration UMT5EncoderModel"),
    (encoders.bart, "bart", "BartForConditionalGeneration BartModel"),
    (encoders.mbart, "mbart", "MBartForConditionalGeneration"),
    (encoders.pegasus, "pegasus", "PegasusForConditionalGeneration"),
    (encoders.marian, "marian", "MarianMTModel"),
    (encoders.m2m, "m2m_100", "M2M100ForConditionalGeneration"),
    (encoders.whisper, "whisper", "WhisperForConditionalGeneration"),
    (hybrid.lfm2, "lfm2", "Lfm2ForCausalLM"),
    (hybrid.lfm2, "lfm2_moe", "Lfm2MoeForCausalLM"),
)
"""Reader, values of ``model_type`` (the first names the defaults), class names in ``architectures``."""

READERS: dict[str, Reader] = {kind: reader for reader, kinds, _ in _FAMILIES for kind in kinds.split()}
CLASSES: dict[str, str] = {kind: kinds.split()[0] for _, kinds, _ in _FAMILIES for kind in kinds.split()}
"""``model_type`` to the one whose configuration class gives the defaults."""
DEFAULTS = Catalogue("rapid_llm.model", "defaults", "configuration class")
"""What a field is where a file leaves it out, by ``model_type``: only fields that change a count or a shape, and only
values other than null and false."""
ARCHITECTURES: dict[str, str] = {name: kinds.split()[0] for _, kinds, names in _FAMILIES for name in names.split()}
"""Class name in ``architectures`` to ``model_type``."""

_WRAPPER_CLASSES = {
    "LlavaForConditionalGeneration": "llava",
    "LlavaNextForConditionalGeneration": "llava_next",
    "VipLlavaForConditionalGeneration": "vipllava",
    "LlavaOnevisionForConditionalGeneration": "llava_onevision",
    "InternVLForConditionalGeneration": "internvl",
    "InternVLChatModel": "internvl_chat",
    "Mistral3ForConditionalGeneration": "mistral3",
    "Idefics3ForConditionalGeneration": "idefics3",
    "SmolVLMForConditionalGeneration": "smolvlm",
    "PaliGemmaForConditionalGeneration": "paligemma",
    "AyaVisionForConditionalGeneration": "aya_vision",
    "Cohere2VisionForConditionalGeneration": "cohere2_vision",
    "Lfm2VlForConditionalGeneration": "lfm2_vl",
    "Gemma3ForConditionalGeneration": "gemma3",
    "Gemma4ForConditionalGeneration": "gemma4",
    "Qwen2VLForConditionalGeneration": "qwen2_vl",
    "Qwen2_5_VLForConditionalGeneration": "qwen2_5_vl",
    "Qwen3VLForConditionalGeneration": "qwen3_vl",
    "Qwen3VLMoeForConditionalGeneration": "qwen3_vl_moe",
    "Qwen3_5ForConditionalGeneration": "qwen3_5",
    "Qwen3_5MoeForConditionalGeneration": "qwen3_5_moe",
    "Glm4vForConditionalGeneration": "glm4v",
    "Glm4vMoeForConditionalGeneration": "glm4v_moe",
    "Glm46VForConditionalGeneration": "glm46v",
    "Llama4ForConditionalGeneration": "llama4",
    "MllamaForConditionalGeneration": "mllama",
    "MiniMaxM3SparseForConditionalGeneration": "minimax_m3_vl",
    "Kimi_K25ForConditionalGeneration": "kimi_k25",
    "KimiK25ForConditionalGeneration": "kimi_k25",
    "KimiK3ForConditionalGeneration": "kimi_k3",
    "Step3p7ForConditionalGeneration": "step3p7",
    "Step3p7FlashForCausalLM": "step3p7",
}
"""Class name in ``architectures`` of multimodal models to ``model_type``."""

_NEEDED = (
    "num_attention_heads",
    "num_key_value_heads",
    "hidden_size",
    "num_hidden_layers",
    "intermediate_size",
    "vocab_size",
    "rms_norm_eps",
    "tie_word_embeddings",
)
"""Fields of a Llama-like decoder; with all of them an unknown architecture is read as one."""

_NOT_LLAMA = (
    "alibi",
    "audio",
    "block_configs",
    "conv_",
    "cross_",
    "expert",
    "linear_",
    "lora",
    "mamba",
    "moe",
    "parallel",
    "qk_layernorm",
    "qk_norm",
    "ssm",
    "vision",
)
"""Words in the name of a field that tell of another kind of model."""


def model_type(fields: Fields) -> str | None:
    """The family of a configuration: its ``model_type`` if known, else that of its first known architecture."""
    given = fields.data.get("model_type")
    if isinstance(given, str) and (given in READERS or given in WRAPPERS):
        return given
    known = {**ARCHITECTURES, **_WRAPPER_CLASSES}
    return next((known[a] for a in _architectures(fields) if a in known), None)


def _architectures(fields: Fields) -> list[str]:
    given = fields.data.get("architectures") or fields.data.get("architecture") or []
    return [str(a) for a in given] if isinstance(given, list) else [str(given)]


def read(fields: Fields) -> Model:
    """Read one configuration; InputError if its architecture is unknown or a field is missing or wrong."""
    family = model_type(fields)
    if family is None:
        return _unknown(fields)
    if family in WRAPPERS:
        return _wrapped(fields, WRAPPERS[family])
    return _read_family(family, fields)


def _read_family(family: str, fields: Fields) -> Model:
    kind = CLASSES[family]
    defaults = DEFAULTS.document(kind).data if kind in DEFAULTS.names() else {}
    return READERS[family](fields.with_defaults(defaults))


def _wrapped(fields: Fields, wrapper: Wrapper) -> Model:
    text = text_fields(fields, wrapper)
    given = text.data.get("model_type")
    kind = given if isinstance(given, str) and given in READERS else wrapper.text
    return assemble(fields, wrapper, _read_family(kind, text))


def _unknown(fields: Fields) -> Model:
    """Read an unknown architecture as a Llama if it has all fields of a Llama and no others."""
    name = (_architectures(fields) or [str(fields.data.get("model_type") or "")])[0]
    unknown = f"architecture '{name}' is unknown" if name else "no architecture is named"
    missing = [needed for needed in _NEEDED if not fields.has(needed)]
    if missing:
        what = f"{missing[0]} is missing"
        alike = [one for *_, classes in _FAMILIES for one in classes.split() if one.lower() == name.lower()]
        if alike:
            raise fields.error(f"{unknown}. Did you mean '{alike[0]}'?", "architectures")
        instead = "base: llama-3.1-8b beside what differs, in a model YAML, or a whole config.json"
        plain = "; with it the file would be read as a Llama" if name else ""
        raise fields.error(f"{unknown} and {what}{plain}. Try {instead}.", "architectures")
    foreign = next((f for f, v in fields.data.items() if v and any(w in f for w in _NOT_LLAMA)), None)
    if foreign is not None:
        raise fields.error(
            f"{unknown} and {foreign} says that it is not a plain decoder. Try a model YAML with a known architecture.",
            "architectures",
        )
    return llama.llama(fields)


def read_document(document: Document) -> Model:
    """The model of a ``config.json`` or of a catalogue file."""
    return read(Fields(document.data, document))
