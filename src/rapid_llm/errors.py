"""The one exception tree.

::

    RapidError                 every error that is meant for a user; one sentence
    ├── InputError        (2)  no hardware could answer it: unknown name, contradiction, does not divide
    ├── InfeasibleError   (3)  this hardware cannot: memory, routes, nothing meets the objective
    └── InternalError     (4)  a fault of ours

The numbers are the exit codes of the command line.
"""

from collections.abc import Iterable, Sequence
from typing import ClassVar


class RapidError(Exception):
    """One sentence: what, where, what was given, why it is wrong, what to try.

    ``str(error)`` is ``file:line: message``; ``field`` is the dotted path of the input at fault.
    """

    exit_code: ClassVar[int] = 4

    def __init__(
        self,
        message: str,
        *,
        field: str | None = None,
        file: str | None = None,
        line: int | None = None,
        suggestions: Sequence[str] = (),
    ) -> None:
        super().__init__(message)
        self.message = message
        self.field = field
        self.file = file
        self.line = line
        self.suggestions = tuple(suggestions)

    def __str__(self) -> str:
        if self.file is None:
            return self.message
        place = self.file if self.line is None else f"{self.file}:{self.line}"
        return f"{place}: {self.message}"


class InputError(RapidError):
    """No hardware could answer this input."""

    exit_code = 2


class InfeasibleError(RapidError):
    """This hardware cannot do what was asked."""

    exit_code = 3


class InternalError(RapidError):
    """A fault of RAPID-LLM."""

    exit_code = 4


def nearest(name: str, known: Iterable[str], limit: int = 3) -> list[str]:
    """The known names that a person may have meant by ``name``, best first; may be empty."""
    from difflib import get_close_matches

    by_folded: dict[str, str] = {}
    for candidate in known:
        by_folded.setdefault(candidate.casefold(), candidate)
    folded = name.casefold()
    close = get_close_matches(folded, by_folded, n=limit, cutoff=0.6)
    prefixed = sorted((c for c in by_folded if folded and (c.startswith(folded) or folded.startswith(c))), key=len)
    return [by_folded[c] for c in dict.fromkeys([*close, *prefixed])][:limit]


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """``Did you mean 'x'?`` for the nearest known name, or an empty string."""
    close = nearest(name, known, limit=1)
    return f"Did you mean '{close[0]}'?" if close else ""


def unknown_name(what: str, name: str, known: Iterable[str]) -> str:
    """``precision 'bf61' is unknown. Did you mean 'bf16'? Known: bf16, fp16.``"""
    names = list(known)
    hint = did_you_mean(name, names)
    return " ".join(filter(None, [f"{what} '{name}' is unknown.", hint, f"Known: {', '.join(names)}."]))
