"""Jobs on unlike groups of nodes: which machine each stage of each pipeline runs on, and what joins stages."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rapid_llm.execution.machine import Machine, at_home, driven
from rapid_llm.execution.stragglers import Slow, together
from rapid_llm.hardware import System, part_of
from rapid_llm.network.flow_prices import Links
from rapid_llm.network.mixed import Crossing, across, between, inside
from rapid_llm.parallelism import Plans
from rapid_llm.runtime import Runtime

Index = NDArray[np.int64]
Matrix = NDArray[np.float64]
Kind = tuple[int, Crossing | None]
"""A machine: accelerators of a group of nodes, whose messages stay inside it, or cross to others."""
Joint = tuple[int, int, int]
"""Groups that a message between stages leaves and reaches, and how many accelerators send it at once."""


@dataclass(frozen=True, slots=True)
class Pipeline:
    """Replicas of a plan that are alike: for each stage, the machines of the ranks that wait for each other there, what
    its messages to the next stage cross (from the last stage: to the first), and by which factor kernels take longer.
    """

    plan: int
    stages: tuple[tuple[Kind, ...], ...]
    joints: tuple[tuple[Joint, ...], ...]
    paces: tuple[float, ...]


@dataclass(frozen=True)
class Cluster:
    """The machines of a job on unlike groups of nodes; ``stages``: the group of each stage, where the user says it;
    ``accelerators`` of the job."""

    system: System
    runtime: Runtime
    stages: tuple[int, ...] = ()
    accelerators: int = 0

    @classmethod
    def of(cls, system: System, runtime: Runtime, stages: Sequence[str] = (), accelerators: int = 0) -> Cluster:
        """The machines of a part of a system."""
        runtime = at_home(runtime, system.groups[0].node.accelerator.vendor)
        names = [group.name for group in system.groups]
        system = driven(system, runtime.communication.nics)
        return cls(system, runtime, tuple(names.index(name) for name in stages), accelerators)

    def on(self, kind: Kind) -> Machine:
        """The machine of one node group."""
        index, crossing = kind
        fabric = inside(self.system, index) if crossing is None else across(self.system, index, crossing)
        return Machine.on(self.system.groups[index].node, fabric, self.runtime, accelerators=self.accelerators)

    def over(self, joint: Joint) -> Machine:
        """The machine that sends from one node group to another."""
        one, other, sharing = joint
        fabric = between(self.system, one, other, sharing if self.system.links else 0)
        return Machine.on(self.system.groups[one].node, fabric, self.runtime, accelerators=self.accelerators)

    def capacities(self, plans: Plans, stages: int) -> Matrix:
        """Bytes that the driver reports for the smallest accelerator on each stage [P, S]."""
        each = np.array([float(g.node.accelerator.memory.reported_capacity) for g in self.system.groups])
        found = np.full((len(plans), stages), each.max())
        for plan in range(len(plans)):
            places = Places.of(plans, plan, self)
            np.minimum.at(found[plan], places.stage, each[places.group])
        return found

    def counts(self, plans: Plans, plan: int) -> Index:
        """How many accelerators of each group each stage of a plan takes [S, G]."""
        places = Places.of(plans, plan, self)
        found = np.zeros((places.stages, len(self.system.groups)), dtype=np.int64)
        np.add.at(found, (places.stage, places.group), 1)
        return found


def machines(
    system: System, runtime: Runtime, links: Links | None, plans: Plans, stages: Sequence[str] = ()
) -> Machine | Cluster:
    """What prices a job of these plans: one machine, or several where it reaches unlike groups of nodes."""
    total = int(plans.ranks.max(initial=0))
    part = part_of(system, system.accelerators if stages else total)
    return Cluster.of(part, runtime, stages, total) if part.mixed else Machine.of(part, runtime, links, total)


@dataclass(frozen=True, slots=True, eq=False)
class Places:
    """The accelerators of one plan's job, in placement order: node group, pipeline stage, and set of replicas that wait
    for each other within a pass.
    """

    group: Index
    stage: Index
    replicas: Index
    apart: int

    @classmethod
    def of(cls, plans: Plans, plan: int, cluster: Cluster) -> Places:
        """Where the ranks of a plan sit."""
        at = np.arange(int(plans.ranks[plan]))
        apart = int(plans.stride("pp")[plan])
        stage = at // apart % int(plans.pp[plan])
        replica = at // int(plans.stride("dp")[plan]) % int(plans.dp[plan])
        group = np.searchsorted(cluster.system.ends, at, side="right")
        if cluster.stages:
            group = np.array(cluster.stages)[stage]
        return cls(group, stage, replica // together(plans, plan), apart)

    @property
    def stages(self) -> int:
        """Pipeline stages."""
        return int(self.stage.max()) + 1

    def joints(self) -> Iterator[tuple[Index, Index, Index]]:
        """Of each stage and the next one (of the last: the first): the places that send, and those that receive."""
        last = self.stages - 1
        for stage in range(last + 1):
            sender = np.flatnonzero(self.stage == stage)
            step = self.apart if stage < last else -self.apart * last
            yield sender, self.group[sender], self.group[sender + step]


def pipelines(plans: Plans, cluster: Cluster, slow: Slow | None = None) -> list[Pipeline]:
    """The distinct pipelines of every plan, plans in their order."""
    return [one for plan in range(len(plans)) for one in _pipelines(plans.take(np.array([plan])), plan, cluster, slow)]


def _pipelines(plans: Plans, plan: int, cluster: Cluster, slow: Slow | None) -> list[Pipeline]:
    places = Places.of(plans, 0, cluster)
    sets, stages = int(places.replicas.max()) + 1, places.stages
    cells = np.zeros((sets, stages, len(cluster.system.groups)), dtype=np.int64)
    np.add.at(cells, (places.replicas, places.stage, places.group), 1)
    paces = np.ones((sets, stages))
    for place, speed in (slow or {}).items():
        np.maximum.at(paces, (places.replicas[place], places.stage[place]), 1.0 / speed)
    joints: list[tuple[int, Joint]] = []
    joined: list[NDArray[np.bool_]] = []
    for stage, (sender, one, other) in enumerate(places.joints()):
        kinds = one * len(cluster.system.groups) + other
        for kind in np.unique(kinds).tolist():
            chosen = kinds == kind
            joints.append((stage, (*divmod(kind, len(cluster.system.groups)), int(chosen.sum()))))
            joined.append(np.isin(np.arange(sets), places.replicas[sender[chosen]]))
    found = [
        Pipeline(
            plan,
            tuple(_waiting(cells[i, s], cluster) for s in range(stages)),
            tuple(
                tuple(
                    sorted(joint for (at, joint), sets_of in zip(joints, joined, strict=True) if at == s and sets_of[i])
                )
                for s in range(stages)
            ),
            tuple(paces[i].tolist()),
        )
        for i in _unlike(cells.reshape(sets, -1), np.array(joined).T, paces)
    ]
    return list(dict.fromkeys(found))


def _unlike(*columns: NDArray[Any]) -> list[int]:
    """The first row of each kind, in order."""
    rows = np.concatenate([column.astype(np.float64) for column in columns], axis=1)
    return sorted(np.unique(rows, axis=0, return_index=True)[1].tolist())


def _waiting(counts: Index, cluster: Cluster) -> tuple[Kind, ...]:
    """The machines of ranks that wait for each other within a pass, and how many ranks on each group."""
    used = np.flatnonzero(counts).tolist()
    if len(used) == 1:
        return ((used[0], None),)
    side = int(counts[used].min()) if cluster.system.links else 0
    crossing = Crossing(tuple(used), side, side)
    return tuple((index, crossing) for index in used)


def reached(plans: Plans, plan: int, cluster: Cluster, ranks: int, stride: int) -> tuple[tuple[Kind, ...], ...]:
    """The machines that the groups of a message run on, by stage: of so many ranks, so far apart in placement order."""
    places = Places.of(plans, plan, cluster)
    at = np.arange(len(places.group))
    block = at // (ranks * stride) * stride + at % stride
    counts = np.zeros((int(block.max()) + 1, len(cluster.system.groups)), dtype=np.int64)
    np.add.at(counts, (block, places.group), 1)
    crossing = _crossings(counts, ranks, stride, linked=bool(cluster.system.links))
    crosses = np.isin(block, list(crossing))
    kinds: list[dict[Kind, None]] = [{} for _ in range(places.stages)]
    for stage, group, one in np.unique(np.stack([places.stage, places.group, np.where(crosses, block, -1)]), axis=1).T:
        kinds[int(stage)][int(group), crossing.get(int(one))] = None
    return tuple(tuple(found) for found in kinds)


def _crossings(counts: Index, ranks: int, stride: int, *, linked: bool) -> dict[int, Crossing]:
    """Message groups that lie on several node groups, by how many of their ranks are on each [message groups, G]. Ranks
    that do not fill a message group send no such message; all that cross share the links.
    """
    whole = ((counts > 0).sum(axis=1) > 1) & (counts.sum(axis=1) == ranks)
    alike: dict[tuple[int, ...], list[int]] = {}
    for one in np.flatnonzero(whole).tolist():
        alike.setdefault(tuple(np.flatnonzero(counts[one]).tolist()), []).append(one)
    found: dict[int, Crossing] = {}
    for used, members in alike.items():
        side = int(counts[members][:, list(used)].min()) if linked else 0
        found |= dict.fromkeys(members, Crossing(used, side * stride, side * len(members)))
    return found
