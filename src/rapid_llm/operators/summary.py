"""From the terms of a kernel's time to ``Prices``."""

from typing import Final

import numpy as np

from rapid_llm.operators.elementwise import larger, power, smaller, where, whole
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
    bound = whole(where(larger(compute, memory) < fixed, _LAUNCH, memory_side))
    return Prices(fixed + variable, flops, moved, compute, memory, bound)


def join(compute: Column, memory: Column, p: float) -> Column:
    """The p-norm of two sides: p = 1 adds them, large p takes the larger."""
    most = larger(compute, memory)
    ratio = larger(smaller(compute, memory) / larger(most, _TINY), _TINY)
    joined: Column = most * np.exp(np.log1p(power(ratio, p)) / p)
    return joined
