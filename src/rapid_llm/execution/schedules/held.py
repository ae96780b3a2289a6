"""Micro-batches whose activations a stage holds, by walking its tasks."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from rapid_llm.execution.schedules.catalogue import CODES, SCHEDULES
from rapid_llm.execution.schedules.tasks import HELD, Schedule

Column = NDArray[np.float64]
Matrix = NDArray[np.float64]
_GPIPE, _LINE, _LOOP = (CODES.index(SCHEDULES[name]) for name in ("gpipe", "1f1b", "interleaved"))
_KEEPS_ALL = [_GPIPE, CODES.index(SCHEDULES["breadth-first"])]
_COUNTED = [*_KEEPS_ALL, _LINE, _LOOP, CODES.index(SCHEDULES["pipedream-2bw"])]


FILLING = 3
"""Micro-batches per stage after which a schedule repeats: two fill the pipeline and drain it, one between."""


def filling(schedule: Schedule, stages: int, micro_batches: int) -> int:
    """The fewest micro-batches after which ``micro_batches`` are whole periods more of the same."""
    over = max(0, micro_batches - FILLING * stages)
    return micro_batches - over // schedule.repeats(stages) * schedule.repeats(stages)


@lru_cache(maxsize=512)
def peaks(name: str, stages: int, micro_batches: int, chunks: int) -> tuple[float, ...]:
    """Most micro-batches that each stage holds at once, in units of all its chunks."""
    schedule = SCHEDULES[name]
    found = []
    for stage in range(stages):
        steps = [HELD[direction] for direction, _, _ in schedule(stage, stages, micro_batches, chunks)]
        found.append(float(np.cumsum(steps).max()) / chunks)
    return tuple(found)


def micro_batches_in_flight(
    stages: Column, chunks: Column, micro_batches: Column, schedule: NDArray[np.generic], width: int
) -> Matrix:
    """Micro-batches whose activations a stage holds at its peak, in units of all its chunks [P, S].

    ``schedule``: codes, or True where all forwards come first. 1F1B stage i: min(m, pp - i), also with two versions of
    the weights; interleaved: (warm-up + 1) chunks of v (Korthikanti et al. 2022, section 4.2.3, gives
    1 + (pp - 1) / (pp v) of pp for the first stage); GPipe and breadth-first: m; others: their tasks are walked.
    """
    i = np.arange(width)[None, :]
    pp, v, m = stages[:, None], chunks[:, None], micro_batches[:, None]
    codes = np.where(schedule, _GPIPE, np.where(chunks > 1, _LOOP, _LINE)) if schedule.dtype == bool else schedule
    code = np.asarray(codes)[:, None]
    warm = np.minimum((pp - i - 1) * 2 + (v - 1) * pp + 1, m * v) / v
    held = np.where(code == _LOOP, warm, np.minimum(m, pp - i))
    held = np.where(np.isin(code, _KEEPS_ALL), m, held)
    for row in np.flatnonzero(~np.isin(code[:, 0], _COUNTED)):
        one = CODES[int(code[row, 0])]
        count = int(stages[row])
        found = peaks(one.name, count, filling(one, count, int(micro_batches[row])), one.chunks or int(chunks[row]))
        held[row, :count] = found
    return np.where(i < pp, np.maximum(held, 0.0), 0.0)
