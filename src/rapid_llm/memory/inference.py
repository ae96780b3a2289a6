"""The memory of an inference engine: weights, the widest pass, and the cache that the rest is given to."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from rapid_llm.dtypes import Precision, dtype
from rapid_llm.hardware import Accelerator
from rapid_llm.lowering import Lowered
from rapid_llm.lowering.cache import cache_bytes
from rapid_llm.lowering.weights import ahead_parameters
from rapid_llm.memory.account import CATEGORIES, Account, Mask, stacked
from rapid_llm.memory.footprint import DecodeBytes
from rapid_llm.model import Model
from rapid_llm.nouns import light
from rapid_llm.runtime import Allocator, Runtime, Serving
from rapid_llm.workload import HostShare

Column = NDArray[np.float64]
Matrix = NDArray[np.float64]
CACHE, SLACK = CATEGORIES.index("kv_cache"), CATEGORIES.index("allocator")
LAYERS_IN_FLIGHT = 2.0
"""Layers whose fetched weights are on the accelerator at once: the one in use and the next."""
MATRICES_IN_FLIGHT = 2.0 / 3.0
"""Of a layer's experts, gate, up and down one by one, what is on the accelerator while a long prompt streams them."""
RESIDUAL_STREAMS = 2.0
"""Hidden states that stand beside the widest kernel of a pass: the residual and the layer's input."""


def inference_account(  # noqa: PLR0917
    step: DecodeBytes,
    runtime: Runtime,
    precision: Precision,
    accelerator: Accelerator,
    offload: HostShare | None = None,
    beside: tuple[float, float] = (0.0, 0.0),
) -> Account:
    """Weights, the cache of all requests at their longest, and the widest pass that the engine prepares for.

    ``step`` is the last decode step; its micro-batch holds all requests of a replica.
    The limits are what the engine may use: see ``limits``. Of what is offloaded one layer is on its way and one in use;
    layers that the host runs have their cache there.
    ``beside``: weights and cache of a draft model on a rank of the last stage.
    """
    allocator = runtime.allocator
    fixed = _sets_aside(runtime) and not step.unit.uncut
    rest = _rest(step.unit, runtime, precision, offload, beside, 0.0 if fixed else step.prompt)
    cache, host, alive = np.einsum("ups,up->ps", step.unit.layers, step.cache), rest.host, rest.alive
    if offload is not None and offload.any:
        away = offload.away(with_layers=runtime.runs_layers_on_host)
        cache, host = (1.0 - away) * cache, host + away * cache
    cache = cache + rest.drafting
    slack = allocator.fragmentation * (rest.workspace + cache) + allocator.slack
    by_category = rest.by_category.copy()
    by_category[CACHE], by_category[SLACK] = cache * alive, slack * alive
    capacity = float(accelerator.memory.reported_capacity)
    return Account(
        by_category=by_category,
        persistent=rest.weights,
        allocated=np.where(alive, rest.weights + cache + rest.workspace, 0.0),
        reclaimable=rest.none,
        displaced=rest.none,
        limits=limits(by_category, allocator, capacity),
        capacity=capacity,
        host=np.where(alive, host, 0.0),
    )


def predictor_bytes(step: DecodeBytes, model: Model, precision: Precision) -> tuple[float, float]:
    """Weights and cache of a predictor of further tokens on a rank of the last stage: a layer, the projection of state
    and embedding, two norms (DeepSeek-V3, section 2.2), and keys and values of the same tokens."""
    unit, lowered = model.pattern[-1], step.unit
    dense = lowered.dense[unit, -1] + ahead_parameters(model, lowered.shapes.plans, 1)[-1]
    weights = (
        dense * dtype(precision.weights).bytes + lowered.expert[unit, -1] * dtype(precision.of_experts.weights).bytes
    )
    return float(weights), float(step.cache[unit, -1])


@light
class _Rest:
    """What an account holds beside the cache [P, S], which no length changes; ``drafting``: cache of a draft model."""

    weights: Matrix
    workspace: Matrix
    host: Matrix
    drafting: Matrix
    alive: Mask
    by_category: Matrix
    none: Matrix


