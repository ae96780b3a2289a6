"""Which rows of kernel tables belong to which kernel implementation, and which implementation an engine runs."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, cast

import numpy as np
from numpy.typing import NDArray

from rapid_llm import operators, runtime
from rapid_llm.errors import InputError, nearest, shortened
from rapid_llm.execution.pricing import implementation
from rapid_llm.operators.kernels import AttentionKernel
from rapid_llm.validation.kernels.columns import Cells

Rule = Mapping[str, str]

RUNTIMES: Final[Mapping[str, str]] = {"vllm": "vllm", "sglang": "sglang", "trtllm": "tensorrt-llm"}
"""Framework of a table to the runtime whose choice of kernels is scored."""

FAMILIES: Final[Mapping[str, str]] = {
    "kernel_gemm": "gemm", "kernel_context": "attention", "kernel_generation": "attention", "kernel_mla": "attention",
    "kernel_moe": "moe", "kernel_ssm": "scan",
}  # fmt: skip

CONVOLUTION: Final = "convolution"
"""The family of some rows of tables of recurrent mixers."""

KEYS: Final[Mapping[str, tuple[str, ...]]] = {
    "kernel_gemm": ("n", "k"),
    "kernel_context": ("heads", "kv_heads", "head_dim", "isl"),
    "kernel_generation": ("heads", "kv_heads", "head_dim", "batch"),
    "kernel_mla": ("heads", "batch"),
    "kernel_moe": ("hidden", "inter", "experts", "topk"),
    "kernel_ssm": ("num_v_heads", "head_v_dim", "batch_size"),
}
"""Columns whose text the split rule hashes: the shape of a layer, so that an unseen row is of an unseen layer."""


@dataclass(frozen=True)
class KernelSlice:
    """The rows that one kernel implementation is fitted and scored on.

    ``dtype``: the compute dtype; ``rules``: a row belongs where all patterns of any rule match its cells (regular
    expressions of whole cells, ``!`` negates; ``gpu`` and ``source``, the spelled-out kernel, count as cells);
    ``priors`` replace the common ones of the fit.
    """

    kernel: str
    schema: str
    dtype: str
    rules: tuple[Rule, ...]
    priors: Mapping[str, float] | None = None

    @property
    def family(self) -> str:
        """The family of the kernel's columns."""
        return CONVOLUTION if operators.kernel(self.kernel).family == CONVOLUTION else FAMILIES[self.schema]

    def rows(self, cells: Cells) -> NDArray[np.bool_]:
        """The rows of a table that belong to this slice."""
        return np.asarray(np.any([_all(cells, rule) for rule in self.rules], axis=0))


def _all(cells: Cells, rule: Rule) -> NDArray[np.bool_]:
    found = np.ones(len(next(iter(cells.values()))), dtype=bool)
    for column, pattern in rule.items():
        words, inverse = np.unique(cells[column], return_inverse=True)
        wanted = re.compile(pattern.removeprefix("!"))
        hits = np.array([(wanted.fullmatch(str(word)) is None) == pattern.startswith("!") for word in words])
        found &= hits[inverse]
    return found


def _gemm(kernel: str, compute: str, /, **rule: str) -> KernelSlice:
    return KernelSlice(kernel, "kernel_gemm", compute, (rule,))


def _context(kernel: str, dtype: str, *rules: Rule) -> KernelSlice:
    both = {"attn_dtype": dtype, "kv_dtype": dtype, "isl": "!1"}  # one new token is a row of decode
    return KernelSlice(kernel, "kernel_context", dtype, tuple({**both, **rule} for rule in rules))


def _cached(kernel: str, source: str) -> KernelSlice:
    """16-bit products over an 8-bit cache."""
    rule = {"attn_dtype": "bf16", "kv_dtype": "fp8", "isl": "!1", "source": source}
    return KernelSlice(kernel, "kernel_context", "bf16", (rule,))


