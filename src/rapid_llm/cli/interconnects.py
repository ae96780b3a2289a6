"""``network links``: a collective on links alone, those of a system or of a user's own; and pictures of them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from rapid_llm import hardware
from rapid_llm.cli import text
from rapid_llm.cli.files import write_picture
from rapid_llm.cli.link_by_link import background_of, fault, faults_drawn, is_file
from rapid_llm.cli.networking import message_size, operation
from rapid_llm.cli.style import show
from rapid_llm.cli.text import json_text
from rapid_llm.documents import read_yaml
from rapid_llm.errors import InputError
from rapid_llm.network import bus_bandwidth
from rapid_llm.units import format_bandwidth, format_bytes, format_percent, format_seconds

if TYPE_CHECKING:
    from rapid_llm.hardware import System
    from rapid_llm.network.own import Run
    from rapid_llm.network.topology import Topology

_LINKS = 5
"""Busiest links that are listed."""
_AGREE = 0.01
"""How close a closed form is where no link is shared by turns."""
_MOST = 256
"""Accelerators of a system that a collective runs on unless asked for more."""
_PICTURED = 64
"""Accelerators of a system that a picture shows unless asked for more."""


def draw_system(name: str, accelerators: int | None, file: str) -> None:
    """Write the interconnect of a system, or of its first accelerators, as SVG."""
    from rapid_llm.network.picture import topology_svg
    from rapid_llm.network.topology import Topology

    system = hardware.system(name)
    count = min(system.accelerators, _PICTURED) if accelerators is None else accelerators
    write_picture("--topology", file, topology_svg(Topology.of(system, count)))


def links(
    source: str,
    op: str,
    *,
    size: str,
    accelerators: int | None,
    algorithm: str | None,
    routing: str,
    traffic: str | None,
    place: str | None,
    faults: Sequence[str],
    svg: str | None,
    as_json: bool,
) -> int:
    """Run a collective on links alone by every algorithm that they carry, and print it."""
    from rapid_llm.network.faults import apply, read_faults
    from rapid_llm.network.files import read_routes
    from rapid_llm.network.own import runs, without_faults
    from rapid_llm.network.picture import topology_svg

    of_file, named = is_file(source) and not _is_system(source), place is not None and place.strip() != "best"
    some = not of_file and not named and accelerators is None
    if some:
        accelerators = _unless_asked(hardware.system(source))
    healthy = _topology(source, None if named else accelerators)
    hurt = apply(healthy, read_faults([fault(one) for one in faults], prefix="--fault")) if faults else healthy
    names = faults_drawn(healthy, faults)
    places = None if place is None else _places(place, healthy, accelerators)
    accelerators = len(places) if isinstance(places, list) else accelerators
    asked: dict[str, Any] = {
        "ranks": accelerators,
        "algorithm": algorithm,
        "policy": read_routes(routing, healthy) if is_file(routing) else routing,
        "background": None if traffic is None else background_of(traffic, healthy),
    }
    op, amount = operation(op), message_size(size)
    before = runs(op, amount, hurt, **asked)[0].seconds if places == "best" else None
    asked["places"] = places
    found = runs(op, amount, hurt, **asked)
    if faults:
        whole = {one.algorithm: one for one in runs(op, amount, healthy, **asked)}
        found = tuple(sorted((without_faults(f, whole[f.algorithm]) for f in found), key=lambda one: one.seconds))
    if svg is not None:
        write_picture("--svg", svg, topology_svg(hurt, found[0].result.moved))
    ranks = len(healthy.accelerators) if accelerators is None else accelerators
    if as_json:
        drawn = {"drawn_links": list(names)}
        print(json_text(_answer(op, amount, ranks, hurt, found) | {"unplaced_seconds": before} | drawn))
    else:
        placed = [] if places is None else _placed(found[0], hurt, before)
        if some and (most := hardware.system(source).accelerators) > ranks:
            placed.insert(0, f"{'ranks':<13}the first {ranks} of {most} accelerators; --accelerators takes more")
        title, *rest = _lines(op, amount, ranks, hurt, found, placed)
        show([title, *text.drawn_links(names), *rest])
    return 0


def _places(given: str, topology: Topology, accelerators: int | None) -> list[int] | Literal["best"]:
    """The nodes of ``--place``, or ``best``; InputError for a name that there is not, and for another number."""
    if given.strip() == "best":
        return "best"
    found = [topology.node(name.strip()) for name in given.split(",")]
    if accelerators not in (None, len(found)):
        raise InputError(
            f"--place names {len(found)} accelerators, and --accelerators asks for {accelerators}; leave one out.",
            field="place",
        )
    return found


def _placed(best: Run, topology: Topology, before: float | None) -> list[str]:
    """Where the ranks are, and what the search for places gained."""
    names = ", ".join(topology.names[k] for k in best.nodes)
    lines = text.wrapped("ranks on", names, lines=3)
    if before is not None:
        gain = 1.0 - best.seconds / before
        said = (
            f"{format_percent(gain)} less than {format_seconds(before)} in order" if gain > 0 else "no place is faster"
        )
        lines.append(f"{'gained':<13}{said}")
    return lines


def _topology(source: str, accelerators: int | None) -> Topology:
    from rapid_llm.network.files import read_topology

    if not is_file(source) or _is_system(source):
        return _whole_nodes(hardware.system(source), accelerators)
    found = read_topology(source)
    if not len(found.accelerators):
        raise InputError(f"{source} has no accelerators: every name ends like that of a switch or card.", field="links")
    return found


def _unless_asked(system: System) -> int:
    """How many accelerators of a system a collective runs on by itself: whole nodes, at least one."""
    node = system.groups[0].node.accelerators
    return min(system.accelerators, max(1, _MOST // node) * node)


def _whole_nodes(system: System, accelerators: int | None) -> Topology:
    """The interconnect of a system, or of its first nodes that have so many accelerators."""
    from rapid_llm.network.topology import Topology

    node = system.groups[0].node.accelerators
    within = accelerators is not None and node < accelerators < system.accelerators
    return Topology.of(system, -(-accelerators // node) * node if within and accelerators else accelerators)


def _is_system(file: str) -> bool:
    """Whether a file describes a system rather than links."""
    if Path(file).suffix.lower() not in (".yaml", ".yml") or not Path(file).is_file():
        return False
    data = read_yaml(Path(file)).data
    return isinstance(data, dict) and "links" not in data and bool({"node", "base"} & data.keys())


def _busiest(topology: Topology, run: Run) -> list[tuple[str, float, float]]:
    use = run.use(topology)
    order = np.argsort(-use, kind="stable")[:_LINKS]
    return [(topology.link_name(int(k)), float(run.result.moved[k]), float(use[k])) for k in order]


def _answer(op: str, size: float, ranks: int, topology: Topology, found: Sequence[Run]) -> dict[str, Any]:
    """The JSON object, SI units."""
    best = found[0]
    return {
        "op": op,
        "topology": topology.name,
        "accelerators": ranks,
        "size_bytes": size,
        "seconds": best.seconds,
        "algbw_bytes_per_s": size / best.seconds,
        "busbw_bytes_per_s": bus_bandwidth(op, size, ranks, best.seconds).item(),
        "algorithm": best.algorithm,
        "ranks_on": [topology.names[k] for k in best.nodes],
        "candidates": [
            {"algorithm": one.algorithm, "seconds": one.seconds, "closed_form_seconds": one.closed} for one in found
        ],
        "busiest_links": [{"link": n, "bytes": moved, "use": use} for n, moved, use in _busiest(topology, best)],
    }


def _lines(  # noqa: PLR0917
    op: str, size: float, ranks: int, topology: Topology, found: Sequence[Run], places: Sequence[str]
) -> list[str]:
    best = found[0]
    lines = [
        f"{op:<13}{format_bytes(size)} on {ranks} accelerators of {topology.name}, links alone",
        f"{'time':<13}{format_seconds(best.seconds)}",
        f"{'algbw':<13}{format_bandwidth(size / best.seconds)}",
        f"{'busbw':<13}{format_bandwidth(bus_bandwidth(op, size, ranks, best.seconds).item())}",
        f"{'algorithm':<13}{best.algorithm}",
        *places,
    ]
    for index, (name, moved, use) in enumerate(_busiest(topology, best)):
        label = "busiest link" if index == 0 else ""
        lines.append(f"{label:<13}{name}: {format_bytes(moved)}, {format_percent(use)} of what it can move meanwhile")
    rows = [
        [one.algorithm, format_seconds(one.seconds), f"{one.seconds / best.seconds:.2f}", format_seconds(one.closed)]
        for one in found
    ]
    table = text.columns(rows, ("candidate", "time", "x best", "closed form"), right=(1, 2, 3))
    apart = [one.algorithm for one in found if one.alone and abs(one.seconds / one.closed - 1) > _AGREE]
    told = f"closed forms do not follow how sends of {', '.join(apart)} share links by turns; times do"
    return [*lines, "", *table, *(text.wrapped("", told) if apart else [])]
