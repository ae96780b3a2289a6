"""From the terms of a kernel's time to ``Prices``."""

import numpy as np

from rapid_llm.operators.families import BOUNDS, Column, Prices

_COMPUTE, _MEMORY, _LAUNCH = (BOUNDS.index(name) for name in ("compute", "memory", "launch"))


def summarise(
    fixed: float | Column, variable: Column, *, work: tuple[Column, Column], sides: tuple[Column, Column]
) -> Prices:
    """Prices of rows whose time is ``fixed`` + ``variable`` seconds; the largest of the three terms is the bound.

    ``work`` is (FLOPs, HBM bytes), ``sides`` (compute, memory) in s.
    """
    flops, moved = work
    compute, memory = sides
    bound = np.where(compute >= memory, _COMPUTE, _MEMORY)
    bound = np.where(np.maximum(compute, memory) < fixed, _LAUNCH, bound).astype(np.int8)
    return Prices(fixed + variable, flops, moved, compute, memory, bound)


def join(compute: Column, memory: Column, p: float) -> Column:
    """The p-norm of two sides: p = 1 adds them, large p takes the larger."""
    larger = np.maximum(compute, memory)
    ratio = np.minimum(compute, memory) / np.maximum(larger, np.finfo(float).tiny)
    return larger * (1.0 + ratio**p) ** (1.0 / p)
