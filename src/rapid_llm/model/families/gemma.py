"""Gemma 1-4: sandwich norms, windows, shared keys and values, embeddings for every layer."""

from rapid_llm.model.architecture import MLP, Attention, Block, Model, MoE
from rapid_llm.model.families.parts import biased, decoder, gqa, layer_types, mlp, moe, window
from rapid_llm.model.fields import Fields


def gemma(f: Fields) -> Model:
    """Gemma 1."""
    block = Block(mixer=gqa(f, **biased(f)), ffn=mlp(f))
    return decoder(f, [block] * f.layers)


def _types(f: Fields, period: int) -> list[str]:
    default = ["sliding_attention" if (i + 1) % period else "full_attention" for i in range(f.layers)]
    return layer_types(f) or default


def gemma2(f: Fields) -> Model:
    """Gemma 2: a window on every second layer."""
    kinds = _types(f, 2)
    mixers = [gqa(f, sliding_window=window(f, kinds, i), **biased(f)) for i in range(f.layers)]
    return decoder(f, [Block(mixer=a, ffn=mlp(f), norms=4) for a in mixers])


def gemma3(f: Fields) -> Model:
    """Gemma 3: five windowed layers, then a full one; norms on each head's query and key. EmbeddingGemma's tokens all
    see each other, and it writes hidden states."""
    kinds, both_ways = _types(f, f.size("sliding_window_pattern", 6)), f.flag("use_bidirectional_attention")
    given = {"qk_norm": "head", "causal": not both_ways, **biased(f)}
    mixers = [gqa(f, sliding_window=window(f, kinds, i), **given) for i in range(f.layers)]
    blocks = [Block(mixer=a, ffn=mlp(f), norms=4) for a in mixers]
    return decoder(f, blocks, head="none" if both_ways else "causal")


def gemma3n(f: Fields) -> Model:
    """Gemma 3n: AltUp streams, LAuReL, and an embedding of its own for every layer."""
    hidden, per_layer = f.size("hidden_size"), f.size("hidden_size_per_layer_input")
    streams, rank, layers = f.size("altup_num_inputs"), f.size("laurel_rank"), f.layers
    kinds = _types(f, 5)
    given = f.get("intermediate_size")
    shared_from = layers - (f.integer("num_kv_shared_layers", 0) or 0)
    sizes = given if isinstance(given, list) else [given] * layers
    altup = streams**2 + streams**3 + 2 * hidden + streams * hidden
    laurel = 2 * hidden * rank + hidden
    extra = altup + laurel + 2 * hidden * per_layer + hidden
    blocks = [
        Block(
            mixer=gqa(f, qk_norm="head", kv_shared=i >= shared_from, sliding_window=window(f, kinds, i), **biased(f)),
            ffn=mlp(f, size=sizes[i]),
            norms=4,
            extra_parameters=extra,
        )
        for i in range(layers)
    ]
    outer = _layer_embeddings(f) + 2 * (streams - 1) * hidden**2
    return decoder(f, blocks, extra_parameters=outer)


def _layer_embeddings(f: Fields) -> int:
    """Weights outside the layers that make an embedding for each layer: table, projection, norm."""
    width = f.integer("hidden_size_per_layer_input", 0) or 0
    if not width:
        return 0
    total = f.layers * width
    return f.size("vocab_size_per_layer_input") * total + f.size("hidden_size") * total + width


def gemma4(f: Fields) -> Model:
    """Gemma 4: wider heads on full layers, shared keys and values on the last ones, experts beside the MLP."""
    layers, hidden = f.layers, f.size("hidden_size")
    kinds = _types(f, 6)
    kinds[-1] = "full_attention"
    shared_from = layers - (f.integer("num_kv_shared_layers", 0) or 0)
    per_layer = f.integer("hidden_size_per_layer_input", 0) or 0
    blocks = []
    for i in range(layers):
        ffn = _feed_forward4(f, double=i >= shared_from and f.flag("use_double_wide_mlp"))
        blocks.append(
            Block(
                mixer=_attention4(f, kinds, i, shared=i >= shared_from),
                ffn=ffn,
                norms=4 + (3 if isinstance(ffn, MoE) else 0) + (1 if per_layer else 0),
                extra_parameters=2 * hidden * per_layer,
            )
        )
    return decoder(f, blocks, extra_parameters=_layer_embeddings(f))


def _attention4(f: Fields, kinds: list[str], layer: int, *, shared: bool) -> Attention:
    full, same = kinds[layer] == "full_attention", f.flag("attention_k_eq_v")
    kv = f.size("num_key_value_heads")
    if full and same:
        kv = f.integer("num_global_key_value_heads", None) or kv
    return gqa(
        f,
        num_key_value_heads=kv,
        head_dim=f.size("global_head_dim", 512) if full else f.size("head_dim", 256),
        qk_norm="head",
        k_eq_v=full and same,
        kv_shared=shared,
        sliding_window=window(f, kinds, layer),
        **biased(f),
    )


def _feed_forward4(f: Fields, *, double: bool) -> MLP | MoE:
    dense = f.size("intermediate_size") * (2 if double else 1)
    if not f.flag("enable_moe_block"):
        return mlp(f, size=dense)
    return moe(f, shared_intermediate_size=dense, router_scale=True, router_norm=True)
