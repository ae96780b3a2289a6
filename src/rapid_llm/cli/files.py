"""Pages that a flag names."""

from __future__ import annotations

from pathlib import Path

from rapid_llm.errors import InputError

SUFFIXES = (".html", ".htm")


def page_file(flag: str, file: str) -> Path:
    """The file of a page; InputError in the words of its flag where none can be written there."""
    path = Path(file)
    if not file:
        raise InputError(f"{flag} needs a value (got an empty text).")
    if path.is_dir():
        raise InputError(f"{flag} {file} is a folder. Name a file in it, such as {path / 'page.html'}.")
    if path.suffix.lower() not in SUFFIXES:
        raise InputError(f"{flag} {file}: the page is HTML. Try {flag} {path.with_suffix('.html')}.")
    if not path.parent.is_dir():
        raise InputError(f"{flag} {file}: there is no folder {path.parent}. Create it, or name another file.")
    return path


def write_page(flag: str, file: str, html: str) -> None:
    """Write a page where a flag says."""
    page_file(flag, file).write_text(html, encoding="utf-8")
