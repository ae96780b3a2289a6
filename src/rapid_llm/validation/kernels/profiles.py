"""Layer profiles of other tools (Vidur, LLMServingSim) as kernel tables: what transfers to devices without a fit.

A profile names a layer of a model and its tokens; the GEMM or the attention behind it follows from the model.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Final

import numpy as np

from rapid_llm import hardware
from rapid_llm.validation.kernels.columns import Cells
from rapid_llm.validation.tables import Row, Table, integer, number

_HEAD: Final = 128
_MODELS: Final[Mapping[str, tuple[int, int, int, int]]] = {
    "meta-llama/Llama-3.1-8B": (4096, 32, 8, 14336),
    "Qwen/Qwen3-32B": (5120, 64, 8, 25600),
    "Qwen/Qwen3-30B-A3B-Instruct-2507": (2048, 32, 4, 768),
}
"""Hidden size, query and KV heads and MLP width of profiled models (their config.json); heads are 128 wide."""
_EXPERTS: Final[Mapping[str, tuple[int, int]]] = {"Qwen/Qwen3-30B-A3B-Instruct-2507": (128, 8)}
"""Experts, and experts of a token, of profiled mixtures."""
_DEVICES: Final = {"a100": "a100-sxm", "h100": "h100-sxm", "RTX4090": "rtx-4090", "RTXPRO6000": "rtx-pro-6000"}
_BF16: Final = {"dtype": "bf16", "attn_dtype": "bf16", "kv_dtype": "bf16", "window": "0", "head_dim": str(_HEAD)}

Read = tuple[str, dict[str, str]]
"""A schema and the cells of one row of it."""


def cells_of(table: Table) -> Iterator[tuple[str, Cells]]:
    """The kernel tables that a profile amounts to: schema and cells, ready for the suites."""
    reader = READERS[table.schema]
    found: dict[str, list[dict[str, str]]] = {}
    for index, row in enumerate(table.rows):
        for schema, cells in reader(row):
            found.setdefault(schema, []).append(_BF16 | cells | {"line": str(index + 2)})
    for schema, rows in found.items():
        yield schema, {name: np.array([row[name] for row in rows]) for name in rows[0]}


def _device(name: str) -> str:
    return hardware.accelerator(_DEVICES.get(name, name)).name


def _common(device: str, tool: str, source: str, microseconds: float) -> dict[str, str]:
    kernel = {"framework": tool, "version": "", "kernel": source, "source": source}
    return {"gpu": _device(device), "latency_us": repr(microseconds), **kernel}


def _vidur(row: Row) -> Iterator[Read]:
    """Vidur: all projections of a layer in one row, ms; the MLP is gated but for Phi-2."""
    hidden, ff, heads, kv, tp = (integer(row, c) or 1 for c in ("d_model", "d_ff", "n_head", "n_kv_head", "tp"))
    head, gated = hidden // heads, 1 if "phi" in row["model"] else 2
    sides = {
        "attn_pre_proj_ms": ((heads + 2 * kv) * head // tp, hidden),
        "attn_post_proj_ms": (hidden, heads * head // tp),
        "mlp_up_proj_ms": (gated * ff // tp, hidden),
        "mlp_down_proj_ms": (hidden, ff // tp),
    }
    for column, (n, k) in sides.items():
        time = number(row, column)
        if time:
            common = _common(row["device"], "vidur", "linear", time * 1e3)
            yield "kernel_gemm", {"m": row["tokens"], "n": str(n), "k": str(k), **common}


def _dense(row: Row) -> Iterator[Read]:
    """LLMServingSim: one layer a row; those that are matrix multiplications."""
    hidden, heads, kv, ff = _MODELS[row["model"]]
    tp, time = integer(row, "tp") or 1, number(row, "time_us")
    sides = {
        "qkv_proj": ((heads + 2 * kv) * _HEAD // tp, hidden),
        "o_proj": (hidden, heads * _HEAD // tp),
        "gate_up_proj": (2 * ff // tp, hidden),
        "down_proj": (hidden, ff // tp),
    }
    if row["layer"] in sides and time:
        n, k = sides[row["layer"]]
        common = _common(row["hardware"], "llmservingsim", "linear", time)
        yield "kernel_gemm", {"m": row["tokens"], "n": str(n), "k": str(k), **common}


def _attention(row: Row) -> Iterator[Read]:
    """LLMServingSim: attention of one prefill chunk or of a decode batch; batches of both are left to serving."""
    _, heads, kv, _ = _MODELS[row["model"]]
    chunk, past, batch, length = (
        integer(row, c) or 0 for c in ("prefill_chunk", "kv_prefill", "n_decode", "kv_decode")
    )
    tp, time = integer(row, "tp") or 1, number(row, "time_us")
    shape = {"heads": str(heads // tp), "kv_heads": str(max(kv // tp, 1))}
    common = _common(row["hardware"], "llmservingsim", "vllm_flash_attn_fa2", time or 0.0)
    if time and chunk and not batch:
        yield "kernel_context", {"batch": "1", "isl": str(chunk), "prefix": str(past), **shape, **common}
    if time and batch and not chunk:
        yield "kernel_generation", {"batch": str(batch), "kv_len": str(length), **shape, **common}


def _experts(row: Row) -> Iterator[Read]:
    """LLMServingSim: the experts of a layer, its tokens dealt evenly to so many of them."""
    hidden, _, _, inter = _MODELS[row["model"]]
    experts, topk = _EXPERTS[row["model"]]
    time = number(row, "time_us")
    if time:
        shape = {"hidden": hidden, "inter": inter, "experts": experts, "topk": topk, "ep": 1}
        common = _common(row["hardware"], "llmservingsim", "vllm_triton_experts", time)
        dealt = {"tokens": row["tokens"], "tp": row["tp"], "dist": f"even{row['activated_experts']}"}
        yield "kernel_moe", {**{name: str(size) for name, size in shape.items()}, **dealt, **common}


READERS: Final[Mapping[str, Callable[[Row], Iterator[Read]]]] = {
    "profile_vidur": _vidur, "profile_dense": _dense, "profile_attention": _attention, "profile_experts": _experts,
}  # fmt: skip
