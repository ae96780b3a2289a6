"""Parts of a layer that selective recomputation names (Megatron-Core recompute_modules), in canonical operators."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from rapid_llm.model import Model
from rapid_llm.model.architecture import MLP, LatentAttention, MoE, StateSpace
from rapid_llm.runtime import Training

_SHARED: Final = ("shared_up", "shared_activation", "shared_mul", "shared_down")
_ROUTED: Final = (
    "router",
    "topk",
    "latent_down",
    "permute",
    "sort",
    "expert_up",
    "expert_clamp",
    "expert_activation",
    "expert_down",
    "expert_bias",
    "unsort",
    "unpermute",
    "latent_up",
)


@dataclass(frozen=True, slots=True)
class Module:
    """Operators that are recomputed, and the first words of the messages that are; ``discards``: their outputs are
    freed even where a later operator would have kept them (Megatron-Core CheckpointWithoutOutput).
    """

    operators: tuple[str, ...]
    messages: tuple[str, ...] = ()
    discards: bool = False


MODULES: Final[Mapping[str, Module]] = {
    "core_attn": Module(("attention", "scores", "softmax", "attention_dropout", "context")),
    "layernorm": Module(("norm",), discards=True),
    "mla_up_proj": Module(("q_norm", "q_up", "kv_norm", "kv_up", "rotary", "kv_join"), discards=True),
    "moe_act": Module(("expert_clamp", "expert_activation"), discards=True),
    "mlp": Module(("up", "activation", "mul", "down"), ("mlp",)),
    "moe": Module((*_ROUTED, *_SHARED), ("dispatch", "combine", "expert", "moe")),
    "shared_experts": Module(_SHARED),
}


def chosen(modules: Sequence[str], facts: Training | None) -> Module:
    """What selective recomputation recomputes: the modules that a job names, else those of its runtime."""
    if not modules:
        return Module(_with_cross(facts.selective) if facts else ())
    return Module(
        _with_cross([name for module in modules for name in MODULES[module].operators]),
        tuple(word for module in modules for word in MODULES[module].messages),
    )


def _with_cross(names: Sequence[str]) -> tuple[str, ...]:
    """The core of cross attention is recomputed wherever that of self-attention is."""
    return (*names, *(f"cross_{name}" for name in names if name in MODULES["core_attn"].operators))


def present(model: Model) -> tuple[str, ...]:
    """The modules that some layer of a model has."""
    mixers = [layer.mixer for layer in model.blocks if layer.mixer is not None]
    mixtures = [layer.ffn for layer in model.blocks if isinstance(layer.ffn, MoE)]
    has = {
        "core_attn": any(not isinstance(mixer, StateSpace) for mixer in mixers),
        "mla_up_proj": any(isinstance(mixer, LatentAttention) for mixer in mixers),
        "mlp": any(isinstance(layer.ffn, MLP) for layer in model.blocks),
        "moe_act": bool(mixtures),
        "moe": bool(mixtures),
        "shared_experts": any(ffn.shared_intermediate_size for ffn in mixtures),
    }
    return tuple(name for name in MODULES if has.get(name, True))


def discarded(modules: Sequence[str]) -> tuple[str, ...]:
    """Operators whose outputs are always freed."""
    return tuple(name for module in modules if MODULES[module].discards for name in MODULES[module].operators)
