"""Schedules as data: every task once, nothing waits for ever, activations freed as they were kept."""

from collections import Counter

import numpy as np
import pytest

from rapid_llm.execution.schedules import (
    BACKWARD,
    CODES,
    FORWARD,
    HELD,
    INPUT,
    SCHEDULES,
    WEIGHT,
    filling,
    micro_batches_in_flight,
)
from rapid_llm.execution.timeline import program
from rapid_llm.parallelism import SCHEDULES as NAMES


def shapes(name: str) -> list[tuple[int, int, int]]:
    """A grid of (stages, micro-batches, chunks) that the schedule takes."""
    schedule, found = SCHEDULES[name], []
    for stages in (1, 2, 3, 4, 6, 8):
        for m in (1, 2, 3, stages, 2 * stages - 1, 2 * stages, 4 * stages, 5 * stages + 3):
            for chunks in (2, 3, 4) if schedule.chunks is None else (schedule.chunks,):
                rounds = name != "interleaved" or m % stages == 0
                even = name != "dualpipe" or not (stages % 2 or m % 2)
                enough = m >= {"breadth-first": 1, "dualpipe": 2, "dualpipe-v": 2}.get(name, 0) * stages
                if rounds and even and enough:
                    found.append((stages, m, chunks))
    assert len(found) >= 8
    return found


def test_every_schedule_of_a_plan_has_its_order() -> None:
    assert tuple(schedule.name for schedule in CODES) == NAMES
    assert len(SCHEDULES) == len(NAMES)


@pytest.mark.parametrize("name", SCHEDULES)
def test_every_part_of_the_model_sees_every_micro_batch_once(name: str) -> None:
    schedule = SCHEDULES[name]
    for stages, m, chunks in shapes(name):
        seen: Counter[tuple[str, int, int]] = Counter()
        for stage in range(stages):
            for direction, micro, chunk in schedule(stage, stages, m, chunks):
                seen[direction, micro, schedule.position(stage, stages, chunk)] += 1
        grid = {(micro, part) for micro in range(m) for part in range(schedule.parts(stages, chunks))}
        assert set(seen.values()) == {1}
        assert {(micro, part) for d, micro, part in seen if d == FORWARD} == grid
        assert {(micro, part) for d, micro, part in seen if d in (BACKWARD, INPUT)} == grid
        assert sum(d in (BACKWARD, INPUT) for d, _, _ in seen) == len(grid)
        assert {(i, p) for d, i, p in seen if d == INPUT} == {(i, p) for d, i, p in seen if d == WEIGHT}


@pytest.mark.parametrize("name", SCHEDULES)
def test_no_task_waits_for_ever(name: str) -> None:
    for stages, m, chunks in shapes(name):
        plan = program(name, stages, m, chunks)  # an InternalError where tasks wait for each other
        assert all((plan.waits[:, a:b] < a).sum() + (plan.waits[:, a:b] == len(plan.nodes)).sum() == 3 * (b - a)
                   for a, b in zip(plan.levels, plan.levels[1:], strict=False))  # fmt: skip


@pytest.mark.parametrize("name", SCHEDULES)
def test_activations_are_freed_as_they_were_kept(name: str) -> None:
    schedule = SCHEDULES[name]
    for stages, m, chunks in shapes(name):
        held = micro_batches_in_flight(
            np.array([float(stages)]),
            np.array([float(chunks if schedule.chunks is None else 1)]),
            np.array([float(m)]),
            np.array([float(NAMES.index(name))]),
            stages + 2,
        )
        assert not held[0, stages:].any()
        for stage in range(stages):
            running = np.cumsum([HELD[d] for d, _, _ in schedule(stage, stages, m, chunks)])
            assert running[-1] == 0
            assert running.min() >= 0
            assert stages == 1 or held[0, stage] == pytest.approx(running.max() / chunks)  # one stage: no schedule


@pytest.mark.parametrize(
    ("name", "first"),
    [
        ("gpipe", 64.0),
        ("1f1b", 8.0),
        ("breadth-first", 64.0),
        ("zb-h1", 8.0),  # Qi et al. 2023, table 1: as 1F1B
        ("zb-h2", 15.0),  # same: (2 pp - 1)
        ("zb-v", 8.0),  # Qi et al. 2024: as 1F1B
        ("dualpipe", 4.5),  # DeepSeek-AI 2024, table 2: pp + 1, each of one of two chunks
        ("pipedream-2bw", 8.0),  # Narayanan et al. 2020, section 3
    ],
)
def test_the_first_stage_holds_what_the_papers_say(name: str, first: float) -> None:
    chunks = 2.0 if name == "breadth-first" else 1.0
    columns = (np.array([x]) for x in (8.0, chunks, 64.0, float(NAMES.index(name))))
    assert micro_batches_in_flight(*columns, 8).max() == first


@pytest.mark.parametrize("name", SCHEDULES)
def test_a_folded_count_holds_as_many(name: str) -> None:
    schedule = SCHEDULES[name]
    if name in ("gpipe", "breadth-first"):
        return
    for stages, m in [(4, 48), (8, 64)]:
        short = filling(schedule, stages, m)
        assert short < m
        for stage in range(stages):
            whole, less = (
                np.cumsum([HELD[d] for d, _, _ in schedule(stage, stages, count, 2)]).max() for count in (m, short)
            )
            assert whole == less


def test_dualpipe_in_half_is_one_half_of_dualpipe() -> None:
    for stages, m in [(2, 8), (4, 10), (8, 40)]:
        for stage in range(stages):
            mirror = SCHEDULES["dualpipe"](2 * stages - 1 - stage, 2 * stages, 2 * m, 2)
            half = SCHEDULES["dualpipe-v"](stage, stages, m, 2)
            assert [(d, (i + m) % (2 * m), 1 - c) for d, i, c in mirror] == [(d, i + m * c, c) for d, i, c in half]
