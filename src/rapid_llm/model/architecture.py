"""The nouns of a model: a stack of blocks, each a token mixer and a feed-forward part. Fields take Hugging Face names.

The nouns carry every shape; ``weights`` turns them into tensors, ``flops`` into operation counts.
"""

from typing import Annotated, Literal

from pydantic import Field
from pydantic.dataclasses import dataclass

from rapid_llm.nouns import STRICT, hash_once
from rapid_llm.units import Count

Whole = Annotated[int, Field(ge=0, strict=True)]


@dataclass(frozen=True, kw_only=True, config=STRICT)
class Attention:
    """Softmax attention with query groups: MHA (kv = heads), GQA, MQA (kv = 1).

    ``sliding_window`` limits what a query sees (tokens; chunked attention likewise). ``qk_norm``: the query and key
    norms run over one head or over all heads. ``output_gate`` doubles the query projection (a gate per channel),
    ``head_gate`` adds one gate per head. ``sinks`` adds a learned logit per head. ``kv_shared`` layers reuse an
    earlier layer's keys and values and have no projections for them; ``k_eq_v`` projects both at once, and as keys
    alone are scaled and rotated, the cache holds both (Gemma 4). Without ``causal`` every token sees all (encoders).
    ``cross_hidden_size``: of what cross attention projects keys and values from, where it is not the layer's own.
    ``index_*`` describe a sparse indexer that keeps ``index_topk`` tokens per
    query (MiniMax-M3).
    """

    kind: Literal["attention"] = "attention"
    num_attention_heads: Count
    num_key_value_heads: Count
    head_dim: Count
    v_head_dim: Count | None = None
    sliding_window: Count | None = None
    qkv_bias: bool = False
    o_bias: bool = False
    qk_norm: Literal["none", "head", "full"] = "none"
    qk_norm_bias: bool = False
    rotary: bool = True
    output_gate: bool = False
    gate_bias: bool = False
    head_gate: bool = False
    sinks: bool = False
    kv_shared: bool = False
    k_eq_v: bool = False
    causal: bool = True
    cross_hidden_size: Count | None = None
    index_n_heads: Count | None = None
    index_head_dim: Count | None = None
    index_topk: Count | None = None

    @property
    def value_dim(self) -> int:
        """Width of one head's value."""
        return self.v_head_dim or self.head_dim


@dataclass(frozen=True, kw_only=True, config=STRICT)
class LatentAttention:
    """Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434), with an optional sparse indexer (V3.2).

    ``bias`` is Hugging Face's ``attention_bias``: on the down projections and the output. ``output_gate`` multiplies
    the heads' output by a gate of the same width (Kimi K3).
    """

    kind: Literal["mla"] = "mla"
    num_attention_heads: Count
    q_lora_rank: Count | None
    kv_lora_rank: Count
    qk_nope_head_dim: Count
    qk_rope_head_dim: Count
    v_head_dim: Count
    bias: bool = False
    output_gate: bool = False
    index_n_heads: Count | None = None
    index_head_dim: Count | None = None
    index_topk: Count | None = None

    @property
    def qk_head_dim(self) -> int:
        """Width of one head's query and key."""
        return self.qk_nope_head_dim + self.qk_rope_head_dim


@dataclass(frozen=True, kw_only=True, config=STRICT)
class CompressedAttention:
    """DeepSeek-V4 attention: one shared key-value head, a sliding window, and compressed older tokens.

    ``compress_rate`` tokens become one entry (absent: window only). With an indexer (compressed sparse attention)
    neighbouring compression windows overlap, so its projections are twice as wide, and ``index_topk`` entries are read;
    without (heavily compressed attention) all entries are read. The output projection is low-rank per group of heads.
    """

    kind: Literal["compressed"] = "compressed"
    num_attention_heads: Count
    head_dim: Count
    qk_rope_head_dim: Count
    q_lora_rank: Count
    o_groups: Count
    o_lora_rank: Count
    sliding_window: Count
    compress_rate: Count | None = None
    index_n_heads: Count | None = None
    index_head_dim: Count | None = None
    index_topk: Count | None = None


