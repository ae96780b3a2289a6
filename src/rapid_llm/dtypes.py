"""Number formats and precisions: bytes per element with scales, the matrix rate they run at, what a preset stands for.

A format's ``rate`` is the key of the accelerator's matrix rate. Weight-only formats are expanded in the kernel and
compute at 16 bit; formats that ``quantise`` want their activations scaled and rounded by a pass of its own.
"""

from collections.abc import Mapping
from dataclasses import dataclass as plain
from functools import lru_cache
from types import MappingProxyType
from typing import Annotated, Any, Final

from pydantic import AfterValidator
from pydantic.dataclasses import dataclass

from rapid_llm.errors import InputError, nearest, unknown_name
from rapid_llm.nouns import STRICT, hash_once, replaced, shared


@plain(frozen=True, slots=True)
class Dtype:
    """A number format: ``bytes`` per element, scales included; ``rate`` as in ``Accelerator.peak``.

    Training rounds operands in passes of their own. ``cast``: bytes that such a pass reads and writes per element of 16
    bits, ``searched`` of these to find its scale, which the kernel of a norm does as it writes; ``turned``: those of
    the copy of an operand that the weight gradient multiplies along the other dimension. ``kin``: the format whose
    kernels run this one, which differs from it in the groups that share a scale alone.
    """

    name: str
    bytes: float
    rate: str
    quantise: bool = False
    weight_only: bool = False
    cast: float = 0.0
    searched: float = 0.0
    turned: float = 0.0
    kin: str | None = None


_PLAIN: Final = (
    Dtype("bf16", 2.0, "bf16"),
    Dtype("fp16", 2.0, "fp16"),
    Dtype("fp32", 4.0, "fp32"),
    Dtype("tf32", 4.0, "tf32"),
    Dtype("fp64", 8.0, "fp64"),
    # OCP FP8 (e4m3, e5m2), one scale per tensor: its largest value is looked for, then it is cast; the same kernel
    # writes the turned copy.
    Dtype("fp8", 1.0, "fp8", quantise=True, cast=5.0, searched=2.0, turned=1.0),
    # With the largest values of earlier steps (Transformer Engine DelayedScaling) the cast is the one pass.
    Dtype("fp8_delayed", 1.0, "fp8", quantise=True, cast=3.0, turned=1.0),
    # One fp32 scale per row of the inner dimension: the turned copy has scales of its own, of the 16-bit values.
    Dtype("fp8_row", 1.0, "fp8", quantise=True, cast=3.0, turned=5.0),
    # fp32 scale per 128 x 128 block, DeepSeek-V3 3.3
    Dtype("fp8_block", 1.0 + 4 / 128**2, "fp8", quantise=True, cast=3.0, turned=1.0),
    # OCP MX v1.0: 8-bit scale per 32; both copies come of the 16-bit values, in one pass. Scales are written and
    # reordered for the matrix units by a kernel of their own (cuBLAS, block scaling factors layout).
    Dtype("mxfp8", 1.0 + 1 / 32, "mxfp8", quantise=True, cast=3.0 + 3 / 32, turned=1.0 + 3 / 32),
    Dtype("mxfp6", 0.75 + 1 / 32, "fp6", quantise=True, cast=2.75, turned=0.75),
    # NVIDIA: e4m3 scale per 16, and one of the tensor
    Dtype("nvfp4", 0.5 + 1 / 16, "fp4", quantise=True, cast=4.5, turned=2.5),
    Dtype("mxfp4", 0.5 + 1 / 32, "fp4", quantise=True),
    Dtype("int8", 1.0, "int8", quantise=True),  # SmoothQuant: a scale per row and column
    Dtype("int32", 4.0, "fp32"),
)
_WEIGHT_ONLY: Final = {
    "fp8_wo": 1.0,
    "int8_wo": 1.0,
    "int4_wo": 0.5 + (2 + 0.5) / 128,  # AWQ, GPTQ: 16-bit scale and 4-bit zero point per 128
    "int4_g32_wo": 0.5 + 2 / 32,  # symmetric, 16-bit scale per 32 (compressed-tensors pack-quantized of Kimi K2)
    # bitsandbytes: a maximum per 64, of 8 bits, and one of fp32 per 256 of these (QLoRA, arXiv 2305.14314)
    "nf4": 0.5 + (1 + 4 / 256) / 64,
    "nvfp4_wo": 0.5 + 1 / 16,
    "mxfp4_wo": 0.5 + 1 / 32,
    "q8_0": 34 / 32,  # llama.cpp block layouts: bytes of a block over its weights
    "q6_k": 210 / 256,
    "q5_k": 176 / 256,
    "q4_k": 144 / 256,
    # Q4_K_M: q6_k in half of the value and down projections (llama.cpp, use_more_bits), 29 % of a layer of Llama 3
    "q4_k_m": (144 + 0.5 * 0.29 * (210 - 144)) / 256,
    "q5_k_m": (176 + 0.5 * 0.29 * (210 - 176)) / 256,
    "q3_k_m": (110 + 0.36 * (144 - 110)) / 256,  # q4_k in value, output and down projections
    "iq4_xs": 136 / 256,
    "q4_0": 18 / 32,
}
"""Bytes per weight of formats that are expanded to 16 bits in the kernel."""
_KIN: Final = {"int4_g32_wo": "int4_wo", "nf4": "int4_wo"}

