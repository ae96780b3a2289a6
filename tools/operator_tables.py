"""Measured kernel tables as columns of operator families: which rows belong to which kernel implementation."""

import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from rapid_llm import hardware, operators

GPUS = {"a100_sxm": "a100-sxm", "h100_sxm": "h100-sxm", "b200_sxm": "b200-sxm", "l40s": "l40s"}
Columns = dict[str, NDArray[np.float64]]
_BYTES = {"bf16": 2.0, "fp8": 1.0, "fp8_block": 1.0 + 4 / 128**2, "nvfp4": 0.5625, "int8_wo": 1.0, "int4_wo": 0.52,
          "sq": 1.0, "w4a16_mxfp4": 0.53125, "w4a8_mxfp4_mxfp8": 0.53125}  # fmt: skip


@dataclass(frozen=True)
class Sample:
    """Rows of one table, framework and dtype: columns of a family and measured seconds; ``split`` per row."""

    label: str
    family: str
    accelerator: str
    dtype: str
    columns: Columns
    seconds: NDArray[np.float64]
    split: NDArray[np.str_]
    kind: str = "stream"

    def take(self, index: NDArray[np.generic]) -> "Sample":
        """A subset of rows."""
        columns = {name: values[index] for name, values in self.columns.items()}
        return replace(self, columns=columns, seconds=self.seconds[index], split=self.split[index])

    def half(self, name: str) -> "Sample":
        """The rows of one side of the split."""
        return self.take(np.flatnonzero(self.split == name))

    def some(self, count: int) -> "Sample":
        """At most ``count`` rows, evenly spread in time."""
        order = np.argsort(self.seconds, kind="stable")
        return self.take(order[np.linspace(0, len(order) - 1, min(count, len(order))).round().astype(int)])


@dataclass(frozen=True)
class Slice:
    """The rows that one kernel implementation is fitted on.

    ``where`` is a pandas query per framework over the table's columns and ``source`` (the spelled-out kernel source);
    ``dtype`` the compute dtype; ``key`` the columns whose text the split rule hashes; ``free`` the fitted fields;
    ``priors`` replace the common ones.
    """

    kernel: str
    table: str
    where: str
    dtype: str
    columns: Callable[[pd.DataFrame], Columns]
    key: tuple[str, ...]
    free: tuple[str, ...]
    priors: tuple[tuple[str, float], ...] = ()

    def source(self, samples: list[Sample]) -> str:
        """One line about the data behind a fit."""
        rows = sum(int((s.split == "fit").sum()) for s in samples)
        return f"{rows} rows of the public aiconfigurator tables ({self.table}; {', '.join(s.label for s in samples)})"


def gemm_columns(d: pd.DataFrame) -> Columns:
    """Columns of a GEMM table: 16-bit output; activations 16 bit under weight-only quantisation."""
    weight = d["dtype"].map(_BYTES).to_numpy(float)
    one = np.ones(len(d))
    x = np.where(d["dtype"].str.endswith("_wo"), 2.0, weight)
    return {
        "m": _f(d.m),
        "n": _f(d.n),
        "k": _f(d.k),
        "groups": one,
        "x_bytes": x,
        "w_bytes": weight,
        "y_bytes": 2 * one,
    }


def context_columns(d: pd.DataFrame) -> Columns:
    """Columns of a causal prefill table."""
    return _attention(d, new=_f(d.isl), past=_f(d.prefix))


def decode_columns(d: pd.DataFrame) -> Columns:
    """Columns of a decode table; ``kv_len`` counts the query itself."""
    return _attention(d, new=np.ones(len(d)), past=np.maximum(_f(d.kv_len) - 1.0, 1.0))


def _attention(d: pd.DataFrame, new: NDArray[np.float64], past: NDArray[np.float64]) -> Columns:
    zero = np.zeros(len(d))
    return {
        "batch": _f(d.batch), "new": new, "past": past, "heads": _f(d.heads), "kv_heads": _f(d.kv_heads),
        "head_dim": _f(d.head_dim), "v_head_dim": _f(d.head_dim), "window": _f(d.window), "causal": zero + 1.0,
        "backward": zero, "kv_bytes": d.kv_dtype.map(_BYTES).to_numpy(float), "shared_kv": zero,
    }  # fmt: skip


