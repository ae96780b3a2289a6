"""Selective recomputation by modules: what runs again, what is thrown away, and what experts move beside it."""

import pytest

from rapid_llm import model as models
from rapid_llm.lowering.modules import MODULES, present
from rapid_llm.nouns import FrozenDict
from rapid_llm.workload import RECOMPUTED, Recompute, Training

from .tables import gemm_flops, moved, plan, sent, table

DENSE, LATENT, MIXED, CLAMPED = "llama-3.1-8b", "deepseek-v3", "qwen3-235b-a22b", "gpt-oss-120b"
TOKENS = 2048


def again(model: str, *modules: str, **degrees: int):
    work = Training(
        sequence_length=TOKENS,
        global_batch_size=1,
        micro_batch_size=1,
        recompute=Recompute(mode="selective", modules=modules),
    )
    return table(plan(recompute="selective", **degrees), model, work=work)


def test_every_module_that_can_be_named_is_known() -> None:
    assert tuple(MODULES) == RECOMPUTED
    assert present(models.load(DENSE)) == ("core_attn", "layernorm", "mlp")
    assert present(models.load(LATENT)) == RECOMPUTED
    assert present(models.load(MIXED)) == ("core_attn", "layernorm", "moe_act", "moe")


def test_products_that_run_again_are_those_of_the_module() -> None:
    up, down = 2 * 4096 * 14336, 14336 * 4096
    assert gemm_flops(again(DENSE, "mlp"), "recompute") == pytest.approx(2.0 * TOKENS * (up + down))
    queries, keys = 1536 * 128 * 192, 512 * 128 * 256
    assert gemm_flops(again(LATENT, "mla_up_proj"), "recompute", 1) == pytest.approx(2.0 * TOKENS * (queries + keys))
    assert gemm_flops(again(DENSE, "layernorm"), "recompute") == 0.0


def test_experts_that_run_again_dispatch_again() -> None:
    lowered = again(MIXED, "moe", ep=8, dp=8)
    assert sent(lowered, "recompute", axis="ep") == pytest.approx(sent(lowered, "forward", axis="ep"))
    assert sent(again(MIXED, "moe_act", ep=8, dp=8), "recompute", axis="ep") == 0.0


@pytest.mark.parametrize(
    ("model", "module", "unit", "thrown"),
    [
        (DENSE, "layernorm", 0, 2 * 4096),
        (DENSE, "mlp", 0, 3 * 14336),
        (MIXED, "moe_act", 0, 8 * 1536),
        (LATENT, "mla_up_proj", 1, 128 * (192 + 192 + 128) + 1536 + 512),
    ],
)
def test_what_a_module_throws_away(model: str, module: str, unit: int, thrown: int) -> None:
    # Elements a token of 16 bits: both norms; gate, up and their product; that of the experts'
    # activations; queries, keys and values, and the normed latents.
    kept = table(plan(), model, sequence=TOKENS).saved[unit, 0]
    assert kept - again(model, module).saved[unit, 0] == pytest.approx(2.0 * TOKENS * thrown)


def test_plain_exchanges_leave_rows_to_be_sorted_by_expert() -> None:
    rows = TOKENS * 8 * 4096 * 2.0
    apart, alone = (table(plan(ep=ep, dp=8), MIXED, sequence=TOKENS) for ep in (8, 1))
    for phase in ("forward", "backward"):
        end = "sort" if phase == "forward" else "sort grad"  # of what was sorted, and of what is sorted back
        assert moved(apart, phase, end) == pytest.approx(4 * rows)
        assert moved(alone, phase, end) == 0.0
    library = table(plan(ep=8, dp=8), MIXED, "megatron-core@nemo-deepep", TOKENS)
    assert moved(library, "forward", "sort") == 0.0


def test_clamps_of_gated_experts_move_both_halves() -> None:
    halves = TOKENS * 4 * 2 * 2880 * 2.0
    plain, twice = (
        table(plan(), CLAMPED, sequence=TOKENS, decomposed=FrozenDict({"expert_clamp": n})) for n in (1.0, 2.0)
    )
    assert moved(plain, "forward", "expert_clamp") == pytest.approx(2 * halves)
    assert moved(twice, "forward", "expert_clamp") == pytest.approx(4 * halves)
    assert moved(table(plan(), MIXED), "forward", "expert_clamp") == 0.0


def test_keys_of_latent_attention_are_joined_of_both_parts() -> None:
    read, written = 128 * (128 + 128), 128 * (128 + 64 + 128)
    assert moved(table(plan(), LATENT, sequence=TOKENS), "forward", "kv_join") == 2.0 * TOKENS * (read + written)


def test_results_of_experts_stay_where_their_weights_come_last() -> None:
    last, early = (table(plan(), MIXED, sequence=TOKENS, weighs_early=on).saved[0, 0] for on in (False, True))
    assert last - early == pytest.approx(TOKENS * 8 * 4096 * 2.0)
