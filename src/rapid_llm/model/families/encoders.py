"""Encoders of text, and decoders that read an encoder: BERT and its relatives, T5, BART, Whisper.

Counted are the classes that a file names in ``architectures``: what predicts masked words, classifies or embeds.
"""

from dataclasses import replace
from typing import Any

from rapid_llm.model.architecture import MLP, Attention, Block, Encoder, Model
from rapid_llm.model.families.parts import biased, decoder, gqa, layer_types, mlp
from rapid_llm.model.fields import Fields

_HIDDEN = ("Model", "EncoderModel")
"""How classes end that write hidden states, and no words."""
_PAIRS = 2
"""What next-sentence prediction tells apart: the second sentence follows the first, or does not."""


def _named(f: Fields) -> str:
    given = f.items("architectures") or []
    return str(given[0]) if given else ""


def _around(f: Fields, *, pooler: bool) -> dict[str, Any]:
    """What follows the layers of an encoder, by the class that the file names; without one a head for masked words."""
    name = _named(f)
    if name.endswith(_HIDDEN):
        return {"head": "none", "pooler": pooler, "labels": 0}
    if name.endswith("ForSequenceClassification"):
        return {"head": "none", "pooler": True, "labels": _labels(f)}
    if name.endswith("ForPreTraining"):
        return {"head": "masked", "head_bias": True, "pooler": True, "labels": _PAIRS}
    if name and not name.endswith(("ForMaskedLM", "LMHeadModel")):
        raise f.error(
            f"architecture '{name}' ends in a head that is not modelled. Try its class that ends in Model, which "
            "writes hidden states, or in ForMaskedLM.",
            "architectures",
        )
    return {"head": "masked", "head_bias": True}


def _labels(f: Fields) -> int:
    """Classes of a classifier: as many as are named, else as many as are said."""
    named = f.get("id2label", None)
    return len(named) if isinstance(named, dict) and named else f.size("num_labels", 2)


def _bidirectional(f: Fields, **changes: Any) -> Attention:
    return gqa(f, **{"causal": False, "rotary": False, "qkv_bias": True, "o_bias": True, **changes})


def bert(f: Fields) -> Model:
    """BERT, RoBERTa and XLM-RoBERTa: learned positions and segments, a norm behind each part and the embedding."""
    block = Block(mixer=_bidirectional(f), ffn=mlp(f, gated=False, bias=True), norm="layernorm", norm_bias=True)
    around = _around(f, pooler=True)
    apart = around["head"] == "masked" and not f.flag("tie_word_embeddings", True)
    segments = f.size("type_vocab_size", 2) * f.size("hidden_size")
    return decoder(
        f,
        [block] * f.layers,
        position_embeddings="learned",
        embedding_norm=True,
        final_norm=False,
        extra_parameters=segments + (f.size("vocab_size") if apart else 0),  # a head of its own has a second bias
        **around,
    )


def mpnet(f: Fields) -> Model:
    """MPNet: BERT without segments, with learned biases of distances that all layers share."""
    distances = f.size("relative_attention_num_buckets", 32) * f.size("num_attention_heads")
    block = Block(mixer=_bidirectional(f), ffn=mlp(f, gated=False, bias=True), norm="layernorm", norm_bias=True)
    around = _around(f, pooler=True)
    return _behind(f, block, position_embeddings="learned", extra_parameters=distances, **around)


def nomic(f: Fields) -> Model:
    """Nomic BERT: gated and rotary, biases in the norms alone."""
    return _rotary(f, mlp(f), qkv_bias=False, o_bias=False)


def gte(f: Fields) -> Model:
    """GTE: gated and rotary, biases on attention and on the down projection."""
    return _rotary(f, mlp(f), extra=f.size("hidden_size"))


def _rotary(f: Fields, ffn: MLP, *, extra: int = 0, **attention: Any) -> Model:
    mixer = _bidirectional(f, rotary=True, **attention)
    block = Block(mixer=mixer, ffn=ffn, norm="layernorm", norm_bias=True, extra_parameters=extra)
    segments = (f.integer("type_vocab_size", 0) or 0) * f.size("hidden_size")
    return _behind(f, block, extra_parameters=segments, **_around(f, pooler=False))


