"""Closed forms: what the recurrence comes to, for schedules and stages where a formula says it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Column = NDArray[np.float64]
Matrix = NDArray[np.float64]
SplitTimes = tuple[Matrix, Matrix, Matrix, Matrix]
"""Forward, whole backward, its weight part, what pairs save [P, S] (s), over all chunks of a stage."""
ROUNDING = 1e-12
"""Relative difference up to which stages are equal."""


def one_f_one_b_time(forward: Matrix, backward: Matrix, micro_batches: Column, chunks: Column) -> Column:
    """1F1B and interleaved 1F1B with unequal stages; forward, backward [P, S] (s) over all chunks, result [P].

    The pacing stage s fills (F before it, D behind it), works m (f + b), and drains; its idle time in fill and
    drain is what the stages behind it take beyond its own warm-up passes. T = max_s [ sum_{r<s} (f_r + b_r) / v +
    m (f_s + b_s) + max(0, D_s - k_s f_s) + max(0, D_s - k_s b_s) ], D_s = sum_{r>s} (f_r + b_r) / v, k_s = stages after
    s over v, twice that where chunks interleave and warm-up is twice as deep. Equal stages give (m + (pp - 1) / v)
    (f + b): Narayanan et al. 2021, section 2.2. A path through one stage is never longer than the longest, so this is a
    lower bound for others; where only the first and last stage differ it is exact for 1F1B, within 5 % for chunks.
    """
    v = chunks[:, None]
    both = forward + backward
    work = np.where(both > 0, 1.0, 0.0)
    before = (np.cumsum(both, axis=1) - both) / v
    after = (both.sum(axis=1, keepdims=True) - np.cumsum(both, axis=1)) / v
    behind = (work.sum(axis=1, keepdims=True) - np.cumsum(work, axis=1)) / v
    ahead = np.where(v > 1, 2.0, 1.0) * behind
    idle = np.maximum(0.0, after - ahead * forward) + np.maximum(0.0, after - ahead * backward)
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


def zero_bubble_time(times: SplitTimes, stages: Column, micro_batches: Column, *, filled: float) -> Column:
    """ZB-H1 (``filled`` 1) and ZB-H2 (2) with equal stages: m (F + B + W) + (pp - 1)(F + B - filled W), B the input
    gradients alone (Qi et al. 2023, arXiv 2401.10241, table 1); NaN where the paper's W <= F, B does not hold, where
    micro-batches do not fill the pipeline, or where stages differ. Arrays [P, S], result [P]."""
    f, both, w = (column[:, 0] for column in times[:3])
    b = both - w
    holds = (w <= f) & (w <= b) & ((filled == 1) | (f >= b)) & (micro_batches >= 2 * stages - 1)
    time = micro_batches * (f + b + w) + (stages - 1.0) * (f + b - filled * w)
    return np.where(holds & _equal(times, stages), time, np.nan)


def dualpipe_time(times: SplitTimes, stages: Column, micro_batches: Column) -> Column:
    """DualPipe with equal stages of two chunks: what the middle stage does, of which all but pp passes are pairs, and
    its bubble (pp / 2 - 1)(F&B + B - 3 W), B the whole backward pass (DeepSeek-AI 2024, arXiv 2412.19437, table 2);
    NaN where F <= B, W <= F and W <= B - W do not hold, or where stages differ. Arrays [P, S], result [P]."""
    f, b, w, hidden = (column[:, 0] / 2.0 for column in times)
    holds = (f <= b - w) & (w <= f)
    pair = f + b - hidden
    time = (micro_batches - stages) * pair + stages * (f + b) + (stages / 2.0 - 1.0) * (pair + b - 3.0 * w)
    return np.where(holds & _equal(times, stages), time, np.nan)


def _equal(times: SplitTimes, stages: Column) -> NDArray[np.bool_]:
    """Whether all stages of a plan take the same time [P]."""
    beyond = np.arange(times[0].shape[1]) >= stages[:, None]
    alike = [(np.abs(x - x[:, :1]) <= ROUNDING * x[:, :1]) | beyond for x in times]
    return np.asarray(np.all(alike, axis=(0, 2)))
