"""Orders of tasks whose backward pass is split: gradients of inputs are computed first, those of weights fill idle
time.
"""

from __future__ import annotations

from collections import Counter, deque

from rapid_llm.execution.schedules.tasks import BACKWARD, FORWARD, INPUT, WEIGHT, Task


def zero_bubble_h1(stage: int, stages: int, micro_batches: int, chunks: int = 1) -> list[Task]:
    """1F1B whose stage s puts off s weight gradients to its drain (Qi et al. 2023, arXiv 2401.10241, figure 2)."""
    m, warm = micro_batches, min(stages - 1 - stage, micro_batches)
    tasks: list[Task] = [(FORWARD, i, 0) for i in range(warm)]
    for i in range(m):
        tasks += [(FORWARD, warm + i, 0)] * (warm + i < m) + [(INPUT, i, 0)]
        tasks += [(WEIGHT, i - stage, 0)] * (i >= stage)
    return tasks + [(WEIGHT, i, 0) for i in range(max(0, m - stage), m)]


def zero_bubble_h2(stage: int, stages: int, micro_batches: int, chunks: int = 1) -> list[Task]:
    """Forwards fill the wait for the first gradient, 2 s weight gradients that of the drain (same paper, figure 3)."""
    m, warm, late = micro_batches, min(2 * (stages - stage) - 1, micro_batches), 2 * stage
    tasks: list[Task] = [(FORWARD, i, 0) for i in range(warm)]
    for i in range(m):
        tasks += [(INPUT, i, 0)] + [(WEIGHT, i - late, 0)] * (i >= late)
        tasks += [(FORWARD, warm + i, 0)] * (warm + i < m)
    return tasks + [(WEIGHT, i, 0) for i in range(max(0, m - late), m)]


def zero_bubble_v(stage: int, stages: int, micro_batches: int, chunks: int = 2) -> list[Task]:
    """Two chunks in a V: the last part of the model is on the first stage (Qi et al. 2024, arXiv 2405.15362).

    Written for at least 2 stages - 1 micro-batches; fewer leave their places empty.
    """
    done: Counter[tuple[str, int]] = Counter()
    tasks: list[Task] = []
    full = max(micro_batches, 2 * stages - 1)

    def add(*steps: tuple[str, int], times: int = 1) -> None:
        for _ in range(times):
            for direction, chunk in steps:
                if done[direction, chunk] < micro_batches:
                    tasks.append((direction, done[direction, chunk], chunk))
                done[direction, chunk] += 1

    up = (FORWARD, 1), (INPUT, 1), (WEIGHT, 1)
    down = (INPUT, 0), (WEIGHT, 0)
    add((FORWARD, 0), times=2 * (stages - stage) - 1)
    add((FORWARD, 1), (FORWARD, 0), times=stage)
    add(*up, times=stages - stage)
    add((FORWARD, 0), *down, *up, times=full - done[FORWARD, 0])
    add(*down, *up, times=full - done[FORWARD, 1])
    add((INPUT, 0), (INPUT, 1), times=stage)
    add(*down, times=full - done[INPUT, 0])
    add((WEIGHT, 1), times=full - done[WEIGHT, 1])
    add((WEIGHT, 0), times=full - done[WEIGHT, 0])
    return tasks


def dualpipe(stage: int, stages: int, micro_batches: int, chunks: int = 2) -> list[Task]:
    """Micro-batches enter at both ends; a forward pass of one way runs beside a backward pass of the other.

    DeepSeek-AI 2024, arXiv 2412.19437, figure 5; counts of each section as in its published program. Stages and
    micro-batches are even, micro-batches at least 2 x stages. Chunk 0 goes down the stages, chunk 1 up.
    """
    half, each = stages // 2, micro_batches // 2
    near = min(stage, stages - 1 - stage)
    gap = half - near - 1
    first = int(stage >= half)
    done: Counter[tuple[bool, int]] = Counter()
    tasks: list[Task] = []
    late: deque[Task] = deque()

    def add(direction: str, way: int) -> None:
        chunk = way ^ first
        micro = done[direction == FORWARD, chunk] + each * chunk
        done[direction == FORWARD, chunk] += 1
        tasks.append((direction, micro, chunk))
        if direction == INPUT:
            late.append((WEIGHT, micro, chunk))

    def add_all(*steps: tuple[str, int], times: int) -> None:
        for _ in range(times):
            for direction, way in steps:
                tasks.append(late.popleft()) if direction == WEIGHT else add(direction, way)

    pair = (FORWARD, 0), (BACKWARD, 1), (FORWARD, 1), (BACKWARD, 0)
    add_all((FORWARD, 0), times=2 * gap)
    add_all((FORWARD, 0), (FORWARD, 1), times=near + 1)
    add_all((INPUT, 1), (WEIGHT, 1), (FORWARD, 1), times=gap)
    add_all(*pair, times=each - stages + near + 1)
    add_all(*pair[1:], times=gap)
    for k in range(2 * (near + 1)):  # the second half of these backward passes puts its weight gradients off
        add(INPUT if k > near else BACKWARD, 1 - k % 2)
    add_all((WEIGHT, 0), (INPUT, 0), times=gap)
    add_all((WEIGHT, 0), times=near + 1)
    return tasks


def dualpipe_v(stage: int, stages: int, micro_batches: int, chunks: int = 2) -> list[Task]:
    """DualPipe cut in half: its second half of stages mirrors the first, so a stage keeps both parts, once.

    Published with DualPipe (github.com/deepseek-ai/DualPipe, after Qi et al. 2025, "cut-in-half").
    """
    tasks = dualpipe(stage, 2 * stages, 2 * micro_batches)
    return [(direction, m - micro_batches * chunk, chunk) for direction, m, chunk in tasks]