def mla_columns(d: pd.DataFrame) -> Columns:
    """Columns of MLA tables (KV rank 512, rope 64): un-absorbed prefill, absorbed decode."""
    decode = d.op.str.contains("generation").to_numpy()
    zero = np.zeros(len(d))
    return {
        "batch": _f(d.batch), "new": np.where(decode, 1.0, _f(d.isl)),
        "past": np.where(decode, np.maximum(_f(d.isl) + _f(d.prefix) - 1.0, 1.0), _f(d.prefix)), "heads": _f(d.heads),
        "kv_heads": np.where(decode, 1.0, _f(d.heads)), "head_dim": np.where(decode, 576.0, 192.0),
        "v_head_dim": np.where(decode, 512.0, 128.0), "window": zero, "causal": zero + 1.0, "backward": zero,
        "kv_bytes": d.kv_dtype.map(_BYTES).to_numpy(float), "shared_kv": decode * 1.0,
    }  # fmt: skip


@lru_cache(maxsize=4096)
def _hot_rank(tokens: int, topk: int, experts: int, ep: int, dist: str) -> tuple[float, float]:
    """Token-expert pairs and experts with tokens of the most loaded expert rank (mean of draws)."""
    local = max(experts // ep, 1)
    if dist == "bal":
        stride = -(-experts // topk)
        first = np.arange(tokens) if tokens >= stride else np.arange(tokens) * stride // tokens
        chosen = (first[:, None] + np.arange(topk) * stride) % experts
        load = np.bincount(chosen.ravel(), minlength=experts)[:local]
        return float(load.sum()), float((load > 0).sum())
    exponent = float(dist.removeprefix("pl"))
    rng = np.random.default_rng(0)
    low, high = 1.0, max(0.8 * tokens, 1.0)
    found = []
    for _ in range(8):
        u = rng.random(experts)
        power = 1.0 - exponent
        draw = ((high**power - low**power) * u + low**power) ** (1.0 / power)  # inverse of the truncated power law
        load = np.sort(np.minimum(np.round(draw / draw.sum() * tokens * topk), tokens))[::-1]
        missing = int(tokens * topk - load.sum())
        if missing > 0:  # what rounding lost goes to the most loaded experts, one each
            load += np.bincount(np.arange(missing) % experts, minlength=experts)
        groups = rng.permutation(load)[: local * ep].reshape(ep, local)
        hot = groups[groups.sum(axis=1).argmax()]
        found.append((hot.sum(), (hot > 0).sum()))
    rows, hit = np.mean(found, axis=0)
    return float(rows), float(hit)


def moe_columns(d: pd.DataFrame) -> Columns:
    """Columns of a fused-expert table: rank 0 of the expert group."""
    cells = zip(d.tokens, d.topk, d.experts, d.ep, d.dist, strict=True)
    rows, hit = np.array([_hot_rank(int(t), int(k), int(e), int(p), s) for t, k, e, p, s in cells]).T
    weight = d["dtype"].map(_BYTES).to_numpy(float)
    x = np.where(d["dtype"].isin(["bf16", "int4_wo", "w4a16_mxfp4"]), 2.0, np.where(d["dtype"] == "nvfp4", 0.5625, 1.0))
    matrices = np.where(d["source"].str.contains("nongated"), 2.0, 3.0)
    return {
        "rows": rows, "hit": hit, "tokens": _f(d.tokens), "hidden": _f(d.hidden), "inter": _f(d.inter) / _f(d.tp),
        "matrices": matrices, "x_bytes": x, "w_bytes": weight,
    }  # fmt: skip


def scan_columns(d: pd.DataFrame) -> Columns:
    """Columns of gated-delta-rule tables: fp32 state per value head."""
    zero = np.zeros(len(d))
    new = np.where(d.phase == "context", _f(d.seq_len), 1.0)
    return {
        "batch": _f(d.batch_size), "new": new, "heads": _f(d.num_v_heads), "key_dim": _f(d.head_k_dim),
        "value_dim": _f(d.head_v_dim), "state_bytes": zero + 4.0, "backward": zero,
    }  # fmt: skip


def _f(series: "pd.Series[float]") -> NDArray[np.float64]:
    return np.asarray(series, dtype=np.float64)


def read(folder: Path, part: Slice) -> Iterator[Sample]:
    """The samples of a slice, one per GPU, framework and kernel source that has rows."""
    for gpu, accelerator in GPUS.items():
        path = folder / f"{part.table}_{gpu}.csv.gz"
        if not path.exists():
            continue
        table = _table(path)
        found = table.assign(gpu=accelerator).query(part.where)
        if "isl" in found and "context" in part.where + part.table:
            found = found[found.isl > 1]  # one new token is decode
        for framework, rows in found.groupby("framework"):
            keys = rows[list(part.key)].astype(str).agg(",".join, axis=1)
            split = np.array(["unseen" if zlib.crc32(k.encode()) % 2 else "fit" for k in keys])
            label = f"{accelerator} {framework} {rows.version.iloc[0]}"
            sample = Sample(
                label,
                _family(part.table),
                accelerator,
                part.dtype,
                part.columns(rows),
                _f(rows.latency_us) * 1e-6,
                split,
            )
            yield sample.take(np.flatnonzero(sound(sample)))


def sound(sample: Sample) -> NDArray[np.bool_]:
    """Rows that are not faster than the memory roofline with operands beyond L2."""
    device = hardware.accelerator(sample.accelerator)
    floor = operators.roofline(sample.family, sample.columns, dtype=sample.dtype, accelerator=device)
    l2 = device.memory.l2.capacity if device.memory.l2 else 0.0
    return (sample.seconds >= 0.95 * floor.memory_s) | (floor.hbm_bytes < l2)


def _family(table: str) -> str:
    prefixes = {"gemm": "gemm", "attn": "attention", "mla": "attention", "moe": "moe", "ssm": "scan"}
    return next(family for prefix, family in prefixes.items() if table.startswith(prefix))


@lru_cache(maxsize=8)
def _table(path: Path) -> pd.DataFrame:
    table = pd.read_csv(path)
    if "kernel" in table:
        names = pd.read_csv(path.parent / "kernels.csv.gz").set_index("kernel").kernel_source
        table["source"] = table.kernel.map(names).fillna(table.kernel)
    return table


_GEMM = ("setup", "rate", "bandwidth", "step", "epilogue", "overlap", "split")
_CONTEXT = ("setup", "rate", "bandwidth", "softmax", "item", "overlap")
_DECODE = ("setup", "rate", "bandwidth", "item", "combine", "occupancy", "overlap")
_LONE = ("setup", "rate", "bandwidth", "item", "lone_item", "combine", "occupancy")
_MOE = ("setup", "rate", "bandwidth", "expert", "overlap", "row_passes", "token_passes")
_SCAN = ("setup", "bandwidth", "chunk", "decode_setup", "decode_bandwidth")


_CAST = ("setup", "rate", "bandwidth", "step", "epilogue", "overlap", "row")


def _gemm(kernel: str, where: str, dtype: str) -> Slice:
    chosen = operators.kernel(kernel)
    free = _CAST if chosen.quantise and chosen.splits == (1,) else _GEMM  # type: ignore[attr-defined]
    return Slice(kernel, "gemm", where, dtype, gemm_columns, ("n", "k"), free)


def _context(kernel: str, where: str, dtype: str) -> Slice:
    return Slice(
        kernel, "attn_context", where, dtype, context_columns, ("heads", "kv_heads", "head_dim", "isl"), _CONTEXT
    )


def _decode(kernel: str, where: str) -> Slice:
    free = _LONE if operators.kernel(kernel).groups[0] > 1 else _DECODE  # type: ignore[attr-defined]
    return Slice(
        kernel, "attn_generation", where, "bf16", decode_columns, ("heads", "kv_heads", "head_dim", "batch"), free
    )


def _moe(kernel: str, where: str, dtype: str) -> Slice:
    return Slice(kernel, "moe", where, dtype, moe_columns, ("hidden", "inter", "experts", "topk"), _MOE)


_SIXTEEN = "attn_dtype == 'bf16' and kv_dtype == 'bf16'"
_ENGINES = "framework != 'trtllm' and not source.str.contains('triton')"
_OLDER = "gpu != 'b200-sxm'"
_FA3 = "source == 'fa3'"
_FLASH = "source != 'vllm_flash_attn_fa3' and source != 'flashinfer' and (framework == 'vllm' or gpu != 'a100-sxm')"
_GEN = "source in ['vllm_flashinfer_trtllmprefill']"
_FA2 = "gpu in ['a100-sxm', 'l40s'] and framework == 'vllm'"
_MLA = "mla_dtype == 'bf16' and framework == 'trtllm'"
_GDN = "op == 'gdn' and (seq_len > 1 or phase != 'context')"
_FLA = "kernel_source.str.contains('^fused_recurrent|^chunk_gated_delta_rule$|triton')"
_GDN_FLASHINFER = "framework == 'vllm' and gpu != 'l40s' and kernel_source.str.contains('flashinfer|packed_decode')"
_MLA_KEY = ("heads", "batch")
_CHUNKED = (("setup", 2e-5), ("bandwidth", 0.15))  # several launches and intermediate states a chunk
_GDN_KEY = ("num_v_heads", "head_v_dim", "batch_size")

# Not fitted: vLLM's block-fp8 GEMM (bound by the host), SGLang's B200 prefill (mislabelled windows), Triton fall-backs
# for odd head sizes, FlashAttention-2 decode with windows (another kernel), MLA of vLLM (host-bound).
SLICES: tuple[Slice, ...] = (
    _gemm("cublas", "dtype == 'bf16'", "bf16"),
    _gemm("cutlass-fp8", "dtype == 'fp8' and framework == 'sglang'", "fp8"),
    _gemm("vllm-fp8", "dtype == 'fp8' and framework == 'vllm'", "fp8"),
    _gemm("trtllm-fp8", "dtype == 'fp8' and framework == 'trtllm'", "fp8"),
    _gemm("deepgemm", "dtype == 'fp8_block' and framework == 'sglang'", "fp8_block"),
    _gemm("trtllm-fp8-block", "dtype == 'fp8_block' and framework == 'trtllm'", "fp8_block"),
    _gemm("cutlass-nvfp4", "dtype == 'nvfp4' and framework == 'vllm'", "nvfp4"),
    _gemm("sglang-nvfp4", "dtype == 'nvfp4' and framework == 'sglang'", "nvfp4"),
    _gemm("trtllm-nvfp4", "dtype == 'nvfp4' and framework == 'trtllm'", "nvfp4"),
    _gemm("marlin-int4-wo", "dtype == 'int4_wo'", "int4_wo"),
    _gemm("int8-wo", "dtype == 'int8_wo'", "int8_wo"),
    _gemm("int8-smoothquant", "dtype == 'sq'", "int8"),
    _context("fa2", f"{_SIXTEEN} and {_ENGINES} and {_FA2}", "bf16"),
    _context("flashinfer", f"{_SIXTEEN} and framework == 'sglang' and (source == 'flashinfer' or gpu == 'a100-sxm')", "bf16"),
    _context("fa3", f"{_SIXTEEN} and {_FA3}", "bf16"),
    _context("vllm-fa3", f"{_SIXTEEN} and source == 'vllm_flash_attn_fa3'", "bf16"),
    _decode("vllm-fa3-decode", f"{_SIXTEEN} and source == 'vllm_flash_attn_fa3'"),
    _context("trtllm-gen", f"{_SIXTEEN} and {_GEN}", "bf16"),
    _decode("trtllm-gen-decode", f"{_SIXTEEN} and {_ENGINES} and gpu == 'b200-sxm'"),
    _decode("trtllm-gen-decode-fp8", f"kv_dtype == 'fp8' and {_ENGINES} and gpu == 'b200-sxm' and framework == 'vllm'"),
    _decode("sglang-gen-decode-fp8", f"kv_dtype == 'fp8' and {_ENGINES} and gpu == 'b200-sxm' and framework == 'sglang'"),
    _context("fa3-fp8", "attn_dtype == 'fp8' and source == 'fa3'", "fp8"),
    _context("trtllm-fmha", f"{_SIXTEEN} and source == 'torch_flow'", "bf16"),
    _context("trtllm-fmha-fp8", "attn_dtype == 'fp8' and source == 'torch_flow'", "fp8"),
    _decode("flash-decode", f"{_SIXTEEN} and {_ENGINES} and {_OLDER} and {_FLASH} and (window == 0 or gpu != 'l40s')"),
    _decode("flashinfer-decode", f"{_SIXTEEN} and {_ENGINES} and {_OLDER} and source != 'vllm_flash_attn_fa3' and not ({_FLASH})"),
    _decode("flash-decode-fp8", f"kv_dtype == 'fp8' and {_ENGINES} and {_OLDER}"),
    _decode("trtllm-decode", f"{_SIXTEEN} and framework == 'trtllm'"),
    _decode("trtllm-decode-fp8", "kv_dtype == 'fp8' and framework == 'trtllm'"),
    Slice("mla", "mla", f"op == 'context' and {_MLA}", "bf16", mla_columns, _MLA_KEY, _CONTEXT),
    Slice("mla-decode", "mla", f"op == 'generation' and {_MLA}", "bf16", mla_columns, _MLA_KEY, _DECODE),
    _moe("cutlass-moe", "dtype == 'bf16' and framework == 'trtllm'", "bf16"),
    _moe("cutlass-moe-fp8", "dtype == 'fp8' and framework == 'trtllm'", "fp8"),
    _moe("deepgemm-moe", "dtype == 'fp8_block' and framework == 'trtllm'", "fp8_block"),
    _moe("cutlass-moe-nvfp4", "dtype == 'nvfp4' and source.str.contains('cutlass')", "nvfp4"),
    _moe("triton-moe", "dtype == 'bf16' and source.str.contains('triton|vllm_fused_moe')", "bf16"),
    _moe("triton-moe-fp8", "dtype in ['fp8', 'fp8_block'] and source.str.contains('triton')", "fp8"),
    _moe("marlin-moe", "dtype == 'int4_wo' and source.str.contains('marlin')", "int4_wo"),
    _moe("mxfp4-moe", "dtype == 'w4a16_mxfp4' and not source.str.contains('marlin')", "mxfp4_wo"),
    _moe("flashinfer-moe-mxfp4", "dtype == 'w4a8_mxfp4_mxfp8' and not source.str.contains('torch_flow')", "mxfp8"),
    _moe("flashinfer-moe", "dtype == 'bf16' and source.str.contains('trtllm_moe|trtllmbf16')", "bf16"),
    _moe("flashinfer-moe-fp8", "dtype in ['fp8', 'fp8_block'] and source.str.contains('trtllm_moe|trtllmfp8')", "fp8"),
    _moe("flashinfer-moe-nvfp4", "dtype == 'nvfp4' and source.str.contains('trtllm_moe|trtllmnvfp4')", "nvfp4"),
    Slice("trtllm-fla", "ssm", f"{_GDN} and {_FLA} and framework == 'trtllm'", "bf16", scan_columns, _GDN_KEY, _SCAN),
    Slice("fla", "ssm", f"{_GDN} and {_FLA} and framework != 'trtllm'", "bf16", scan_columns, _GDN_KEY, _SCAN, _CHUNKED),
    Slice("flashinfer-gdn", "ssm", f"{_GDN} and {_GDN_FLASHINFER}", "bf16", scan_columns, _GDN_KEY, _SCAN),
)
