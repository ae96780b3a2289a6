"""The nouns that a scenario names or describes: model, system, runtime, precision."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from pydantic.dataclasses import dataclass

from rapid_llm import hardware, model, runtime
from rapid_llm.documents import Document, build, join, known_fields, merge, plain, read_yaml, show
from rapid_llm.dtypes import PRESETS, Precision, dtype, precision
from rapid_llm.errors import InputError, nearest, unknown_name
from rapid_llm.hardware import Accelerator, System
from rapid_llm.model import Model
from rapid_llm.model.catalogue import CATALOGUE as MODELS
from rapid_llm.model.huggingface import read_document
from rapid_llm.nouns import STRICT, replaced
from rapid_llm.provenance import is_path, located
from rapid_llm.runtime import Runtime
from rapid_llm.scenario.scenario import Draft, system_mapping
from rapid_llm.units import Count
from rapid_llm.workload import read_counts

Noun = TypeVar("Noun")


@dataclass(frozen=True, kw_only=True, config=STRICT)
class DraftInput:
    """The model that drafts tokens; ``precision`` as the scenario's where it is left out."""

    model: str | dict[str, Any]
    precision: str | dict[str, Any] | None = None
    tp: Count = 1


def layer(below: Mapping[str, Any], top: Mapping[str, Any]) -> dict[str, Any]:
    """``top`` over ``below``: mappings merge, and a mapping over a name inherits from that name."""
    merged = dict(below)
    for key, value in top.items():
        under = merged.get(key)
        merged[key] = value
        if isinstance(value, Mapping) and "base" not in value:
            if isinstance(under, str):
                merged[key] = {_NAMED.get(key, "base"): under, **value}
            elif isinstance(under, Mapping):
                merged[key] = layer(under, value)
    return merged


_NAMED = {"recompute": "mode", "draft": "model"}
"""What a field's text stands for when it becomes a mapping, where that is not the name of its base."""


def model_of(document: Document) -> Model:
    """The model of a scenario."""
    return _slot(document, "model", Model, _model_named, _model)


def system_of(document: Document) -> System:
    """The system of a scenario."""
    return _slot(document, "system", System, _system_named, _system)


def runtime_of(document: Document, system: System, default: str, workload: str) -> Runtime:
    """The runtime that runs a scenario's workload on its accelerators; fields without a base are
    laid over ``default``.
    """
    chip = system.groups[0].node.accelerator
    own = 0 if chip.memory.unified else chip.memory.hbm.capacity  # NVML knows none of a unified memory
    by_name = partial(runtime.load, architecture=chip.architecture, workload=workload, memory=own)
    return _slot(document, "runtime", Runtime, by_name, partial(_runtime, by_name, default))


def precision_of(document: Document, preset: str, gradients: str | None = None) -> Precision:
    """The precision of a scenario; fields without a base are laid over ``preset``. ``gradients``: the format in which
    the runtime adds them up, where the scenario says nothing of it."""
    return _slot(document, "precision", Precision, partial(_preset, gradients), partial(_precision, preset, gradients))


def draft_of(document: Document, formats: Precision) -> Draft | None:
    """The model that drafts tokens, by name or as fields."""
    value = document.data.get("draft")
    if value is None or isinstance(value, Draft):
        return value
    fields = value if isinstance(value, Mapping) else {"model": value}
    given: DraftInput = build(DraftInput, fields, document, "draft")
    if isinstance(given.model, Mapping):
        found = _model(document, given.model, "draft.model")
    else:
        found = located(document, "draft.model", model.load, beside(document, given.model))
    own = given.precision
    if isinstance(own, Mapping):
        formats = _precision("bf16", None, document, own, "draft.precision")
    elif own is not None:
        formats = located(document, "draft.precision", precision, own)
    return Draft(model=found, precision=formats, tp=given.tp)


