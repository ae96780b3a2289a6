"""The memory of a step over its schedule, or of a batch as its cache fills, as a page: one chart per pipeline stage."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rapid_llm import charts
from rapid_llm.errors import InputError
from rapid_llm.execution.schedules import ALL_FORWARD_FIRST, SCHEDULES, filling
from rapid_llm.memory import CATEGORIES, PARTS, Walk, holdings, walk
from rapid_llm.nouns import replaced
from rapid_llm.predict.fitting import Footprint, footprint
from rapid_llm.predict.job import decoded
from rapid_llm.scenario import Scenario
from rapid_llm.units import format_bytes
from rapid_llm.workload import Inference

MOST_MOMENTS, FEWEST_MOMENTS, ALL_MOMENTS = 240, 32, 3000
"""Moments that a chart draws, and all charts of a page together."""
LENGTHS = 33
"""Lengths of the cached requests at which an inference batch is looked at."""
FLAT = ("framework", "communication", "allocator")
"""What a step does not change."""
ORDER = (*FLAT, *(name for name in CATEGORIES if name not in FLAT))
"""Bands from the bottom up."""


@dataclass(frozen=True)
class Course:
    """Bytes of one rank of a stage over time: ``held`` [T] by category, from the bottom up; ``limit``: what the process
    may use.
    """

    x_label: str
    x: Sequence[int]
    labels: Sequence[str]
    held: Mapping[str, NDArray[np.float64]]
    limit: float

    @property
    def total(self) -> NDArray[np.float64]:
        """Bytes of the process at each moment [T]."""
        return np.asarray(sum(self.held.values()))

    @property
    def peak(self) -> int:
        """The moment of the most bytes, the first of equals."""
        return int(self.total.argmax())


def courses(scenario: Scenario) -> tuple[Course, ...]:
    """The memory of every pipeline stage over time: over the tasks of a training step, or while the cache of a batch
    fills.
    """
    return _fillings(scenario, scenario.workload) if isinstance(scenario.workload, Inference) else _steps(scenario)


def _steps(scenario: Scenario) -> tuple[Course, ...]:
    found = footprint(scenario)
    account = found.account
    beside = account.by_category[[CATEGORIES.index(name) for name in FLAT], -1, :]
    return tuple(
        Course(
            "task of the stage, in order",
            range(len(one.labels)),
            one.labels,
            {
                **{name: np.full(len(one.labels), size) for name, size in zip(FLAT, beside[:, stage], strict=True)},
                **dict(zip(PARTS, one.held, strict=True)),
            },
            float(account.limits[-1, stage]),
        )
        for stage, one in enumerate(memory_walks(scenario, found))
    )


def _fillings(scenario: Scenario, work: Inference) -> tuple[Course, ...]:
    """Memory at each point from 1 to all output tokens of every request cached."""
    if not work.output_tokens:
        raise InputError(
            "workload.output_tokens is 0: memory is the same at any time. Try without the page.",
            field="workload.output_tokens",
        )
    started = decoded(scenario.model, work)[0].prompt_tokens
    steps = np.unique(np.linspace(1, work.output_tokens, min(LENGTHS, work.output_tokens)).astype(int)).tolist()
    found = [
        footprint(replaced(scenario, workload=replaced(work, output_tokens=count))).account.by_category[:, -1, :]
        for count in steps
    ]
    held = np.stack(found, axis=2)
    limits = footprint(scenario).account.limits[-1]
    return tuple(
        Course(
            "tokens cached of every request",
            [started + count for count in steps],
            [f"output token {count:,}" for count in steps],
            {name: held[CATEGORIES.index(name), stage] for name in ORDER},
            float(limits[stage]),
        )
        for stage in range(scenario.parallelism.pp)
    )


def memory_walks(scenario: Scenario, found: Footprint | None = None) -> tuple[Walk, ...]:
    """The walk of each pipeline stage of a training scenario; periods that repeat are left out."""
    plan, found = scenario.parallelism, found or footprint(scenario)
    held = holdings(found.lowered, scenario.runtime, scenario.precision)
    facts = scenario.runtime.training
    schedule = SCHEDULES[plan.schedule or "1f1b"]
    count = int(found.lowered.shapes.plans.micro_batches[0])
    count = count if schedule.name in ALL_FORWARD_FIRST else filling(schedule, plan.pp, count)
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
    """A self-contained HTML page: bytes of every stage at each moment, what makes the peak, and what there is."""
    stages = courses(scenario)
    moments = min(MOST_MOMENTS, max(FEWEST_MOMENTS, ALL_MOMENTS // len(stages)))
    sections = [("peaks", _peaks(stages))]
    sections += [(f"stage {stage + 1}", _stage(one, moments)) for stage, one in enumerate(stages)]
    of = "batch" if isinstance(scenario.workload, Inference) else "step"
    return charts.page(f"Memory of a {of}: {scenario.model.name} on {scenario.system.name}", sections)


def _peaks(stages: Sequence[Course]) -> str:
    parts = [
        charts.Part(f"stage {stage + 1}", float(one.total[one.peak]), one.labels[one.peak])
        for stage, one in enumerate(stages)
    ]
    return charts.bar_list(parts, form=format_bytes)


def _stage(one: Course, moments: int) -> str:
    at, total = one.peak, one.total
    shown = np.unique(np.append(np.linspace(0, len(total) - 1, min(len(total), moments)).astype(int), at))
    x = [one.x[k] for k in shown]
    held = {name: size for name, size in one.held.items() if size.any()}
    tops = np.cumsum(list(held.values()), axis=0)[:, shown].tolist()
    moment = [one.labels[k] for k in shown]
    bands = [
        charts.Series(name.replace("_", " "), x, top, labels=moment if top is tops[-1] else (), filled=True)
        for name, top in zip(held, tops, strict=True)
    ]
    limit = charts.Series(f"may use {format_bytes(one.limit)}", [x[0], x[-1]], [one.limit] * 2, bound=True)
    chart = charts.plot(
        [*reversed(bands), limit], x_label=one.x_label, form=format_bytes, unit=2.0**30, from_zero=False
    )
    parts = [(name.replace("_", " "), format_bytes(float(size[at]))) for name, size in held.items()]
    rows = [*parts, ("the process", format_bytes(float(total[at]))), ("may use", format_bytes(one.limit))]
    return chart + charts.table((f"peak: {one.labels[at]}", ""), rows, numeric=(1,))
