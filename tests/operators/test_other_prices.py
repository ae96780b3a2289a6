"""Experts, scans, memory-bound kernels, and what ``price`` refuses."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rapid_llm import hardware, operators
from rapid_llm.errors import InputError
from rapid_llm.operators.experts import row_tiles

H100 = hardware.accelerator("h100-sxm")
EXPERTS = {
    "rows": 64,
    "hit": 8,
    "largest": 8,
    "pairs": 64,
    "tokens": 32,
    "experts": 8,
    "hidden": 4096,
    "inter": 14336,
    "matrices": 3,
    "x_bytes": 2,
    "w_bytes": 2,
}
GPT_OSS = EXPERTS | {"hidden": 2880, "inter": 2880, "w_bytes": 0.53125}
B200 = hardware.accelerator("b200-sxm")
SCAN = {"batch": 8, "new": 4096, "heads": 32, "key_dim": 128, "value_dim": 128, "state_bytes": 4, "backward": 0}


def price(family, columns, kernel, *, dtype="bf16", kind="stream", accelerator=H100):
    return operators.price(family, columns, kind=kind, dtype=dtype, kernel=kernel, accelerator=accelerator)


def test_a_kernel_of_experts_has_the_rate_of_the_format_that_it_computes_in():
    many = EXPERTS | {"rows": 1 << 20, "largest": 1 << 17, "pairs": 1 << 20, "tokens": 1 << 20, "w_bytes": 0.53125}
    rounded, expanded = (
        price("moe", many, kernel, dtype="mxfp4_wo", accelerator=B200).compute_s[0]
        for kernel in ("flashinfer-moe-mxfp4", "mxfp4-moe")
    )
    assert rounded < 0.6 * expanded


@given(st.integers(1, 100000), st.integers(1, 256), st.sampled_from(["cutlass-moe", "triton-moe", "deepgemm-moe"]))
def test_experts_stream_their_weights_and_never_beat_the_roofline(rows, hit, kernel):
    hit = min(hit, rows)
    most = operators.most_loaded(rows, hit)
    columns = EXPERTS | {"rows": rows, "hit": hit, "largest": most, "pairs": rows, "tokens": rows, "experts": hit}
    floor = operators.roofline("moe", columns, dtype="bf16", accelerator=H100).seconds[0]
    assert price("moe", columns, kernel).seconds[0] >= floor


def test_more_experts_cost_their_weights():
    few, many = (price("moe", EXPERTS | {"hit": hit}, "cutlass-moe").seconds[0] for hit in (4, 8))
    weights = 4 * 3 * 4096 * 14336 * 2 / H100.memory.hbm.bandwidth
    assert many - few >= 0.9 * weights


def test_one_expert_is_a_dense_mlp_with_the_moves_of_its_rows():
    m = 8192
    expert = price(
        "moe", EXPERTS | {"rows": m, "hit": 1, "largest": m, "pairs": m, "tokens": m, "experts": 1}, "cutlass-moe"
    ).seconds[0]
    gemms = {"m": m, "n": [2 * 14336, 4096], "k": [4096, 14336], "groups": 1, "x_bytes": 2, "w_bytes": 2, "y_bytes": 2}
    dense = price("gemm", gemms, "cublas").seconds.sum()
    assert 0.7 * dense < expert < 1.5 * dense


TILED = ["triton-moe", "vllm-triton-moe", "marlin-moe"]


@pytest.mark.parametrize("kernel", TILED)
def test_tokens_never_shorten_a_tiled_expert_kernel_beyond_a_change_of_tile(kernel):
    tokens = 2.0 ** np.arange(0, 15)
    hit = np.minimum(tokens * 8, 128)
    columns = {
        "rows": tokens * 8, "hit": hit, "largest": operators.most_loaded(tokens * 8, hit), "pairs": tokens * 8,
        "tokens": tokens, "experts": 128, "hidden": 4096, "inter": 1536, "matrices": 3, "x_bytes": 2, "w_bytes": 2,
    }  # fmt: skip
    seconds = price("moe", columns, kernel).seconds
    assert (seconds[1:] > 0.93 * seconds[:-1]).all()


def test_pairs_of_other_ranks_cost_a_scanning_kernel_their_passes():
    alone = EXPERTS | {"rows": 4096, "pairs": 4096, "tokens": 4096}
    among = alone | {"pairs": 32768}
    less, more = (price("moe", columns, "triton-moe").seconds[0] for columns in (alone, among))
    passes = (32768 - 4096) * (5 * 14336 + 2 * 4096) * 2 / H100.memory.hbm.bandwidth
    assert more - less >= 0.9 * passes
    less, more = (price("moe", columns, "cutlass-moe").seconds[0] for columns in (alone, among))
    assert 0.0 < more - less < 0.02 * passes  # a library sorts them, and moves those of its experts alone


def test_equal_loads_fill_whole_tiles_and_wide_ones_half_a_tile_more():
    def tiles(rows, hit, largest):
        return float(row_tiles(*(np.array([float(v)]) for v in (rows, hit, largest)), 64)[0])

    assert tiles(64 * 8, 8, 64) == 8
    assert tiles(65 * 8, 8, 65) == 16
    assert tiles(8, 8, 1) == 8
    assert tiles(8 * 1000, 8, 2000) == pytest.approx(8 * 1000 / 64 + 4, rel=0.03)


def test_a_launcher_that_counts_the_pairs_of_other_ranks_pads_to_a_tile_too_high():
    """Eight of 256 experts on B200, 96 of 3,072 pairs theirs: 77 us, weights alone take 15 (aiconfigurator tables)."""
    b200 = hardware.accelerator("b200-sxm")
    one = EXPERTS | {"hit": 8, "experts": 8, "hidden": 4096, "inter": 2048, "w_bytes": 0.53125, "x_bytes": 1}
    few, many = (
        price("moe", one | columns, "flashinfer-moe-mxfp4", dtype="mxfp8", accelerator=b200).seconds[0]
        for columns in (
            {"rows": 96, "largest": 12, "pairs": 96, "tokens": 16},
            {"rows": 96, "largest": 12, "pairs": 3072, "tokens": 512},
        )
    )
    assert many == pytest.approx(77.4e-6, rel=0.2)
    assert few < 0.75 * many


def test_an_unaligned_width_slows_the_down_projection_of_triton_kernels():
    even, odd = (price("moe", EXPERTS | {"inter": n}, "triton-moe").seconds[0] for n in (1792, 1796))
    assert odd > 1.3 * even


@pytest.mark.parametrize(("kernel", "rows", "pairs", "measured"), [
    ("triton-moe-mxfp4", 9, 256, 109), ("triton-moe-mxfp4", 209, 1536, 115), ("triton-moe-mxfp4", 1018, 16384, 177),
    ("trtllm-triton-moe-mxfp4", 9, 256, 116), ("trtllm-triton-moe-mxfp4", 1018, 16384, 466),
])  # fmt: skip
def test_a_tile_alone_on_its_unit_takes_as_long_as_one_on_every_unit(kernel, rows, pairs, measured):
    """One expert of gpt-oss on H100: blocks of four warps are half as wide and as long (aiconfigurator tables)."""
    one = GPT_OSS | {"hit": 1, "experts": 1}
    columns = one | {"rows": rows, "largest": rows, "pairs": pairs, "tokens": pairs // 4}
    seconds = price("moe", columns, kernel, dtype="mxfp4_wo").seconds[0]
    assert seconds == pytest.approx(measured * 1e-6, rel=0.2)


def test_weights_unpacked_for_every_tile_make_tiles_of_few_rows_dear():
    """So that more rows an expert cost less than in proportion, though all of them are bound by compute."""
    many = GPT_OSS | {"hit": 64, "experts": 64, "rows": 64 * 64, "largest": 64, "pairs": 64 * 64, "tokens": 1024}
    twice = many | {"rows": 64 * 128, "largest": 128, "pairs": 64 * 128, "tokens": 2048}
    less, more = (price("moe", one, "triton-moe-mxfp4", dtype="mxfp4_wo") for one in (many, twice))
    assert less.compute_s[0] > 1.5 * less.memory_s[0]
    assert more.compute_s[0] < 1.8 * less.compute_s[0]


def test_a_narrow_share_of_padded_experts_costs_what_it_is_padded_to():
    """gpt-oss by eight on L40S: 360 columns are stored as 384, 80 tokens take 362 us (aiconfigurator tables)."""
    l40s = hardware.accelerator("l40s")
    many = {"rows": 320, "hit": 128, "largest": 3, "pairs": 320, "tokens": 80, "experts": 128}
    exact, padded = (
        price("moe", GPT_OSS | many | {"inter": n}, "marlin-moe-mxfp4", dtype="mxfp4_wo", accelerator=l40s).seconds[0]
        for n in (384, 360)
    )
    assert padded == pytest.approx(exact, rel=0.001)
    assert padded == pytest.approx(362e-6, rel=0.1)


def test_taking_pairs_of_other_ranks_out_takes_launches_of_its_own():
    """Of 8 pairs one is for the 16 experts of a rank, 82 us; 4 pairs of all experts take 63 (aiconfigurator tables)."""
    all_, part = (
        price("moe", GPT_OSS | columns, "triton-moe-mxfp4", dtype="mxfp4_wo").seconds[0]
        for columns in (
            {"rows": 4, "hit": 4, "largest": 1, "pairs": 4, "tokens": 1, "experts": 128},
            {"rows": 1, "hit": 1, "largest": 1, "pairs": 8, "tokens": 2, "experts": 16},
        )
    )
    assert all_ == pytest.approx(63e-6, rel=0.15)
    assert part == pytest.approx(82e-6, rel=0.15)


@pytest.mark.parametrize(("inter", "rate"), [(3584, 0.78), (3600, 0.5)])
def test_a_shape_that_the_engine_ships_a_tile_for_streams_its_weights(inter, rate):
    """Mixtral by four on A100, 16 tokens: 1.64 of 2.04 TB/s where vLLM ships a tile (aiconfigurator tables)."""
    a100 = hardware.accelerator("a100-sxm")
    columns = EXPERTS | {"rows": 32, "largest": 4, "pairs": 32, "tokens": 16, "inter": inter}
    seconds = price("moe", columns, "triton-moe", accelerator=a100).seconds[0]
    streamed = 8 * 3 * 4096 * inter * 2 / seconds
    assert streamed == pytest.approx(rate * a100.memory.hbm.bandwidth, rel=0.07)
    many = price("moe", {name: np.full(3, value) for name, value in columns.items()}, "triton-moe", accelerator=a100)
    assert many.seconds == pytest.approx(seconds)


def test_a_decode_scan_reads_and_writes_its_state_once():
    update = price("scan", SCAN | {"new": 1}, "fla")
    state = 2 * 8 * 32 * 128 * 128 * 4
    assert update.hbm_bytes[0] == pytest.approx(state, rel=0.02)
    assert update.seconds[0] > state / H100.memory.hbm.bandwidth


def test_a_fused_scan_with_one_item_more_than_units_takes_another_turn():
    full, more = (price("scan", SCAN | {"batch": n, "heads": 1}, "flashinfer-gdn").seconds[0] for n in (132, 133))
    assert more > 1.6 * full


def test_a_chain_of_scan_kernels_grows_within_its_first_chunk():
    few, chunk, next_one = (
        price("scan", SCAN | {"batch": 1, "heads": 2, "new": n}, "fla").seconds[0] for n in (2, 64, 65)
    )
    assert chunk > 1.3 * few
    assert next_one < 1.15 * chunk


def test_a_chunked_scan_is_never_faster_than_its_chunks_in_series():
    once, twice = (price("scan", SCAN | {"batch": 1, "heads": 2, "new": n}, "fla").seconds[0] for n in (32768, 65536))
    assert twice > 1.8 * once


CONVOLUTIONS = [name for name in operators.kernel_names() if operators.kernel(name).family == "convolution"]
CONVOLUTION = {"batch": 1, "new": 1024, "channels": 8192, "width": 4, "x_bytes": 2, "backward": 0}


@pytest.mark.parametrize(("new", "measured"), [(2, 2.5), (8, 3.7), (64, 4.3), (512, 9.2), (2048, 34.4), (32768, 478.3)])
def test_a_convolution_waits_for_one_block_then_for_all_of_them(new, measured):
    """H100, vLLM 0.24, 8192 channels (aiconfigurator tables): blocks of 8 tokens, none of the bandwidth reached."""
    priced = price("convolution", CONVOLUTION | {"new": new}, "vllm-conv1d")
    assert priced.seconds[0] * 1e6 == pytest.approx(measured, rel=0.15)


def test_blocks_of_a_convolution_are_those_of_all_sequences():
    one, many = (price("convolution", CONVOLUTION | {"batch": b, "new": 8192 / b}, "vllm-conv1d") for b in (1, 64))
    assert many.seconds[0] == pytest.approx(one.seconds[0], rel=0.01)


def test_a_walking_convolution_takes_its_chunks_one_after_another():
    """One sequence of few channels leaves memory idle: 128 K tokens of 256 channels take 128 chunks."""
    once, twice = (
        price("convolution", CONVOLUTION | {"channels": 256, "new": n}, "causal-conv1d").seconds[0]
        for n in (65536, 131072)
    )
    assert twice == pytest.approx(2 * once, rel=0.1)
    spread = price("convolution", CONVOLUTION | {"channels": 256, "batch": 16, "new": 8192}, "causal-conv1d")
    assert spread.seconds[0] < 0.3 * twice


@given(st.sampled_from(CONVOLUTIONS), st.integers(2, 1 << 17), st.integers(1, 1 << 17))
def test_more_tokens_are_never_faster_to_convolve(name, new, more):
    few, many = price("convolution", CONVOLUTION | {"new": [new, new + more]}, name).seconds
    assert H100.sustained.launch <= few <= many * (1 + 1e-9)


def test_an_update_moves_what_came_in_and_the_state():
    update = price("convolution", CONVOLUTION | {"new": 1, "batch": 512}, "vllm-conv1d")
    assert update.hbm_bytes[0] == 512 * 8192 * (2 + 2 * 3) * 2
    assert update.seconds[0] > update.hbm_bytes[0] / H100.memory.hbm.bandwidth


@given(st.floats(1, 1e12), st.sampled_from(operators.POINTWISE_KINDS))
def test_pointwise_time_grows_with_bytes_and_has_a_floor(moved, kind):
    columns = {"read_bytes": [moved, 2 * moved], "write_bytes": 0, "flops": 0}
    small, large = price("pointwise", columns, "torch-pointwise", kind=kind).seconds
    assert H100.sustained.launch <= small <= large


def test_residual_add_as_measured():
    # Vidur profiles, A100, Qwen-72B, 4096 tokens: add of 4096 x 8192 in bf16 takes 112 us.
    add = {"read_bytes": 2 * 4096 * 8192 * 2, "write_bytes": 4096 * 8192 * 2, "flops": 4096 * 8192}
    priced = price("pointwise", add, "fused-pointwise", accelerator=hardware.accelerator("a100-sxm"))
    assert priced.seconds[0] * 1e6 == pytest.approx(112, rel=0.3)


def test_bounds():
    names = np.array(operators.BOUNDS)
    shapes = {"m": [1, 8192, 1], "n": [8192, 8192, 32], "k": [8192, 8192, 32], "groups": 1}
    priced = price("gemm", shapes | {"x_bytes": 2, "w_bytes": 2, "y_bytes": 2}, "cublas")
    assert list(names[priced.bound]) == ["memory", "compute", "launch"]


def test_no_rate_for_a_dtype():
    with pytest.raises(InputError) as caught:
        price(
            "gemm",
            dict.fromkeys(operators.COLUMNS["gemm"], 1),
            "cublas",
            dtype="fp8",
            accelerator=hardware.accelerator("a100-sxm"),
        )
    assert caught.value.message == (
        "a100-sxm has no matrix rate for fp8: it has bf16, fp16, fp64, int4, int8, tf32. Try one of these."
    )


def test_a_kernel_of_another_family():
    with pytest.raises(InputError) as caught:
        price("gemm", dict.fromkeys(operators.COLUMNS["gemm"], 1), "fa2")
    assert caught.value.message == "kernel fa2 serves attention, not gemm. Try a kernel of the family gemm."
