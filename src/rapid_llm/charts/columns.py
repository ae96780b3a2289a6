"""What the charts take: labelled numbers, trees of them, and series of points."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

Format = Callable[[float], str]
"""How a number is written, with its unit."""


def short(value: float) -> str:
    """Four significant digits."""
    return f"{value:.4g}"


@dataclass(frozen=True, slots=True)
class Part:
    """A labelled number of at least 0, with a remark that stands beside it."""

    label: str
    value: float
    note: str = ""


@dataclass(frozen=True, slots=True)
class Branch:
    """A labelled number and what it consists of."""

    label: str
    value: float
    children: tuple[Branch, ...] = ()
    note: str = ""

    def walk(self, depth: int = 0) -> Iterator[tuple[int, Branch]]:
        """This branch and all below with their depth, parents first."""
        yield depth, self
        for child in self.children:
            yield from child.walk(depth + 1)


@dataclass(frozen=True, slots=True)
class Series:
    """Points of one kind: ``x`` and ``y`` of equal length, an optional label for each, joined by a line or not;
    ``filled``: an area down to the axis instead; ``bound``: a dashed line that the others must stay below;
    ``marked``: a mark at each point, with its label."""

    label: str
    x: Sequence[float]
    y: Sequence[float]
    joined: bool = True
    labels: Sequence[str] = ()
    filled: bool = False
    bound: bool = False
    marked: bool = True
