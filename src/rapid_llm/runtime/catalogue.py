"""Runtimes by name: one framework a file in ``data/``; ``name@version`` applies one of its ``versions:``.

What ``serving`` and ``communication`` say may stand per architecture, ``{default: 2048, "@hopper": 8192}``, as kernels
do, or from so much memory of an accelerator on, ``"70 GiB": 8192``, where its architecture is not named.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any, Final

from rapid_llm.documents import Document, build, merge
from rapid_llm.errors import InputError, did_you_mean, nearest
from rapid_llm.provenance import Catalogue, Sources, is_path
from rapid_llm.runtime.runtime import Runtime
from rapid_llm.units import parse

CATALOGUE = Catalogue("rapid_llm.runtime", "data", "runtime")


def names() -> list[str]:
    """All runtimes, each with its named versions."""
    found = []
    for name in CATALOGUE.names():
        versions = CATALOGUE.document(name).data.get("versions") or {}
        found += [name, *(f"{name}@{version}" for version in versions)]
    return found


def runs_on(found: Runtime, vendor: str, architecture: str) -> bool:
    """Whether a runtime runs on accelerators of a vendor and architecture; on those of no vendor that any runtime of
    the catalogue names, anything is taken to run."""
    names_it = vendor in found.runs_on or architecture in found.runs_on
    return names_it or not found.runs_on or not _named(vendor, architecture)


@lru_cache(maxsize=128)
def _named(vendor: str, architecture: str) -> bool:
    return any({vendor, architecture} & set(load(name).runs_on) for name in CATALOGUE.names())


def usual(workload: str, vendor: str, architecture: str, model: str = "decoder") -> str | None:
    """What runs a workload of such a kind of model on such an accelerator where the user does not say; None where
    nothing does."""
    found = ((name, load(name)) for name in USUAL[workload])
    return next((name for name, one in found if model in one.runs_models and runs_on(one, vendor, architecture)), None)


USUAL: Final[Mapping[str, tuple[str, ...]]] = {
    "training": ("megatron-core", "maxtext", "neuron", "torchtitan", "fsdp"),
    "inference": ("vllm", "tensorrt-llm", "llama.cpp", "hf-transformers"),
}
"""Runtimes by workload, the most usual first."""


def load(name: str, architecture: str = "", workload: str = "", memory: float = 0.0) -> Runtime:
    """The runtime of a name, an alias or ``name@version`` on an architecture; InputError with the nearest otherwise.

    An alias of several is the one that runs the ``workload``. ``memory``: of an accelerator (bytes). A file is read
    again each time: it may have changed.
    """
    if is_path(name):
        return build_runtime(CATALOGUE.document(name.partition("@")[0]), name, architecture, memory)
    return _loaded(name, architecture, workload, memory)


@lru_cache(maxsize=128)
def _loaded(name: str, architecture: str, workload: str, memory: float) -> Runtime:
    name = written(name, workload)
    return build_runtime(CATALOGUE.document(name.partition("@")[0]), name, architecture, memory)


def written(name: str, workload: str = "") -> str:
    """``framework`` or ``framework@version`` as the catalogue writes what a name or an alias stands for: of several
    the one that runs the ``workload`` (``transformers`` trains and serves)."""
    if is_path(name):
        return name
    base, at, version = name.partition("@")
    several = CATALOGUE.meanings(base)
    found = next((one for one in several if _runs(one) == workload), several[0]) if len(several) > 1 else several[0]
    return f"{found.partition('@')[0]}@{version}" if at else found


def _runs(name: str) -> str:
    """The kind of workload of an entry."""
    return str(CATALOGUE.document(name.partition("@")[0]).data["workload"])


def build_runtime(document: Document, name: str, architecture: str = "", memory: float = 0.0) -> Runtime:
    """A runtime from a document whose ``versions:`` may hold the version that ``name`` asks for."""
    data = _of_version(document, name)
    for part in ("host", "serving", "communication"):
        if isinstance(data.get(part), Mapping):
            data[part] = {key: _on(architecture, memory, size) for key, size in data[part].items()}
    return build(Runtime, {"name": name, **{k: v for k, v in data.items() if k != "name"}}, document)


def entry(name: str) -> tuple[Document, Sources]:
    """What the file of a runtime says, as the version that ``name`` asks for has it, and the source of each number."""
    name = written(name)
    base, _, version = name.partition("@")
    document, found = CATALOGUE.entry(base)
    if not version:
        return document, found
    own = f"versions.{version}."
    below = {path: source for path, source in found.items() if not path.startswith("versions.")}
    above = {path.removeprefix(own): source for path, source in found.items() if path.startswith(own)}
    return replace(document, data=_of_version(document, name)), {**below, **above}


def _of_version(document: Document, name: str) -> dict[str, Any]:
    """The fields of a runtime, those of the version that ``name`` asks for above its own."""
    data = dict(document.data)
    base, at, version = name.partition("@")
    versions = data.pop("versions", None) or {}
    data.pop("aliases", None)
    if at and version != str(data["version"]):
        if version not in versions:
            meant, known = did_you_mean(version, versions), ", ".join([str(data["version"]), *versions])
            said = filter(None, (f"runtime '{base}' has no version '{version}'.", meant, f"It has: {known}."))
            raise InputError(
                " ".join(said),
                field="runtime",
                suggestions=nearest(version, versions),
            )
        own = {key: value for key, value in versions[version].items() if key != "aliases"}
        return merge(data, {**own, "version": version})
    return data


def sources(name: str) -> Sources:
    """Where each number of a runtime comes from, by dotted path."""
    return entry(name)[1]


def _on(architecture: str, memory: float, size: Any) -> Any:
    """What a field holds on an architecture, else from so much memory on, else anywhere."""
    if not (isinstance(size, Mapping) and "default" in size):
        return size
    held = {parse(key, "bytes"): value for key, value in size.items() if key.endswith("iB")}
    most = max((least for least in held if least <= memory), default=None)
    return size.get(f"@{architecture}", size["default"] if most is None else held[most])
