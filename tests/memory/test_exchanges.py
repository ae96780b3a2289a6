"""Buffers of exchanges among experts: sent and received tokens stand beside each other."""

import pytest

from rapid_llm.memory import CATEGORIES
from rapid_llm.predict.fitting import footprint
from rapid_llm.scenario import from_mapping

WORKSPACE = CATEGORIES.index("workspace")
TOKENS, HIDDEN, CHOSEN, BF16 = 4096, 4096, 2, 2


def lowered(kind, **plan):
    work = {"kind": "training", "global_batch_size": 8, "sequence_length": TOKENS, "recompute": "none"}
    if kind == "inference":
        work = {"kind": kind, "batch_size": 8, "prompt_tokens": 64, "output_tokens": 64}
    mapping = {"model": "mixtral-8x7b", "system": "dgx-h100", "accelerators": 8, "parallelism": plan, "workload": work}
    return footprint(from_mapping(mapping)).lowered


def test_two_copies_of_the_routed_tokens_beside_the_activations():
    """4,096 tokens to 2 experts of 8, 4,096 wide, 2 bytes: 64 MiB sent and as many received."""
    exchanged = 2 * TOKENS * CHOSEN * HIDDEN * BF16
    assert exchanged == 2 * 64 * 2**20
    assert lowered("training", ep=8).working[0, 0] == exchanged


def test_tensor_parallelism_cuts_what_each_rank_sends():
    """With sequence parallelism each of 4 ranks dispatches its quarter of the tokens."""
    assert lowered("training", tp=4, sp=True, ep=8).working[0, 0] == 2 * TOKENS * CHOSEN * HIDDEN * BF16 / 4


def test_experts_that_every_rank_holds_exchange_nothing():
    assert lowered("training").working[0, 0] == 0.0


def test_a_decode_step_holds_what_it_exchanges():
    """One token of each request to 2 experts: 16 KiB sent and 16 KiB received a request."""
    assert lowered("inference", ep=8).working[0, 0] >= 2 * CHOSEN * HIDDEN * BF16


def test_account_holds_the_buffers_in_its_workspace():
    def workspace(ep):
        work = {"kind": "training", "global_batch_size": 8, "sequence_length": TOKENS, "recompute": "none"}
        plan = {"ep": ep, "pp": 2, "dp": 4}
        mapping = {"model": "mixtral-8x7b", "system": "dgx-h100", "accelerators": 8, "workload": work}
        return footprint(from_mapping({**mapping, "parallelism": plan})).account.by_category[WORKSPACE, 0, 0]

    assert workspace(4) - workspace(1) == pytest.approx(2 * TOKENS * CHOSEN * HIDDEN * BF16)
