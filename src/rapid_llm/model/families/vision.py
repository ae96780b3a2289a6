"""Vision encoders, counted exactly. A tower's total leaves out its projector, which ``multimodal`` adds."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from rapid_llm.model.architecture import Block, Model, VisionTower
from rapid_llm.model.families.parts import decoder, gqa, mlp
from rapid_llm.model.fields import Fields


def linear(inputs: int, outputs: int, *, bias: bool = True) -> int:
    """Parameters of one projection."""
    return inputs * outputs + (outputs if bias else 0)


def _layer(
    width: int,
    inner: int,
    *,
    qkv_bias: bool = True,
    out_bias: bool = True,
    mlp_bias: bool = True,
    gated: bool = False,
    norm_bias: bool = True,
    norms: int = 2,
    extra: int = 0,
) -> int:
    """Parameters of one encoder layer; ``extra`` counts what is not there in a plain one."""
    attention = 3 * linear(width, width, bias=qkv_bias) + linear(width, width, bias=out_bias)
    mlp = (2 if gated else 1) * linear(width, inner, bias=mlp_bias) + linear(inner, width, bias=mlp_bias)
    return attention + mlp + norms * width * (2 if norm_bias else 1) + extra


def _tower(f: Fields, *, inner: int, layer: int, around: int, depth: str = "num_hidden_layers") -> VisionTower:
    layers = f.size(depth)
    return VisionTower(
        layers=layers,
        hidden_size=f.size("hidden_size"),
        intermediate_size=inner,
        num_attention_heads=f.size("num_attention_heads"),
        patch_size=_side(f, "patch_size"),
        parameters=layers * layer + around,
    )


def _side(f: Fields, name: str) -> int:
    """Width of a square that is written as one number or as two."""
    sides = f.whole_numbers(name) if isinstance(f.get(name), list) else [f.size(name)]
    if not sides or not sides[0]:
        raise f.error(f"{f.path(name)} must be a whole number of at least 1, or two of them.", name)
    return sides[0]


def _patches(f: Fields) -> int:
    return (_side(f, "image_size") // _side(f, "patch_size")) ** 2


def _patch_embedding(f: Fields, width: int, *, bias: bool, channels: str = "num_channels") -> int:
    depth = f.size("temporal_patch_size", 1)
    return linear(f.size(channels, 3) * depth * _side(f, "patch_size") ** 2, width, bias=bias)


def clip(f: Fields) -> VisionTower:
    """CLIP: a class token, norms before and behind."""
    width, inner = f.size("hidden_size"), f.size("intermediate_size")
    around = width + _patch_embedding(f, width, bias=False) + (_patches(f) + 1) * width + 4 * width
    return _tower(f, inner=inner, layer=_layer(width, inner), around=around)


def siglip(f: Fields) -> VisionTower:
    """SigLIP (2: with ``num_patches`` positions), with its pooling head unless ``vision_use_head`` is false."""
    width, inner = f.size("hidden_size"), f.size("intermediate_size")
    positions = f.integer("num_patches", None) or _patches(f)
    around = _patch_embedding(f, width, bias=True) + positions * width + 2 * width
    if f.flag("vision_use_head", True):
        around += width + 4 * linear(width, width) + 2 * width + linear(width, inner) + linear(inner, width)
    return _tower(f, inner=inner, layer=_layer(width, inner), around=around)


def idefics(f: Fields) -> VisionTower:
    """Idefics 3 and SmolVLM: SigLIP without the head."""
    return siglip(replace(f, data={**f.data, "vision_use_head": False}))


def pixtral(f: Fields) -> VisionTower:
    """Pixtral: RMSNorm, gated, no biases, rotary positions."""
    width, inner = f.size("hidden_size"), f.size("intermediate_size")
    layer = _layer(width, inner, qkv_bias=False, out_bias=False, mlp_bias=False, gated=True, norm_bias=False)
    return _tower(f, inner=inner, layer=layer, around=_patch_embedding(f, width, bias=False) + width)


def internvl(f: Fields) -> VisionTower:
    """InternViT: layer scales, optional query and key norms."""
    width, inner = f.size("hidden_size"), f.size("intermediate_size")
    norm_bias = f.get("norm_type", "layer_norm") != "rms_norm"
    scales = 2 * width + (2 * width if f.flag("use_qk_norm") else 0)
    layer = _layer(width, inner, qkv_bias=f.flag("attention_bias"), norm_bias=norm_bias, extra=scales)
    around = width + _patch_embedding(f, width, bias=True)
    if f.flag("use_absolute_position_embeddings", True):
        around += (_patches(f) + 1) * width
    if not f.flag("use_mean_pooling", True):
        around += 2 * width
    return _tower(f, inner=inner, layer=layer, around=around)


def internvit(f: Fields) -> VisionTower:
    """InternViT under its own names (InternVLChatModel)."""
    names = {"attention_bias": f.flag("qkv_bias", True), "use_qk_norm": f.flag("qk_normalization")}
    return internvl(replace(f, data={**f.data, **names, "use_mean_pooling": True}))


def qwen2_vl(f: Fields) -> VisionTower:
    """Qwen2-VL: the width is ``embed_dim``; the merger to ``hidden_size`` included."""
    width, merged = f.size("embed_dim"), f.size("embed_dim") * f.size("spatial_merge_size") ** 2
    inner = int(width * f.number("mlp_ratio"))
    around = _patch_embedding(f, width, bias=False, channels="in_channels")
    around += 2 * width + linear(merged, merged) + linear(merged, f.size("hidden_size"))
    tower = _tower(f, inner=inner, layer=_layer(width, inner), around=around, depth="depth")
    return replace(tower, hidden_size=width)


def qwen25_vl(f: Fields) -> VisionTower:
    """Qwen2.5-VL: RMSNorm and gated; the merger included."""
    width, inner = f.size("hidden_size"), f.size("intermediate_size")
    merged = width * f.size("spatial_merge_size") ** 2
    around = _patch_embedding(f, width, bias=False, channels="in_channels")
    around += width + linear(merged, merged) + linear(merged, f.size("out_hidden_size"))
    layer = _layer(width, inner, gated=True, norm_bias=False)
    return _tower(f, inner=inner, layer=layer, around=around, depth="depth")


def qwen3_vl(f: Fields) -> VisionTower:
    """Qwen3-VL: learned positions, a merger behind the last layer and one for each deep stack."""
    width, inner = f.size("hidden_size"), f.size("intermediate_size")
    merged, out = width * f.size("spatial_merge_size") ** 2, f.size("out_hidden_size")
    merger = linear(merged, merged) + linear(merged, out)
    deep = len(f.items("deepstack_visual_indexes", [8, 16, 24]) or [])
    around = _patch_embedding(f, width, bias=True, channels="in_channels") + f.size("num_position_embeddings") * width
    around += merger + 2 * width + deep * (merger + 2 * merged)
    return _tower(f, inner=inner, layer=_layer(width, inner), around=around, depth="depth")


def glm4v(f: Fields) -> VisionTower:
    """GLM-4.1V to 4.6V: RMSNorm and gated; downsampling and a gated merger included."""
    width, out, context = f.size("hidden_size"), f.size("out_hidden_size"), f.size("intermediate_size")
    layer = _layer(
        width, out, qkv_bias=f.flag("attention_bias"), out_bias=False, mlp_bias=False, gated=True, norm_bias=False
    )
    around = _patches(f) * width + _patch_embedding(f, width, bias=True, channels="in_channels") + 2 * width
    around += linear(width * f.size("spatial_merge_size") ** 2, out)
    around += out * out + 2 * out + 3 * out * context
    return _tower(f, inner=out, layer=layer, around=around, depth="depth")


def minimax_m3(f: Fields) -> VisionTower:
    """MiniMax-M3's tower: CLIP without class token and positions."""
    width, inner = f.size("hidden_size"), f.size("intermediate_size")
    around = _patch_embedding(f, width, bias=False) + 2 * width
    return _tower(f, inner=inner, layer=_layer(width, inner), around=around)


