"""GEMM prices: measured points and the properties of tiles, waves and split-K."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rapid_llm import hardware, operators
from rapid_llm.dtypes import dtype as number_format
from rapid_llm.operators.rates import rates

SHAPES = st.tuples(st.integers(1, 20000), st.integers(32, 30000), st.integers(64, 30000))
ACCELERATORS = st.sampled_from(["a100-sxm", "h100-sxm", "b200-sxm", "l40s", "mi300x", "v100-sxm"])


def price(m, n, k, accelerator="h100-sxm", *, dtype="bf16", kernel="cublas", size=2.0, **options):
    columns = {
        "m": m,
        "n": n,
        "k": k,
        "groups": options.pop("groups", 1),
        "x_bytes": size,
        "w_bytes": size,
        "y_bytes": 2,
    }
    device = hardware.accelerator(accelerator) if isinstance(accelerator, str) else accelerator
    return operators.price("gemm", columns, dtype=dtype, kernel=kernel, accelerator=device, **options)


@pytest.mark.parametrize(
    ("accelerator", "m", "n", "k", "microseconds"),
    [  # aiconfigurator tables, vLLM bf16: CUDA-graph replays
        ("a100-sxm", 1, 8192, 8192, 96.9),
        ("a100-sxm", 4096, 4096, 8192, 1119.9),
        ("h100-sxm", 1, 4096, 4096, 15.0),
        ("h100-sxm", 1, 8192, 8192, 51.6),
        ("b200-sxm", 1, 8192, 8192, 23.8),
        ("b200-sxm", 8192, 8192, 4096, 338.6),
        ("l40s", 16, 8192, 8192, 218.8),
        ("l40s", 4096, 4096, 8192, 1235.3),
    ],
)
def test_measured_points(accelerator, m, n, k, microseconds):
    predicted = price(m, n, k, accelerator, replayed=True).seconds[0] * 1e6
    assert predicted == pytest.approx(microseconds, rel=0.20)


@given(SHAPES, ACCELERATORS)
def test_never_below_the_datasheet_roofline(shape, accelerator):
    device = hardware.accelerator(accelerator)
    m, n, k = shape
    columns = {"m": m, "n": n, "k": k, "groups": 1, "x_bytes": 2, "w_bytes": 2, "y_bytes": 2}
    dtype = "fp16"
    floor = operators.roofline("gemm", columns, dtype=dtype, accelerator=device)
    priced = operators.price("gemm", columns, dtype=dtype, kernel="cublas", accelerator=device)
    assert priced.seconds[0] >= floor.seconds[0]
    assert priced.flops[0] == floor.flops[0] == 2.0 * m * n * k


@given(SHAPES, st.sampled_from(["m", "n", "k"]), st.sampled_from(["a100-sxm", "h100-sxm", "b200-sxm"]))
def test_time_never_falls_when_a_side_grows(shape, side, accelerator):
    rows = {name: np.array([value, value, value], dtype=float) for name, value in zip("mnk", shape, strict=True)}
    rows[side] += np.array([0.0, 256.0, rows[side][0]])
    before, longer, doubled = price(**rows, accelerator=accelerator).seconds * (1.0 + 1e-12 * np.array([-1, 1, 1]))
    assert longer >= before
    assert doubled >= before


def test_crossing_a_tile_edge_costs():
    at, beyond = price([128, 256], 8192, 8192).seconds, price([129, 257], 8192, 8192).seconds
    assert np.all(beyond > at)


@given(SHAPES)
def test_fp8_never_beats_twice_bf16_peak(shape):
    m, n, k = shape
    priced = price(m, n, k, dtype="fp8", kernel="cublas-fp8", size=1.0)
    assert priced.flops[0] / priced.seconds[0] <= 2.0 * hardware.accelerator("h100-sxm").peak["bf16"]


@given(SHAPES)
def test_a_slower_clock_never_speeds_up_and_leaves_streaming_alone(shape):
    m, n, k = shape
    assert price(m, n, k, clock=0.78).seconds[0] >= price(m, n, k).seconds[0]
    streaming = price(1, 16384, 16384, clock=0.78).seconds[0] / price(1, 16384, 16384).seconds[0]
    assert streaming < 1.01


def test_groups_fill_the_accelerator_that_one_would_leave_empty():
    one, many = price(128, 128, 4096).seconds[0], price(128, 128, 4096, groups=64).seconds[0]
    assert one < many < 64 * one / 4


def test_replayed_benchmarks_find_small_weights_in_l2():
    small, large = (1, 2048, 2048), (1, 16384, 16384)
    assert price(*small, "l40s", replayed=True).seconds[0] < price(*small, "l40s").seconds[0]
    assert price(*large, "l40s", replayed=True).seconds[0] == pytest.approx(price(*large, "l40s").seconds[0], rel=0.01)


def test_rows_are_independent():
    m, n, k = np.array([1.0, 4096.0, 77.0]), np.array([8192.0, 4096.0, 320.0]), np.array([8192.0, 4096.0, 640.0])
    together = price(m, n, k).seconds
    assert np.array_equal(together, [price(*shape).seconds[0] for shape in zip(m, n, k, strict=True)])


def test_explanation_agrees_with_the_price():
    device = hardware.accelerator("h100-sxm")
    why = operators.explain_gemm(4096, 4096, 4096, dtype="bf16", kernel="cublas", accelerator=device)
    assert why["seconds"] == price(4096, 4096, 4096).seconds[0]
    assert why["bound"] == "compute"
    assert why["tiles"] == -(-4096 // why["tile"][0]) * -(-4096 // why["tile"][1]) * why["split"]
    assert why["waves"] == -(-why["tiles"] // device.compute_units)
    assert 0 < why["last_wave_occupancy"] <= 1


def test_a_kernel_with_few_loads_in_flight_draws_by_units_and_not_by_memory():
    def row(accelerator, kernel="ggml", size=2.0):
        return price(1, 8192, 8192, accelerator, dtype="fp16", kernel=kernel, size=size).seconds

    assert row("h100-sxm") == pytest.approx(row("h200-sxm"), rel=0.01)  # as many units, 1.4 times the memory bandwidth
    assert row("rtx-4090") == pytest.approx(8192**2 * 2 / 0.93e12, rel=0.1)  # many units for its memory


def test_unpacking_weights_costs_lanes_where_they_are_few():
    stored = 0.5625  # bytes a weight of Q4_K
    unpacked, plain = (
        price(1, 8192, 8192, "apple-m1-max", dtype="fp16", kernel=kernel, size=stored).seconds
        for kernel in ("ggml-mmq-k", "ggml-mmq")
    )
    assert 1.2 < unpacked / plain < 1.8


@pytest.mark.parametrize(("whole", "cut"), [("rtx-pro-6000", "rtx-5090"), ("h100-sxm", "h20-sxm")])
def test_a_matrix_pipe_that_is_cut_down_is_reached_for_more_of_its_rate(whole, cut):
    def reached(name):
        device = hardware.accelerator(name)
        known = rates(device, "bf16")
        return 2.0 * 16384**3 / price(16384, 16384, 16384, device).seconds[0] / known.peak

    assert rates(hardware.accelerator(whole), "bf16").cut == pytest.approx(1.0, abs=1e-3)
    assert rates(hardware.accelerator(cut), "bf16").cut <= 0.51
    assert reached(whole) + 0.04 < reached(cut) < 1.0
    # an H20 leaves half of what instructions of one warp could fill, which is half of an H100's
    assert rates(hardware.accelerator(whole), "bf16").warps_cut == pytest.approx(1.0, abs=1e-3)
    assert rates(hardware.accelerator(cut), "bf16").warps_cut == pytest.approx(0.5, abs=0.01)
    assert rates(hardware.accelerator("rtx-4090"), "int8").cut == pytest.approx(1.0, abs=1e-3)  # cut for floats alone


def test_integer_instructions_run_beside_the_others_from_the_m3_on():
    stored = 0.5625
    m1, m3 = (
        price(1, 8192, 8192, name, dtype="fp16", kernel="ggml-mmq-k", size=stored).seconds
        for name in ("apple-m1-max", "apple-m3-max")
    )
    assert m1 / m3 > 1.25  # as many GB/s on the pins


def test_unpacking_is_as_slow_a_clock_on_every_unit_with_64_integer_lanes():
    def row(name):
        return price(1, 8192, 28672, name, dtype="fp16", kernel="ggml-mmq-k", size=0.6).seconds

    assert row("a100-sxm") == pytest.approx(row("rtx-4090"), rel=0.25)  # twice the memory bandwidth, half the clocks
    assert row("h100-sxm") < 0.75 * row("a100-sxm")


def test_one_row_is_one_tile_of_llama_cpp_on_every_architecture():
    for name in ("a100-sxm", "b200-sxm", "h100-sxm", "rtx-4090"):
        one, few = (
            price(rows, 8192, 8192, name, dtype="fp16", kernel="ggml-mmq", size=0.5625).seconds for rows in (1, 8)
        )
        assert one <= few


def test_up_to_eight_rows_are_unpacked_for_each():
    """Llama 3 8B Q4_0 on an RTX 3090: 6.4, 8.5, 13.9 ms for 1, 4, 8 sequences (ggml-org/llama.cpp #15802)."""

    def seconds(rows):
        return price(rows, 28672, 4096, "rtx-3090", dtype="fp16", kernel="ggml-mmq", size=0.5625).seconds

    assert 1.2 < seconds(4) / seconds(1) < 1.6
    assert 1.9 < seconds(8) / seconds(1) < 2.6
    assert seconds(16) < 1.2 * seconds(8)


def test_weights_that_are_written_out_first_cost_their_bytes_above_so_many_rows():
    def more(rows, name="rtx-4090"):
        old, plain = (
            price(rows, 8192, 8192, name, dtype="fp16", kernel=kernel, size=size).seconds
            for kernel, size in (("ggml-mmq-2024", 0.6), ("ggml", 2.0))
        )
        return old - plain

    assert more(512) == pytest.approx(8192**2 * 2.6 / 0.948e12, rel=0.3)
    assert more(64) < 0  # still fewer bytes
    assert more(512, "apple-m2-ultra") > 0  # slower, in the product itself


@pytest.mark.parametrize(
    ("accelerator", "side", "dtype", "petaflops"),
    [
        ("gb200", 16384, "nvfp4", 5.60),
        ("gb200", 32768, "nvfp4", 5.26),
        ("gb300", 8192, "nvfp4", 8.16),
        ("gb300", 16384, "nvfp4", 8.64),
        ("gb200", 16384, "fp8", 2.82),
        ("gb300", 16384, "fp8", 3.31),
    ],
)
def test_long_loops_of_cublaslt_at_the_limit_of_power(accelerator, side, dtype, petaflops):
    """Random operands, 10,000 warm-ups: Azure AI-benchmarking-guide, ND GB200 v6 and ND GB300 v6."""
    held = hardware.accelerator(accelerator).sustained.clock_of("fp8")
    size, kernel = number_format(dtype).bytes, f"te-{dtype}"
    priced = price(side, side, side, accelerator, dtype=dtype, kernel=kernel, size=size, clock=held).seconds[0]
    assert 2.0 * side**3 / priced / 1e15 == pytest.approx(petaflops, rel=0.10)
