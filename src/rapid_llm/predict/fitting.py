"""The memory verdict alone: whether a scenario fits, what would make it fit, and the largest that does."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from math import ceil
from typing import Any

from rapid_llm.errors import InputError, unknown_name
from rapid_llm.lowering import Lowered, lower
from rapid_llm.memory import (
    CATEGORIES,
    Account,
    cache_budget,
    inference_account,
    inference_footprint,
    training_account,
    training_footprint,
)
from rapid_llm.nouns import light, replaced
from rapid_llm.predict.confidence import confidence_of
from rapid_llm.predict.feasibility import cache_use, engine_use, memory_use
from rapid_llm.predict.job import assumptions, capacities_of, decoded, plans_of, training_shapes
from rapid_llm.predict.report import Report, without_times
from rapid_llm.predict.uses import CacheUse, MemoryUse
from rapid_llm.scenario import Scenario, from_mapping, keywords, require
from rapid_llm.workload import Inference, Training

GROWING = ("micro-batch", "requests", "sequence", "layers")
"""What ``largest`` grows."""
MOST = 2**40
"""Where the search for the largest ends: beyond it memory does not depend on what grows."""


def fit(scenario: Scenario | str, **flags: Any) -> Report:
    """The memory verdict alone: as ``predict`` without times, and without timing a scenario that fits. Takes a
    scenario, or a model with keywords named as flags of the command line (``accelerator=..., tp=..., batch_size=...``).
    """
    if isinstance(scenario, str):
        kind = flags.pop("kind", None) or keywords.kind_of(flags)
        scenario = from_mapping(keywords.job(kind, scenario, flags, memory_alone=True))
    require(scenario)
    if scenario.pools is not None:
        from rapid_llm.predict.engine import predict  # what both pools hold follows from what they run

        return without_times(predict(scenario, allow_infeasible=True))
    use = memory_of(scenario)
    report = Report(
        kind=scenario.workload.kind,
        feasible=use.fits,
        memory=use,
        confidence=confidence_of(scenario, memory=True),
        defaults=scenario.defaults,
        assumptions=assumptions(scenario),
        origin=scenario,
    )
    if report.feasible:
        return report
    from rapid_llm.predict.engine import violation  # times the fixes: what fits does not wait for it

    return replace(report, violations=(violation(scenario, use),))


@light
class Footprint:
    """The bytes of a scenario: its lowered pass without kernels, and the account of its stages."""

    lowered: Lowered
    account: Account

    @property
    def fits(self) -> bool:
        """Whether every rank stays within what it may use."""
        return bool(self.account.fits[-1])


def footprint(scenario: Scenario) -> Footprint:
    """Account for a scenario's memory without timing it."""
    work, plans = scenario.workload, plans_of(scenario)
    model, runtime, precision = scenario.model, scenario.runtime, scenario.precision
    accelerator = scenario.system.groups[0].node.accelerator
    if isinstance(work, Training):
        if not work.plain:
            lowered = lower(model, training_shapes(plans, work, precision, runtime), runtime, bytes_only=True)
        else:
            lowered = training_footprint(model, runtime, precision, plans, sequence_length=work.sequence_length)
        capacities = capacities_of(scenario, plans, lowered.layers.shape[2])
        return Footprint(lowered, training_account(lowered, runtime, precision, accelerator, capacities))
    own, source = decoded(model, work)
    prompt, cached = own.prompt_tokens, own.prompt_tokens + own.output_tokens * own.beams
    step = inference_footprint(
        model, runtime, precision, plans, cached=cached, prompt=prompt, source=source, routing=work.routing
    )
    predicts = own.speculation is not None and own.speculation.draft == "mtp"
    if scenario.draft is None and not plans.shift and not predicts:
        return Footprint(step.unit, inference_account(step, runtime, precision, accelerator, work.offload))
    from rapid_llm.predict.replica import job_of  # what stands alone does not wait for it

    return Footprint(step.unit, job_of(scenario).account(work.requests // (scenario.parallelism.dp or 1), 1.0))


def memory_of(scenario: Scenario) -> MemoryUse:
    """Bytes on the fullest rank, the verdict, and for an engine what its cache holds."""
    found = footprint(scenario)
    plan, work = scenario.parallelism, scenario.workload
    if not isinstance(work, Inference):
        return memory_use(found.account, -1, plan.tp * plan.cp * (plan.dp or 1))
    return engine_use(found.account, plan, work, cache_of(scenario, found))


def by_stage(scenario: Scenario) -> Iterator[tuple[int, str, int]]:
    """Stage, category and bytes at the peak, of one rank of every pipeline stage."""
    held = footprint(scenario).account.by_category[:, -1, :]
    for stage in range(held.shape[1]):
        yield from ((stage, name, round(size)) for name, size in zip(CATEGORIES, held[:, stage].tolist(), strict=True))


def cache_of(scenario: Scenario, found: Footprint) -> CacheUse | None:
    """What the cache of one replica holds, in blocks and in requests of the workload's length; None where a model keeps
    nothing between passes."""
    work = scenario.workload
    if not scenario.model.writes:
        return None
    work = decoded(scenario.model, work)[0] if isinstance(work, Inference) else work
    length = work.prompt_tokens + work.output_tokens if isinstance(work, Inference) else work.sequence_length
    share = scenario.parallelism.kvp / scenario.parallelism.cp
    if isinstance(work, Inference):
        away = work.offload.away(with_layers=scenario.runtime.runs_layers_on_host)
        length, share = length + (work.beams - 1) * work.output_tokens, share * (1.0 - away)
    held = cache_budget(found.lowered, scenario.model, scenario.runtime, found.account, length=length, share=share)
    return cache_use(held)


def largest(scenario: Scenario, what: str) -> int | None:
    """The largest micro-batch (sequences), number of requests in the job, sequence (tokens) or layers that fits.

    None where memory does not grow with it. ``micro-batch`` keeps the number of micro-batches; ``sequence`` is the
    training sequence, or the prompt of an inference batch, in the steps that the plan can cut; ``layers`` in whole
    pipeline stages and block patterns. 0 where not even the smallest fits. InputError where the workload has no such
    size.
    """
    step, make = _growth(scenario, what)
    count = _last(lambda n: footprint(make(n * step)).fits)
    return None if count is None else count * step


_SMALLEST = "workload.micro_batch_size: "
"""The default that the size found replaces."""


def grown(scenario: Scenario, what: str, size: int | None = None) -> Scenario:
    """The scenario with one of the sizes of ``largest`` set to ``size``, or to the smallest that its plan can cut."""
    step, make = _growth(scenario, what)
    found = make(size or step)
    given = tuple(one for one in found.defaults if not (what == "micro-batch" and _SMALLEST in one))
    return replaced(found, defaults=given)


def grown_field(kind: str, what: str) -> str:
    """The workload field that ``largest`` determines, where a job needs it; else empty. InputError
    for an unknown size.
    """
    if what:
        _known(kind, what)
    return _FOUND[kind].get(what, "")


def _known(kind: str, what: str) -> None:
    if what not in GROWING:
        raise InputError(unknown_name("--max", what, _possible(kind)), field="max", suggestions=_possible(kind))
    if what not in _possible(kind):
        raise InputError(
            f"--max {what} does not go with workload.kind {kind}. Try {', '.join(_possible(kind))}.",
            field="max",
            suggestions=_possible(kind),
        )


_FOUND = {
    "training": {"sequence": "sequence_length"},
    "inference": {"sequence": "prompt_tokens", "requests": "batch_size"},
}


def _growth(scenario: Scenario, what: str) -> tuple[int, Callable[[int], Scenario]]:
    """The step in which a size grows, and a function from a size to its scenario."""
    work, plan = scenario.workload, scenario.parallelism
    _known(work.kind, what)
    if what == "layers":
        step = plan.pp * plan.vpp
        return step, partial(_layers, scenario)
    if what == "micro-batch" and isinstance(work, Training):
        count = work.global_batch_size // work.micro_batch_size
        return 1, lambda n: with_work(scenario, micro_batch_size=n, global_batch_size=n * count)
    if what == "requests":
        return plan.dp or 1, lambda n: with_work(scenario, batch_size=n)
    if what == "sequence" and isinstance(work, Training):
        return (2 if plan.cp > 1 else 1) * plan.cp * plan.tp, lambda n: with_work(scenario, sequence_length=n)
    return 1, lambda n: with_work(scenario, prompt_tokens=n)


def _possible(kind: str) -> list[str]:
    own = "micro-batch" if kind == "training" else "requests"
    return [own, "sequence", "layers"]


def with_work(scenario: Scenario, **changes: Any) -> Scenario:
    """The scenario with fields of its workload changed."""
    return replaced(scenario, workload=replaced(scenario.workload, **changes))


def _layers(scenario: Scenario, count: int) -> Scenario:
    """The model with ``count`` layers: its pattern of blocks cut or repeated."""
    model = scenario.model
    pattern = model.pattern * ceil(count / len(model.pattern))
    plan = replaced(scenario.parallelism, layers_per_stage=())  # what was dealt by hand is of another depth
    return replaced(scenario, model=replaced(model, num_hidden_layers=count, pattern=pattern[:count]), parallelism=plan)


def _last(holds: Callable[[int], bool]) -> int | None:
    """The largest n that holds, by doubling and bisection; if n holds, so must all below. None if there is no end."""
    if not holds(1):
        return 0
    low, high = 1, 2
    while holds(high):
        low, high = high, high * 2
        if high > MOST:
            return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low
