"""What a device would be told if nothing had been measured on it or on its architecture.

Its datasheet stays, and so does the structure of each kernel; ``sustained`` is what is typical of the architecture, and
the numbers of kernels are those of the architecture that stands in (``operators.kernels.NEAREST``). A kernel that has
numbers on no other architecture takes those of what the runtime runs on the one that stands in.
"""

from typing import Any

from rapid_llm import hardware, operators
from rapid_llm.hardware import Accelerator
from rapid_llm.nouns import FrozenDict, replaced
from rapid_llm.operators import Kernel
from rapid_llm.operators.kernels import FALLBACK, NEAREST
from rapid_llm.validation.kernels.slices import KernelSlice, chosen

LENT = "_lent"
"""Ends the metric of such figures."""


def without_its_fit(
    part: KernelSlice, device: str, framework: str, table_dtype: str
) -> tuple[Kernel, Accelerator] | None:
    """The kernel and the accelerator that price the rows of a slice then; None where no architecture lends numbers."""
    architecture = hardware.accelerator(device).architecture
    nearest = (*NEAREST.get(architecture, ()), FALLBACK)[0]
    own = operators.kernel(part.kernel).shaped(architecture)
    for name in (part.kernel, chosen(part, framework, table_dtype, nearest)):
        numbers = _numbers(name, architecture) if name is not None else {}
        if numbers:
            bare = replaced(own, variants=FrozenDict(), constants=FrozenDict(numbers))
            return bare, hardware.typical(device)
    return None


def _numbers(name: str, architecture: str) -> dict[str, Any]:
    """The numbers of a kernel on other architectures."""
    known: dict[str, Any] = getattr(operators.kernel(name), "constants")  # noqa: B009 - every kind of kernel has its own
    return {other: numbers for other, numbers in known.items() if other != architecture}
