"""The forward passes of an inference batch: which tokens run together, after how many cached ones, and how often."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import ceil

import numpy as np
from numpy.typing import NDArray

from rapid_llm.nouns import light

Column = NDArray[np.float64]

KV_TILE_TOKENS = 64
"""Decode kernels read whole tiles of the cache: within one tile a step costs the same, or affinely more."""

MAX_GROUPS = 4096
"""Groups that chunks of a prompt, or steps of decode, are told apart by: beyond it they span several of these."""


@light
class Points:
    """Distinct forward passes [N]: sequences, new tokens and cached tokens of each, and how many of it run.

    evenness: mean tokens of the ranks that exchange tokens of experts in a pass over those of this one.
    """

    batch: Column
    new: Column
    past: Column
    count: Column
    evenness: Column | float = 1.0

    @property
    def decode(self) -> NDArray[np.bool_]:
        """Which passes generate one token per sequence."""
        return (self.new <= 1) & (self.past > 0)

    def __getitem__(self, rows: slice) -> Points:
        """Some of the passes."""
        evenness = self.evenness[rows] if isinstance(self.evenness, np.ndarray) else self.evenness
        return Points(self.batch[rows], self.new[rows], self.past[rows], self.count[rows], evenness)

    def verifying(self, drafts: int) -> Points:
        """Decode steps that verify ``drafts`` tokens beside the newest one; the others stay."""
        return replace(self, new=np.where(self.decode, self.new + drafts, self.new)) if drafts else self

    def padded(self, sizes: tuple[int, ...], most: int) -> Column:
        """Sequences that each decode pass runs as [N]: the next of the captured sizes, ``most`` where an engine runs no
        more; beyond the last, as they are."""
        if not sizes:
            return self.batch
        captured = np.asarray(sizes, dtype=np.float64)
        index = np.searchsorted(captured, self.batch)
        found = np.maximum(self.batch, np.minimum(captured[np.minimum(index, len(captured) - 1)], most))
        return np.where(self.decode & (index < len(captured)), found, self.batch)


def prefill_points(batch: int, new: int, budget: int, past: float = 0) -> Points:
    """Prefill of ``batch`` prompts of ``new`` tokens after ``past`` cached ones, at most ``budget`` tokens a pass.

    Short prompts run whole and together, long ones in chunks.
    """
    if new <= budget:
        together = min(batch, max(1, budget // new))
        full, rest = divmod(batch, together)
        rows: list[tuple[float, float, float, float]] = [(together, new, past, full)]
        rows += [(rest, new, past, 1)] if rest else []
    else:
        full, rest = divmod(new, budget)
        runs = ceil(full / MAX_GROUPS)  # a group of chunks stands for its mean past
        rows = [
            (1, budget, past + (i + min(i + runs, full) - 1) / 2 * budget, batch * (min(i + runs, full) - i))
            for i in range(0, full, runs)
        ]
        rows += [(1, rest, past + full * budget, batch)] if rest else []
    return points_of(rows)


def decode_points(batch: float, prompt: int, output: int) -> Points:
    """The output - 1 decode steps after the first token, grouped by the cache tile that they end in.

    A group stands for its mean cache length, so an affine cost is summed exactly.
    """
    if output < 2:
        return points_of([])
    first, last = prompt, prompt + output - 2
    tile = KV_TILE_TOKENS * ceil((last // KV_TILE_TOKENS - first // KV_TILE_TOKENS + 1) / MAX_GROUPS)
    edges = np.arange(first // tile, last // tile + 1) * float(tile)
    low = np.maximum(edges, first)
    high = np.minimum(edges + (tile - 1.0), last)
    width = len(edges)
    return Points(np.full(width, float(batch)), np.ones(width), (low + high) / 2.0, high - low + 1.0)


def points_of(rows: Sequence[tuple[float, float, float, float]]) -> Points:
    """Passes from rows (sequences, new, past, count)."""
    table = np.array(rows, dtype=np.float64).reshape(-1, 4)
    return Points(*table.T)


def join(parts: list[Points]) -> Points:
    """Several sets of passes as one."""
    columns = zip(*((p.batch, p.new, p.past, p.count) for p in parts), strict=True)
    return Points(*map(np.concatenate, columns))
