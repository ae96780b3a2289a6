"""The memory of a training step over its schedule, as a page: one chart per pipeline stage."""

from __future__ import annotations

import numpy as np

from rapid_llm import charts
from rapid_llm.errors import InputError
from rapid_llm.execution.schedules import SCHEDULES, filling
from rapid_llm.memory import PARTS, Walk, holdings, walk
from rapid_llm.predict.fitting import footprint
from rapid_llm.scenario import Scenario
from rapid_llm.units import format_bytes
from rapid_llm.workload import Training

KEEPS_ALL = ("gpipe", "breadth-first")
"""Schedules that hold every micro-batch at once: of the others, periods that repeat are left out."""
MOST_MOMENTS, FEWEST_MOMENTS, ALL_MOMENTS = 240, 32, 3000
"""Moments that a chart draws, and all charts of a page together."""


def memory_walks(scenario: Scenario) -> tuple[Walk, ...]:
    """The walk of each pipeline stage of a training scenario; periods that repeat are left out.

    InputError for another workload.
    """
    work, plan = scenario.workload, scenario.parallelism
    if not isinstance(work, Training):
        raise InputError(
            f"--memory-timeline is for training, and workload.kind is {work.kind}. Try rapid-llm train.",
            field="memory_timeline",
        )
    found = footprint(scenario)
    held = holdings(found.lowered, scenario.runtime, scenario.precision)
    facts = scenario.runtime.training
    schedule = SCHEDULES[plan.schedule or "1f1b"]
    count = int(found.lowered.shapes.plans.micro_batches[0])
    count = count if schedule.name in KEEPS_ALL else filling(schedule, plan.pp, count)
    chunks = schedule.chunks or plan.vpp
    return tuple(
        walk(
            held,
            schedule(stage, plan.pp, count, chunks),
            row=0,
            stage=stage,
            share=chunks,
            frees_gradients=bool(facts and facts.frees_gradients),
        )
        for stage in range(plan.pp)
    )


def memory_timeline(scenario: Scenario) -> str:
    """A self-contained HTML page: bytes of every stage's tensors at each moment of a step, and what makes the peak."""
    walks = memory_walks(scenario)
    moments = min(MOST_MOMENTS, max(FEWEST_MOMENTS, ALL_MOMENTS // len(walks)))
    sections = [("peaks", _peaks(walks))]
    sections += [(f"stage {stage + 1}", _stage(one, moments)) for stage, one in enumerate(walks)]
    return charts.page(f"Memory of a step: {scenario.model.name} on {scenario.system.name}", sections)


def _peaks(walks: tuple[Walk, ...]) -> str:
    parts = [
        charts.Part(f"stage {stage + 1}", float(one.total[one.peak]), one.labels[one.peak])
        for stage, one in enumerate(walks)
    ]
    return charts.bar_list(parts, form=format_bytes)


def _stage(one: Walk, moments: int) -> str:
    at, total = one.peak, one.total
    shown = np.unique(np.append(np.linspace(0, len(total) - 1, min(len(total), moments)).astype(int), at))
    labels = [one.labels[k] for k in shown]
    series = [charts.Series("all tensors", shown.tolist(), total[shown].tolist(), labels=labels)]
    series += [
        charts.Series(name, shown.tolist(), part[shown].tolist(), labels=labels)
        for name, part in zip(PARTS, one.held, strict=True)
        if part.any()
    ]
    chart = charts.plot(series, x_label="task of the stage, in order", form=format_bytes)
    parts = [(name, format_bytes(size)) for name, size in zip(PARTS, one.held[:, at].tolist(), strict=True) if size]
    rows = [*parts, ("all tensors", format_bytes(float(total[at])))]
    return chart + charts.table((f"peak: {one.labels[at]}", ""), rows, numeric=(1,))
