"""What a framework's facts change in the rows of a step: casts, gathers, copies, what is run again."""

import numpy as np
import pytest

from rapid_llm import model as models
from rapid_llm.dtypes import dtype
from rapid_llm.lowering.layout import layers_per_part
from rapid_llm.nouns import FrozenDict

from .tables import gemm_flops, moved, plan, sent, table

HIDDEN, FFN, TOKENS = 4096, 14336, 2048
MODEL = "llama-3.1-8b"
IN, OUT = HIDDEN + HIDDEN + HIDDEN + FFN, HIDDEN + 2 * 1024 + HIDDEN + 2 * FFN + HIDDEN
"""Elements a token of the inputs and the outputs of the four products of a layer."""


@pytest.mark.parametrize("preset", ["fp8-mixed", "fp8-delayed-mixed", "fp8-row-mixed", "mxfp8-mixed", "nvfp4-mixed"])
def test_each_operand_is_rounded_once_and_turned_once(preset: str) -> None:
    # Inputs forward and output gradients backward; both once more along the other dimension for weight gradients.
    lowered = table(plan(), MODEL, preset=preset)
    one = dtype(preset.removesuffix("-mixed").replace("-", "_"))
    # Two inputs are what a norm wrote, which has found their scale.
    assert moved(lowered, "forward", " cast") == pytest.approx(TOKENS * (IN * one.cast - 2 * HIDDEN * one.searched))
    assert moved(lowered, "backward", " cast") == pytest.approx(TOKENS * (OUT * one.cast + (IN + OUT) * one.turned))
    assert moved(table(plan(), MODEL), "forward", " cast") == 0.0


def test_gradients_of_a_bf16_model_are_reduced_in_fp32_where_those_of_fp16_stay_as_they_are() -> None:
    half, brain = (
        sent(table(plan(dp=4), MODEL, "megatron-core@2022", preset=preset), "optimizer", op="all_reduce")
        for preset in ("fp16-mixed", "bf16-mixed")
    )
    assert brain == 2 * half > 0


@pytest.mark.parametrize("tp", [2, 8])
def test_what_is_rounded_before_it_is_gathered_is_a_shard_of_bytes(tp: int) -> None:
    plans = plan(tp=tp, sp=True)
    short, whole = (table(plans, MODEL, preset="fp8-mixed", short_gathers=names) for names in (("fp8",), ()))
    for phase in ("forward", "backward"):
        # A gather of one byte an element in place of two; what is reduced stays in 16 bits.
        assert sent(short, phase, op="all_gather", axis="tp") == pytest.approx(
            sent(whole, phase, op="all_gather", axis="tp") / 2
        )
        assert sent(short, phase, op="reduce_scatter") == pytest.approx(sent(whole, phase, op="reduce_scatter"))
    cast = dtype("fp8").cast - dtype("fp8").searched
    gathered = TOKENS * 2 * HIDDEN * (1.0 - 1.0 / tp)
    assert moved(whole, "forward", " cast") - moved(short, "forward", " cast") == pytest.approx(gathered * cast)


def test_sharded_weights_of_layers_are_gathered_in_the_short_format() -> None:
    plans = plan(dp=8, zero_stage=3)
    short, whole = (table(plans, MODEL, preset="fp8-mixed", short_gathers=names) for names in (("fp8",), ()))
    assert sent(short, "forward", axis="shard") == pytest.approx(sent(whole, "forward", axis="shard") / 2)
    embedding = len(short.units) - 2
    assert sent(short, "forward", embedding, axis="shard") == sent(whole, "forward", embedding, axis="shard")


def test_recomputation_that_stops_leaves_out_the_last_product_and_its_message() -> None:
    plans = plan(tp=4, sp=True, recompute="full")
    whole, stops = (table(plans, MODEL, recompute_stops=on) for on in (False, True))
    assert gemm_flops(whole, "recompute") == pytest.approx(gemm_flops(whole, "forward"))
    left = 2.0 * TOKENS * HIDDEN * FFN / 4
    assert gemm_flops(whole, "recompute") - gemm_flops(stops, "recompute") == pytest.approx(left)
    scatters = sent(whole, "recompute", op="reduce_scatter")
    assert sent(stops, "recompute", op="reduce_scatter") == pytest.approx(scatters / 2)


def test_inner_sequences_are_gathered_and_scattered_through_a_copy() -> None:
    lowered = table(plan(tp=8, sp=True), MODEL, gather_copies=True)
    size = TOKENS * HIDDEN * 2.0
    assert moved(lowered, "forward", "sequence copy") == pytest.approx(4 * 2.0 * size)
    assert moved(table(plan(tp=8, sp=False), MODEL, gather_copies=True), "forward", "sequence copy") == 0.0


def test_what_stays_whole_beside_asynchronous_products_keeps_its_copy() -> None:
    # Forward the scatters alone; backward the repeated gathers and the scatters of input gradients.
    lowered = table(plan(tp=8, sp=True), MODEL, runtime="torchtitan@async-tp")
    size = TOKENS * HIDDEN * 2.0
    assert moved(lowered, "forward", "sequence copy") == pytest.approx(2 * 2.0 * size)
    assert moved(lowered, "backward", "sequence copy") == pytest.approx(4 * 2.0 * size)


