"""A topology as a picture: nodes in tiers, or on their grid or ring; links shaded by load."""

import math
from collections.abc import Iterator
from html import escape

import numpy as np

from rapid_llm.charts.svg import box, colour, drawing, words
from rapid_llm.network.tasks import Floats
from rapid_llm.network.topology import NODE_KINDS, Topology
from rapid_llm.units import format_bandwidth

WIDTH = 960.0
LEVELS = {
    "accelerator": 4, "idle": 4, "host": 3, "nvswitch": 5, "nic": 3, "leaf": 2, "router": 2, "spine": 1, "core": 0,
}  # fmt: skip
"""Rows of a switched network, from the core at the top to the scale-up switches at the bottom."""
MOST = 4000
"""Nodes that a picture shows; of larger topologies the first ones."""

Place = tuple[float, float]


def topology_svg(topology: Topology, load: Floats | None = None) -> str:
    """The topology as SVG. ``load`` (any unit, one number a link) shades links by their share of the largest; links
    that are down are dashed and red, degraded ones orange.
    """
    places, height = _places(topology)
    share = None if load is None else np.asarray(load, np.float64) / max(float(np.max(load, initial=0.0)), 1e-300)
    caption = _caption(topology, places, shaded=share is not None)
    pieces = [*_links(topology, places, share), *_nodes(topology, places), words(8, height + 12, caption, dim=True)]
    return drawing(
        WIDTH, height + 24, pieces, f"{topology.name}: {topology.nodes} nodes, {topology.links} directed links"
    )


def _caption(topology: Topology, places: dict[int, Place], *, shaded: bool) -> str:
    """What is drawn, and what the inks of links mean."""
    health, part = topology.health, f", {len(places):,} of them drawn" if len(places) < topology.nodes else ""
    said = [
        f"{topology.name}: {topology.nodes:,} nodes{part}",
        "links: the stronger, the nearer to the load of the busiest" if shaded else "",
        "orange: degraded" if ((health > 0) & (health < 1)).any() else "",
        "red, dashed: down" if (health == 0).any() else "",
    ]  # fmt: skip
    return "; ".join(filter(None, said))


def _places(topology: Topology) -> tuple[dict[int, Place], float]:
    if topology.grid is not None and len(topology.grid.sides) >= 2:
        return _on_grid(topology)
    if topology.chips.all():
        return _on_circle(topology)
    return _in_tiers(topology)


def _on_circle(topology: Topology) -> tuple[dict[int, Place], float]:
    radius, count = WIDTH * 0.4, min(topology.nodes, MOST)
    turn = 2 * math.pi / max(count, 1)
    middle = radius + 40
    places = {n: (WIDTH / 2 + radius * math.sin(n * turn), middle - radius * math.cos(n * turn)) for n in range(count)}
    return places, 2 * middle


def _on_grid(topology: Topology) -> tuple[dict[int, Place], float]:
    """The first two axes as a plane, further ones as planes side by side."""
    assert topology.grid is not None
    across, down = topology.grid.sides[:2]
    planes = -(-min(topology.nodes, MOST) // (across * down))
    step = min(80.0, (WIDTH - 60) / max(1, planes * (across + 1)))
    places = {}
    for n in range(min(topology.nodes, MOST)):
        x, y, plane = n % across, n // across % down, n // (across * down)
        places[n] = (40 + (plane * (across + 1) + x) * step, 40 + y * step)
    return places, 80 + down * step


def _in_tiers(topology: Topology) -> tuple[dict[int, Place], float]:
    rows: dict[int, list[int]] = {}
    for n in range(topology.nodes):
        rows.setdefault(LEVELS[NODE_KINDS[topology.node_kind[n]]], []).append(n)
    places = {}
    for row, level in enumerate(sorted(rows)):
        shown = rows[level][:MOST]
        for k, n in enumerate(shown):
            places[n] = ((k + 0.5) * WIDTH / len(shown), 40 + row * 110.0)
    return places, 80 + (len(rows) - 1) * 110.0


def _links(topology: Topology, places: dict[int, Place], share: Floats | None) -> Iterator[str]:
    for link in range(topology.links):
        a, b = int(topology.source[link]), int(topology.target[link])
        if a not in places or b not in places:
            continue
        (x1, y1), (x2, y2) = places[a], places[b]
        health = float(topology.health[link])
        part = 0.25 if share is None else float(share[link])
        ink = colour(4) if health == 0 else colour(6) if health < 1 else colour(0)
        dash = ' stroke-dasharray="4 3"' if health == 0 else ""
        width = 1.0 if share is None else 1 + 3 * part
        tip = f"{topology.link_name(link)}: {format_bandwidth(float(topology.capacity[link]))}"
        if share is not None:
            tip += f", load {100 * part:.0f} % of the busiest"
        yield (
            f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{ink}" '
            f'stroke-width="{width:.1f}" stroke-opacity="{0.15 + 0.85 * part:.2f}"{dash}>'
            f"<title>{escape(tip)}</title></line>"
        )


def _nodes(topology: Topology, places: dict[int, Place]) -> Iterator[str]:
    few = len(places) <= 64
    for n, (x, y) in places.items():
        kind = int(topology.node_kind[n])
        size = 10.0 if few else 5.0
        tip = f"{topology.names[n]} ({NODE_KINDS[kind]})"
        yield box((x - size / 2, y - size / 2, size, size), colour(kind), tip, 'rx="2"')
        if len(places) <= 24:
            below = NODE_KINDS[kind] == "nvswitch"  # whose links come from above
            yield words(x, y + 18 if below else y - 9, topology.names[n], anchor="middle", dim=True)
