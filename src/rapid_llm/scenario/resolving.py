"""From a mapping of fields to a scenario: nouns by name, path or mapping, and every default."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from math import lcm
from typing import Any

from rapid_llm import runtime
from rapid_llm.documents import Document, build, known_fields, show
from rapid_llm.dtypes import Precision
from rapid_llm.errors import nearest, unknown_name
from rapid_llm.hardware import System, shared_racks
from rapid_llm.hardware.health import Fault
from rapid_llm.model import Model
from rapid_llm.nouns import shared
from rapid_llm.parallelism import AXES, Parallelism, Placement
from rapid_llm.provenance import is_path
from rapid_llm.runtime import Runtime
from rapid_llm.scenario.inputs import Input
from rapid_llm.scenario.named import draft_of, model_of, own_precision, precision_of, runtime_of, system_of
from rapid_llm.scenario.plan_defaults import filled_plan
from rapid_llm.scenario.scenario import Scenario
from rapid_llm.scenario.workload_input import need_output, with_defaults, written_workload
from rapid_llm.workload import Workload


def resolve(document: Document) -> Scenario:
    """The scenario of a mapping of fields; InputError for what is unknown, missing or of the wrong kind.

    What needs two nouns (degrees that must divide) is left to the checks.
    """
    defaults = list[str]()
    _refuse_unavailable(document)
    _refuse_unknown(document)
    _need(document, "model")
    model = model_of(document)
    _need(document, "system")
    system = system_of(document)
    _need(document, "workload")
    workload = _field(document, "workload", Workload, prepare=partial(written_workload, document, model, defaults))
    need_output(document, model, workload)
    document, engine = _engine(document, model, system, workload.kind, defaults)
    document, formats = _formats(document, model, system, engine, defaults)
    given = _field(document, "parallelism", Parallelism)
    accelerators = _accelerators(document, given, system, defaults)
    system = _shared(system, accelerators, defaults)
    plan = filled_plan(given, accelerators, engine=engine, workload=workload, model=model, defaults=defaults)
    return Scenario(
        model=model,
        system=system,
        accelerators=accelerators,
        runtime=engine,
        parallelism=shared(plan),
        placement=_placement(document, system),
        precision=shared(formats),
        workload=with_defaults(document, workload, engine, defaults),
        network=_top(document, "network", "closed-form"),
        faults=_faults(document),
        draft=draft_of(document, formats),
        price_per_hour=_top(document, "price_per_hour", None),
        defaults=tuple(defaults),
        written=given,
        origins=_origins(document),
    )


def _engine(
    document: Document, model: Model, system: System, kind: str, defaults: list[str]
) -> tuple[Document, Runtime]:
    """What runs the job: the runtime as given, else the usual one, which the document then names."""
    usual = _usual_runtime(kind, system, model)
    if document.data.get("runtime") is None:
        document = replace(document, data={**document.data, "runtime": usual})
        defaults.append(f"runtime: {usual} (default for {kind}{_there(kind, usual, system, model)})")
    return document, runtime_of(document, system, usual, kind)


def _formats(
    document: Document, model: Model, system: System, engine: Runtime, defaults: list[str]
) -> tuple[Document, Precision]:
    """Number formats: as given, else those that the checkpoint comes in or the accelerator trains in."""
    preset, why = own_precision(model, system, engine)
    if document.data.get("precision") is None:
        document = replace(document, data={**document.data, "precision": preset})
        defaults.append(f"precision: {preset} ({why})")
    return document, precision_of(document, preset, engine.defaults.gradients)


def _shared(system: System, accelerators: int, defaults: list[str]) -> System:
    """The system as the job uses it; parts of racks that it takes are mentioned among the defaults."""
    met, whole = shared_racks(system, accelerators), system.groups[0].node.accelerators
    if (part := met.groups[0].node.accelerators) != whole:
        defaults.append(f"system: {accelerators // part} racks of {whole} give {part} accelerators each")
    return met


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
    """InputError for parts of a scenario that are planned but not available in this version."""
    workload = document.data.get("workload")
    if isinstance(workload, Mapping) and workload.get("kind") == "serving":
        message = "workload.kind: serving (a stream of requests) is not available yet. Try kind: inference, a batch."
        raise document.error(message, "workload.kind")


def _faults(document: Document) -> tuple[Fault, ...]:
    """What is slow, degraded or down; whether the job has such a place is left to the checks."""
    written = document.data.get("faults") or ()
    if not isinstance(written, (list, tuple)):
        tried = "[{nic: node0.nic0, down: true}]"
        raise document.error(f"faults must be a list (got {show(written)}). Try faults: {tried}.", "faults")
    return tuple(build(Fault, item, document, f"faults[{index}]") for index, item in enumerate(written))


def _top(document: Document, name: str, default: Any) -> Any:
    """A plain value at the top level."""
    given = document.data.get(name)
    return default if given is None else getattr(build(Input, {**_MINIMAL, name: given}, document), name)


def _field(
    document: Document,
    name: str,
    noun: Any,
    *,
    prepare: Callable[[Any], Any] = lambda value: value,
) -> Any:
    """A noun at the top level, given as such or as plain data."""
    value = document.data.get(name)
    return build(noun, prepare({} if value is None else value), document, name)


def _placement(document: Document, system: System) -> Placement:
    placement: Placement = _field(document, "placement", Placement)
    if sorted(placement.order) != sorted(AXES):
        given, known = ", ".join(placement.order), ", ".join(AXES)
        raise document.error(
            f"placement.order must name each of {known} once (got {given}). Try [{known}].", "placement.order"
        )
    names = [group.name for group in system.groups if group.name]
    for index, name in enumerate(placement.stages if names else ()):
        if name not in names:
            place = f"placement.stages[{index}]"
            raise document.error(unknown_name(place, name, names), place, nearest(name, names))
    return placement


def _accelerators(document: Document, plan: Parallelism, system: System, defaults: list[str]) -> int:
    """How many accelerators the job takes: as given, else all of several groups, else the product of the degrees."""
    count: int | None = _top(document, "accelerators", None)
    if count is not None:
        return count
    dense = plan.tp * plan.cp
    if len(system.groups) > 1 and plan.dp is None:
        defaults.append(f"accelerators: {system.accelerators} (all groups of the system)")
        return system.accelerators
    dp = plan.dp or lcm(dense, plan.ep * (plan.etp or 1)) // dense
    total = dense * plan.pp * dp
    defaults.append(f"accelerators: {total} (product of the degrees)")
    return total


_MINIMAL: Mapping[str, Any] = {
    "model": "",
    "system": "",
    "workload": {"kind": "inference", "batch_size": 1, "prompt_tokens": 1, "output_tokens": 1},
}


def _usual_runtime(kind: str, system: System, model: Model) -> str:
    """What runs a workload on a system where the user does not say; the most usual of all where nothing does."""
    chip = system.groups[0].node.accelerator
    return runtime.usual(kind, chip.vendor, chip.architecture, model.kind) or runtime.USUAL[kind][0]


def _there(kind: str, name: str, system: System, model: Model) -> str:
    """Why the usual runtime is not the most usual one of all: the model, else the accelerator; empty where it is."""
    if name == runtime.USUAL[kind][0]:
        return ""
    if model.kind not in runtime.load(runtime.USUAL[kind][0]).runs_models:
        return f" of {model.name}"
    return f" on {system.groups[0].node.accelerator.name}"


def _origins(document: Document) -> dict[str, str]:
    """Names of the catalogue that the model, the system and the runtime come from, changed or not."""
    found = {}
    for slot in ("model", "system", "runtime"):
        value = document.data[slot]
        name = value.get("base") if isinstance(value, Mapping) else value
        if isinstance(name, str) and not is_path(name):
            found[slot] = name
    return found
