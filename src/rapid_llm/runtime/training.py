"""Facts of a training framework."""

from typing import Literal

from pydantic.dataclasses import dataclass

from rapid_llm.nouns import STRICT, FrozenDict, Map
from rapid_llm.runtime.software import EXCHANGES, Exchange
from rapid_llm.units import Bytes, Count, NonNegative, Positive, Share, Whole


@dataclass(frozen=True, kw_only=True, config=STRICT)
class Training:
    """Facts of a training framework that change operators, bytes and passes, or that limit its plans."""

    fused_attention: bool = True
    """False: attention scores are stored and moved, as before FlashAttention."""
    softmax_multiple: Count = 1
    """Score matrices of a launch must be a multiple of it for the fused softmax; else casts, mask and softmax run
    apart.
    """
    dropout: bool = False
    """Adds the masks and passes of dropout."""
    reduce_dtype: str = "fp32"
    """Format in which gradients are reduced."""
    ring_gradients: str | None = None
    """Format of the gradients of keys and values around a context-parallel ring; None: as activations."""
    gradient_buffers: NonNegative = 0.0
    """Bytes per parameter beside the precision's gradient (nanotron keeps bf16 and fp32)."""
    adds_gradients: bool = False
    """A kernel of its own adds the gradients of every micro-batch to those of the step."""
    vocab_multiple: Count = 1
    """The vocabulary is padded to a multiple of it on every tensor rank."""
    loss_copies: NonNegative = 2.0
    """Copies of the logits in fp32 that are alive at the loss."""
    sharded_gather_layers: Count = 2
    """Layers whose weights are unsharded at a time under ZeRO-3."""
    gather_buffers: NonNegative = 0.0
    """Whole inputs that sequence parallelism gathers into buffers which are never freed."""
    step_buffers: NonNegative = 0.0
    """Bytes per parameter that ZeRO-1 and 2 hold from one optimizer step to the next forward pass."""
    owned_buffers: NonNegative = 0.0
    """Bytes per parameter that a rank updates under ZeRO, beside those of the optimizer."""
    balance: Literal["layers", "cost"] = "layers"
    """Layers are dealt to stages by number, or by cost with the LM head as one block."""
    selective_keeps: Map[tuple[str, ...]] = FrozenDict()
    """By compute dtype: tensors that stay under selective recompute, where these are not all that the other operators
    need.
    """
    checkpoint_inputs: NonNegative = 1.0
    """Hidden states that a fully recomputed layer keeps."""
    sharded_masters: bool = False
    """ZeRO-3 shards the fp32 masters and has no other weights."""
    pipeline_keeps_whole: bool = False
    """ZeRO-3 beside a pipeline gathers once a step and adds up whole gradients."""
    pipeline_zero_stage: Literal[0, 1, 2, 3] = 3
    """The highest stage of ZeRO beside a pipeline."""
    offloads: bool = True
    """Whether anything can be offloaded to the host."""
    offload_zero_stage: Literal[0, 1, 2, 3] = 0
    """The lowest ZeRO stage from which the optimizer can."""
    pipeline_offload: bool = True
    """Activations can be offloaded beside a pipeline."""
    zero_stages: tuple[Literal[0, 1, 2, 3], ...] = (0, 1, 2, 3)
    """Stages of ZeRO that there are."""
    experts_zero_stage: Literal[0, 1, 2, 3] = 3
    """The highest stage of ZeRO beside expert parallelism."""
    schedules: tuple[str, ...] = ()
    """Pipeline schedules that it runs; empty: any."""
    exchange: tuple[Exchange, ...] = EXCHANGES
    """How context parallelism may exchange sequences, the default first."""
    window_exchange: tuple[Exchange, ...] = EXCHANGES
    """Exchanges that work with sliding windows, the default first."""
    latent_exchange: tuple[Exchange, ...] = EXCHANGES
    """Exchanges that work with latent attention, the default first."""
    without: tuple[Literal["tp", "pp", "cp", "ep"], ...] = ()
    """Parallel axes that the framework does not have."""
    experts_need_sp: bool = False
    """Expert parallelism with tensor parallelism needs sequence parallelism."""
    repeats_kv_heads: bool = False
    """Key-value heads are repeated where tensor parallelism is wider than they are many."""
    frees_gradients: bool = False
    """There are no gradients before the first backward pass of a step."""
    selective: tuple[str, ...] = ("attention", "scores", "softmax", "attention_dropout", "context")
    """Canonical operators that selective recompute runs again."""
    selective_share: Map[Map[Share]] = FrozenDict()
    """By compute dtype: which share of an operator runs again, where that differs from all of it."""
    bucket: Bytes = 0
    """Bytes of one gradient message; 0: a message a layer."""
    coalesced_shards: bool = False
    """ZeRO hands all its gradients, and all its weights, to one call each."""
    short_gathers: tuple[str, ...] = ()
    """Compute formats in which inputs and output gradients of tensor parallelism, and the weights of layers, are
    rounded before they are gathered.
    """
    saves_rounded: bool = False
    """Products keep their rounded inputs for the weight gradient."""
    gather_copies: bool = False
    """What does not travel in pieces is gathered and scattered along an inner dimension, through a copy."""
    expert_streams: Whole = 0
    """Streams on which the products of experts are launched one by one; 0: one grouped kernel."""
    expert_casts: NonNegative = 1.0
    """Launches that round the operands of one such product."""
    weighs_early: bool = False
    """The weights of a token's experts are multiplied into their activations."""
    recompute_stops: bool = False
    """Recomputation ends with the last tensor that the backward pass needs."""
    decomposed: Map[Positive] = FrozenDict()
    """By operator: how many times the bytes of one fused kernel its separate kernels move."""
    scatter_gather: bool = False
    """Sends 1/tp of a pipeline message per rank and gathers it behind (arXiv 2104.04473, section 4.1)."""