def _behind(f: Fields, block: Block, **changes: Any) -> Model:
    """Layers with their norms behind each part, as that of the embedding is."""
    return decoder(f, [block] * f.layers, embedding_norm=True, final_norm=False, **changes)


def distilbert(f: Fields) -> Model:
    """DistilBERT: BERT without segments and pooler."""
    inner = f.size("hidden_dim")
    block = Block(
        mixer=_bidirectional(f), ffn=mlp(f, size=inner, gated=False, bias=True), norm="layernorm", norm_bias=True
    )
    return _behind(f, block, position_embeddings="learned", **_around(f, pooler=False))


def modernbert(f: Fields) -> Model:
    """ModernBERT: gated, rotary, two of three layers see a window; the embedding's norm is the first layer's."""
    bias, norm_bias = biased(f), f.flag("norm_bias")
    period = f.size("global_attn_every_n_layers", 3)
    kinds = layer_types(f) or ["sliding_attention" if i % period else "full_attention" for i in range(f.layers)]
    ffn = mlp(f, bias=f.flag("mlp_bias"))
    layers = [
        Block(
            mixer=_bidirectional(
                f,
                rotary=True,
                sliding_window=f.size("local_attention") if kind == "sliding_attention" else None,
                **bias,
            ),
            ffn=ffn,
            norm="layernorm",
            norm_bias=norm_bias,
            norms=2 if index else 1,
        )
        for index, kind in enumerate(kinds)
    ]
    around = _around(f, pooler=False)
    head = around["head"] == "masked"
    if around.get("labels"):
        raise f.error("ModernBERT's classifier is not modelled. Try architectures: [ModernBertModel].", "architectures")
    return decoder(
        f,
        layers,
        embedding_norm=True,
        **{**around, "head_bias": head and f.flag("decoder_bias", True), "head_dense_bias": f.flag("classifier_bias")},
    )


def eurobert(f: Fields) -> Model:
    """EuroBERT: a Llama whose tokens all see each other."""
    block = Block(mixer=_bidirectional(f, rotary=True, **biased(f)), ffn=mlp(f, bias=f.flag("mlp_bias")))
    around = _around(f, pooler=False)
    if around["head"] == "masked":
        around = {"head_bias": f.flag("mlp_bias")}
    return decoder(f, [block] * f.layers, **around)


def _stack(layer: Block, count: int) -> dict[str, Any]:
    return {"blocks": (layer,), "pattern": (0,) * count}


def _with_cross(layer: Block) -> Block:
    """A decoder's layer that reads the encoder: one attention and one norm more."""
    assert isinstance(layer.mixer, Attention)
    cross = replace(layer.mixer, causal=False, rotary=False)
    return replace(layer, cross=cross, norms=layer.norms + 1)


def t5(f: Fields) -> Model:
    """T5, Flan-T5 and mT5: RMSNorm, no biases, learned biases of distances shared by the layers of a stack."""
    return _t5(f, each=False)


def umt5(f: Fields) -> Model:
    """UMT5: mT5 with biases of distances of every layer's own."""
    return _t5(f, each=True)


def _t5(f: Fields, *, each: bool) -> Model:
    act = str(f.get("feed_forward_proj", "relu"))
    distances = f.size("relative_attention_num_buckets", 32) * f.size("num_attention_heads")
    mixer = _bidirectional(f, head_dim=f.size("d_kv"), qkv_bias=False, o_bias=False)
    ffn = mlp(f, size=f.size("d_ff"), gated=act.startswith("gated"))
    layer = Block(mixer=mixer, ffn=ffn, extra_parameters=distances if each else 0)
    own = _with_cross(replace(layer, mixer=replace(mixer, causal=True)))
    shared = 0 if each else distances
    encoder = Encoder(hidden_size=f.size("hidden_size"), extra_parameters=shared, **_stack(layer, f.layers))
    if _named(f).endswith("EncoderModel"):
        return decoder(
            f,
            [layer] * f.layers,
            position_embeddings="relative",
            head="none",
            extra_parameters=shared,
        )
    return decoder(
        f,
        [own] * (f.integer("num_decoder_layers", None) or f.layers),
        position_embeddings="relative",
        tie_word_embeddings=f.flag("tie_word_embeddings", True),
        encoder=encoder,
        extra_parameters=shared,
    )


