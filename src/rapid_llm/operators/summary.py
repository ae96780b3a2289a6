"""From the terms of a kernel's time to ``Prices``."""

from typing import Final

import numpy as np

from rapid_llm.operators.families import Column, Prices

_TINY: Final = float(np.finfo(float).tiny)


def summarise(
    fixed: float | Column, variable: Column, *, work: tuple[Column, Column], sides: tuple[Column, Column]
) -> Prices:
    """Prices of rows whose time is ``fixed`` + ``variable`` seconds.

    ``work`` is (FLOPs, HBM bytes), ``sides`` (compute, memory) in s.
    """
    return Prices(fixed + variable, *work, *sides, np.full_like(variable, fixed))


def join(compute: Column, memory: Column, p: float) -> Column:
    """The p-norm of two sides: p = 1 adds them, large p takes the larger."""
    larger = np.maximum(compute, memory)
    ratio = np.minimum(compute, memory) / np.maximum(larger, _TINY)
    return larger * (1.0 + ratio**p) ** (1.0 / p)
