"""What takes long for a reason that is not the question: said to whoever listens, as the command line does."""

from collections.abc import Callable

_LISTENERS: list[Callable[[str], None]] = []


def listen(say: Callable[[str], None]) -> None:
    """Hand every notice from now on to ``say``, and to nobody else."""
    _LISTENERS[:] = [say]


def notify(message: str) -> None:
    """Say one sentence to who listens; nobody does unless asked (a library keeps quiet)."""
    for say in _LISTENERS:
        say(message)