def moonvit(f: Fields) -> VisionTower:
    """MoonViT of Kimi K2.5."""
    width, inner = f.size("hidden_size"), f.size("intermediate_size")
    around = _patch_embedding(f, width, bias=True) + f.size("pos_emb_height") * f.size("pos_emb_width") * width
    return _tower(f, inner=inner, layer=_layer(width, inner), around=around + 2 * width)


def step3(f: Fields) -> VisionTower:
    """The tower of Step 3.7, with its two downsampling convolutions of 3 x 3."""
    width = f.integer("width", None) or f.size("hidden_size")
    named = {"hidden_size": width}
    for short, name in (("layers", "num_hidden_layers"), ("heads", "num_attention_heads")):
        if short in f.data:
            named[name] = f.size(short)
    f = replace(f, data={**f.data, **named})
    inner = int(width * f.number("mlp_ratio"))
    around = _patch_embedding(f, width, bias=False) + _patches(f) * width + 2 * width
    around += linear(9 * width, 2 * width) + linear(9 * 2 * width, 4 * width)
    return _tower(f, inner=inner, layer=_layer(width, inner, extra=2 * width), around=around)


def gemma4(f: Fields) -> VisionTower:
    """Gemma 4: two tables of positions, sandwich norms, norms on each head's query and key."""
    width, inner, dim = f.size("hidden_size"), f.size("intermediate_size"), f.size("head_dim")
    heads, kv = f.size("num_attention_heads"), f.size("num_key_value_heads")
    layer = 2 * width * dim * (heads + kv) + 2 * dim + 3 * width * inner + 4 * width
    around = 2 * f.size("position_embedding_size") * width + 3 * f.size("patch_size") ** 2 * width
    return _tower(f, inner=inner, layer=layer, around=around)


