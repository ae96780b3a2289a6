"""Activations of a layer against the closed forms of Korthikanti et al. 2022 (arXiv 2205.05198), section 4."""

from typing import Any

import pytest

from rapid_llm.memory import holdings
from rapid_llm.predict.fitting import footprint

from .scenarios import training

S, B = 2048, 4
SIZES = {"gpt-22b": (6144, 64, 48), "gpt-175b": (12288, 96, 96), "gpt-530b": (20480, 128, 105)}


def layer(name: str, **plan: Any) -> float:
    """Bytes that one micro-batch leaves in one layer of the middle stage."""
    work = {"global_batch_size": 64 * B, "micro_batch_size": B, "sequence_length": S}
    work["recompute"] = plan.pop("recompute", "none")
    stages = 3
    scenario = training(
        name, runtime="megatron-core@2021", plan={"pp": stages, **plan}, work=work, accelerators=3 * plan.get("tp", 1)
    )
    held = holdings(footprint(scenario).lowered, scenario.runtime, scenario.precision)
    return float(held.micro[0, 1]) / (SIZES[name][2] / stages)


@pytest.mark.parametrize("name", SIZES)
@pytest.mark.parametrize("t", [1, 2, 8])
def test_tensor_parallelism(name: str, t: int) -> None:
    h, a, _ = SIZES[name]
    assert layer(name, tp=t, sp=False) == pytest.approx(S * B * h * (10 + 24 / t + 5 * a * S / (h * t)), rel=1e-12)


@pytest.mark.parametrize("name", SIZES)
@pytest.mark.parametrize("t", [2, 8])
def test_sequence_parallelism(name: str, t: int) -> None:
    h, a, _ = SIZES[name]
    assert layer(name, tp=t, sp=True) == pytest.approx(S * B * h / t * (34 + 5 * a * S / h), rel=1e-12)


@pytest.mark.parametrize("name", SIZES)
@pytest.mark.parametrize(
    ("plan", "factor"), [({}, 34.0), ({"tp": 8, "sp": False}, 13.0), ({"tp": 8, "sp": True}, 4.25)]
)
def test_selective_recomputation(name: str, plan: dict[str, Any], factor: float) -> None:
    assert layer(name, recompute="selective", **plan) == pytest.approx(S * B * SIZES[name][0] * factor, rel=1e-12)


@pytest.mark.parametrize("name", SIZES)
@pytest.mark.parametrize(("plan", "factor"), [({}, 2.0), ({"tp": 8, "sp": False}, 2.0), ({"tp": 8, "sp": True}, 0.25)])
def test_full_recomputation(name: str, plan: dict[str, Any], factor: float) -> None:
    assert layer(name, recompute="full", **plan) == pytest.approx(S * B * SIZES[name][0] * factor, rel=1e-12)


@pytest.mark.parametrize(("vpp", "factor"), [(1, 1.0), (3, 1.0 + 7 / (8 * 3))])
def test_interleaving_holds_more(vpp: int, factor: float) -> None:
    """The first stage of 1F1B holds p micro-batches, of the interleaved schedule 1 + (p - 1) / (p m) times as many."""
    plan = {"tp": 8, "pp": 8, "vpp": vpp, "sp": True, "schedule": "interleaved" if vpp > 1 else "1f1b"}
    scenario = training(
        "gpt-175b", runtime="megatron-core@2021", plan=plan, accelerators=64,
        work={"global_batch_size": 64, "sequence_length": S, "recompute": "full"},
    )  # fmt: skip
    held = holdings(footprint(scenario).lowered, scenario.runtime, scenario.precision)
    assert float(held.flight[0, 0]) == pytest.approx(8 * factor, rel=1e-12)