def _decode(kernel: str, kv: str, *rules: Rule) -> KernelSlice:
    return KernelSlice(kernel, "kernel_generation", "bf16", tuple({"kv_dtype": kv, **rule} for rule in rules))


def _moe(kernel: str, compute: str, /, *, tiled: bool = False, **rule: str) -> KernelSlice:
    return KernelSlice(kernel, "kernel_moe", compute, (rule,), _TILED if tiled else None)


def _mla(kernel: str, op: str, cache: str = ".*", framework: str = "trtllm", source: str = ".*") -> KernelSlice:
    rule = {"op": op, "mla_dtype": "bf16", "kv_dtype": cache, "framework": framework, "source": source}
    return KernelSlice(kernel, "kernel_mla", "bf16", (rule,))


def _scan(kernel: str, priors: Mapping[str, float] | None = None, /, **rule: str) -> KernelSlice:
    several = {"op": "gdn", "kernel_source": _TRITON_SCANS, **rule}
    rules = ({**several, "phase": "context", "seq_len": "!1"}, {**several, "phase": "!context"})
    return KernelSlice(kernel, "kernel_ssm", "bf16", rules, priors)


def _convolution(kernel: str, *rules: Rule) -> KernelSlice:
    """Prompts and the decode update; prompts of one token are left out, since no engine launches
    the kernel for them.
    """
    prompt = {"kernel_source": "causal_conv1d_fn", "phase": "context", "seq_len": "!1"}
    update = {"kernel_source": "causal_conv1d_update", "phase": "generation", "op": "!kda"}
    return KernelSlice(kernel, "kernel_ssm", "bf16", tuple(kind | dict(r) for kind in (prompt, update) for r in rules))


_FA2 = "vllm_flash_attn|vllm_flash_attn_fa2|torch_sdpa"
_FLASH_DECODE = "vllm_flash_attn|torch_sdpa"
_NEWER_FA2 = "vllm_flash_attn_fa2"
_SGLANG_FA3 = "fa3|flash_attention"
_EIGHT_BIT = "vllm_flash_attn.*|vllm_flashinfer_fi.*"
_GENERATED = "trtllm_mha|vllm_flashinfer_trtllmdecode"
_ON_B200 = f"{_GENERATED}|flashinfer"
_TRITON_HEADS = {"source": "triton", "gpu": "l40s", "window": "0"}
_ODD_HEADS = {"source": "triton", "gpu": "!l40s", "head_dim": "192|512"}
_TRITON_SCANS = "fused_recurrent.*|chunk_gated_delta_rule|.*triton.*"
_FLASHINFER_SCANS = ".*flashinfer.*|.*packed_decode.*"
_CUTLASS_MOE = ({"dtype": "bf16", "framework": "trtllm"}, {"dtype": "bf16", "source": "torch_grouped_mm"})
_TILED = {"setup": 2e-5, "rate": 0.6, "step": 3e-7}  # several launches, tiles of generated code
_CHUNKED = {"setup": 2e-5, "bandwidth": 0.2}  # several launches, and intermediate states a chunk

