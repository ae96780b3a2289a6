"""Functions of numpy as numbers and columns alike take them: those of numpy cost a number ten times its arithmetic."""

from collections.abc import Callable
from math import gcd
from typing import Final

import numpy as np
from numpy.typing import NDArray

from rapid_llm.operators.families import Column

Value = float | Column | NDArray[np.int8] | NDArray[np.int64] | NDArray[np.bool_]
Mask = bool | np.bool_ | NDArray[np.bool_]
_NUMBERS: Final = (float, int)  # np.float64 is a float
_TRUTHS: Final = (bool, np.bool_)
_SINGLE: Final = (*_TRUTHS, *_NUMBERS)


def larger(a: Value, b: Value) -> Column:
    """The larger of each pair."""
    if isinstance(a, _NUMBERS) and isinstance(b, _NUMBERS):
        return a if a >= b else b  # type: ignore[return-value]
    return np.maximum(a, b)


def smaller(a: Value, b: Value) -> Column:
    """The smaller of each pair."""
    if isinstance(a, _NUMBERS) and isinstance(b, _NUMBERS):
        return a if a <= b else b  # type: ignore[return-value]
    return np.minimum(a, b)


def where(mask: Mask, yes: Value, no: Value) -> Column:
    """``yes`` inside a mask, ``no`` outside."""
    if isinstance(mask, _TRUTHS):
        return yes if mask else no  # type: ignore[return-value]
    return np.where(mask, yes, no)


def power(base: Value, exponent: float) -> Column:
    """A positive ``base`` to an exponent, to the last bit the same for a number as in a column (``**`` is not)."""
    found: Column = np.exp(exponent * np.log(base))
    return found


def some(mask: Mask | float | Column) -> bool:
    """Whether a mask holds, or a column is not zero, anywhere."""
    return bool(mask if isinstance(mask, _SINGLE) else np.count_nonzero(mask))


def every(mask: Mask) -> bool:
    """Whether a mask holds everywhere."""
    return bool(mask if isinstance(mask, _TRUTHS) else np.count_nonzero(mask) == mask.size)


def filled(column: Value, value: float | Column) -> Column:
    """A value for each row of a column."""
    return value if isinstance(column, _NUMBERS) else np.full_like(column, value)  # type: ignore[return-value]


def mapped(function: Callable[..., float], *columns: Column) -> Column:
    """What a function of numbers gives for each row."""
    if isinstance(columns[0], _NUMBERS):
        return function(*columns)
    return np.array([function(*row) for row in zip(*(column.tolist() for column in columns), strict=True)])


def isin(column: Column, values: tuple[int, ...]) -> Mask:
    """Whether each entry is one of some values."""
    return column in values if isinstance(column, _NUMBERS) else np.isin(column, values)


def common_divisor(a: Value, b: int | NDArray[np.int64]) -> Column:
    """The greatest common divisor of each pair of whole numbers."""
    return gcd(int(a), int(b)) if isinstance(a, _NUMBERS) else np.gcd(a.astype(np.int64), b)  # type: ignore[return-value]


def widened(column: Value, axes: int) -> Column:
    """A column with further axes behind that of its rows; a number stays what it is."""
    return column if isinstance(column, _NUMBERS) else column[(..., *(None,) * axes)]  # type: ignore[return-value]