DTYPES: Final[Mapping[str, Dtype]] = MappingProxyType(
    {one.name: one for one in _PLAIN}
    | {name: Dtype(name, size, "fp16", weight_only=True, kin=_KIN.get(name)) for name, size in _WEIGHT_ONLY.items()}
)

_ALIASES: Final = MappingProxyType(
    {
        **dict.fromkeys(("bfloat16", "torch.bfloat16"), "bf16"),
        **dict.fromkeys(("float16", "half", "torch.float16"), "fp16"),
        **dict.fromkeys(("float32", "float", "torch.float32"), "fp32"),
        **dict.fromkeys(("fp8_e4m3", "fp8_e5m2", "float8_e4m3fn", "e4m3", "e5m2"), "fp8"),
        **dict.fromkeys(("w4a16", "awq", "gptq"), "int4_wo"),
        **dict.fromkeys(("w8a16",), "int8_wo"),
        **dict.fromkeys(("sq", "w8a8"), "int8"),
    }
)


@lru_cache(maxsize=256)
def dtype(name: str) -> Dtype:
    """The number format of a name or alias; InputError with the nearest otherwise."""
    found = DTYPES.get(_spelt(name))
    if found is None:
        raise InputError(unknown_name("number format", name, DTYPES), suggestions=nearest(name, DTYPES))
    return found


def _known(name: str) -> str:
    if _spelt(name) not in DTYPES:
        raise ValueError(unknown_name("", name, DTYPES).strip())
    return _spelt(name)


def _spelt(name: str) -> str:
    """A format as it is written here: ``fp8-block``, as precisions spell it, is ``fp8_block``."""
    plain = name.replace("-", "_")
    return next((found for one in (name, plain) if (found := _ALIASES.get(one, one)) in DTYPES), name)


DtypeName = Annotated[str, AfterValidator(_known)]
"""A field that names a number format; aliases become the format's own name."""


@dataclass(frozen=True, kw_only=True, config=STRICT)
class OptimizerState:
    """What the optimizer keeps per parameter, by format.

    ``master`` weights, ``moments`` (Adam has two), ``gradient`` a wider copy of the gradient (fp16 training).
    """

    master: DtypeName | None = None
    moments: tuple[DtypeName, ...] = ()
    gradient: DtypeName | None = None

    @property
    def bytes(self) -> float:
        """Bytes per parameter."""
        kept = [*self.moments, *filter(None, (self.master, self.gradient))]
        return sum(dtype(name).bytes for name in kept)


@hash_once
@dataclass(frozen=True, kw_only=True, config=STRICT)
class Precision:
    """Number formats of a job.

    ``compute`` of matrix products, ``weights`` as they are kept, ``activations`` between kernels, ``communication`` of
    activations between ranks, ``kv_cache``; training also ``gradients`` as they are accumulated, and ``optimizer``.
    ``experts``: weights of routed experts, where they are kept in another format than the rest; ``head``: of the LM
    head and the embedding, which most formats leave as ``activations``.
    ``name`` is the preset that it came from.
    """

    name: str = "custom"
    compute: DtypeName
    weights: DtypeName
    activations: DtypeName
    communication: DtypeName
    kv_cache: DtypeName
    gradients: DtypeName
    optimizer: OptimizerState
    experts: DtypeName | None = None
    head: DtypeName | None = None

    @property
    def of_experts(self) -> "Precision":
        """The formats of the routed experts, which multiply in theirs unless it is of weights alone."""
        if self.experts is None:
            return self
        compute = self.experts if dtype(self.experts).quantise else self.compute
        return shared(replaced(self, weights=self.experts, compute=compute, experts=None))


_ADAM_FP32: Final[dict[str, Any]] = {"master": "fp32", "moments": ["fp32", "fp32"]}