SLICES: Final[tuple[KernelSlice, ...]] = (
    _gemm("cublas", "bf16", dtype="bf16"),
    _gemm("cublas-fp8", "fp8", dtype="fp8", source="torch_scaled_mm"),
    _gemm("cutlass-fp8", "fp8", dtype="fp8", framework="sglang"),
    _gemm("vllm-fp8", "fp8", dtype="fp8", framework="vllm"),
    _gemm("trtllm-fp8", "fp8", dtype="fp8", framework="trtllm"),
    _gemm("deepgemm", "fp8_block", dtype="fp8_block", framework="sglang"),
    _gemm("trtllm-fp8-block", "fp8_block", dtype="fp8_block", framework="trtllm"),
    _gemm("cutlass-nvfp4", "nvfp4", dtype="nvfp4", framework="vllm"),
    _gemm("sglang-nvfp4", "nvfp4", dtype="nvfp4", framework="sglang"),
    _gemm("trtllm-nvfp4", "nvfp4", dtype="nvfp4", framework="trtllm"),
    _gemm("aiter-fp4", "mxfp4", dtype="mxfp4"),
    _gemm("marlin-int4-wo", "int4_wo", dtype="int4_wo"),
    _gemm("int8-wo", "int8_wo", dtype="int8_wo"),
    _gemm("int8-smoothquant", "int8", dtype="sq"),
    _context("vllm-fa2", "bf16", {"source": _FA2}),
    _context("flashinfer", "bf16", {"source": "flashinfer", "framework": "sglang"}),
    _context("sglang-fa3", "bf16", {"source": _SGLANG_FA3}),
    _context("vllm-fa3", "bf16", {"source": "vllm_flash_attn_fa3"}),
    _context("trtllm-gen", "bf16", {"source": "vllm_flashinfer_trtllmprefill"}),
    _context("sglang-gen", "bf16", {"source": "trtllm_mha"}),
    _context("sglang-gen-fp8", "fp8", {"source": "trtllm_mha"}),
    *(_context(f"fa{n}", "bf16", {"source": f"flash_attn_{n}"}) for n in (2, 3, 4)),  # of training: one's own tables
    _context("sglang-triton-attention", "bf16", _TRITON_HEADS, {**_ODD_HEADS, "kv_dtype": "bf16|fp8"}),
    _cached("vllm-triton-attention", "vllm_triton_attn"),  # 16-bit products of what the cache holds
    _cached("trtllm-fmha-kv8", "torch_flow"),
    _cached("vllm-fa3-kv8", "vllm_flash_attn_fa3"),
    _cached("sglang-gen-kv8", "trtllm_mha"),
    _cached("trtllm-gen-kv8", "vllm_flashinfer_trtllmprefill"),
    _cached("flashinfer-kv8", "flashinfer"),
    _cached("vllm-flashinfer-kv8", "vllm_flashinfer_fiprefill"),
    _context("fa3-fp8", "fp8", {"source": "fa3"}),
    _context("trtllm-fmha", "bf16", {"source": "torch_flow"}),
    _context("trtllm-fmha-fp8", "fp8", {"source": "torch_flow"}),
    _decode("flash-decode", "bf16", {"source": _FLASH_DECODE}, {"source": _NEWER_FA2, "window": "0"}),
    _decode("sglang-fa3-decode", "bf16", {"source": _SGLANG_FA3}),
    _decode("flashinfer-decode", "bf16", {"source": "flashinfer", "gpu": "!b200-sxm"}),
    _decode("flash-decode-fp8", "fp8", {"source": _EIGHT_BIT, "gpu": "!b200-sxm"}),
    _decode("sglang-fa3-decode-fp8", "fp8", {"source": "fa3"}),
    _decode("flashinfer-decode-fp8", "fp8", {"source": "flashinfer", "gpu": "!b200-sxm"}),
    _decode("vllm-fa3-decode", "bf16", {"source": "vllm_flash_attn_fa3"}),
    _decode("trtllm-gen-decode", "bf16", {"source": _ON_B200, "gpu": "b200-sxm", "framework": "vllm"}),
    _decode("sglang-gen-decode", "bf16", {"source": _ON_B200, "gpu": "b200-sxm", "framework": "sglang"}),
    _decode("trtllm-gen-decode-fp8", "fp8", {"source": _GENERATED, "framework": "vllm"}),
    _decode("sglang-gen-decode-fp8", "fp8", {"source": _GENERATED, "framework": "sglang"}),
    _decode("sglang-triton-decode", "bf16", _TRITON_HEADS, _ODD_HEADS),
    _decode("vllm-triton-decode", "fp8", {"source": "vllm_triton_attn"}),
    _decode("trtllm-decode", "bf16", {"framework": "trtllm"}),
    _decode("trtllm-decode-fp8", "fp8", {"framework": "trtllm"}),
    _mla("mla", "context", "bf16"),
    _mla("mla-kv8", "context", "fp8"),
    _mla("mla-decode", "generation", "bf16"),
    _mla("mla-decode-kv8", "generation", "fp8"),
    _mla("trtllm-gen-mla", "context", "bf16", "sglang", "trtllm_mla"),
    _mla("trtllm-gen-mla-kv8", "context", "fp8", "sglang", "trtllm_mla"),
    _mla("trtllm-gen-mla-decode", "generation", "bf16", "sglang", "trtllm_mla"),
    _mla("trtllm-gen-mla-decode-kv8", "generation", "fp8", "sglang", "trtllm_mla"),
    _mla("fa3-mla-decode", "generation", "bf16", "sglang", "flash_attention"),
    _mla("fa3-mla-decode-kv8", "generation", "fp8", "sglang", "flash_attention"),
    _mla("triton-mla-decode", "generation", "bf16", "sglang", "triton"),
    KernelSlice("cutlass-moe", "kernel_moe", "bf16", _CUTLASS_MOE),
    _moe("cutlass-moe-fp8", "fp8", dtype="fp8", framework="trtllm"),
    _moe("deepgemm-moe", "fp8_block", dtype="fp8_block", framework="trtllm"),
    _moe("aiter-moe-fp8-block", "fp8_block", dtype="fp8_block", framework="aiter"),
    _moe("aiter-moe-mxfp4", "mxfp8", dtype="w4a8_mxfp4_mxfp8", framework="aiter"),
    _moe("cutlass-moe-nvfp4", "nvfp4", dtype="nvfp4", source=".*cutlass.*"),
    _moe("triton-moe", "bf16", tiled=True, dtype="bf16", source=".*fused_moe_triton|vllm_fused_moe"),
    _moe("vllm-triton-moe", "bf16", tiled=True, dtype="bf16", source="vllm_.*triton.*", gpu="!b200-sxm"),
    _moe("triton-moe-fp8", "fp8", tiled=True, dtype="fp8", source=".*triton.*", framework="vllm"),
    _moe("triton-moe-fp8-block", "fp8_block", tiled=True, dtype="fp8_block", source=".*fused_moe_triton"),
    _moe("vllm-triton-moe-fp8-block", "fp8_block", tiled=True, dtype="fp8_block", source="vllm_.*triton_.*"),
    _moe("marlin-moe", "int4_wo", tiled=True, dtype="int4_wo", source=".*marlin.*"),
    _moe("triton-moe-dequantised", "mxfp4_wo", tiled=True, dtype="w4a16_mxfp4", source="sglang_fused_moe_triton.*"),
    _moe("mxfp4-moe", "mxfp4_wo", dtype="w4a16_mxfp4", source="sglang_flashinfer.*"),
    _moe("marlin-moe-mxfp4", "mxfp4_wo", tiled=True, dtype="w4a16_mxfp4", source="vllm_gptossmxfp4moe_marlin.*"),
    _moe("triton-moe-mxfp4", "mxfp4_wo", tiled=True, dtype="w4a16_mxfp4", source=".*oaitriton.*"),
    _moe("mxfp4-moe", "mxfp4_wo", dtype="w4a16_mxfp4", source="!.*marlin.*", framework="vllm"),
    _moe("trtllm-triton-moe-mxfp4", "mxfp4_wo", tiled=True, dtype="w4a16_mxfp4", source="moe_torch_flow"),
    _moe("flashinfer-moe-mxfp4", "mxfp8", dtype="w4a8_mxfp4_mxfp8", source="!moe_torch_flow"),
    _moe("flashinfer-moe", "bf16", dtype="bf16", source=".*trtllm_moe.*|.*trtllmbf16.*"),
    _moe(
        "flashinfer-moe-fp8-block", "fp8_block", tiled=True, dtype="fp8_block", source=".*trtllm_moe.*|.*trtllmfp8.*"
    ),
    _moe("flashinfer-moe-fp8", "fp8", dtype="fp8", source=".*trtllm_moe.*|.*trtllmfp8.*"),
    _moe("flashinfer-moe-nvfp4", "nvfp4", dtype="nvfp4", source=".*trtllm_moe.*|.*trtllmnvfp4.*"),
    _scan("flashinfer-gdn", framework="vllm", gpu="!l40s", kernel_source=_FLASHINFER_SCANS),
    _scan("fla", _CHUNKED, framework="!trtllm"),
    _scan("trtllm-fla", framework="trtllm"),
    _convolution("causal-conv1d", {"framework": "trtllm"}, {"framework": "sglang", "version": "0.5.10"}),
    _convolution("sglang-conv1d", {"framework": "sglang", "version": "!0.5.10"}),
    _convolution("vllm-conv1d", {"framework": "vllm"}),
)  # fmt: skip
"""The rows of each kernel. Not modelled: Triton fall-backs for odd head sizes, block-fp8 GEMM of vLLM (bound by the
host), MLA kernels of vLLM and SGLang, convolutions of Kimi delta attention (of queries, keys and values
apart: three launches, timed with the gaps of the host; its update is a later kernel), verification of drafts."""


