"""Peaks that others measured: torchtitan's own benchmarks, SimuMax on B200."""

from typing import Any

import pytest

from rapid_llm.predict.fitting import footprint
from rapid_llm.validation import run

from .scenarios import GIB, training

H100 = "grand-teton-h100-hbm2e"


@pytest.mark.parametrize(
    ("name", "given", "plan", "work", "reserved"),
    [  # pytorch/torchtitan, benchmarks/llama3_h100_202412: GiB reserved, the fullest rank
        ("llama-3-8b", {"accelerators": 128}, {}, (256, 2, 8192, "selective"), 67.0),
        ("llama-3-8b", {"accelerators": 8, "precision": "fp8-mixed"}, {}, (8, 1, 32768, "full"), 83.9),
        ("llama-3-8b", {"accelerators": 8, "precision": "fp8-mixed"}, {"cp": 8}, (1, 1, 262144, "full"), 84.5),
        ("llama-3-70b", {"accelerators": 256, "precision": "fp8-mixed"}, {"tp": 8}, (512, 16, 8192, "full"), 67.6),
        (
            "llama-3.1-405b",
            {"accelerators": 512, "precision": "fp8-mixed"},
            {"tp": 8, "pp": 8},
            (64, 1, 32768, "full"),
            75.3,
        ),
    ],
)
def test_torchtitan(name: str, given: Any, plan: Any, work: tuple[int, int, int, str], reserved: float) -> None:
    batch, micro_batch, length, recompute = work
    sizes = {"global_batch_size": batch, "micro_batch_size": micro_batch, "sequence_length": length}
    scenario = training(
        name, runtime="torchtitan", system=H100, plan=plan, work={**sizes, "recompute": recompute}, **given
    )
    assert footprint(scenario).account.reserved.max() / GIB == pytest.approx(reserved, rel=0.07)


@pytest.mark.parametrize(
    ("model", "system", "count", "reserved"),
    [  # sequences of 8,192, eight a rank: notes of runs with torchtitan of 2026
        ("qwen3-30b-a3b", "dgx-b200", 8, 142.0),
        ("gpt-oss-20b", {"base": "gb300-nvl72", "node": {"accelerators": 64, "nics": {"count": 64}}}, 64, 75.1),
    ],
)
def test_experts_of_torchtitan_run_again_as_a_whole(model: str, system: Any, count: int, reserved: float) -> None:
    """aten._grouped_mm is not on the list of operators whose results selective checkpointing keeps."""
    scenario = training(
        model, runtime="torchtitan@chunked-loss", system=system, accelerators=count, plan={"zero_stage": 3},
        work={"global_batch_size": 8 * count, "micro_batch_size": 8, "sequence_length": 8192, "recompute": "selective"},
    )  # fmt: skip
    assert footprint(scenario).account.reserved.max() / GIB == pytest.approx(reserved, rel=0.07)


@pytest.mark.parametrize(
    ("tp", "allocated"),
    [(8, 28.29), (4, 39.07), (2, 60.68)],  # SimuMax, B200: Llama-3-70B of 12 layers, 8 accelerators, GiB allocated
)
def test_simumax(tp: int, allocated: float) -> None:
    model = {"base": "llama-3-70b", "num_hidden_layers": 12}
    scenario = training(
        model, system="dgx-b200", plan={"tp": tp}, accelerators=8,
        work={"global_batch_size": 64, "sequence_length": 4096, "recompute": "none"},
    )  # fmt: skip
    assert footprint(scenario).account.allocated.max() / GIB == pytest.approx(allocated, rel=0.03)


def test_caches_that_engines_reported_at_their_start() -> None:
    """Public start-up logs of vLLM and SGLang, one figure each, on four accelerators; none was used in a fit."""
    rows = {row.metric: row for row in run(["memory"]).rows if row.group == "engine-logs" and row.split == "all"}
    assert rows["cache"].evaluated == 6
    assert rows["cache"].mape < 0.08