@lru_cache(maxsize=512)
def _rest(  # noqa: PLR0917
    unit: Lowered,
    runtime: Runtime,
    precision: Precision,
    offload: HostShare | None,
    beside: tuple[float, float],
    prompt: float,
) -> _Rest:
    """``prompt``: tokens of each request where the widest pass depends on them."""
    s, layers, allocator = unit.shapes, unit.layers, runtime.allocator
    kinds = len(unit.units) - 2
    sizes = np.full(len(unit.units), dtype(precision.weights).bytes)
    sizes[kinds:] = s.head[0]
    kept = unit.dense * sizes[:, None] + unit.expert * dtype(precision.of_experts.weights).bytes
    weights = np.einsum("ups,up->ps", layers, kept)
    workspace = _workspace(unit, runtime, prompt) + allocator.workspace
    none = np.zeros_like(weights)
    host = none
    if offload is not None and offload.any:
        left = _leaving(unit, runtime, precision, offload, sizes)
        host, weights, workspace = left[0], weights - left[0], workspace + left[1]
    stages = np.arange(layers.shape[2])[None, :]
    alive, last = stages < s.plans.pp[:, None], stages == s.plans.pp[:, None] - 1
    weights = weights + last * beside[0]
    by_category = stacked({"weights": weights, "workspace": workspace}, s.plans, allocator, alive)
    weights = np.where(alive, weights, 0.0)
    return _Rest(weights, workspace, host, last * beside[1], alive, by_category, none)


def _leaving(
    lowered: Lowered, runtime: Runtime, precision: Precision, offload: HostShare, sizes: Column
) -> tuple[Matrix, Matrix]:
    """Bytes of weights that each stage offloads to its host, and of those in transfer at any time [P, S]."""
    layers, kinds = lowered.layers, len(lowered.units) - 2
    held = (lowered.dense + lowered.expert)[:kinds] * sizes[:kinds, None]
    leaving = offload.weights * np.einsum("ups,up->ps", layers[:kinds], held)
    passing = (LAYERS_IN_FLIGHT * offload.weights * held.max(axis=0))[:, None]
    if offload.experts:
        apart = offload.experts * dtype(precision.of_experts.weights).bytes * lowered.expert
        leaving = leaving + np.einsum("ups,up->ps", layers, apart)
        if runtime.host_experts and runtime.host_experts.stream:
            passing = passing + (MATRICES_IN_FLIGHT * apart.max(axis=0))[:, None]
    return leaving, passing


def limits(by_category: Matrix, allocator: Allocator, capacity: float) -> Matrix:
    """Bytes that the process may use [P, S] from its parts [C, P, S], as the engine computes its budget.

    total (vLLM): share x memory for all that it allocates after its start; the context, and graphs where the engine
    does not count them, come on top. free (TensorRT-LLM): share x what weights, workspace and context leave free, for
    the cache. static (SGLang): share x what is free at the start, for weights and cache.
    """
    parts = dict(zip(CATEGORIES, by_category, strict=True))
    rest = np.asarray(by_category.sum(axis=0) - parts["kv_cache"])
    limit: Matrix | float
    share = 1.0 if allocator.utilisation is None else allocator.utilisation
    match allocator.of:
        case "free":
            limit = rest + share * (capacity - rest)
        case "static":
            limit = rest - parts["weights"] + share * (capacity - allocator.context - parts["communication"])
        case _:
            limit = share * capacity + allocator.context + (0.0 if allocator.counts_graphs else allocator.graphs)
    return np.asarray(np.minimum(limit, capacity) + np.zeros(rest.shape))


def _sets_aside(runtime: Runtime) -> bool:
    """Whether an engine reserves memory for the widest pass that it may run, whatever the workload."""
    return runtime.allocator.utilisation not in (None, 1.0)


