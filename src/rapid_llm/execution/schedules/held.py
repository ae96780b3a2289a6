"""Micro-batches whose activations a stage holds, by walking its tasks."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from rapid_llm.execution.schedules.catalogue import ALL_FORWARD_FIRST, CODES, SCHEDULES
from rapid_llm.execution.schedules.tasks import HELD, Schedule

Column = NDArray[np.float64]
Matrix = NDArray[np.float64]
_LOOP = CODES.index(SCHEDULES["interleaved"])
_KEEPS_ALL = [code for code, one in enumerate(CODES) if one.name in ALL_FORWARD_FIRST]
_KEEPS_FEW = [code for code, one in enumerate(CODES) if one.name in ("1f1b", "pipedream-2bw")]
_COUNTED = {_LOOP, *_KEEPS_ALL, *_KEEPS_FEW}


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
    stages: Column, chunks: Column, micro_batches: Column, schedule: Column, width: int
) -> Matrix:
    """Micro-batches whose activations a stage holds at its peak, in units of all its chunks [P, S].

    1F1B stage i: min(m, pp - i), also with two versions of the weights; interleaved: (warm-up + 1) chunks of v
    (Korthikanti et al. 2022, section 4.2.3, gives 1 + (pp - 1) / (pp v) of pp for the first stage); GPipe and
    breadth-first: m; others: their tasks are walked.
    """
    i = np.arange(width)[None, :]
    codes = schedule.astype(np.int64)
    pp, v, m, code = stages[:, None], chunks[:, None], micro_batches[:, None], codes[:, None]
    present = set(codes.tolist())
    held = np.minimum(m, pp - i)
    if _LOOP in present:
        held = np.where(code == _LOOP, np.minimum((pp - i - 1) * 2 + (v - 1) * pp + 1, m * v) / v, held)
    if not present.isdisjoint(_KEEPS_ALL):
        held = np.where(np.isin(code, _KEEPS_ALL), m, held)
    walked = not present <= _COUNTED
    for row in np.flatnonzero(~np.isin(codes, [*_COUNTED]) & (stages > 1)) if walked else ():
        one, count = CODES[codes[row]], int(stages[row])
        enough = filling(one, count, int(micro_batches[row]))
        held[row, :count] = peaks(one.name, count, enough, one.chunks or int(chunks[row]))
    return np.where(i < pp, np.maximum(held, 0.0), 0.0)
