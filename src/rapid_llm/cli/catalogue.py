"""``list`` and ``show``: what the catalogue holds and where each number comes from."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from itertools import combinations
from typing import TYPE_CHECKING, Any

from rapid_llm.cli import text
from rapid_llm.cli.style import show
from rapid_llm.cli.text import json_text
from rapid_llm.documents import Document
from rapid_llm.errors import InputError, nearest
from rapid_llm.provenance import Source, Sources
from rapid_llm.units import format_bandwidth, format_bytes, format_count, format_flops, format_seconds

if TYPE_CHECKING:
    from rapid_llm.hardware import System

_KINDS = ("model", "system", "accelerator", "runtime", "link", "kernel")


def list_names(what: str, *, as_json: bool) -> int:
    """Print one table: every entry of a kind with the facts that tell it from its neighbours."""
    kind = _kind(what)
    header, rows, right = TABLES[kind]()
    if as_json:
        print(json_text({f"{kind}s": [row[0] for row in rows]}))
    else:
        show([*text.columns(rows, header, right=right), f"{len(rows)} {kind}s. Details: rapid-llm show {kind} NAME"])
    return 0


def show_entry(
    what: str, name: str, *, as_json: bool, topology: str | None = None, accelerators: int | None = None
) -> int:
    """Print one entry with the source of every number; ``topology``: also a picture of a system's links, as SVG."""
    kind = _kind(what)
    if topology is not None:
        if kind != "system":
            raise InputError(f"--topology draws the links of a system, not of a {kind}.", field="topology")
        from rapid_llm.cli.interconnects import draw_system

        draw_system(name, accelerators, topology)
    facts = _facts(kind, name)
    document, sources = _entry(kind, name)
    data = document.data
    if as_json:
        origins = {path: asdict(source) for path, source in sources.items()}
        print(json_text({kind: name, **facts, "fields": data, "sources": origins}))
        return 0
    lines = [f"{kind} {name}", *(line for fact in facts.items() for line in _fact(*fact))]
    show([*lines, *_fields(data, sources)])
    return 0


def _fact(key: str, value: Any) -> Sequence[str]:
    return text.wrapped(f"  {key}", _value(value), indent=45, lines=4)


def _kind(what: str) -> str:
    kind = what.removesuffix("s")
    if kind in _KINDS:
        return kind
    kinds = [f"{name}s" for name in _KINDS]
    guess = nearest(what, kinds)
    hint = f" Did you mean '{guess[0]}'?" if guess else ""
    raise InputError(f"'{what}' is not a part of the catalogue.{hint} Known: {', '.join(kinds)}.", suggestions=guess)


def _entry(kind: str, name: str) -> tuple[Document, Sources]:
    """What the file of an entry says, and the source of each number by its path."""
    if kind == "model":
        from rapid_llm import model

        return model.document(name)
    if kind == "runtime":
        from rapid_llm import runtime

        return runtime.catalogue.entry(name)
    if kind == "link":
        from rapid_llm.network.technologies import LINKS

        return LINKS.entry(name)
    if kind == "kernel":
        from rapid_llm.operators.kernels import KERNELS

        return KERNELS.entry(name)
    from rapid_llm import hardware

    return hardware.entry("system" if kind == "system" else "accelerator", name)


def _facts(kind: str, name: str) -> dict[str, Any]:
    """What is derived from an entry; building it, a mistake in a file is said instead of shown."""
    from rapid_llm import hardware, model, network, operators, runtime

    if kind == "model":
        loaded = model.load(name)
        return {
            "parameters": model.parameters(loaded),
            "active_parameters": model.active_parameters(loaded),
            "parameters_by_group": model.parameters_by_group(loaded),
        }
    build: Mapping[str, Callable[[str], Any]] = {
        "system": hardware.system,
        "accelerator": hardware.accelerator,
        "runtime": runtime.load,
        "link": network.link,
        "kernel": operators.kernel,
    }
    built = build[kind](name)
    if kind != "system":
        return {}
    apart = dict.fromkeys(filter(None, (hardware.unjoined(group.node) for group in built.groups)))
    return (_groups(built) if len(built.groups) > 1 else {}) | ({"note": "; ".join(apart)} if apart else {})


