"""Experts that the fullest rank of a group hits, held to draws."""

import numpy as np
import pytest

from rapid_llm.predict import evaluate
from rapid_llm.scenario import from_mapping


@pytest.mark.parametrize("ep", [4, 8])
@pytest.mark.parametrize("batch", [8, 32, 128])
def test_the_fullest_rank_hits_as_many_as_in_draws(ep, batch):
    scenario = from_mapping(
        {
            "model": "qwen3-30b-a3b",
            "system": "dgx-h100",
            "accelerators": ep,
            "parallelism": {"dp": ep, "ep": ep},
            "workload": {
                "kind": "inference",
                "batch_size": batch,
                "prompt_tokens": 64,
                "output_tokens": 2,
                "routing": {"skew": 0},
            },
        }
    )
    steps = evaluate(scenario).steps
    table = next(t for t in steps.priced.lowered.kernels if t.family == "moe")
    hit = table.columns["hit"][0, 1]
    random = np.random.default_rng(7)
    drawn = []
    for _ in range(400):
        chosen = random.random((batch, 128)).argsort(axis=1)[:, :8]
        drawn.append(max(len(np.unique(chosen[chosen // (128 // ep) == rank])) for rank in range(ep)))
    assert hit == pytest.approx(np.mean(drawn), rel=0.06)


@pytest.mark.parametrize(("model", "skew"), [("qwen3-30b-a3b", 0.8), ("glm-4.5-air", 0.0)])
def test_experts_that_nobody_speaks_of_are_as_popular_as_their_router_leaves_them(model, skew):
    """A router balanced by a bias touches experts evenly, others as traces do (TensorRT-LLM PR 19148)."""

    def hit(routing):
        work = {"kind": "inference", "batch_size": 32, "prompt_tokens": 64, "output_tokens": 2, "routing": routing}
        lowered = evaluate(from_mapping({"model": model, "system": "h200-sxm", "workload": work})).steps.priced.lowered
        return next(t for t in lowered.kernels if t.family == "moe").columns["hit"][0, 1]

    assert hit({}) == pytest.approx(hit({"skew": skew}), rel=0.02)
    assert hit({"skew": 0.8}) < 0.95 * hit({"skew": 0})


def test_shared_experts_among_the_routed_ones_are_experts_that_every_token_has():
    """AITER and SGLang on CDNA append them (num_fused_shared_experts): no product of their own, one expert more."""

    def kernels(runtime):
        work = {"kind": "inference", "batch_size": 16, "prompt_tokens": 64, "output_tokens": 2}
        given = {"model": "deepseek-r1", "system": "mi300x-8", "parallelism": {"tp": 8}, "runtime": runtime}
        lowered = evaluate(from_mapping({**given, "workload": work})).steps.priced.lowered
        table = next(t for t in lowered.kernels if t.family == "moe")
        apart = sum(t.count[i].sum() for t in lowered.kernels for i, n in enumerate(t.names) if n.startswith("shared_"))
        return apart, table.columns["hit"][0, 1], table.columns["pairs"][0, 1]

    beside, hit, pairs = kernels({"base": "sglang", "serving": {"shared_as_routed": False}})
    none, one_more, more = kernels("sglang")
    assert beside > 0
    assert none == 0
    assert one_more == pytest.approx(hit + 1)
    assert more == pytest.approx(pairs * 9 / 8)


@pytest.mark.parametrize(("model", "format_"), [("minimax-m2.5", "fp32"), ("deepseek-r1", "bf16")])
def test_a_router_multiplies_in_the_format_that_engines_keep_it_in(model, format_):
    """vLLM's minimax_m2.py gives its gate float32 parameters and widens the input; deepseek_v2.py does not."""
    work = {"kind": "inference", "batch_size": 1, "prompt_tokens": 64, "output_tokens": 2}
    given = {"model": model, "system": "dgx-b200", "accelerators": 8, "parallelism": {"tp": 8}, "workload": work}
    kernels = evaluate(from_mapping(given)).steps.priced.lowered.kernels
    table = next(t for t in kernels if t.family == "gemm" and "router" in t.names)
    row = table.names.index("router")
    assert table.dtype == format_
    assert table.columns["x_bytes"][row].max() == table.columns["w_bytes"][row].max() == (4 if format_ == "fp32" else 2)
    assert any("router_cast" in t.names for t in kernels) == (format_ == "fp32")


@pytest.mark.parametrize(
    ("model", "runtime", "kernels"),
    [
        ("glm-4.6", "sglang@2025", 10),  # a bias, 160 experts in one group
        ("deepseek-r1", "sglang@2025", 1),  # a bias, 32 experts a group
        ("qwen3-235b-a22b", "sglang@2025", 1),  # no bias
        ("glm-4.6", "sglang@0.5.10", 10),
        ("glm-4.6", "sglang", 1),
    ],
)
def test_experts_of_wide_groups_are_chosen_kernel_by_kernel_where_an_engine_has_none_for_them(model, runtime, kernels):
    """SGLang's moe_fused_gate holds 32 experts of a group; PyTorch chose among more until July 2026 (PR 29771)."""
    work = {"kind": "inference", "batch_size": 1, "prompt_tokens": 64, "output_tokens": 2}
    given = {"model": model, "system": "dgx-b200", "accelerators": 8, "parallelism": {"tp": 8}, "runtime": runtime}
    tables = evaluate(from_mapping({**given, "workload": work})).steps.priced.lowered.kernels
    table = next(t for t in tables if "topk" in t.names)
    count = table.count[table.names.index("topk")].max()
    layers = next(t for t in tables if "router" in t.names)
    assert count == kernels * layers.count[layers.names.index("router")].max()
