"""How fast kernels are priced: one alone, one of a step's table, a million GEMM shapes. Targets stand beside."""

import time
from collections.abc import Callable

import numpy as np

from rapid_llm import hardware, operators

DEVICE = hardware.accelerator("h100-sxm")
TABLE, MILLION = 512, 1_000_000
TARGETS = {
    "cold price, one kernel of a table of 512": (50e-6, "s"),
    "1,000,000 distinct GEMM shapes": (4.0, "s"),
}


def gemms(count: int, seed: int) -> dict[str, object]:
    """Columns of random GEMMs."""
    rng = np.random.default_rng(seed)
    sides = {name: rng.integers(64, 30000, count).astype(float) for name in "nk"}
    return {
        "m": rng.integers(1, 20000, count).astype(float),
        **sides,
        "groups": 1,
        "x_bytes": 2,
        "w_bytes": 2,
        "y_bytes": 2,
    }


def seconds(run: Callable[[], object]) -> float:
    """Wall time of one call."""
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def price(columns: dict[str, object]) -> object:
    """Seconds of bf16 GEMMs on one accelerator."""
    return operators.price("gemm", columns, dtype="bf16", kernel="cublas", accelerator=DEVICE)


def main() -> None:
    """Print each figure with its target."""
    price(gemms(8, 0))
    figures = {
        "cold price, one kernel of a table of 512": min(
            seconds(lambda s=s: price(gemms(TABLE, s))) for s in range(1, 6)
        )
        / TABLE,
        "1,000,000 distinct GEMM shapes": seconds(lambda: price(gemms(MILLION, 9))),
    }
    for name, value in figures.items():
        target, unit = TARGETS[name]
        print(f"{name:<45} {value:10.3g} {unit}   target {target:g} {unit}")


if __name__ == "__main__":
    main()
