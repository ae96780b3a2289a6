"""What ranks and kernels of a layer do beside its products: latents raised again, sums of experts, norms over ranks."""

import numpy as np
import pytest

from rapid_llm import model as models
from rapid_llm import runtime as runtimes
from rapid_llm.dtypes import precision
from rapid_llm.lowering import Lowered, Shapes, lower
from rapid_llm.lowering.table import FORWARD

from .tables import moved, plan, sent, table

LATENT, MIXED, WIDE_NORM, HEAD_NORM = "deepseek-v3", "qwen3-235b-a22b", "minimax-m2.5", "qwen3-8b"
NEW, PAST = 1024, 3072


def prefill(model: str, past: float = 0.0, **degrees: int) -> Lowered:
    software = runtimes.load("vllm")
    shapes = Shapes.of(
        plan(**degrees),
        new=np.array([float(NEW)]),
        past=np.array([past]),
        training=False,
        precision=precision("bf16"),
        runtime=software,
    )
    return lower(models.load(model), shapes, software)


def raised(lowered: Lowered) -> float:
    """Latents that the first layer raises to keys and values."""
    for rows in lowered.kernels:
        if "kv_up" in rows.names:
            at = next(i for i, name in enumerate(rows.names) if name == "kv_up" and rows.phase[i] == FORWARD)
            return float(rows.columns["m"][at, 0] * rows.count[at, 0])
    raise AssertionError


def test_a_chunk_raises_the_latents_that_earlier_ones_left() -> None:
    assert raised(prefill(LATENT)) == NEW
    assert raised(prefill(LATENT, PAST)) == NEW + PAST


def test_what_shared_and_routed_experts_give_is_added_up() -> None:
    part = NEW * 7168 * 2.0
    assert moved(prefill(LATENT), "forward", "join_shared", 1) == pytest.approx(3 * part)
    assert moved(prefill(MIXED), "forward", "join_shared") == 0.0


@pytest.mark.parametrize("tp", [2, 8])
def test_a_norm_over_all_heads_adds_up_squares_of_its_ranks(tp: int) -> None:
    wide, alone = (table(plan(tp=degree), WIDE_NORM, sequence=NEW) for degree in (tp, 1))
    hidden, squares = NEW * 3072 * 2.0, NEW * 2 * 4.0
    share = 2 * (tp - 1) / tp
    assert sent(wide, "forward", op="all_reduce") == pytest.approx(share * (2 * hidden + squares))
    assert moved(alone, "forward", "qk_squares") == 0.0
    by_head = table(plan(tp=tp), HEAD_NORM, sequence=NEW)
    assert sent(by_head, "forward", op="all_reduce") == pytest.approx(share * 2 * NEW * 4096 * 2.0)
