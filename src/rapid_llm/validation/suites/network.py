"""The network suite: packet-level patterns against the flow engine, by queueing mode."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from rapid_llm.network.engine import simulate
from rapid_llm.network.tasks import OWN_QUEUE, Floats, Tasks, Transport, csr, tasks
from rapid_llm.network.topology import Builder, Topology
from rapid_llm.validation.cases import Baseline, Case
from rapid_llm.validation.patterns import Flow, Net, Packets, PatternCase, read_patterns
from rapid_llm.validation.tables import Table

SUITE = "network"
NANOSECOND = 1e-9
GIGABIT = 1e9 / 8


@dataclass(frozen=True, slots=True)
class Pattern:
    """One pattern: its network, its flows as tasks, and when each flow and the last one finished, by mode (s)."""

    name: str
    topology: Topology
    tasks: Tasks
    transport: Packets
    completion: Mapping[str, float]
    finish: Mapping[str, Floats]


def cases(table: Table) -> Iterator[Case]:
    """Completion of every pattern and finish of every flow, a group for each queueing mode."""
    if table.schema != "packet_patterns":
        return
    for index, pattern in enumerate(patterns(table.path)):
        for mode, seconds in pattern.completion.items():
            about: dict[str, Any] = {
                "suite": SUITE,
                "group": mode,
                "key": pattern.name,
                "quantity": "",
                "scenario": None,
            }
            times = partial(_finish, table.path, index, mode)
            bound = {"busiest link": Baseline(_busiest(pattern))}
            yield Case(
                **about, metric="completion", id=f"{pattern.name}-{mode}", measured=seconds, baselines=bound,
                answer=partial(_last, times),
            )  # fmt: skip
            for flow, measured in enumerate(pattern.finish[mode].tolist()):
                yield Case(
                    **about, metric="flow_finish", id=f"{pattern.name}-{mode}-{flow}", measured=measured,
                    answer=partial(_one, times, flow),
                )  # fmt: skip


def _last(times: "partial[Floats]") -> float:
    return float(times().max())


def _one(times: "partial[Floats]", flow: int) -> float:
    return float(times()[flow])


@lru_cache(maxsize=256)
def _finish(path: Path, index: int, mode: str) -> Floats:
    """When the flows of a pattern finish by the engine (s)."""
    pattern = patterns(path)[index]
    return simulate(pattern.tasks, pattern.topology, transport=transport(pattern.transport, mode)).finish


def transport(described: Packets, mode: str) -> Transport:
    """What the packet simulator did: acknowledgements except with pauses, a fixed window."""
    acks = 0.0 if mode == "pfc" else described.ack_bytes / (described.ack_every_packets * described.mtu_bytes)
    return Transport(
        discipline=mode,  # type: ignore[arg-type]
        packet_bytes=described.mtu_bytes,
        ack_share=acks,
        window_bytes=described.window_bytes,
    )


@lru_cache(maxsize=4)
def patterns(path: Path) -> tuple[Pattern, ...]:
    """The patterns of a file."""
    return tuple(map(_pattern, read_patterns(path)))


def _pattern(case: PatternCase) -> Pattern:
    topology = network_of(case.topology)
    return Pattern(
        name=case.name,
        topology=topology,
        tasks=_flows(case.flows, topology, case.transport.mtu_bytes),
        transport=case.transport,
        completion={mode: result.completion_ns * NANOSECOND for mode, result in case.results.items()},
        finish={mode: np.array(result.flow_finish_ns) * NANOSECOND for mode, result in case.results.items()},
    )


def network_of(described: Net) -> Topology:
    """Nodes and edges of a pattern, every direction at its own bandwidth."""
    build = Builder(described.name)
    build.add(described.node_labels, "accelerator")
    for near, far, rate in (("a", "b", "bw_ab_gbps"), ("b", "a", "bw_ba_gbps")):
        start, end, rates, latency = (
            np.array([getattr(edge, name) for edge in described.edges]) for name in (near, far, rate, "latency_ns")
        )
        build.join(start, end, rates * GIGABIT, latency * NANOSECOND, both=False)
    return build.build()


def _flows(flows: Sequence[Flow], topology: Topology, packet: float) -> Tasks:
    """Flows as tasks: several paths share the bytes; the tail is the latency and one packet on every further hop."""
    link = {pair: i for i, pair in enumerate(zip(topology.source.tolist(), topology.target.tolist(), strict=True))}
    place = {flow.id: i for i, flow in enumerate(flows)}
    queues: dict[tuple[int, int], int] = {}
    rows: list[dict[int, float]] = []
    tails: list[float] = []
    queue: list[int] = []
    for flow in flows:
        paths = [[link[hop] for hop in pairwise(path)] for path in flow.paths]
        share: dict[int, float] = {}
        for one in (hop for path in paths for hop in path):
            share[one] = share.get(one, 0.0) + 1 / len(paths)
        rows.append(share)
        tails.append(max(_tail(np.array(path), topology, min(packet, flow.bytes)) for path in paths))
        queue.append(OWN_QUEUE if flow.qp is None else queues.setdefault((flow.src, flow.qp), len(queues)))
    start, resource = csr([list(row) for row in rows])
    return tasks(
        np.array([flow.bytes for flow in flows], np.float64),
        start,
        resource,
        coefficient=np.array([part for row in rows for part in row.values()]),
        dependencies=csr([[place[other] for other in flow.deps] for flow in flows]),
        queue=np.array(queue),
        delay=np.array([flow.delay_ns for flow in flows]) * NANOSECOND,
        latency=np.array(tails),
    )


def _tail(path: Any, topology: Topology, packet: float) -> float:
    hops = packet / topology.bandwidth[path]
    return float(topology.latency[path].sum() + hops.sum() - hops.max())


def _busiest(pattern: Pattern) -> float:
    """What a model of the busiest link says: its bytes at its bandwidth (s)."""
    weight = np.repeat(pattern.tasks.total, np.diff(pattern.tasks.resource_start)) * pattern.tasks.coefficient
    load = np.bincount(pattern.tasks.resource, weights=weight, minlength=pattern.topology.links)
    return float((load / pattern.topology.bandwidth).max())
