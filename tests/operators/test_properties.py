"""What holds for any kernel on any accelerator: better hardware is never slower, no price beats physics."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rapid_llm import hardware, operators
from rapid_llm.dtypes import dtype as number_format
from rapid_llm.nouns import FrozenDict, replaced

ROWS = 64
DEVICES = [
    "a100-sxm", "h100-sxm", "h200-sxm", "b200-sxm", "l40s", "a40", "rtx-4090", "rtx-pro-6000", "v100-sxm", "mi300x",
    "gaudi3", "tpu-v5p",
]  # fmt: skip
GEMMS = [name for name in operators.kernel_names() if operators.kernel(name).family == "gemm"]
OTHER = ("moe", "scan", "convolution", "pointwise")
OTHERS = [name for name in operators.kernel_names() if operators.kernel(name).family in OTHER]
MOES = [name for name in OTHERS if operators.kernel(name).family == "moe"]
PREFILLS = [name for name in operators.kernel_names() if operators.kernel(name).family == "attention"]
DECODES = [name for name in operators.kernel_names() if operators.kernel(name).family == "decode"]
FREE = [name for name in DECODES if not operators.kernel(name).ruled]
"""Those that do not follow an engine's rule, which may choose the slower way of two."""
FREE += [name for name in PREFILLS if operators.kernel(name).decode in FREE]
A_TILE = 0.06  # of a window of 1024 keys
SEEDS = st.integers(0, 2**31)


def spread(rng, low, high):
    return np.floor(np.exp(rng.uniform(np.log(low), np.log(high), ROWS)))


def shapes(family, seed):
    rng = np.random.default_rng(seed)
    one = np.ones(ROWS)
    match family:
        case "gemm":
            sides = {name: spread(rng, 16, 30000) for name in "nk"}
            width = {"x_bytes": 2 * one, "w_bytes": 2 * one, "y_bytes": 2 * one}
            return {"m": spread(rng, 1, 20000), "groups": rng.choice([1.0, 1.0, 8.0], ROWS), **sides, **width}
        case "attention" | "decode":
            kv_heads, dim = rng.choice([1.0, 2.0, 8.0], ROWS), rng.choice([64.0, 128.0, 256.0], ROWS)
            many = one if family == "decode" else spread(rng, 2, 8000)
            heads = {"heads": kv_heads * rng.choice([1.0, 4.0, 8.0], ROWS), "kv_heads": kv_heads}
            size = {"batch": spread(rng, 1, 128), "new": many, "past": spread(rng, 1, 60000), "head_dim": dim}
            mask = {"window": rng.choice([0.0, 0.0, 1024.0], ROWS), "causal": one, "backward": 0 * one}
            return {**size, **heads, "v_head_dim": dim, **mask, "kv_bytes": 2 * one, "shared_kv": 0 * one}
        case "moe":
            tokens = spread(rng, 1, 20000)
            hit = np.minimum(rng.choice([1.0, 8.0, 64.0], ROWS), 2 * tokens)
            size = {"hidden": 16 * spread(rng, 32, 500), "inter": 16 * spread(rng, 16, 1250), "matrices": 3 * one}
            load = {"rows": 2 * tokens, "hit": hit, "largest": operators.most_loaded(2 * tokens, hit), "tokens": tokens}
            held = {"pairs": 2 * tokens, "experts": 64 * one, "x_bytes": 2 * one, "w_bytes": 2 * one}
            return {**load, **held, **size}
        case "scan":
            new = np.where(rng.random(ROWS) < 0.5, 1.0, spread(rng, 2, 8000))
            head = {"key_dim": 128 * one, "value_dim": 128 * one, "state_bytes": 4 * one, "backward": 0 * one}
            return {"batch": spread(rng, 1, 128), "new": new, "heads": spread(rng, 1, 64), **head}
        case "convolution":
            new = np.where(rng.random(ROWS) < 0.5, 1.0, spread(rng, 2, 8000))
            size = {"batch": spread(rng, 1, 128), "new": new, "channels": 64 * spread(rng, 4, 256)}
            return {**size, "width": 4 * one, "x_bytes": 2 * one, "backward": 0 * one}
        case _:
            return {name: spread(rng, 10, 1e9) for name in ("read_bytes", "write_bytes", "flops")}


def family_of(kernel):
    """The family whose columns a kernel takes."""
    family = operators.kernel(kernel).family
    return "attention" if family == "decode" else family


def price(kernel, columns, device):
    chosen = operators.kernel(kernel)
    own = getattr(chosen, "computes", None)
    dtype = own if own and device.rate(number_format(own).rate) else "bf16" if "bf16" in device.peak else "fp16"
    return operators.price(family_of(kernel), columns, dtype=dtype, kernel=chosen, accelerator=device), dtype


def better(device, what):
    """The accelerator with a quarter more of something, all else the same."""
    if what == "bandwidth":
        hbm = replaced(device.memory.hbm, bandwidth=1.25 * device.memory.hbm.bandwidth)
        return replaced(device, memory=replaced(device.memory, hbm=hbm))
    units = int(1.25 * device.compute_units) if what == "units" else device.compute_units
    rate = units / device.compute_units if what == "units" else 1.25
    peak = FrozenDict({name: rate * value for name, value in device.peak.items()})
    return replaced(device, compute_units=units, peak=peak, vector=rate * device.vector)