def _groups(system: System) -> dict[str, str]:
    """The groups of nodes of a system, and what joins every two of them."""
    from rapid_llm.network.mixed import between

    facts = {"accelerators": f"{system.accelerators:,}"}
    for group in system.groups:
        chip = group.node.accelerator
        rate = next((f"{format_flops(chip.peak[one])} {one}" for one in ("bf16", "fp16") if one in chip.peak), "")
        nodes = f"{text.counted(group.count, 'node')} of {group.node.accelerators} {chip.name}"
        each = ", ".join(filter(None, [format_bytes(chip.memory.hbm.capacity), rate]))
        facts[f"group {group.name}"] = f"{nodes}, {each} each"
    for (i, one), (j, other) in combinations(enumerate(system.groups), 2):
        least = min(one.accelerators, other.accelerators)
        tier = between(system, i, j, least).tiers[-1]
        given = system.link(i, j)
        whole = f"{format_bandwidth(given.bandwidth)} in all, " if given else ""
        rate = f"{whole}{format_bandwidth(tier.bandwidth)} an accelerator, {format_seconds(tier.latency)} a hop"
        facts[f"{one.name} - {other.name}"] = f"{rate} ({tier.link if given is None else 'link'})"
    return facts


def _fields(data: Mapping[str, Any], sources: Sources) -> Iterator[str]:
    """Yield one line per field with the number of its source, then the sources."""
    numbered: dict[Source, int] = {}
    for path, value in _leaves(data, ""):
        source = sources.get(path)
        mark = f"[{numbered.setdefault(source, len(numbered) + 1)}]" if source is not None else ""
        yield from text.wrapped(f"  {path}", f"{_value(value):<24} {mark}".rstrip(), indent=45)
    if numbered:
        yield "sources"
    for source, number in numbered.items():
        yield from text.wrapped(f"  [{number}]", f"{source.kind}: {source.text}", indent=7, lines=9)


def _leaves(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _leaves(item, f"{path}.{key}" if path else str(key))
    elif isinstance(value, list) and any(isinstance(item, (dict, list)) for item in value):
        for index, item in enumerate(value):
            yield from _leaves(item, f"{path}.{index}")
    else:
        yield path, value


def _value(value: Any) -> str:
    if isinstance(value, Mapping):
        return "; ".join(f"{name} {_value(item)}" for name, item in value.items())
    if isinstance(value, list):
        return ", ".join(map(str, value))
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:,}" if isinstance(value, int) else str(value)


_Table = tuple[Sequence[str], list[list[str]], Sequence[int]]


def _models() -> _Table:
    from rapid_llm import model

    rows = []
    for name in model.names():
        loaded = model.load(name)
        below = f"{loaded.encoder.num_hidden_layers} + " if loaded.encoder else ""
        layers = f"{below}{loaded.num_hidden_layers}"
        rows.append([name, *(format_count(f(loaded)) for f in (model.parameters, model.active_parameters)), layers])
    return ("model", "parameters", "active", "layers"), rows, (1, 2, 3)


def _accelerators() -> _Table:
    from rapid_llm import hardware

    rows = []
    for name in hardware.accelerator_names():
        chip = hardware.accelerator(name)
        dtype = next((one for one in ("bf16", "fp16") if one in chip.peak), next(iter(chip.peak)))
        memory, peak = chip.memory.hbm, f"{format_flops(chip.peak[dtype])} {dtype}"
        rows.append([name, chip.vendor, format_bytes(memory.capacity), format_bandwidth(memory.bandwidth), peak])
    return ("accelerator", "vendor", "memory", "bandwidth", "dense peak"), rows, (2, 3, 4)


def _systems() -> _Table:
    from rapid_llm import hardware

    rows = []
    for name in hardware.system_names():
        system = hardware.system(name)
        node = system.groups[0].node
        fabric = system.fabric.topology if system.fabric else "none"
        rows.append([name, f"{node.accelerators} x {node.accelerator.name}", f"{system.accelerators:,}", fabric])
    return ("system", "node", "accelerators", "scale-out"), rows, (2,)


def _runtimes() -> _Table:
    from rapid_llm import runtime

    loaded = [(name, runtime.load(name)) for name in runtime.names()]
    rows = [[name, one.version, one.workload, one.defaults.precision] for name, one in loaded]
    return ("runtime", "version", "workload", "default precision"), rows, ()


def _links() -> _Table:
    from rapid_llm import network
    from rapid_llm.network.technologies import LINKS

    scopes = {"intra": "in a node", "inter": "between nodes"}
    rows = []
    for name in LINKS.names():
        one = network.link(name)
        rows.append([name, scopes[one.scope], format_bandwidth(one.bandwidth), format_seconds(one.latency)])
    return ("link", "where", "bandwidth a direction", "latency of a hop"), rows, (2, 3)


def _kernels() -> _Table:
    from rapid_llm import operators

    rows = []
    for name in operators.kernel_names():
        one = operators.kernel(name)
        rows.append([name, one.family, ", ".join(one.measured)])
    return ("kernel", "family", "has constants of"), rows, ()


TABLES: Mapping[str, Callable[[], _Table]] = {
    "model": _models,
    "accelerator": _accelerators,
    "system": _systems,
    "runtime": _runtimes,
    "link": _links,
    "kernel": _kernels,
}