def test_what_was_gathered_rounded_is_read_once_more_to_be_turned() -> None:
    plans = plan(tp=8, sp=True)
    short, whole = (table(plans, MODEL, preset="fp8-mixed", short_gathers=names) for names in (("fp8",), ()))
    saved = TOKENS * 2 * HIDDEN * (1.0 - 1.0 / 8) * dtype("fp8").cast
    read = TOKENS * 4 * HIDDEN * 1.0  # inputs of qkv and up, output gradients of out and down
    assert moved(short, "backward", " cast") - moved(whole, "backward", " cast") == pytest.approx(read - saved)


def test_selective_recompute_can_run_a_share_of_an_operator_again() -> None:
    plans = plan(recompute="selective")
    half = FrozenDict({"bf16": FrozenDict({"up": 0.5, "qkv": 0.25})})
    lowered = table(plans, MODEL, selective=("norm", "up"), selective_share=half)
    products = 0.5 * 2.0 * TOKENS * HIDDEN * 2 * FFN + 0.25 * 2.0 * TOKENS * HIDDEN * (HIDDEN + 2 * 1024)
    assert gemm_flops(lowered, "recompute") == pytest.approx(products)


def test_biases_of_experts_are_added_one_by_one_where_products_are() -> None:
    plans = plan(dp=8, ep=8)
    one, each = (table(plans, "gpt-oss-120b", expert_streams=n) for n in (0, 4))
    assert moved(each, "forward", "expert_bias") == pytest.approx(moved(one, "forward", "expert_bias"))
    rows = next(rows for rows in each.kernels if "expert_bias" in rows.names)
    assert rows.count[rows.names.index("expert_bias"), 0] == 128 / 8


def test_products_of_experts_on_streams_are_as_much_work() -> None:
    plans = plan(dp=8, ep=8)
    one, four = (table(plans, "qwen3-235b-a22b", expert_streams=n) for n in (0, 4))
    for phase in ("forward", "backward"):
        assert gemm_flops(four, phase) == pytest.approx(gemm_flops(one, phase))
    groups = max(float(rows.columns["groups"].max()) for rows in four.kernels if rows.family == "gemm")
    assert groups == 4.0


def test_products_beside_their_messages_run_in_pieces_of_as_much_work() -> None:
    # Behind a gather and ahead of a scatter tp pieces forward; backward those of row-parallel products alone.
    plans = plan(tp=4, sp=True)
    whole, pieces = (table(plans, MODEL, runtime=name) for name in ("megatron-core", "megatron-core@nemo"))
    for phase in ("forward", "backward"):
        assert gemm_flops(pieces, phase) == pytest.approx(gemm_flops(whole, phase))
    rows = next(rows for rows in pieces.kernels if rows.family == "gemm")
    counts = dict(zip(rows.names, rows.count[:, 0], strict=True))
    assert {counts[name] for name in ("qkv", "out", "up", "down", "out dgrad", "down dgrad")} == {4.0}
    assert {counts[name] for name in ("qkv dgrad", "up dgrad", "qkv wgrad", "out wgrad", "lm_head")} == {1.0}


def test_gradients_of_biases_read_what_their_product_wrote() -> None:
    lowered = table(plan(), "gpt-22b")
    assert moved(lowered, "backward", "bias grad") == pytest.approx(2048 * 6144 * (3 + 1 + 4 + 1) * 2.0)
    assert moved(table(plan(), MODEL), "backward", "bias grad") == 0.0


def test_separate_kernels_move_so_many_times_the_bytes() -> None:
    plain, apart = table(plan(), MODEL), table(plan(), MODEL, decomposed=FrozenDict({"rotary": 4.0}))
    for phase in ("forward", "backward"):
        name = "rotary" if phase == "forward" else "rotary grad"
        assert moved(apart, phase, name) == pytest.approx(4.0 * moved(plain, phase, name))


def test_layers_dealt_to_chunks_stand_on_their_stages() -> None:
    # DeepSeek-V3 in 16 chunks, the last with the head: chunk c stands on stage c mod pp.
    chunks = (4,) * 15 + (1,)
    plans = plan(pp=8, vpp=2, schedule="interleaved", layers_per_stage=chunks)
    assert layers_per_part(models.load("deepseek-v3"), plans).sum(axis=0)[0].tolist() == [8.0] * 7 + [5.0]
    assert np.array(chunks).sum() == models.load("deepseek-v3").num_hidden_layers


def test_products_that_save_what_they_rounded_keep_a_byte_an_element() -> None:
    wide, short = (table(plan(), MODEL, preset="fp8-mixed", saves_rounded=on).saved[0, 0] for on in (False, True))
    # Both normed inputs and the product of the activations stay rounded alone; attention's output is kept by both.
    assert wide - short == pytest.approx(TOKENS * (HIDDEN + HIDDEN + FFN) - TOKENS * HIDDEN)


def test_the_loss_that_balances_experts_reads_every_score_once_each_way() -> None:
    # Fedus et al. 2021 (arXiv 2101.03961), equation 4: the mean score of each expert; its gradient reaches every score.
    lowered = table(plan(), "mixtral-8x7b")
    scores, means = TOKENS * 8 * 4.0, 8 * 4.0
    assert moved(lowered, "forward", "balance_loss") == scores + means
    assert moved(lowered, "backward", "balance_loss grad") >= scores