@given(
    st.sampled_from(GEMMS + OTHERS + FREE),
    st.sampled_from(DEVICES),
    st.sampled_from(["bandwidth", "units", "clock"]),
    SEEDS,
)
@example("vllm-triton-attention", "h100-sxm", "clock", 0)  # its pipe is wider than the instructions of one warp fill
def test_better_hardware_is_never_slower(kernel, name, what, seed):
    device, columns = hardware.accelerator(name), shapes(operators.kernel(kernel).family, seed)
    before, after = price(kernel, columns, device)[0], price(kernel, columns, better(device, what))[0]
    assert np.all(after.seconds <= before.seconds * (1 + 1e-9))


@given(st.sampled_from(GEMMS + OTHERS + PREFILLS + DECODES), st.sampled_from(DEVICES), SEEDS)
def test_no_price_beats_the_physical_bound(kernel, name, seed):
    device, columns = hardware.accelerator(name), shapes(operators.kernel(kernel).family, seed)
    priced, dtype = price(kernel, columns, device)
    if getattr(operators.kernel(kernel), "product_bits", 16) == 8 and "fp8" in device.peak:  # 16 bits in and out
        dtype = "fp8"
    beyond = max(device.sustained.matrix, 1.0)  # cards clock beyond the boost that their peak is rated at
    fastest = replaced(device, peak=FrozenDict({name: beyond * rate for name, rate in device.peak.items()}))
    floor = operators.roofline(family_of(kernel), columns, dtype=dtype, accelerator=fastest)
    assert np.all(np.isfinite(priced.seconds))
    assert np.all(priced.seconds >= floor.seconds)


@given(st.sampled_from(GEMMS), st.sampled_from(DEVICES), st.sampled_from(["m", "n", "k", "groups"]), SEEDS)
def test_a_larger_product_is_never_faster_beyond_a_tile(kernel, name, side, seed):
    device, columns = hardware.accelerator(name), shapes("gemm", seed)
    before = price(kernel, columns, device)[0].seconds
    after = price(kernel, columns | {side: 2.0 * columns[side]}, device)[0].seconds
    assert np.all(after >= before * (1 - 1e-9))


@given(st.sampled_from(FREE), st.sampled_from(DEVICES), st.sampled_from(["batch", "new", "past"]), SEEDS)
def test_more_queries_or_keys_never_take_less_beyond_a_tile(kernel, name, side, seed):
    device, family = hardware.accelerator(name), operators.kernel(kernel).family
    columns = shapes(family, seed)
    if family == "decode" and side == "new":
        return
    before = price(kernel, columns, device)[0].seconds
    for more in (2.0 * columns[side], columns[side] + 1.0):
        after = price(kernel, columns | {side: more}, device)[0].seconds
        assert np.all(after >= before * (1 - A_TILE * (columns["window"] > 0) * (family == "attention") - 1e-9))


@given(st.sampled_from(PREFILLS), st.sampled_from(DEVICES), SEEDS)
def test_one_query_after_another_over_a_cache_never_takes_less(kernel, name, seed):
    device, columns = hardware.accelerator(name), with_every_branch("decode", kernel, hardware.accelerator(name), seed)
    queries = (1.0, 2.0, 3.0, 4.0, 8.0, 17.0, 64.0)
    times = [price(kernel, columns | {"new": np.full(ROWS, new)}, device)[0].seconds for new in queries]
    room = 1 - A_TILE * (columns["window"] > 0) - 1e-9
    assert all(np.all(more >= fewer * room) for fewer, more in pairwise(times))


@given(st.sampled_from(MOES), st.sampled_from(DEVICES), st.sampled_from(["hit", "hidden", "inter"]), SEEDS)
def test_more_experts_of_the_same_rows_or_wider_ones_never_take_less(kernel, name, side, seed):
    device, columns = hardware.accelerator(name), shapes("moe", seed)
    more = 2.0 * columns[side]
    if side == "hit":  # the most loaded expert keeps its load
        more = np.where(columns["largest"] <= columns["rows"] - more + 1.0, more, columns["hit"])
    plain = replaced(operators.kernel(kernel), variants=FrozenDict())  # without shapes that an engine ships tiles for
    before, after = (
        operators.price("moe", shape, dtype=price(kernel, columns, device)[1], kernel=plain, accelerator=device).seconds
        for shape in (columns, columns | {side: more})
    )
    assert np.all(after >= before * (1 - 1e-9))


