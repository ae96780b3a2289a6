"""numba's ``njit``, with a word before the first function of a process that no cache holds is compiled, and without a
cache where none can be written."""

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba
from numba.core.event import Event, Listener, register

from rapid_llm.notices import notify

_Function = TypeVar("_Function", bound=Callable[..., Any])
KEPT = "later runs find it compiled"
NOT_KEPT = "no folder can keep it, so set NUMBA_CACHE_DIR to one that can"


def njit(*, cache: bool, **how: Any) -> Callable[[_Function], _Function]:
    """``numba.njit``: a read-only installation without a home compiles for one run."""

    def compiled(function: _Function) -> _Function:
        try:
            return cast(_Function, numba.njit(cache=cache, **how)(function))
        except RuntimeError:  # "no locator available"
            _ONCE.then = NOT_KEPT
            return cast(_Function, numba.njit(**how)(function))

    return compiled


class _Once(Listener):
    """numba reports what it compiles, not what it finds in its cache."""

    told = False
    then = KEPT

    def on_start(self, event: Event) -> Any:
        """Say so, the first time."""
        if not self.told:
            self.told = True
            notify(f"compiling a part of the flow engine, seconds to a minute; {self.then}")

    def on_end(self, event: Event) -> Any:
        """Nothing more to say."""


_ONCE = _Once()
register("numba:compile", _ONCE)  # type: ignore[no-untyped-call]