def _slot(
    document: Document,
    name: str,
    noun: type[Noun],
    by_name: Callable[[str], Noun],
    by_fields: Callable[[Document, Mapping[str, Any], str], Noun],
) -> Noun:
    """A noun written as itself, a name, a path, or a mapping of fields (with ``base``)."""
    value = document.data[name]
    if isinstance(value, noun):
        return value
    if isinstance(value, Mapping):
        return by_fields(document, value, name)
    if not isinstance(value, str):
        raise document.error(f"{name} must be {_WRITTEN[name]} or a mapping of fields (got {show(value)}).", name)
    return located(document, name, by_name, beside(document, value))


_WRITTEN = {"precision": "a name", **dict.fromkeys(("model", "system", "runtime"), "a name, a path")}


def beside(document: Document, name: str) -> str:
    """The path that a file means: relative to its own folder first, then to the working folder."""
    if document.file is None or not (is_path(name) or name.endswith((".csv", ".txt"))):
        return name
    path = Path(document.file).parent / name
    return str(path) if path.exists() else name


def _changed(value: Mapping[str, Any], base: str) -> dict[str, Any]:
    own = {key: item for key, item in value.items() if key != "base"}
    return {"name": changed_name(base) if own else base, **own}


def counted(document: Document, value: Mapping[str, Any]) -> Mapping[str, Any]:
    """Counts of experts from the file that ``routing.counts`` names, from the folder of the scenario first."""
    routing = value.get("routing")
    named = routing.get("counts") if isinstance(routing, Mapping) else None
    if not isinstance(routing, Mapping) or not isinstance(named, (str, Path)):
        return value
    found = read_counts(Path(beside(document, str(named))))
    return {**value, "routing": {**routing, "counts": found}}


def changed_name(name: str) -> str:
    """The name of a noun of which a user changed something: ``bf16 (changed)``."""
    return name if name.endswith(" (changed)") else f"{name} (changed)"


def _same(found: Noun, below: Noun, value: Mapping[str, Any]) -> Noun:
    """``below`` where the fields laid over it change no value and give no name."""
    name: Any = getattr(below, "name")  # noqa: B009 - a type variable has no fields
    return below if "name" not in value and replaced(found, name=name) == below else found


def _own_name(document: Document, value: Mapping[str, Any], path: str, base: str, known: Collection[str]) -> None:
    """Refuse a name that does not fit: fields laid over ``base`` that carry the name of another noun, or a name alone
    that changes nothing.
    """
    name = value.get("name")
    if name is None or name == base or (name not in list(known) and value.keys() != {"name"}):
        return
    meant = name if name in list(known) else next(iter(nearest(str(name), known)), base)
    raise document.error(
        f"{path}.name {show(name)} is a label alone, and the fields under it stay those of {base}. "
        f"Try {path}: {meant}, or base: {meant} beside what changes.",
        join(path, "name"),
    )


def _model_named(name: str) -> Model:
    """The model of a name or path; a file that describes a whole job is none."""
    if is_path(name) and Path(name).is_file() and {"model", "workload"} <= read_yaml(name).data.keys():
        raise InputError(
            f"model '{name}' is a scenario file, which holds a model and its job. Try rapid-llm run {name}, or "
            f"rapid-llm fit {name} for its memory alone."
        )
    return model.load(name)


def _model(document: Document, value: Mapping[str, Any], path: str) -> Model:
    if "blocks" in value and "base" in value:
        raise document.error(
            "model.blocks describe a whole model and stand without base. Try the fields of a config.json, such as "
            "model.num_hidden_layers.",
            "model.blocks",
        )
    if "blocks" in value:
        whole: Model = build(Model, value, document, path)
        last = len(whole.blocks) - 1
        if not whole.pattern or not all(0 <= index <= last for index in whole.pattern):
            raise document.error(
                f"model.pattern must give each layer the index of its block, 0 to {last} (got {show(whole.pattern)}).",
                "model.pattern",
            )
        return whole
    below, _ = MODELS.inherit(_below(document, value, path))
    read = _Read(below.data)
    found = read_document(replace(below, data=read))
    if "base" in value:
        _refuse_unread(document, value, path, read)
    name = _changed(value, str(value["base"]))["name"] if "base" in value else str(value.get("name", "model"))
    return replace(found, name=name)


