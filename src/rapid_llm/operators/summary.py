"""From the terms of a kernel's time to ``Prices``."""

from typing import Final

import numpy as np

from rapid_llm.operators.families import BOUNDS, Column, Prices

_TINY: Final = float(np.finfo(float).tiny)
_LAUNCH: Final = BOUNDS.index("launch")


def summarise(
    fixed: float | Column, variable: Column, *, work: tuple[Column, Column], sides: tuple[Column, Column]
) -> Prices:
    """Prices of rows whose time is ``fixed`` + ``variable`` seconds; the largest of the three terms is the bound.

    ``work`` is (FLOPs, HBM bytes), ``sides`` (compute, memory) in s.
    """
    flops, moved = work
    compute, memory = sides
    memory_side = compute < memory  # as numbers: the first or the second of BOUNDS
    bound = np.where(np.maximum(compute, memory) < fixed, _LAUNCH, memory_side).astype(np.int8)
    return Prices(fixed + variable, flops, moved, compute, memory, bound)


def join(compute: Column, memory: Column, p: float) -> Column:
    """The p-norm of two sides: p = 1 adds them, large p takes the larger."""
    larger = np.maximum(compute, memory)
    ratio = np.minimum(compute, memory) / np.maximum(larger, _TINY)
    return larger * (1.0 + ratio**p) ** (1.0 / p)
