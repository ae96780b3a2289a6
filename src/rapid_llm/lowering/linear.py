"""Forward passes of inference without lowering each again: most columns are linear in what a pass works on.

Bytes of a tensor, rows of a product, and the size of a message are sums of products of tokens, sequences and cached
tokens, apart for prefill and decode. So the rows of a plan are lowered once for a sample of small passes, the
coefficients are solved for, and any other pass is a matrix product. What is not linear fails the test at larger passes
and is lowered as it is.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rapid_llm.dtypes import Precision
from rapid_llm.lowering.feedforward import landed
from rapid_llm.lowering.lower import Lowered, lower
from rapid_llm.lowering.shapes import Shapes
from rapid_llm.lowering.table import Kernels, Messages
from rapid_llm.model.architecture import Model, MoE
from rapid_llm.nouns import replaced
from rapid_llm.parallelism import PLAN_COLUMNS, Plans
from rapid_llm.runtime import Runtime
from rapid_llm.workload import Routing

Matrix = NDArray[np.float64]
Table = tuple[Model, Runtime, Precision, Routing]
"""What rows depend on beside the plan."""
Degrees = tuple[tuple[str, ...], tuple[int, ...], tuple[float, ...]]
"""Placement order, layers dealt to stages, and the columns of a plan but for its sequences."""

_SIZES = ("micro_batch", "micro_batches")
_SAMPLES = 64
"""Small passes from which coefficients are solved for: more than there are terms."""
_PROOFS = 12
"""Larger passes at which they must hold."""
_TOLERANCE = 1e-9
_FRACTION = 2.0**12
_DECIMALS = 7
"""To which values are rounded: whole numbers stay whole, as tiles and blocks count them."""


@dataclass(frozen=True, slots=True, eq=False)
class Recipe:
    """Rows of one plan: those of a sample as a template, and the coefficients of the cells of all its tables, kernels
    before messages [cells, terms]."""

    mixtures: tuple[MoE, ...]
    crosses: bool
    rows: Lowered
    coefficients: Matrix

    def lowered(self, s: Shapes) -> Lowered:
        """The table of the passes of ``s``, without what memory alone asks for."""
        width, wide = len(s.plans), _stretched(self, len(s.plans))
        cells = np.round(self.coefficients @ _terms(s, self.mixtures, crosses=self.crosses), _DECIMALS)
        kernels, messages, start = [], [], 0
        for table in self.rows.kernels:
            height = len(table.columns) + 1
            values = cells[start : start + height * len(table.names)].reshape(height, len(table.names), width)
            start += height * len(table.names)
            columns = dict(zip(table.columns, values, strict=False))
            rows = table.family, table.dtype, table.names, table.kind, table.unit, table.phase, table.cells
            kernels.append(Kernels(*rows, columns, values[-1]))
        for message in wide.messages:
            size, count = cells[start : start + 2 * len(message.names)].reshape(2, len(message.names), width)
            start += 2 * len(message.names)
            sent = message.op, message.axis, message.names, message.unit, message.phase, message.cells
            messages.append(Messages(*sent, size, message.ranks, message.stride, count))
        return replaced(wide, shapes=s, kernels=tuple(kernels), messages=tuple(messages))


@lru_cache(maxsize=256)
def _stretched(recipe: Recipe, width: int) -> Lowered:
    """What does not differ between passes, for so many of them; and nothing of what memory alone asks for."""
    rows = recipe.rows
    units = len(rows.units)
    none = np.zeros((units, width))
    return replace(
        rows,
        messages=tuple(
            replace(m, ranks=np.repeat(m.ranks[:, :1], width, axis=1), stride=np.repeat(m.stride[:, :1], width, axis=1))
            for m in rows.messages
        ),
        layers=np.repeat(rows.layers[:, :1], width, axis=1),
        dense=np.repeat(rows.dense[:, :1], width, axis=1),
        expert=np.repeat(rows.expert[:, :1], width, axis=1),
        trained=np.repeat(rows.trained[:, :, :1], width, axis=2),
        saved=none,
        working=none,
        gathered=none,
        cache=none,
        logits=none[0],
    )


def lower_pass(table: Table, plans: Plans, s: Shapes) -> Lowered:
    """Lower forward passes of one plan, those of ``s``: by its recipe where there is one, else row by row."""
    found = _recipe_of(table, plans)
    return found.lowered(s) if found is not None else lower(table[0], s, table[1])


@lru_cache(maxsize=256)
def _recipe_of(table: Table, plans: Plans) -> Recipe | None:
    return _recipe(table, _degrees(plans))


def _degrees(plans: Plans) -> Degrees:
    values = tuple(float(getattr(plans, name)[0]) for name in PLAN_COLUMNS if name not in _SIZES)
    return plans.order, plans.stage_layers, values


def _terms(s: Shapes, mixtures: tuple[MoE, ...], *, crosses: bool) -> Matrix:
    """The terms in which columns are linear [terms, P]: products of tokens, sequences and lengths, experts that are hit
    and the rows of the fullest rank, what cross attention reads, and which passes start without a cache, in all and in
    decode.
    """
    pairs = s.batch * s.new
    cached = s.batch * s.past
    dealt = (s.tokens * s.evenness,) if np.any(s.plans.ep > 1) else ()
    one = np.ones_like(s.batch)
    plain = np.array(
        [
            *(one, s.tokens, s.shard, s.rows, s.batch, s.new, s.past, pairs, cached, cached * s.new, pairs * s.new),
            *dealt,
            *(column for ffn in mixtures for column in landed(ffn, s)),
            *(_crossed(s) if crosses else ()),
            *((s.starts,) if s.cache_dealt else ()),
        ]
    )
    return np.concatenate([plain, plain * s.decode])


def _crossed(s: Shapes) -> tuple[Matrix, ...]:
    """The terms that rows of cross attention are linear in as well: what it reads, whether there is any, and where
    sequences start.
    """
    sees = (s.source > 0).astype(float)
    return s.source, s.batch * s.source, s.starts, sees, sees * s.starts


def _cells(lowered: Lowered) -> Matrix:
    """Values of every kernel table and message table, a line a cell [cells, P]."""
    width = len(lowered.shapes.plans)
    kernels = [np.stack([*t.columns.values(), t.count]).reshape(-1, width) for t in lowered.kernels]
    messages = [np.stack([m.size, m.count]).reshape(-1, width) for m in lowered.messages]
    return np.concatenate([*kernels, *messages])


@lru_cache(maxsize=256)
def _recipe(table: Table, degrees: Degrees) -> Recipe | None:
    """The recipe of a plan; None where some column is not linear."""
    small, large = _sample(table, degrees, _SAMPLES, large=False), _sample(table, degrees, _PROOFS, large=True)
    rows, proof = (lower(table[0], s, table[1]) for s in (small, large))
    same = [t.names for t in rows.kernels] == [t.names for t in proof.kernels]
    if not same or [m.names for m in rows.messages] != [m.names for m in proof.messages]:
        return None
    mixtures = tuple(dict.fromkeys(block.ffn for block in table[0].blocks if isinstance(block.ffn, MoE)))
    terms, held = (_terms(s, mixtures, crosses=table[0].crosses) for s in (small, large))
    scale, chosen = np.maximum(np.abs(terms).max(axis=1), 1.0), _independent(terms)
    solved = np.zeros(terms.shape)
    solved[chosen] = np.linalg.pinv(terms[chosen].T / scale[chosen])
    coefficients = _exact(_cleaned((solved @ _cells(rows).T).T) / scale)
    if not np.allclose(np.round(coefficients @ held, _DECIMALS), _cells(proof), rtol=_TOLERANCE, atol=1e-6):
        return None
    return Recipe(mixtures, table[0].crosses, rows, coefficients)


def _independent(terms: Matrix) -> list[int]:
    """Terms [terms, P] that are no sum of those before them: drops tokens, for instance, where no plan divides or pads
    any.
    """
    basis: list[Matrix] = []
    chosen = []
    for place, term in enumerate(terms):
        rest = term
        for _ in range(2):
            rest = rest - sum((direction * (direction @ rest) for direction in basis), np.zeros_like(term))
        if np.linalg.norm(rest) > 1e-9 * np.linalg.norm(term):
            basis.append(rest / np.linalg.norm(rest))
            chosen.append(place)
    return chosen


def _cleaned(coefficients: Matrix) -> Matrix:
    """The values without those that differ from 0 by rounding alone."""
    least = 1e-11 * np.abs(coefficients).max(axis=1, keepdims=True, initial=1e-30)
    return np.where(np.abs(coefficients) < least, 0.0, coefficients)


def _exact(coefficients: Matrix) -> Matrix:
    """Coefficients that differ from whole numbers, or from fractions of a power of two, by rounding alone, as these."""
    near = np.round(coefficients * _FRACTION) / _FRACTION
    return np.where(np.abs(near - coefficients) <= _TOLERANCE * np.maximum(np.abs(near), 1.0), near, coefficients)


def _sample(table: Table, degrees: Degrees, count: int, *, large: bool) -> Shapes:
    """Shapes of passes of all kinds: prompts, decode steps, verified drafts, padded batches."""
    _, runtime, precision, routing = table
    order, stage_layers, values = degrees
    random = np.random.default_rng(count)
    most = np.array([200, 3000, 20000]) if large else np.array([6, 9, 12])
    batch, new, past = (random.integers(1, m + 1, count).astype(float) for m in most)
    decode = np.arange(count) % 2 == 0
    verified = decode & (np.arange(count) % 4 == 0)
    new = np.where(verified, 1.0 + new % 5, np.where(decode, 1.0, new + 1.0))
    past = np.where(decode, past, past * (np.arange(count) % 3 > 0))
    read = np.zeros(count)
    if table[0].crosses:
        read = np.where(np.arange(count) % 5 > 0, random.integers(1, most[2] + 1, count).astype(float), 0.0)
    given = dict(zip((name for name in PLAN_COLUMNS if name not in _SIZES), values, strict=True))
    columns: dict[str, Any] = {name: np.full(count, given.get(name, 1.0)) for name in PLAN_COLUMNS}
    plans = Plans(**{**columns, "micro_batch": batch}, order=order, stage_layers=stage_layers)
    return Shapes.of(
        plans,
        new=new,
        past=past,
        training=False,
        precision=precision,
        runtime=runtime,
        routing=routing,
        verified=verified,
        source=read,
        padding=np.where(decode, 1.0 + (np.arange(count) % 5) / 4.0, 1.0),
        evenness=1.0 - (np.arange(count) % 7) / 8.0,
    )
