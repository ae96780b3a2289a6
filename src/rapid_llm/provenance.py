"""Where each number comes from, and catalogues: folders of YAML files, one noun a file.

A file has one ``source:`` and ``kind:`` (default datasheet) for its numbers; a mapping inside it may have its own, and
any number may be ``{value: ..., source: ..., kind: ...}``. ``base: NAME`` inherits: mappings merge, all else replaces.
``aliases:`` are further names of the file, or of one of its ``versions:``; ``notes:`` are for readers and dropped.
"""

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib import resources
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

from rapid_llm.documents import Document, join, parse_yaml, read_yaml
from rapid_llm.errors import InputError, nearest, shortened

KINDS = ("datasheet", "measured", "fitted", "architecture", "estimate", "user")
_SUFFIXES = (".yaml", ".yml", ".json")
_HINTS = {
    "system": "A path to a YAML file works too.",
    **{what: f"See: rapid-llm list {what}s" for what in ("model", "accelerator", "runtime", "kernel")},
}
"""What to try where a sentence need not give the names: ``list`` does."""
_OWN = frozenset({"name", "aliases"})
"""Fields that an entry does not inherit."""
_Noun = TypeVar("_Noun")
_LEAF = frozenset({"value", "source", "kind", "notes"})


@dataclass(frozen=True, slots=True)
class Source:
    """Where a number comes from: one of KINDS, and a document, page, table or measurement."""

    kind: str
    text: str


Sources = Mapping[str, Source]
"""Dotted path of a number to its source."""


def is_path(name: str) -> bool:
    """Whether a name is written as the path of a file."""
    return name.endswith(_SUFFIXES) or "/" in name or os.sep in name


@dataclass(frozen=True, slots=True)
class Catalogue:
    """The YAML files of a package folder. ``what`` names one entry in sentences: model, system, accelerator."""

    package: str
    folder: str
    what: str

    def names(self) -> list[str]:
        """The names of all entries, sorted."""
        return list(_names(self))

    def document(self, name: str) -> Document:
        """One entry with its ``base`` merged and its sources taken out; a path may stand for the name.

        The data are shared between callers: read only. InputError with the nearest names if there is no such entry.
        """
        return self.entry(name)[0]

    def load(self, name: str) -> tuple[Mapping[str, Any], Sources]:
        """Data and sources of one entry, as ``document``."""
        document, sources = self.entry(name)
        return document.data, sources

    def entry(self, name: str) -> tuple[Document, Sources]:
        """Document and sources of one entry."""
        if is_path(name):
            return self.inherit(read_yaml(name))
        return _entry(self, self.resolve(name).partition("@")[0])

    def resolve(self, name: str) -> str:
        """The entry that a name or an alias stands for (``name@version`` where it is one of a version), the first of
        several; InputError with the nearest names otherwise."""
        return self.meanings(name)[0]

    def meanings(self, name: str) -> tuple[str, ...]:
        """All entries that a name or an alias stands for, as ``resolve``."""
        if name in _names(self):
            return (name,)
        found = _aliases(self).get(name.casefold())
        if found is None:
            raise self.unknown(name)
        return found

    def unknown(self, name: str, known: Iterable[str] | None = None) -> InputError:
        """The error for a name that is not in the catalogue (``known`` when it has more names than its files)."""
        names = list(known) if known is not None else [*_names(self), *_aliases(self)]
        spelt = _aliases(self)
        close = list(dict.fromkeys(spelt.get(one.casefold(), (one,))[0] for one in nearest(name, names)))
        meant = f" Did you mean '{close[0]}'?" if close else ""
        hint = _HINTS.get(self.what) or f"Known: {shortened([*dict.fromkeys([*close, *names])])}."
        message = f"{self.what} '{name}' is not in the catalogue.{meant} {hint}"
        return InputError(message, field=self.what, suggestions=close)

    def inherit(self, document: Document, seen: tuple[str, ...] = ()) -> tuple[Document, Sources]:
        """Merge the ``base`` of a document (a name of this catalogue, or a path) and take out its sources."""
        own, sources = _take_sources(document)
        base = own.data.pop("base", None)
        if base is None:
            return own, sources
        if not isinstance(base, str):
            raise document.error(f"base must be the name of a {self.what} or a path (got {base!r}).", "base")
        if base in seen:
            raise document.error(f"base '{base}' inherits from itself: {' -> '.join((*seen, base))}.", "base")
        below, below_sources = self._base(base, document, (*seen, base))
        lower = {path: source for path, source in below_sources.items() if path not in own.lines}
        heritage = {key: value for key, value in below.data.items() if key not in _OWN}
        return own.over(replace(below, data=heritage)), {**lower, **sources}

    def _base(self, base: str, document: Document, seen: tuple[str, ...]) -> tuple[Document, Sources]:
        if not is_path(base):
            try:
                name = self.resolve(base)
            except InputError as error:
                raise document.error(error.message, "base", error.suggestions) from None
            return self.inherit(_raw(self, name), seen)
        folder = Path(document.file).parent if document.file else Path()
        return self.inherit(read_yaml(folder / base), seen)


