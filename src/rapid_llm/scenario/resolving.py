"""From a mapping of fields to a scenario: nouns by name, path or mapping, and every default."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from math import lcm
from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic.dataclasses import dataclass

from rapid_llm import hardware, model, runtime
from rapid_llm.documents import Document, build, join, known_fields, merge, plain, read_yaml, show
from rapid_llm.dtypes import PRESETS, Precision, precision
from rapid_llm.errors import InputError
from rapid_llm.hardware import Accelerator, System
from rapid_llm.hardware.health import Fault
from rapid_llm.model import Model, MoE
from rapid_llm.model.catalogue import CATALOGUE as MODELS
from rapid_llm.model.huggingface import read_document
from rapid_llm.nouns import STRICT, replaced
from rapid_llm.parallelism import AXES, Parallelism, Placement
from rapid_llm.provenance import is_path
from rapid_llm.runtime import Defaults, Runtime
from rapid_llm.scenario.scenario import Scenario, system_mapping
from rapid_llm.units import Count
from rapid_llm.workload import Inference, Recompute, Training, Workload

RUNTIMES: Mapping[str, str] = {"training": "megatron-core", "inference": "vllm"}
"""What runs a workload when the user does not say."""

Noun = TypeVar("Noun")


@dataclass(frozen=True, kw_only=True, config=STRICT)
class Input:
    """A scenario as a user writes it."""

    model: str | dict[str, Any]
    system: str | dict[str, Any]
    workload: Workload
    accelerators: Count | None = None
    runtime: str | dict[str, Any] | None = None
    parallelism: Parallelism = Parallelism()
    placement: Placement = Placement()
    precision: str | dict[str, Any] | None = None
    network: Literal["closed-form", "flow"] = "closed-form"
    faults: tuple[Fault, ...] = ()
    base: str | None = None


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


_NAMED = {"recompute": "mode"}
"""What a field's text stands for when it becomes a mapping, where that is not the name of its base."""


def resolve(document: Document) -> Scenario:
    """The scenario of a mapping of fields; InputError for what is unknown, missing or of the wrong kind.

    What needs two nouns (degrees that must divide) is left to the checks.
    """
    data, defaults = document.data, []
    _refuse_unavailable(document)
    _refuse_unknown(document)
    _need(document, "model")
    found_model = _slot(document, "model", Model, model.load, _model)
    _need(document, "system")
    system = _slot(document, "system", System, _system_named, _system)
    _need(document, "workload")
    workload = _field(document, "workload", Workload, prepare=partial(_workload, document))
    kind = workload.kind
    if data.get("runtime") is None:
        document = replace(document, data={**data, "runtime": RUNTIMES[kind]})
        defaults.append(f"runtime: {RUNTIMES[kind]} (default for {kind})")
    engine = _slot(document, "runtime", Runtime, runtime.load, partial(_runtime, RUNTIMES[kind]))
    if data.get("precision") is None:
        document = replace(document, data={**document.data, "precision": engine.defaults.precision})
        defaults.append(f"precision: {engine.defaults.precision} (default of {engine.name})")
    formats = _slot(
        document, "precision", Precision, partial(_preset, engine.defaults), partial(_precision, engine.defaults)
    )
    given = _field(document, "parallelism", Parallelism)
    accelerators = _accelerators(document, given, defaults)
    experts = any(isinstance(block.ffn, MoE) for block in found_model.blocks)
    plan = _plan(given, accelerators, engine=engine, workload=workload, experts=experts, defaults=defaults)
    return Scenario(
        model=found_model,
        system=system,
        accelerators=accelerators,
        runtime=engine,
        parallelism=plan,
        placement=_placement(document),
        precision=formats,
        workload=_recompute(workload, engine, defaults),
        network=_network(document),
        faults=_faults(document),
        defaults=tuple(defaults),
        origins=_origins(document),
    )


def _refuse_unknown(document: Document) -> None:
    known = known_fields(Input)
    for name in document.data:
        if name not in known:
            build(Input, {name: None}, document)


def _need(document: Document, name: str) -> None:
    if document.data.get(name) in (None, "", {}):
        raise document.error(f"the field '{name}' is missing.{_EXAMPLES[name]}", name)


_EXAMPLES = {
    "model": " Try model: llama-3.1-8b. See: rapid-llm list models",
    "system": " Try system: dgx-h100. See: rapid-llm list systems",
    "workload": " Try workload: {kind: training, global_batch_size: 512, sequence_length: 8192}.",
}