def _workspace(lowered: Lowered, runtime: Runtime, prompt: float) -> Matrix:
    """Bytes of the widest pass [P, S]: a layer over a full token budget, or the sampler over all sequences.

    An engine that sets memory aside runs both once before it serves (vLLM ``profile_run``); others hold what the
    batch needs.
    """
    s, layers = lowered.shapes, lowered.layers
    engine = runtime.serving or Serving()
    none = np.zeros(len(s.plans))
    budget, sequences = none + engine.max_batched_tokens, none + engine.max_sequences
    if not _sets_aside(runtime):
        budget = np.minimum(budget, s.batch * np.maximum(prompt, s.source))
        sequences = np.minimum(sequences, s.batch)
    budget = np.maximum(budget, prompt if lowered.uncut else s.source)
    present = layers > 0
    widest = lowered.working[:-1] * (budget / np.maximum(s.tokens, 1.0))
    stream = RESIDUAL_STREAMS * budget * lowered.hidden_size * s.act
    logits = lowered.logits / np.maximum(s.rows, 1.0) * s.plans.tp * sequences * engine.logit_bytes
    passes = (present[:-1] * widest[:, :, None]).max(axis=0) + stream[:, None]
    return np.asarray(np.maximum(passes, present[-1] * (logits + stream / RESIDUAL_STREAMS)[:, None]))


@light
class CacheBudget:
    """What an engine's cache holds on the stage that holds least.

    terms: the account of ``room_bytes``, from the capacity down, which they sum to; sequences: of ``length`` tokens,
    each in whole blocks of every layer, beside a recurrent state; blocks: of ``block_tokens`` tokens in every layer
    that grows, ``block_bytes`` each, beside the states of those sequences (0 where nothing grows).
    """

    terms: Mapping[str, float]
    room_bytes: float
    block_tokens: int
    block_bytes: float
    blocks: int
    length: int
    sequences: int

    @property
    def tokens(self) -> int:
        """Tokens that fit."""
        return self.blocks * self.block_tokens


def cache_room(account: Account) -> Matrix:
    """Bytes left to the cache on each stage [P, S]."""
    return np.asarray(account.limits - account.peak + account.by_category[CACHE])


def cache_budget(
    lowered: Lowered,
    model: Model,
    runtime: Runtime,
    account: Account,
    *,
    length: int,
    row: int = -1,
    share: float = 1.0,
) -> CacheBudget:
    """Blocks, and sequences of ``length`` tokens, that one replica's cache holds: the least over its stages. ``share``:
    the part of a sequence's cache on one rank: below 1 with context parallelism and offload.
    """
    engine = runtime.serving or Serving(kv_block_tokens=1)
    tokens = engine.kv_block_tokens
    plans = lowered.shapes.plans
    tp, kvp = float(plans.tp[row]), float(plans.kvp[row])
    lengths = np.array([0.0, tokens * kvp, length])
    room = np.maximum(cache_room(account)[row], 0.0)
    source = float(lowered.shapes.source[row])
    # bytes of a sequence of these lengths
    held = lowered.shapes.kv, tokens
    each = cache_bytes(model, tp, lengths, *held, source=source, kvp=kvp, windows=engine.frees_windows)
    states, block, whole = each.T @ lowered.layers[:, row, :] * share
    grows = block - states
    sequences = _count(room, whole)
    left = np.maximum(room - sequences * states, 0.0)
    stage = int(np.where(grows > 0, left / np.maximum(grows, 1.0), np.inf).argmin())
    parts = dict(zip(CATEGORIES, account.by_category[:, row, stage], strict=True))
    terms = {
        "capacity": account.capacity,
        "left free": float(account.limits[row, stage]) - account.capacity,
        **{name: -float(size) for name, size in parts.items() if size and name != "kv_cache"},
    }
    return CacheBudget(
        terms=terms,
        room_bytes=sum(terms.values()),
        block_tokens=int(tokens * kvp),
        block_bytes=float(grows[stage]),
        blocks=_count(left, grows),
        length=length,
        sequences=sequences,
    )


def _count(room: Column, each: Column) -> int:
    """How many of ``each`` bytes fit on every stage; 0 where there is nothing to hold."""
    taken = each > 0
    return int((room[taken] // each[taken]).min()) if taken.any() else 0