def located(document: Document, path: str, by_name: Callable[[str], _Noun], name: str) -> _Noun:
    """Look a name up; an error gets the place where the name was written."""
    try:
        return by_name(name)
    except InputError as error:
        if error.file is not None:
            raise
        raise document.error(error.message, path, error.suggestions) from None


@lru_cache(maxsize=32)
def _names(catalogue: Catalogue) -> tuple[str, ...]:
    files = resources.files(catalogue.package).joinpath(catalogue.folder).iterdir()
    return tuple(sorted(f.name.removesuffix(".yaml") for f in files if f.name.endswith(".yaml")))


def _raw(catalogue: Catalogue, name: str) -> Document:
    file = resources.files(catalogue.package).joinpath(catalogue.folder, f"{name}.yaml")
    return parse_yaml(file.read_text("utf-8"), f"{name}.yaml")


@lru_cache(maxsize=1024)
def _entry(catalogue: Catalogue, name: str) -> tuple[Document, Sources]:
    document, sources = catalogue.inherit(_raw(catalogue, name), (name,))
    return document, MappingProxyType(dict(sources))


@lru_cache(maxsize=32)
def _aliases(catalogue: Catalogue) -> dict[str, tuple[str, ...]]:
    """Folded name or alias to its entries; read from all files, on the first miss only."""
    names = {name.casefold(): (name,) for name in _names(catalogue)}
    found: dict[str, tuple[str, ...]] = {}
    for name in _names(catalogue):
        file = resources.files(catalogue.package).joinpath(catalogue.folder, f"{name}.yaml")
        if "aliases:" in (text := file.read_text("utf-8")):
            data = parse_yaml(text, f"{name}.yaml").data
            versions = {f"{name}@{version}": fields for version, fields in (data.get("versions") or {}).items()}
            for entry, fields in {name: data, **versions}.items():
                for alias in fields.get("aliases") or ():
                    key = str(alias).casefold()
                    found[key] = tuple(dict.fromkeys((*found.get(key, ()), entry)))
    return {**found, **names}


def _take_sources(document: Document) -> tuple[Document, dict[str, Source]]:
    """Plain data without ``source``, ``kind`` of sources, ``notes``; and the source of each number."""
    sources: dict[str, Source] = {}

    def read(value: Any, path: str, source: Source | None) -> Any:
        if isinstance(value, Mapping):
            if "value" in value and value.keys() <= _LEAF:
                source = _source(value, source, document, path)
                value = value["value"]
            else:
                return read_mapping(value, path, source)
        if isinstance(value, list):
            return [read(item, join(path, i), source) for i, item in enumerate(value)]
        if source is not None and _is_number(value):
            sources[path] = source
        return value

    def read_mapping(value: Mapping[str, Any], path: str, source: Source | None) -> dict[str, Any]:
        dropped = {"notes"}
        if "source" in value:
            source = _source(value, source, document, path)
            dropped |= {"source"} | ({"kind"} if value.get("kind") in KINDS else set())
        return {key: read(item, join(path, key), source) for key, item in value.items() if key not in dropped}

    data = read_mapping(document.data, "", None)
    return Document(data=data, lines=document.lines, file=document.file, files=document.files), sources


def _source(value: Mapping[str, Any], outer: Source | None, document: Document, path: str) -> Source:
    text = value.get("source", outer.text if outer else "")
    text = "; ".join(map(str, text)) if isinstance(text, list) else str(text)
    kind = value.get("kind", outer.kind if outer and "source" not in value else "datasheet")
    if kind not in KINDS and "value" in value:
        raise document.error(f"{path}: kind '{kind}' is unknown. Known: {', '.join(KINDS)}.", join(path, "kind"))
    return Source(kind if kind in KINDS else "datasheet", text)


def _is_number(value: Any) -> bool:
    """Numbers, and text that begins like one (a quantity with its unit)."""
    if isinstance(value, str):
        return value[:1].isdigit() or value[:1] in "-."
    return isinstance(value, (int, float)) and not isinstance(value, bool)
