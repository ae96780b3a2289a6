"""Passes from a recipe are those that are lowered row by row."""

import numpy as np
import pytest

from rapid_llm.lowering import lower
from rapid_llm.lowering.linear import _degrees, _recipe, lower_pass
from rapid_llm.predict import plans_of
from rapid_llm.predict.replica import job_of
from rapid_llm.scenario import from_mapping
from rapid_llm.workload import points_of

CASES = [
    ("llama-3.1-70b", {"tp": 4}, {}),
    ("llama-3.1-8b", {"tp": 2, "cp": 2}, {}),
    ("llama-3.1-8b", {"tp": 2, "cp": 4, "helix": True}, {}),
    ("gpt-oss-20b", {"tp": 2, "cp": 2, "ep": 4, "helix": True}, {}),
    ("deepseek-v3", {"cp": 8, "helix": True}, {}),
    ("llama-3.1-8b", {"tp": 2, "pp": 2, "sp": True}, {}),
    ("mixtral-8x7b", {"tp": 2}, {}),
    ("deepseek-v3", {"tp": 8}, {}),
    ("deepseek-v3", {"tp": 1, "dp": 16, "ep": 16}, {"routing": {"skew": 0.7}}),
    ("gpt-oss-20b", {"tp": 1}, {}),
    ("gemma-2-9b", {"tp": 2}, {}),
    ("qwen3-next-80b-a3b", {"tp": 2}, {}),
    ("flan-t5-xl", {"tp": 2}, {}),
    ("whisper-large-v3", {}, {"prompt_tokens": 1500}),
    ("bge-m3", {"tp": 2, "pp": 2}, {"output_tokens": 0}),
    ("llama-3.2-11b-vision", {"tp": 2}, {"images": {"width": 560, "height": 560}}),
]


@pytest.mark.parametrize(("model", "plan", "work"), CASES)
def test_a_recipe_is_lowering(model, plan, work):
    given = from_mapping(
        {
            "model": model,
            "system": "dgx-h100",
            "parallelism": plan,
            "workload": {"kind": "inference", "batch_size": 64, "prompt_tokens": 100, "output_tokens": 10, **work},
        }
    )
    job = job_of(given)
    points = points_of([(7, 1234, 0, 1), (2, 511, 4096, 1), (37, 1, 1999, 1), (130, 1, 77, 1), (9, 3, 640, 1)])
    verified = np.array([False, False, False, False, True])
    shapes = job.lower(points, verified).shapes
    table = given.model, given.runtime, given.precision, given.workload.routing
    assert _recipe(table, _degrees(plans_of(given)))
    fast, slow = lower_pass(table, plans_of(given), shapes), lower(given.model, shapes, given.runtime)
    assert [t.names for t in fast.kernels] == [t.names for t in slow.kernels]
    for a, b in zip(fast.kernels, slow.kernels, strict=True):
        assert a.columns.keys() == b.columns.keys()
        for name, column in b.columns.items():
            np.testing.assert_allclose(a.columns[name], column, rtol=1e-9, atol=1e-6)
            whole = column == np.round(column)
            assert (a.columns[name][whole & (column < 1e6)] == column[whole & (column < 1e6)]).all()
        np.testing.assert_allclose(a.count, b.count, atol=1e-9)
    for a, b in zip(fast.messages, slow.messages, strict=True):
        np.testing.assert_allclose(a.size, b.size, rtol=1e-9, atol=1e-6)
        np.testing.assert_allclose(a.count, b.count, atol=1e-9)
        assert (a.ranks == b.ranks).all()
        assert (a.stride == b.stride).all()
    assert (fast.layers == slow.layers).all()
    assert (fast.dense == slow.dense).all()
