"""Bytes that one rank sends, against the published volumes of each parallel axis."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rapid_llm import model as models

from .tables import plan, sent, table

HIDDEN, HEADS, SEQUENCE, BATCH = 6144, 64, 2048, 4  # GPT-22B, Korthikanti et al. 2022, table 3
ACTIVATION = SEQUENCE * BATCH * HIDDEN * 2.0
BF16, FP32 = 2.0, 4.0


@pytest.mark.parametrize("tp", [2, 4, 8])
def test_tensor_parallel_all_reduces_twice_each_way(tp: int) -> None:
    # Shoeybi et al. 2019, section 3: one all-reduce behind each of attention and MLP, and its conjugate backward.
    lowered = table(plan(BATCH, tp=tp, sp=False))
    once = 2.0 * ACTIVATION * (tp - 1) / tp
    assert sent(lowered, "forward", axis="tp") == pytest.approx(2 * once)
    assert sent(lowered, "backward", axis="tp") == pytest.approx(2 * once)


@pytest.mark.parametrize("tp", [2, 8])
def test_sequence_parallel_moves_the_same_and_one_gather_a_pair_more_backward(tp: int) -> None:
    # Korthikanti et al. 2022, section 4.2.2.
    plain, sharded = table(plan(BATCH, tp=tp, sp=False)), table(plan(BATCH, tp=tp, sp=True))
    assert sent(sharded, "forward", axis="tp") == pytest.approx(sent(plain, "forward", axis="tp"))
    extra = 2 * ACTIVATION * (tp - 1) / tp
    assert sent(sharded, "backward", axis="tp") == pytest.approx(sent(plain, "backward", axis="tp") + extra)


def test_recompute_repeats_the_forward_messages() -> None:
    lowered = table(plan(BATCH, recompute="full", tp=8, sp=True))
    assert sent(lowered, "recompute", axis="tp") == pytest.approx(sent(lowered, "forward", axis="tp"))


@pytest.mark.parametrize("dp", [2, 8, 64])
@pytest.mark.parametrize(("stage", "gradient"), [(0, 2.0), (1, 1.0), (2, 1.0), (3, 1.0)])
def test_gradients_and_weights_of_the_zero_stages(stage: int, gradient: float, dp: int) -> None:
    # Rajbhandari et al. 2020, section 7: 2 Psi up to stage 2, 3 Psi in stage 3; gradients here in fp32.
    lowered = table(plan(dp=dp, zero_stage=stage))
    psi = float(lowered.dense[0, 0])
    share = (dp - 1) / dp
    phase = "optimizer" if stage < 2 else "backward"
    reduced = sum(sent(lowered, phase, op=op) for op in ("all_reduce", "reduce_scatter"))
    assert reduced == pytest.approx(gradient * psi * FP32 * share)
    gathers = {name: sent(lowered, name, op="all_gather") for name in ("forward", "backward", "optimizer")}
    once = psi * BF16 * share
    expected = {0: (0, 0, 0), 1: (0, 0, once), 2: (0, 0, once), 3: (once, once, 0)}[stage]
    assert tuple(gathers.values()) == pytest.approx(expected)


def test_hybrid_sharding_reduces_shards_over_replicas() -> None:
    lowered = table(plan(dp=64, dp_shard=8, zero_stage=3))
    psi = float(lowered.dense[0, 0])
    assert sent(lowered, "forward", axis="shard") == pytest.approx(psi * BF16 * 7 / 8)
    assert sent(lowered, "backward", axis="replicas") == pytest.approx(2 * psi * FP32 / 8 * 7 / 8)


@pytest.mark.parametrize("cp", [2, 4, 8])
def test_context_parallel_passes_keys_and_values_round(cp: int) -> None:
    # Ring attention (Liu et al. 2023): (cp - 1) times the rank's own keys and values forward, twice that backward.
    lowered = table(plan(cp=cp), model="llama-3.1-8b", sequence=32768)
    own = 32768 / cp * 8 * 128 * 2 * BF16
    assert sent(lowered, "forward", axis="cp") == pytest.approx((cp - 1) * own)
    assert sent(lowered, "backward", axis="cp") == pytest.approx(2 * (cp - 1) * own)


@pytest.mark.parametrize("ulysses", [2, 4, 8])
def test_ulysses_exchanges_heads_for_tokens_and_passes_the_rest_round(ulysses: int) -> None:
    # Jacobs et al. 2023, section 3.2: queries, keys, values and output, each (n - 1)/n of a rank's share, both ways.
    lowered = table(plan(cp=8, ulysses=ulysses), model="llama-3.1-8b", sequence=32768)
    tokens = 32768 / 8
    moved = tokens * (32 + 8 + 8 + 32) * 128 * BF16 * (ulysses - 1) / ulysses
    assert sent(lowered, "forward", axis="ulysses") == pytest.approx(moved)
    assert sent(lowered, "backward", axis="ulysses") == pytest.approx(moved)
    ring, own = 8 // ulysses, tokens * 8 * 128 * 2 * BF16
    assert sent(lowered, "forward", axis="cp") == pytest.approx((ring - 1) * own)


def test_keys_and_values_that_are_gathered_are_as_many_bytes_as_those_that_go_round() -> None:
    # Llama 3 (arXiv 2407.21783), section 3.3.2: gathered before attention, their gradients reduced behind it.
    gathered = table(plan(cp=8, exchange="all-gather"), model="llama-3.1-8b", sequence=32768)
    own = 32768 / 8 * 8 * 128 * 2 * BF16
    assert sent(gathered, "forward", axis="keys") == pytest.approx(7 * own)
    assert sent(gathered, "backward", axis="keys") == pytest.approx(2 * 7 * own)
    assert sent(gathered, "forward", axis="cp") == 0.0


@pytest.mark.parametrize("ulysses", [1, 2, 8])
def test_ranks_of_a_sequence_share_its_pairs_equally(ulysses: int) -> None:
    def pairs(**degrees: int) -> float:
        rows = next(
            r for r in table(plan(**degrees), "llama-3.1-8b", sequence=32768).kernels if r.family == "attention"
        )
        c = {name: float(column[0, 0]) for name, column in rows.columns.items()}
        return c["batch"] * c["heads"] * c["new"] * (c["past"] + c["new"] / 2)

    assert pairs(cp=8, ulysses=ulysses) == pytest.approx(pairs() / 8)


@pytest.mark.parametrize("ep", [2, 8])
def test_experts_exchange_each_token_k_times(ep: int) -> None:
    # GShard (Lepikhin et al. 2020): dispatch and combine of T k rows, forward and backward.
    lowered = table(plan(dp=8, ep=ep), model="mixtral-8x7b", sequence=4096)
    once = 4096 * 2 * 4096 * BF16 * (ep - 1) / ep
    assert sent(lowered, "forward", axis="ep") == pytest.approx(2 * once)
    assert sent(lowered, "backward", axis="ep") == pytest.approx(2 * once)


def test_experts_reduce_over_their_own_replicas() -> None:
    lowered = table(plan(dp=16, ep=8, zero_stage=0), model="mixtral-8x7b", sequence=4096)
    expert = 3 * 4096 * 14336  # one of eight experts a rank
    assert sent(lowered, "optimizer", axis="edp") == pytest.approx(2 * expert * FP32 * (2 - 1) / 2)
    dense = float(lowered.dense[0, 0])
    assert sent(lowered, "optimizer", axis="data") == pytest.approx(2 * dense * FP32 * 15 / 16)


def test_experts_in_sequence_shards_need_no_tensor_parallel_gather() -> None:
    lowered = table(plan(tp=2, dp=4, ep=4, sp=True), model="mixtral-8x7b", sequence=4096)
    activation = 4096 * 4096 * BF16
    assert sent(lowered, "forward", axis="tp") == pytest.approx(2 * activation / 2)  # attention's pair alone


def test_split_experts_gather_what_lands_on_them() -> None:
    lowered = table(plan(tp=2, dp=4, ep=4, etp=2, sp=True), model="mixtral-8x7b", sequence=4096)
    landed = 4096 * 2 * 4096 * BF16  # T k rows of the group's ranks, spread over ep, whole on both halves
    assert sent(lowered, "forward", axis="etp") == pytest.approx(2 * landed / 2)


def test_tied_embeddings_add_up_between_the_ends() -> None:
    lowered = table(plan(pp=4))
    head = len(lowered.units) - 1
    rows = float(np.ceil(models.load("gpt-22b").vocab_size / 128) * 128)
    assert sent(lowered, "optimizer", head, axis="ends") == pytest.approx(2 * rows * HIDDEN * FP32 / 2)
    assert sent(table(plan(pp=1)), "optimizer", head, axis="ends") == 0.0


@given(st.sampled_from([1, 2, 4]), st.sampled_from(["none", "selective", "full"]))
def test_one_rank_sends_nothing(micro_batch: int, recompute: str) -> None:
    lowered = table(plan(micro_batch, recompute=recompute))
    for phase in ("forward", "recompute", "backward", "optimizer"):
        assert all(sent(lowered, phase, unit) == 0.0 for unit in range(len(lowered.units)))
