"""Cells of a kernel table as columns of an operator family (``operators.COLUMNS``), one function a schema.

Cells are text arrays by column name; every function takes them and answers float64 arrays of the same length.
"""

from collections.abc import Callable, Mapping
from typing import Final

import numpy as np
from numpy.typing import NDArray

from rapid_llm.validation.kernels.loads import loads_of

Cells = Mapping[str, NDArray[np.str_]]
Columns = dict[str, NDArray[np.float64]]

BYTES: Final[Mapping[str, float]] = {
    "bf16": 2.0, "fp8": 1.0, "fp8_block": 1.0 + 4 / 128**2, "nvfp4": 0.5625, "mxfp4": 0.53125, "int8_wo": 1.0,
    "int4_wo": 0.52, "sq": 1.0, "w4a16_mxfp4": 0.53125, "w4a8_mxfp4_mxfp8": 0.53125,
}  # fmt: skip
"""Bytes per weight with its scales; also the dtypes that tables name."""
_SIXTEEN_BIT_ACTIVATIONS: Final = ("bf16", "int8_wo", "int4_wo", "w4a16_mxfp4")
_FINE_GROUPS: Final = ("0.5.14", "0.24.0")
"""Versions of SGLang and vLLM in whose tables 4-bit integers share a scale among 32, as those of Kimi-K2 do, the one
model that they were collected for (aiconfigurator, ``get_moe_quantization_module_config``)."""
_FINE: Final = 0.5 + 2 / 32  # bytes a weight
_UNGATED: Final = ("2688,1856,128", "4096,2688,512", "1024,2688,512", "8192,5120,512", "2048,5120,512")
"""Hidden size, width and experts of layers with squared ReLU and no gate (config.json of Nemotron-H and Nemotron 3)."""
_GATES_THROUGHOUT: Final = ("0.5.10", "0.14.0")  # of SGLang, of vLLM
_KEYS_ALONE: Final = ("0.5.10",)
"""Versions of SGLang in whose tables, as in all of TensorRT-LLM, the convolution of a gated delta net runs over the
keys alone (aiconfigurator, ``collect_gdn.py``): times that do not change with the value heads."""
_SELF_ALONE: Final = ("trtllm_mha", "0.5.10")
"""Kernel and version of SGLang whose run handed the table's window on as keys to the left of a query, where none is
-1: window 0 is the query's own key, and its rows take as long as a window of one (a quarter of them less than the
roofline of the whole triangle; those of the same shape with a window of 128 take as long or longer)."""
_HEAD_OF_LATENT: Final = (192.0, 128.0, 576.0, 512.0)  # q and v un-absorbed, q and v absorbed (DeepSeek)


def numbers(cells: Cells, name: str) -> NDArray[np.float64]:
    """A column as numbers."""
    return cells[name].astype(np.float64)


def mapped(cells: Cells, name: str, values: Mapping[str, float]) -> NDArray[np.float64]:
    """A column of words as numbers; words that the mapping lacks are nan."""
    words, inverse = np.unique(cells[name], return_inverse=True)
    return np.array([values.get(str(word), np.nan) for word in words])[inverse]


def gemm(cells: Cells) -> Columns:
    """16-bit output; 16-bit activations under weight-only quantisation."""
    weight = mapped(cells, "dtype", BYTES)
    one = np.ones_like(weight)
    x = np.where(np.isin(cells["dtype"], _SIXTEEN_BIT_ACTIVATIONS), 2.0, weight)
    sides = {name: numbers(cells, name) for name in "mnk"}
    return {**sides, "groups": one, "x_bytes": x, "w_bytes": weight, "y_bytes": 2.0 * one}


def context(cells: Cells) -> Columns:
    """Causal prefill; of ``_SELF_ALONE``, a window of 0 is one of a token."""
    columns = _attention(cells, new=numbers(cells, "isl"), past=numbers(cells, "prefix"))
    alone = (cells["source"] == _SELF_ALONE[0]) & (cells["version"] == _SELF_ALONE[1])
    return {**columns, "window": np.where(alone, np.maximum(columns["window"], 1.0), columns["window"])}


def generation(cells: Cells) -> Columns:
    """Decode; ``kv_len`` counts the query itself."""
    length = numbers(cells, "kv_len")
    return _attention(cells, new=np.ones_like(length), past=np.maximum(length - 1.0, 1.0))


def _attention(cells: Cells, new: NDArray[np.float64], past: NDArray[np.float64]) -> Columns:
    shape = {name: numbers(cells, name) for name in ("batch", "heads", "kv_heads", "head_dim", "window")}
    zero = np.zeros_like(new)
    return {
        **shape, "new": new, "past": past, "v_head_dim": shape["head_dim"], "causal": zero + 1.0, "backward": zero,
        "kv_bytes": mapped(cells, "kv_dtype", BYTES), "shared_kv": zero,
    }  # fmt: skip


