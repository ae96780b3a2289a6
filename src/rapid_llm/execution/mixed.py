"""The time of a step on unlike groups of nodes: every machine prices the same table, every stage takes its machine's
column, ranks that wait for each other take the slowest, and stages send at the link that joins them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from rapid_llm.execution.beside import occupied_share
from rapid_llm.execution.cluster import Cluster, Index, Kind, Pipeline, pipelines, reached
from rapid_llm.execution.messages import Bulk, Cover, StepMessages, Taken, bulk_taken, bulks, sends, step_messages
from rapid_llm.execution.offload import Offloading
from rapid_llm.execution.pricing import Priced, Request, price_requests
from rapid_llm.execution.step import Seats, TrainingStep, Work, kernels_and_gaps, once_a_step, tail, work_on
from rapid_llm.execution.stragglers import Slow
from rapid_llm.execution.timeline import LOOPED, Durations, pipeline_time
from rapid_llm.lowering import Lowered
from rapid_llm.parallelism import Plans

Column = NDArray[np.float64]
Matrix = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """Pipelines as rows [L] over the columns of the machines: the plan of each, and the machines that each stage waits
    for [K, L, S].
    """

    plan: Index
    cells: NDArray[np.bool_]

    @classmethod
    def of(cls, found: Sequence[Pipeline], kinds: Sequence[Kind], stages: int) -> Rows:
        """The rows of pipelines of at most a number of stages."""
        cells = np.zeros((len(kinds), len(found), stages), dtype=bool)
        place = {kind: k for k, kind in enumerate(kinds)}
        for row, one in enumerate(found):
            for stage, waiting in enumerate(one.stages):
                cells[[place[kind] for kind in waiting], row, stage] = True
        return cls(np.array([one.plan for one in found]), cells)

    def slowest(self, values: Sequence[Matrix]) -> Matrix:
        """Of the values of each machine [P, S], the largest among those that each stage waits for [L, S]."""
        return np.asarray(np.where(self.cells, np.stack(values)[:, self.plan], 0.0).max(axis=0))

    def least(self, values: Sequence[Matrix]) -> Matrix:
        """As ``slowest``, the smallest."""
        found = np.where(self.cells, np.stack(values)[:, self.plan], np.inf).min(axis=0)
        return np.where(self.cells.any(axis=0), found, 0.0)


def mixed_step(lowered: Lowered, cluster: Cluster, slow: Slow | None, displaced: Matrix | None) -> TrainingStep:
    """Time one optimizer step of every plan, as ``training_step`` does, on a cluster."""
    plans, runtime = lowered.shapes.plans, cluster.runtime
    found = pipelines(plans, cluster, slow)
    kinds = sorted({kind for one in found for stage in one.stages for kind in stage}, key=repr)
    asked = sends(lowered, runtime)
    works = {kind: work_on(lowered, cluster.on(kind), displaced, asked[1:]) for kind in kinds}
    rows = Rows.of(found, kinds, lowered.layers.shape[2])
    own, every = plans.take(rows.plan), [works[kind] for kind in kinds]
    forward, backward = rows.slowest([w.forward for w in every]), rows.slowest([w.backward for w in every])
    (out, back), passing, send = _shares(found, rows, (lowered, cluster, works), asked, forward)
    weight = None if every[0].weight is None else rows.slowest([w.weight for w in every if w.weight is not None])
    beside = None if every[0].beside is None else rows.least([w.beside for w in every if w.beside is not None])
    times = Durations.of(forward + out, backward + back, weight, beside)
    pipeline = _ends(times, own) + passing
    late = _late(found, rows, every, (times, own)) if slow else np.zeros(len(found))
    cover = Cover(*(rows.slowest([getattr(w.cover, f.name) for w in every]) for f in fields(Cover)))
    occupied = rows.slowest([np.full_like(w.forward, occupied_share(w.priced.machine)) for w in every])
    messages = _once_a_step(lowered, cluster, works, rows, (cover, occupied))
    optimizer = _of_all(rows.slowest([w.optimizer for w in every]), rows.plan)
    offload = _offload(rows, [w.offload for w in every if w.offload is not None])
    host = np.max([once_a_step(w.priced) for w in every], axis=0)[rows.plan]
    total = pipeline + late + tail(optimizer, messages, offload).max(axis=1) + host
    best = np.array([max(np.flatnonzero(rows.plan == p), key=total.__getitem__) for p in range(len(plans))])
    stage = (forward + backward)[best].argmax(axis=1)
    pacing = max(found[best[0]].stages[stage[0]], key=lambda kind: _both(works[kind])[0, stage[0]])
    return TrainingStep(
        priced=works[pacing].priced,
        passes=works[pacing].passes,
        stage=stage,
        forward=forward[best],
        backward=backward[best],
        send=send[best, stage],
        beside=None if beside is None else beside[best],
        times=times.take(best, times.forward.shape[1]),
        pipeline=pipeline[best],
        messages=tuple(replace(m, seconds=m.seconds[best], exposed=m.exposed[best]) for m in messages),
        optimizer=optimizer[best],
        offload=offload and Offloading(*(getattr(offload, f.name)[best] for f in fields(Offloading))),
        mapping=rows.slowest([w.mapping for w in every])[best],
        late=late[best],
        host=host[best],
        total=total[best],
        seats=Seats(cluster, tuple(found), best, works, pacing),
    )


def _once_a_step(
    lowered: Lowered, cluster: Cluster, works: Mapping[Kind, Work], rows: Rows, beside: tuple[Cover, Matrix]
) -> tuple[StepMessages, ...]:
    """Messages once a step of every pipeline [L, S]; ``beside``: what hides them, and the compute units they occupy."""
    cover, occupied = beside
    once = bulks(lowered, cluster.runtime)
    taken = [_reaching(bulk, lowered, cluster, works, rows.plan) for bulk in once]
    priced = next(iter(works.values())).priced
    return step_messages([_of_rows(b, rows.plan) for b in once], taken, priced, cover, occupied=occupied)


def _both(work: Work) -> Matrix:
    return work.forward + work.backward


def _ends(times: Durations, plans: Plans) -> Column:
    """Seconds until the last task of each pipeline [L]; stages differ, so the closed forms of equal stages do not
    apply.
    """
    return pipeline_time(times, plans.pp, plans.micro_batches, plans.vpp, plans.schedule, unequal=True)


def _late(found: Sequence[Pipeline], rows: Rows, every: Sequence[Work], own: tuple[Durations, Plans]) -> Column:
    """Seconds by which accelerators that faults slow down delay the end of each pipeline [L]; their hosts' idle time
    absorbs some of that."""
    times, plans = own
    pace = np.ones_like(times.forward)
    for row, one in enumerate(found):
        pace[row, : len(one.paces)] = one.paces
    spent = [kernels_and_gaps(w.priced, w.passes) for w in every]
    more = []
    for direction in range(2):
        kernels, gaps = (rows.slowest([part[which][direction] for part in spent]) for which in range(2))
        more.append(np.maximum((pace - 1.0) * kernels - gaps, 0.0))
    late = replace(
        times, forward=times.forward + more[0], backward=times.backward + more[1], weight=times.weight * pace
    )
    return _ends(late, plans) - _ends(times, plans)


def _shares(
    found: Sequence[Pipeline],
    rows: Rows,
    on: tuple[Lowered, Cluster, Mapping[Kind, Work]],
    asked: Sequence[Request],
    forward: Matrix,
) -> tuple[tuple[Matrix, Matrix], Column, Matrix]:
    """Seconds that messages between stages add to the forward and to the backward passes of each stage [L, S], to
    filling and draining [L], and to a micro-batch of each stage in one direction [L, S].

    A stage sends outputs to the next one and gradients to the one before. Except between chunks, the last stage sends
    no output and the first no gradient, and the last waits at its only joint. Where messages travel beside the passes
    of other chunks, a stage still takes no less time than they do.
    """
    lowered, cluster, works = on
    own, stages = lowered.shapes.plans.take(rows.plan), forward.shape[1]
    if not asked:
        none = np.zeros_like(forward)
        return (none, none), np.zeros(len(found)), none
    joint = _joints(found, rows, on, asked[0], stages)
    last, row = own.pp.astype(np.int64) - 1, np.arange(len(found))
    looped = LOOPED[own.schedule.astype(np.int64)] & (own.vpp > 1)
    out, back = joint.copy(), np.roll(joint, 1, axis=1)
    out[row, last] = np.where(looped, joint[row, last], joint[row, np.maximum(last - 1, 0)])
    back[:, 0] = np.where(looped, joint[row, last], joint[:, 0])
    hidden = ((own.chunks > 1) & cluster.runtime.overlap.pipeline)[:, None]
    busy = rows.slowest([np.full_like(w.forward, occupied_share(w.priced.machine)) for w in works.values()])
    between, alive = (np.arange(stages) < end[:, None] for end in (last, last + 1))
    shown = np.where(hidden, busy * joint, joint)
    passing = 2.0 * ((joint - shown) * between).sum(axis=1) / own.chunks
    out, back = (np.where(hidden, np.maximum(busy * part, part - forward), part) * alive for part in (out, back))
    return (out, back), passing, (out + back) / 2.0


def _joints(
    found: Sequence[Pipeline],
    rows: Rows,
    on: tuple[Lowered, Cluster, Mapping[Kind, Work]],
    asked: Request,
    stages: int,
) -> Matrix:
    """Seconds of all messages of a micro-batch from each stage to the next, of the last one to the first [L, S]."""
    lowered, cluster, works = on
    plans, every = lowered.shapes.plans, works.values()
    joint = np.zeros((len(found), stages))
    for at, one in enumerate(found):
        crossed = one.joints if len(one.joints) > 1 else ()
        took = {over: _sent(asked, one, over, cluster) for over in dict.fromkeys(chain.from_iterable(crossed))}
        for stage, ways in enumerate(crossed):
            joint[at, stage] = max(took[over] for over in ways)
    shape = (len(plans), stages)
    behind = rows.slowest([np.broadcast_to(w.priced.others[0].seconds[:, None], shape) for w in every])
    host = cluster.runtime.host.per_send
    issued = rows.slowest([np.full(shape, host / w.priced.machine.host_speed) for w in every])
    own = plans.take(rows.plan)
    return np.asarray((joint + behind + issued) * (own.chunks * (own.pp > 1))[:, None])


def _sent(asked: Request, one: Pipeline, joint: tuple[int, int, int], cluster: Cluster) -> float:
    """Seconds of one message between two stages of a pipeline."""
    left, right, _ = joint
    stays = left == right
    many = sum((left, None) in stage for stage in one.stages) if stays else 2
    machine = cluster.on((left, None)) if stays else cluster.over(joint)
    at = np.array([one.plan])
    request = Request(
        asked.op, asked.size[at], np.maximum(np.minimum(asked.ranks[at], many), 2), asked.stride[at], asked.axis
    )
    return float(price_requests([request], machine)[0].seconds[0])


def _reaching(bulk: Bulk, lowered: Lowered, cluster: Cluster, works: Mapping[Kind, Work], rows: Index) -> Taken:
    """What the messages once a step take, in ``rows`` of plans, at the slowest machine that the groups of each stage
    run on.
    """
    request, plans = bulk.request, lowered.shapes.plans
    taken, memory = np.zeros_like(bulk.size), np.zeros_like(bulk.size)
    found: dict[Kind, Taken] = {}
    for plan in range(len(plans)):
        ranks, stride = int(request.ranks[plan, 0]), int(request.stride[plan, 0])
        for stage, kinds in enumerate(reached(plans, plan, cluster, ranks, stride)):
            for kind in kinds:
                if kind not in found:
                    found[kind] = _once(bulk, lowered, cluster, kind, works)
                taken[plan, stage] = max(taken[plan, stage], found[kind].seconds[plan, stage])
                memory[plan, stage] = max(memory[plan, stage], found[kind].memory[plan, stage])
    return Taken(taken[rows], memory[rows])


def _once(bulk: Bulk, lowered: Lowered, cluster: Cluster, kind: Kind, works: Mapping[Kind, Work]) -> Taken:
    machine = cluster.on(kind)
    spare = next(work.cover.spare for own, work in works.items() if own[0] == kind[0])
    (price,) = price_requests([bulk.request], machine)
    return bulk_taken(bulk, price, Priced(lowered, machine, (), (), ()), spare)


def _of_rows(bulk: Bulk, plan: Index) -> Bulk:
    return replace(bulk, count=bulk.count[plan], behind=bulk.behind[plan])


def _of_all(seconds: Matrix, plan: Index) -> Matrix:
    """For each row the largest of all rows of its plan: once a step, all replicas wait for each other."""
    most = np.zeros((int(plan.max()) + 1, seconds.shape[1]))
    np.maximum.at(most, plan, seconds)
    return np.asarray(most[plan])


def _offload(rows: Rows, found: Sequence[Offloading]) -> Offloading | None:
    if not found:
        return None
    return Offloading(*(rows.slowest([getattr(one, f.name) for one in found]) for f in fields(Offloading)))
