"""The timeline: published bubbles, closed forms against the recurrence, and who waits for whom."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rapid_llm.execution.schedules import SCHEDULES
from rapid_llm.execution.timeline import Durations, pipeline_time, play, program, repeated, run, table_of
from rapid_llm.parallelism import SCHEDULES as NAMES

stage_time = st.floats(0.2, 3.0)
near = st.floats(1.0, 2.0)
ANY = [name for name in SCHEDULES if name not in ("gpipe", "breadth-first")]


def equal(stages: int, f: float, b: float, w: float = 0.0, hidden: float = 0.0) -> Durations:
    """Equal stages; b is the whole backward pass."""
    one = np.ones((1, stages))
    return Durations.of(f * one, b * one, w * one, hidden * one)


def unequal(forward: list[float], backward: list[float], weight: list[float] | None = None) -> Durations:
    columns = [np.array([x]) for x in (forward, backward, weight or [0.0] * len(forward))]
    return Durations.of(*columns)


def mirrored(times: Durations) -> Durations:
    """Under a schedule of two ways a stage holds the same parts as the one it mirrors, on equal accelerators."""
    columns = (np.maximum(x, x[:, ::-1]) for x in (times.forward, times.backward, times.weight, times.hidden))
    return Durations(*columns, times.delay)


def chosen(name: str, times: Durations, m: int, v: int = 1) -> float:
    """What a table of plans says."""
    stages = times.forward.shape[1]
    columns = (np.array([float(x)]) for x in (stages, m, v, NAMES.index(name)))
    return float(pipeline_time(times, *columns)[0])


@given(stage_time, stage_time, st.integers(1, 8), st.integers(1, 16))
def test_gpipe_and_1f1b_idle_as_published(f: float, b: float, stages: int, m: int) -> None:
    # Narayanan et al. 2021, section 2.2: (pp - 1)(f + b).
    for name in ("gpipe", "1f1b"):
        time = run(name, equal(stages, f, b), m)[0]
        assert time == pytest.approx((m + stages - 1) * (f + b))
        assert chosen(name, equal(stages, f, b), m) == pytest.approx(time)


@given(stage_time, stage_time, st.integers(2, 6), st.integers(1, 4), st.integers(2, 4))
def test_chunks_divide_the_bubble(f: float, b: float, stages: int, rounds: int, v: int) -> None:
    # Narayanan et al. 2021, section 2.2, and Lamy-Poirier 2023, section 3.2: (pp - 1)(f + b) / v.
    for name in ("interleaved", "breadth-first"):
        time = run(name, equal(stages, f, b), rounds * stages, v)[0]
        assert time == pytest.approx((rounds * stages + (stages - 1) / v) * (f + b))
        assert chosen(name, equal(stages, f, b), rounds * stages, v) == pytest.approx(time)


@given(near, near, st.floats(0.0, 1.0), st.integers(2, 8), st.integers(0, 9))
def test_zero_bubble_idles_as_published(f: float, b: float, share: float, stages: int, more: int) -> None:
    # Qi et al. 2023, table 1, input gradients b apart from weight gradients w, w at most f and b:
    # ZB-H1 (pp - 1)(f + b - w), ZB-H2 (pp - 1)(f + b - 2 w).
    m, w = 2 * stages + more, min(f, b) * share
    times = equal(stages, f, b + w, w)
    work = m * (f + b + w)
    assert run("zb-h1", times, m)[0] == pytest.approx(work + (stages - 1) * (f + b - w))
    assert chosen("zb-h1", times, m) == pytest.approx(work + (stages - 1) * (f + b - w))
    if f >= b:
        assert run("zb-h2", times, m)[0] == pytest.approx(work + (stages - 1) * (f + b - 2 * w))
        assert chosen("zb-h2", times, m) == pytest.approx(work + (stages - 1) * (f + b - 2 * w))


@settings(deadline=None)
@given(
    st.sampled_from(["zb-h1", "zb-h2", "zb-v", "dualpipe", "dualpipe-v"]),
    st.tuples(stage_time, stage_time, st.floats(0.0, 1.5), st.floats(0.0, 0.5)),
    st.integers(1, 4),
    st.integers(0, 9),
)
def test_a_closed_form_says_what_the_recurrence_says(
    name: str, passes: tuple[float, ...], half: int, more: int
) -> None:
    f, b, w = passes[0], passes[1], passes[1] * min(passes[2], 1.0)
    stages = 2 * half
    times = equal(stages, f, b, w, passes[3] * min(f, b))
    m = 2 * stages + 2 * more
    assert chosen(name, times, m) == pytest.approx(run(name, times, m)[0])


@pytest.mark.parametrize("stages", [2, 3, 4, 8])
def test_zero_bubble_leaves_none_where_all_passes_are_alike(stages: int) -> None:
    # Qi et al. 2023, section 2.3 (ZB-H2), and 2024, section 4 (V-ZB): f = b = w.
    for name in ("zb-h2", "zb-v"):
        for m in (2 * stages, 5 * stages + 1):
            assert run(name, equal(stages, 1.0, 2.0, 1.0), m)[0] == pytest.approx(3.0 * m)


@given(st.tuples(near, near, st.floats(0.0, 1.0)), st.floats(0.0, 0.3), st.integers(1, 4), st.integers(0, 6))
def test_dualpipe_idles_as_published(times: tuple[float, float, float], share: float, half: int, more: int) -> None:
    # DeepSeek-AI 2024, table 2: (pp / 2 - 1)(F&B + B - 3 W), B the whole backward pass, F&B the two beside each other.
    # It is the idle time of the middle stages, which run the most pairs: all but pp of the micro-batches.
    stages, (f, b), w = 2 * half, sorted(times[:2]), times[2] * min(times[:2])
    m, hidden = 2 * stages + 2 * more, share * f
    pair, pairs = f + b + w - hidden, m - stages
    time = run("dualpipe", equal(stages, 2 * f, 2 * (b + w), 2 * w, 2 * hidden), m)[0]  # a stage has two chunks
    work = pairs * pair + (m - pairs) * (f + b + w)
    assert time == pytest.approx(work + (half - 1) * (pair + b + w - 3 * w))
    form = chosen("dualpipe", equal(stages, 2 * f, 2 * (b + w), 2 * w, 2 * hidden), m)
    assert form == pytest.approx(time)


@given(st.lists(st.tuples(stage_time, stage_time), min_size=2, max_size=6), st.integers(6, 24))
def test_a_stream_runs_at_the_pace_of_its_slowest_stage(times: list[tuple[float, float]], m: int) -> None:
    # PipeDream-2BW never flushes: many steps of 1F1B in one, without their fill and drain.
    given_times = unequal([f for f, _ in times], [b for _, b in times])
    long = run("1f1b", given_times, 40 * m)[0] - run("1f1b", given_times, 39 * m)[0]
    # A start-up transient fades over more micro-batches than can be run here: 0.3 % of the pace at most.
    assert chosen("pipedream-2bw", given_times, m) == pytest.approx(long, rel=0.005)


@settings(max_examples=200)
@given(st.lists(st.tuples(stage_time, stage_time), min_size=2, max_size=6), st.integers(6, 24))
def test_closed_forms_of_unequal_stages_stay_near_the_recurrence(times: list[tuple[float, float]], m: int) -> None:
    given_times = unequal([f for f, _ in times], [b for _, b in times])
    assert chosen("gpipe", given_times, m) == pytest.approx(run("gpipe", given_times, m)[0])
    assert chosen("breadth-first", given_times, m, 3) == pytest.approx(run("breadth-first", given_times, m, 3)[0])
    exact, form = run("1f1b", given_times, m)[0], chosen("1f1b", given_times, m)
    assert 0.8 * exact < form < exact * (1 + 1e-9)  # a path through one stage is never longer than the longest path


@given(st.integers(2, 8), st.integers(2, 4), st.integers(2, 4), st.floats(0.5, 1.0), st.floats(1.0, 1.5))
def test_closed_forms_of_lighter_or_heavier_ends_stay_near(
    stages: int, rounds: int, v: int, light: float, heavy: float
) -> None:
    # The stages of a real model: embedding and head beside equal layers, or in place of some.
    for first, last in ((1.0, heavy), (heavy, 1.0), (light, light)):
        f = [first, *[1.0] * (stages - 2), last]
        times = unequal(f, [2.0 * x for x in f])
        for name, chunks in (("1f1b", 1), ("interleaved", v)):
            exact, form = run(name, times, rounds * stages, chunks)[0], chosen(name, times, rounds * stages, chunks)
            assert (0.95 if name == "interleaved" else 1 - 1e-9) * exact < form < exact * (1 + 1e-9)


@given(st.lists(st.tuples(near, near), min_size=2, max_size=6), st.integers(2, 4), st.integers(2, 4))
def test_the_closed_form_of_chunks_is_a_lower_bound(times: list[tuple[float, float]], rounds: int, v: int) -> None:
    given_times = unequal([f for f, _ in times], [b for _, b in times])
    m = rounds * len(times)
    exact, form = run("interleaved", given_times, m, v)[0], chosen("interleaved", given_times, m, v)
    assert 0.85 * exact < form < exact * (1 + 1e-9)


@settings(deadline=None, max_examples=60)
@given(
    st.sampled_from(ANY),
    st.lists(st.tuples(stage_time, stage_time, stage_time), min_size=4, max_size=4),
    st.integers(12, 40),
)
def test_repeating_the_steady_state_loses_little(name: str, times: list[tuple[float, ...]], m: int) -> None:
    f, b, w = (list(column) for column in zip(*times, strict=True))
    given_times = unequal(f, [x + y for x, y in zip(b, w, strict=True)], w)
    m -= m % 4
    exact, short = run(name, given_times, m, 2)[0], repeated(name, given_times, m, 2)[0]
    assert exact * (1 - 1e-9) < short < exact * 1.03
    flat = equal(4, f[0], b[0] + w[0], w[0])
    assert repeated(name, flat, m, 2)[0] == pytest.approx(run(name, flat, m, 2)[0])


@settings(deadline=None, max_examples=60)
@given(
    st.sampled_from(list(SCHEDULES)),
    st.lists(st.tuples(stage_time, stage_time, stage_time), min_size=4, max_size=4),
    st.integers(2, 6),
)
def test_no_step_is_shorter_than_the_work_of_its_slowest_stage(
    name: str, times: list[tuple[float, ...]], rounds: int
) -> None:
    f, b, w = (np.array(column) for column in zip(*times, strict=True))
    given_times = unequal(f.tolist(), (b + w).tolist(), w.tolist())
    work = f + b + w
    work = 4 * rounds * work.max() / SCHEDULES[name].copies
    assert run(name, given_times, 4 * rounds, 2)[0] >= work * (1 - 1e-9)


def test_a_slow_stage_delays_exactly_those_who_wait_for_it() -> None:
    def starts(slow: float) -> dict[tuple[int, str, int], float]:
        times = unequal([1.0, 1.0, slow, 1.0], [2.0] * 4)
        plan = program("1f1b", 4, 8, 1)
        start, _ = play(plan, *table_of(SCHEDULES["1f1b"], times, 1), times.delay)
        return {(s, task[0], task[1]): float(start[i, 0]) for i, (s, task, _) in enumerate(plan.nodes)}

    usual, late = starts(1.0), starts(1.5)
    moved = {key for key in usual if late[key] > usual[key] + 1e-12}
    kept = set(usual) - moved
    assert {(0, "forward", 0), (1, "forward", 0), (2, "forward", 0), (0, "forward", 2)} <= kept
    assert {(3, "forward", 0), (3, "backward", 0), (2, "backward", 0), (0, "backward", 0)} <= moved
    assert all(late[key] == usual[key] for key in kept)


def test_a_message_between_stages_shows_where_a_stage_waits_for_it() -> None:
    times = equal(4, 1.0, 2.0)
    travelled = Durations(times.forward, times.backward, times.weight, times.hidden, np.array([0.1]))
    still, moved = run("1f1b", times, 64)[0], run("1f1b", travelled, 64)[0]
    # 1F1B keeps pp micro-batches in flight, whose round trip takes pp (f + b) of work and 2 (pp - 1) messages.
    assert moved - still == pytest.approx(0.1 * 2 * 3 * 64 / 4, rel=0.05)
    assert repeated("1f1b", travelled, 64)[0] == pytest.approx(moved, rel=1e-3)


def test_of_two_ways_a_stage_runs_parts_of_both_at_its_own_pace() -> None:
    """Stages 0 and 1 of four are twice as fast: each takes its own time for its part and for that of the stage that it
    mirrors, and the slow ones, which are never out of work, pace the step."""
    times = unequal([1.0, 1.0, 2.0, 2.0], [2.0, 2.0, 4.0, 4.0], [1.0, 1.0, 2.0, 2.0])
    plan = program("dualpipe", 4, 16, 2)
    start, end = play(plan, *table_of(SCHEDULES["dualpipe"], times, 2), times.delay)
    for (stage, task, beside), begin, done in zip(plan.nodes, start[:, 0], end[:, 0], strict=True):
        if task[0] == "forward" and beside is None:
            assert done - begin == pytest.approx(0.5 * (1.0 if stage < 2 else 2.0))
    assert 16 / 2 * 6.0 <= run("dualpipe", times, 16)[0] < 16 / 2 * 6.0 * 1.25
    slow, fast = (run("dualpipe", equal(4, f, 2 * f, f), 16)[0] for f in (2.0, 1.0))
    assert fast < run("dualpipe", times, 16)[0] <= slow


@settings(deadline=None, max_examples=40)
@given(
    st.sampled_from(["1f1b", "interleaved"]), st.lists(st.tuples(stage_time, stage_time), min_size=4, max_size=4),
    st.integers(2, 6), st.integers(1, 2),
)  # fmt: skip
def test_any_stage_may_differ_from_any_other(name: str, times: list[tuple[float, float]], rounds: int, v: int) -> None:
    v = v if name == "interleaved" else 1
    given_times = unequal(*(list(column) for column in zip(*times, strict=True)))
    columns = (np.array([float(x)]) for x in (4, 4 * rounds, v, NAMES.index(name)))
    found = pipeline_time(given_times, *columns, unequal=True)[0]
    exact = run(name, given_times, 4 * rounds, v)[0]
    assert exact * (1 - 1e-9) <= found <= exact * 1.02


def test_two_ways_run_as_one_half_that_mirrors_the_other() -> None:
    rng = np.random.default_rng(7)
    for stages, m in [(4, 16), (8, 20)]:
        f, b, w = rng.uniform(0.5, 2.0, (3, 3, stages))
        times = mirrored(Durations.of(f, b + w, w, 0.2 * f))
        plan = program("dualpipe", stages, m, 2)
        _, end = play(plan, *table_of(SCHEDULES["dualpipe"], times, 2), times.delay)
        assert run("dualpipe", times, m) == pytest.approx(end.max(axis=0))
