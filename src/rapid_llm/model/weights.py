"""The one place that counts parameters: a block's tensors by role, and the tensors outside the layers."""

from collections.abc import Iterator
from functools import lru_cache
from math import prod

from pydantic.dataclasses import dataclass

from rapid_llm.model.architecture import (
    MLP,
    Attention,
    Block,
    CompressedAttention,
    Encoder,
    LatentAttention,
    Model,
    MoE,
    StateSpace,
)
from rapid_llm.nouns import STRICT

_HYPER_SCALES = 3
"""Scales of one hyper-connection: pre, post and residual mix (DeepSeek-V4 implementation)."""
FRAMES = 3
"""Frames that a convolution of sound sees at once (Whisper, section 2.2)."""


@dataclass(frozen=True, kw_only=True, config=STRICT)
class Weight:
    """``copies`` tensors of one shape; matrices are (inputs, outputs)."""

    role: str
    shape: tuple[int, ...]
    copies: int = 1

    @property
    def size(self) -> int:
        """Numbers in all copies."""
        return self.copies * prod(self.shape)


def _weight(role: str, *shape: int, copies: int = 1) -> Weight:
    return Weight(role=role, shape=shape, copies=copies)


def _linear(role: str, inputs: int, outputs: int, *, bias: bool = False, copies: int = 1) -> Iterator[Weight]:
    yield _weight(role, inputs, outputs, copies=copies)
    if bias:
        yield _weight(f"{role}.bias", outputs, copies=copies)


def _cross(a: Attention, hidden: int) -> Iterator[Weight]:
    """Cross attention: keys and values from what an encoder wrote."""
    for weight in _attention(a, hidden):
        role, shape = weight.role.replace("attention.", "cross."), weight.shape
        if role in ("cross.k", "cross.v"):
            shape = (a.cross_hidden_size or hidden, *shape[1:])
        yield Weight(role=role, shape=shape)


def _attention(a: Attention, hidden: int) -> Iterator[Weight]:
    queries, keys = a.num_attention_heads * a.head_dim, a.num_key_value_heads * a.head_dim
    values = a.num_key_value_heads * a.value_dim
    yield from _linear("attention.q", hidden, queries, bias=a.qkv_bias)
    if not a.kv_shared:
        yield from _linear("attention.k", hidden, keys, bias=a.qkv_bias)
        if not a.k_eq_v:
            yield from _linear("attention.v", hidden, values, bias=a.qkv_bias)
    if a.output_gate:
        yield from _linear("attention.gate", hidden, queries, bias=a.gate_bias)
    if a.head_gate:
        yield _weight("attention.gate", hidden, a.num_attention_heads)
    yield from _linear("attention.o", a.num_attention_heads * a.value_dim, hidden, bias=a.o_bias)
    if a.qk_norm != "none":
        full = a.qk_norm == "full"
        yield from _norms("attention.q_norm", queries if full else a.head_dim, bias=a.qk_norm_bias)
        if not a.kv_shared:
            yield from _norms("attention.k_norm", keys if full else a.head_dim, bias=a.qk_norm_bias)
    if a.sinks:
        yield _weight("attention.sinks", a.num_attention_heads)
    if a.index_n_heads and a.index_head_dim:
        yield _weight("attention.index.q", hidden, a.index_n_heads * a.index_head_dim)
        yield _weight("attention.index.k", hidden, a.index_head_dim)
        yield _weight("attention.index.norm", a.index_head_dim, copies=2)


def _latent(a: LatentAttention, hidden: int) -> Iterator[Weight]:
    heads = a.num_attention_heads
    if a.q_lora_rank is None:
        yield _weight("mla.q", hidden, heads * a.qk_head_dim)
    else:
        yield from _linear("mla.q_down", hidden, a.q_lora_rank, bias=a.bias)
        yield _weight("mla.q_norm", a.q_lora_rank)
        yield _weight("mla.q_up", a.q_lora_rank, heads * a.qk_head_dim)
    yield from _linear("mla.kv_down", hidden, a.kv_lora_rank + a.qk_rope_head_dim, bias=a.bias)
    yield _weight("mla.kv_norm", a.kv_lora_rank)
    yield _weight("mla.kv_up", a.kv_lora_rank, heads * (a.qk_nope_head_dim + a.v_head_dim))
    if a.output_gate:
        yield _weight("mla.gate", hidden, heads * a.v_head_dim)
    yield from _linear("mla.o", heads * a.v_head_dim, hidden, bias=a.bias)
    if a.index_n_heads and a.index_head_dim:
        yield _weight("mla.index.q", a.q_lora_rank or hidden, a.index_n_heads * a.index_head_dim)
        yield _weight("mla.index.k", hidden, a.index_head_dim)
        yield _weight("mla.index.norm", a.index_head_dim)
        yield _weight("mla.index.norm.bias", a.index_head_dim)
        yield _weight("mla.index.weights", hidden, a.index_n_heads)


