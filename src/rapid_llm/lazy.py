"""Lazy names and values: names of rooms (PEP 562), so that a memory verdict does not wait for the import of what prices
kernels, and values that few look at.
"""

import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any, Generic, TypeVar

_Value = TypeVar("_Value")


class Later(Generic[_Value]):
    """A value that is computed when it is first asked for; equal to another whose value is equal."""

    __slots__ = ("_compute", "_found")
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, compute: Callable[[], _Value]) -> None:
        """What computes it."""
        self._compute: Callable[[], _Value] | None = compute
        self._found: _Value | None = None

    @property
    def value(self) -> _Value:
        """The value."""
        if self._compute is not None:
            self._found, self._compute = self._compute(), None
        return self._found  # type: ignore[return-value]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Later) and bool(self.value == other.value)

    def __repr__(self) -> str:
        return repr(self.value)


def exports(package: str, *modules: str) -> Callable[[str], Any]:
    """A ``__getattr__`` for a package: finds a name of its ``__all__`` in the first of its modules that defines it."""

    def find(name: str) -> Any:
        room = sys.modules[package]
        for module in modules if name in room.__all__ else ():
            found = vars(import_module(f"{package}.{module}"))
            if name in found:
                setattr(room, name, found[name])
                return found[name]
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return find
