"""From a mapping of fields to a scenario: nouns by name, path or mapping, and every default."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from functools import partial
from math import lcm
from typing import Any, Literal, TypeVar

from pydantic.dataclasses import dataclass

from rapid_llm import runtime
from rapid_llm.documents import Document, build, known_fields, plain, show
from rapid_llm.errors import nearest, unknown_name
from rapid_llm.hardware import System, shared_racks
from rapid_llm.hardware.health import Fault
from rapid_llm.model import Model, MoE
from rapid_llm.nouns import STRICT, replaced, shared
from rapid_llm.parallelism import AXES, Parallelism, Placement
from rapid_llm.provenance import is_path
from rapid_llm.runtime import EXCHANGES, Runtime
from rapid_llm.scenario.named import (
    DraftInput,
    counted,
    draft_of,
    model_of,
    own_precision,
    precision_of,
    runtime_of,
    system_of,
)
from rapid_llm.scenario.scenario import Scenario
from rapid_llm.units import Count, Positive
from rapid_llm.workload import RECOMPUTED, Inference, Recompute, Training, Workload

Noun = TypeVar("Noun")


@dataclass(frozen=True, kw_only=True, config=STRICT)
class PoolInput:
    """One pool of a disaggregated job; what is left out is as the scenario says, but for the number of accelerators."""

    system: str | dict[str, Any] | None = None
    accelerators: Count | None = None
    runtime: str | dict[str, Any] | None = None
    parallelism: dict[str, Any] = field(default_factory=dict)
    precision: str | dict[str, Any] | None = None
    price_per_hour: Positive | None = None


@dataclass(frozen=True, kw_only=True, config=STRICT)
class PoolsInput:
    """Prefill and decode on accelerators of their own, and how the cache gets from one to the other."""

    prefill: PoolInput
    decode: PoolInput
    ffn: PoolInput | None = None
    transfer: Literal["layerwise", "whole"] = "layerwise"
    link: str | None = None
    micro_batches: Count | None = None


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
    draft: str | DraftInput | None = None
    pools: PoolsInput | None = None
    price_per_hour: Positive | None = None
    base: str | None = None


def resolve(document: Document) -> Scenario:
    """The scenario of a mapping of fields; InputError for what is unknown, missing or of the wrong kind.

    What needs two nouns (degrees that must divide) is left to the checks.
    """
    data, defaults = document.data, list[str]()
    _refuse_unavailable(document)
    _refuse_unknown(document)
    _need(document, "model")
    found_model = model_of(document)
    _need(document, "system")
    system = system_of(document)
    _need(document, "workload")
    workload = _field(document, "workload", Workload, prepare=partial(_workload, document, found_model, defaults))
    _need_output(document, found_model, workload)
    kind = workload.kind
    usual = _usual_runtime(kind, system, found_model)
    if data.get("runtime") is None:
        document = replace(document, data={**data, "runtime": usual})
        defaults.append(f"runtime: {usual} (default for {kind}{_there(kind, usual, system, found_model)})")
    engine = runtime_of(document, system, usual, kind)
    preset, why = own_precision(found_model, system, engine)
    if data.get("precision") is None:
        document = replace(document, data={**document.data, "precision": preset})
        defaults.append(f"precision: {preset} ({why})")
    formats = precision_of(document, preset, engine.defaults.gradients)
    given = _field(document, "parallelism", Parallelism)
    accelerators = _accelerators(document, given, system, defaults)
    system = _shared(system, accelerators, defaults)
    plan = _plan(given, accelerators, engine=engine, workload=workload, model=found_model, defaults=defaults)
    written = data["workload"]
    if kind == "training" and isinstance(written, Mapping) and written.get("micro_batch_size") is None:
        defaults.append("workload.micro_batch_size: 1 (default)")
    return Scenario(
        model=found_model,
        system=system,
        accelerators=accelerators,
        runtime=engine,
        parallelism=shared(plan),
        placement=_placement(document, system),
        precision=shared(formats),
        workload=_recompute(workload, engine, defaults),
        network=_top(document, "network", "closed-form"),
        faults=_faults(document),
        draft=draft_of(document, formats),
        price_per_hour=_top(document, "price_per_hour", None),
        defaults=tuple(defaults),
        written=given,
        origins=_origins(document),
    )


def _shared(system: System, accelerators: int, defaults: list[str]) -> System:
    """The system as the job meets it, and a word on racks that it takes a part of."""
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
    """What a scenario will be able to say, and this version cannot answer."""
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
    """A field at the top that is a plain value."""
    given = document.data.get(name)
    return default if given is None else getattr(build(Input, {**_MINIMAL, name: given}, document), name)


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


def _workload(document: Document, model: Model, defaults: list[str], value: Any) -> Any:
    """``recompute: full`` is short for ``recompute: {mode: full}``, a list for that of its modules; lengths that a
    model leaves no choice of are filled in."""
    value = counted(document, _lengths(model, defaults, value)) if isinstance(value, Mapping) else value
    recompute = value.get("recompute") if isinstance(value, Mapping) else None
    if recompute is None or isinstance(recompute, Recompute):
        return value
    if isinstance(recompute, list | tuple):
        recompute = {"modules": recompute}
    fields = _recompute_fields(document, recompute) if isinstance(recompute, Mapping) else {"mode": recompute}
    return {**value, "recompute": fields}


def _lengths(model: Model, defaults: list[str], value: Mapping[str, Any]) -> Mapping[str, Any]:
    """Lengths that a model leaves no choice of, and those of a decoder beside its encoder."""
    training, encoder = value.get("kind") == "training", model.encoder
    read = "sequence_length" if training else "prompt_tokens"
    found = dict(value)
    if encoder is not None and encoder.window and found.get(read) is None:
        found[read] = encoder.window
        defaults.append(f"workload.{read}: {encoder.window} (a window of sound)")
    if model.patch_values and found.get(read) is None:
        found[read] = model.max_position_embeddings
        defaults.append(f"workload.{read}: {found[read]} (the patches of an image and its class)")
    if encoder is not None and training and found.get("decoder_sequence_length") is None:
        written = model.max_position_embeddings if encoder.window else found.get(read)
        found["decoder_sequence_length"] = written
        defaults.append(f"workload.decoder_sequence_length: {written} ({'its most' if encoder.window else 'as read'})")
    return found


def _need_output(document: Document, model: Model, workload: Training | Inference) -> None:
    """Only a model that writes nothing can do without ``output_tokens``."""
    written = document.data.get("workload")
    said = isinstance(written, Mapping) and written.get("output_tokens") is None
    if isinstance(workload, Inference) and model.writes and said:
        raise document.error(
            "the field 'workload.output_tokens' is missing. Try output_tokens: 256.", "workload.output_tokens"
        )


def _recompute_fields(document: Document, fields: Mapping[str, Any]) -> Mapping[str, Any]:
    """``modules`` are of the selective mode, ``[core_attn]`` is that mode; ``every`` says nothing without a mode."""
    if modules := fields.get("modules"):
        named = {key: value for key, value in fields.items() if key != "modules"}
        if fields.get("mode", "selective") != "selective":
            raise document.error(
                "workload.recompute takes mode or modules, not both. Try mode alone.", "workload.recompute.modules"
            )
        wrong = next((name for name in modules if name not in RECOMPUTED), None) if _listed(modules) else modules
        if wrong is not None:
            raise document.error(
                f"workload.recompute.modules is a list of {', '.join(RECOMPUTED)} (got {show(wrong)}). "
                "Try [core_attn].",
                "workload.recompute.modules",
            )
        return {**named, "mode": "selective", "modules": () if tuple(modules) == ("core_attn",) else tuple(modules)}
    if "every" in fields and "mode" not in fields:
        raise document.error(
            "workload.recompute.every needs a mode, such as {mode: full, every: 2}.", "workload.recompute.every"
        )
    return fields


def _listed(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str)


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


def _plan(
    given: Parallelism,
    accelerators: int,
    *,
    engine: Runtime,
    workload: Training | Inference,
    model: Model,
    defaults: list[str],
) -> Parallelism:
    """Degrees with no field left open. ``dp`` is what is left over; where that does not divide, a check says so."""
    dp = given.dp or max(1, accelerators // (given.tp * given.pp * given.cp))
    usual = engine.defaults
    interleaved = given.vpp > 1
    schedule = "interleaved" if interleaved else "1f1b" if usual.schedule == "interleaved" else usual.schedule
    chosen: dict[str, tuple[Any, str]] = {"dp": (dp, "what is left over")}
    if any(isinstance(block.ffn, MoE) for block in model.blocks):
        chosen["etp"] = (_expert_tp(given), "tp / ep, at least 1")
    if given.tp * given.kvp > 1:
        chosen["sp"] = (usual.sp, f"default of {engine.name}")
    if workload.kind == "training":
        chosen["zero_stage"] = (usual.zero_stage, f"default of {engine.name}")
    if given.pp > 1 and workload.kind == "training":
        chosen["schedule"] = (schedule, "vpp is above 1" if interleaved else f"default of {engine.name}")
    way, why = _exchange(given, engine, model)
    if given.cp > 1:
        chosen["exchange"] = way, why
        if (given.exchange or way) == "ulysses" and given.ulysses == 1:
            given = replaced(given, ulysses=given.cp)
    rest = {"exchange": way, "etp": 1, "sp": False, "zero_stage": 0, "dp_shard": dp}
    if workload.kind == "training":
        rest["schedule"] = schedule
    values = {name: value for name, value in plain(given).items() if value is not None}
    for name, (value, why) in chosen.items():
        if name not in values:
            defaults.append(f"parallelism.{name}: {str(value).lower()} ({why})")
    return Parallelism(**{**rest, **{name: value for name, (value, _) in chosen.items()}, **values})


def replanned(scenario: Scenario, accelerators: int, **degrees: int) -> Scenario:
    """The scenario as if its plan had been written with these degrees: what the user left open is filled in anew, and
    its defaults are those of the new plan."""
    given = replaced(scenario.written or scenario.parallelism, **{"dp": None, **degrees})
    defaults: list[str] = []
    own: dict[str, Any] = {"engine": scenario.runtime, "workload": scenario.workload, "model": scenario.model}
    filled = _plan(given, accelerators, defaults=defaults, **own)
    kept = (one for one in scenario.defaults if not one.startswith(("parallelism.", "accelerators: ")))
    return replaced(scenario, accelerators=accelerators, parallelism=filled, written=given, defaults=(*kept, *defaults))


def _exchange(plan: Parallelism, engine: Runtime, model: Model) -> tuple[str, str]:
    """How cp ranks exchange a sequence where nobody says: as ``ulysses`` has it, else the first way of the framework
    that goes with the model's attention."""
    if plan.ulysses > 1:
        return ("ulysses" if plan.ulysses == plan.cp else "hybrid"), f"ulysses {plan.ulysses} of cp {plan.cp}"
    facts = engine.training
    ways = facts.exchange if facts else EXCHANGES
    mixers = [block.mixer for block in model.blocks if block.mixer]
    if facts and any(getattr(mixer, "sliding_window", None) for mixer in mixers):
        ways = tuple(way for way in ways if way in facts.window_exchange) or ways
    if facts and any(mixer.kind == "mla" for mixer in mixers):
        ways = tuple(way for way in ways if way in facts.latent_exchange) or ways
    return ways[0], f"default of {engine.name}"


