"""The forward passes of an inference batch: which tokens run together, after how many cached ones, and how often."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Column = NDArray[np.float64]

KV_TILE_TOKENS = 64
"""Decode kernels read whole tiles of the cache: within one tile a step costs the same, or affinely more."""


@dataclass(frozen=True, slots=True)
class Points:
    """Distinct forward passes [N]: sequences, new tokens and cached tokens of each, and how many of it run."""

    batch: Column
    new: Column
    past: Column
    count: Column

    @property
    def decode(self) -> NDArray[np.bool_]:
        """Which passes generate one token per sequence."""
        return (self.new <= 1) & (self.past > 0)


def prefill_points(batch: int, prompt: int, budget: int) -> Points:
    """Prefill of ``batch`` prompts under a token budget per pass: whole prompts together, long prompts in chunks."""
    if prompt <= budget:
        together = min(batch, max(1, budget // prompt))
        full, rest = divmod(batch, together)
        rows = [(together, prompt, 0, full)] + ([(rest, prompt, 0, 1)] if rest else [])
    else:
        full, rest = divmod(prompt, budget)
        rows = [(1, budget, i * budget, batch) for i in range(full)]
        rows += [(1, rest, full * budget, batch)] if rest else []
    return _points(rows)


def decode_points(batch: int, prompt: int, output: int) -> Points:
    """The output - 1 decode steps after the first token, grouped by the cache tile that they end in.

    A group stands for its mean cache length, so an affine cost is summed exactly.
    """
    steps = np.arange(1, output)
    if not len(steps):
        return _points([])
    past = prompt + steps - 1
    tile = past // KV_TILE_TOKENS
    _, first, count = np.unique(tile, return_index=True, return_counts=True)
    middle = past[first] + (count - 1) / 2.0
    return Points(np.full(len(count), float(batch)), np.ones(len(count)), middle, count.astype(float))


def _points(rows: list[tuple[int, int, int, int]]) -> Points:
    table = np.array(rows, dtype=np.float64).reshape(-1, 4)
    return Points(*table.T)


def join(parts: list[Points]) -> Points:
    """Several sets of passes as one."""
    return Points(*(np.concatenate([getattr(p, name) for p in parts]) for name in Points.__slots__))
