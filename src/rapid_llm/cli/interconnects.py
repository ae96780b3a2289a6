"""``network links``: a collective on links alone, those of a system or of a user's own; and pictures of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
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
    from rapid_llm.network.links_alone import Run
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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Runs:
    """A collective on links: every algorithm, the fastest first, on ``topology`` with its faults; ``unplaced`` seconds
    where its best places were searched for."""

    op: str
    size: float
    ranks: int
    topology: Topology
    found: tuple[Run, ...]
    unplaced: float | None

    @property
    def best(self) -> Run:
        return self.found[0]

    def busiest(self) -> list[tuple[str, float, float]]:
        """Links that move the largest shares of what they can: name, bytes, share."""
        use = self.best.use(self.topology)
        order = np.argsort(-use, kind="stable")[:_LINKS]
        return [(self.topology.link_name(int(k)), float(self.best.result.moved[k]), float(use[k])) for k in order]


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
    from rapid_llm.network.picture import topology_svg

    named = place is not None and place.strip() != "best"
    first = _first_of(source) if accelerators is None and not named and not _lists_links(source) else None
    accelerators = first if accelerators is None else accelerators
    healthy = _topology(source, None if named else accelerators)
    faulted = apply(healthy, read_faults([fault(one) for one in faults], prefix="--fault")) if faults else healthy
    drawn = faults_drawn(healthy, faults)
    places = None if place is None else _places(place, healthy, accelerators)
    asked: dict[str, Any] = {
        "ranks": len(places) if isinstance(places, list) else accelerators,
        "algorithm": algorithm,
        "policy": read_routes(routing, healthy) if is_file(routing) else routing,
        "background": None if traffic is None else background_of(traffic, healthy),
    }
    ran = _run(operation(op), message_size(size), (healthy, faulted), places, asked)
    if svg is not None:
        write_picture("--svg", svg, topology_svg(faulted, ran.best.result.moved))
    if as_json:
        print(json_text(_answer(ran) | {"drawn_links": list(drawn)}))
        return 0
    placed = [] if places is None else _placed(ran)
    if first is not None and (most := hardware.system(source).accelerators) > ran.ranks:
        placed.insert(0, f"{'ranks':<13}the first {ran.ranks} of {most} accelerators; --accelerators takes more")
    title, *rest = _lines(ran, placed)
    show([title, *text.drawn_links(drawn), *rest])
    return 0


def _run(
    op: str,
    size: float,
    topologies: tuple[Topology, Topology],
    places: list[int] | Literal["best"] | None,
    asked: dict[str, Any],
) -> _Runs:
    """Every algorithm on links without and with their faults; none is faster with them than without."""
    from rapid_llm.network.links_alone import runs, without_faults

    healthy, faulted = topologies
    unplaced = runs(op, size, faulted, **asked)[0].seconds if places == "best" else None
    found = runs(op, size, faulted, places=places, **asked)
    if faulted is not healthy:
        whole = {one.algorithm: one for one in runs(op, size, healthy, places=places, **asked)}
        found = tuple(sorted((without_faults(f, whole[f.algorithm]) for f in found), key=lambda one: one.seconds))
    ranks = len(healthy.accelerators) if asked["ranks"] is None else asked["ranks"]
    return _Runs(op=op, size=size, ranks=ranks, topology=faulted, found=found, unplaced=unplaced)


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


def _placed(ran: _Runs) -> list[str]:
    """Where the ranks are, and what the search for places gained."""
    names = ", ".join(ran.topology.names[k] for k in ran.best.nodes)
    lines = text.wrapped("ranks on", names, lines=3)
    if ran.unplaced is not None:
        gain, before = 1.0 - ran.best.seconds / ran.unplaced, format_seconds(ran.unplaced)
        said = f"{format_percent(gain)} less than {before} in order" if gain > 0 else "no place is faster"
        lines.append(f"{'gained':<13}{said}")
    return lines


def _topology(source: str, accelerators: int | None) -> Topology:
    from rapid_llm.network.files import read_topology

    if not _lists_links(source):
        return _whole_nodes(hardware.system(source), accelerators)
    found = read_topology(source)
    if not len(found.accelerators):
        raise InputError(f"{source} has no accelerators: every name ends like that of a switch or card.", field="links")
    return found


def _first_of(name: str) -> int:
    """How many accelerators of a system a collective runs on unless asked for more: whole nodes, at least one."""
    system = hardware.system(name)
    node = system.groups[0].node.accelerators
    return min(system.accelerators, max(1, _MOST // node) * node)


def _whole_nodes(system: System, accelerators: int | None) -> Topology:
    """The interconnect of a system, or of its first nodes that have so many accelerators."""
    from rapid_llm.network.topology import Topology

    node = system.groups[0].node.accelerators
    within = accelerators is not None and node < accelerators < system.accelerators
    return Topology.of(system, -(-accelerators // node) * node if within and accelerators else accelerators)


def _lists_links(source: str) -> bool:
    """Whether this is a file of links, not the name or the file of a system."""
    return is_file(source) and not _is_system(source)


def _is_system(file: str) -> bool:
    """Whether a file describes a system rather than links."""
    if Path(file).suffix.lower() not in (".yaml", ".yml") or not Path(file).is_file():
        return False
    data = read_yaml(Path(file)).data
    return isinstance(data, dict) and "links" not in data and bool({"node", "base"} & data.keys())


def _answer(ran: _Runs) -> dict[str, Any]:
    """The JSON object, SI units."""
    best = ran.best
    return {
        "op": ran.op,
        "topology": ran.topology.name,
        "accelerators": ran.ranks,
        "size_bytes": ran.size,
        "seconds": best.seconds,
        "algbw_bytes_per_s": ran.size / best.seconds,
        "busbw_bytes_per_s": bus_bandwidth(ran.op, ran.size, ran.ranks, best.seconds).item(),
        "algorithm": best.algorithm,
        "ranks_on": [ran.topology.names[k] for k in best.nodes],
        "candidates": [
            {"algorithm": one.algorithm, "seconds": one.seconds, "closed_form_seconds": one.closed} for one in ran.found
        ],
        "busiest_links": [{"link": name, "bytes": moved, "use": use} for name, moved, use in ran.busiest()],
        "unplaced_seconds": ran.unplaced,
    }


def _lines(ran: _Runs, placed: Sequence[str]) -> list[str]:
    best = ran.best
    lines = [
        f"{ran.op:<13}{format_bytes(ran.size)} on {ran.ranks} accelerators of {ran.topology.name}, links alone",
        f"{'time':<13}{format_seconds(best.seconds)}",
        f"{'algbw':<13}{format_bandwidth(ran.size / best.seconds)}",
        f"{'busbw':<13}{format_bandwidth(bus_bandwidth(ran.op, ran.size, ran.ranks, best.seconds).item())}",
        f"{'algorithm':<13}{best.algorithm}",
        *placed,
    ]
    for index, (name, moved, use) in enumerate(ran.busiest()):
        label = "busiest link" if index == 0 else ""
        lines.append(f"{label:<13}{name}: {format_bytes(moved)}, {format_percent(use)} of what it can move meanwhile")
    rows = [
        [one.algorithm, format_seconds(one.seconds), f"{one.seconds / best.seconds:.2f}", format_seconds(one.closed)]
        for one in ran.found
    ]
    table = text.columns(rows, ("candidate", "time", "x best", "closed form"), right=(1, 2, 3))
    apart = [one.algorithm for one in ran.found if one.alone and abs(one.seconds / one.closed - 1) > _AGREE]
    told = f"closed forms do not follow how sends of {', '.join(apart)} share links by turns; times do"
    return [*lines, "", *table, *(text.wrapped("", told) if apart else [])]