def _refuse_unavailable(document: Document) -> None:
    """What a scenario will be able to say, and this version cannot answer."""
    workload = document.data.get("workload")
    if document.data.get("pools") is not None:
        message = (
            "pools (prefill and decode on accelerators of their own) are not available yet. Try one system for both."
        )
        raise document.error(message, "pools")
    if isinstance(workload, Mapping) and workload.get("kind") == "serving":
        message = "workload.kind: serving (a stream of requests) is not available yet. Try kind: inference, a batch."
        raise document.error(message, "workload.kind")


def _faults(document: Document) -> tuple[Fault, ...]:
    """What is slow, degraded or down; whether the job has such a place is left to the checks."""
    written = document.data.get("faults") or ()
    if not isinstance(written, (list, tuple)):
        raise document.error(f"faults must be a list (got {show(written)}). Try faults: [].", "faults")
    return tuple(build(Fault, item, document, f"faults[{index}]") for index, item in enumerate(written))


def _network(document: Document) -> Literal["closed-form", "flow"]:
    given = document.data.get("network")
    fields = {**_MINIMAL, "network": given} if given is not None else _MINIMAL
    network: Literal["closed-form", "flow"] = build(Input, fields, document).network
    return network


def _field(
    document: Document,
    name: str,
    noun: Any,
    *,
    prepare: Callable[[Any], Any] = lambda value: value,
    default: Any = None,
) -> Any:
    """A field that is a noun itself, or plain data of it."""
    value = document.data.get(name)
    if value is None:
        value = {} if default is None else default
    return build(noun, prepare(value), document, name)


def _workload(document: Document, value: Any) -> Any:
    """``recompute: full`` is short for ``recompute: {mode: full}``."""
    recompute = value.get("recompute") if isinstance(value, Mapping) else None
    if recompute is None or isinstance(recompute, Recompute):
        return value
    fields = _recompute_fields(document, recompute) if isinstance(recompute, Mapping) else {"mode": recompute}
    return {**value, "recompute": fields}


def _recompute_fields(document: Document, fields: Mapping[str, Any]) -> Mapping[str, Any]:
    """``modules: [core_attn]`` is the selective mode; ``every`` says nothing without a mode."""
    if "modules" in fields:
        modules, named = fields["modules"], {key: value for key, value in fields.items() if key != "modules"}
        if "mode" in fields:
            raise document.error(
                "workload.recompute takes mode or modules, not both. Try mode alone.", "workload.recompute.modules"
            )
        if modules != list(SELECTIVE):
            raise document.error(
                f"workload.recompute.modules can be [{', '.join(SELECTIVE)}] alone, which is recompute: selective "
                f"(got {show(modules)}). Try recompute: selective, or full.",
                "workload.recompute.modules",
            )
        return {"mode": "selective", **named}
    if "every" in fields and "mode" not in fields:
        raise document.error(
            "workload.recompute.every needs a mode, such as {mode: full, every: 2}.", "workload.recompute.every"
        )
    return fields


SELECTIVE = ("core_attn",)
"""The modules of selective recompute, by their name in Megatron-Core's --recompute-modules."""


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


def located(document: Document, path: str, by_name: Callable[[str], Noun], name: str) -> Noun:
    """Look a name up; its error gets the place where the name was written."""
    try:
        return by_name(name)
    except InputError as error:
        if error.file is not None:
            raise
        raise document.error(error.message, path, error.suggestions) from None


def beside(document: Document, name: str) -> str:
    """A path is meant from the folder of its file first, then from the working folder."""
    if not is_path(name) or document.file is None:
        return name
    path = Path(document.file).parent / name
    return str(path) if path.exists() else name


def _changed(value: Mapping[str, Any], base: str) -> dict[str, Any]:
    own = {key: item for key, item in value.items() if key != "base"}
    return {"name": f"{base} (changed)" if own else base, **own}


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
    name = _changed(value, str(value["base"]))["name"] if "base" in value else str(value.get("name", "model"))
    return replace(read_document(below), name=name)


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
    return hardware.build_system(replace(document, data=fields), path)


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


def _runtime(default: str, document: Document, value: Mapping[str, Any], path: str) -> Runtime:
    base = value.get("base") if "base" in value or {"name", "kernels"} <= value.keys() else default
    if base is None:
        return build(Runtime, value, document, path)
    below = located(document, join(path, "base"), runtime.load, beside(document, str(base)))
    return build(Runtime, merge(plain(below), _changed(value, str(base))), document, path)