def kimi_k3(f: Fields) -> VisionTower:
    """The tower of Kimi K3, from its fields: RMSNorm, no biases, attention of ``qkv_hidden_size``."""
    width, inner, inside = f.size("vt_hidden_size"), f.size("vt_intermediate_size"), f.size("qkv_hidden_size")
    layer = 4 * width * inside + 2 * width * inner + 2 * width
    around = (
        3 * f.size("patch_size") ** 2 * width + f.size("init_pos_emb_height") * f.size("init_pos_emb_width") * width
    )
    named = {
        "hidden_size": width,
        "num_hidden_layers": f.size("vt_num_hidden_layers"),
        "num_attention_heads": f.size("vt_num_attention_heads"),
    }
    return _tower(replace(f, data={**f.data, **named}), inner=inner, layer=layer, around=around + width)


def mllama(f: Fields) -> VisionTower:
    """Llama 3.2 Vision: tiles with positions of their own, gated layers behind the others, over all tiles."""
    width, inner, last = f.size("hidden_size"), f.size("intermediate_size"), f.size("num_global_layers")
    tiles, patches = f.size("max_num_tiles"), _patches(f) + 1
    ratios = len(f.items("supported_aspect_ratios") or range(8)) + 1
    layer = _layer(width, inner, qkv_bias=False, out_bias=False)
    tables = patches * width + ratios * tiles * width * (patches + 2) + 3
    around = width + _patch_embedding(f, width, bias=False) + tables + 4 * width + last * (layer + 2)
    named = replace(f, data={**f.data, "num_attention_heads": f.size("attention_heads")})
    tower = _tower(named, inner=inner, layer=layer, around=around)
    return replace(tower, layers=tower.layers + last, tile=_side(f, "image_size"), max_tiles=tiles)


_SIGLIP = {
    "hidden_size": 768,
    "intermediate_size": 3072,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "image_size": 224,
    "patch_size": 16,
}
_IDEFICS = {
    "hidden_size": 1152,
    "intermediate_size": 3072,
    "num_hidden_layers": 12,
    "num_attention_heads": 16,
    "image_size": 224,
    "patch_size": 32,
}
_QWEN = {"depth": 32, "num_attention_heads": 16, "patch_size": 14, "spatial_merge_size": 2, "temporal_patch_size": 2}
_QWEN3 = {
    **_QWEN,
    "depth": 27,
    "hidden_size": 1152,
    "intermediate_size": 4304,
    "patch_size": 16,
    "out_hidden_size": 3584,
    "num_position_embeddings": 2304,
}
_GLM = {
    "depth": 24,
    "hidden_size": 1536,
    "num_attention_heads": 12,
    "image_size": 336,
    "patch_size": 14,
    "spatial_merge_size": 2,
    "temporal_patch_size": 2,
    "out_hidden_size": 4096,
    "intermediate_size": 13696,
}
_MINIMAX = {
    "hidden_size": 1280,
    "intermediate_size": 5120,
    "num_hidden_layers": 32,
    "num_attention_heads": 16,
    "image_size": 2016,
    "patch_size": 14,
    "temporal_patch_size": 2,
}
_MOONVIT = {
    "hidden_size": 1152,
    "intermediate_size": 4304,
    "num_hidden_layers": 27,
    "num_attention_heads": 16,
    "patch_size": 14,
    "pos_emb_height": 64,
    "pos_emb_width": 64,
}
_MLLAMA = {
    "hidden_size": 1280,
    "intermediate_size": 5120,
    "num_hidden_layers": 32,
    "num_global_layers": 8,
    "attention_heads": 16,
    "image_size": 448,
    "patch_size": 14,
    "max_num_tiles": 4,
}
_STEP = {
    "hidden_size": 1536,
    "num_hidden_layers": 47,
    "num_attention_heads": 16,
    "image_size": 728,
    "patch_size": 14,
    "mlp_ratio": 8960 / 1536,
}
_GEMMA4 = {
    "hidden_size": 768,
    "intermediate_size": 3072,
    "num_hidden_layers": 16,
    "num_attention_heads": 12,
    "num_key_value_heads": 12,
    "head_dim": 64,
    "patch_size": 16,
    "position_embedding_size": 10240,
}
_INTERN = {
    "hidden_size": 1024,
    "intermediate_size": 4096,
    "num_hidden_layers": 24,
    "num_attention_heads": 16,
    "image_size": 448,
    "patch_size": 14,
}
_PIXTRAL = {**_INTERN, "image_size": 1024, "patch_size": 16}
_QWEN2 = {**_QWEN, "embed_dim": 1280, "hidden_size": 3584, "mlp_ratio": 4}
_QWEN25 = {**_QWEN, "hidden_size": 3584, "intermediate_size": 3420, "out_hidden_size": 3584}

