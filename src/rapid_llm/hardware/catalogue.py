"""From names, files and mappings to accelerators and systems.

An accelerator's file holds what its datasheet says. What it leaves out (vendor, shared memory and registers of a unit,
what long kernels sustain) comes from ``data/architectures.yaml`` by the name of its architecture.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Final, Literal

from rapid_llm.documents import Document, build, join, known_fields
from rapid_llm.errors import InputError, nearest
from rapid_llm.hardware.accelerator import Accelerator
from rapid_llm.hardware.grouping import build_groups, in_words, inner, many_of, refuse_words
from rapid_llm.hardware.naming import as_written
from rapid_llm.hardware.system import LinkUse, Node, NodeGroup, System, SystemDescription
from rapid_llm.nouns import replaced
from rapid_llm.provenance import Catalogue, Sources, is_path, located

ACCELERATORS: Final = Catalogue("rapid_llm.hardware", "data/accelerators", "accelerator")
SYSTEMS: Final = Catalogue("rapid_llm.hardware", "data/systems", "system")
_ARCHITECTURES: Final = Catalogue("rapid_llm.hardware", "data", "architecture file")

Kind = Literal["accelerator", "system"]


def accelerator_names() -> list[str]:
    """The names of all accelerators, sorted."""
    return ACCELERATORS.names()


def system_names() -> list[str]:
    """The names of all systems, sorted; the name of an accelerator is also a system, of one."""
    return SYSTEMS.names()


@lru_cache(maxsize=64)
def system_with(name: str, count: int) -> str | None:
    """The catalogue system with ``count`` or more of an accelerator, the one that goes by its name before others; None
    where there is none."""
    family, found = name.partition("-")[0], []
    for one in system_names():
        known = system(one)
        if known.groups[0].node.accelerator.name == name and known.accelerators >= count:
            found.append((family not in one, len(one), one))
    return min(found)[2] if found else None


def accelerator(name: str) -> Accelerator:
    """The accelerator of a name, an alias (``A100-SXM4-80GB``), a name as drivers write it (``NVIDIA H100 80GB HBM3``)
    or the path of a YAML file.

    InputError with the nearest name where there is none, and with file and line where the file is wrong.
    """
    try:
        return _accelerator(_resolved(name))  # before paths: names in published tables may hold a slash
    except InputError:
        if not is_path(name):
            raise
    return build_accelerator(ACCELERATORS.document(name))


@lru_cache(maxsize=256)
def _resolved(name: str) -> str:
    """The accelerator that a name, an alias or a name as drivers write it stands for; InputError with the nearest
    otherwise."""
    try:
        return ACCELERATORS.resolve(name)
    except InputError:
        written = as_written(name, ACCELERATORS.names(), lambda one: _accelerator(one).memory.hbm.capacity / 1e9)
        if written is None:
            raise
        return written


def system(name: str) -> System:
    """The system of a name, an alias or the path of a YAML file; an accelerator's name is one of it, alone, and
    ``4x dgx-h100 + 4x dgx-a100`` several groups of nodes.

    InputError with the nearest name where there is none, and with file and line where the file is wrong.
    """
    if is_path(name):
        return build_system(SYSTEMS.document(name))
    return _together(name) if in_words(name) else _system(*_find(name))


def entry(kind: Kind, name: str) -> tuple[Document, Sources]:
    """What a catalogue entry says, defaults of the architecture filled in, and the source of every number by path."""
    if kind == "accelerator":
        return _with_architecture(*ACCELERATORS.entry(name if is_path(name) else _resolved(name)))
    if fields := in_words(name):
        return Document(data=fields), {}
    where, found = ("system", name) if is_path(name) else _find(name)
    return entry("accelerator", found) if where == "accelerator" else SYSTEMS.entry(found)


def sources(kind: Kind, name: str) -> Sources:
    """Dotted path of every number of an entry to its source."""
    return entry(kind, name)[1]


def build_accelerator(document: Document, prefix: str = "") -> Accelerator:
    """The accelerator that a document describes (``base`` and sources allowed); ``prefix`` is its path in the file."""
    merged, _ = _with_architecture(*ACCELERATORS.inherit(document))
    return build(Accelerator, {"name": "accelerator", **merged.data}, merged, prefix)


def typical(name: str) -> Accelerator:
    """The accelerator of that name as if nothing had been measured on it: with the typical values
    of its architecture.
    """
    document, given = ACCELERATORS.entry(_resolved(name))
    datasheet = {key: value for key, value in document.data.items() if key != "sustained"}
    merged, _ = _with_architecture(replace(document, data=datasheet), given)
    return build(Accelerator, {"name": "accelerator", **merged.data}, merged)


def build_system(document: Document, prefix: str = "") -> System:
    """The system that a document describes (``base`` and sources allowed); ``prefix`` is its path in the file.

    ``accelerator`` at the top replaces the one of the node, as in ``{base: dgx-h100, accelerator: h200-sxm}``.
    """
    merged, _ = SYSTEMS.inherit(document)
    if "groups" in merged.data:
        return build_groups(merged, _one_group, prefix)
    data: dict[str, Any] = {"name": "system", **merged.data}
    node = data.get("node")
    if isinstance(node, Mapping):
        path = "accelerator" if "accelerator" in data else "node.accelerator"
        given = data.pop("accelerator", None) or node.get("accelerator")
        data["node"] = _filled(node, given, merged, path, prefix)
    described = build(SystemDescription, data, merged, prefix)
    group = NodeGroup(node=described.node, count=described.nodes)
    return System(name=described.name, groups=(group,), fabric=described.fabric)


def _one_group(document: Document, prefix: str) -> System:
    """A group of a system by itself; the name of an accelerator is a node of one."""
    base = document.data.get("base")
    if isinstance(base, str) and not is_path(base) and "node" not in document.data:
        try:
            kind, name = _find(base)
        except InputError as error:
            raise document.error(error.message, join(prefix, "node"), error.suggestions) from None
        if kind == "accelerator":
            own = {key: value for key, value in document.data.items() if key != "base"}
            document = replace(document, data={**own, "node": {"accelerator": name, "accelerators": 1}})
    return build_system(document, prefix)


def _filled(node: Mapping[str, Any], given: Any, document: Document, path: str, prefix: str) -> dict[str, Any]:
    """A node's fields with its accelerator built, and the host that comes with it by default."""
    if isinstance(given, str):
        given = located(document, path, accelerator, given)
    elif isinstance(given, Mapping):
        given = build_accelerator(inner(document, given, path), join(prefix, path))
    if not isinstance(given, Accelerator):
        return {**node}
    usual = {
        "host_link": {"link": given.host_link},
        "host_speed": given.host_speed,
        "host_memory_bandwidth": f"{given.host_memory_bandwidth!r} B/s",
    }
    return {**usual, **node, "accelerator": given}