def _expert_tp(plan: Parallelism) -> int:
    """Experts are cut over the tensor ranks that expert parallelism leaves free."""
    ranks = plan.tp * plan.kvp
    return ranks // plan.ep if ranks % plan.ep == 0 else 1


def _recompute(workload: Training | Inference, engine: Runtime, defaults: list[str]) -> Training | Inference:
    if isinstance(workload, Inference) or workload.recompute is not None:
        return workload
    defaults.append(f"workload.recompute: {engine.defaults.recompute} (default of {engine.name})")
    return replace(workload, recompute=Recompute(mode=engine.defaults.recompute))


def _usual_runtime(kind: str, system: System, model: Model) -> str:
    """What runs a workload on a system where the user does not say; the most usual of all where nothing does."""
    chip = system.groups[0].node.accelerator
    return runtime.usual(kind, chip.vendor, chip.architecture, model.kind) or runtime.USUAL[kind][0]


def _there(kind: str, name: str, system: System, model: Model) -> str:
    if name == runtime.USUAL[kind][0]:
        return ""
    if model.kind not in runtime.load(runtime.USUAL[kind][0]).runs_models:
        return f" of {model.name}"
    return f" on {system.groups[0].node.accelerator.name}"


def _origins(document: Document) -> dict[str, str]:
    found = {}
    for slot in ("model", "system", "runtime"):
        value = document.data[slot]
        name = value.get("base") if isinstance(value, Mapping) else value
        if isinstance(name, str) and not is_path(name):
            found[slot] = name
    return found
