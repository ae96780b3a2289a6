"""What the scorecard calls the rows of a kernel table: their dtype and their metric."""

import numpy as np
from numpy.typing import NDArray

from rapid_llm.validation.kernels.columns import Cells


def dtypes_of(schema: str, cells: Cells) -> NDArray[np.str_]:
    """The dtype part of a group's name; ``kv8`` marks a cache of 8 bits under wider products."""
    match schema:
        case "kernel_gemm" | "kernel_moe":
            return cells["dtype"]
        case "kernel_context" | "kernel_generation":
            return _paired(cells["attn_dtype"], cells["kv_dtype"])
        case "kernel_mla":
            plain = _paired(cells["mla_dtype"], cells["kv_dtype"])
            projections = cells["gemm_dtype"]
            return np.where(projections == "", plain, np.char.add(np.char.add(plain, "-"), projections))
        case _:
            return np.full(len(cells["latency_us"]), "bf16")


def _paired(products: NDArray[np.str_], cache: NDArray[np.str_]) -> NDArray[np.str_]:
    return np.where((cache == "fp8") & (products != "fp8"), np.char.add(products, "-kv8"), products)


def metrics_of(schema: str, cells: Cells) -> NDArray[np.str_]:
    """The metric of each row."""
    count = len(cells["latency_us"])
    match schema:
        case "kernel_context":
            return np.full(count, "context")
        case "kernel_generation":
            return np.full(count, "generation")
        case "kernel_moe":
            even = np.char.startswith(cells["dist"], "even")
            return np.where(even, "even", np.where(cells["dist"] == "bal", "balanced", "power_law"))
        case "kernel_mla":
            module = np.char.startswith(cells["op"], "module")
            kernel = np.where(np.char.find(cells["op"], "generation") >= 0, "generation", "context")
            return np.where(module, "module", kernel)
        case "kernel_ssm":
            update = np.where(cells["phase"] == "context", "convolution", "convolution update")
            return np.where(np.char.startswith(cells["kernel_source"], "causal_conv1d"), update, "latency")
        case _:
            return np.full(count, "latency")
