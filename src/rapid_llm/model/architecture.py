"""The nouns of a model: a stack of blocks, each a token mixer and a feed-forward part. Fields take Hugging Face names."""

from typing import Literal

from pydantic.dataclasses import dataclass

from rapid_llm.nouns import STRICT
from rapid_llm.units import Count


@dataclass(frozen=True, kw_only=True, config=STRICT)
class Attention:
    """Softmax attention with query groups: MHA (kv = heads), GQA, MQA (kv = 1).

    ``sliding_window`` limits what a query sees (tokens); ``qk_norm`` says over what the query and key norms run;
    ``output_gate`` doubles the query projection; ``sinks`` adds a learned logit per head; ``kv_shared`` layers reuse
    an earlier layer's keys and values and have no projections for them; ``k_eq_v`` shares one projection.
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
    rotary: bool = True
    output_gate: bool = False
    sinks: bool = False
    kv_shared: bool = False
    k_eq_v: bool = False


@dataclass(frozen=True, kw_only=True, config=STRICT)
class LatentAttention:
    """Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434), with an optional sparse indexer (V3.2)."""

    kind: Literal["mla"] = "mla"
    num_attention_heads: Count
    q_lora_rank: Count | None
    kv_lora_rank: Count
    qk_nope_head_dim: Count
    qk_rope_head_dim: Count
    v_head_dim: Count
    index_n_heads: Count | None = None
    index_head_dim: Count | None = None
    index_topk: Count | None = None


@dataclass(frozen=True, kw_only=True, config=STRICT)
class StateSpace:
    """A recurrent mixer with a constant state: Mamba-2, gated delta net, Kimi delta attention, lightning attention.

    The state of one sequence is ``num_value_heads x key_dim x value_dim``.
    """

    kind: Literal["mamba2", "gated-delta-net", "kimi-delta", "linear"] = "mamba2"
    num_value_heads: Count
    num_key_heads: Count
    key_dim: Count
    value_dim: Count
    conv_kernel: int = 4
    bias: bool = False
    conv_bias: bool = True
    chunk_size: Count = 64


@dataclass(frozen=True, kw_only=True, config=STRICT)
class MLP:
    """Feed-forward part: gated (three matrices) or plain (two)."""

    kind: Literal["mlp"] = "mlp"
    intermediate_size: Count
    gated: bool = True
    bias: bool = False


@dataclass(frozen=True, kw_only=True, config=STRICT)
class MoE:
    """Mixture of experts: routed experts of ``moe_intermediate_size``, ``num_experts_per_tok`` active, and a shared MLP."""

    kind: Literal["moe"] = "moe"
    num_experts: Count
    num_experts_per_tok: Count
    moe_intermediate_size: Count
    shared_intermediate_size: int = 0
    gated: bool = True
    bias: bool = False
    router_bias: bool = False
    correction_bias: bool = False
    shared_gate: bool = False
    expert_hidden_size: Count | None = None


@dataclass(frozen=True, kw_only=True, config=STRICT)
class Block:
    """One residual layer: norms, a mixer and a feed-forward part (either may be absent in hybrid stacks).

    ``norms`` counts the hidden-sized norms of the block (2 in a pre-norm block, 4 in Gemma's sandwich, 1 in a parallel
    block). ``parallel``: mixer and feed-forward read the same norm and share one residual add (GPT-J, Falcon).
    ``extra_parameters`` counts weights that none of the fields describe (scalars, per-layer embeddings).
    """

    mixer: Attention | LatentAttention | StateSpace | None
    ffn: MLP | MoE | None
    norm: Literal["rmsnorm", "layernorm"] = "rmsnorm"
    norm_bias: bool = False
    norms: int = 2
    parallel: bool = False
    extra_parameters: int = 0


@dataclass(frozen=True, kw_only=True, config=STRICT)
class VisionTower:
    """The vision encoder and its projector, counted exactly; ``parameters`` is their total."""

    layers: Count
    hidden_size: Count
    intermediate_size: Count
    num_attention_heads: Count
    patch_size: Count
    parameters: Count


@dataclass(frozen=True, kw_only=True, config=STRICT)
class Model:
    """A decoder-only (or multimodal) language model.

    ``blocks`` are the distinct layers, ``pattern`` gives for each of the ``num_hidden_layers`` layers its index in
    ``blocks``. ``extra_parameters`` as in Block, outside the layers.
    """

    name: str
    hidden_size: Count
    vocab_size: Count
    blocks: tuple[Block, ...]
    pattern: tuple[int, ...]
    tie_word_embeddings: bool = False
    position_embeddings: Literal["rotary", "learned", "alibi", "none"] = "rotary"
    max_position_embeddings: Count
    embedding_norm: bool = False
    final_norm: bool = True
    head_bias: bool = False
    num_nextn_predict_layers: int = 0
    vision: VisionTower | None = None
    extra_parameters: int = 0

    @property
    def num_hidden_layers(self) -> int:
        """Number of layers."""
        return len(self.pattern)
