"""Which layers stand on which pipeline stage."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from rapid_llm.model.architecture import Model
from rapid_llm.model.weights import block_weights
from rapid_llm.parallelism import Plans

Counts = NDArray[np.float64]
ROUNDING = 1e-9
"""Relative slack where a division that is exact on paper is rounded."""


@lru_cache(maxsize=64)
def _prefix(pattern: tuple[int, ...], kinds: int) -> NDArray[np.float64]:
    """How many layers of each kind stand before each layer boundary [kinds, layers + 1]."""
    marks = np.zeros((kinds, len(pattern) + 1))
    marks[np.array(pattern), np.arange(1, len(pattern) + 1)] = 1.0
    return marks.cumsum(axis=1)


@lru_cache(maxsize=256)
def _costs(model: Model) -> tuple[NDArray[np.float64], float]:
    """Matrix elements of the layers before each layer boundary [layers + 1], and of the LM head."""
    blocks = [
        float(sum(w.size for w in block_weights(layer, model.hidden_size) if len(w.shape) > 1))
        for layer in model.blocks
    ]
    return np.array([0.0, *np.cumsum([blocks[kind] for kind in model.pattern])]), float(
        model.vocab_size * model.hidden_size
    )


def _balanced(model: Model, pp: int, stages: int) -> NDArray[np.int64]:
    """Layer boundaries of stages that close once they reach their share of the whole cost, head included [stages + 1].

    The rule of nanotron (``build_model`` in helpers: cumulative block costs against pp equal thresholds).
    """
    done, head = _costs(model)
    shares = np.minimum(np.arange(1, stages + 1), pp) * ((done[-1] + head) / pp)
    ends = np.minimum(np.searchsorted(done, shares * (1.0 - ROUNDING)), model.num_hidden_layers)
    return np.concatenate([[0], ends]).astype(np.int64)


def _even(layers: int, pp: int, stages: int) -> NDArray[np.int64]:
    """Layer boundaries of stages of as many layers each, outer parts counting where that evens them [stages + 1]."""
    last = int(layers % pp != 0 and 0 in ((layers + 1) % pp, (layers + 2) % pp))
    first = int(last > 0 and (layers + 1) % pp != 0)
    edge = np.minimum(np.arange(stages + 1), pp)
    slots = np.floor(edge * (layers + last + first) / pp + ROUNDING)
    bounds: NDArray[np.int64] = np.clip(slots - first, 0, layers).astype(np.int64)
    return bounds


@lru_cache(maxsize=1024)
def _dealt(model: Model, pp: int, stages: int, balance: str) -> Counts:
    """Layers of each block kind on each of ``pp`` parts, none on those beyond [kinds, stages]."""
    bounds = _balanced(model, pp, stages) if balance == "cost" else _even(model.num_hidden_layers, pp, stages)
    return np.diff(_prefix(model.pattern, len(model.blocks))[:, bounds], axis=1)


def layers_per_part(model: Model, plans: Plans, balance: str = "layers") -> Counts:
    """Layers of each block kind in each part of the model [kinds, P, parts]; parts beyond a plan's own hold none.

    Parts are stages, or the two of each stage under a schedule in a V.

    ``layers``: layers are dealt in order. Where pp does not divide them the LM head counts as a layer of the last
    stage, or it and the embedding of the first (Megatron-Core ``account_for_loss_in_pipeline_split``; Llama 3, section
    3.3.2), if that makes stages equal; else the later stages hold one more. ``cost``: stages of equal cost, the LM head
    being one more block. Layers that a user deals to stages, or to all their chunks in order, stand as they are.
    """
    most = int(plans.parts.max())
    if plans.stage_layers:
        prefix = _prefix(model.pattern, len(model.blocks))
        dealt = np.diff(prefix[:, np.cumsum((0, *plans.stage_layers))], axis=1)
        on_parts = dealt.reshape(len(dealt), -1, most).sum(axis=1)  # chunk c stands on stage c mod pp
        return np.repeat(on_parts[:, None, :], len(plans), axis=1)
    return np.stack([_dealt(model, int(parts), most, balance) for parts in plans.parts.tolist()], axis=1)


def on_stages(parts: Counts, plans: Plans) -> Counts:
    """What each stage holds of the parts of the model [units, P, stages]: its own, and under a schedule in a V or of
    two ways also the part that is as far from the other end."""
    both = plans.folded | plans.two_way
    if not both.any():
        return parts
    stage = np.arange(int(plans.pp.max()))
    mirror = np.maximum(plans.parts[:, None] - 1.0 - stage, 0.0).astype(np.int64)
    other = np.take_along_axis(parts, np.broadcast_to(mirror, (len(parts), *mirror.shape)), axis=2)
    held = parts[:, :, : len(stage)] + np.where(both[:, None], other, 0.0)
    return np.asarray(held * (stage < plans.pp[:, None]))