@dataclass(frozen=True, kw_only=True, config=STRICT)
class StateSpace:
    """A recurrent mixer with a constant state: ``num_value_heads x key_dim x value_dim`` numbers per sequence.

    ==================  ==================================  ==================================
    kind                ``num_key_heads, key_dim``          ``num_value_heads, value_dim``
    ==================  ==================================  ==================================
    mamba               1, state size                       channels, 1 (with ``dt_rank``)
    mamba2              groups of B and C, state size       heads, head size
    gated-delta-net     key heads and their width           value heads and their width
    kimi-delta          heads and their width               the same
    linear              heads and their width (lightning)   the same
    short-conv          1, 1: no state but the convolution  1, channels
    ==================  ==================================  ==================================

    ``gate_rank`` is the rank of the output gate (kimi-delta; absent: full rank). ``norm`` is the gated norm before the
    output projection; ``inner_norms`` are Jamba's norms on dt, B and C.
    """

    kind: Literal["mamba", "mamba2", "gated-delta-net", "kimi-delta", "linear", "short-conv"] = "mamba2"
    num_value_heads: Count
    num_key_heads: Count
    key_dim: Count
    value_dim: Count
    conv_kernel: Whole = 4
    bias: bool = False
    conv_bias: bool = True
    chunk_size: Count = 64
    dt_rank: Count | None = None
    gate_rank: Count | None = None
    norm: bool = True
    inner_norms: bool = False

    @property
    def inner_size(self) -> int:
        """Width of values over all heads."""
        return self.num_value_heads * self.value_dim

    @property
    def key_size(self) -> int:
        """Width of keys (B and C of Mamba) over all key heads or groups."""
        return self.num_key_heads * self.key_dim

    @property
    def conv_channels(self) -> int:
        """Channels of the short causal convolution; 0 without one."""
        if self.conv_kernel == 0:
            return 0
        return self.inner_size if self.kind in ("mamba", "short-conv") else self.inner_size + 2 * self.key_size


@dataclass(frozen=True, kw_only=True, config=STRICT)
class MLP:
    """Feed-forward part: gated (three matrices) or plain (two)."""

    kind: Literal["mlp"] = "mlp"
    intermediate_size: Count
    gated: bool = True
    bias: bool = False


@dataclass(frozen=True, kw_only=True, config=STRICT)
class MoE:
    """Mixture of experts: ``num_experts_per_tok`` of the routed experts are active, and a shared MLP.

    ``expert_hidden_size``: routed experts work in a latent space between a down and an up projection (Nemotron 3
    Super, Kimi K3). ``correction_bias`` and ``router_scale`` are learned vectors per expert, ``router_norm`` one of
    hidden size. ``groups_per_token`` of ``expert_groups`` neighbours hold a token's experts (group-limited routing,
    DeepSeek-V2, section 2.2.2). ``clamped``: the input of the gated activation is cut off at a limit (gpt-oss).
    ``balanced``: a bias and a loss over every sequence kept experts equally popular in any text (DeepSeek-V3, section
    2.1.2), where a bias alone (Wang et al. 2024, arXiv 2408.15664) or a loss over batches leaves a text its favourites.
    ``fp32_router``: engines keep the router in fp32 and multiply its scores
    there, off the matrix units (vLLM's ReplicatedLinear of ``params_dtype`` float32, at torch's precision ``highest``).
    """

    kind: Literal["moe"] = "moe"
    num_experts: Count
    num_experts_per_tok: Count
    moe_intermediate_size: Count
    shared_intermediate_size: Whole = 0
    gated: bool = True
    bias: bool = False
    shared_bias: bool = False
    router_bias: bool = False
    correction_bias: bool = False
    router_scale: bool = False
    router_norm: bool = False
    fp32_router: bool = False
    shared_gate: bool = False
    expert_hidden_size: Count | None = None
    latent_norm: bool = False
    clamped: bool = False
    expert_groups: Count = 1
    groups_per_token: Count = 1
    balanced: bool = False


