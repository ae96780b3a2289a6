"""Models by name or path: the catalogue, a YAML file, a ``config.json``, or a folder that holds one."""

from collections.abc import Mapping
from dataclasses import replace
from difflib import get_close_matches
from functools import lru_cache
from pathlib import Path

from rapid_llm.documents import Document, read_yaml
from rapid_llm.errors import InputError
from rapid_llm.model.architecture import Model
from rapid_llm.model.fields import ALIASES
from rapid_llm.model.huggingface import read_document
from rapid_llm.provenance import Catalogue, Sources, is_path

CATALOGUE = Catalogue("rapid_llm.model", "data", "model")


def names() -> list[str]:
    """The names of all models in the catalogue."""
    return CATALOGUE.names()


def load(name: str | Path) -> Model:
    """The model that a catalogue name or alias, a YAML file, a ``config.json`` or its folder stands for.

    Reads local files only. InputError for an unknown name, architecture or field.
    """
    return _from_path(Path(name)) if _is_local(name) else _from_catalogue(CATALOGUE.resolve(str(name)))


def document(name: str | Path) -> tuple[Document, Sources]:
    """The fields and their sources behind ``load``."""
    if _is_local(name):
        return CATALOGUE.inherit(read_yaml(_file(Path(name))))
    return CATALOGUE.entry(CATALOGUE.resolve(str(name)))


def _is_local(name: str | Path) -> bool:
    """A catalogue name wins over a file of that name; an alias (meta-llama/Llama-3.1-8B) looks like a path too."""
    if isinstance(name, Path):
        return True
    if name in names():
        return False
    suffixed = name.endswith((".yaml", ".yml", ".json")) or name.startswith((".", "/", "~"))
    return suffixed or _exists(Path(name)) or (is_path(name) and name.count("/") != 1)


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:  # a name too long for a file
        return False


def _file(path: Path) -> Path:
    if not path.is_dir():
        return path
    config = path / "config.json"
    if not config.is_file():
        raise InputError(
            "is a folder without a config.json. Try the path of a config.json or a model YAML.", file=str(path)
        )
    return config


@lru_cache(maxsize=256)
def _from_catalogue(name: str) -> Model:
    return replace(read_document(CATALOGUE.entry(name)[0]), name=name)


def _from_path(path: Path) -> Model:
    file = _file(path)
    named = file.resolve().parent.name if file.name == "config.json" else file.stem
    given = read_yaml(file)
    found = CATALOGUE.inherit(given)[0]
    if (base := given.data.get("base")) and not is_path(base):
        _check_spelling(given, document(base)[0].data)
    return replace(read_document(found), name=str(found.data.get("name") or named))


_A_SLIP = 0.9
"""Share of letters that a misspelt field has in common with the right one (difflib)."""


def _check_spelling(given: Document, below: Mapping[str, object]) -> None:
    """Refuse a field beside ``base`` that no model has and that is spelled almost like one of the base's. A
    configuration may have fields that are not read, but a misspelled one would silently change nothing.
    """
    spelt = {name for names_of in ALIASES.values() for name in names_of} | ALIASES.keys()
    for key in given.data.keys() - below.keys() - spelt - {"base"}:
        close = get_close_matches(key, below, 1, _A_SLIP)
        if close and not any(key in CATALOGUE.document(name).data for name in names()):
            raise given.error(f"unknown field '{key}'. Did you mean '{close[0]}'?", key)
