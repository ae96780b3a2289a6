"""Notices of work that takes long for a reason beyond the question, such as compiling: handed to a listener, as the
command line is.
"""

from collections.abc import Callable

_LISTENERS: list[Callable[[str], None]] = []


def listen(say: Callable[[str], None]) -> None:
    """Hand every notice from now on to ``say`` alone."""
    _LISTENERS[:] = [say]


def notify(message: str) -> None:
    """Hand one sentence to the listener; without one it is dropped, since a library prints nothing."""
    for say in _LISTENERS:
        say(message)
