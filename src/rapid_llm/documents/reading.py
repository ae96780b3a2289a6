"""YAML and JSON files as plain data, with the line of every value.

YAML is read by its 1.2 core schema: ``9e-6`` and ``1e9`` are numbers, ``on`` and ``no`` are text. Events come from
libyaml where it is installed; aliases count with what they expand to, so that a small file cannot become a large one.
"""

import gzip
import io
import json
import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rapid_llm.errors import InputError, nearest

MAX_FILE_BYTES = 4 * 2**20
"""A larger file is not a description that a person wrote (the largest config.json in use is below 200 KiB)."""
MAX_TABLE_BYTES = 64 * 2**20
"""The same of a table: edges, messages, measurements."""
MAX_UNPACKED_BYTES = 4 * MAX_TABLE_BYTES
"""What a packed table may hold: a few bytes of a gzip file can stand for many."""
_GZIP = b"\x1f\x8b"
"""How a gzip file begins."""
MAX_NODES = 200_000
"""Values in one file, aliases expanded."""
MAX_DEPTH = 64
"""Mappings and lists inside each other."""

_INT = re.compile(r"[-+]?[0-9]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_CONSTANTS: dict[str, Any] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}


def join(prefix: str, *keys: str | int) -> str:
    """The dotted path of a value: ``join('groups', 0, 'node')`` is ``groups[0].node``."""
    path = prefix
    for key in keys:
        path = f"{path}[{key}]" if isinstance(key, int) else f"{path}.{key}" if path else key
    return path


def _parents(path: str) -> Iterator[str]:
    while path:
        yield path
        path = path[: max(path.rfind("."), path.rfind("["), 0)]


@dataclass(frozen=True, slots=True)
class Document:
    """Plain data of one file. ``lines`` maps a dotted path to its line; ``files`` to a file other than ``file``.

    A value that stands in no file (an override) has line 0 in the file ''.
    """

    data: dict[str, Any]
    lines: Mapping[str, int] = field(default_factory=dict)
    file: str | None = None
    files: Mapping[str, str] = field(default_factory=dict)

    def where(self, path: str) -> tuple[str | None, int | None]:
        """File and line of a dotted path, or of what it lies in."""
        for parent in _parents(path):
            if parent in self.lines:
                return self.files.get(parent, self.file) or None, self.lines[parent] or None
        return self.file, None

    def error(self, message: str, path: str, suggestions: Sequence[str] = ()) -> InputError:
        """An InputError about the value at a dotted path."""
        file, line = self.where(path)
        return InputError(message, field=path or None, file=file, line=line, suggestions=suggestions)

    def over(self, base: "Document") -> "Document":
        """This document laid over another: mappings merge, all else replaces."""
        files = {path: base.files.get(path, base.file) for path in base.lines if path not in self.lines}
        return Document(
            data=merge(base.data, self.data),
            lines={**base.lines, **self.lines},
            file=self.file,
            files={**{path: file for path, file in files.items() if file}, **self.files},
        )


def merge(base: Mapping[str, Any], top: Mapping[str, Any]) -> dict[str, Any]:
    """A new mapping: ``top`` over ``base``, mappings merged at every depth, everything else replaced."""
    merged = dict(base)
    for key, value in top.items():
        below = merged.get(key)
        merged[key] = merge(below, value) if isinstance(below, Mapping) and isinstance(value, Mapping) else value
    return merged


def read_yaml(path: str | Path) -> Document:
    """Read a YAML or JSON file; InputError with the file and line otherwise."""
    text = _text(Path(path))
    return parse_json(text, str(path)) if str(path).endswith(".json") else parse_yaml(text, str(path))


def read_bytes(path: Path, most: int = MAX_TABLE_BYTES) -> bytes:
    """The bytes of a file or a pipe; InputError for more than ``most``, of which no more is read."""
    with path.open("rb") as stream:
        raw = stream.read(most + 1)
    if len(raw) > most:
        raise InputError(f"is too large: at most {most:,} bytes are read. Try a smaller file.", file=str(path))
    return raw


def read_table(path: Path) -> str:
    """The text of a table or a log, unpacked where it is gzipped; InputError for what is none, or too large."""
    _refuse_folder(path)
    try:
        raw = read_bytes(path)
        if raw.startswith(_GZIP):
            raw = gzip.GzipFile(fileobj=io.BytesIO(raw)).read(MAX_UNPACKED_BYTES + 1)
        text = raw.decode("utf-8-sig")
    except FileNotFoundError:
        raise missing_file(path) from None
    except UnicodeDecodeError:
        why = "it is not text in UTF-8"
    except EOFError:
        why = "the gzip file ends too early. Try to fetch it again"
    except (OSError, ValueError, zlib.error) as error:
        why = (getattr(error, "strerror", None) or str(error)).lower()
    else:
        if len(raw) > MAX_UNPACKED_BYTES:
            most = f"at most {MAX_UNPACKED_BYTES:,} bytes are unpacked"
            raise InputError(f"is too large: {most}. Try a smaller file.", file=str(path))
        if "\0" not in text:
            return text
        why = "it is not text"
    raise InputError(f"cannot be read: {why}.", file=str(path)) from None


def _text(path: Path) -> str:
    _refuse_folder(path)
    try:
        raw = read_bytes(path, MAX_FILE_BYTES)
    except FileNotFoundError:
        raise missing_file(path) from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise InputError(f"cannot be read: {reason.lower()}.", file=str(path)) from None
    if b"\0" in raw:
        raise InputError("is a binary file; a YAML or JSON text is needed.", file=str(path))
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1
        raise InputError("is not UTF-8 text.", file=str(path), line=line) from None


def _refuse_folder(path: Path) -> None:
    try:
        folder = path.is_dir()
    except OSError as error:  # a name too long
        raise InputError(f"cannot be read: {(error.strerror or 'failed').lower()}.", file=str(path)) from None
    if folder:
        raise InputError("is a folder, not a file.", file=str(path))


def missing_file(path: Path) -> InputError:
    """That there is no such file, with the nearest name that there is."""
    if str(path).startswith(("http:/", "https:/")):
        return InputError(
            "nothing is downloaded. Save it as a file, and name that.", file=str(path).replace(":/", "://", 1)
        )
    folder = path.parent
    known = [p.name for p in folder.iterdir()] if folder.is_dir() else []
    close = nearest(path.name, known)
    hint = f" Did you mean '{close[0]}'?" if close else "" if folder.is_dir() else f" There is no folder '{folder}'."
    return InputError(f"no such file.{hint}", file=str(path), suggestions=close)


def parse_json(text: str, file: str | None = None) -> Document:
    """Read JSON text whose top level is a mapping; lines are not kept."""

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        mapping = dict(pairs)
        if len(mapping) < len(pairs):
            keys = [key for key, _ in pairs]
            twice = next(key for key in keys if keys.count(key) > 1)
            raise InputError(f"the field '{twice}' is written twice.", field=twice, file=file)
        return mapping

    if not text.strip():
        raise InputError("is empty.", file=file)
    try:
        data = json.loads(text, object_pairs_hook=unique)
    except json.JSONDecodeError as error:
        raise InputError(f"is not valid JSON: {error.msg.lower()}.", file=file, line=error.lineno) from None
    except RecursionError:
        raise InputError(f"is nested deeper than {MAX_DEPTH} levels.", file=file) from None
    if not isinstance(data, dict):
        raise InputError(f"must be a mapping of fields at its top level (got {_kind(data)}).", file=file)
    return Document(data=data, file=file)


def parse_yaml(text: str, file: str | None = None) -> Document:
    """Read YAML text whose top level is a mapping; InputError with file and line otherwise."""
    if not text.strip():
        raise InputError("is empty.", file=file)
    reader = _Reader(text, file)
    data = reader.read()
    if data is None:
        raise InputError("is empty.", file=file)
    if not isinstance(data, dict):
        raise InputError(f"must be a mapping of fields at its top level (got {_kind(data)}).", file=file, line=1)
    return Document(data=data, lines=reader.lines, file=file)


def _kind(value: Any) -> str:
    if value is None:
        return "nothing"
    if isinstance(value, list):
        return "a list"
    return "a text" if isinstance(value, str) else "true or false" if isinstance(value, bool) else "a number"


def _events(text: str) -> Iterator[Any]:
    try:
        from _ruamel_yaml import CParser  # type: ignore[import-not-found,unused-ignore]
    except ImportError:
        from ruamel.yaml import YAML

        yield from YAML(pure=True, typ="safe").parse(text)
        return
    parser = CParser(text)
    while parser.check_event():
        yield parser.get_event()


def _scalar(text: str) -> Any:
    """A plain scalar by the YAML 1.2 core schema."""
    first = text[:1]
    if first and first in "0123456789+-.":
        if _INT.fullmatch(text):
            return int(text) if len(text) < 400 else float("inf")
        if _FLOAT.fullmatch(text):
            return float(text)
        if text.startswith(("0x", "0o")):
            try:
                return int(text, 0)
            except ValueError:
                return text
        if text.lstrip("+-").lower() == ".inf":
            return float("-inf") if first == "-" else float("inf")
        if text.lower() == ".nan":
            return float("nan")
        return text
    return _CONSTANTS.get(text, text)


class _Reader:
    """Builds plain data and the line of every path from YAML events."""

    def __init__(self, text: str, file: str | None) -> None:
        self.text, self.file = text, file
        self.lines: dict[str, int] = {}
        self.nodes = 0
        self.anchors: dict[str, tuple[Any, int]] = {}

    def read(self) -> Any:
        from ruamel.yaml.error import MarkedYAMLError, YAMLError

        events = _events(self.text)
        try:
            data = None
            documents = 0
            for event in events:
                kind = type(event).__name__
                if kind == "DocumentStartEvent":
                    documents += 1
                    if documents > 1:
                        raise self._error("holds a second document after '---'; one file is one document.", event)
                    data = self._node(next(events), events, "", 0)
            return data
        except MarkedYAMLError as error:
            raise self._syntax(error) from None
        except YAMLError as error:
            reason = " ".join(str(error).split())
            raise InputError(f"is not valid YAML: {reason}.", file=self.file) from None

    def _node(self, event: Any, events: Iterator[Any], path: str, depth: int) -> Any:
        self.nodes += 1
        kind = type(event).__name__
        before = self.nodes
        if depth > MAX_DEPTH:
            raise self._error(f"is nested deeper than {MAX_DEPTH} levels.", event)
        if kind == "AliasEvent":
            return self._alias(event)
        tag = getattr(event, "tag", None)
        if tag is not None and str(tag) not in ("", "!"):
            raise self._error(f"the tag '{tag}' is not accepted; write plain values.", event)
        value: Any
        if kind == "ScalarEvent":
            value = _scalar(event.value) if event.style in (None, "") and tag is None else event.value
        elif kind == "MappingStartEvent":
            value = self._mapping(events, path, depth)
        else:
            value = self._sequence(events, path, depth)
        if event.anchor is not None:
            self.anchors[event.anchor] = (value, self.nodes - before + 1)
        self._check_size(event)
        return value

    def _alias(self, event: Any) -> Any:
        if event.anchor not in self.anchors:
            raise self._error(f"the alias '*{event.anchor}' names nothing that stands before it.", event)
        value, size = self.anchors[event.anchor]
        self.nodes += size - 1
        self._check_size(event)
        return value

    def _check_size(self, event: Any) -> None:
        if self.nodes > MAX_NODES:
            raise self._error(f"expands to more than {MAX_NODES} values; use fewer aliases.", event)

    def _mapping(self, events: Iterator[Any], path: str, depth: int) -> dict[str, Any]:
        mapping: dict[str, Any] = {}
        for event in events:
            if type(event).__name__ == "MappingEndEvent":
                break
            if type(event).__name__ != "ScalarEvent":
                raise self._error("a field name must be plain text.", event)
            key = event.value
            below = join(path, key)
            if key in mapping:
                first = self.lines[below]
                raise self._error(f"the field '{below}' is written twice; the first is in line {first}.", event, below)
            self.lines[below] = event.start_mark.line + 1
            mapping[key] = self._node(next(events), events, below, depth + 1)
        return mapping

    def _sequence(self, events: Iterator[Any], path: str, depth: int) -> list[Any]:
        items: list[Any] = []
        for event in events:
            if type(event).__name__ == "SequenceEndEvent":
                break
            below = join(path, len(items))
            self.lines[below] = event.start_mark.line + 1
            items.append(self._node(event, events, below, depth + 1))
        return items

    def _error(self, message: str, event: Any, path: str | None = None) -> InputError:
        return InputError(message, field=path, file=self.file, line=event.start_mark.line + 1)

    def _syntax(self, error: Any) -> InputError:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark else None
        written = self.text.split("\n")
        source = written[mark.line] if mark and mark.line < len(written) else ""
        indent = source[: len(source) - len(source.lstrip())]
        if "\t" in indent or "\\t" in str(error.problem):
            return InputError("a tab indents this line; YAML wants spaces.", file=self.file, line=line)
        problem = " ".join(filter(None, [str(error.context or ""), str(error.problem or "")]))
        return InputError(f"is not valid YAML: {problem}.", file=self.file, line=line)
