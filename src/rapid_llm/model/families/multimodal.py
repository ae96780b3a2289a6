"""Models that wrap a decoder with a vision tower and a projector between them.

Counted is the model that transformers builds for a causal language model: the whole one, except for architectures
whose causal class is the decoder alone (Llama 4, Qwen 3.5).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from rapid_llm.model.architecture import Model, VisionTower
from rapid_llm.model.families.vision import TOWERS, audio_gemma4, linear
from rapid_llm.model.fields import Fields

Projector = Callable[[Fields, VisionTower, int], int]
"""Fields of the wrapper, its tower and the decoder's hidden size to the projector's parameters."""


def _none(f: Fields, tower: VisionTower, hidden: int) -> int:
    return 0


def _feature_layers(f: Fields) -> int:
    chosen = f.get("vision_feature_layer", -1)
    return len(chosen) if isinstance(chosen, list) else 1


def _llava(f: Fields, tower: VisionTower, hidden: int) -> int:
    bias = f.flag("multimodal_projector_bias", True)
    return linear(tower.hidden_size * _feature_layers(f), hidden, bias=bias) + linear(hidden, hidden, bias=bias)


def _llava_next(f: Fields, tower: VisionTower, hidden: int) -> int:
    return _llava(f, tower, hidden) + hidden


def _vip_llava(f: Fields, tower: VisionTower, hidden: int) -> int:
    wide = tower.hidden_size * len(f.items("vision_feature_layers") or range(5))
    return 2 * wide + linear(wide, hidden) + linear(hidden, hidden)


def _internvl(f: Fields, tower: VisionTower, hidden: int) -> int:
    wide = tower.hidden_size * int(1 / f.number("downsample_ratio", 0.5)) ** 2
    return 2 * wide + linear(wide, hidden) + linear(hidden, hidden)


def _mistral3(f: Fields, tower: VisionTower, hidden: int) -> int:
    width, bias = tower.hidden_size, f.flag("multimodal_projector_bias")
    merger = width + width * width * f.size("spatial_merge_size", 2) ** 2
    return merger + linear(width * _feature_layers(f), hidden, bias=bias) + linear(hidden, hidden, bias=bias)


def _idefics3(f: Fields, tower: VisionTower, hidden: int) -> int:
    return tower.hidden_size * f.size("scale_factor", 2) ** 2 * hidden


def _paligemma(f: Fields, tower: VisionTower, hidden: int) -> int:
    return linear(tower.hidden_size, f.size("projection_dim", 2048))


def _aya(f: Fields, tower: VisionTower, hidden: int) -> int:
    wide = tower.hidden_size * f.size("downsample_factor", 2) ** 2
    inner = f.size("alignment_intermediate_size", hidden)
    return 2 * wide + linear(wide, inner) + linear(inner // 2, hidden)


def _cohere2(f: Fields, tower: VisionTower, hidden: int) -> int:
    wide = tower.hidden_size * f.size("downsample_factor", 2) ** 2
    inner = f.size("alignment_intermediate_size", 36864)
    return linear(wide, inner) + linear(inner // 2, hidden)


def _lfm2(f: Fields, tower: VisionTower, hidden: int) -> int:
    wide, inner = tower.hidden_size * f.size("downsample_factor", 2) ** 2, f.size("projector_hidden_size", 2560)
    bias = f.flag("projector_bias", True)
    norm = 2 * wide if f.flag("projector_use_layernorm", True) else 0
    return norm + linear(wide, inner, bias=bias) + linear(inner, hidden, bias=bias)


def _gemma3(f: Fields, tower: VisionTower, hidden: int) -> int:
    return tower.hidden_size * hidden + tower.hidden_size


def _gemma4(f: Fields, tower: VisionTower, hidden: int) -> int:
    return tower.hidden_size * hidden


def _minimax_m3(f: Fields, tower: VisionTower, hidden: int) -> int:
    inner = f.size("projector_hidden_size", 6144)
    merged = hidden * (_merge(f, "spatial_merge_size") ** 2)
    return linear(tower.hidden_size, inner) + linear(inner, hidden) + linear(merged, inner) + linear(inner, hidden)


def _merge(f: Fields, name: str) -> int:
    vision = f.section("vision_config")
    return vision.size(name, 2) if vision else 2


def _kimi_k25(f: Fields, tower: VisionTower, hidden: int) -> int:
    vision = f.section("vision_config")
    rows, columns = (vision.items("merge_kernel_size", [2, 2]) if vision else None) or [2, 2]
    norm = f.size("projection_hidden_size", 1152)
    wide = tower.hidden_size * rows * columns
    return 2 * norm + linear(wide, wide) + linear(wide, hidden)


def _kimi_k3(f: Fields, tower: VisionTower, hidden: int) -> int:
    """From its fields: a norm, then two projections of the merged patches."""
    wide = tower.hidden_size * 4
    return tower.hidden_size + linear(wide, wide, bias=False) + linear(wide, hidden, bias=False)


def _mllama(f: Fields, tower: VisionTower, hidden: int) -> int:
    vision = f.section("vision_config")
    return linear(vision.size("vision_output_dim", 7680) if vision else 7680, hidden)


def _step3(f: Fields, tower: VisionTower, hidden: int) -> int:
    return linear(4 * tower.hidden_size, hidden, bias=f.flag("projector_bias"))


@dataclass(frozen=True)
class Wrapper:
    """One multimodal architecture: its parts' ``model_type`` and defaults, and where its head is tied.

    ``tied``: by the wrapper's own flag (``own``, with ``tie_default``), by it or by the decoder's (``either``), by the
    decoder's (``text``), or never. ``vision`` None counts the decoder alone. ``flat``: the decoder's fields may stand
    beside ``vision_config``. ``merge``: the field that says how many patches become one token;
    ``section``: where the decoder's fields stand.
    """

    text: str
    vision: str | None
    projector: Projector = _none
    tied: Literal["own", "either", "text", "never"] = "own"
    tie_default: bool = False
    vision_defaults: Mapping[str, Any] = field(default_factory=dict)
    flat: bool = False
    always_vision: bool = True
    merge: str = ""
    section: str = "text_config"
    allows_no_text: bool = False


_CLIP_336 = {
    "hidden_size": 1024,
    "intermediate_size": 4096,
    "patch_size": 14,
    "image_size": 336,
    "num_hidden_layers": 24,
    "num_attention_heads": 16,
}
_SIGLIP_384 = {
    "hidden_size": 1152,
    "intermediate_size": 4304,
    "patch_size": 14,
    "image_size": 384,
    "num_hidden_layers": 26,
    "num_attention_heads": 16,
    "vision_use_head": False,
}
_SIGLIP_224 = {**_SIGLIP_384, "intermediate_size": 4096, "image_size": 224, "num_hidden_layers": 27}
_SIGLIP_512 = {
    "hidden_size": 1152,
    "intermediate_size": 3072,
    "image_size": 512,
    "num_hidden_layers": 27,
    "num_attention_heads": 12,
}
WRAPPERS: dict[str, Wrapper] = {
    "llava": Wrapper("llama", "clip_vision_model", _llava, tied="either", vision_defaults=_CLIP_336),
    "llava_next": Wrapper("llama", "clip_vision_model", _llava_next, vision_defaults=_CLIP_336),
    "vipllava": Wrapper("llama", "clip_vision_model", _vip_llava, vision_defaults=_CLIP_336),
    "llava_onevision": Wrapper("qwen2", "siglip_vision_model", _llava_next, tied="either", vision_defaults=_SIGLIP_384),
    "internvl": Wrapper("qwen2", "internvl_vision", _internvl, tie_default=True, merge="downsample_ratio"),
    "internvl_chat": Wrapper(
        "qwen2", "intern_vit_6b", _internvl, tied="text", merge="downsample_ratio", section="llm_config"
    ),
    "mistral3": Wrapper(
        "mistral",
        "pixtral",
        _mistral3,
        tie_default=True,
        vision_defaults={**_CLIP_336, "image_size": 1540},
        merge="spatial_merge_size",
    ),
    "idefics3": Wrapper("llama", "idefics3_vision", _idefics3, merge="scale_factor"),
    "smolvlm": Wrapper("llama", "smolvlm_vision", _idefics3, merge="scale_factor"),
    "paligemma": Wrapper(
        "gemma",
        "siglip_vision_model",
        _paligemma,
        tie_default=True,
        vision_defaults=_SIGLIP_224,
    ),
    "aya_vision": Wrapper(
        "cohere2", "siglip_vision_model", _aya, tie_default=True, vision_defaults=_SIGLIP_384, merge="downsample_factor"
    ),
    "cohere2_vision": Wrapper(
        "cohere2",
        "siglip_vision_model",
        _cohere2,
        tie_default=True,
        vision_defaults=_SIGLIP_512,
        merge="downsample_factor",
    ),
    "lfm2_vl": Wrapper("lfm2", "siglip2_vision_model", _lfm2, tie_default=True, merge="downsample_factor"),
    "gemma3": Wrapper("gemma3_text", "siglip_vision_model", _gemma3, tie_default=True, merge="mm_tokens_per_image"),
    "gemma4": Wrapper(
        "gemma4_text", "gemma4_vision", _gemma4, tie_default=True, always_vision=False, merge="pooling_kernel_size"
    ),
    "qwen2_vl": Wrapper("qwen2_vl_text", "qwen2_vl_vision", tied="either", flat=True, merge="spatial_merge_size"),
    "qwen2_5_vl": Wrapper("qwen2_5_vl_text", "qwen2_5_vl_vision", tied="either", flat=True, merge="spatial_merge_size"),
    "qwen3_vl": Wrapper("qwen3_vl_text", "qwen3_vl_vision", merge="spatial_merge_size"),
    "qwen3_vl_moe": Wrapper("qwen3_vl_moe_text", "qwen3_vl_vision", merge="spatial_merge_size"),
    "qwen3_5": Wrapper("qwen3_5_text", None, tied="text"),
    "qwen3_5_moe": Wrapper("qwen3_5_moe_text", None, tied="text"),
    "glm4v": Wrapper("glm4v_text", "glm4v_vision", tied="either", merge="spatial_merge_size"),
    "glm4v_moe": Wrapper("glm4v_moe_text", "glm4v_vision", tied="either", merge="spatial_merge_size"),
    "glm46v": Wrapper("glm4v_text", "glm4v_vision", merge="spatial_merge_size"),
    "llama4": Wrapper("llama4_text", None, tied="text"),
    "mllama": Wrapper("mllama_text_model", "mllama_vision_model", _mllama, tied="never"),
    "minimax_m3_vl": Wrapper(
        "minimax_m3_vl_text", "minimax_m3_vl_vision", _minimax_m3, tied="either", merge="spatial_merge_size"
    ),
    "kimi_k25": Wrapper("deepseek_v3", "kimi_k25_vision", _kimi_k25, tie_default=True, merge="merged_patches"),
    "kimi_k3": Wrapper("kimi_linear", "kimi_k3_vision", _kimi_k3, merge="merged_patches"),
    "step3p7": Wrapper("step3p5", "step3p5_vision", _step3, allows_no_text=True, merge="convolved"),
}
"""By ``model_type``; parts and defaults from the configuration classes of transformers 5.24."""


def text_fields(f: Fields, wrapper: Wrapper) -> Fields:
    """The decoder's fields: ``text_config``, or the file's own where the architecture allows it.

    Step 3.7's class reads nothing but ``text_config`` and falls back to its defaults, as here.
    """
    section = f.section(wrapper.section)
    if section is not None:
        return section
    if wrapper.flat:
        return f
    if wrapper.allows_no_text:
        return Fields({}, f.document, f.path("text_config"), nested=True)
    raise f.missing(wrapper.section)


def assemble(f: Fields, wrapper: Wrapper, text: Model) -> Model:
    """The decoder with its vision tower, projector and audio encoder, and the head tied as the wrapper says."""
    tower = _vision(f, wrapper, text.hidden_size)
    audio = f.section("audio_config") if wrapper.text == "gemma4_text" else None
    extra = audio_gemma4(audio) + audio.size("output_proj_dims", 1536) * text.hidden_size if audio else 0
    own = f.flag("tie_word_embeddings", f.flag("tie_embedding", wrapper.tie_default))
    tied = {
        "own": own,
        "either": own or text.tie_word_embeddings,
        "text": text.tie_word_embeddings,
        "never": False,
    }[wrapper.tied]
    return replace(text, tie_word_embeddings=tied, vision=tower, extra_parameters=text.extra_parameters + extra)


def _vision(f: Fields, wrapper: Wrapper, hidden: int) -> VisionTower | None:
    if wrapper.vision is None:
        return None
    section = f.section("vision_config")
    if section is None and not wrapper.always_vision:
        return None
    kind = wrapper.vision
    given = section.data.get("model_type") if section else None
    if isinstance(given, str) and given in TOWERS:
        kind = given
    reader, defaults = TOWERS[kind]
    if section is None:
        section = Fields({}, f.document, f.path("vision_config"), nested=True)
        defaults = {**defaults, **wrapper.vision_defaults}
    own = section.with_defaults(defaults)
    tower = reader(own)
    total = tower.parameters + wrapper.projector(f, tower, hidden)
    return replace(tower, parameters=total, merged=_merged(f, own, tower, wrapper.merge))


def _merged(f: Fields, vision: Fields, tower: VisionTower, name: str) -> int:
    """Patches that become one token of the prompt: a square of them, or as many as leave a fixed number of tokens."""
    if name == "downsample_ratio":
        return round(1 / f.number(name, 0.5)) ** 2
    if name == "mm_tokens_per_image":
        patches = (vision.size("image_size") // tower.patch_size) ** 2
        return max(1, patches // f.size(name, 256))
    holder = f if name in f.data else vision
    return holder.size(name, _MERGES[name]) ** 2 if name else 1


_MERGES = {
    "spatial_merge_size": 2,
    "scale_factor": 2,
    "downsample_factor": 2,
    "pooling_kernel_size": 3,
    "merged_patches": 2,
    "convolved": 4,
}
"""Fields that say how wide that square is, and their defaults; the last two stand for towers without such a field."""