@pytest.mark.parametrize(
    ("name", "kernel", "wide", "narrow"),
    [
        *(
            (name, kernel, "bf16", "fp8")
            for name in ("h100-sxm", "b200-sxm", "l40s")
            for kernel in ("cublas-fp8", "vllm-fp8")
        ),
        *(("b200-sxm", kernel, "fp8", "nvfp4") for kernel in ("cutlass-nvfp4", "sglang-nvfp4", "te-nvfp4")),
        *((name, "int8-smoothquant", "bf16", "int8") for name in ("a100-sxm", "h100-sxm", "l40s")),
    ],
)
@given(seed=SEEDS)
def test_half_the_width_is_never_slower_in_one_kernel(name, kernel, wide, narrow, seed):
    device, columns = hardware.accelerator(name), shapes("gemm", seed)
    before, after = (
        operators.price("gemm", columns | widths(dtype), dtype=dtype, kernel=kernel, accelerator=device).seconds
        for dtype in (wide, narrow)
    )
    assert np.all(after <= before * (1 + 1e-9))


def widths(dtype):
    return {side: np.full(ROWS, number_format(dtype).bytes) for side in ("x_bytes", "w_bytes")}


@pytest.mark.parametrize("name", ["h100-sxm", "b200-sxm", "l40s"])
@pytest.mark.parametrize("kernel", ["trtllm-fmha-fp8", "fa3-fp8"])
@given(seed=SEEDS)
def test_attention_on_half_the_width_is_never_slower_in_one_kernel(kernel, name, seed):
    device = hardware.accelerator(name)
    columns = shapes("attention", seed) | {"past": np.zeros(ROWS)}  # over a cache, its decode kernel has a say
    plain = replaced(operators.kernel(kernel), decode_8bit=None, cached_8bit=None)  # whose caches of 8 bits have others
    before, after = (
        operators.price(
            "attention", columns | {"kv_bytes": np.full(ROWS, size)}, dtype=dtype, kernel=plain, accelerator=device
        ).seconds
        for dtype, size in (("bf16", 2.0), ("fp8", 1.0))
    )
    assert np.all(after <= before * (1 + 1e-9))


def with_every_branch(family, kernel, device, seed):
    """Shapes of a family, some with an 8-bit cache, some with a tile that the engine ships."""
    columns, third = shapes(family, seed), np.arange(ROWS) % 3 == 0
    if family in ("attention", "decode"):
        columns["kv_bytes"] = np.where(third, 1.0, 2.0)
    for experts, inter in getattr(operators.kernel(kernel).shaped(device.architecture), "tuned", ())[:1]:
        columns["experts"] = np.where(third, float(experts), columns["experts"])
        columns["inter"] = np.where(third, float(inter), columns["inter"])
    return columns


@given(st.sampled_from(operators.kernel_names()), st.sampled_from(DEVICES), SEEDS)
def test_a_row_of_numbers_is_the_row_of_a_table_to_the_last_bit(kernel, name, seed):
    device, family = hardware.accelerator(name), operators.kernel(kernel).family
    for served in (family, "decode") if family == "attention" else (family,):
        columns = with_every_branch(served, kernel, device, seed)
        table = price(kernel, columns, device)[0]
        alone = [price(kernel, {k: float(v[i]) for k, v in columns.items()}, device)[0] for i in range(ROWS)]
        for column, *numbers in zip(table.columns, *(row.columns for row in alone), strict=True):
            assert np.array_equal(np.broadcast_to(column, ROWS), np.concatenate(numbers))


def test_a_row_of_numbers_is_remembered():
    device = hardware.accelerator("l40s")
    row = {name: float(column[0]) for name, column in shapes("gemm", 3).items()}
    priced = price("vllm-fp8", row, device)[0]
    assert price("vllm-fp8", dict(row), device)[0] is priced
    with pytest.raises(ValueError, match="read-only"):
        priced.seconds[0] = 0.0


def test_one_row_takes_the_matrix_vector_kernel_where_the_library_has_one():
    a100, shape = hardware.accelerator("a100-sxm"), {"dtype": "bf16", "kernel": "cublas"}
    assert operators.explain_gemm(1, 512, 1024, accelerator=a100, **shape)["tile"] == (1, 4)
    assert operators.explain_gemm(2, 512, 1024, accelerator=a100, **shape)["tile"] != (1, 4)
    h100 = hardware.accelerator("h100-sxm")
    assert operators.explain_gemm(1, 512, 1024, accelerator=h100, **shape)["tile"] != (1, 4)


def test_a_library_that_dispatches_by_rows_takes_those_tiles():
    h100 = hardware.accelerator("h100-sxm")
    tiles = [
        operators.explain_gemm(m, 4096, 4096, dtype="fp8", kernel="vllm-fp8", accelerator=h100)["tile"]
        for m in (1, 16, 17, 64, 65, 128, 129, 8192)
    ]
    assert tiles == [(16, 64)] * 2 + [(64, 64)] * 2 + [(64, 128)] * 2 + [(128, 128)] * 2


@given(st.sampled_from(PREFILLS), st.sampled_from(DEVICES), st.sampled_from([1.0, 2.0]), SEEDS)
def test_two_queries_take_no_less_than_one(kernel, name, kv_bytes, seed):
    columns = {**shapes("decode", seed), "kv_bytes": kv_bytes}
    device = hardware.accelerator(name)
    one, two = (price(kernel, {**columns, "new": columns["new"] * new}, device)[0] for new in (1.0, 2.0))
    assert np.all(two.seconds >= one.seconds * (1 - 1e-9))
