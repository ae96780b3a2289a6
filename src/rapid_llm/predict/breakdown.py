"""Where the time goes: a tree of costs on the critical rank whose leaves sum to the total."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from rapid_llm.execution import ForwardSteps, Passes, Priced, TrainingStep
from rapid_llm.execution.beside import side_share
from rapid_llm.execution.cells import Matrix
from rapid_llm.execution.passes import hidden_kernels
from rapid_llm.execution.pricing import PricedMessages
from rapid_llm.execution.schedules import CODES
from rapid_llm.execution.timeline import pairs
from rapid_llm.lowering.table import CAST, OPTIMIZER
from rapid_llm.operators import BOUNDS
from rapid_llm.predict.report import Cost

Weights = NDArray[np.float64]
COMPUTE, MEMORY, LAUNCH = "compute", "memory-bound kernels", "launch-bound kernels"
COMMUNICATION, BUBBLE, OPTIMIZER_STEP, HOST = "exposed communication", "pipeline bubble", "optimizer", "host"
OFFLOAD = "offload"
WAITING_SLOW = "waiting for slow accelerators"
WAITING, DRAFTING = "waiting for other requests", "drafting tokens"
ENCODING = "encoding images"
MAPPING = "mapping memory again"
OTHER_HALF = "waiting for the ffn pool"
_KERNELS = (COMPUTE, MEMORY, LAUNCH)
"""The group of kernels of each of BOUNDS."""
_AXIS_NAMES = {
    "ulysses": "cp",
    "keys": "cp",
    "kvp": "cp (helix)",
    "shard": "dp",
    "data": "dp",
    "edp": "dp (experts)",
    "replicas": "dp",
}
_SUFFIXES = (" dgrad", " wgrad", " grad", " again")


@dataclass(slots=True)
class Tally:
    """Seconds by group and name, with the hidden part, and what binds most of each."""

    groups: dict[str, dict[str, list[float]]] = field(default_factory=dict)
    bounds: dict[tuple[str, str], str] = field(default_factory=dict)

    def add(self, group: str, name: str, seconds: float, hidden: float = 0.0, bound: str = "") -> None:
        """Add seconds to a leaf."""
        if seconds == 0.0 and hidden == 0.0:
            return
        cell = self.groups.setdefault(group, {}).setdefault(name, [0.0, 0.0])
        cell[0] += seconds
        cell[1] += hidden
        self.bounds.setdefault((group, name), bound)

    @property
    def seconds(self) -> float:
        """All that was added, without the hidden part."""
        return sum(seconds for cells in self.groups.values() for seconds, _ in cells.values())

    def scale(self, share: float) -> None:
        """Scale every leaf."""
        for cells in self.groups.values():
            for cell in cells.values():
                cell[:] = [share * seconds for seconds in cell]

    def tree(self, name: str, order: Iterable[str]) -> Cost:
        """The tree, groups in the given order, leaves by falling cost."""
        children = []
        for group in order:
            cells = self.groups.get(group)
            if not cells:
                continue
            ranked = sorted(cells.items(), key=lambda item: -item[1][0])
            leaves = tuple(Cost(leaf, s, h, bound=self.bounds[group, leaf]) for leaf, (s, h) in ranked)
            if len(leaves) == 1 and leaves[0].name == group:
                children.append(leaves[0])
            else:
                children.append(
                    Cost(group, sum(c.seconds for c in leaves), sum(c.hidden_seconds for c in leaves), leaves)
                )
        return Cost(name, sum(c.seconds for c in children), sum(c.hidden_seconds for c in children), tuple(children))


ORDER = (
    COMPUTE,
    MEMORY,
    LAUNCH,
    COMMUNICATION,
    BUBBLE,
    WAITING_SLOW,
    WAITING,
    OTHER_HALF,
    ENCODING,
    DRAFTING,
    OPTIMIZER_STEP,
    HOST,
)


def training_breakdown(step: TrainingStep) -> Cost:
    """One optimizer step of the first plan, on the pacing stage; tails of the stage that ends last."""
    lowered, plans = step.priced.lowered, step.priced.lowered.shapes.plans
    stage, end = int(step.stage[0]), int(step.end[0])
    m = float(plans.micro_batches[0] / plans.copies[0])
    tally = Tally()
    weights = m * lowered.layers[:, 0, stage][:, None]
    _passes([tally], step.priced, step.passes, weights[None])
    send = m * 2.0 * float(step.send[0]) if plans.pp[0] > 1 else 0.0
    tally.add(COMMUNICATION, "pp", send, bound="network")
    work = m * float(step.forward[0, stage] + step.backward[0, stage]) + send
    saved = _saved(step, stage)
    tally.add(COMMUNICATION, "ep", -saved, saved, "network")
    tally.add(BUBBLE, BUBBLE, float(step.pipeline[0]) - work + saved, bound="schedule")
    tally.add(WAITING_SLOW, WAITING_SLOW, float(step.late[0]) + _unlike(step, stage, m), bound="schedule")
    for message in step.messages:
        exposed, whole = float(message.exposed[0, end]), float(message.seconds[0, end])
        tally.add(COMMUNICATION, _axis(message.axis), exposed, max(0.0, whole - exposed), "network")
    tally.add(OPTIMIZER_STEP, OPTIMIZER_STEP, float(step.optimizer[0, end]), bound="memory")
    _offload(tally, step, m)
    tally.add(HOST, MAPPING, 2.0 * m * float(step.mapping[0, stage]), bound="allocator")
    tally.add(HOST, HOST, float(step.host[0]), bound="host")
    return tally.tree("step", ORDER)


def _offload(tally: Tally, step: TrainingStep, micro_batches: float) -> None:
    """Copies between accelerator and host, exposed and hidden, and the step that the CPUs take."""
    found = step.offload
    if found is None:
        return
    pacing, end = (0, int(step.stage[0])), (0, int(step.end[0]))
    shown = micro_batches * float(found.forward[pacing] + found.backward[pacing]) + float(found.tail[end])
    whole = micro_batches * float(found.copies[pacing]) + float(found.tail_copies[end])
    tally.add(COMMUNICATION, OFFLOAD, shown, max(0.0, whole - shown), "host link")
    tally.add(OPTIMIZER_STEP, "optimizer on the host", float(found.update[end]), bound="host memory")


def _unlike(step: TrainingStep, stage: int, micro_batches: float) -> float:
    """Seconds in which the slowest ranks of a stage wait for ranks on other machines that are slower in one direction,
    forward or backward, though not in both together.
    """
    if step.seats is None:
        return 0.0
    own = step.seats.works[step.seats.slowest]
    took = float(own.forward[0, stage] + own.backward[0, stage])
    return micro_batches * (float(step.forward[0, stage] + step.backward[0, stage]) - took)


def _saved(step: TrainingStep, stage: int) -> float:
    """Seconds of expert messages that a stage hides behind the pass that runs beside them."""
    plans = step.priced.lowered.shapes.plans
    schedule, stages = CODES[int(plans.schedule[0])], int(plans.pp[0])
    if step.beside is None or stages == 1:
        return 0.0
    count = pairs(schedule.name, stages, int(plans.micro_batches[0]), stage)
    return float(step.beside[0, stage]) * count / (schedule.chunks or 1)


READING = "pass"
"""The one phase of a request that is read alone."""


@dataclass(frozen=True, slots=True)
class Phase:
    """A phase of a request that took ``total`` seconds; ``rest`` is its time outside passes. weight [N]: how often each
    pass runs through all stages; streamed [N]: through the pacing stage only, behind another pass.
    """

    name: str
    weight: Weights
    total: float
    streamed: Weights | None = None
    ingress: float = 0.0
    rest: str = BUBBLE


def forward_breakdown(steps: ForwardSteps, *phases: Phase) -> list[Cost]:
    """Forward passes of the phases of an inference request."""
    layers, pp = steps.priced.lowered.layers, steps.priced.lowered.shapes.plans.pp
    pacing, whole = (np.arange(len(pp)), steps.stages.argmax(axis=1)), layers.sum(axis=2)
    none = np.zeros(len(pp))
    streams = [none if one.streamed is None else one.streamed for one in phases]
    runs = [
        whole * one.weight + (layers[:, pacing[0], pacing[1]] * streamed if streamed.any() else 0.0)
        for one, streamed in zip(phases, streams, strict=True)
    ]
    tallies = [Tally() for _ in phases]
    _passes(tallies, steps.priced, steps.passes, np.array(runs))
    found = []
    for one, tally, streamed in zip(phases, tallies, streams, strict=True):
        sends = one.weight * (pp - 1.0) + streamed * (pacing[1] < pp - 1.0)
        tally.add(COMMUNICATION, "pp", float(steps.send @ sends), bound="network")
        tally.add(WAITING_SLOW, WAITING_SLOW, _passed(steps.late, pacing, one.weight, streamed), bound="schedule")
        if steps.fetched is not None and steps.copies is not None:
            shown, took = (_passed(part, pacing, one.weight, streamed) for part in (steps.fetched, steps.copies))
            tally.add(COMMUNICATION, OFFLOAD, shown, took - shown, "host link")
        if steps.hosted is not None:
            waits = _passed(steps.hosted, pacing, one.weight, streamed)
            tally.add(MEMORY, f"{steps.left} on the host", waits, bound="host memory")
        tally.add(HOST, "engine", float(steps.host @ (one.weight + streamed)) + one.ingress, bound="host")
        took = tally.seconds
        if took > one.total:  # a mean over waves, of which the last one is smaller: the full one's passes stand for it
            tally.scale(one.total / took)
        elif one.total - took > 1e-12 * one.total:
            tally.add(one.rest, one.rest, one.total - took, bound="schedule")
        found.append(tally.tree(one.name, ORDER))
    return found


def _passed(
    seconds: Weights, pacing: tuple[NDArray[np.int64], NDArray[np.int64]], weight: Weights, streamed: Weights
) -> float:
    """Seconds of each stage [N, S] over all passes: through all stages, and through the pacing one."""
    return float(seconds.sum(axis=1) @ weight + seconds[pacing] @ streamed)


def _passes(tallies: Sequence[Tally], priced: Priced, passes: Passes, weights: Weights) -> None:
    """Kernels, messages and host time of weighted unit passes; weights [K, U, N] over all columns of the table, a set
    for each tally."""
    tables = [table for table in priced.kernels if table.rows.names]
    if tables:
        rows = [table.rows for table in tables]
        bound = np.concatenate([table.prices.bound for table in tables])
        spent = np.concatenate([table.seconds * table.rows.count for table in tables])
        spent[np.concatenate([one.phase for one in rows]) == OPTIMIZER] = 0.0
        chosen = weights[:, np.concatenate([one.unit for one in rows])]
        behind = np.zeros_like(spent)
        if passes.apart.any():
            behind = np.concatenate(
                [h for h, t in zip(hidden_kernels(priced, passes), priced.kernels, strict=True) if t.rows.names]
            )
            spent -= behind
        parts = np.array([spent * (bound == limit) for limit in range(len(BOUNDS))])
        taken = np.einsum("jrp,krp->kjr", parts, chosen)
        places, names = _by_name(tuple(name for one in rows for name in one.names))
        unseen = np.einsum("rp,krp->kr", behind, chosen)
        for tally, seconds, hidden in zip(tallies, taken, unseen, strict=True):
            by_bound = np.array([np.bincount(places, one, len(names)) for one in seconds])
            most, apart = by_bound.argmax(axis=0).tolist(), np.bincount(places, hidden, len(names)).tolist()
            for name, time, limit, other in zip(names, by_bound.sum(axis=0).tolist(), most, apart, strict=True):
                if time or other:
                    tally.add(_KERNELS[limit], name, time, other, BOUNDS[limit])
    with np.errstate(divide="ignore", invalid="ignore"):
        share = np.where(passes.side > 0, passes.exposed / passes.side, 0.0)
    for message, blocking, side in _moving(priced, passes):
        rows_m = message.rows
        chosen = weights[:, rows_m.unit]
        whole = np.einsum("rp,krp->k", blocking + side, chosen).tolist()
        shown = blocking + side * share[rows_m.phase, rows_m.unit]
        exposed = np.einsum("rp,krp->k", shown, chosen).tolist()
        for tally, seen, took in zip(tallies, exposed, whole, strict=True):
            tally.add(COMMUNICATION, _axis(rows_m.axis), seen, took - seen, "network")
    host = np.einsum("hup,kup->k", passes.host, weights).tolist()
    for tally, gaps in zip(tallies, host, strict=True):
        tally.add(HOST, "launch gaps", gaps, bound="host")


def _moving(priced: Priced, passes: Passes) -> list[tuple[PricedMessages, Matrix, Matrix]]:
    """Seconds of each message in its pass, on the stream of kernels and beside it [R, P]. Where messages of several
    axes crowd the same links, those of a pass are longer in it than alone, all by one factor.
    """
    found, alone = [], np.zeros((2, *passes.side.shape))
    for message in priced.messages:
        rows = message.rows
        moved = message.prices.seconds * rows.count * (rows.phase != OPTIMIZER)[:, None] * (rows.ranks > 1)
        beside = side_share(priced.machine, [rows], priced.lowered.shapes.compute)
        found.append((message, moved * (1.0 - beside), moved * beside))
    if priced.machine.net is None:
        return found
    for message, *parts in found:
        for part, seconds in zip(alone, parts, strict=True):
            np.add.at(part, (message.rows.phase, message.rows.unit), seconds)
    both = np.array([passes.blocking, passes.side])
    longer = np.divide(both, alone, out=np.ones_like(both), where=alone > 0)
    return [
        (message, blocking * longer[0][cells], side * longer[1][cells])
        for message, blocking, side in found
        for cells in [(message.rows.phase, message.rows.unit)]
    ]


@lru_cache(maxsize=256)
def _by_name(names: tuple[str, ...]) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    """The part that each row counts to, and the names of parts; a part is bound by whatever binds most of its time."""
    bases = [base_name(name) for name in names]
    parts = tuple(dict.fromkeys(bases))
    place = {name: index for index, name in enumerate(parts)}
    return np.array([place[name] for name in bases]), parts


def _axis(axis: str) -> str:
    return _AXIS_NAMES.get(axis, axis)


@lru_cache(maxsize=1024)
def base_name(name: str) -> str:
    """An operator's canonical name without the direction of its pass; casts share one name."""
    if name.endswith(CAST):
        return CAST.strip()
    for suffix in _SUFFIXES:
        name = name.removesuffix(suffix)
    return name


