"""Fusion, and tables of many plans."""

import numpy as np
import pytest

from rapid_llm.lowering.fusion import fuse
from rapid_llm.lowering.operators import Operator, pointwise
from rapid_llm.parallelism import Plans
from rapid_llm.workload import Lora, Routing, Training

from .tables import plan, table

ONE = np.ones(1)
SIZE = {"global_batch_size": 64, "sequence_length": 2048}


def test_fusion_drops_inner_tensors_and_keeps_outer_ones() -> None:
    run = [
        pointwise("up", "stream", {"x": ONE}, {"g": ONE, "u": ONE}),
        pointwise("activation", "stream", {"g": 2 * ONE}, {"t": 2 * ONE}, saves=("g",)),
        pointwise("mul", "stream", {"u": 3 * ONE, "t": 2 * ONE}, {"p": 3 * ONE}, saves=("u", "t")),
        pointwise("down", "stream", {"p": 3 * ONE}, {"d": ONE}),
    ]
    _, fused, _ = fuse(run, [("activation", "mul")])
    assert isinstance(fused, Operator)
    assert fused.name == "activation+mul"
    assert (set(fused.reads), set(fused.writes)) == ({"g", "u"}, {"p"})
    assert fused.saves == ("g", "u")


def test_fusion_keeps_a_tensor_that_another_operator_reads() -> None:
    run = [
        pointwise("residual", "stream", {"x": ONE, "o": ONE}, {"x1": ONE}),
        pointwise("norm", "reduce", {"x1": ONE}, {"n": ONE}, saves=("x1",)),
        pointwise("later", "stream", {"x1": ONE, "n": ONE}, {"y": ONE}),
    ]
    fused, _ = fuse(run, [("residual", "norm")])
    assert isinstance(fused, Operator)
    assert set(fused.writes) == {"x1", "n"}
    assert fused.kind == "reduce"
    assert fuse(run, [("norm", "residual")]) == run


def test_products_of_one_input_become_one_as_wide_as_both() -> None:
    def product(name: str, n: float) -> Operator:
        columns = {"m": ONE, "n": n * ONE, "k": 7.0, "groups": 1.0}
        return Operator(name, "gemm", {"n1": 7 * ONE}, {name: n * ONE}, columns, saves=("n1",), weight=True)

    (fused,) = fuse([product("q_down", 1536.0), product("kv_down", 576.0)], [("q_down", "kv_down")])
    assert isinstance(fused, Operator)
    assert (np.asarray(fused.columns["n"]).item(), fused.columns["k"]) == (2112.0, 7.0)
    assert (set(fused.reads), set(fused.writes)) == ({"n1"}, {"q_down", "kv_down"})


def test_many_plans_are_the_plans_one_by_one() -> None:
    plans = [
        plan(1, tp=1, dp=4, zero_stage=3),
        plan(2, recompute="full", tp=2, pp=2, sp=True, dp=2, zero_stage=1),
        plan(1, recompute="selective", tp=8, pp=4, sp=True),
        plan(4, tp=1, cp=2, dp=8, dp_shard=4, zero_stage=3),
    ]
    every = table(Plans.stack(plans))
    for index, one in enumerate(table(p) for p in plans):
        stages = one.layers.shape[2]
        for field in ("dense", "expert", "saved", "working"):
            assert getattr(every, field)[:, index] == pytest.approx(getattr(one, field)[:, 0])
        assert np.array_equal(every.layers[:, index, :stages], one.layers[:, 0])
        assert _totals(every, index) == pytest.approx(_totals(one, 0))


JOBS = {
    "sequence parallelism": (plan(recompute="selective", tp=8, pp=2, sp=True), {}),
    "cp and zero": (
        plan(2, cp=4, ulysses=2, dp=8, dp_shard=4, zero_stage=3),
        {"model": "llama-3.1-8b", "runtime": "fsdp"},
    ),
    "experts": (
        plan(recompute="full", tp=2, sp=True, ep=8, dp=16),
        {"model": "deepseek-v3", "preset": "fp8", "work": Training(**SIZE, mtp_layers=1, routing=Routing(skew=0.5))},
    ),
    "adapters": (plan(tp=2, dp=2), {"model": "qwen3-30b-a3b", "work": Training(**SIZE, lora=Lora(rank=16))}),
    "recurrence": (plan(tp=2, dp=2), {"model": "qwen3-next-80b-a3b", "work": Training(**SIZE, documents=(100, 300))}),
    "async messages": (plan(tp=4, sp=True), {"model": "llama-3.1-8b", "runtime": "torchtitan@async-tp"}),
}


@pytest.mark.parametrize("job", JOBS)
def test_a_plan_in_numbers_is_the_plan_in_columns(job: str) -> None:
    """One plan is lowered in numbers, several are in columns: same rows, same cells."""
    plans, how = JOBS[job]
    alone, both = table(plans, **how), table(Plans.stack([plans, plans]), **how)
    for found, expected in zip(_cells(both), _cells(alone), strict=True):
        assert found == pytest.approx(np.broadcast_to(expected, found.shape), rel=1e-13)
    for found, expected in zip((*both.kernels, *both.messages), (*alone.kernels, *alone.messages), strict=True):
        assert (found.names, found.cells) == (expected.names, expected.cells)


def _cells(lowered) -> list[np.ndarray]:
    """Everything in a table that has a value for each plan."""
    units = lowered.layers, lowered.dense, lowered.expert, lowered.trained, lowered.saved, lowered.working
    kernels = [column for rows in lowered.kernels for column in (*rows.columns.values(), rows.count)]
    messages = [column for rows in lowered.messages for column in (rows.size, rows.count, rows.ranks, rows.stride)]
    return [*units, lowered.gathered, *kernels, *messages]


def _totals(lowered, plan_index: int) -> list[float]:
    """Sums of counts and count-weighted columns of all rows, by table kind and phase."""
    found = dict.fromkeys([(f, p) for f in ("gemm", "attention", "pointwise", "message") for p in range(4)], 0.0)
    for rows in lowered.kernels:
        weight = sum(column[:, plan_index] for column in rows.columns.values()) + 1.0
        for phase in range(4):
            found[rows.family, phase] += float((weight * rows.count[:, plan_index])[rows.phase == phase].sum())
    for rows in lowered.messages:
        weight = rows.size[:, plan_index] * rows.count[:, plan_index] * (rows.ranks[:, plan_index] > 1)
        for phase in range(4):
            found["message", phase] += float(weight[rows.phase == phase].sum())
    return list(found.values())


def test_a_plan_seen_before_is_not_lowered_again() -> None:
    assert table(plan(tp=2)) is table(plan(tp=2))
    assert table(plan(tp=2)) is not table(plan(tp=4))
    more = table(plan(tp=2, micro_batches=8))
    assert more.kernels is table(plan(tp=2)).kernels
    assert more.shapes.plans.micro_batches[0] == 8
    works = [Training(global_batch_size=batch, sequence_length=2048) for batch in (8, 16)]
    first, second = (table(plan(tp=2), work=work) for work in works)
    assert second.kernels is first.kernels
    many = Plans.stack([plan(tp=2)] * 9)
    assert table(many) is not table(many)
