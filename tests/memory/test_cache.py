"""What engines cache, and how much of it they hold."""

from typing import Any

import numpy as np
import pytest

from rapid_llm.lowering.cache import cache_bytes
from rapid_llm.memory import cache_budget, cache_room
from rapid_llm.model import load
from rapid_llm.predict import plans_of
from rapid_llm.predict.fitting import footprint, memory_of

from .scenarios import GIB, inference


def sequence(name: str, length: int, *, tp: int = 1, block: int = 1) -> float:
    """Bytes of one sequence over all layers of one rank, 16-bit."""
    model = load(name)
    plans = plans_of(inference(name, plan={"tp": tp}, accelerators=tp))
    counts = np.bincount(model.pattern, minlength=len(model.blocks))
    return float(counts @ cache_bytes(model, plans.tp, np.array([float(length)]), 2.0, block)[: len(model.blocks), 0])


def test_heads_are_divided_and_then_repeated() -> None:
    # Llama-3.1-8B: 131,072 bytes a token; 8 key-value heads
    assert sequence("llama-3.1-8b", 1) == 131072
    assert sequence("llama-3.1-8b", 1, tp=8) == 131072 / 8
    assert sequence("llama-3.1-8b", 1, tp=16) == 131072 / 8


def test_a_latent_is_not_divided() -> None:
    assert sequence("deepseek-v3", 10, tp=8) == sequence("deepseek-v3", 10) == 61 * 576 * 2 * 10


def test_a_projection_that_keys_and_values_share_leaves_both() -> None:
    # Gemma 4 31B: ten global layers of four heads of 512; keys alone are scaled and rotated after the projection
    grown = sequence("gemma-4-31b", 8192) - sequence("gemma-4-31b", 4096)
    assert grown == 4096 * 10 * 4 * 512 * 2 * 2


def test_sequences_hold_whole_blocks() -> None:
    assert sequence("llama-3.1-8b", 1, block=16) == 16 * 131072
    assert sequence("llama-3.1-8b", 17, block=16) == 32 * 131072


def test_windows_end_the_growth() -> None:
    short, long, longer = (sequence("gpt-oss-20b", n, block=16) for n in (64, 4096, 8192))
    full = load("gpt-oss-20b")
    layers = full.num_hidden_layers // 2
    each = 8 * 64 * 2 * 2  # key-value heads, width, keys and values, 16 bit
    assert short == 2 * layers * 64 * each
    assert long == layers * (4096 + 128 + 16) * each
    assert longer - long == layers * 4096 * each


def test_blocks_of_the_rtx_4090_run() -> None:
    """LLMServingSim's recorded vLLM 0.19 run: Llama-3.1-8B, 2,588 blocks of 16 tokens (its changelog)."""
    cache = memory_of(inference(runtime="vllm", system="rtx-4090", accelerators=1)).cache
    assert cache is not None
    assert cache.blocks == pytest.approx(2588, rel=0.02)
    assert cache.block_bytes == 2 * 2**20
    assert sum(cache.terms.values()) == pytest.approx(cache.room_bytes, abs=8)
    assert set(cache.terms) == {"capacity", "left free", "weights", "workspace", "framework"}


def budget(runtime: Any, **given: Any) -> tuple[dict[str, float], float, float]:
    """Parts of the fullest rank, the room for its cache, and the capacity (GiB)."""
    scenario = inference("llama-3.1-70b", runtime=runtime, plan={"tp": 4}, accelerators=4, **given)
    found = footprint(scenario)
    use = memory_of(scenario)
    parts = {name: size / GIB for name, size in use.by_category.items()}
    return parts, float(cache_room(found.account)[-1, 0]) / GIB, found.account.capacity / GIB


def test_vllm_takes_a_share_of_the_total() -> None:
    parts, room, capacity = budget("vllm")
    engine = parts["weights"] + parts["workspace"] + parts["communication"] + 0.2  # libraries
    assert room == pytest.approx(0.9 * capacity - engine, abs=0.01)


def test_tensorrt_llm_takes_a_share_of_what_is_free() -> None:
    parts, room, capacity = budget({"base": "tensorrt-llm", "allocator": {"utilisation": 0.9}})
    rest = sum(parts.values()) - parts["kv_cache"]
    assert room == pytest.approx(0.9 * (capacity - rest), abs=0.01)


def test_sglang_shares_between_weights_and_cache() -> None:
    parts, room, capacity = budget({"base": "sglang", "allocator": {"utilisation": 0.88, "context": "0.8 GiB"}})
    assert room == pytest.approx(0.88 * (capacity - 0.8 - parts["communication"]) - parts["weights"], abs=0.01)


def test_sequences_fill_the_room() -> None:
    scenario = inference(work={"prompt_tokens": 1000, "output_tokens": 24})
    found = footprint(scenario)
    held = cache_budget(found.lowered, scenario.model, scenario.runtime, found.account, length=1024)
    assert held.sequences == held.tokens // 1024
    ragged = cache_budget(found.lowered, scenario.model, scenario.runtime, found.account, length=1025)
    assert ragged.sequences == held.blocks // 65


def test_experts_may_be_kept_in_a_format_of_their_own() -> None:
    """gpt-oss-20b as published: routed experts in mxfp4 (4.25 bit a weight), everything else in bf16."""
    model = load("gpt-oss-20b")
    whole = {name: memory_of(inference("gpt-oss-20b", precision=name)).by_category["weights"] for name in FORMATS}
    experts = model.num_hidden_layers * 32 * 3 * 2880 * 2880
    biases = model.num_hidden_layers * 32 * (2 * 2880 + 2880)
    assert whole["bf16"] - whole["mxfp4-experts"] == pytest.approx((experts + biases) * (2 - 4.25 / 8), rel=1e-6)
    assert whole["mxfp4"] < whole["mxfp4-experts"]


FORMATS = ("bf16", "mxfp4", "mxfp4-experts")


def test_recurrent_states_stand_beside_the_blocks() -> None:
    """Blocks hold what grows; a model without such layers has none, and its requests are counted by their states."""
    hybrid = memory_of(inference("nemotron-h-56b", plan={"tp": 8}, accelerators=8)).cache
    assert hybrid is not None
    assert hybrid.sequences * hybrid.length <= hybrid.tokens
    pure = memory_of(inference("falcon-mamba-7b", accelerators=1)).cache
    assert pure is not None
    assert (pure.blocks, pure.block_bytes) == (0, 0)
    assert pure.sequences > 1000


@pytest.mark.parametrize("name", ["deepseek-v3.2", "glm-5", "deepseek-r1"])
def test_latents_that_are_cached_are_no_workspace(name: str) -> None:
    """An indexer scores every cached token in a byte for each of the budget's; latents are read where they lie."""

    def workspace(prompt: int) -> float:
        scenario = inference(name, system="gb300-nvl72", plan={"tp": 8}, accelerators=8, work={"prompt_tokens": prompt})
        return float(memory_of(scenario).by_category["workspace"])

    assert 0 <= workspace(65536) - workspace(4096) <= 8192 * (65536 - 4096)
