"""Decoders with LayerNorm and plain feed-forward parts: GPT-2 and its time, and those that kept their ways."""

from typing import Any

from rapid_llm.model.architecture import Attention, Block, Model
from rapid_llm.model.families.parts import biased, decoder, gqa, mlp
from rapid_llm.model.fields import Fields


def _block(mixer: Attention, ffn: Any, **changes: Any) -> Block:
    return Block(mixer=mixer, ffn=ffn, **{"norm": "layernorm", "norm_bias": True, **changes})


def _inner(f: Fields) -> int:
    return f.integer("intermediate_size", None) or 4 * f.size("hidden_size")


def gpt2(f: Fields) -> Model:
    """GPT-2 and Megatron's GPT: learned positions, biases everywhere, tied head."""
    block = _block(
        gqa(f, num_key_value_heads=f.size("num_attention_heads"), qkv_bias=True, o_bias=True, rotary=False),
        mlp(f, size=_inner(f), gated=False, bias=True),
    )
    return decoder(f, [block] * f.layers, position_embeddings="learned")


def gpt_bigcode(f: Fields) -> Model:
    """StarCoder 1: GPT-2 with one key-value head."""
    heads = 1 if f.flag("multi_query") else f.size("num_attention_heads")
    block = _block(
        gqa(f, num_key_value_heads=heads, qkv_bias=True, o_bias=True, rotary=False),
        mlp(f, size=_inner(f), gated=False, bias=True),
    )
    return decoder(f, [block] * f.layers, position_embeddings="learned")


def gpt_neo(f: Fields) -> Model:
    """GPT-Neo: every second layer attends to a window."""
    kinds = [kind for kinds, times in f.items("attention_types") or [] for _ in range(times) for kind in kinds]
    ffn = mlp(f, size=_inner(f), gated=False, bias=True)
    layers = [
        _block(
            gqa(f, o_bias=True, rotary=False, sliding_window=f.size("window_size", 256) if kind == "local" else None),
            ffn,
        )
        for kind in (kinds or ["global", "local"] * f.layers)[: f.layers]
    ]
    return decoder(f, layers, position_embeddings="learned")


def gptj(f: Fields) -> Model:
    """GPT-J and CodeGen: one norm, attention and feed-forward side by side, a bias on the head."""
    block = _block(gqa(f), mlp(f, size=_inner(f), gated=False, bias=True), norms=1, parallel=True)
    return decoder(f, [block] * f.layers, head_bias=True)


def gpt_neox(f: Fields) -> Model:
    """GPT-NeoX and Pythia: two norms, attention and feed-forward side by side."""
    block = _block(
        gqa(f, num_key_value_heads=f.size("num_attention_heads"), **biased(f, default=True)),
        mlp(f, gated=False, bias=True),
        parallel=f.flag("use_parallel_residual", True),
    )
    return decoder(f, [block] * f.layers)


def opt(f: Fields) -> Model:
    """OPT: learned positions with two rows for padding; the 350M model projects its narrower embeddings."""
    bias, affine = f.flag("enable_bias", True), f.flag("layer_norm_elementwise_affine", True)
    before = f.flag("do_layer_norm_before", True)
    block = _block(
        gqa(f, qkv_bias=bias, o_bias=bias, rotary=False),
        mlp(f, gated=False, bias=bias),
        norm_bias=affine,
        norm_weight=affine,
    )
    width = f.integer("word_embed_proj_dim", None) or f.size("hidden_size")
    return decoder(
        f,
        [block] * f.layers,
        position_embeddings="learned",
        num_positions=f.size("max_position_embeddings") + 2,
        embedding_size=width if width != f.size("hidden_size") else None,
        final_norm=before and not f.flag("_remove_final_layer_norm"),
    )


def bloom(f: Fields) -> Model:
    """BLOOM: ALiBi and a norm behind the embedding."""
    block = _block(
        gqa(f, qkv_bias=True, o_bias=True, rotary=False),
        mlp(f, size=4 * f.size("hidden_size"), gated=False, bias=True),
    )
    return decoder(f, [block] * f.layers, position_embeddings="alibi", embedding_norm=True)


def mpt(f: Fields) -> Model:
    """MPT: ALiBi, no biases, not even in the norms."""
    block = _block(
        gqa(f, num_key_value_heads=f.size("num_attention_heads"), rotary=False),
        mlp(f, size=4 * f.size("hidden_size"), gated=False),
        norm_bias=False,
    )
    return decoder(f, [block] * f.layers, position_embeddings="alibi")


def falcon(f: Fields) -> Model:
    """Falcon: 7B (one key-value head), 40B and 180B (``new_decoder_architecture``), RW (plain, ALiBi)."""
    heads, bias, parallel = f.size("num_attention_heads"), f.flag("bias"), f.flag("parallel_attn", True)
    new = f.flag("new_decoder_architecture")
    one = f.flag("multi_query", True)
    kv = (f.integer("num_key_value_heads", None) or heads) if new else 1 if one else heads
    norms = f.integer("num_ln_in_parallel_attn", None) or (2 if new else 1) if parallel else 2
    alibi = f.flag("alibi")
    block = _block(
        gqa(
            f,
            num_key_value_heads=kv,
            head_dim=f.size("hidden_size") // heads,
            qkv_bias=bias,
            o_bias=bias,
            rotary=not alibi,
        ),
        mlp(f, size=_inner(f), gated=False, bias=bias),
        norms=norms,
        parallel=parallel,
    )
    return decoder(f, [block] * f.layers, position_embeddings="alibi" if alibi else "rotary")


def starcoder2(f: Fields) -> Model:
    """StarCoder 2: grouped queries, rotary positions, biases."""
    bias = f.flag("use_bias", True)
    window = f.integer("sliding_window", None) or None
    block = _block(gqa(f, qkv_bias=bias, o_bias=bias, sliding_window=window), mlp(f, gated=False, bias=bias))
    return decoder(f, [block] * f.layers)


def phi(f: Fields) -> Model:
    """Phi 1, 1.5, 2: one norm, side by side, biases everywhere, also on the head."""
    norm = "head" if f.flag("qk_layernorm") else "none"
    block = _block(
        gqa(f, qkv_bias=True, o_bias=True, qk_norm=norm, qk_norm_bias=norm == "head"),
        mlp(f, gated=False, bias=True),
        norms=1,
        parallel=True,
    )
    return decoder(f, [block] * f.layers, head_bias=True)


def nemotron(f: Fields) -> Model:
    """Nemotron 3 and 4, Minitron: squared ReLU, LayerNorm with 1 + weight."""
    block = _block(gqa(f, **biased(f)), mlp(f, gated=False, bias=f.flag("mlp_bias")))
    return decoder(f, [block] * f.layers)


def persimmon(f: Fields) -> Model:
    """Persimmon and Fuyu's decoder."""
    norm = "head" if f.flag("qk_layernorm", True) else "none"
    block = _block(
        gqa(f, qkv_bias=True, o_bias=True, qk_norm=norm, qk_norm_bias=norm == "head"),
        mlp(f, gated=False, bias=True),
    )
    return decoder(f, [block] * f.layers)


def stablelm(f: Fields) -> Model:
    """StableLM 2 and 3B: gated feed-forward part under LayerNorm."""
    parallel = f.flag("use_parallel_residual")
    block = _block(
        gqa(f, qkv_bias=f.flag("use_qkv_bias"), qk_norm="full" if f.flag("qk_layernorm") else "none"),
        mlp(f),
        norms=1 if parallel else 2,
        parallel=parallel,
    )
    return decoder(f, [block] * f.layers)