TOWERS: dict[str, tuple[Callable[[Fields], VisionTower], Mapping[str, Any]]] = {
    "clip_vision_model": (clip, {**_SIGLIP, "patch_size": 32}),
    "siglip_vision_model": (siglip, _SIGLIP),
    "siglip2_vision_model": (siglip, {**_SIGLIP, "num_patches": 256}),
    "pixtral": (pixtral, _PIXTRAL),
    "internvl_vision": (internvl, _INTERN),
    "idefics3_vision": (idefics, _IDEFICS),
    "smolvlm_vision": (idefics, _IDEFICS),
    "qwen2_vl_vision": (qwen2_vl, _QWEN2),
    "qwen2_5_vl_vision": (qwen25_vl, _QWEN25),
    "qwen3_vl_vision": (qwen3_vl, _QWEN3),
    "glm4v_vision": (glm4v, _GLM),
    "minimax_m3_vl_vision": (minimax_m3, _MINIMAX),
    "kimi_k25_vision": (moonvit, _MOONVIT),
    "step3p5_vision": (step3, _STEP),
    "gemma4_vision": (gemma4, _GEMMA4),
    "kimi_k3_vision": (kimi_k3, {}),
    "mllama_vision_model": (mllama, _MLLAMA),
    "intern_vit_6b": (internvit, _INTERN),
}
"""``model_type`` of a ``vision_config`` to its reader and the defaults of its class (transformers 5.24)."""


def audio_gemma4(f: Fields) -> int:
    """Parameters of Gemma 4's audio encoder, a Conformer; ``f`` holds ``audio_config``."""
    width, layers = f.size("hidden_size", 1024), f.size("num_hidden_layers", 12)
    heads, kernel = f.size("num_attention_heads", 8), f.size("conv_kernel_size", 5)
    channels = f.whole_numbers("subsampling_conv_channels") or [128, 32]
    first, second = channels[0], channels[-1]
    feed_forward = 8 * width**2 + 2 * width
    attention = 5 * width**2 + width // heads
    convolution = 3 * width**2 + kernel * width + 2 * width
    stem = 9 * first + first + 9 * first * second + second + first // 4 * second * width
    layer = 2 * feed_forward + attention + convolution + 3 * width
    return layers * layer + stem + linear(width, f.size("output_proj_dims", 1536))


def vit(f: Fields) -> Model:
    """ViT with a classifier on the token of its class (Dosovitskiy et al. 2021); a sequence is one image."""
    image, patch = f.size("image_size"), f.size("patch_size")
    if image % patch:
        raise f.error(
            f"{f.path('patch_size')} must divide image_size: {image} / {patch} leaves {image % patch}. "
            f"Try image_size {image // patch * patch}.",
            "patch_size",
        )
    tokens = (image // patch) ** 2 + 1
    bias = f.flag("qkv_bias", True)
    mixer = gqa(f, qkv_bias=bias, o_bias=True, rotary=False, causal=False)
    block = Block(mixer=mixer, ffn=mlp(f, gated=False, bias=True), norm="layernorm", norm_bias=True)
    return decoder(
        f,
        [block] * f.layers,
        vocab_size=f.size("num_labels", 1000),
        position_embeddings="learned",
        max_position_embeddings=tokens,
        patch_values=f.size("num_channels", 3) * patch**2,
        head_bias=True,
        tie_word_embeddings=False,
    )