class _Read(dict[str, Any]):
    """The fields of a model, and which of them its reader asked for."""

    def __init__(self, data: Mapping[str, Any]) -> None:
        super().__init__(data)
        self.asked = set[object]()

    def __contains__(self, key: object) -> bool:
        self.asked.add(key)
        return super().__contains__(key)

    def __getitem__(self, key: str) -> Any:
        self.asked.add(key)
        return super().__getitem__(key)

    def get(self, key: str, default: Any = None) -> Any:
        """A field or a default."""
        self.asked.add(key)
        return super().get(key, default)


def _refuse_unread(document: Document, value: Mapping[str, Any], path: str, read: _Read) -> None:
    """InputError for a field laid over a known model that its reader never reads: a misspelling, or a field without
    effect.
    """
    unread = next((key for key in value if key not in read.asked and key not in _LABELS), None)
    if unread is None:
        return
    known = [key for key in map(str, read.asked) if key not in _LABELS]
    close = nearest(unread, known)
    hint = f"Did you mean '{close[0]}'?" if close else "Try to leave it out."
    raise document.error(
        f"{join(path, unread)} changes nothing of {value['base']}, whose reader knows no such field. {hint}",
        join(path, unread),
        close,
    )


_LABELS = frozenset(("base", "name", "source", "kind", "notes", "aliases"))
"""Fields of a model that say nothing of its shape."""


def _below(document: Document, value: Mapping[str, Any], path: str) -> Document:
    start = f"{path}."
    lines = {key.removeprefix(start): line for key, line in document.lines.items() if key.startswith(start)}
    return Document(data=dict(value), lines=lines, file=document.file)


_CHIP = frozenset(known_fields(Accelerator)) - {"name", "aliases"}


def _system_named(name: str) -> System:
    """The system of a name or path; a file that describes an accelerator is one of it, as an accelerator's name is."""
    if not is_path(name):
        return hardware.system(name)
    written = read_yaml(name)
    if {"model", "workload"} <= written.data.keys():
        raise InputError(
            f"system '{name}' is a scenario file, which holds a system and its job. Try rapid-llm run {name}."
        )
    own = written.data.keys() - {"base", "name", "aliases", "source", "kind", "notes"}
    base = str(written.data.get("base", ""))
    if base in hardware.system_names() or not (own & _CHIP or base in hardware.accelerator_names()):
        return hardware.system(name)
    chip = hardware.build_accelerator(replace(written, data={"name": Path(name).stem, **written.data}))
    return hardware.alone(chip)


def _system(document: Document, value: Mapping[str, Any], path: str) -> System:
    """Fields over a base system; ``accelerator`` is short for ``node.accelerator``."""
    fields = _shorten(dict(value)) if "accelerator" in value else dict(value)
    base = fields.get("base")
    if base is not None:
        below = located(document, join(path, "base"), hardware.system, beside(document, str(base)))
        fields = merge(system_mapping(below), _with_accelerator(_changed(fields, str(base)), below, document, path))
    elif isinstance(fields.get("node"), Mapping):
        fields = _with_accelerator(fields, None, document, path)
    found = hardware.build_system(replace(document, data=fields), path)
    return found if base is None else _same(found, below, value)


def _shorten(fields: dict[str, Any]) -> dict[str, Any]:
    accelerator = fields.pop("accelerator")
    return layer(fields, {"node": {"accelerator": accelerator}})


