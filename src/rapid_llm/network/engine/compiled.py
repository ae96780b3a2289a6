"""How the functions of the engine are compiled."""

from collections.abc import Callable
from importlib import resources
from typing import Any
from zlib import crc32

from rapid_llm.network.jit import njit

# Compiled once for all processes, and without reference counts: counting those of every array at every call costs
# several times more than the event loop's own work, and the loop allocates nothing. All in one piece: handing a state
# of many columns from function to function costs more than what most of them do.
compiled: Callable[[Any], Any] = njit(cache=True, _nrt=False, forceinline=True)


def checksum(package: str, modules: tuple[str, ...]) -> int:
    """Of modules whose functions are compiled together. A type that names it is another where any of them differs: a
    cached caller does not notice by itself that what it calls has changed.
    """
    folder = resources.files(package)
    own = resources.files(__package__).joinpath("compiled.py").read_bytes()
    return crc32(b"".join(folder.joinpath(f"{name}.py").read_bytes() for name in modules), crc32(own))