def _sides(f: Fields, *, qkv_bias: bool = True, extra: int = 0) -> tuple[Block, Block]:
    """A layer of the encoder and one of the decoder; ``extra`` parameters of each attention."""

    def layer(side: str, *, causal: bool) -> Block:
        heads = f.size(f"{side}_attention_heads")
        width = f.size("hidden_size")
        if width % heads:
            raise f.error(
                f"{f.path(f'{side}_attention_heads')} must divide d_model: {width} / {heads} leaves {width % heads}.",
                f"{side}_attention_heads",
            )
        mixer = Attention(
            num_attention_heads=heads,
            num_key_value_heads=heads,
            head_dim=width // heads,
            qkv_bias=qkv_bias,
            o_bias=True,
            rotary=False,
            causal=causal,
        )
        ffn = MLP(intermediate_size=f.size(f"{side}_ffn_dim"), gated=False, bias=True)
        return Block(mixer=mixer, ffn=ffn, norm="layernorm", norm_bias=True, extra_parameters=extra)

    below, above = layer("encoder", causal=False), _with_cross(layer("decoder", causal=True))
    return below, replace(above, extra_parameters=2 * extra)


def _transformer(f: Fields, *, positions: int, embedding_norm: bool, final_norm: bool) -> Model:
    """Encoder and decoder over one vocabulary; ``positions``: rows of each side's table, 0 where it is computed."""
    below, above = _sides(f)
    tied = f.flag("tie_word_embeddings", True)
    own = 0 if tied else f.size("vocab_size")  # untied, each side has a table beside a shared one that nobody reads
    return decoder(
        f,
        [above] * f.size("decoder_layers"),
        position_embeddings="learned" if positions else "none",
        num_positions=positions or None,
        embedding_norm=embedding_norm,
        final_norm=final_norm,
        tie_word_embeddings=tied,
        extra_parameters=own * f.size("hidden_size"),
        encoder=Encoder(
            hidden_size=f.size("hidden_size"),
            vocab_size=own,
            num_positions=positions,
            embedding_norm=embedding_norm,
            final_norm=final_norm,
            **_stack(below, f.size("encoder_layers")),
        ),
    )


def bart(f: Fields) -> Model:
    """BART: norms behind the parts and the embedding; two rows of positions more than it uses."""
    return _transformer(f, positions=f.size("max_position_embeddings") + 2, embedding_norm=True, final_norm=False)


def mbart(f: Fields) -> Model:
    """mBART: BART with norms before the parts and behind the last one."""
    return _transformer(f, positions=f.size("max_position_embeddings") + 2, embedding_norm=True, final_norm=True)


def pegasus(f: Fields) -> Model:
    """PEGASUS: norms before the parts; its table of sines is stored with the weights."""
    return _transformer(f, positions=f.size("max_position_embeddings"), embedding_norm=False, final_norm=True)


def marian(f: Fields) -> Model:
    """Marian (OPUS-MT): norms behind the parts alone; its table of sines is stored with the weights."""
    return _transformer(f, positions=f.size("max_position_embeddings"), embedding_norm=False, final_norm=False)


def m2m(f: Fields) -> Model:
    """M2M-100 and NLLB: norms before the parts; sines are computed."""
    return _transformer(f, positions=0, embedding_norm=False, final_norm=True)


def whisper(f: Fields) -> Model:
    """Whisper: convolutions over 30 s of sound, then an encoder and a decoder; keys have no bias."""
    width = f.size("hidden_size")
    below, above = _sides(f, qkv_bias=False, extra=2 * width)
    window = f.size("max_source_positions")
    return decoder(
        f,
        [above] * f.size("decoder_layers"),
        position_embeddings="learned",
        max_position_embeddings=f.size("max_target_positions"),
        tie_word_embeddings=f.flag("tie_word_embeddings", True),
        encoder=Encoder(
            hidden_size=width,
            num_positions=window,
            mel_bins=f.size("num_mel_bins"),
            window=window,
            **_stack(below, f.size("encoder_layers")),
        ),
    )
