"""numba's ``njit``, with a word before the first function of a process that no cache holds is compiled."""

from typing import Any

from numba import njit
from numba.core.event import Event, Listener, register

from rapid_llm.notices import notify

__all__ = ["njit"]

COMPILING = "compiling the flow engine, half a minute to a minute; later runs find it compiled"


class _Once(Listener):
    """numba reports what it compiles, not what it finds in its cache."""

    told = False

    def on_start(self, event: Event) -> Any:
        """Say so, the first time."""
        if not self.told:
            self.told = True
            notify(COMPILING)

    def on_end(self, event: Event) -> Any:
        """Nothing more to say."""


register("numba:compile", _Once())  # type: ignore[no-untyped-call]