def _path(communication: Cost) -> str:
    """The messages that bind a tree, and whether they cross the network."""
    if not communication.children:
        return "network"
    most = max(communication.children, key=lambda child: child.seconds).name
    return "host link (offload)" if most == OFFLOAD else f"network ({most})"


def _waiting(host: Cost) -> str:
    """What the accelerator waits for most while its host works."""
    most = max(host.children, key=lambda child: child.seconds, default=host).name
    return "allocator (memory is full)" if most == MAPPING else "host (kernel launches)"


def bound_by(tree: Cost) -> str:
    """What binds a tree, in words: the largest of its groups, as a share of the time of all groups; hidden work (a
    shared expert beside routed ones) makes groups add up to more than the time that passes.
    """
    top = max(tree.children, key=lambda child: child.seconds)
    words: Mapping[str, str] = {
        COMPUTE: "compute (matrix units)",
        MEMORY: "memory bandwidth",
        LAUNCH: "launch and latency of small kernels",
        COMMUNICATION: _path(top),
        BUBBLE: BUBBLE,
        WAITING_SLOW: WAITING_SLOW,
        WAITING: WAITING,
        OTHER_HALF: OTHER_HALF,
        ENCODING: ENCODING,
        DRAFTING: DRAFTING,
        OPTIMIZER_STEP: "optimizer",
        HOST: _waiting(top),
    }
    whole = sum(max(0.0, child.seconds) for child in tree.children)
    share = top.seconds / whole if whole else 0.0
    return f"{words[top.name]}: {100 * share:.0f} % of the time"


def binding(*phases: Cost) -> str:
    """What binds each phase of a request, in words."""
    return "; ".join(f"{phase.name} by {bound_by(phase)}" for phase in phases if phase.children)
