"""Stages on unlike groups of nodes: where each runs, which ranks wait for which, and layers that would balance the
stages.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from rapid_llm.errors import InputError
from rapid_llm.execution.schedules import CODES
from rapid_llm.memory import Account
from rapid_llm.nouns import replaced
from rapid_llm.predict.fitting import footprint
from rapid_llm.predict.training import TrainingTable
from rapid_llm.predict.uses import SeatsUse, StageSeat
from rapid_llm.scenario import Scenario, require

OUTER = 2
"""Units beside the layers: embedding and head, the last ones."""
WORTH = 0.99
"""Share of the step time at which other layers are worth saying."""
Caps = dict[int, int]
"""The most layers that a stage has memory for."""


def seats_use(table: TrainingTable, scenario: Scenario) -> SeatsUse:
    """Where the stages of the first plan run, and their layers if these were balanced by time."""
    step, seats = table.step, table.step.seats
    assert seats is not None
    groups = seats.cluster.system.groups
    pipeline = seats.pipelines[int(seats.critical[0])]
    layers = step.priced.lowered.layers[:-OUTER, 0].sum(axis=0).round().astype(int)
    sent = step.times.forward + step.times.backward - step.forward - step.backward
    found = []
    for stage, kinds in enumerate(pipeline.stages):
        sits = [groups[index] for index, _ in kinds]
        found.append(
            StageSeat(
                tuple(group.name for group in sits),
                tuple(dict.fromkeys(group.node.accelerator.name for group in sits)),
                int(layers[stage]),
                float(step.forward[0, stage]),
                float(step.backward[0, stage]),
                float(sent[0, stage]),
                round(float(table.account.peak[0, stage])),
                round(float(table.account.limits[0, stage])),
            )
        )
    every = seats.of_plan(0)
    used = {index for stage in pipeline.stages for index, _ in stage}
    waiting = {index for one in every for stage in one.stages for index, _ in stage} - used
    names = tuple(groups[index].name for index in sorted(waiting))
    return SeatsUse(tuple(found), int(step.stage[0]), len(every), names, *(balanced(table, scenario) or (None, None)))


def balanced(table: TrainingTable, scenario: Scenario) -> tuple[tuple[int, ...], float] | None:
    """Layers of each stage with which stages take equally long and fit, and the step time over that of the job; None
    where that is no faster, or two stages share layers.
    """
    seconds = float(table.step.total[0])
    changed = dealt_by_time(table, scenario) if table.fits[0] and _one_way(scenario) else None
    if changed is None:
        return None
    from rapid_llm.predict.engine import evaluate

    found = evaluate(changed)
    assert isinstance(found, TrainingTable)
    ratio = float(found.step.total[0]) / seconds
    return (changed.parallelism.layers_per_stage, ratio) if found.fits[0] and ratio < WORTH else None


def _one_way(scenario: Scenario) -> bool:
    """Whether layers can be dealt to each stage on its own: in schedules that run in a V or from both ends, two stages
    share them.
    """
    plan = scenario.parallelism
    schedule = next(one for one in CODES if one.name == (plan.schedule or "1f1b"))
    return plan.pp > 1 and schedule.placement == "loop"


def dealt_by_time(table: TrainingTable, scenario: Scenario) -> Scenario | None:
    """The scenario with its layers dealt so that the longest stage is as short as it can be, among those that fit."""
    each, fixed = _seconds_of(table)
    least, layers = scenario.parallelism.vpp, scenario.model.num_hidden_layers
    return _fitting(scenario, lambda caps: dealt(layers, each, fixed, caps, least=least))


def _seconds_of(table: TrainingTable) -> tuple[list[float], list[float]]:
    """For each stage, seconds of a micro-batch in a mean layer on the slowest of its machines, and in everything beside
    layers.
    """
    step, seats = table.step, table.step.seats
    assert seats is not None
    layers = step.priced.lowered.layers[:, 0]
    share = layers[:-OUTER].sum(axis=1) / layers[:-OUTER].sum()
    cost = {kind: (w.passes.forward + w.passes.backward)[:, 0] for kind, w in seats.works.items()}
    sent = (step.times.forward + step.times.backward - step.forward - step.backward)[0]
    each, fixed = [], []
    for stage in range(layers.shape[1]):
        used = {kind for one in seats.of_plan(0) for kind in one.stages[stage]}
        each.append(max(float(share @ cost[kind][:-OUTER]) for kind in used))
        outer = max(float(layers[-OUTER:, stage] @ cost[kind][-OUTER:]) for kind in used)
        fixed.append(outer + float(sent[stage]))
    return each, fixed


def dealt(
    layers: int, each: Sequence[float], fixed: Sequence[float], most: Caps, *, least: int = 1
) -> tuple[int, ...] | None:
    """Layers of each stage, at least ``least``, that minimise the longest stage: each next layer goes where the stage
    is then the shortest. ``each``: seconds of a layer there, ``fixed``: of all else (s). None where ``most`` are too
    few.
    """
    held = [least] * len(each)
    for _ in range(layers - sum(held)):
        open_to = [stage for stage in range(len(each)) if held[stage] < most.get(stage, layers)]
        if not open_to:
            return None
        next_ = min(open_to, key=lambda stage: fixed[stage] + (held[stage] + 1) * each[stage])
        held[next_] += 1
    return tuple(held) if sum(held) == layers else None


def _fitting(scenario: Scenario, deal: Callable[[Caps], tuple[int, ...] | None]) -> Scenario | None:
    """The scenario with layers dealt: stages that do not fit take fewer of them until all do."""
    most: Caps = {}
    for _ in range(scenario.model.num_hidden_layers):
        layers = deal(most)
        if layers is None:
            return None
        changed = with_layers(scenario, layers)
        try:
            account = footprint(require(changed)).account
        except InputError:
            return None
        over = _over(account)
        if not over:
            return changed
        most |= {stage: layers[stage] - 1 for stage in over}
        if min(most.values()) < scenario.parallelism.vpp:
            return None
    return None


def _over(account: Account) -> list[int]:
    return np.flatnonzero(account.need[-1] > account.limits[-1]).tolist()


def dealt_by_memory(scenario: Scenario) -> Scenario | None:
    """The scenario with as few layers moved as it takes for every stage to fit, each from the fullest stage to the one
    with most room; None where that does not do, or two stages share layers."""
    if not _one_way(scenario):
        return None
    held = footprint(scenario).lowered.layers[:-OUTER, -1].sum(axis=0).round().astype(int)
    for _ in range(scenario.model.num_hidden_layers):
        changed = with_layers(scenario, tuple(held.tolist()))
        account = footprint(require(changed)).account
        room = account.limits[-1] - account.need[-1]
        if room.min() >= 0.0:
            return changed
        held[room.argmin()] -= 1
        held[room.argmax()] += 1
        if held.min() < scenario.parallelism.vpp:
            return None
    return None


def with_layers(scenario: Scenario, held: tuple[int, ...]) -> Scenario:
    """The scenario with other layers on its stages, dealt evenly to the chunks of each, the first chunk of all stages
    before the second."""
    count = scenario.parallelism.vpp
    layers = tuple(of // count + (chunk < of % count) for chunk in range(count) for of in held)
    written = scenario.written and replaced(scenario.written, layers_per_stage=layers)
    plan = replaced(scenario.parallelism, layers_per_stage=layers)
    return replaced(scenario, parallelism=plan, written=written)
