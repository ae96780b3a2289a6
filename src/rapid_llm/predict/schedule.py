"""The schedule of a training step, stage by stage: when each task runs, who waits, and what follows the last one."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rapid_llm.errors import InputError
from rapid_llm.execution import TrainingStep
from rapid_llm.execution.schedules import ALL_FORWARD_FIRST, CODES, FORWARD, SCHEDULES, Schedule, filling
from rapid_llm.execution.timeline import Program, pairs, period, play, program, table_of
from rapid_llm.predict.engine import evaluate
from rapid_llm.predict.training import TrainingTable
from rapid_llm.scenario import Scenario

Seconds = NDArray[np.float64]
MOST_FORWARDS = 16
"""Micro-batches drawn of a schedule that runs all forward passes first, a round of stages where that is more."""


@dataclass(frozen=True, slots=True)
class Box:
    """One task of a stage (s): direction as in ``execution.schedules``; micro-batch and chunk count from 0.

    ``beside``: micro-batch and chunk of the backward pass that runs beside this forward pass.
    """

    start: float
    end: float
    direction: str
    micro_batch: int
    chunk: int
    beside: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class StageLine:
    """What a stage does in a step (s): its tasks, what follows them as (name, start, end), how long it works and waits
    until the last stage is done."""

    boxes: tuple[Box, ...]
    tail: tuple[tuple[str, float, float], ...]
    busy: float
    idle: float


@dataclass(frozen=True, slots=True)
class Timeline:
    """A step of one pipeline. Once the schedule repeats, only its first and last periods are listed. warm_up_end: when
    the last stage to do so starts a backward pass; drain_start: when the first stage has no forward pass left;
    left_out: the span that is not listed, and its micro-batches; places: what each stage runs on, where accelerators
    differ.
    """

    schedule: str
    micro_batches: int
    stages: tuple[StageLine, ...]
    warm_up_end: float
    drain_start: float
    left_out: tuple[float, float, int]
    pipeline_s: float
    step_s: float
    places: tuple[str, ...] = ()

    @property
    def bubble(self) -> float:
        """Share of the pipeline's time that its stages wait, in the mean."""
        return sum(line.idle for line in self.stages) / (len(self.stages) * self.pipeline_s)


def timeline(scenario: Scenario) -> Timeline:
    """When each task of a training step runs; InputError for another workload."""
    table = evaluate(scenario)
    if not isinstance(table, TrainingTable):
        raise InputError(
            f"--timeline is for training, and workload.kind is {scenario.workload.kind}. Try rapid-llm train.",
            field="timeline",
        )
    return timeline_of(table.step)


def timeline_of(step: TrainingStep) -> Timeline:
    """The timeline of the first plan of a table."""
    plans = step.priced.lowered.shapes.plans
    stages, m = int(plans.pp[0]), int(plans.micro_batches[0])
    schedule = CODES[int(plans.schedule[0])] if stages > 1 else SCHEDULES["1f1b"]
    chunks = schedule.chunks or int(plans.vpp[0])
    times = step.times.take(np.array([0]), stages)
    everything = schedule.name in ALL_FORWARD_FIRST
    short = min(m, max(MOST_FORWARDS, stages)) if everything else filling(schedule, stages, m)
    plan = program(schedule.name, stages, short, chunks)
    start, end = (column[:, 0] for column in play(plan, *table_of(schedule, times, chunks), times.delay))
    played = _Played(schedule, plan, start, end)
    pipeline = float(step.pipeline[0])
    each = 0.0 if everything else float(period(schedule, times)[0])
    more = pipeline - float(end.max()) if everything else each * (m - short)
    fold = _fold(played, each, (m - short, more))
    work = (times.forward + times.backward)[0] * m / schedule.copies
    saved = [times.hidden[0, s] * pairs(schedule.name, stages, m, s) / chunks for s in range(stages)]
    lines = []
    for stage in range(stages):
        boxes = _boxes(played, stage, fold)
        busy = float(work[stage] - saved[stage])
        done = max(pipeline, boxes[-1].end) if schedule.end == "flush" else boxes[-1].end
        lines.append(StageLine(boxes, _tail(step, stage, done), busy, max(0.0, pipeline - busy)))
    return Timeline(
        schedule=schedule.name,
        micro_batches=m,
        stages=tuple(lines),
        warm_up_end=fold.warm,
        drain_start=fold.drain + more,
        left_out=(fold.cut, fold.resume + more, fold.dropped + m - short),
        pipeline_s=pipeline,
        step_s=float(step.total[0]),
        places=_places(step),
    )