def _with_accelerator(fields: dict[str, Any], below: System | None, document: Document, path: str) -> dict[str, Any]:
    """A node whose accelerator is built: laid over its ``base``, or over the one of the base system."""
    node = fields.get("node")
    if not isinstance(node, Mapping) or not isinstance(node.get("accelerator"), (str, Mapping)):
        return fields
    written = node["accelerator"]
    short = join(path, "accelerator")
    place = short if any(line.startswith(short) for line in document.lines) else join(path, "node.accelerator")
    if isinstance(written, str):
        chip = located(document, place, hardware.accelerator, beside(document, written))
    else:
        base = written.get("base")
        under = below.groups[0].node.accelerator if below else None
        if base is not None:
            under = located(document, join(place, "base"), hardware.accelerator, beside(document, str(base)))
        over = _changed(written, under.name) if under else dict(written)
        data = merge(plain(under), over) if under else over
        chip = hardware.build_accelerator(replace(document, data=data), place)
    return {**fields, "node": {**node, "accelerator": chip}}


def _runtime(
    by_name: Callable[[str], Runtime], default: str, document: Document, value: Mapping[str, Any], path: str
) -> Runtime:
    base = value.get("base") if "base" in value or {"name", "kernels"} <= value.keys() else default
    if base is None:
        return build(Runtime, value, document, path)
    _own_name(document, value, path, str(base), runtime.names())
    below = located(document, join(path, "base"), by_name, beside(document, str(base)))
    return _same(build(Runtime, merge(plain(below), _changed(value, str(base))), document, path), below, value)


def _preset(gradients: str | None, name: str) -> Precision:
    one = precision(name)
    return one if gradients is None else replaced(one, gradients=gradients)


def _precision(
    preset: str, gradients: str | None, document: Document, value: Mapping[str, Any], path: str
) -> Precision:
    if "base" not in value and value.keys() >= _WHOLE:
        return build(Precision, value, document, path)
    base = str(value.get("base", preset))
    located(document, join(path, "base"), precision, base)
    _own_name(document, value, path, base, PRESETS)
    below = _preset(gradients, base)
    return _same(build(Precision, merge(plain(below), _changed(value, base)), document, path), below, value)


_WHOLE = frozenset(("name", "compute", "weights", "activations", "communication", "kv_cache", "gradients", "optimizer"))
"""What a precision that lacks nothing says: it is laid over no other."""
CHECKPOINTS = {
    "fp8": ("fp8-block", "fp8-wo"),
    "mxfp4": ("mxfp4-experts",),
    "nvfp4": ("nvfp4",),
    "nvfp4-experts": ("nvfp4-experts",),
    "int4": ("int4-wo",),
    "int4-experts": ("int4-experts",),
    "int8": ("int8-wo",),
}
"""Formats of checkpoints, to the presets in which engines run them, the first whose rate an accelerator has."""


def own_precision(found: Model, system: System, engine: Runtime) -> tuple[str, str]:
    """The preset of a job that names none, and why.

    Engines run a checkpoint in the format that it comes in; an accelerator without bf16 computes in fp16.
    """
    chips, usual = [group.node.accelerator for group in system.groups], engine.defaults.precision
    if usual not in PRESETS:
        raise InputError(
            unknown_name("runtime.defaults.precision", usual, PRESETS),
            field="runtime.defaults.precision",
            suggestions=nearest(usual, PRESETS),
        )

    def computes(preset: str) -> bool:
        one = precision(preset)
        rates = {dtype(part.compute).rate for part in (one, one.of_experts)}
        return all(chip.rate(rate) is not None for chip in chips for rate in rates)

    if engine.workload == "inference" and usual in ("bf16", "fp16"):
        own = next(filter(computes, CHECKPOINTS.get(found.quantization or "", ())), None)
        if own is not None:
            return own, f"checkpoint of {found.name}"
    instead = usual.replace("bf16", "fp16")
    if engine.workload == "inference" and found.quantization and found.quantization not in CHECKPOINTS:
        return usual, f"the checkpoint's own format, {found.quantization}, is not known"
    if not computes(usual) and instead in PRESETS and computes(instead):
        return instead, f"{' or '.join(chip.name for chip in chips)} has no bf16"
    return usual, f"default of {engine.name}"
