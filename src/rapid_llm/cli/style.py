"""Print lines: bold labels and a coloured verdict on a terminal, plain text into a pipe."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from threading import Timer

_LABEL = 12
PATIENCE = 1.0
"""Seconds after which a terminal says what it waits for."""


@contextmanager
def status(doing: str) -> Iterator[None]:
    """Say on a terminal's standard error what takes longer than a moment, and wipe it once it is done."""
    if not sys.stderr.isatty():
        yield
        return
    stream, told = sys.stderr, list[str]()

    def tell() -> None:
        told.append(doing)
        print(f"{doing} ...", end="", file=stream, flush=True)

    timer = Timer(PATIENCE, tell)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()
        if told:
            print("\r\x1b[K", end="", file=stream, flush=True)


def show(lines: Iterable[str]) -> None:
    """Print lines to standard output."""
    lines = [_writable(line) for line in lines]
    if not sys.stdout.isatty():
        print("\n".join(lines))
        return
    from rich.console import Console

    console = Console(highlight=False, soft_wrap=True)
    for line in lines:
        console.print(_styled(line))


_MARKS = dict(zip("█▓▒░▚▞▤▥▦", "#=+-%@*&x", strict=True))
_PLAIN = str.maketrans(_MARKS | {"µ": "u", "±": "+-", "…": "...", "·": "|"})
"""What a terminal or a file shows whose encoding has no blocks: other marks, each as different."""


def _writable(line: str) -> str:
    """A line in characters that standard output has."""
    try:
        line.encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:
        return line.translate(_PLAIN)
    return line


def _styled(line: str) -> str:
    from rich.markup import escape

    label, rest = line[:_LABEL], line[_LABEL:]
    if label.startswith("fits"):
        colour = "red" if rest.lstrip().startswith("NO") else "green"
        return f"[bold]{escape(label)}[/bold][{colour}]{escape(rest)}[/{colour}]"
    is_label = label[:1].isalpha() and line[_LABEL - 1 : _LABEL + 1] == "  "
    return f"[bold]{escape(label)}[/bold]{escape(rest)}" if is_label else escape(line)
