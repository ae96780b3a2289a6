"""Closed forms: what the recurrence comes to, for schedules and stages where a formula says it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Column = NDArray[np.float64]
Matrix = NDArray[np.float64]


def one_f_one_b_time(forward: Matrix, backward: Matrix, micro_batches: Column, chunks: Column) -> Column:
    """1F1B and interleaved 1F1B with unequal stages; forward, backward [P, S] (s) over all chunks, result [P].

    The pacing stage s fills (F before it, D behind it), works m (f + b), and drains; its idle time in fill and
    drain is what the stages behind it take beyond its own warm-up passes. T = max_s [ sum_{r<s} (f_r + b_r) / v +
    m (f_s + b_s) + max(0, D_s - k_s f_s) + max(0, D_s - k_s b_s) ], D_s = sum_{r>s} (f_r + b_r) / v, k_s = stages after
    s over v. Equal stages give (m + (pp - 1) / v)(f + b): Narayanan et al. 2021, section 2.2. A path through one stage
    is never longer than the longest, so this is a lower bound for others.
    """
    v = chunks[:, None]
    both = forward + backward
    work = np.where(both > 0, 1.0, 0.0)
    before = (np.cumsum(both, axis=1) - both) / v
    after = (both.sum(axis=1, keepdims=True) - np.cumsum(both, axis=1)) / v
    behind = (work.sum(axis=1, keepdims=True) - np.cumsum(work, axis=1)) / v
    idle = np.maximum(0.0, after - behind * forward) + np.maximum(0.0, after - behind * backward)
    return np.asarray((work * (before + micro_batches[:, None] * both + idle)).max(axis=1))


def all_forward_first_time(forward: Matrix, backward: Matrix, micro_batches: Column, chunks: Column) -> Column:
    """GPipe, and breadth-first with a micro-batch per stage: exact. T = (sum f - max f) / v + m max f, and backward.

    Huang et al. 2019, section 2.3; Lamy-Poirier 2023, section 3.2. Arrays as in ``one_f_one_b_time``.
    """
    slowest = forward.max(axis=1) + backward.max(axis=1)
    return np.asarray(((forward + backward).sum(axis=1) - slowest) / chunks + micro_batches * slowest)


def stream_time(forward: Matrix, backward: Matrix, micro_batches: Column) -> Column:
    """PipeDream-2BW: micro-batches never stop, the slowest stage never waits (Narayanan et al. 2020, arXiv 2006.09503,
    section 3.1). Arrays as in ``one_f_one_b_time``."""
    return np.asarray(micro_batches * (forward + backward).max(axis=1))
