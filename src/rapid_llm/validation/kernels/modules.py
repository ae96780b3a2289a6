"""Whole latent-attention blocks: what their projections and their attention cost, each by its kernel."""

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from rapid_llm import hardware, operators
from rapid_llm.hardware import Accelerator
from rapid_llm.validation.kernels.columns import BYTES, Cells, mla, numbers

_HIDDEN, _QUERY_RANK, _RANK, _ROPE, _NOPE, _VALUE = 7168.0, 1536.0, 512.0, 64.0, 128.0, 128.0  # DeepSeek-V3
_PROJECTIONS: Final = {"bf16": "cublas", "fp8_block": "trtllm-fp8-block", "nvfp4": "trtllm-nvfp4"}
_NORMS: Final = 3.0  # of the query latent, the KV latent, and rotary with the write of the cache: small kernels

Array = NDArray[np.float64]


def module_seconds(cells: Cells) -> tuple[Array, Array, tuple[Array, Array]]:
    """Predicted seconds, datasheet roofline, and (FLOPs, bytes) of each block; cells of one accelerator and dtype.

    Down-projections of query and KV, query up-projection, KV up-projection (prefill) or the absorbed products of each
    head (decode), attention, output projection; norms and rotary as small streaming kernels.
    """
    device, decode = hardware.accelerator(str(cells["gpu"][0])), np.char.find(cells["op"], "generation") >= 0
    dtype = str(cells["gemm_dtype"][0])
    heads, batch = numbers(cells, "heads"), numbers(cells, "batch")
    tokens = batch * np.where(decode, 1.0, numbers(cells, "isl"))
    parts = [
        _gemm(device, dtype, tokens, _QUERY_RANK + _RANK + _ROPE, _HIDDEN),
        _gemm(device, dtype, tokens, heads * (_NOPE + _ROPE), _QUERY_RANK),
        _gemm(device, dtype, tokens, _HIDDEN, heads * _VALUE),
        _where(
            decode,
            _gemm(device, "bf16", tokens, _RANK, _NOPE, groups=heads),
            _gemm(device, dtype, tokens, heads * (_NOPE + _VALUE), _RANK),
        ),
        _where(decode, _gemm(device, "bf16", tokens, _VALUE, _RANK, groups=heads), _nothing(tokens)),
        _attention(device, cells),
        _small(device, tokens),
    ]
    seconds, floor, flops, moved = (np.sum([part[i] for part in parts], axis=0) for i in range(4))
    return seconds, floor, (flops, moved)


Part = tuple[Array, Array, Array, Array]


def _nothing(tokens: Array) -> Part:
    return (np.zeros_like(tokens),) * 4


def _where(mask: NDArray[np.bool_], first: Part, second: Part) -> Part:
    a, b, c, d = (np.where(mask, x, y) for x, y in zip(first, second, strict=True))
    return a, b, c, d


def _priced(family: str, columns: dict[str, Any], dtype: str, kernel: str, device: Accelerator) -> Part:
    prices = operators.price(family, columns, dtype=dtype, kernel=kernel, accelerator=device)
    floor = operators.roofline(family, columns, dtype=dtype, accelerator=device)
    return prices.seconds, floor.seconds, floor.flops, floor.hbm_bytes


def _gemm(device: Accelerator, dtype: str, m: Array, n: Any, k: Any, *, groups: Any = 1.0) -> Part:
    width = BYTES[dtype]
    columns = {"m": m, "n": n, "k": k, "groups": groups, "x_bytes": width, "w_bytes": width, "y_bytes": 2.0}
    return _priced("gemm", columns, dtype, _PROJECTIONS[dtype], device)


def _attention(device: Accelerator, cells: Cells) -> Part:
    return _priced("attention", mla(cells), "bf16", "mla", device)


def _small(device: Accelerator, tokens: Array) -> Part:
    size = tokens * (_QUERY_RANK + _RANK + _ROPE) * 2.0
    columns = {"read_bytes": size / _NORMS, "write_bytes": size / _NORMS, "flops": 0.0}
    one = _priced("pointwise", columns, "bf16", "fused-pointwise", device)
    a, b, c, d = (_NORMS * values for values in one)
    return a, b, c, d