def _preset(defaults: Defaults, name: str) -> Precision:
    """A preset of precision by its name; the runtime may accumulate gradients in a format of its own."""
    one = precision(name)
    return one if defaults.gradients is None else replaced(one, gradients=defaults.gradients)


def _precision(defaults: Defaults, document: Document, value: Mapping[str, Any], path: str) -> Precision:
    base = str(value.get("base", defaults.precision))
    located(document, join(path, "base"), precision, base)
    own = {} if defaults.gradients is None else {"gradients": defaults.gradients}
    return build(Precision, merge(merge(PRESETS[base], own), _changed(value, base)), document, path)


def _placement(document: Document) -> Placement:
    placement: Placement = _field(document, "placement", Placement)
    if sorted(placement.order) != sorted(AXES):
        given, known = ", ".join(placement.order), ", ".join(AXES)
        raise document.error(
            f"placement.order must name each of {known} once (got {given}). Try [{known}].", "placement.order"
        )
    return placement


def _accelerators(document: Document, plan: Parallelism, defaults: list[str]) -> int:
    """How many accelerators the job takes: as given, else the product of the degrees."""
    if document.data.get("accelerators") is not None:
        count: int = (
            build(Input, {**_MINIMAL, "accelerators": document.data["accelerators"]}, document).accelerators or 1
        )
        return count
    dense = plan.tp * plan.cp
    dp = plan.dp or lcm(dense, plan.ep * (plan.etp or 1)) // dense
    total = dense * plan.pp * dp
    defaults.append(f"accelerators: {total} (product of the degrees)")
    return total


_MINIMAL: Mapping[str, Any] = {
    "model": "",
    "system": "",
    "workload": {"kind": "inference", "batch_size": 1, "prompt_tokens": 1, "output_tokens": 1},
}


def _plan(
    given: Parallelism,
    accelerators: int,
    *,
    engine: Runtime,
    workload: Training | Inference,
    experts: bool,
    defaults: list[str],
) -> Parallelism:
    """Degrees with no field left open. ``dp`` is what is left over; where that does not divide, a check says so."""
    dp = given.dp or max(1, accelerators // (given.tp * given.pp * given.cp))
    usual = engine.defaults
    interleaved = given.vpp > 1
    schedule = "interleaved" if interleaved else "1f1b" if usual.schedule == "interleaved" else usual.schedule
    chosen: dict[str, tuple[Any, str]] = {"dp": (dp, "what is left over")}
    if experts:
        chosen["etp"] = (_expert_tp(given), "tp / ep, at least 1")
    if given.tp > 1:
        chosen["sp"] = (usual.sp, f"default of {engine.name}")
    if workload.kind == "training":
        chosen["zero_stage"] = (usual.zero_stage, f"default of {engine.name}")
    if given.pp > 1 and workload.kind == "training":
        chosen["schedule"] = (schedule, "vpp is above 1" if interleaved else f"default of {engine.name}")
    rest = {"etp": 1, "sp": False, "zero_stage": 0, "schedule": schedule, "dp_shard": dp}
    values = {name: value for name, value in plain(given).items() if value is not None}
    for name, (value, why) in chosen.items():
        if name not in values:
            defaults.append(f"parallelism.{name}: {str(value).lower()} ({why})")
    return Parallelism(**{**rest, **{name: value for name, (value, _) in chosen.items()}, **values})


def _expert_tp(plan: Parallelism) -> int:
    """Experts are cut over the tensor ranks that expert parallelism leaves free."""
    return plan.tp // plan.ep if plan.tp % plan.ep == 0 else 1


def _recompute(workload: Training | Inference, engine: Runtime, defaults: list[str]) -> Training | Inference:
    if isinstance(workload, Inference) or workload.recompute is not None:
        return workload
    defaults.append(f"workload.recompute: {engine.defaults.recompute} (default of {engine.name})")
    return replace(workload, recompute=Recompute(mode=engine.defaults.recompute))


def _origins(document: Document) -> dict[str, str]:
    found = {}
    for slot in ("model", "system", "runtime"):
        value = document.data[slot]
        name = value.get("base") if isinstance(value, Mapping) else value
        if isinstance(name, str) and not is_path(name):
            found[slot] = name
    return found