def _with_architecture(document: Document, given: Sources) -> tuple[Document, Sources]:
    known, known_sources = _ARCHITECTURES.load("architectures")
    name = document.data.get("architecture")
    if name is None and "vendor" not in document.data and _is_whole(document):
        raise document.error(f"the field 'architecture' is missing. Known: {', '.join(known)}.", "architecture")
    if not isinstance(name, str):
        return document, given
    if name not in known:
        lacks = [field for field in ("vendor", "sustained") if field not in document.data]
        if not lacks:
            return document, given
        close = nearest(name, known)
        meant = f" Did you mean '{close[0]}'?" if close else f" Known: {', '.join(known)}."
        needed = " and ".join(f"'{field}'" for field in lacks)
        message = f"architecture '{name}' is not known, so the accelerator must give {needed}.{meant}"
        raise document.error(message, "architecture", tuple(close))
    start = f"{name}."
    defaults = {path.removeprefix(start): s for path, s in known_sources.items() if path.startswith(start)}
    merged = document.over(Document(data=known[name]))
    ordered = replace(merged, data={**document.data, **merged.data})  # as the file writes it, defaults last
    return ordered, MappingProxyType({**defaults, **given})


def _is_whole(document: Document) -> bool:
    """Whether a document names nothing that an accelerator does not have: that is said first."""
    return set(document.data) <= {*known_fields(Accelerator), "base", "source", "kind", "notes"}


def _find(name: str) -> tuple[Kind, str]:
    """Which catalogue knows a name or alias as a system; InputError with the nearest otherwise."""
    if name in SYSTEMS.names():
        return "system", name
    if name in ACCELERATORS.names():
        return "accelerator", name
    _refuse_many(name)
    kinds: tuple[tuple[Kind, Callable[[str], str]], ...] = (("system", SYSTEMS.resolve), ("accelerator", _resolved))
    for kind, resolve in kinds:
        try:
            return kind, resolve(name)
        except InputError:
            continue
    refuse_words(name)
    raise SYSTEMS.unknown(name, [*SYSTEMS.names(), *ACCELERATORS.names()])


def _refuse_many(name: str) -> None:
    """InputError for ``8x h100-sxm``: Nx NAME is one group of several; a number of accelerators is
    a field of its own.
    """
    many = many_of(name)
    if many is None:
        return
    count, one = many
    try:
        kind, known = _find(one)
    except InputError:
        return  # the x belongs to a name, as in 7900 XTX
    if kind == "accelerator" and count == 1:
        return
    count = max(count, 1)
    whole = system_with(known, count) if kind == "accelerator" else known
    tried = f"system: {whole} and accelerators: {count * _system(kind, known).groups[0].node.accelerators}"
    if whole is None:
        tried = f"system: {{node: {{accelerator: {known}, accelerators: {count}}}}}"
    raise InputError(
        f"system '{name}': Nx NAME is a group of nodes beside another, as in 4x dgx-h100 + 4x dgx-a100. Try {tried}.",
        field="system",
        suggestions=[tried],
    )


@lru_cache(maxsize=256)
def _accelerator(name: str) -> Accelerator:
    return build_accelerator(ACCELERATORS.document(name))


@lru_cache(maxsize=256)
def _system(kind: Kind, name: str) -> System:
    return alone(_accelerator(name)) if kind == "accelerator" else build_system(SYSTEMS.document(name))


@lru_cache(maxsize=256)
def _together(name: str) -> System:
    return build_system(Document(data=in_words(name) or {}))


def alone(one: Accelerator) -> System:
    """A system of one accelerator, named as it is."""
    node = Node(
        accelerator=one,
        accelerators=1,
        host_link=LinkUse(link=one.host_link),
        host_speed=one.host_speed,
    )
    node = replaced(node, host_memory_bandwidth=one.host_memory_bandwidth)
    return System(name=one.name, groups=(NodeGroup(node=node, count=1),))