@hash_once
@dataclass(frozen=True, kw_only=True, config=STRICT)
class Block:
    """One residual layer: norms, a mixer and a feed-forward part (either may be absent in hybrid stacks).

    ``norms`` counts the hidden-sized norms of the block (2 in a pre-norm block, 4 in Gemma's sandwich, 1 in a parallel
    block); ``norm_weight`` is false where they have no weight (OLMo 1). ``parallel``: mixer and feed-forward read the
    same norm and share one residual add (GPT-J, Falcon). ``side_mixer`` runs beside ``mixer`` on the same input
    (Falcon-H1). ``cross`` attends to what an encoder or a vision tower wrote, behind the mixer and before the
    feed-forward part; a layer with nothing before it is left out where there is nothing to see (Llama 3.2 Vision).
    ``hyper_connections`` is the number of residual streams mixed around each part (DeepSeek-V4); 0: one.
    ``extra_parameters`` counts weights that none of the fields describe (scalars, per-layer embeddings).
    """

    mixer: Attention | LatentAttention | CompressedAttention | StateSpace | None
    ffn: MLP | MoE | None
    norm: Literal["rmsnorm", "layernorm"] = "rmsnorm"
    norm_bias: bool = False
    norm_weight: bool = True
    norms: Whole = 2
    parallel: bool = False
    side_mixer: StateSpace | None = None
    cross: Attention | None = None
    hyper_connections: Whole = 0
    extra_parameters: Whole = 0


