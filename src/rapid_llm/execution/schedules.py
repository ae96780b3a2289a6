"""Pipeline schedules: a list of tasks per stage, the recurrence that times it, and the closed forms it is held to.

A schedule is data: for each stage the order of its tasks. A task is (direction, micro-batch, chunk). The time of a
schedule is a max-plus recurrence: a task starts when its stage is free and its input has arrived.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

Column = NDArray[np.float64]
Matrix = NDArray[np.float64]
FORWARD, BACKWARD, WEIGHT = "forward", "backward", "weight"
Task = tuple[str, int, int]


def gpipe(stage: int, stages: int, micro_batches: int, chunks: int = 1) -> list[Task]:
    """All forwards, then all backwards in reverse (Huang et al. 2019, arXiv 1811.06965)."""
    forward = [(FORWARD, m, c) for c in range(chunks) for m in range(micro_batches)]
    return forward + [(BACKWARD, m, c) for _, m, c in reversed(forward)]


def one_f_one_b(stage: int, stages: int, micro_batches: int, chunks: int = 1) -> list[Task]:
    """Warm-up of (stages - 1 - stage) forwards, then one forward, one backward (PipeDream-Flush, arXiv 2006.09503)."""
    warm = min(stages - 1 - stage, micro_batches)
    tasks: list[Task] = [(FORWARD, m, 0) for m in range(warm)]
    for m in range(micro_batches - warm):
        tasks += [(FORWARD, warm + m, 0), (BACKWARD, m, 0)]
    return tasks + [(BACKWARD, m, 0) for m in range(micro_batches - warm, micro_batches)]


def interleaved(stage: int, stages: int, micro_batches: int, chunks: int) -> list[Task]:
    """1F1B over ``chunks`` model chunks per stage (Narayanan et al. 2021, arXiv 2104.04473, section 2.2)."""
    total = micro_batches * chunks
    warm = min((stages - stage - 1) * 2 + (chunks - 1) * stages, total)

    def at(index: int, *, forward: bool) -> Task:
        group, inside = divmod(index, stages * chunks)
        chunk, lane = divmod(inside, stages)
        micro = group * stages + lane
        return (FORWARD, micro, chunk) if forward else (BACKWARD, micro, chunks - 1 - chunk)

    tasks = [at(i, forward=True) for i in range(warm)]
    for i in range(total - warm):
        tasks += [at(warm + i, forward=True), at(i, forward=False)]
    return tasks + [at(i, forward=False) for i in range(total - warm, total)]


def zero_bubble(stage: int, stages: int, micro_batches: int, chunks: int = 1) -> list[Task]:
    """ZB-H1 (Qi et al. 2024, arXiv 2401.10241): 1F1B whose stage s puts its weight gradients off by s micro-batches."""
    warm = min(stages - 1 - stage, micro_batches)
    tasks: list[Task] = [(FORWARD, m, 0) for m in range(warm)]
    for m in range(micro_batches):
        if warm + m < micro_batches:
            tasks.append((FORWARD, warm + m, 0))
        tasks.append((BACKWARD, m, 0))
        if m >= stage:
            tasks.append((WEIGHT, m - stage, 0))
    return tasks + [(WEIGHT, m, 0) for m in range(max(0, micro_batches - stage), micro_batches)]


SCHEDULES: dict[str, Callable[[int, int, int, int], list[Task]]] = {
    "gpipe": gpipe,
    "1f1b": one_f_one_b,
    "interleaved": interleaved,
    "zero-bubble": zero_bubble,
}


def run(
    name: str,
    forward: Sequence[float],
    backward: Sequence[float],
    micro_batches: int,
    chunks: int = 1,
    *,
    weight: Sequence[float] = (),
) -> float:
    """Seconds of a schedule by the recurrence; forward and backward are seconds per stage over all its chunks.

    ``weight``: of the backward seconds, those of weight gradients, for schedules that run them apart.
    """
    stages = len(forward)
    whole = dict(zip((FORWARD, BACKWARD, WEIGHT), (forward, backward, weight), strict=True))
    if weight:
        whole[BACKWARD] = [b - w for b, w in zip(backward, weight, strict=True)]
    orders = [SCHEDULES[name](s, stages, micro_batches, chunks) for s in range(stages)]
    done: dict[tuple[str, int, int, int], float] = {}
    free, at = [0.0] * stages, [0] * stages
    remaining = sum(len(order) for order in orders)
    while remaining:
        progressed = False
        for s in range(stages):
            while at[s] < len(orders[s]):
                direction, m, c = orders[s][at[s]]
                ready = _ready(done, orders[s][at[s]], s, (stages, chunks))
                if ready is None:
                    break
                free[s] = max(free[s], ready) + whole[direction][s] / chunks
                done[direction, m, c, s] = free[s]
                at[s] += 1
                remaining -= 1
                progressed = True
        assert progressed, "a schedule must not deadlock"
    return max(free)


def _ready(done: Mapping[tuple[str, int, int, int], float], task: Task, s: int, grid: tuple[int, int]) -> float | None:
    """When the input of a task of stage ``s`` has arrived on a grid of (stages, chunks); None while it has not."""
    direction, m, c = task
    stages, chunks = grid
    if direction == WEIGHT:
        return done.get((BACKWARD, m, c, s))
    if direction == FORWARD:
        if s:
            return done.get((FORWARD, m, c, s - 1))
        return 0.0 if c == 0 else done.get((FORWARD, m, c - 1, stages - 1))
    if s < stages - 1:
        return done.get((BACKWARD, m, c, s + 1))
    return done.get((FORWARD, m, c, s)) if c == chunks - 1 else done.get((BACKWARD, m, c + 1, 0))


def pipeline_time(
    forward: Matrix,
    backward: Matrix,
    micro_batches: Column,
    chunks: Column,
    all_forward_first: NDArray[np.bool_],
    *,
    weight: Matrix | float = 0.0,
) -> Column:
    """Closed form of GPipe, 1F1B, interleaved 1F1B and ZB-H1 with unequal stages.

    forward, backward: seconds of a micro-batch on each stage [P, S]; result: seconds until the last backward [P].
    1F1B: the pacing stage s fills (F before it, D behind it), works m (f + b), and drains; its idle time in fill and
    drain is what the stages behind it take beyond its own warm-up passes. T = max_s [ sum_{r<s} (f_r + b_r) / v +
    m (f_s + b_s) + max(0, D_s - k_s f_s) + max(0, D_s - k_s b_s) ], D_s = sum_{r>s} (f_r + b_r) / v, k_s = stages after
    s over v. Equal stages give (m + (pp - 1) / v)(f + b): Narayanan et al. 2021, section 2.2. GPipe:
    sum f + (m - 1) max f + the same backward. ``weight`` [P, S]: seconds of weight gradients that a stage runs while it
    would idle; the others wait f + b - 2 w for it (Qi et al. 2024, table 1).
    """
    v = chunks[:, None]
    both = forward + backward
    work = np.where(both > 0, 1.0, 0.0)
    passing = np.cumsum(both - 2.0 * weight, axis=1)
    before = (passing - (both - 2.0 * weight)) / v
    after = (passing[:, -1:] - passing) / v
    behind = (work.sum(axis=1, keepdims=True) - np.cumsum(work, axis=1)) / v
    idle = np.maximum(0.0, after - behind * forward) + np.maximum(0.0, after - behind * backward)
    m = micro_batches[:, None]
    steady = (work * (before + m * both + idle)).max(axis=1)
    flush = (forward + backward).sum(axis=1) + (micro_batches - 1.0) * (forward.max(axis=1) + backward.max(axis=1))
    return np.asarray(np.where(all_forward_first, flush, steady))


def micro_batches_in_flight(
    stages: Column, chunks: Column, micro_batches: Column, all_forward_first: NDArray[np.bool_], width: int
) -> Matrix:
    """Micro-batches whose activations a stage holds at its peak, in units of the whole stage [P, S].

    1F1B stage i: min(m, pp - i); interleaved: (warm-up + 1) chunks of v (Korthikanti et al. 2022, section 4.2.3, gives
    1 + (pp - 1) / (pp v) of pp for the first stage); GPipe: m.
    """
    i = np.arange(width)[None, :]
    pp, v, m = stages[:, None], chunks[:, None], micro_batches[:, None]
    plain = np.minimum(m, pp - i)
    warm = np.minimum((pp - i - 1) * 2 + (v - 1) * pp + 1, m * v) / v
    held = np.where(v > 1, warm, plain)
    held = np.where(all_forward_first[:, None], m, held)
    return np.where(i < pp, np.maximum(held, 0.0), 0.0)