def slice_of(kernel: str) -> KernelSlice:
    """The slice that a kernel is fitted on; InputError where there is none."""
    found = next((one for one in SLICES if one.kernel == kernel), None)
    if found is None:
        raise _undescribed(kernel)
    return found


def _undescribed(kernel: str) -> InputError:
    """The error for a kernel without a table: it names kernels of its family that have one, the nearest first."""
    family = operators.kernel(kernel).family
    known = list(dict.fromkeys(one.kernel for one in SLICES if operators.kernel(one.kernel).family == family))
    if not known:
        return InputError(f"no table describes kernel {kernel}, nor another of family {family}.", field="kernel")
    engines = sorted((name for name in known if name.endswith(f"-{kernel}")), key=len)  # vllm-fa3 of fa3
    close = engines or nearest(kernel, known)
    named = list(dict.fromkeys([*close, *known]))
    meant = f" Did you mean '{close[0]}'?" if close else ""
    return InputError(
        f"no table describes kernel {kernel}.{meant} Of family {family}, tables describe {shortened(named, 6)}.",
        field="kernel",
        suggestions=close,
    )


def runs(part: KernelSlice, framework: str, table_dtype: str, architecture: str) -> list[str]:
    """What the versions of a framework's runtime run for the rows of a slice, the current version first: a table was
    measured with the version of its time.
    """
    engine = RUNTIMES.get(framework, "")
    names = [name for name in runtime.names() if name.partition("@")[0] == engine]
    found = (chosen(part, name, table_dtype, architecture) for name in names)
    return [kernel for kernel in found if kernel is not None]


