"""Orders of tasks whose backward pass is one task: GPipe, 1F1B, interleaved 1F1B, breadth-first."""

from __future__ import annotations

from rapid_llm.execution.schedules.tasks import BACKWARD, FORWARD, Task


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
    """1F1B over ``chunks`` model chunks per stage (Narayanan et al. 2021, arXiv 2104.04473, section 2.2).

    Micro-batches come in rounds of ``stages``.
    """
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


def breadth_first(stage: int, stages: int, micro_batches: int, chunks: int) -> list[Task]:
    """All micro-batches through a chunk before the next one (Lamy-Poirier 2023, arXiv 2211.05953, section 4).

    Needs a micro-batch per stage, else the first stage waits for the last between chunks.
    """
    forward = [(FORWARD, m, c) for c in range(chunks) for m in range(micro_batches)]
    return forward + [(BACKWARD, m, c) for c in reversed(range(chunks)) for m in range(micro_batches)]
