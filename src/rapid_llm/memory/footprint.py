"""The bytes of a lowered step alone, without a row of kernels: what a verdict needs, at the price of a look-up.

Bytes of a training pass are a quadratic of the sequence length (attention scores have its square) and linear in the
micro-batch; of an inference pass linear in the batch. So units are lowered once per model, software and degrees, and
evaluated at any length and batch.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rapid_llm.dtypes import Precision
from rapid_llm.lowering import Lowered, Shapes, lower
from rapid_llm.lowering.cache import cache_bytes
from rapid_llm.lowering.shapes import EVEN
from rapid_llm.model import CompressedAttention, Model
from rapid_llm.nouns import light
from rapid_llm.parallelism import PLAN_COLUMNS, Plans
from rapid_llm.runtime import Runtime, Serving
from rapid_llm.workload import Routing

Matrix = NDArray[np.float64]
Software = tuple[Model, Runtime, Precision]

SHAPING = ("tp", "pp", "vpp", "cp", "ulysses", "ep", "etp", "sp", "recompute", "recompute_every", "schedule", "kvp")
"""Columns of a plan that change the bytes of a pass of one sequence; the others change how many are held."""
SHORT = 2
"""Cached tokens at which a decode step is lowered where its tensors do not grow with them."""
SAMPLE = 4096.0
"""Length at which, and at twice which, a training pass is lowered; tp x cp divide it."""


def training_footprint(
    model: Model, runtime: Runtime, precision: Precision, plans: Plans, *, sequence_length: int
) -> Lowered:
    """Bytes of a training pass of one plan; equal to ``lower(..., bytes_only=True)``."""
    unit, linear, square = _curves((model, runtime, precision), _degrees(plans))
    length = float(sequence_length)
    saved, working, gathered = (linear + square * length) * (length * plans.micro_batch)
    shapes = _shapes(plans, (length, 0.0), (runtime, precision), training=True)
    logits = unit.logits / unit.shapes.rows * shapes.rows
    return replace(unit, shapes=shapes, saved=saved, working=working, gathered=gathered, logits=logits)


@light
class DecodeBytes:
    """The bytes of a decode step of one plan: ``unit``, its lowered pass but for what is cached, is the same object for
    any length; ``prompt``: tokens of every request that its first pass reads, ``cache`` [U, P]."""

    unit: Lowered
    prompt: float
    cache: Matrix


def inference_footprint(
    model: Model,
    runtime: Runtime,
    precision: Precision,
    plans: Plans,
    *,
    cached: float,
    prompt: float,
    source: float = 0.0,
    routing: Routing = EVEN,
) -> DecodeBytes:
    """Bytes of the decode step of one plan after which ``cached`` tokens of every request are cached, ``prompt`` of
    them by its first pass, beside keys and values of ``source`` tokens of an encoder."""
    length = cached if _reads_by_length(model) else SHORT
    unit = _decode((model, runtime, precision), plans, length, source, routing)
    engine = runtime.serving or Serving(kv_block_tokens=1)
    common = unit.shapes.kv, engine.kv_block_tokens
    lengths = np.array([cached])
    each = cache_bytes(model, plans.tp, lengths, *common, source=source, kvp=plans.kvp, windows=engine.frees_windows)
    return DecodeBytes(unit, prompt, each * plans.micro_batch / plans.cp)


@lru_cache(maxsize=256)
def _reads_by_length(model: Model) -> bool:
    """Whether the widest tensors of a decode step grow with what is cached: an indexer scores every token."""
    mixers = [block.mixer for block in model.blocks]
    return any(isinstance(m, CompressedAttention) or getattr(m, "index_n_heads", None) for m in mixers)


Degrees = tuple[tuple[int, ...], tuple[float, ...]]
"""Layers that a user deals to stages, and the columns of SHAPING."""


def _degrees(plans: Plans) -> Degrees:
    return plans.stage_layers, tuple(float(getattr(plans, name)[0]) for name in SHAPING)


def _plan(degrees: Degrees) -> Plans:
    """A plan of these degrees with one sequence in a micro-batch; everything else is one."""
    stage_layers, values = degrees
    given = dict(zip(SHAPING, values, strict=True))
    columns: dict[str, Any] = {name: np.array([given.get(name, 1.0)]) for name in PLAN_COLUMNS}
    return Plans(**columns, stage_layers=stage_layers)


def _shapes(
    plans: Plans,
    lengths: tuple[float, float],
    software: tuple[Runtime, Precision],
    *,
    training: bool,
    source: float = 0.0,
    routing: Routing = EVEN,
) -> Shapes:
    new, past = (np.array([length]) for length in lengths)
    runtime, precision = software
    formats: dict[str, Any] = {"precision": precision, "runtime": runtime, "routing": routing}
    return Shapes.of(plans, new=new, past=past, training=training, source=source, **formats)


@lru_cache(maxsize=512)
def _curves(software: Software, degrees: Degrees) -> tuple[Lowered, Matrix, Matrix]:
    """Units of one sequence, and the linear and square coefficients of saved, working and gathered bytes [3, U, P]."""
    model, runtime, precision = software
    plans = _plan(degrees)
    shapes = [_shapes(plans, (n * SAMPLE, 0.0), (runtime, precision), training=True) for n in (1.0, 2.0)]
    units = [lower(model, s, runtime, bytes_only=True) for s in shapes]
    first, second = (np.stack([unit.saved, unit.working, unit.gathered]) for unit in units)
    square = (second - 2.0 * first) / (2.0 * SAMPLE * SAMPLE)
    return units[0], first / SAMPLE - square * SAMPLE, square


@lru_cache(maxsize=512)
def _decode(software: Software, plans: Plans, cached: float, source: float, routing: Routing) -> Lowered:
    """A decode step of all requests of a plan, from that of one."""
    unit, batch = _alone(software, _degrees(plans), cached, source, routing), plans.micro_batch
    shapes = _shapes(plans, (1.0, cached - 1.0), software[1:], training=False, source=source, routing=routing)
    return replace(unit, shapes=shapes, working=unit.working * batch, logits=unit.logits * batch)


@lru_cache(maxsize=512)
def _alone(software: Software, degrees: Degrees, cached: float, source: float, routing: Routing) -> Lowered:
    model, runtime, precision = software
    lengths, facts = (1.0, cached - 1.0), (runtime, precision)
    shapes = _shapes(_plan(degrees), lengths, facts, training=False, source=source, routing=routing)
    return lower(model, shapes, runtime, bytes_only=True)
