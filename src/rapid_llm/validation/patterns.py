"""Files of packet-level patterns: flows over a network of their own, and when a packet simulator saw them finish."""

import json
from functools import lru_cache
from itertools import pairwise
from pathlib import Path

from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass

from rapid_llm.documents import Document, build, read_table
from rapid_llm.errors import InputError
from rapid_llm.nouns import Map
from rapid_llm.units import Count, NonNegative, Positive, Whole

_OPEN = ConfigDict(extra="ignore", allow_inf_nan=False, defer_build=True)
"""A case may say more of itself than is read."""


@dataclass(frozen=True, kw_only=True, config=_OPEN)
class Edge:
    """A cable between two nodes, by their places: Gb/s of either direction, ns."""

    a: Whole
    b: Whole
    bw_ab_gbps: Positive
    bw_ba_gbps: Positive
    latency_ns: NonNegative


@dataclass(frozen=True, kw_only=True, config=_OPEN)
class Net:
    """The nodes of a pattern by name, and its cables."""

    name: str
    node_labels: tuple[str, ...] = Field(min_length=2)
    edges: tuple[Edge, ...] = Field(min_length=1)


@dataclass(frozen=True, kw_only=True, config=_OPEN)
class Flow:
    """One message over its paths (nodes by place), after others, in a queue of its source (``qp`` None: its own)."""

    id: Whole
    src: Whole
    bytes: Positive
    deps: tuple[Whole, ...] = ()
    paths: tuple[tuple[Whole, ...], ...] = Field(min_length=1)
    delay_ns: NonNegative = 0.0
    qp: int | None = None


@dataclass(frozen=True, kw_only=True, config=_OPEN)
class Packets:
    """What the packet simulator sent and acknowledged, B."""

    mtu_bytes: Positive
    ack_bytes: NonNegative
    ack_every_packets: Count
    window_bytes: Positive


@dataclass(frozen=True, kw_only=True, config=_OPEN)
class Finish:
    """When the last flow finished and each of them, ns."""

    completion_ns: Positive
    flow_finish_ns: tuple[Positive, ...]


@dataclass(frozen=True, kw_only=True, config=_OPEN)
class PatternCase:
    """One case of a file; ``results`` by queueing mode."""

    name: str
    topology: Net
    flows: tuple[Flow, ...] = Field(min_length=1)
    transport: Packets
    results: Map[Finish]


@dataclass(frozen=True, kw_only=True, config=_OPEN)
class _File:
    cases: tuple[PatternCase, ...]


@lru_cache(maxsize=4)
def read_patterns(path: Path) -> tuple[PatternCase, ...]:
    """The cases of a file; InputError with the field of the first that is wrong."""
    document = Document(data=json.loads(read_table(path)), file=str(path))
    found = build(_File, document).cases
    for at, case in enumerate(found):
        _check(case, f"cases[{at}]", document)
    return found


def _check(case: PatternCase, place: str, document: Document) -> None:
    """InputError where a case names what it does not have."""

    def refuse(what: str, message: str) -> InputError:
        return document.error(f"{place}.{what} {message}.", f"{place}.{what}")

    net, names = case.topology, {flow.id for flow in case.flows}
    nodes, wired = len(net.node_labels), {way for e in net.edges for way in ((e.a, e.b), (e.b, e.a))}
    for at, edge in enumerate(net.edges):
        if max(edge.a, edge.b) >= nodes:
            raise refuse(f"topology.edges[{at}]", f"joins nodes {edge.a} and {edge.b} of {nodes}")
    for at, flow in enumerate(case.flows):
        for path in flow.paths:
            if len(path) < 2 or not wired.issuperset(pairwise(path)):
                raise refuse(f"flows[{at}].paths", f"has a path without cables: {' '.join(map(str, path)) or 'empty'}")
        if unknown := set(flow.deps) - names:
            raise refuse(f"flows[{at}].deps", f"waits for flow {min(unknown)}, which the case does not have")
    for mode, result in case.results.items():
        if mode not in MODES:
            raise refuse(f"results.{mode}", f"is no queueing mode. Known: {', '.join(MODES)}")
        if len(result.flow_finish_ns) != len(case.flows):
            raise refuse(
                f"results.{mode}.flow_finish_ns",
                f"must have a time for each of {len(case.flows)} flows (got {len(result.flow_finish_ns)})",
            )


MODES = ("fifo", "fq", "pfc")
"""How switches queued packets."""
