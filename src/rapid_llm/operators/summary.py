"""From the terms of a kernel's time to ``Prices``."""

from typing import Final

import numpy as np

from rapid_llm.operators.elementwise import filled, larger, power, smaller
from rapid_llm.operators.families import Column, Prices

_TINY: Final = float(np.finfo(float).tiny)


def summarise(
    fixed: float | Column, variable: Column, *, work: tuple[Column, Column], sides: tuple[Column, Column]
) -> Prices:
    """Prices of rows whose time is ``fixed`` + ``variable`` seconds.

    ``work`` is (FLOPs, HBM bytes), ``sides`` (compute, memory) in s.
    """
    return Prices(fixed + variable, *work, *sides, filled(variable, fixed))


def join(compute: Column, memory: Column, p: float) -> Column:
    """The p-norm of two sides: p = 1 adds them, large p takes the larger."""
    most = larger(compute, memory)
    ratio = larger(smaller(compute, memory) / larger(most, _TINY), _TINY)
    joined: Column = most * np.exp(np.log1p(power(ratio, p)) / p)
    return joined
