"""Steps under each schedule: what its stages hold, what it hides, and many plans as one table."""

import numpy as np
import pytest

from lowering.tables import plan, table
from rapid_llm import hardware
from rapid_llm import runtime as runtimes
from rapid_llm.execution import Machine, TrainingStep, training_step
from rapid_llm.parallelism import SCHEDULES, Plans

MACHINE = Machine.of(hardware.system("dgx-h100"), runtimes.load("megatron-core"))
CHUNKED = {"interleaved": 2, "breadth-first": 2}


def under(schedule: str, micro_batches: int = 32, **degrees: int) -> Plans:
    given = {"pp": 4, "vpp": CHUNKED.get(schedule, 1), **degrees}
    return plan(1, micro_batches, schedule=schedule, **given)


def step(plans: Plans, model: str = "llama-3.1-8b") -> TrainingStep:
    return training_step(table(plans, model), MACHINE)


def test_a_v_holds_both_ends_of_the_model_on_its_first_stage() -> None:
    line, vee = (step(under(name)).priced.lowered.layers[:, 0] for name in ("1f1b", "zb-v"))
    assert vee.sum() == line.sum()
    assert vee[-2:].tolist() == [[1, 0, 0, 0], [1, 0, 0, 0]]
    assert vee[0].tolist() == [8, 8, 8, 8]


def test_two_ways_hold_every_part_twice() -> None:
    line, both = (step(under(name)).priced.lowered.layers[:, 0] for name in ("1f1b", "dualpipe"))
    assert both == pytest.approx(line + line[:, ::-1])
    plans = under("dualpipe", dp=2)
    assert plans.data == 4
    assert plans.edp == 4


def test_a_shorter_bubble_makes_a_shorter_step() -> None:
    # Qi et al. 2023 and 2024: 1F1B > ZB-H1 > ZB-H2; a stream has no bubble at all.
    names = ("1f1b", "zb-h1", "zb-h2", "pipedream-2bw")
    plain, split, filled, stream = (float(step(under(name, 8)).pipeline[0]) for name in names)
    assert plain > split > filled >= stream * (1 - 1e-9)


def test_dense_models_have_no_messages_for_a_pair_to_hide() -> None:
    assert not step(under("dualpipe")).beside.any()  # type: ignore[union-attr]
    assert step(under("1f1b")).beside is None


def test_a_pair_hides_messages_of_experts() -> None:
    plans = under("dualpipe", pp=4, ep=8, dp=8)
    found = step(plans, "deepseek-v2-lite")
    assert found.beside is not None
    assert (found.beside > 0).all()
    assert (found.beside < found.forward + found.backward).all()
    shares = found.beside / (found.forward + found.backward)
    assert shares.max() < 0.5


def test_many_plans_are_timed_as_the_plans_one_by_one() -> None:
    plans = [under(name, m, pp=pp) for name in SCHEDULES for m, pp in ((16, 2), (32, 4), (64, 4))]
    plans.append(under("zb-v", 8, pp=1))
    together = step(Plans.stack(plans)).total
    assert together == pytest.approx(np.array([float(step(p).total[0]) for p in plans]), rel=1e-9)


def test_a_schedule_changes_nothing_without_a_pipeline() -> None:
    times = {float(step(under(name, 8, pp=1, vpp=1)).pipeline[0]) for name in ("1f1b", "gpipe", "zb-h1", "zb-h2")}
    assert max(times) == pytest.approx(min(times), rel=1e-12)