def _preset(width: str, **changed: Any) -> dict[str, Any]:
    """Everything in one 16-bit (or wider) format, but for what is changed."""
    fields = ("compute", "weights", "activations", "communication", "kv_cache", "gradients")
    optimizer = {"moments": [width, width]}
    return {**dict.fromkeys(fields, width), "optimizer": optimizer, **changed}


PRESETS: Final[Mapping[str, Mapping[str, Any]]] = MappingProxyType(
    {
        "bf16": _preset("bf16"),
        "fp16": _preset("fp16"),
        # ModelOpt checkpoints (per-tensor fp8, nvfp4) carry scales of an fp8 KV cache, and engines follow them.
        "fp8": _preset("bf16", compute="fp8", weights="fp8", kv_cache="fp8"),
        # Mixed-precision Adam, 18 bytes a parameter: Megatron-LM, distributed optimizer documentation.
        "bf16-mixed": _preset("bf16", gradients="fp32", optimizer=_ADAM_FP32),
        # 20 bytes a parameter: the same page; the fp16 gradient is copied to fp32.
        "fp16-mixed": _preset("fp16", optimizer={**_ADAM_FP32, "gradient": "fp32"}),
        # Transformer Engine, torchao: products in 8 or 4 bits, tensors and weights stay bf16; by how scales are found.
        "fp8-mixed": _preset("bf16", compute="fp8", gradients="fp32", optimizer=_ADAM_FP32),
        "fp8-delayed-mixed": _preset("bf16", compute="fp8_delayed", gradients="fp32", optimizer=_ADAM_FP32),
        "fp8-row-mixed": _preset("bf16", compute="fp8_row", gradients="fp32", optimizer=_ADAM_FP32),
        "fp8-block-mixed": _preset("bf16", compute="fp8_block", gradients="fp32", optimizer=_ADAM_FP32),
        "mxfp8-mixed": _preset("bf16", compute="mxfp8", gradients="fp32", optimizer=_ADAM_FP32),
        "nvfp4-mixed": _preset("bf16", compute="nvfp4", gradients="fp32", optimizer=_ADAM_FP32),
        "fp32": _preset("fp32"),
        "tf32": _preset("fp32", compute="tf32"),
        "fp8-block": _preset("bf16", compute="fp8_block", weights="fp8_block"),
        "mxfp8": _preset("bf16", compute="mxfp8", weights="mxfp8"),
        "nvfp4": _preset("bf16", compute="nvfp4", weights="nvfp4", kv_cache="fp8"),
        # ModelOpt's recipe for mixtures (nvfp4_experts_only-fp8_kv) leaves attention in 16 bit.
        "nvfp4-experts": _preset("bf16", experts="nvfp4", kv_cache="fp8"),
        "mxfp4": _preset("bf16", weights="mxfp4_wo"),
        # AMD Quark: products in 4 bits too, with scales of an fp8 KV cache
        "mxfp4-w4a4": _preset("bf16", compute="mxfp4", weights="mxfp4", kv_cache="fp8"),
        "mxfp4-experts": _preset("bf16", experts="mxfp4_wo"),
        "int8": _preset("fp16", compute="int8", weights="int8"),
        "fp8-wo": _preset("bf16", weights="fp8_wo"),
        "int8-wo": _preset("fp16", weights="int8_wo"),
        "int4-wo": _preset("fp16", weights="int4_wo"),
        # QLoRA: frozen weights, widened before each product
        "nf4": _preset("bf16", weights="nf4"),
        # Kimi K2 Thinking and its followers (config.json): experts of 4-bit weights in groups of 32, all else in 16,
        # 594 GB on disk; ``experts: int4_wo`` over it for groups of 128.
        "int4-experts": _preset("bf16", experts="int4_g32_wo"),
        "q8-0": _preset("fp16", weights="q8_0", head="q8_0"),
        "q6-k": _preset("fp16", weights="q6_k", head="q6_k"),
        "q5-k": _preset("fp16", weights="q5_k_m", head="q6_k"),
        "q4-k": _preset("fp16", weights="q4_k_m", head="q6_k"),
        "q3-k": _preset("fp16", weights="q3_k_m", head="q6_k"),
        "iq4-xs": _preset("fp16", weights="iq4_xs", head="q6_k"),
        "q4-0": _preset("fp16", weights="q4_0", head="q6_k"),
    }
)


def precision(name: str) -> Precision:
    """The precision of a preset; InputError with the nearest otherwise."""
    if name not in PRESETS:
        raise InputError(
            unknown_name("precision", name, PRESETS), field="precision", suggestions=nearest(name, PRESETS)
        )
    return Precision(name=name, **PRESETS[name])
