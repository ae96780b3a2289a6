"""How fast kernels are priced: one alone, never asked before and asked again; one of a step's table; a million GEMMs.

``python benchmarks/kernels.py``: CPU seconds, best of a few rounds, beside the targets.
"""

import time
from collections.abc import Callable, Iterator

import numpy as np

from rapid_llm import hardware, operators

DEVICE = hardware.accelerator("h100-sxm")
ALONE, TABLE, MILLION, ROUNDS = 500, 512, 1_000_000, 5
COLD, CACHED, WHOLE = 50e-6, 1e-6, 4.0

Columns = dict[str, object]

KERNELS = {
    "gemm": ("cublas", {"m": 77, "n": 4096, "k": 4096, "groups": 1, "x_bytes": 2, "w_bytes": 2, "y_bytes": 2}),
    "attention": (
        "fa3",
        {"batch": 4, "new": 500, "past": 0, "heads": 32, "kv_heads": 8, "head_dim": 128, "v_head_dim": 128}
        | {"window": 0, "causal": 1, "backward": 0, "kv_bytes": 2, "shared_kv": 0},
    ),
    "decode": (
        "flash-decode",
        {"batch": 4, "new": 1, "past": 2000, "heads": 32, "kv_heads": 8, "head_dim": 128, "v_head_dim": 128}
        | {"window": 0, "causal": 1, "backward": 0, "kv_bytes": 2, "shared_kv": 0},
    ),
    "tiled moe": (
        "triton-moe",
        {"rows": 800, "hit": 8, "largest": 120, "pairs": 800, "tokens": 400, "experts": 8, "hidden": 4096}
        | {"inter": 14336, "matrices": 3, "x_bytes": 2, "w_bytes": 2},
    ),
    "moe": (
        "cutlass-moe",
        {"rows": 800, "hit": 8, "largest": 120, "pairs": 800, "tokens": 400, "experts": 8, "hidden": 4096}
        | {"inter": 14336, "matrices": 3, "x_bytes": 2, "w_bytes": 2},
    ),
    "scan": (
        "fla",
        {"batch": 4, "new": 500, "heads": 32, "key_dim": 128, "value_dim": 128, "state_bytes": 4, "backward": 0},
    ),
    "pointwise": ("fused-pointwise", {"read_bytes": 1e6, "write_bytes": 1e6, "flops": 1e5}),
}
"""What is measured: a kernel and the shape of one launch, of which the first size is varied."""
FAMILIES = {"decode": "attention", "tiled moe": "moe"}
"""The family of those that are not named after theirs."""


def seconds(run: Callable[[], object]) -> float:
    """CPU time of one call."""
    start = time.process_time()
    run()
    return time.process_time() - start


def price(family: str, kernel: str, columns: Columns) -> object:
    """What one accelerator takes in bf16."""
    return operators.price(family, columns, dtype="bf16", kernel=kernel, accelerator=DEVICE)


def gemms(count: int, seed: int) -> Columns:
    """Columns of random GEMMs."""
    rng = np.random.default_rng(seed)
    sides = {name: rng.integers(64, 30000, count).astype(float) for name in "nk"}
    rest = {"groups": 1, "x_bytes": 2, "w_bytes": 2, "y_bytes": 2}
    return {"m": rng.integers(1, 20000, count).astype(float), **sides, **rest}


def alone(name: str) -> tuple[float, float]:
    """Seconds of a lone kernel: a shape that was never asked, and one that was."""
    kernel, shape = KERNELS[name]
    first, family = next(iter(shape)), FAMILIES.get(name, name)
    best = [np.inf, np.inf]
    for turn in range(ROUNDS):
        shapes = [shape | {first: float(1000 * turn + n + 1)} for n in range(ALONE)]
        for again in (0, 1):
            took = seconds(lambda: [price(family, kernel, columns) for columns in shapes]) / ALONE  # noqa: B023
            best[again] = min(best[again], took)
    return best[0], best[1]


def figures() -> Iterator[tuple[str, float, float]]:
    """Name, seconds and target of each figure."""
    for name in KERNELS:
        cold, cached = alone(name)
        yield f"one {name} kernel, never asked before", cold, COLD
        yield f"one {name} kernel, asked again", cached, CACHED
    table = min(seconds(lambda s=s: price("gemm", "cublas", gemms(TABLE, s))) for s in range(ROUNDS)) / TABLE
    yield "one GEMM of a table of 512", table, COLD
    yield "1,000,000 distinct GEMM shapes", seconds(lambda: price("gemm", "cublas", gemms(MILLION, 9))), WHOLE


def main() -> None:
    """Print each figure with its target."""
    price("gemm", "cublas", gemms(8, 0))
    print(f"{'what':<42} {'measured':>10} {'target':>9} {'of target':>9}")
    for name, value, target in figures():
        print(f"{name:<42} {value:>8.3g} s {target:>7g} s {value / target:>8.0%}")


if __name__ == "__main__":
    main()
