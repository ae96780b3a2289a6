"""Schedules: published bubbles, and closed forms against the recurrence that executes the task lists."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rapid_llm.execution.schedules import BACKWARD, FORWARD, SCHEDULES, micro_batches_in_flight, pipeline_time, run

stage_time = st.floats(0.2, 3.0)
near = st.floats(1.0, 2.0)


def closed(name: str, forward: list[float], backward: list[float], m: int, v: int = 1) -> float:
    gpipe = np.array([name == "gpipe"])
    time = pipeline_time(np.array([forward]), np.array([backward]), np.array([float(m)]), np.array([float(v)]), gpipe)
    return float(time[0])


@pytest.mark.parametrize("name", SCHEDULES)
@pytest.mark.parametrize(("stages", "m", "v"), [(1, 3, 1), (2, 4, 2), (4, 4, 2), (4, 8, 3), (8, 16, 4)])
def test_every_task_runs_once_on_every_stage(name: str, stages: int, m: int, v: int) -> None:
    chunks = v if name == "interleaved" else 1
    for stage in range(stages):
        tasks = SCHEDULES[name](stage, stages, m, chunks)
        assert len(set(tasks)) == len(tasks) == (3 if name == "zero-bubble" else 2) * m * chunks


@given(stage_time, stage_time, st.integers(1, 8), st.integers(1, 16))
def test_equal_stages_waste_the_published_bubble(f: float, b: float, stages: int, m: int) -> None:
    # Narayanan et al. 2021, section 2.2: (pp - 1)(f + b) for GPipe and 1F1B.
    for name in ("gpipe", "1f1b"):
        time = run(name, [f] * stages, [b] * stages, m)
        assert time == pytest.approx((m + stages - 1) * (f + b))
        assert closed(name, [f] * stages, [b] * stages, m) == pytest.approx(time)


@given(stage_time, stage_time, st.integers(2, 6), st.integers(1, 4), st.integers(2, 4))
def test_interleaving_divides_the_bubble(f: float, b: float, stages: int, rounds: int, v: int) -> None:
    # Narayanan et al. 2021, section 2.2: (pp - 1)(f + b) / v, micro-batches a multiple of pp.
    m = rounds * stages
    time = run("interleaved", [f] * stages, [b] * stages, m, v)
    assert time == pytest.approx((m + (stages - 1) / v) * (f + b))
    assert closed("interleaved", [f] * stages, [b] * stages, m, v) == pytest.approx(time)


@given(stage_time, stage_time, st.floats(0.0, 1.0), st.integers(2, 8), st.integers(1, 3))
def test_zero_bubble_fills_the_wait_with_weight_gradients(
    f: float, b: float, share: float, stages: int, r: int
) -> None:
    # Qi et al. 2024, table 1: ZB-H1 idles (pp - 1)(f + b - 2 w), w at most what the input gradients take.
    m, w = 2 * stages * r, min(f, b / 2) * share
    time = run("zero-bubble", [f] * stages, [b] * stages, m, weight=[w] * stages)
    assert time == pytest.approx(m * (f + b) + (stages - 1) * (f + b - 2 * w))
    columns = (np.array([[x] * stages]) for x in (f, b))
    form = pipeline_time(*columns, np.array([float(m)]), np.ones(1), np.zeros(1, bool), weight=np.full((1, stages), w))
    assert form[0] == pytest.approx(time)


@settings(max_examples=200)
@given(st.lists(st.tuples(near, near), min_size=2, max_size=6), st.integers(6, 24))
def test_unequal_stages_stay_near_the_recurrence(times: list[tuple[float, float]], m: int) -> None:
    forward, backward = [f for f, _ in times], [b for _, b in times]
    assert closed("gpipe", forward, backward, m) == pytest.approx(run("gpipe", forward, backward, m))
    exact, form = run("1f1b", forward, backward, m), closed("1f1b", forward, backward, m)
    assert 0.93 * exact < form < exact * (1 + 1e-9)  # a path through one stage is never longer than the longest path


@given(st.lists(st.tuples(stage_time, stage_time), min_size=1, max_size=5), st.integers(1, 12))
def test_more_micro_batches_take_longer(times: list[tuple[float, float]], m: int) -> None:
    forward, backward = [f for f, _ in times], [b for _, b in times]
    for name in ("gpipe", "1f1b"):
        assert closed(name, forward, backward, m + 1) > closed(name, forward, backward, m)


@pytest.mark.parametrize("name", SCHEDULES)
@pytest.mark.parametrize(("stages", "m", "v"), [(4, 8, 2), (3, 9, 3), (8, 16, 4), (4, 4, 2)])
def test_micro_batches_in_flight_are_those_of_the_task_lists(name: str, stages: int, m: int, v: int) -> None:
    chunks = v if name == "interleaved" else 1
    held = micro_batches_in_flight(
        np.array([float(stages)]), np.array([float(chunks)]), np.array([float(m)]), np.array([name == "gpipe"]), stages
    )
    for stage in range(stages):
        alive = most = 0
        for direction, _, _ in SCHEDULES[name](stage, stages, m, chunks):
            alive += {FORWARD: 1, BACKWARD: -1}.get(direction, 0)
            most = max(most, alive)
        assert held[0, stage] == pytest.approx(most / chunks)
