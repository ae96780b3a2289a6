"""One kernel: columns -> seconds on one accelerator. Kernel implementations are files in ``data``."""

from typing import TYPE_CHECKING

from rapid_llm.lazy import exports

if TYPE_CHECKING:
    from rapid_llm.operators.families import BOUNDS, COLUMNS, POINTWISE_KINDS, Column, Prices
    from rapid_llm.operators.kernels import Kernel, kernel, kernel_names, kernel_sources
    from rapid_llm.operators.pricing import check_shape, explain_gemm, price, price_rows, roofline
    from rapid_llm.operators.rates import Replay
    from rapid_llm.operators.tiling import explain
    from rapid_llm.operators.work import most_loaded, query_key_pairs

__all__ = [
    "BOUNDS", "COLUMNS", "POINTWISE_KINDS", "Column", "Kernel", "Prices", "Replay", "check_shape", "explain",
    "explain_gemm",
    "kernel", "kernel_names", "kernel_sources", "most_loaded", "price", "price_rows", "query_key_pairs",
    "roofline",
]  # fmt: skip

__getattr__ = exports(__name__, "families", "kernels", "pricing", "rates", "tiling", "work")
