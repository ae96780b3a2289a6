"""How the functions of the engine are compiled."""

from collections.abc import Callable
from typing import Any

from numba import njit

# Compiled once for all processes, and without reference counts: counting those of every array at every call costs
# several times more than the event loop's own work, and the loop allocates nothing.
compiled: Callable[[Any], Any] = njit(cache=True, _nrt=False, forceinline=True)  # type: ignore[call-overload]
