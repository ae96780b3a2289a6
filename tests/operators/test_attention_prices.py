"""Attention prices: pairs, windows, split-KV decode, latent attention."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rapid_llm import hardware, operators
from rapid_llm.nouns import replaced
from rapid_llm.operators import query_key_pairs
from rapid_llm.operators.rates import rates

BASE = {
    "batch": 4, "new": 2048, "past": 0, "heads": 32, "kv_heads": 8, "head_dim": 128, "v_head_dim": 128, "window": 0,
    "causal": 1, "backward": 0, "kv_bytes": 2, "shared_kv": 0,
}  # fmt: skip
LENGTHS = st.integers(1, 20000)


def price(accelerator="h100-sxm", kernel="fa3", dtype="bf16", **changes):
    device = hardware.accelerator(accelerator)
    return operators.price("attention", BASE | changes, dtype=dtype, kernel=kernel, accelerator=device, replayed=False)


def pairs(new, past=0, window=0, causal=1):
    return float(query_key_pairs(*(np.array([float(v)]) for v in (new, past, window, causal)))[0])


@pytest.mark.parametrize(
    ("changes", "microseconds"),
    [  # aiconfigurator tables, H100, vLLM 0.24 (FlashAttention-3), bf16
        ({"batch": 2, "new": 8192, "kv_heads": 32}, 1999.8),
        ({"batch": 4, "new": 4096, "kv_heads": 4}, 995.1),
        ({"batch": 8, "new": 8192, "kv_heads": 2}, 7566.7),
        ({"batch": 4, "new": 1, "past": 8191}, 64.4),
        ({"batch": 256, "new": 1, "past": 1023}, 364.4),
        ({"batch": 32, "new": 1, "past": 8191, "kv_heads": 1}, 59.6),
    ],
)
def test_measured_points(changes, microseconds):
    assert price(**changes).seconds[0] * 1e6 == pytest.approx(microseconds, rel=0.21)


@pytest.mark.parametrize(
    ("accelerator", "kernel", "changes", "microseconds"),
    [  # aiconfigurator tables: groups are split and regrouped, those that no matrix kernel takes run on vector units
        ("a100-sxm", "vllm-fa2", {"batch": 2, "past": 131071, "heads": 8, "kv_heads": 1}, 126.9),
        ("a100-sxm", "vllm-fa2", {"batch": 2, "past": 15, "heads": 32}, 18.8),
        ("h100-sxm", "trtllm-fmha", {"batch": 64, "past": 2047, "heads": 64, "kv_heads": 1}, 648.2),
    ],
)
def test_measured_decode_of_engines(accelerator, kernel, changes, microseconds):
    row = {"new": 1, "kv_heads": 8} | changes
    assert price(accelerator, kernel, **row).seconds[0] * 1e6 == pytest.approx(microseconds, rel=0.21)


def test_a_kernel_that_splits_groups_alone_leaves_single_heads_to_one_unit_each():
    row = {"new": 1, "past": 65535, "batch": 1, "kv_heads": 8, "accelerator": "a100-sxm", "kernel": "vllm-fa2"}
    assert price(heads=8, **row).seconds[0] > 3 * price(heads=16, **row).seconds[0]


@pytest.mark.parametrize(
    ("kernel", "kv_heads", "filled"),  # vLLM writes a token by a block of a thread a column, up to 512
    [("vllm-fa3", 8, 1.0), ("vllm-fa3", 2, 0.5), ("trtllm-gen", 1, 0.25), ("sglang-fa3", 1, 1.0)],
)
def test_new_tokens_are_written_into_the_cache_once(kernel, kv_heads, filled):
    chosen = operators.kernel(kernel)
    both = (chosen, replaced(chosen, append="none"))
    written, bare = (price(kernel=one, kv_heads=kv_heads).seconds[0] for one in both)
    device = hardware.accelerator("h100-sxm")
    tokens, c = 4 * 2048, chosen.on(device.architecture, device.clocks.boost)
    moved = tokens * kv_heads * 256 * 4 / (c.bandwidth * device.memory.hbm.bandwidth * device.sustained.hbm)
    blocks = filled * tokens * c.token / device.compute_units
    assert written - bare == pytest.approx(moved + blocks, rel=1e-9)


def test_query_heads_share_only_where_that_fills_the_accelerator():
    """TensorRT-LLM (kEnableMinBlockFactor 4, kMinHistoryTokensPerBlock 128): 2 KV heads x 16 blocks x 4 are below 132
    units, x 17 above; an 8-bit cache on Hopper has a kernel of its own, which always shares."""
    rows = [{"batch": 1, "new": 1, "past": past, "heads": 16, "kv_heads": 2} for past in (2100, 2200)]
    alone = operators.kernel("trtllm-decode-2023")
    for row, shares in zip(rows, (False, True), strict=True):
        assert (price(kernel="trtllm-decode", **row).seconds == price(kernel=alone, **row).seconds)[0] != shares
        assert price(kernel="trtllm-decode-fp8", **row).seconds[0] < price(kernel=alone, **row).seconds[0]


def test_blocks_of_known_number_run_in_whole_rounds():
    """Three blocks a unit: 2 x 132 and 3 x 132 items differ by what they read, one more takes a round longer."""
    few, full, more = (
        price(kernel="trtllm-decode-fp8", batch=items, new=1, past=30, heads=8, kv_heads=1, kv_bytes=1).seconds[0]
        for items in (264, 396, 397)
    )
    assert more - full > full - few


def test_cdna_multiplies_4_or_16_query_heads_of_a_kv_head():
    """mfma4 up to 4 query heads, mfma16 beyond (vLLM csrc/rocm/attention.cu)."""

    def seconds(heads):
        return float(price("mi300x", "flash-decode", batch=64, new=1, past=4095, heads=8 * heads).seconds[0])

    assert seconds(2) == pytest.approx(seconds(4), rel=0.02)
    assert seconds(8) == pytest.approx(seconds(16), rel=0.02)
    assert seconds(8) > 1.3 * seconds(4)


def test_blocks_wait_beside_each_other_in_shared_memory_whatever_the_clock():
    chosen = operators.kernel("flash-decode")
    ada, ampere = (rates(hardware.accelerator(name), "bf16") for name in ("l40s", "a100-sxm"))
    assert (ada.beside(chosen.shared), ampere.beside(chosen.shared), ampere.beside(0)) == (1.0, 2.0, 1.0)
    slow, fast = chosen.on("ada", 2.0e9), chosen.on("ada", 2.5e9)
    assert slow.item == fast.item
    assert slow.setup > fast.setup


def test_a_kernel_that_only_masks_a_window_takes_the_time_of_none():
    chosen = replace(operators.kernel("fa3"), windowed=False)
    assert price(kernel=chosen, window=256).seconds[0] == price(kernel="fa3").seconds[0]
    assert price(kernel="fa3", window=256).seconds[0] < 0.6 * price(kernel="fa3").seconds[0]


def test_an_8_bit_cache_leaves_the_k_and_v_of_latent_prefill_at_16_bits():
    latent = {"heads": 16, "kv_heads": 16, "head_dim": 192, "v_head_dim": 128, "accelerator": "a100-sxm"}
    sixteen, eight = (price(kernel="mla", kv_bytes=width, **latent) for width in (2, 1))
    assert eight.hbm_bytes[0] == sixteen.hbm_bytes[0]
    assert eight.seconds[0] == pytest.approx(sixteen.seconds[0], rel=0.05)


def test_a_long_past_is_not_split_by_a_kernel_that_cannot():
    row = {"batch": 1, "new": 16, "past": 16384, "accelerator": "a100-sxm"}
    split = replace(operators.kernel("vllm-fa2"), split_kv=True)
    assert price(kernel="vllm-fa2", **row).seconds[0] > 2 * price(kernel=split, **row).seconds[0]


@given(st.integers(1, 3000), st.integers(0, 3000), st.integers(0, 4000))
def test_pairs_are_the_sum_over_queries(new, past, window):
    span = window or 10**9
    assert pairs(new, past, window) == sum(min(past + i, span) for i in range(1, new + 1))


@given(LENGTHS, LENGTHS)
def test_prefix_and_suffix_make_the_whole(first, second):
    assert pairs(first) + pairs(second, past=first) == pairs(first + second)


@given(LENGTHS)
def test_causal_pairs_lie_between_half_and_all(new):
    assert new * new / 2 <= pairs(new) <= new * new == pairs(new, causal=0)


@given(LENGTHS, st.integers(0, 5000))
def test_a_window_as_long_as_the_context_changes_nothing(new, past):
    full, windowed = price(new=new, past=past), price(new=new, past=past, window=new + past)
    assert windowed.seconds[0] == pytest.approx(full.seconds[0], rel=1e-12)


@given(LENGTHS, st.integers(0, 5000), st.sampled_from(["fa2", "fa3", "trtllm-fmha"]))
def test_never_below_the_datasheet_roofline(new, past, kernel):
    device = hardware.accelerator("h100-sxm")
    columns = BASE | {"new": new, "past": past}
    floor = operators.roofline("attention", columns, dtype="bf16", accelerator=device)
    assert price(new=new, past=past, kernel=kernel).seconds[0] >= floor.seconds[0]


@given(st.integers(1, 60000), st.integers(1, 512), st.sampled_from(["past", "batch"]))
def test_decode_does_not_get_faster_with_more_work(past, batch, side):
    row = {"new": 1, "past": past, "batch": batch}
    more = row | {side: 2 * row[side] + 512}
    assert price(**more).seconds[0] >= 0.97 * price(**row).seconds[0]


@given(st.integers(1, 8000), st.sampled_from(["new", "batch", "heads"]))
def test_prefill_does_not_get_faster_with_more_work(new, side):
    row = {"new": new, "batch": 4, "heads": 32}
    assert price(**row | {side: 2 * row[side] + 64}).seconds[0] >= price(**row).seconds[0]


def test_splitting_a_batch_never_speeds_the_sum():
    assert 2 * price(batch=4).seconds[0] >= price(batch=8).seconds[0]


def test_split_kv_keeps_a_single_sequence_off_one_unit():
    one = price(new=1, past=32767, batch=1, kv_heads=1, heads=8)
    streamed = one.hbm_bytes[0] / hardware.accelerator("h100-sxm").memory.hbm.bandwidth
    assert one.seconds[0] < 30 * streamed


def test_backward_costs_two_and_a_half_times_the_arithmetic():
    forward, backward = price(), price(backward=1)
    assert backward.flops[0] == 2.5 * forward.flops[0]
    assert backward.seconds[0] > 2.5 * forward.seconds[0] * 0.9


def test_decode_and_prefill_rows_keep_their_order():
    mixed = price(new=np.array([1.0, 2048.0, 1.0]), past=np.array([4095.0, 0.0, 99.0]))
    apart = [price(new=1, past=4095), price(), price(new=1, past=99)]
    np.testing.assert_allclose(mixed.seconds, [p.seconds[0] for p in apart], rtol=1e-12)
    assert mixed.bound.dtype == np.int8


def test_absorbed_latent_decode_reads_the_latent_once():
    latent = {"new": 1, "past": 4095, "heads": 128, "kv_heads": 1, "head_dim": 576, "v_head_dim": 512, "shared_kv": 1}
    priced = price(**latent, batch=128)  # enough items that nothing is split
    assert priced.hbm_bytes[0] == 128 * (4096 * 576 * 2 + 2 * 128 * (576 + 512))
    assert priced.flops[0] == 2 * 128 * 128 * (576 + 512) * 4096


def test_a_power_limit_that_slows_products_down_leaves_attention_more():
    limited, free = (rates(hardware.accelerator(name), "bf16") for name in ("l40s", "a100-sxm"))
    assert 1.2 * limited.peak < limited.attention <= hardware.accelerator("l40s").peak["bf16"]
    assert free.attention == free.peak
    clocked = rates(hardware.accelerator("rtx-4090"), "bf16")  # beyond what is rated: products and attention alike
    assert clocked.attention == clocked.peak


def test_a_power_limit_slows_exponentials_as_the_products_of_attention_and_no_decode():
    limited = hardware.accelerator("l40s")
    full = replaced(limited, sustained=replaced(limited.sustained, matrix=1.0))
    slow, fast = rates(limited, "bf16"), rates(full, "bf16")
    assert slow.exponentials / fast.exponentials == pytest.approx(slow.attention / fast.attention)
    assert slow.exponentials < fast.exponentials
    assert slow.multiplies(16, warps=True) == fast.multiplies(16, warps=True)


def test_a_pipe_twice_as_fast_leaves_what_goes_on_beside_products():
    r = rates(hardware.accelerator("h100-sxm"), "bf16")
    narrow, wide = r.reached(0.6), r.reached(0.6, pipe=r.pipe(8))
    assert 1.0 / wide - 1.0 == pytest.approx(2.0 * (1.0 / narrow - 1.0), rel=1e-3)
    assert rates(hardware.accelerator("h100-sxm"), "fp8").pipe(16) == pytest.approx(r.pipe(8))
    for name in ("hopper", "blackwell"):  # so that one share holds for both, within what other things differ
        sixteen, eight = (operators.kernel(kernel).on(name).rate for kernel in ("trtllm-fmha", "trtllm-fmha-fp8"))
        assert eight == pytest.approx(sixteen, rel=0.1)


def test_query_heads_alone_go_at_the_pace_of_issued_instructions():
    """A100 has half the lanes of H100 and issues as much a cycle: one share holds for both."""
    ampere, hopper = (rates(hardware.accelerator(name), "bf16") for name in ("a100-sxm", "h100-sxm"))
    cycles = [r.issued / (r.units * r.clock) for r in (ampere, hopper)]
    assert cycles[0] == pytest.approx(cycles[1], rel=0.1)
    shares = [operators.kernel("trtllm-decode").on(name).lone_rate for name in ("ampere", "ada", "hopper", "blackwell")]
    assert max(shares) < 1.3 * min(shares)


def test_heads_with_sinks_go_to_the_kernel_that_has_a_place_for_them():
    columns = {name: np.full(2, float(value)) for name, value in BASE.items()}
    chip = hardware.accelerator("a100-sxm")
    kinds = np.array([0, 1])
    both = operators.price("attention", columns, kind=kinds, dtype="bf16", kernel="vllm-fa2", accelerator=chip)
    plain = operators.price("attention", columns, dtype="bf16", kernel="vllm-fa2", accelerator=chip)
    other = operators.price("attention", columns, dtype="bf16", kernel="vllm-triton-attention", accelerator=chip)
    assert list(both.seconds) == [plain.seconds[0], other.seconds[1]]
    assert other.seconds[0] > 1.2 * plain.seconds[0]
    hopper = hardware.accelerator("h100-sxm")  # FlashAttention-3 has a place for them
    fa3 = operators.price("attention", columns, kind=kinds, dtype="bf16", kernel="vllm-fa3", accelerator=hopper)
    assert fa3.seconds[0] == fa3.seconds[1]


def test_engines_split_a_cache_into_a_fixed_number_of_parts_at_most():
    long = {"new": 1, "past": 65535, "batch": 1, "heads": 4, "kv_heads": 1}
    assert price("l40s", "sglang-triton-decode", **long).seconds > 3 * price("l40s", "flashinfer", **long).seconds


def latent(kernel, accelerator="b200-sxm", **changes):
    shape = {"batch": 128, "new": 1, "past": 32767, "kv_heads": 1, "head_dim": 576, "v_head_dim": 512, "shared_kv": 1}
    return price(accelerator, kernel, **shape | changes).seconds[0]


def test_tiles_of_few_heads_read_a_latent_cache_each():
    """32 heads are two tiles of 16, which draw it twice; 128 of TensorRT-LLM are two units that read it once."""
    assert latent("trtllm-gen-mla-decode", heads=32) > 1.2 * latent("trtllm-gen-mla-decode", heads=16)
    assert latent("mla-decode", heads=128) < latent("mla-decode", heads=32)
    assert latent("trtllm-gen-mla-decode", heads=128) > 1.2 * latent("mla-decode", heads=128)


def test_a_latent_cache_of_8_bits_that_is_widened_first_takes_longer_than_one_of_16():
    wide, narrow = (latent("fa3-mla", "h100-sxm", heads=16, kv_bytes=size) for size in (2, 1))
    assert narrow > 2.0 * wide
    wide, narrow = (latent("vllm-mla", "h100-sxm", heads=16, kv_bytes=size) for size in (2, 1))
    assert narrow < wide, "FlashMLA reads it as it is"


@pytest.mark.parametrize("accelerator", ["mi250x", "mi300x", "mi355x", "rx-7900-xtx"])
def test_a_cache_of_8_bits_is_read_no_slower_than_one_of_16(accelerator):
    """By kernels of AMD, which widen it in registers: numbers of either kernel that no other follows would say so."""
    row = {"new": 1, "past": 4095, "batch": 64, "heads": 32, "kv_heads": 8}
    wide, narrow = (price(accelerator, "fa2", kv_bytes=size, **row).seconds[0] for size in (2, 1))
    assert 0.4 * wide < narrow <= wide


def test_casting_queries_adds_a_pass_over_them():
    row = {"accelerator": "b200-sxm", "dtype": "fp8", "kv_bytes": 1}
    apart = price(kernel="sglang-gen-kv8", **row).seconds - price(kernel="sglang-gen-fp8", **row).seconds
    elements = BASE["batch"] * BASE["new"] * BASE["heads"] * BASE["head_dim"]
    assert 3.0 * elements / 8e12 < apart[0] < 3.0 * elements / 2e12


@pytest.mark.parametrize(("kernel", "dim"), [("sglang-gen", 192), ("sglang-fa3", 512)])
def test_heads_that_a_kernel_was_not_built_for_go_to_another(kernel, dim):
    row = {"accelerator": "b200-sxm", "head_dim": dim, "v_head_dim": dim}
    assert price(kernel=kernel, **row).seconds == price(kernel="sglang-triton-attention", **row).seconds
    assert (
        price(kernel=kernel, new=1, past=500, **row).seconds
        == price(kernel="sglang-triton-decode", new=1, past=500, **row).seconds
    )


@pytest.mark.parametrize(
    ("accelerator", "changes", "milliseconds"),
    [  # AMD-AGI/Primus-Turbo, ROCm/aiter #815 and HazyResearch/HipKittens: AITER's; Dao-AILab/flash-attention #2280
        ("mi300x", {"batch": 2, "new": 8192, "heads": 64}, 4.51),
        ("mi300x", {"batch": 4, "heads": 32, "new": 8192, "backward": 1}, 14.72),
        ("mi350x", {"batch": 16, "heads": 64, "new": 8192}, 19.21),
        ("mi355x", {"batch": 8, "heads": 64, "new": 8192, "backward": 1}, 20.89),
        ("b200-sxm", {"new": 8192, "heads": 16, "kv_heads": 16, "backward": 1}, 2.274),
        ("b200-sxm", {"new": 8192, "heads": 16, "kv_heads": 16, "backward": 1, "causal": 0}, 4.043),
    ],
)
def test_measured_points_of_training(accelerator, changes, milliseconds):
    kernel = "fa4" if accelerator == "b200-sxm" else "fa2"
    assert price(accelerator, kernel, **changes).seconds[0] * 1e3 == pytest.approx(milliseconds, rel=0.07)