@dataclass(frozen=True, kw_only=True, config=STRICT)
class VisionTower:
    """The vision encoder and its projector, counted exactly; ``parameters`` is their total.

    ``tile``: side in pixels of the squares that an image is cut into, at most ``max_tiles``, each with a token of its
    class; the tower runs all of them, those that an image leaves empty too (Llama 3.2 Vision, modeling_mllama.py).
    ``merged``: patches that the projector turns into one token of the prompt.
    """

    layers: Count
    hidden_size: Count
    intermediate_size: Count
    num_attention_heads: Count
    patch_size: Count
    parameters: Count
    tile: Count | None = None
    max_tiles: Count = 1
    merged: Count = 1

    def tokens(self, width: int, height: int) -> int:
        """Tokens that an image becomes before any projector merges them: its patches, or those of its tiles."""
        if self.tile is None:
            return -(-width // self.patch_size) * -(-height // self.patch_size)
        tiles = -(-width // self.tile) * -(-height // self.tile)
        return min(tiles, self.max_tiles) * self._tile_tokens

    def sequence(self, width: int, height: int) -> int:
        """Tokens that the tower runs over for an image."""
        return self.tokens(width, height) if self.tile is None else self.max_tiles * self._tile_tokens

    @property
    def _tile_tokens(self) -> int:
        return ((self.tile or 0) // self.patch_size) ** 2 + 1


@dataclass(frozen=True, kw_only=True, config=STRICT)
class Encoder:
    """The layers whose output the cross attention of a decoder reads: every token of them sees all.

    ``vocab_size`` rows of an embedding of its own (0: it shares the decoder's), ``num_positions`` of a learned table.
    ``mel_bins``: two convolutions over three frames, the second of them in steps of two, turn so many bins of sound
    into tokens, and every sequence is a ``window`` of them (Radford et al. 2022, arXiv 2212.04356, section 2.2).
    ``extra_parameters`` as in Block, outside the layers.
    """

    hidden_size: Count
    blocks: tuple[Block, ...]
    pattern: tuple[int, ...]
    vocab_size: Whole = 0
    num_positions: Whole = 0
    embedding_norm: bool = False
    final_norm: bool = True
    mel_bins: Count | None = None
    window: Count | None = None
    extra_parameters: Whole = 0

    def __post_init__(self) -> None:
        """Refuse a layer that is none of the blocks."""
        last = len(self.blocks) - 1
        if not self.pattern or not all(0 <= index <= last for index in self.pattern):
            raise ValueError(f"must give each layer in pattern the index of its block, 0 to {last}")

    @property
    def num_hidden_layers(self) -> int:
        """Number of layers."""
        return len(self.pattern)


SECONDS_PER_TOKEN = 0.02
"""Of sound: frames are 10 ms apart, and every second one becomes a token (Whisper, section 2.2)."""
ModelKind = Literal[
    "decoder",
    "encoder",
    "encoder-decoder",
    "relative-encoder-decoder",
    "speech",
    "image-cross-attention",
    "image-encoder",
]
"""What software must be able to run: ``relative``: attention adds a learned bias of distances to its scores (T5)."""


@hash_once
@dataclass(frozen=True, kw_only=True, config=STRICT)
class Model:
    """A language model: a decoder, an encoder of text, or a decoder that reads an ``encoder``; or an encoder of images.

    ``blocks`` are the distinct layers, ``pattern`` gives for each of the ``num_hidden_layers`` layers its index in
    ``blocks``. ``embedding_size`` is the width of the token embedding where a projection maps it to ``hidden_size``
    (OPT-350M); ``num_positions`` the rows of a learned position table where they differ from
    ``max_position_embeddings``. ``quantization`` names the format of the checkpoint's weights where it is not 16-bit.
    ``extra_parameters`` as in Block, outside the layers. ``patch_values``: a token is so many values of an image patch,
    which a projection embeds, beside one token of its class; the head reads that one alone, and ``vocab_size`` is its
    labels (Dosovitskiy et al. 2021, arXiv 2010.11929, section 3.1). ``head``: causal predicts the next token; masked
    runs a dense layer and a norm before the vocabulary (Devlin et al. 2018, arXiv 1810.04805); none writes hidden
    states. ``pooler``: a dense layer on the first token; ``labels`` of a classifier on it.
    """

    name: str
    hidden_size: Count
    vocab_size: Count
    blocks: tuple[Block, ...]
    pattern: tuple[int, ...]
    tie_word_embeddings: bool = False
    position_embeddings: Literal["rotary", "learned", "relative", "alibi", "none"] = "rotary"
    max_position_embeddings: Count
    num_positions: Count | None = None
    embedding_size: Count | None = None
    embedding_norm: bool = False
    final_norm: bool = True
    head: Literal["causal", "masked", "none"] = "causal"
    head_bias: bool = False
    head_dense_bias: bool = True
    pooler: bool = False
    labels: Whole = 0
    num_nextn_predict_layers: Whole = 0
    patch_values: Count | None = None
    vision: VisionTower | None = None
    encoder: Encoder | None = None
    quantization: str | None = None
    extra_parameters: Whole = 0

    @property
    def num_hidden_layers(self) -> int:
        """Number of layers."""
        return len(self.pattern)

    @property
    def stacks(self) -> tuple[tuple[Block, int, int], ...]:
        """Every distinct layer, the decoder's before the encoder's, with the hidden size that it works on and how often
        it stands in its stack."""
        own = [(block, self.hidden_size, self.pattern.count(index)) for index, block in enumerate(self.blocks)]
        if self.encoder is None:
            return tuple(own)
        below = self.encoder
        return (*own, *((b, below.hidden_size, below.pattern.count(index)) for index, b in enumerate(below.blocks)))

    @property
    def heard_s(self) -> float | None:
        """Seconds of sound that one sequence holds; None of a model that hears none."""
        window = self.encoder.window if self.encoder else None
        return window * SECONDS_PER_TOKEN if window else None

    @property
    def crosses(self) -> bool:
        """Whether some layer attends to what is not its own sequence."""
        return any(block.cross for block in self.blocks)

    @property
    def writes(self) -> bool:
        """Whether it writes tokens: an encoder, whose tokens all see each other, does not."""
        return not all(isinstance(b.mixer, Attention) and not b.mixer.causal for b in self.blocks)

    @property
    def kind(self) -> ModelKind:
        """What software must be able to run."""
        if self.encoder is not None:
            if self.encoder.mel_bins:
                return "speech"
            return "relative-encoder-decoder" if self.position_embeddings == "relative" else "encoder-decoder"
        if self.patch_values:
            return "image-encoder"
        if self.crosses:
            return "image-cross-attention"
        return "decoder" if self.writes else "encoder"
