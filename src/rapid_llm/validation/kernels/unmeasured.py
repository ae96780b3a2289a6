"""What would be predicted for a device if nothing had been measured on it or on its architecture.

Its datasheet stays, and so does the structure of each kernel; ``sustained`` is what is typical of the architecture, and
the numbers of kernels are those of the architecture that stands in (``operators.kernels.NEAREST``), among those that
run it with the same instructions. A kernel that has numbers on no such architecture takes those of the one that it
follows, or of what the runtime runs on the architecture that stands in.
"""

from typing import Any, Final, cast

from rapid_llm import hardware, operators
from rapid_llm.hardware import Accelerator
from rapid_llm.nouns import FrozenDict, replaced
from rapid_llm.operators import Kernel
from rapid_llm.operators.kernels import FALLBACK, NEAREST, AttentionKernel, DecodeKernel
from rapid_llm.units import Si
from rapid_llm.validation.kernels.slices import RUNTIMES, KernelSlice, chosen

LENT: Final = "_lent"
"""Suffix of the metrics of such figures."""

_FOLLOWS: Final = {
    "trtllm-decode": "flash-decode-fp8", "trtllm-decode-fp8": "flash-decode-fp8",
    "trtllm-gen-decode": "trtllm-decode-fp8", "sglang-gen-decode": "trtllm-decode-fp8",
    "trtllm-gen-decode-fp8": "sglang-fa3-decode-fp8", "sglang-gen-decode-fp8": "sglang-fa3-decode-fp8",
    "vllm-fa3-decode": "sglang-fa3-decode", "trtllm-fmha-kv8": "trtllm-fmha",
    "flashinfer-kv8": "vllm-fa2", "flashinfer": "vllm-fa2", "trtllm-fmha-fp8": "trtllm-fmha",
    "flashinfer-decode-fp8": "sglang-fa3-decode-fp8",
}  # fmt: skip
"""A kernel to the one that it is alike or took over from: the generated decode kernels of Blackwell follow the one
that TensorRT-LLM has on Hopper for caches of 8 bits, the first that copies tiles asynchronously (TMA), those over
such a cache FlashAttention-3's, which splits as they do. So do TensorRT-LLM's own, whose blocks on the two share a unit
by another number: vLLM's, which has one launch before it, as they have. FlashInfer below Hopper is FlashAttention-2.
Where products over a cache of 8 bits are of 16, they are those of the kernel without; where they are of 8, they have
the rate of those of 16 on a faster pipe (``Rates.pipe``), so that what a near architecture has on 16 bits goes before
what a farther one has on 8."""

_ALONE: Final = "trtllm-decode"
"""The kernel whose query heads run alone, outside its groups, on every architecture."""

_MEANING: Final = ("append", "shared", "waits", "warps", "rounds", "blocks", "lone_blocks")
"""Fields of a structure that say of what a number is a time or a share: they are taken over with it."""


def without_its_fit(
    part: KernelSlice, device: str, framework: str, table_dtype: str
) -> tuple[Kernel, Accelerator] | None:
    """The kernel and the accelerator that then price the rows of a slice; None where no other architecture has
    numbers for it.
    """
    architecture = hardware.accelerator(device).architecture
    nearest = (*NEAREST.get(architecture, ()), FALLBACK)[0]
    own = operators.kernel(part.kernel).shaped(architecture)
    engines = chosen(part, RUNTIMES.get(framework, ""), table_dtype, nearest)
    follows = _FOLLOWS.get(part.kernel)
    names = [part.kernel, follows, engines]
    if follows and part.dtype == "fp8" and not _near(part.kernel, architecture):
        names = [follows, part.kernel, engines]
    for name in names:
        numbers = _numbers(name, own, architecture) if name is not None else {}
        if name is not None and numbers:
            bare = replaced(own, variants=FrozenDict(), constants=FrozenDict(numbers))
            lender = operators.kernel(name).shaped(bare.stands_in(architecture))
            lent = replaced(bare, **_meaning(own, lender))
            return _alone_as(_writing_as(lent, own, engines, nearest), lender, nearest), hardware.typical(device)
    return None


def _near(name: str, architecture: str) -> bool:
    """Whether a kernel has numbers on an architecture whose matrix instructions work alike."""
    known: dict[str, Any] = getattr(operators.kernel(name), "constants")  # noqa: B009 - every kind has its own
    return any(other in known for other in NEAREST.get(architecture, ()))


def _meaning(own: Kernel, lender: Kernel) -> dict[str, Any]:
    """The fields of ``_MEANING`` as the kernel whose numbers are taken has them; the size of a block stays where both
    have one.
    """
    lent = {field: getattr(lender, field) for field in _MEANING if hasattr(own, field)}
    if lent.get("shared") and getattr(own, "shared", 0):
        del lent["shared"]
    return lent


def _writing_as(lent: Kernel, own: Kernel, engines: str | None, nearest: str) -> Kernel:
    """A kernel whose pass that writes the cache is the engine's: where the lender has another, the number of what the
    engine runs on the nearest architecture."""
    if engines is None or not isinstance(lent, AttentionKernel) or not isinstance(own, AttentionKernel):
        return lent
    engine = operators.kernel(engines).shaped(nearest)
    if lent.append == own.append or getattr(engine, "append", None) != own.append:
        return lent
    token = engine.on(nearest).token
    constants = {name: replaced(numbers, token=token) for name, numbers in lent.constants.items()}
    return replaced(lent, append=own.append, constants=FrozenDict(constants))


def _alone_as(lent: Kernel, lender: Kernel, nearest: str) -> Kernel:
    """A kernel whose query heads may run alone, where the lender's never do: as those of the kernel that has numbers of
    them on every architecture, about 2,000 cycles an item and a tenth of the instructions on each."""
    shares = DecodeKernel.groups
    if not isinstance(lent, DecodeKernel) or not isinstance(lender, DecodeKernel):
        return lent
    if lent.groups == shares or lender.groups != shares:
        return lent
    alone = cast(DecodeKernel, operators.kernel(_ALONE).shaped(nearest))
    numbers = alone.on(nearest)
    found = {"lone_item": Si(numbers.lone_item / alone.lone_blocks), "lone_rate": Si(numbers.lone_rate)}
    constants = {name: replaced(one, **found) for name, one in lent.constants.items()}
    return replaced(lent, constants=FrozenDict(constants))


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
