"""Links one by one, as verbs of the network ask for them: the interconnect of a job, and what is shown of it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rapid_llm import hardware
from rapid_llm.charts import heat_map
from rapid_llm.cli.files import whole_folder, write_page, write_picture, write_text
from rapid_llm.cli.style import show
from rapid_llm.cli.text import drawn_links, json_text
from rapid_llm.documents import parse_yaml
from rapid_llm.errors import InputError
from rapid_llm.provenance import is_path
from rapid_llm.units import format_bytes, format_percent

if TYPE_CHECKING:
    from rapid_llm.cli.network_flags import OnLinks, Written
    from rapid_llm.network.background import Background
    from rapid_llm.network.contention import Contended
    from rapid_llm.network.flow_prices import Beside, Interconnect
    from rapid_llm.network.topology import Topology

LISTED, _BOXES, _DRAWN = 5, 64, 400
"""Busiest links that are listed, boxes that the heat map shows, and nodes of a topology that is drawn."""


def by_links(links: OnLinks) -> bool:
    """Whether links are asked for one by one; InputError for flags that need it where it is refused."""
    if links.network not in (None, "closed-form", "flow"):
        raise InputError(f"--network is closed-form or flow (got {links.network}).", field="network")
    if links.network == "closed-form" and links.asked:
        raise InputError(
            f"the closed form knows no single link: {links.asked} needs --network flow.", field=links.asked[2:]
        )
    return links.network == "flow" or bool(links.asked)


def net_of(system: str, accelerators: int, links: OnLinks) -> tuple[Interconnect, Beside]:
    """The links of the nodes that a job takes, with their faults, and what it meets beside them."""
    from rapid_llm.network.faults import read_faults
    from rapid_llm.network.files import read_routes
    from rapid_llm.network.flow_prices import Beside, Links, interconnect

    known = hardware.system(system)
    node = known.groups[0].node.accelerators
    whole = accelerators if accelerators <= node else min(-(-accelerators // node) * node, known.accelerators)
    net = interconnect(known, Links(whole, read_faults([fault(text) for text in links.fault], prefix="--fault")))
    policy = read_routes(links.routing, net.healthy) if is_file(links.routing) else links.routing
    return net, Beside(policy, None if links.traffic is None else background_of(links.traffic, net.healthy))


def is_file(given: str) -> bool:
    """Whether a value names a file rather than something of a catalogue."""
    return is_path(given) or Path(given.lower().removesuffix(".gz")).suffix in (".csv", ".txt")


def background_of(file: str, topology: Topology) -> Background:
    """The flows of a CSV beside a collective."""
    from rapid_llm.network.background import Background
    from rapid_llm.network.files import read_traffic

    source, target, amount = read_traffic(file, topology)
    return Background(source=source, target=target, amount=amount)


def fault(given: str) -> Mapping[str, Any]:
    """A fault as a scenario writes it, such as {link: [node0.nic0, leaf0.0], bandwidth: 50 %}."""
    spaced = re.sub(r"(?<=[A-Za-z]):(?=[^\s])", ": ", given)  # a shell's habit: link:[a,b],down:true
    return parse_yaml(spaced if spaced.lstrip().startswith("{") else f"{{{spaced}}}", "--fault").data


def faults_drawn(topology: Topology, given: Sequence[str]) -> tuple[str, ...]:
    """The links that ``--fault "random: ..."`` was drawn at."""
    from rapid_llm.network.faults import drawn, read_faults

    return drawn(topology, read_faults([fault(text) for text in given], prefix="--fault"))


def of_form(flow: Contended | None) -> str:
    """What the times of a table are, where the answer is of links one by one and of their faults."""
    return "" if flow is None else " (closed form, healthy)"


def busiest(flow: Contended | None) -> list[str]:
    """The lines of the busiest links."""
    found = [] if flow is None else flow.busiest(LISTED)
    return [
        f"{'' if k else 'busiest link':<13}{name}: {format_bytes(moved)}, {format_percent(use)} of what it can move "
        "meanwhile"
        for k, (name, moved, use) in enumerate(found)
    ]


def deliver(  # noqa: PLR0917
    answer: dict[str, Any], lines: Sequence[str], drawn: str, flow: Contended | None, links: OnLinks, written: Written
) -> None:
    """Write what was asked for, and print the lines, or the JSON object with ``--json``."""
    html, out = written.html, written.out
    answer["drawn_links"] = names = [] if flow is None else list(faults_drawn(flow.topology, links.fault))
    if links.svg is not None and flow is not None:
        from rapid_llm.network.picture import topology_svg

        write_picture("--svg", links.svg, topology_svg(flow.topology, flow.link_bytes))
    if html is not None:
        write_page("--html", html, drawn)
    if written.json:
        print(json_text(answer))
    else:
        title, *rest = lines
        show([title, *drawn_links(names), *rest])
    if out is not None:
        folder = whole_folder(out)
        write_text(folder / "collective.json", json_text(answer) + "\n")
        write_text(folder / "collective.html", drawn)


def drawings(flow: Contended | None) -> list[tuple[str, str]]:
    """Sections of a page: bytes of the links, and a heat map of their use by box and kind."""
    from rapid_llm.network.picture import topology_svg

    if flow is None:
        return []
    small = flow.topology.nodes <= _DRAWN
    used = [("Bytes of links", topology_svg(flow.topology, flow.link_bytes))] if small else []
    boxes, kinds, values = flow.by_box()
    drawing = heat_map(boxes[:_BOXES], kinds, values[:_BOXES], form=format_percent, cell=(130, 24))
    return [*used, ("Use of the busiest link of each kind", drawing)]
