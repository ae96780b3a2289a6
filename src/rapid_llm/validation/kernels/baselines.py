"""What simpler models say of a set of kernel rows: three constants a set, and published errors of structural fits."""

from collections.abc import Mapping
from typing import Final

import numpy as np
from numpy.typing import NDArray

_ROWS: Final = 1500  # more rows move no constant
_ROUNDS: Final = 3  # of a grid that narrows around its best point
_POINTS: Final = 9  # a side of it

PUBLISHED: Final[Mapping[tuple[str, str, str], float]] = {
    ("gemm", "latency", "a100-sxm/bf16/trtllm"): 0.1,
    ("gemm", "latency", "a100-sxm/bf16/vllm"): 0.1,
    ("gemm", "latency", "a100-sxm/bf16/sglang"): 0.1,
    ("gemm", "latency", "a100-sxm/int8_wo/trtllm"): 0.113,
    ("gemm", "latency", "a100-sxm/sq/trtllm"): 0.16,
    ("gemm", "latency", "h100-sxm/bf16/trtllm"): 0.073,
    ("gemm", "latency", "h100-sxm/bf16/vllm"): 0.073,
    ("gemm", "latency", "h100-sxm/bf16/sglang"): 0.073,
    ("gemm", "latency", "h100-sxm/fp8/trtllm"): 0.1,
    ("gemm", "latency", "h100-sxm/fp8/vllm"): 0.23,
    ("gemm", "latency", "h100-sxm/fp8/sglang"): 0.18,
    ("gemm", "latency", "h100-sxm/fp8_block/trtllm"): 0.138,
    ("gemm", "latency", "h100-sxm/fp8_block/sglang"): 0.138,
    ("gemm", "latency", "b200-sxm/bf16/trtllm"): 0.097,
    ("gemm", "latency", "b200-sxm/bf16/vllm"): 0.097,
    ("gemm", "latency", "b200-sxm/bf16/sglang"): 0.097,
    ("gemm", "latency", "b200-sxm/fp8/trtllm"): 0.11,
    ("gemm", "latency", "b200-sxm/fp8/vllm"): 0.28,
    ("gemm", "latency", "b200-sxm/fp8/sglang"): 0.17,
    ("gemm", "latency", "b200-sxm/nvfp4/trtllm"): 0.17,
    ("gemm", "latency", "b200-sxm/nvfp4/vllm"): 0.14,
    ("gemm", "latency", "b200-sxm/nvfp4/sglang"): 0.15,
    ("gemm", "latency", "l40s/bf16/trtllm"): 0.165,
    ("gemm", "latency", "l40s/bf16/vllm"): 0.165,
    ("gemm", "latency", "l40s/bf16/sglang"): 0.165,
    ("gemm", "latency", "l40s/fp8/trtllm"): 0.16,
    ("gemm", "latency", "l40s/fp8/vllm"): 0.32,
    ("gemm", "latency", "l40s/fp8/sglang"): 0.25,
    ("attention", "context", "a100-sxm/bf16/trtllm"): 0.049,
    ("attention", "context", "a100-sxm/bf16/vllm"): 0.115,
    ("attention", "context", "a100-sxm/bf16/sglang"): 0.089,
    ("attention", "context", "h100-sxm/bf16/trtllm"): 0.091,
    ("attention", "context", "h100-sxm/fp8/trtllm"): 0.128,
    ("attention", "context", "h100-sxm/bf16/vllm"): 0.134,
    ("attention", "context", "h100-sxm/bf16/sglang"): 0.143,
    ("attention", "context", "h100-sxm/fp8/sglang"): 0.156,
    ("attention", "context", "b200-sxm/bf16/trtllm"): 0.097,
    ("attention", "context", "b200-sxm/fp8/trtllm"): 0.089,
    ("attention", "context", "b200-sxm/bf16/vllm"): 0.18,
    ("attention", "context", "l40s/bf16/trtllm"): 0.21,
    ("attention", "context", "l40s/bf16/vllm"): 0.18,
    ("attention", "generation", "a100-sxm/bf16/vllm"): 0.176,
    ("attention", "generation", "a100-sxm/bf16/sglang"): 0.12,
    ("attention", "generation", "a100-sxm/bf16/trtllm"): 0.34,
    ("attention", "generation", "h100-sxm/bf16/vllm"): 0.116,
    ("attention", "generation", "h100-sxm/bf16-kv8/vllm"): 0.143,
    ("attention", "generation", "h100-sxm/bf16/sglang"): 0.15,
    ("attention", "generation", "h100-sxm/bf16-kv8/sglang"): 0.152,
    ("attention", "generation", "h100-sxm/bf16/trtllm"): 0.3,
    ("attention", "generation", "h100-sxm/bf16-kv8/trtllm"): 0.26,
    ("attention", "generation", "b200-sxm/bf16/vllm"): 0.081,
    ("attention", "generation", "b200-sxm/bf16-kv8/vllm"): 0.108,
    ("attention", "generation", "b200-sxm/bf16/trtllm"): 0.137,
    ("attention", "generation", "b200-sxm/bf16-kv8/trtllm"): 0.146,
    ("attention", "generation", "b200-sxm/bf16/sglang"): 0.181,
    ("attention", "generation", "b200-sxm/bf16-kv8/sglang"): 0.143,
    ("attention", "generation", "l40s/bf16/vllm"): 0.42,
    ("attention", "generation", "l40s/bf16-kv8/vllm"): 0.2,
}
"""Suite, metric and group to the mean error of a structural model fitted on the very rows (up to seven constants a
set: tiles, waves, splits, occupancy), from a study of the same public tables."""


def three_constants(
    flops: NDArray[np.float64], moved: NDArray[np.float64], seconds: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Predictions of t = t0 + max(F / a, B / b), its constants chosen on these very rows by a grid on log error."""
    pick = np.linspace(0, len(seconds) - 1, min(_ROWS, len(seconds))).round().astype(int)
    f, b, target = flops[pick], moved[pick], np.log(seconds[pick])
    shortest = float(seconds.min())
    centre = np.log([shortest, np.max(f / seconds[pick]), np.max(b / seconds[pick])])
    width = np.array([1.5, 2.0, 2.0])
    for _ in range(_ROUNDS):
        axes = [middle + np.linspace(-side, side, _POINTS) for middle, side in zip(centre, width, strict=True)]
        grid = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, 3)
        errors = [np.abs(np.log(_line(f, b, point)) - target).mean() for point in grid]
        centre, width = grid[int(np.argmin(errors))], width / 3.0
    return _line(flops, moved, centre)


def _line(flops: NDArray[np.float64], moved: NDArray[np.float64], point: NDArray[np.float64]) -> NDArray[np.float64]:
    start, rate, bandwidth = np.exp(point)
    return np.asarray(start + np.maximum(flops / rate, moved / bandwidth))
