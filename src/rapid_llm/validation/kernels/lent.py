"""What a device would be told if nothing had been measured on it or on its architecture.

Its datasheet stays, and so does the structure of each kernel; ``sustained`` is what is typical of the architecture, and
the numbers of kernels are those of the architecture that stands in (``operators.kernels.NEAREST``), among those that
run it with the same instructions. A kernel that has numbers on no such architecture takes those of the one that it
follows, or of what the runtime runs on the architecture that stands in.
"""

from typing import Any, Final

from rapid_llm import hardware, operators
from rapid_llm.hardware import Accelerator
from rapid_llm.nouns import FrozenDict, replaced
from rapid_llm.operators import Kernel
from rapid_llm.operators.kernels import FALLBACK, NEAREST
from rapid_llm.validation.kernels.slices import RUNTIMES, KernelSlice, chosen

LENT: Final = "_lent"
"""Ends the metric of such figures."""

_FOLLOWS: Final = {
    "trtllm-decode": "sglang-fa3-decode", "trtllm-decode-fp8": "sglang-fa3-decode-fp8",
    "trtllm-gen-decode": "trtllm-decode-fp8", "sglang-gen-decode": "trtllm-decode-fp8",
    "trtllm-gen-decode-fp8": "sglang-fa3-decode-fp8", "sglang-gen-decode-fp8": "sglang-fa3-decode-fp8",
    "vllm-fa3-decode": "sglang-fa3-decode", "trtllm-fmha-kv8": "trtllm-fmha",
    "flashinfer-kv8": "sglang-fa3", "flashinfer-decode-fp8": "sglang-fa3-decode-fp8",
}  # fmt: skip
"""A kernel to the one that it is alike or took over from: the generated decode kernels of Blackwell follow the one
that TensorRT-LLM has on Hopper for caches of 8 bits, the first that copies tiles asynchronously (TMA), those over
such a cache FlashAttention-3's, which splits as they do, and so do TensorRT-LLM's, whose blocks on the two share a unit
by another number; where products over it are of 16 bits, they are those of the kernel without."""

_MEANING: Final = ("append", "shared", "waits", "warps", "rounds", "blocks", "lone_blocks")
"""Fields of a structure that say of what a number is a time or a share: they are lent with it."""


def without_its_fit(
    part: KernelSlice, device: str, framework: str, table_dtype: str
) -> tuple[Kernel, Accelerator] | None:
    """The kernel and the accelerator that price the rows of a slice then; None where no architecture lends numbers."""
    architecture = hardware.accelerator(device).architecture
    nearest = (*NEAREST.get(architecture, ()), FALLBACK)[0]
    own = operators.kernel(part.kernel).shaped(architecture)
    engines = chosen(part, RUNTIMES.get(framework, ""), table_dtype, nearest)
    for name in (part.kernel, _FOLLOWS.get(part.kernel), engines):
        numbers = _numbers(name, own, architecture) if name is not None else {}
        if name is not None and numbers:
            bare = replaced(own, variants=FrozenDict(), constants=FrozenDict(numbers))
            lender = operators.kernel(name).shaped(bare.stands_in(architecture))
            return replaced(bare, **_meaning(own, lender)), hardware.typical(device)
    return None


def _meaning(own: Kernel, lender: Kernel) -> dict[str, Any]:
    """The fields of ``_MEANING`` as the lender has them; the size of a block stays where both have one."""
    lent = {field: getattr(lender, field) for field in _MEANING if hasattr(own, field)}
    if lent.get("shared") and getattr(own, "shared", 0):
        del lent["shared"]
    return lent


def _numbers(name: str, own: Kernel, architecture: str) -> dict[str, Any]:
    """The numbers of a kernel on other architectures: for a kernel of its own only where instructions are the same."""
    lender = operators.kernel(name)
    known: dict[str, Any] = getattr(lender, "constants")  # noqa: B009 - every kind of kernel has its own
    others = {other: numbers for other, numbers in known.items() if other != architecture}
    asked = _instructions(own)
    alike = {other: numbers for other, numbers in others.items() if _instructions(lender.shaped(other)) == asked}
    return alike if alike or name == own.name else others


def _instructions(kernel: Kernel) -> tuple[Any, ...]:
    """What multiplies: the instructions of a warp or of more, on how many bits, in how many blocks a unit."""
    return tuple(getattr(kernel, field, None) for field in ("warps", "product_bits", "blocks"))
