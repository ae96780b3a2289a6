"""Faults applied to a topology: links that are degraded or down, accelerators that are slow."""

import re
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from rapid_llm.documents import build
from rapid_llm.errors import InputError, nearest
from rapid_llm.hardware.health import Fault, RandomFaults
from rapid_llm.network.tasks import Ints
from rapid_llm.network.topology import NODE_KINDS, Topology

SWITCHES: Final = ("nvswitch", "leaf", "spine", "core", "router")
"""Kinds of node that ``switch`` may name."""


def read_faults(items: Sequence[Mapping[str, Any] | Fault], prefix: str = "faults") -> tuple[Fault, ...]:
    """Faults from mappings, as a scenario has them; InputError for one that is not well-formed."""
    return tuple(
        item if isinstance(item, Fault) else build(Fault, dict(item), prefix=f"{prefix}[{i}]")
        for i, item in enumerate(items)
    )


def apply(topology: Topology, faults: Sequence[Fault]) -> Topology:
    """The topology with any number of faults at once: health multiplies, latency adds.

    InputError for a link, node or accelerator that does not exist, with the nearest names.
    """
    health, latency = topology.health.copy(), topology.latency.copy()
    for fault in faults:
        hit = links_of(topology, fault)
        if fault.down:
            health[hit] = 0.0
        elif fault.bandwidth is not None:
            health[hit] *= fault.bandwidth
        if fault.latency is not None:
            latency[hit] += fault.latency
    return topology.with_health(health, latency=latency)


def speeds(faults: Sequence[Fault], accelerators: int, starts: Sequence[int]) -> dict[int, float]:
    """Share of its compute that each slow accelerator of a job has left, by its place; those of a slow node are all
    slow. ``starts``: the place of the first accelerator of each node, and one behind the last. InputError for an
    accelerator or a node that the job does not have.
    """
    found: dict[int, float] = {}
    for fault in faults:
        if fault.accelerator is None and fault.node is None:
            continue
        first, last = _span(fault, accelerators, starts)
        for place in range(first, last) if fault.speed is not None else ():
            found[place] = found.get(place, 1.0) * (fault.speed or 1.0)
    return found


def _span(fault: Fault, accelerators: int, starts: Sequence[int]) -> tuple[int, int]:
    """The range of places of an accelerator, or of those of a node: from, to."""
    if fault.accelerator is not None:
        place = fault.accelerator if isinstance(fault.accelerator, int) else _numbered(fault.accelerator, starts)
        if not 0 <= place < accelerators:
            raise InputError(
                f"faults name accelerator {fault.accelerator}, but the job has 0 to {accelerators - 1}.",
                field="faults",
            )
        return place, place + 1
    text, nodes = str(fault.node).removeprefix("node"), bisect_left(starts, accelerators)
    if not text.isdigit() or int(text) >= nodes:
        raise InputError(f"faults name node '{fault.node}', but the job has node0 to node{nodes - 1}.", field="faults")
    return starts[int(text)], min(starts[int(text) + 1], accelerators)


def _numbered(name: str, starts: Sequence[int]) -> int:
    """The place of an accelerator named as in the explicit topology (``node1.gpu3``); -1 where there is none."""
    parts = re.fullmatch(r"(?:node(\d+)\.)?gpu(\d+)", name)
    if parts is None:
        raise InputError(f"no accelerator is named '{name}'. Try its place, such as 3, or node0.gpu3.", field="faults")
    node, inside = int(parts[1] or 0), int(parts[2])
    if node + 1 >= len(starts) or starts[node] + inside >= starts[node + 1]:
        return -1
    return starts[node] + inside


def links_of(topology: Topology, fault: Fault) -> Ints:
    """The directed links that a fault concerns."""
    if fault.link is not None:
        return _cable(topology, *fault.link)
    if fault.random is not None:
        return _drawn(topology, fault.random)
    places = _places(topology, fault)
    at_source, at_target = np.isin(topology.source, places), np.isin(topology.target, places)
    return np.flatnonzero(at_source | at_target)


def _cable(topology: Topology, first: str, second: str) -> Ints:
    """Both directions between two named nodes; InputError with cables that do exist."""
    a, b = topology.node(first), topology.node(second)
    found: Ints = np.concatenate([topology.links_between(a, b), topology.links_between(b, a)])
    if not len(found):
        start, order = topology.outgoing
        peers = [topology.names[topology.target[e]] for e in order[start[a] : start[a + 1]]]
        close = nearest(second, peers) or peers[:3]
        raise InputError(
            f"{topology.name} has no link from '{first}' to '{second}'; '{first}' is joined to {', '.join(close)}.",
            field="faults",
            suggestions=close,
        )
    return found


def _drawn(topology: Topology, wanted: RandomFaults) -> Ints:
    """Links of cables drawn without replacement, the same for a seed."""
    cable = np.minimum(topology.source, topology.target) * topology.nodes + np.maximum(topology.source, topology.target)
    cables = np.unique(cable)
    if wanted.links > len(cables):
        raise InputError(
            f"{topology.name} has {len(cables)} links; {wanted.links} of them cannot fail.", field="faults"
        )
    chosen = np.random.default_rng(wanted.seed).choice(cables, wanted.links, replace=False)
    return np.flatnonzero(np.isin(cable, chosen))


def drawn(topology: Topology, faults: Sequence[Fault]) -> tuple[str, ...]:
    """The links that were drawn at random, by the names of their ends: ``node0.nic3 - leaf0.3``."""
    links = [links_of(topology, fault) for fault in faults if fault.random is not None]
    pairs = (sorted((int(topology.source[k]), int(topology.target[k]))) for hit in links for k in hit.tolist())
    return tuple(dict.fromkeys(f"{topology.names[a]} - {topology.names[b]}" for a, b in pairs))


def _places(topology: Topology, fault: Fault) -> Ints:
    """The nodes of the graph that a fault at a node, card, switch or accelerator concerns."""
    if isinstance(fault.accelerator, str):
        return _named(topology, fault.accelerator, ("accelerator",))
    if fault.accelerator is not None:
        if not 0 <= fault.accelerator < len(topology.accelerators):
            raise InputError(
                f"{topology.name} has accelerators 0 to {len(topology.accelerators) - 1}, not {fault.accelerator}.",
                field="faults",
            )
        return topology.accelerators[[fault.accelerator]]
    if fault.node is not None:
        return _box(topology, fault.node)
    return _named(topology, fault.nic or fault.switch or "", ("nic",) if fault.nic is not None else SWITCHES)


def _named(topology: Topology, name: str, kinds: tuple[str, ...]) -> Ints:
    """The node of a name, which must be of one of some kinds."""
    place = topology.node(name)
    kind = NODE_KINDS[topology.node_kind[place]]
    if kind not in kinds:
        raise InputError(f"'{name}' of {topology.name} is of kind {kind}, not {' or '.join(kinds)}.", field="faults")
    return np.array([place])


def _box(topology: Topology, wanted: str | int) -> Ints:
    """Everything in a box: ``3``, ``'3'`` or ``'node3'``."""
    text = str(wanted).removeprefix("node")
    boxes = np.unique(topology.box[topology.box >= 0])
    if not text.isdigit() or int(text) not in boxes:
        if not len(boxes):
            raise InputError(
                f"{topology.name} joins accelerators that are in no nodes, so none is '{wanted}'. Try accelerator: 0.",
                field="faults",
            )
        raise InputError(f"{topology.name} has node0 to node{boxes.max()}, not '{wanted}'.", field="faults")
    return np.flatnonzero(topology.box == int(text))