def _compressor(role: str, hidden: int, rate: int, width: int, norm: int) -> Iterator[Weight]:
    yield _weight(f"{role}.kv", hidden, width)
    yield _weight(f"{role}.gate", hidden, width)
    yield _weight(f"{role}.position", rate, width)
    yield _weight(f"{role}.norm", norm)


def _compressed(a: CompressedAttention, hidden: int) -> Iterator[Weight]:
    heads, dim = a.num_attention_heads, a.head_dim
    yield _weight("mla.q_down", hidden, a.q_lora_rank)
    yield _weight("mla.q_norm", a.q_lora_rank)
    yield _weight("mla.q_up", a.q_lora_rank, heads * dim)
    yield _weight("mla.kv_down", hidden, dim)
    yield _weight("mla.kv_norm", dim)
    yield _weight("mla.o_down", heads * dim // a.o_groups, a.o_lora_rank, copies=a.o_groups)
    yield _weight("mla.o", a.o_groups * a.o_lora_rank, hidden)
    yield _weight("mla.sinks", heads)
    if a.compress_rate is None:
        return
    overlap = 2 if a.index_n_heads else 1
    yield from _compressor("mla.compress", hidden, a.compress_rate, overlap * dim, dim)
    if a.index_n_heads and a.index_head_dim:
        yield from _compressor("mla.index.compress", hidden, a.compress_rate, 2 * a.index_head_dim, a.index_head_dim)
        yield _weight("mla.index.q", a.q_lora_rank, a.index_n_heads * a.index_head_dim)
        yield _weight("mla.index.weights", hidden, a.index_n_heads)


def _mamba(s: StateSpace, hidden: int) -> Iterator[Weight]:
    inner, rank = s.inner_size, s.dt_rank or 1
    yield from _linear("ssm.in", hidden, 2 * inner, bias=s.bias)
    yield _weight("ssm.x", inner, rank + 2 * s.key_dim)
    yield from _linear("ssm.dt", rank, inner, bias=True)
    yield _weight("ssm.a", inner, s.key_dim)
    yield _weight("ssm.d", inner)
    if s.inner_norms:
        yield _weight("ssm.inner_norm", rank + 2 * s.key_dim)
    yield from _linear("ssm.out", inner, hidden, bias=s.bias)


def _mamba2(s: StateSpace, hidden: int) -> Iterator[Weight]:
    inner, heads = s.inner_size, s.num_value_heads
    yield from _linear("ssm.in", hidden, 2 * inner + 2 * s.key_size + heads, bias=s.bias)
    yield _weight("ssm.dt.bias", heads)
    yield _weight("ssm.a", heads)
    yield _weight("ssm.d", heads)
    if s.norm:
        yield _weight("ssm.norm", inner)
    yield from _linear("ssm.out", inner, hidden, bias=s.bias)


def _gated_delta_net(s: StateSpace, hidden: int) -> Iterator[Weight]:
    inner, heads = s.inner_size, s.num_value_heads
    yield _weight("ssm.in", hidden, 2 * s.key_size + 2 * inner)
    yield _weight("ssm.beta_decay", hidden, 2 * heads)
    yield _weight("ssm.dt.bias", heads)
    yield _weight("ssm.a", heads)
    yield _weight("ssm.norm", s.value_dim)
    yield _weight("ssm.out", inner, hidden)


def _kimi_delta(s: StateSpace, hidden: int) -> Iterator[Weight]:
    inner, heads, dim = s.inner_size, s.num_value_heads, s.value_dim
    yield _weight("ssm.in", hidden, 2 * s.key_size + inner)
    yield _weight("ssm.decay_down", hidden, dim)
    yield _weight("ssm.decay_up", dim, s.key_size)
    yield _weight("ssm.dt.bias", s.key_size)
    yield _weight("ssm.a", heads)
    yield _weight("ssm.beta", hidden, heads)
    if s.gate_rank is None:
        yield _weight("ssm.gate", hidden, inner)
    else:
        yield _weight("ssm.gate_down", hidden, s.gate_rank)
        yield _weight("ssm.gate_up", s.gate_rank, inner)
    yield _weight("ssm.norm", dim)
    yield _weight("ssm.out", inner, hidden)


def _lightning(s: StateSpace, hidden: int) -> Iterator[Weight]:
    inner = s.inner_size
    yield _weight("ssm.in", hidden, 2 * s.key_size + inner)
    yield _weight("ssm.gate", hidden, inner)
    yield _weight("ssm.norm", inner)
    yield _weight("ssm.out", inner, hidden)


def _short_conv(s: StateSpace, hidden: int) -> Iterator[Weight]:
    inner = s.inner_size
    yield from _linear("ssm.in", hidden, 3 * inner, bias=s.bias)
    yield from _linear("ssm.out", inner, hidden, bias=s.bias)


_STATE_SPACES = {
    "mamba": _mamba,
    "mamba2": _mamba2,
    "gated-delta-net": _gated_delta_net,
    "kimi-delta": _kimi_delta,
    "linear": _lightning,
    "short-conv": _short_conv,
}


def _state_space(s: StateSpace, hidden: int) -> Iterator[Weight]:
    yield from _STATE_SPACES[s.kind](s, hidden)
    if s.conv_channels:
        yield _weight("ssm.conv", s.conv_channels, s.conv_kernel)
        if s.conv_bias:
            yield _weight("ssm.conv.bias", s.conv_channels)


def _feed_forward(role: str, hidden: int, inner: int, *, gated: bool, bias: bool, copies: int = 1) -> Iterator[Weight]:
    if gated:
        yield from _linear(f"{role}.gate", hidden, inner, bias=bias, copies=copies)
    yield from _linear(f"{role}.up", hidden, inner, bias=bias, copies=copies)
    yield from _linear(f"{role}.down", inner, hidden, bias=bias, copies=copies)


def _experts(m: MoE, hidden: int) -> Iterator[Weight]:
    width = m.expert_hidden_size or hidden
    yield from _linear("moe.router", hidden, m.num_experts, bias=m.router_bias)
    if m.correction_bias:
        yield _weight("moe.correction_bias", m.num_experts)
    if m.router_scale:
        yield _weight("moe.router.scale", m.num_experts)
    if m.router_norm:
        yield _weight("moe.router.norm", hidden)
    if m.expert_hidden_size is not None:
        yield _weight("moe.latent.down", hidden, width)
        yield _weight("moe.latent.up", width, hidden)
        if m.latent_norm:
            yield _weight("moe.latent.norm", width)
    yield from _feed_forward(
        "moe.expert", width, m.moe_intermediate_size, gated=m.gated, bias=m.bias, copies=m.num_experts
    )
    if m.shared_intermediate_size:
        yield from _feed_forward("moe.shared", hidden, m.shared_intermediate_size, gated=m.gated, bias=m.shared_bias)
    if m.shared_gate:
        yield _weight("moe.shared_gate", hidden, 1)


def _mixer(mixer: Attention | LatentAttention | CompressedAttention | StateSpace, hidden: int) -> Iterator[Weight]:
    match mixer:
        case Attention():
            return _attention(mixer, hidden)
        case LatentAttention():
            return _latent(mixer, hidden)
        case CompressedAttention():
            return _compressed(mixer, hidden)
    return _state_space(mixer, hidden)


def _norms(role: str, size: int, *, bias: bool, copies: int = 1) -> Iterator[Weight]:
    if copies:
        yield _weight(role, size, copies=copies)
        if bias:
            yield _weight(f"{role}.bias", size, copies=copies)


def _hyper_connections(streams: int, hidden: int) -> Iterator[Weight]:
    """Two of them a block, around the mixer and the feed-forward part."""
    mixes = (2 + streams) * streams
    yield _weight("hyper.mix", streams * hidden, mixes, copies=2)
    yield _weight("hyper.base", mixes + _HYPER_SCALES, copies=2)


@lru_cache(maxsize=1024)
def block_weights(block: Block, hidden_size: int) -> tuple[Weight, ...]:
    """The tensors of one block, biases and norms included; roles as in docs/architecture.md."""
    found: list[Weight] = []
    for mixer in (block.mixer, block.side_mixer):
        if mixer is not None:
            found.extend(_mixer(mixer, hidden_size))
    if block.cross is not None:
        found.extend(_cross(block.cross, hidden_size))
    if isinstance(block.ffn, MLP):
        mlp = block.ffn
        found.extend(_feed_forward("mlp", hidden_size, mlp.intermediate_size, gated=mlp.gated, bias=mlp.bias))
    elif isinstance(block.ffn, MoE):
        found.extend(_experts(block.ffn, hidden_size))
    found.extend(_norms("norm", hidden_size, bias=block.norm_bias, copies=block.norms if block.norm_weight else 0))
    if block.hyper_connections:
        found.extend(_hyper_connections(block.hyper_connections, hidden_size))
    if block.extra_parameters:
        found.append(_weight("extra", block.extra_parameters))
    return tuple(found)


@lru_cache(maxsize=256)
def outer_weights(model: Model) -> tuple[Weight, ...]:
    """The tensors outside the layers: embeddings, final norm, head (absent when tied), vision tower."""
    hidden, width = model.hidden_size, model.embedding_size or model.hidden_size
    last = model.blocks[model.pattern[-1]]
    found = [_weight("embedding", model.vocab_size, width)]
    if model.patch_values:
        found = [_weight("patch", model.patch_values, hidden), _weight("patch.bias", hidden), _weight("class", hidden)]
    if width != hidden:
        found += [_weight("embedding.in", width, hidden), _weight("embedding.out", hidden, width)]
    if model.position_embeddings == "learned":
        found.append(_weight("position", model.num_positions or model.max_position_embeddings, hidden))
    if model.embedding_norm:
        found.extend(_norms("embedding_norm", hidden, bias=last.norm_bias))
    if model.final_norm and last.norm_weight:
        found.extend(_norms("final_norm", hidden, bias=last.norm_bias))
    if model.head != "none":
        found.extend(_head(model, width))
    if model.pooler:
        found.extend(_linear("pooler", hidden, hidden, bias=True))
    if model.labels:
        found.extend(_linear("classifier", hidden, model.labels, bias=True))
    if model.encoder is not None:
        found.extend(_around_encoder(model.encoder, norm_bias=last.norm_bias))
    if model.vision is not None:
        found.append(_weight("vision", model.vision.parameters))
    if model.extra_parameters:
        found.append(_weight("extra", model.extra_parameters))
    return tuple(found)


def _head(model: Model, width: int) -> Iterator[Weight]:
    """The layers before the output vocabulary, and the rows of that where they are not the embedding's."""
    if model.head == "masked":
        last = model.blocks[model.pattern[-1]]
        yield from _linear("head.dense", model.hidden_size, width, bias=model.head_dense_bias)
        yield from _norms("head.norm", width, bias=last.norm_bias)
    if not model.tie_word_embeddings:
        yield _weight("head", width, model.vocab_size)
    if model.head_bias:
        yield _weight("head.bias", model.vocab_size)


def _around_encoder(encoder: Encoder, *, norm_bias: bool) -> Iterator[Weight]:
    """What an encoder has beside its layers."""
    hidden = encoder.hidden_size
    if encoder.vocab_size:
        yield _weight("encoder.embedding", encoder.vocab_size, hidden)
    if encoder.mel_bins:
        yield from _linear("encoder.sound", FRAMES * encoder.mel_bins, hidden, bias=True)
        yield from _linear("encoder.steps", FRAMES * hidden, hidden, bias=True)
    if encoder.num_positions:
        yield _weight("encoder.position", encoder.num_positions, hidden)
    yield from _norms("encoder.norm", hidden, bias=norm_bias, copies=encoder.embedding_norm + encoder.final_norm)
    if encoder.extra_parameters:
        yield _weight("encoder.extra", encoder.extra_parameters)


def block_parameters(block: Block, hidden_size: int) -> int:
    """Parameters of one block."""
    return sum(weight.size for weight in block_weights(block, hidden_size))


@lru_cache(maxsize=256)
def parameters(model: Model) -> int:
    """All parameters, exactly as the reference implementation creates them.

    Tied tensors count once; buffers and heads for further tokens (``num_nextn_predict_layers``) do not count.
    """
    outer = sum(weight.size for weight in outer_weights(model))
    return outer + sum(count * block_parameters(block, hidden) for block, hidden, count in model.stacks)


@lru_cache(maxsize=256)
def active_parameters(model: Model) -> int:
    """Parameters that one token meets: all but the routed experts that its router leaves out.

    Embeddings and head count in full, as in published figures ("30B-A3B"); so does a vision tower.
    """
    return parameters(model) - sum(count * _idle_parameters(block, hidden) for block, hidden, count in model.stacks)


def _idle_parameters(block: Block, hidden_size: int) -> int:
    if not isinstance(block.ffn, MoE):
        return 0
    moe = block.ffn
    routed = sum(w.size for w in block_weights(block, hidden_size) if w.role.startswith("moe.expert."))
    return routed // moe.num_experts * (moe.num_experts - min(moe.num_experts_per_tok, moe.num_experts))
