"""The one exception tree.

::

    RapidError                 every error that is meant for a user; one sentence
    ├── InputError        (2)  no hardware could answer it: unknown name, contradiction, does not divide
    ├── InfeasibleError   (3)  this hardware cannot: memory, routes, nothing meets the objective
    └── InternalError     (4)  a fault of ours

The numbers are the exit codes of the command line.
"""

import re
from collections.abc import Iterable, Sequence
from itertools import takewhile
from typing import ClassVar

from rapid_llm.synonyms import OURS, folded

QUOTED, QUOTED_PATH = 80, 400
"""Characters of a given value, and of a path, that a sentence repeats."""
_LONG = re.compile(rf"(?<![^\s(])'[^']{{{QUOTED + 1},}}'|\S{{{QUOTED + 1},}}")
"""A quoted value or a word that may be too long to repeat."""


def _cut(found: re.Match[str]) -> str:
    """The start of a long value, and what closes it."""
    text = found[0]
    most = QUOTED_PATH if "/" in text else QUOTED
    end = text[-3:][len(text[-3:].rstrip("').:,;")) :]
    return text if len(text) - len(end) <= most else f"{text[: most - 3]}...{end}"


class RapidError(Exception):
    """One sentence: what, where, what was given (no more than QUOTED of it), why it is wrong, what to try.

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
        message = _LONG.sub(_cut, message)
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
    """The known names that a person may have meant by ``name``, best first; may be empty.

    What other tools call a thing comes first, then names that begin as it does, then what is spelt alike; before that
    the longest name that it begins with, where nothing spelt alike begins like it for as long.
    """
    from difflib import get_close_matches

    by_key: dict[str, str] = {}
    for candidate in known:
        by_key.setdefault(folded(candidate), candidate)
    key = folded(name)
    called = [ours for ours in OURS.get(key, ()) if ours in by_key]
    close = get_close_matches(key, by_key, n=limit, cutoff=0.6)
    longer = sorted((c for c in by_key if key and c.startswith(key)), key=len)
    shorter = sorted((c for c in by_key if c and key.startswith(c)), key=len, reverse=True)
    whole = [c for c in shorter if not key[len(c) :][:1].isalnum()][:1]
    first = [c for c in whole if len(c) >= max((_begin_alike(key, other) for other in close), default=0)]
    return [by_key[c] for c in dict.fromkeys([*called, *longer, *first, *close, *shorter])][:limit]


def _begin_alike(one: str, other: str) -> int:
    """How many letters two names have in common from their beginning."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """``Did you mean 'x'?`` for the nearest known name, or an empty string."""
    close = nearest(name, known, limit=1)
    return f"Did you mean '{close[0]}'?" if close else ""


def shortened(names: Sequence[str], limit: int = 12) -> str:
    """Names for a sentence: ``nccl, rccl, xla-ici and 40 more``."""
    more = f" and {len(names) - limit} more" if len(names) > limit else ""
    return ", ".join(names[:limit]) + more


def unknown_name(what: str, name: str, known: Iterable[str]) -> str:
    """``precision 'bf61' is unknown. Did you mean 'bf16'? Known: bf16, fp16.``"""
    names = list(known)
    hint = did_you_mean(name, names)
    return " ".join(filter(None, [f"{what} '{name}' is unknown.", hint, f"Known: {', '.join(names)}."]))
