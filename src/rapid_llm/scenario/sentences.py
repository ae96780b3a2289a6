"""What the sentences of failing checks share: the row that they quote, and the values that they suggest."""

from collections.abc import Iterable, Mapping
from math import isqrt
from typing import Any

Row = Mapping[str, Any]
"""One plan: whole numbers and names by the names of its columns."""

MOST_TRIED = 12
"""So many values stand behind 'Try'."""


def listed(values: Iterable[int]) -> str:
    """Numbers separated by commas, at most MOST_TRIED of them."""
    return ", ".join(str(value) for value in list(values)[:MOST_TRIED])


def divisors(number: int, most: int | None = None) -> list[int]:
    """What divides a number, up to ``most``."""
    small = [d for d in range(1, isqrt(number) + 1) if number % d == 0]
    every = dict.fromkeys([*small, *(number // d for d in reversed(small))])
    return [d for d in every if d <= (most or number)]


def beside(number: int, step: int) -> str:
    """The multiples of ``step`` below and above a number: ``96 or 112``."""
    below = number // step * step
    return f"{below} or {below + step}" if below else str(step)


def nearby(number: int, values: list[int]) -> str:
    """The values next to a number, below and above it: ``64 or 96``."""
    next_to = [*[v for v in values if v < number][-1:], *[v for v in values if v > number][:1]]
    return " or ".join(map(str, next_to))
