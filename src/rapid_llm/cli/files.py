"""Pages that a flag names."""

from __future__ import annotations

from pathlib import Path

from rapid_llm.errors import InputError

SUFFIXES = (".html", ".htm")


def page_file(flag: str, file: str) -> Path:
    """The file of a page; InputError in the words of its flag where none can be written there."""
    return _file(flag, file, SUFFIXES, "page is HTML")


def _file(flag: str, file: str, suffixes: tuple[str, ...], what: str) -> Path:
    path, usual = Path(file), suffixes[0]
    if not file:
        raise InputError(f"{flag} needs a value (got an empty text).")
    if path.is_dir():
        raise InputError(f"{flag} {file} is a folder. Name a file in it, such as {path / f'page{usual}'}.")
    if path.suffix.lower() not in suffixes:
        raise InputError(f"{flag} {file}: the {what}. Try {flag} {path.with_suffix(usual)}.")
    if not path.parent.is_dir():
        raise InputError(f"{flag} {file}: there is no folder {path.parent}. Create it, or name another file.")
    return path


def write_text(file: str | Path, text: str) -> None:
    """Write a file; InputError with its name where the disk is full, which the system tells without."""
    try:
        Path(file).write_text(text, encoding="utf-8")
    except OSError as error:
        raise InputError(f"{file} cannot be written: {(error.strerror or 'failed').lower()}.") from None


def whole_folder(folder: str) -> Path:
    """The folder of ``--out``, made where it is not there; InputError where a file has its name."""
    if not folder:
        raise InputError("--out needs a value (got an empty text).")
    out = Path(folder)
    if out.exists() and not out.is_dir():
        raise InputError(f"--out {folder} is a file. Name a folder.")
    out.mkdir(parents=True, exist_ok=True)
    return out


def write_page(flag: str, file: str, html: str) -> None:
    """Write a page where a flag says."""
    write_text(page_file(flag, file), html)


def write_picture(flag: str, file: str, svg: str) -> None:
    """Write a picture where a flag says."""
    write_text(_file(flag, file, (".svg",), "picture is SVG"), svg)
