"""A job in keywords, which are names of fields: the flags of the command line and the arguments of Python."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rapid_llm import hardware
from rapid_llm.documents import known_fields
from rapid_llm.errors import InputError, nearest, unknown_name
from rapid_llm.hardware import Accelerator
from rapid_llm.parallelism import Parallelism
from rapid_llm.workload import ONE_LAYER_DRAFTS, Inference, Training

MOST_CHIPS = 1_000_000
"""Accelerators beside a chip that stands alone in a question about memory."""
CHIPS_PER_HOST = 8
"""Of these, as many as share the memory of a server's CPUs."""
TOP = ("system", "accelerators", "runtime", "precision", "network", "placement", "faults", "pools", "price_per_hour")
OF_THE_COMMAND_LINE = {
    "out": "in Python report.to_dict() holds what it writes",
    "json": "in Python report.to_dict() is the same object",
    "set": "in Python a nested field is a mapping, as offload={'weights': 0.5}",
    "sets": "in Python a nested field is a mapping, as offload={'weights': 0.5}",
    "allow_infeasible": "in Python rapid_llm.predict(report.origin, allow_infeasible=True) gives such times",
    "timeline": "it writes a page",
    "memory_timeline": "it writes a page",
    "max": "in Python rapid_llm.predict.largest(scenario, 'requests') finds it",
}
"""Flags that are no field of a scenario, and what does their work in Python."""
_PLAN = known_fields(Parallelism)
_JOBS = {"training": frozenset(known_fields(Training)), "inference": frozenset(known_fields(Inference))}


def path(keyword: str) -> str:
    """Where a keyword stands in a scenario: ``tp`` is ``parallelism.tp``."""
    if keyword in TOP:
        return keyword
    return f"parallelism.{keyword}" if keyword in _PLAN else f"workload.{keyword}"


def job(kind: str, model: Any, given: Mapping[str, Any], *, memory_alone: bool = False) -> dict[str, Any]:
    """The mapping of a scenario of ``kind`` from keywords; those that are None are not given."""
    mapping: dict[str, Any] = {"model": model, "parallelism": {}, "workload": {"kind": kind}}
    said = {name: value for name, value in given.items() if value is not None}
    for name in said:
        if name in OF_THE_COMMAND_LINE:
            raise InputError(f"{name} is a flag of the command line alone: {OF_THE_COMMAND_LINE[name]}.", field=name)
    for place, value in spelled(with_system(said, memory_alone=memory_alone)).items():
        *slots, field = place.split(".")
        inner = mapping
        for slot in slots:
            inner = inner.setdefault(slot, {})
        inner[field] = value
    return mapping


def spelled(given: Mapping[str, Any]) -> dict[str, Any]:
    """Keywords by their place in a scenario; short forms of several fields are spelled out. ``draft`` names a way to
    draft tokens or a model, ``acceptance`` belongs to speculation; ``prefill``, ``decode`` and ``ffn`` are the fields
    of a pool (``tp=4,dp=2``, or a mapping).
    """
    found: dict[str, Any] = {}
    for name, value in given.items():
        if name == "draft":
            own = value == "ngram" or str(value).lower() in ONE_LAYER_DRAFTS
            found |= {"workload.speculation.draft": value if own else "model", **({} if own else {"draft": value})}
        elif name == "acceptance":
            found["workload.speculation.acceptance"] = value
        elif name in ("prefill", "decode", "ffn"):
            found |= {f"pools.{name}.{path(field)}": own for field, own in _pool(name, value).items()}
        else:
            found[path(name)] = value
    return found


_POOL = frozenset((*_PLAN, "parallelism", "system", "accelerators", "runtime", "precision", "price_per_hour"))
"""What a pool can say of its own."""


def _pool(name: str, written: Any) -> Mapping[str, Any]:
    """Fields of a pool by their keywords."""
    if isinstance(written, Mapping):
        return written
    found = {}
    for part in str(written).split(","):
        field, equals, value = (text.strip() for text in part.partition("="))
        if not equals or not value:
            raise InputError(
                f"{name} {written}: '{part.strip()}' is not a field and a value, such as tp=4.", field=f"pools.{name}"
            )
        if field.partition(".")[0] not in _POOL:
            known = sorted(_POOL)
            message = unknown_name(f"field of pools.{name}", field, known)
            raise InputError(message, field=f"pools.{name}", suggestions=nearest(field, known))
        if field in found:
            raise InputError(f"{name} {written}: {field} stands there twice. Keep one of them.", field=f"pools.{name}")
        found[field] = int(value) if value.isdigit() else value
    return found


def kind_of(given: Mapping[str, Any]) -> str:
    """Whether keywords are of a training or an inference job; InputError where they do not say."""
    both = _JOBS["training"] & _JOBS["inference"]
    said = [kind for kind, fields in _JOBS.items() if (fields - both) & given.keys()]
    if len(said) != 1:
        got = ", ".join(name for name in given if path(name).startswith("workload.")) or "neither"
        raise InputError(
            "the job must be of training, such as global_batch_size=512, sequence_length=8192, or of inference, such "
            f"as batch_size=32, prompt_tokens=1024, output_tokens=256 (got {got}).",
            field="workload",
        )
    return said[0]


def with_system(given: Mapping[str, Any], *, memory_alone: bool) -> dict[str, Any]:
    """Keywords with the system that ``accelerator`` stands for: one accelerator, or for memory as many as any plan
    needs.
    """
    kept = dict(given)
    chip = kept.pop("accelerator", None)
    if chip is None:
        return kept
    if "system" in kept:
        raise InputError(
            f"system {kept['system']} and accelerator {chip} both name the hardware. Keep one of them.", field="system"
        )
    found = _accelerator(chip)
    one = hardware.alone(found) if isinstance(chip, Accelerator) else chip
    return {"system": _as_many(chip, found) if memory_alone else one, **kept}


def _accelerator(chip: str | Accelerator) -> Accelerator:
    if isinstance(chip, Accelerator):
        return chip
    try:
        return hardware.accelerator(chip)
    except InputError:
        if not _is_system(chip):
            raise
    raise InputError(
        f"accelerator '{chip}' is a system. Try system: {chip}.", field="accelerator", suggestions=[f"system: {chip}"]
    )


def _is_system(name: str) -> bool:
    try:
        return bool(hardware.system(name))
    except InputError:
        return False


def _as_many(chip: str | Accelerator, found: Accelerator) -> dict[str, Any]:
    """A system with as many accelerators of a kind as any plan needs, joined by their own links: memory needs to know
    no more.
    """
    join = {"topology": "switch", "link": found.scale_up.link} if found.scale_up else {"topology": "none"}
    hosts = f"{found.host_memory_bandwidth * MOST_CHIPS / CHIPS_PER_HOST} B/s"
    node = {"accelerator": chip, "accelerators": MOST_CHIPS, "scale_up": join, "host_memory_bandwidth": hosts}
    return {"name": found.name, "node": node, "nodes": 1}
