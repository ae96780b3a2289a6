"""Lightning indexers: what their scores are multiplied in, and what they move."""

import numpy as np
import pytest

from rapid_llm import model as models
from rapid_llm import runtime as runtimes
from rapid_llm.dtypes import precision
from rapid_llm.lowering import Shapes, lower

from .tables import plan, table

BATCH, PROMPT = 4, 8192


def scores(name, preset, past=0.0):
    engine = runtimes.load("vllm")
    shapes = Shapes.of(
        plan(BATCH, tp=8),
        new=np.full(1, 1.0 if past else float(PROMPT)),
        past=np.full(1, past),
        training=False,
        precision=precision(preset),
        runtime=engine,
    )
    lowered = lower(models.load(name), shapes, engine)
    rows = next(rows for rows in lowered.kernels if "index_scores" in rows.names)
    at = rows.names.index("index_scores")
    return rows.dtype, {side: float(column[at, 0]) for side, column in rows.columns.items()}


@pytest.mark.parametrize("preset", ["bf16", "fp8-block"])
@pytest.mark.parametrize("name", ["deepseek-v3.2", "glm-5", "deepseek-v4-flash"])
def test_an_engine_multiplies_the_scores_of_an_indexer_in_fp8(name, preset):
    assert scores(name, preset)[0] == "fp8"


@pytest.mark.parametrize(("new", "past"), [(PROMPT, 0.0), (1, 8191.0)])
def test_heads_of_an_indexer_share_their_keys_and_leave_their_sum(new, past):
    # DeepSeek-V3.2: 64 heads of 128, replicated over tp; queries and keys of a byte, logits of four.
    sides = scores("deepseek-v3.2", "fp8-block", past)[1]
    m, n, k, groups = (sides[side] for side in ("m", "n", "k", "groups"))
    keys = past + (new + 1) / 2
    assert groups * m * n * k == pytest.approx(64 * 128 * BATCH * new * keys)
    assert groups * m * k * sides["x_bytes"] == pytest.approx(BATCH * new * 64 * 128)
    assert groups * n * k * sides["w_bytes"] == pytest.approx(BATCH * keys * 128)
    assert groups * m * n * sides["y_bytes"] == pytest.approx(4 * BATCH * new * keys)


@pytest.mark.parametrize(("new", "past"), [(PROMPT, 0.0), (1, 8191.0)])
def test_scores_of_compressed_entries_are_of_those_behind_a_query(new, past):
    mixer = next(b.mixer for b in models.load("deepseek-v4-flash").blocks if getattr(b.mixer, "index_n_heads", None))
    sides = scores("deepseek-v4-flash", "fp8-block", past)[1]
    multiplied = np.prod([sides[side] for side in ("m", "n", "k", "groups")])
    entries = (past + (new + 1) / 2) / mixer.compress_rate
    assert multiplied == pytest.approx(mixer.index_n_heads * mixer.index_head_dim * BATCH * new * entries)


def test_training_multiplies_them_in_the_format_of_activations():
    lowered = table(plan(1, tp=8), "deepseek-v3.2", preset="bf16")
    assert next(rows.dtype for rows in lowered.kernels if "index_scores" in rows.names) == "bf16"