def chosen(part: KernelSlice, engine: str, table_dtype: str, architecture: str) -> str | None:
    """The implementation that a runtime runs for the rows of a slice; None where it names none."""
    family = part.family
    try:
        name = implementation(runtime.load(engine), family, part.dtype, architecture)
    except InputError:
        return None
    kernel = operators.kernel(name).shaped(architecture)
    if other := getattr(kernel, "otherwise", None):
        instead = cast(AttentionKernel, operators.kernel(other))
        if part.kernel in (other, instead.decode):
            name, kernel = other, instead.shaped(architecture)
    if part.schema == "kernel_mla":
        kernel = operators.kernel(cast(AttentionKernel, kernel).latent or name).shaped(architecture)
        if "decode" in part.kernel:
            attention = cast(AttentionKernel, kernel)
            return attention.decode_8bit if table_dtype.endswith("kv8") else attention.decode
        name = kernel.name
    if part.schema == "kernel_generation":
        attention = cast(AttentionKernel, kernel)
        small = table_dtype.endswith("kv8") or table_dtype == "fp8"
        return attention.decode_8bit if small and attention.decode_8bit else attention.decode
    if table_dtype.endswith("kv8") and isinstance(kernel, AttentionKernel):
        return kernel.cached_8bit or name
    return name
