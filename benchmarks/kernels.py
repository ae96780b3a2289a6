"""How fast kernels are priced: one alone, never asked before and asked again; one of a step's table; a million GEMMs.

``python benchmarks/kernels.py``: CPU seconds, best of a few rounds, beside the targets; of a lone kernel the slowest of
all implementations and several accelerators, for each kind of shape.
"""

import time
from collections.abc import Callable, Iterator
from itertools import count, islice

import numpy as np

from rapid_llm import hardware, operators
from rapid_llm.hardware.accelerator import Accelerator

DEVICE = hardware.accelerator("h100-sxm")
DEVICES = ("a100-sxm", "h100-sxm", "b200-sxm", "l40s", "rtx-4090", "v100-sxm", "mi300x", "tpu-v5p")
ALONE, TABLE, MILLION, ROUNDS, AGAIN = 50, 512, 1_000_000, 5, 5
COLD, CACHED, WHOLE = 50e-6, 1e-6, 4.0

FRESH = count(1.0)
"""Sizes that were never asked before."""

Columns = dict[str, object]
Case = tuple[str, str, Columns, Accelerator]
"""Family, kernel, shape and accelerator."""

GEMM = {"n": 77, "m": 128, "k": 4096, "groups": 1, "x_bytes": 2, "w_bytes": 2, "y_bytes": 2}
PREFILL = {"batch": 4, "new": 500, "past": 0, "heads": 32, "kv_heads": 8, "head_dim": 128, "v_head_dim": 128} | {
    "window": 0, "causal": 1, "backward": 0, "kv_bytes": 2, "shared_kv": 0
}  # fmt: skip
DECODE = PREFILL | {"new": 1, "past": 2000}
EXPERTS = {"rows": 800, "hit": 8, "largest": 120, "pairs": 800, "tokens": 400, "experts": 8, "hidden": 4096} | {
    "inter": 14336, "matrices": 3, "x_bytes": 2, "w_bytes": 2
}  # fmt: skip
SCAN = {"batch": 4, "new": 500, "heads": 32, "key_dim": 128, "value_dim": 128, "state_bytes": 4, "backward": 0}

CONVOLUTION: Columns = {"batch": 8, "new": 1000, "channels": 8192, "width": 4, "x_bytes": 2, "backward": 0}
SHAPES: dict[str, dict[str, Columns]] = {
    "gemm": {"plain": GEMM, "one row": GEMM | {"m": 1}, "grouped": GEMM | {"groups": 8}},
    "attention": {
        "prefill": PREFILL,
        "chunk": PREFILL | {"past": 1000},
        "window": PREFILL | {"past": 700, "window": 256},
        "backward": PREFILL | {"backward": 1},
        "8-bit cache": PREFILL | {"kv_bytes": 1},
        "latent": PREFILL | {"kv_heads": 32, "head_dim": 192},
    },
    "decode": {
        "plain": DECODE,
        "window": DECODE | {"window": 1024},
        "8-bit cache": DECODE | {"kv_bytes": 1},
        "lone heads": DECODE | {"kv_heads": 32},
        "absorbed": DECODE | {"heads": 128, "kv_heads": 1, "head_dim": 576, "v_head_dim": 512, "shared_kv": 1},
    },
    "moe": {"few": EXPERTS, "many": EXPERTS | {"hit": 200, "experts": 256, "hidden": 7168, "inter": 2048}},
    "scan": {"prefill": SCAN, "update": SCAN | {"new": 1}},
    "convolution": {"prefill": CONVOLUTION, "update": CONVOLUTION | {"new": 1}},
    "pointwise": {"plain": {"read_bytes": 1e6, "write_bytes": 1e6, "flops": 1e5}},
}
"""What is measured: shapes of one launch, of which the first size is varied."""


def seconds(run: Callable[[], object]) -> float:
    """CPU time of one call."""
    start = time.process_time()
    run()
    return time.process_time() - start


def price(columns: Columns) -> object:
    """What a table of GEMMs takes on one accelerator."""
    return operators.price("gemm", columns, dtype="bf16", kernel="cublas", accelerator=DEVICE)


def gemms(count: int, seed: int) -> Columns:
    """Columns of random GEMMs."""
    rng = np.random.default_rng(seed)
    sides = {name: rng.integers(64, 30000, count).astype(float) for name in "nk"}
    rest = {"groups": 1, "x_bytes": 2, "w_bytes": 2, "y_bytes": 2}
    return {"m": rng.integers(1, 20000, count).astype(float), **sides, **rest}


def alone(family: str, kernel: str, shape: Columns, device: Accelerator) -> tuple[float, float]:
    """Seconds of a lone kernel: a shape that was never asked, and one that was."""
    first = next(iter(shape))
    asked = {"dtype": "bf16" if device.rate("bf16") else "fp16", "kernel": kernel, "accelerator": device}
    operators.price(family, shape, **asked)
    best = [np.inf, np.inf]
    for _ in range(ROUNDS):
        shapes = [shape | {first: size} for size in islice(FRESH, ALONE)]
        for again in (0, 1):
            took = seconds(lambda: [operators.price(family, one, **asked) for one in shapes]) / ALONE  # noqa: B023
            best[again] = min(best[again], took)
    return best[0], best[1]


def shapes_of(chosen: operators.Kernel, device: Accelerator) -> Iterator[tuple[str, str, Columns]]:
    """Family of the columns, name and shape of what a kernel runs."""
    for served in ("attention", "decode") if chosen.family == "attention" else (chosen.family,):
        for name, shape in SHAPES[served].items():
            yield "attention" if served == "decode" else served, f"{served} {name}", shape
    shipped = getattr(chosen.shaped(device.architecture), "tuned", ())
    for experts, inter in shipped[:1]:
        yield "moe", "moe shipped tile", EXPERTS | {"experts": experts, "inter": inter}


def worst() -> Iterator[tuple[str, float, float]]:
    """The slowest implementation and accelerator of each shape: its name, and seconds cold and cached.

    The slowest of many are those that something disturbed: they are measured again.
    """
    cases: dict[str, list[Case]] = {}
    for kernel in operators.kernel_names():
        for device in map(hardware.accelerator, DEVICES):
            for family, name, shape in shapes_of(operators.kernel(kernel), device):
                cases.setdefault(name, []).append((family, kernel, shape, device))
    for name, some in cases.items():
        first = sorted(some, key=lambda case: -alone(*case)[0])
        again = [(min(alone(*case) for _ in range(3)), case) for case in first[:AGAIN]]
        (cold, cached), (_, kernel, _, device) = max(again, key=lambda one: one[0])
        yield f"{name} ({kernel}, {device.name})", cold, cached


def figures() -> Iterator[tuple[str, float, float]]:
    """Name, seconds and target of each figure."""
    for name, cold, cached in worst():
        yield name, cold, COLD
        yield f"{name.partition(' (')[0]}, asked again", cached, CACHED
    table = min(seconds(lambda s=s: price(gemms(TABLE, s))) for s in range(ROUNDS)) / TABLE
    yield "one GEMM of a table of 512", table, COLD
    yield "1,000,000 distinct GEMM shapes", seconds(lambda: price(gemms(MILLION, 9))), WHOLE


def main() -> None:
    """Print each figure with its target."""
    price(gemms(8, 0))
    print(f"{'what':<62} {'measured':>10} {'target':>9} {'of target':>9}")
    for name, value, target in figures():
        print(f"{name:<62} {value:>8.3g} s {target:>7g} s {value / target:>8.0%}")


if __name__ == "__main__":
    main()
