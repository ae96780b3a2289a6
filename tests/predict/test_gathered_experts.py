"""Groups whose ranks gather the tokens of all, compute the pairs of their experts, and scatter sums of results."""

import pytest

from rapid_llm import runtime as runtimes
from rapid_llm.predict import fit
from rapid_llm.predict.replica import job_of
from rapid_llm.scenario import from_mapping
from rapid_llm.workload import points_of

EACH, HIDDEN, TOP_K, BF16, FP8 = 64, 4096, 8, 2.0, 1.0  # requests of a rank; Qwen3-235B


def scenario(gathers, *, model="qwen3-235b-a22b", precision="fp8", ep=4, system="hgx-h200", by="all_gather"):
    work = {"kind": "inference", "batch_size": EACH * ep, "prompt_tokens": 1024, "output_tokens": 100}
    runtime = {"base": "tensorrt-llm", "communication": {"gathers_experts": gathers, "gathers_by": by}}
    base = {"model": model, "system": system, "runtime": runtime, "precision": precision}
    return from_mapping({**base, "accelerators": ep, "parallelism": {"ep": ep}, "workload": work})


def decode(one):
    return job_of(one).lower(points_of([(EACH, 1, 1024, 1)]))


def messages(one):
    rows = [m for m in decode(one).messages if m.axis == "ep"]
    return {m.op: float((m.size * m.count)[m.unit == 0].sum()) for m in rows}


def experts(one):
    rows = next(table for table in decode(one).kernels if table.family == "moe")
    return {name: float(column[0, 0]) for name, column in rows.columns.items()}


@pytest.mark.parametrize(("precision", "element"), [("fp8", FP8), ("fp8-block", BF16), ("bf16", BF16)])
def test_tokens_of_all_ranks_come_and_sums_go_back(precision, element):
    """fused_moe_cutlass.py of TensorRT-LLM rounds before it gathers, but where blocks of a token share a scale."""
    whole = 4 * EACH * HIDDEN
    found = messages(scenario("few", precision=precision))
    assert found == {"all_gather": pytest.approx(whole * element), "reduce_scatter": pytest.approx(whole * BF16)}


def test_shares_of_their_own_sizes_are_broadcast_and_reduced_one_by_one():
    """allgatherOp.cpp and reducescatterOp.cpp of TensorRT-LLM, but on SM 120 (its pull request 7965)."""
    whole = 4 * EACH * HIDDEN
    assert messages(scenario("few", by="broadcast")) == {"broadcast": pytest.approx(whole * (FP8 + BF16))}
    chips = "blackwell", "hopper", "blackwell-rtx"
    found = [runtimes.load("tensorrt-llm", chip).communication.gathers_by for chip in chips]
    assert found == ["broadcast", "broadcast", "all_gather"]


def test_few_are_groups_of_no_more_ranks_than_a_token_has_experts():
    assert set(messages(scenario("few", ep=8))) == {"all_gather", "reduce_scatter"}
    assert set(messages(scenario("few", ep=16, system="hgx-h200"))) == {"all_to_all"}
    assert set(messages(scenario("all", ep=16))) == {"all_gather", "reduce_scatter"}
    assert set(messages(scenario("none"))) == {"all_to_all"}


def test_every_rank_sees_all_pairs_and_computes_those_of_its_experts():
    gathered, exchanged = experts(scenario("few")), experts(scenario("none"))
    assert (gathered["tokens"], gathered["pairs"]) == (4 * EACH, 4 * EACH * TOP_K)
    assert exchanged["tokens"] == EACH
    assert gathered["rows"] == exchanged["rows"] < gathered["pairs"]


def test_what_stands_between_the_products_is_of_all_pairs():
    gathered, exchanged = (fit(scenario(how, ep=8)).memory.by_category["workspace"] for how in ("few", "none"))
    pairs, budget = 8 * TOP_K, 8192
    between = HIDDEN * FP8 + HIDDEN * BF16  # what enters the first product and what leaves the second
    assert gathered >= budget * pairs * between
    assert gathered > 2 * exchanged


def test_tensorrt_llm_gathers_on_hopper_whatever_the_group():
    there, here = (
        runtimes.load("tensorrt-llm", chip).communication.gathers_experts for chip in ("blackwell", "hopper")
    )
    assert (there, here) == ("few", "all")