def _places(step: TrainingStep) -> tuple[str, ...]:
    """The groups of nodes that each stage of the pipeline sits on."""
    if step.seats is None:
        return ()
    groups = step.seats.cluster.system.groups
    stages = step.seats.pipelines[int(step.seats.critical[0])].stages
    return tuple(" and ".join(groups[index].name for index, _ in kinds) for kinds in stages)


@dataclass(frozen=True, slots=True)
class _Played:
    """A program and the times at which its nodes start and end (s) [N]."""

    schedule: Schedule
    plan: Program
    start: Seconds
    end: Seconds


@dataclass(frozen=True, slots=True)
class _Fold:
    """Tasks between ``cut`` and ``resume`` are left out; those after them are ``more`` micro-
    batches and seconds later.
    """

    warm: float
    drain: float
    cut: float
    resume: float
    dropped: int
    more: tuple[int, float]


def _fold(played: _Played, each: float, more: tuple[int, float]) -> _Fold:
    """Leave out whole periods between the first and the last of the steady state, in which a micro-batch takes ``each``
    seconds; 0: all forward passes come first, and nothing repeats across their turn.
    """
    stages = len(played.plan.first)
    turn, last = np.full(stages, np.inf), np.zeros(stages)
    for (stage, task, beside), start, end in zip(played.plan.nodes, played.start, played.end, strict=True):
        if task[0] != FORWARD or beside:
            turn[stage] = min(turn[stage], start)
        if task[0] == FORWARD:
            last[stage] = max(last[stage], end)
    if not each:
        at = float(turn.min())
        return _Fold(at, at, at, at, 0, more)
    warm, drain = float(turn.max()), float(max(last.min(), turn.max()))
    count = played.schedule.repeats(stages)
    left = max(0, int((drain - warm) / (count * each)) - 1)
    cut = warm + count * each if left else drain
    return _Fold(warm, drain, cut, cut + left * count * each, left * count, more)


def _boxes(played: _Played, stage: int, fold: _Fold) -> tuple[Box, ...]:
    """The tasks of a stage that are listed, in order; micro-batches of the other way count on from the first way's."""
    found = []
    later = fold.more[0] // played.schedule.copies
    both = played.schedule.placement == "both"
    for (s, (direction, micro, chunk), beside), start, end in zip(
        played.plan.nodes, played.start.tolist(), played.end.tolist(), strict=True
    ):
        if s != stage or (fold.cut <= start and end <= fold.resume and fold.dropped):
            continue
        late = start >= fold.cut
        shift = fold.more[1] if late else 0.0
        pair = (beside[1] + later * (late + both * beside[2]), beside[2]) if beside else None
        ahead = later * (late + both * chunk)
        found.append(Box(start + shift, end + shift, direction, micro + ahead, chunk, pair))
    return tuple(found)


def _tail(step: TrainingStep, stage: int, at: float) -> tuple[tuple[str, float, float], ...]:
    """What a stage does after its last task: messages that nothing hides, and the optimizer."""
    parts = [
        (f"{message.axis} {'weights' if message.gather else 'gradients'}", float(message.exposed[0, stage]))
        for message in step.messages
    ]
    parts.append(("optimizer", float(step.optimizer[0, stage])))
    found = []
    for name, seconds in parts:
        if seconds > 0:
            found.append((name, at, at + seconds))
            at += seconds
    return tuple(found)