def mla(cells: Cells) -> Columns:
    """Latent attention of DeepSeek: un-absorbed prefill, absorbed decode on the latent."""
    decode = np.char.find(cells["op"], "generation") >= 0
    new, past, heads = (numbers(cells, name) for name in ("isl", "prefix", "heads"))
    zero = np.zeros_like(new)
    q, v, absorbed_q, absorbed_v = _HEAD_OF_LATENT
    return {
        "batch": numbers(cells, "batch"), "new": np.where(decode, 1.0, new),
        "past": np.where(decode, np.maximum(new + past - 1.0, 1.0), past), "heads": heads,
        "kv_heads": np.where(decode, 1.0, heads), "head_dim": np.where(decode, absorbed_q, q),
        "v_head_dim": np.where(decode, absorbed_v, v), "window": zero, "causal": zero + 1.0, "backward": zero,
        "kv_bytes": mapped(cells, "kv_dtype", BYTES), "shared_kv": decode * 1.0,
    }  # fmt: skip


def moe(cells: Cells) -> Columns:
    """Fused experts: rank 0 of the expert group holds the most loaded experts."""
    x = np.where(
        np.isin(cells["dtype"], _SIXTEEN_BIT_ACTIVATIONS), 2.0, np.where(cells["dtype"] == "nvfp4", 0.5625, 1.0)
    )
    fine = (cells["dtype"] == "int4_wo") & np.isin(cells["version"], _FINE_GROUPS)
    return {
        **loads_of(cells), "hidden": numbers(cells, "hidden"), "inter": numbers(cells, "inter") / numbers(cells, "tp"),
        "matrices": _matrices(cells), "x_bytes": x,
        "w_bytes": np.where(fine, _FINE, mapped(cells, "dtype", BYTES)),
    }  # fmt: skip


def _matrices(cells: Cells) -> NDArray[np.float64]:
    """3, or 2 where kernel or layer is one without gate; older tables were run with gates throughout."""
    layer = np.array([",".join(row) for row in zip(*(cells[n] for n in ("hidden", "inter", "experts")), strict=True)])
    always = np.isin(cells["version"], _GATES_THROUGHOUT)
    plain = np.isin(layer, _UNGATED) & ~always & (cells["framework"] != "trtllm")
    return np.where(plain | (np.char.find(cells["source"], "nongated") >= 0), 2.0, 3.0)


def scan(cells: Cells) -> Columns:
    """Gated delta rule and Kimi delta attention: fp32 state per value head."""
    new = np.where(cells["phase"] == "context", np.nan_to_num(_blank(cells, "seq_len"), nan=1.0), 1.0)
    zero = np.zeros_like(new)
    return {
        "batch": numbers(cells, "batch_size"), "new": new, "heads": _blank(cells, "num_v_heads"),
        "key_dim": _blank(cells, "head_k_dim"), "value_dim": _blank(cells, "head_v_dim"), "state_bytes": zero + 4.0,
        "backward": zero,
    }  # fmt: skip


def convolution(cells: Cells) -> Columns:
    """Short convolutions: of keys, queries and values of a gated delta net (but ``_KEYS_ALONE``), of all three of Kimi
    delta attention, of values and both groups of Mamba-2."""
    new = np.where(cells["phase"] == "context", np.nan_to_num(_blank(cells, "seq_len"), nan=1.0), 1.0)
    keys, values = (_blank(cells, f"num_{x}_heads") * _blank(cells, f"head_{x}_dim") for x in "kv")
    alone = (cells["framework"] == "trtllm") | np.isin(cells["version"], _KEYS_ALONE)
    delta = np.where(alone, keys, 2.0 * keys + values)
    inner, states = (_blank(cells, a) * _blank(cells, b) for a, b in (("nheads", "head_dim"), ("n_groups", "d_state")))
    one = np.ones_like(new)
    return {
        "batch": numbers(cells, "batch_size"), "new": new,
        "channels": np.where(cells["op"] == "mamba2", inner + 2.0 * states, delta),
        "width": np.nan_to_num(_blank(cells, "d_conv"), nan=4.0), "x_bytes": 2.0 * one, "backward": 0.0 * one,
    }  # fmt: skip


def _blank(cells: Cells, name: str) -> NDArray[np.float64]:
    """A column as numbers, nan where it is blank or where the table has none."""
    if name not in cells:
        return np.full(len(cells["latency_us"]), np.nan)
    return np.where(cells[name] == "", "nan", cells[name]).astype(np.float64)


READERS: Final[Mapping[str, Callable[[Cells], Columns]]] = {
    "kernel_gemm": gemm, "kernel_context": context, "kernel_generation": generation, "kernel_mla": mla,
    "kernel_moe": moe, "kernel_ssm": scan, "convolution": convolution,
}  # fmt: skip
"""Schema of a table to the reader of its cells; ``convolution``: of those of its rows that are one."""
