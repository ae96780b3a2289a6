"""Architectures, exact parameter counts, FLOP counts, and the Hugging Face ``config.json`` reader."""

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
    VisionTower,
)
from rapid_llm.model.catalogue import document, load, names
from rapid_llm.model.flops import forward_flops, training_flops
from rapid_llm.model.groups import parameters_by_group
from rapid_llm.model.weights import (
    Weight,
    active_parameters,
    block_weights,
    outer_weights,
    parameters,
)

__all__ = [
    "MLP",
    "Attention",
    "Block",
    "CompressedAttention",
    "Encoder",
    "LatentAttention",
    "MoE",
    "Model",
    "StateSpace",
    "VisionTower",
    "Weight",
    "active_parameters",
    "block_weights",
    "document",
    "forward_flops",
    "load",
    "names",
    "outer_weights",
    "parameters",
    "parameters_by_group",
    "training_flops",
]
