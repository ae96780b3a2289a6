"""From what a user typed to a mapping of fields with lines: files, ``base:`` and ``--set``."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from rapid_llm.documents import Document, join, parse_yaml, read_yaml, show
from rapid_llm.errors import InputError
from rapid_llm.scenario.checks import require
from rapid_llm.scenario.named import changed_name, layer
from rapid_llm.scenario.pools import resolve_whole
from rapid_llm.scenario.scenario import Scenario


def load(path: str | Path, *, overrides: Iterable[str] = (), checked: bool = True) -> Scenario:
    """The scenario of a YAML or JSON file, with ``a.b=value`` overrides; InputError with file and line otherwise."""
    if not isinstance(path, (str, Path)):
        raise InputError(f"load takes the path of a scenario file (got {show(path)}). Try 'scenario.yaml'.")
    return from_mapping({}, read_yaml(_scenario_file(path)), overrides, checked=checked)


def _scenario_file(path: str | Path) -> str | Path:
    """The path of a scenario; InputError where it is the name of a model or of a system instead."""
    from rapid_llm import hardware, model

    name = str(path)
    what = "model" if name in model.names() else "system" if name in hardware.system_names() else ""
    if what and not Path(name).exists():
        given = name if what == "model" else f"MODEL --system {name}"
        raise InputError(f"'{name}' is a {what}, not a scenario file. Try rapid-llm infer {given}, or train.")
    return path


def from_mapping(
    mapping: Mapping[str, Any],
    document: Document | None = None,
    overrides: Iterable[str] = (),
    *,
    checked: bool = True,
) -> Scenario:
    """The scenario of a mapping as a file writes it (values may be nouns), laid over ``document`` if there is one.

    ``checked`` raises the InputError of the first named check that fails.
    """
    overrides = overrides if isinstance(overrides, str) else [*overrides]
    if isinstance(overrides, str) or not all(isinstance(one, str) for one in overrides):
        raise InputError(f"overrides are a list of texts (got {show(overrides)}). Try ['parallelism.tp=4'].")
    mapping = {name: str(value) if isinstance(value, Path) else value for name, value in mapping.items()}
    below = document or Document(data={})
    given = _override(_inherit(replace(below, data=layer(below.data, mapping))), overrides)
    scenario = resolve_whole(given)
    try:
        return require(scenario) if checked else scenario
    except InputError as error:
        raise given.error(error.message, error.field or "") from None


def _inherit(document: Document, seen: tuple[str, ...] = ()) -> Document:
    """Lay a scenario over the file that its ``base`` names (relative to its own folder)."""
    _refuse_other(document)
    base = document.data.get("base")
    if base is None:
        return document
    if not isinstance(base, str):
        raise document.error(f"base must be the path of a scenario file (got {show(base)}).", "base")
    path = (Path(document.file).parent if document.file else Path()) / base
    name = str(path.resolve())
    if name in seen:
        raise document.error(f"base '{base}' inherits from itself.", "base")
    try:
        inherited = read_yaml(path)
    except InputError as error:
        if error.line is not None:
            raise
        raise document.error(f"base '{base}': {error.message}", "base", error.suggestions) from None
    below = _inherit(inherited, (*seen, name))
    own = {key: value for key, value in document.data.items() if key != "base"}
    return replace(document.over(below), data=layer(below.data, own))


_OTHERS: Mapping[str, frozenset[str]] = {
    "accelerator": frozenset(("peak", "memory", "compute_units", "clocks", "architecture")),
    "system": frozenset(("node", "nodes", "fabric")),
}
"""Fields by which a file of another kind is known: no scenario has any of them."""


def _refuse_other(document: Document) -> None:
    """InputError for the file of an accelerator or a system in place of a scenario's."""
    for kind, fields in _OTHERS.items() if not {"model", "workload"} & document.data.keys() else ():
        if fields & document.data.keys():
            raise InputError(
                f"this file describes a{'n' * (kind == 'accelerator')} {kind}, not a scenario. Use it as the system of "
                f"one: system: {document.file}, or rapid-llm infer llama-3.1-8b --system {document.file}.",
                file=document.file,
            )


def _override(document: Document, overrides: Iterable[str]) -> Document:
    """Apply ``a.b=value`` texts; an overridden path no longer has a line."""
    for text in overrides:
        path, equals, written = text.partition("=")
        path = path.strip()
        if not equals or not all(path.split(".")):
            raise InputError(f"'--set {text}' must name a field and a value, such as --set parallelism.tp=4.")
        top = _nested(path.split("."), _value(written.strip(), text))
        data = _renamed(layer(_without(document.data, path), top), document.data, path.split("."))
        lines = {place: line for place, line in document.lines.items() if not f"{place}.".startswith(f"{path}.")}
        document = replace(document, data=data, lines={**lines, path: 0}, files={**document.files, path: ""})
    return document


def _renamed(data: Mapping[str, Any], before: Any, keys: list[str]) -> dict[str, Any]:
    """The data in which every noun on the way to an overridden value is called ``x (changed)``, if the new value
    differs: a resolved scenario holds names beside numbers. Nouns laid over a ``base`` are renamed where that is read.
    """
    key, *below = keys
    given: dict[str, Any] = dict(data)
    old = before.get(key) if isinstance(before, Mapping) else None
    if below and isinstance(given.get(key), Mapping):
        given[key] = _renamed(given[key], old, below)
    name = before.get("name") if isinstance(before, Mapping) and "base" not in before else None
    if isinstance(name, str) and key != "name" and given.get(key) != old:
        given["name"] = changed_name(name)
    return given


def _nested(keys: list[str], value: Any) -> dict[str, Any]:
    for key in reversed(keys):
        value = {key: value}
    nested: dict[str, Any] = value
    return nested


def _without(data: Mapping[str, Any], path: str) -> Mapping[str, Any]:
    """Data without the value that an override replaces; InputError where its path leads below a number."""
    *parents, last = path.split(".")
    inner: Any = data
    for depth, key in enumerate(parents):
        inner = inner.get(key)
        field = join("", *parents[: depth + 1])
        if isinstance(inner, list):
            raise InputError(f"{field} is a list: give the whole list. Try --set {field}=[...].", field=path)
        if isinstance(inner, (int, float)):
            raise InputError(f"{field} is a single value and has no field '{last}'.", field=path)
        if not isinstance(inner, Mapping):
            return data
    if last not in inner:
        return data
    kept: dict[str, Any] = {key: value for key, value in inner.items() if key != last}
    if not parents:
        return kept
    return layer(_without(data, ".".join(parents)), _nested(parents, kept))


def _value(written: str, text: str) -> Any:
    """An override's value, read as YAML."""
    if not written:
        return None
    try:
        return parse_yaml(f"value: {written}" if "\n" not in written else "").data["value"]
    except InputError:
        path = text.partition("=")[0].strip()
        raise InputError(f"the value of {path} is not valid YAML (got {show(written)}).", field=path) from None
