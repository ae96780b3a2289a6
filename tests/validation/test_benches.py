"""Benchmarks behind tables: gaps between replays, and the clock that a busy chip settles on."""

import numpy as np

from rapid_llm import hardware
from rapid_llm.operators import Replay
from rapid_llm.validation.kernels.benches import Bench, bench_of

DEVICE = hardware.accelerator("h100-sxm")


def columns(n, k):
    return {"n": np.array([float(n)]), "k": np.array([float(k)]), "w_bytes": np.array([2.0])}


def read(bench, seconds, n=4096, k=4096):
    """What the benchmark says of kernels that take so long at the boost clock, and longer at a lower one."""
    return bench.seconds(lambda clock, _: np.array([seconds / clock]), columns(n, k), DEVICE)[0]


def test_a_launch_alone_in_its_replay_waits_for_the_next():
    bench = bench_of("trtllm", "1.3.0rc20", "bf16")
    assert read(bench, 30e-6, 16384, 16384) - 30e-6 > 2e-6  # weights beyond L2: one copy
    assert abs(read(bench, 30e-6, 1024, 1024) - 30e-6) < 0.3e-6  # five copies


def test_long_kernels_slow_down_and_short_ones_do_not():
    bench = bench_of("sglang", "0.5.14", "bf16")
    assert read(bench, 20e-6) < 1.01 * 20e-6
    assert 1.08 * 20e-3 < read(bench, 20e-3) < 20e-3 / DEVICE.sustained.clock


def test_operands_that_were_never_set_draw_no_power():
    assert read(bench_of("vllm", "0.24.0", "bf16"), 20e-3) < 1.001 * 20e-3


def test_layer_profiles_are_cooler_than_models():
    """A profile of a layer takes seconds: products of 2,000 tokens reach 700 to 760 TFLOP/s on H100 (Vidur)."""
    assert read(bench_of("vidur", "", "bf16"), 1e-3) == 1e-3 / (0.5 + 0.5 * DEVICE.sustained.clock)
    assert read(Bench(None, toggles=False), 1e-3) == 1e-3


def test_formats_with_one_weight():
    assert bench_of("vllm", "0.24.0", "nvfp4").replay == Replay(1)
    assert bench_of("trtllm", "1.0.0", "bf16").replay == Replay(5)
