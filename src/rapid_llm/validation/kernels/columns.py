"""Cells of a kernel table as columns of an operator family (``operators.COLUMNS``), one function a schema.

Cells are text arrays by column name; every function takes them and answers float64 arrays of the same length.
"""

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

Cells = Mapping[str, NDArray[np.str_]]
Columns = dict[str, NDArray[np.float64]]

BYTES: Final[Mapping[str, float]] = {
    "bf16": 2.0, "fp8": 1.0, "fp8_block": 1.0 + 4 / 128**2, "nvfp4": 0.5625, "int8_wo": 1.0, "int4_wo": 0.52, "sq": 1.0,
    "w4a16_mxfp4": 0.53125, "w4a8_mxfp4_mxfp8": 0.53125,
}  # fmt: skip
"""Bytes per weight with its scales; also the dtypes that tables name."""
_SIXTEEN_BIT_ACTIVATIONS: Final = ("bf16", "int8_wo", "int4_wo", "w4a16_mxfp4")
_DRAWS: Final = 8  # of a power law: the load of the hottest rank is their mean
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
    """Causal prefill."""
    return _attention(cells, new=numbers(cells, "isl"), past=numbers(cells, "prefix"))


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
    names = ("tokens", "topk", "experts", "ep")
    whole = [numbers(cells, name).astype(int) for name in names]
    loads = [hot_rank(*map(int, row), str(dist)) for *row, dist in zip(*whole, cells["dist"], strict=True)]
    rows, hit = np.array(loads, dtype=float).reshape(-1, 2).T
    x = np.where(
        np.isin(cells["dtype"], _SIXTEEN_BIT_ACTIVATIONS), 2.0, np.where(cells["dtype"] == "nvfp4", 0.5625, 1.0)
    )
    return {
        "rows": rows, "hit": hit, "tokens": numbers(cells, "tokens"), "hidden": numbers(cells, "hidden"),
        "inter": numbers(cells, "inter") / numbers(cells, "tp"),
        "matrices": np.where(np.char.find(cells["source"], "nongated") >= 0, 2.0, 3.0), "x_bytes": x,
        "w_bytes": mapped(cells, "dtype", BYTES),
    }  # fmt: skip


def scan(cells: Cells) -> Columns:
    """Gated delta rule and Kimi delta attention: fp32 state per value head."""
    new = np.where(cells["phase"] == "context", np.nan_to_num(_blank(cells, "seq_len"), nan=1.0), 1.0)
    zero = np.zeros_like(new)
    return {
        "batch": numbers(cells, "batch_size"), "new": new, "heads": _blank(cells, "num_v_heads"),
        "key_dim": _blank(cells, "head_k_dim"), "value_dim": _blank(cells, "head_v_dim"), "state_bytes": zero + 4.0,
        "backward": zero,
    }  # fmt: skip


def _blank(cells: Cells, name: str) -> NDArray[np.float64]:
    """A column as numbers, nan where it is blank."""
    return np.where(cells[name] == "", "nan", cells[name]).astype(np.float64)


@lru_cache(maxsize=8192)
def hot_rank(tokens: int, topk: int, experts: int, ep: int, dist: str) -> tuple[float, float]:
    """Token-expert pairs, and experts with any token, of the most loaded expert rank.

    ``dist``: ``bal`` deals tokens round-robin; ``pl<exponent>`` draws the experts' loads from a truncated power law
    (support 1 to 0.8 tokens), of which the mean over a few draws is taken.
    """
    local = max(experts // ep, 1)
    if dist == "bal":
        stride = -(-experts // topk)
        first = np.arange(tokens) if tokens >= stride else np.arange(tokens) * stride // tokens
        dealt = (first[:, None] + np.arange(topk) * stride) % experts
        load = np.bincount(dealt.ravel(), minlength=experts)[:local]
        return float(load.sum()), float((load > 0).sum())
    rng, exponent = np.random.default_rng(0), float(dist.removeprefix("pl"))
    found = [_drawn(tokens, topk, experts, exponent=exponent, rng=rng, local=local) for _ in range(_DRAWS)]
    rows, hit = np.mean(found, axis=0)
    return float(rows), float(hit)


def _drawn(
    tokens: int, topk: int, experts: int, *, exponent: float, rng: np.random.Generator, local: int
) -> tuple[float, float]:
    """Pairs and hit experts of the hottest rank in one draw of loads, by the inverse of the distribution."""
    power, high = 1.0 - exponent, max(0.8 * tokens, 1.0)
    draw = ((high**power - 1.0) * rng.random(experts) + 1.0) ** (1.0 / power)
    load = np.sort(np.minimum(np.round(draw / draw.sum() * tokens * topk), tokens))[::-1]
    missing = int(tokens * topk - load.sum())
    if missing > 0:  # what rounding lost goes to the most loaded experts, one each
        load = load + np.bincount(np.arange(missing) % experts, minlength=experts)
    groups = rng.permutation(load)[: experts // local * local].reshape(-1, local)
    hot = groups[groups.sum(axis=1).argmax()]
    return float(hot.sum()), float((hot > 0).sum())


READERS: Final[Mapping[str, Callable[[Cells], Columns]]] = {
    "kernel_gemm": gemm, "kernel_context": context, "kernel_generation": generation, "kernel_mla": mla,
    "kernel_moe": moe, "kernel_ssm": scan,
}  # fmt: skip
"""Schema of a table to the reader of its cells."""
