"""Rooms whose names load on first use (PEP 562), so that a verdict on memory does not wait for what prices kernels."""

import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any


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
