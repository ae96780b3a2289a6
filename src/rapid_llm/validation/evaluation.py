"""Predicting cases: each scenario once, whatever asks for it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rapid_llm.errors import RapidError
from rapid_llm.validation.cases import Case

if TYPE_CHECKING:
    from rapid_llm.predict.report import Report

Predictor = Callable[[Mapping[str, Any]], "Report"]
Progress = Callable[[int, int], None]
"""Called with how many scenarios are done, and how many there are."""


@dataclass(frozen=True, slots=True)
class Result:
    """A case and what came of it: a prediction in the unit of its measurement, or the reason why there is none."""

    case: Case
    predicted: float | None
    reason: str = ""

    @property
    def error(self) -> float | None:
        """Signed relative error; None without a prediction, and for verdicts."""
        if self.predicted is None or not self.case.measured:
            return None
        return self.predicted / self.case.measured - 1.0


def _first(figure: str) -> Callable[[Report], float | None]:
    """A figure of the first pipeline stage, where rank 0 logs."""
    return lambda report: float(getattr(report.memory.stages[0], figure)) if report.memory.stages else None


READINGS: Mapping[str, Callable[[Report], float | None]] = {
    "step_time": lambda report: report.step_time_s,
    "ttft": lambda report: report.ttft_s,
    "tpot": lambda report: report.tpot_s,
    "e2e": lambda report: report.e2e_s,
    "output_rate": lambda report: report.output_tokens_per_s,
    "total_rate": lambda report: report.total_tokens_per_s,
    "power_each": lambda report: report.energy.mean_power_w_per_accelerator if report.energy else None,
    "joules_per_token": lambda report: report.energy.joules_per_output_token if report.energy else None,
    "persistent": lambda report: float(report.memory.persistent_bytes),
    "allocated": lambda report: float(report.memory.allocated_bytes),
    "reserved": lambda report: float(report.memory.reserved_bytes),
    "first_persistent": _first("persistent_bytes"),
    "first_reserved": _first("reserved_bytes"),
    "process": lambda report: float(report.memory.peak_bytes),
    "cache_room": lambda report: float(report.memory.cache.room_bytes) if report.memory.cache else None,
    "out_of_memory": lambda report: float(any(v.kind == "memory" for v in report.violations)),
}
"""What a case's ``quantity`` reads from a report."""


def predictor() -> Predictor:
    """The product's own: load the scenario, predict it, times of infeasible ones included."""
    from rapid_llm.predict import predict
    from rapid_llm.scenario import from_mapping

    return lambda scenario: predict(from_mapping(scenario), allow_infeasible=True)


def _outcome(scenario: Mapping[str, Any], predict: Predictor) -> Report | str:
    """A report, or why there is none. A fault of ours is a reason as well: it must show, and not end the run."""
    try:
        return predict(scenario)
    except RapidError as error:
        return error.message
    except Exception as error:
        return f"fault: {type(error).__name__}: {error}"


def evaluate(cases: Sequence[Case], predict: Predictor, progress: Progress | None = None) -> tuple[Result, ...]:
    """Predict all cases, in their order; equal scenarios once."""
    keys = [json.dumps(case.scenario, sort_keys=True) if case.scenario else "" for case in cases]
    distinct = {key: case.scenario for key, case in zip(keys, cases, strict=True) if case.scenario}
    outcomes: dict[str, Report | str] = {}
    for done, (key, scenario) in enumerate(distinct.items()):
        if progress:
            progress(done, len(distinct))
        outcomes[key] = _outcome(scenario, predict)
    if progress:
        progress(len(distinct), len(distinct))
    return tuple(_result(case, outcomes.get(key, case.reason)) for case, key in zip(cases, keys, strict=True))


def _answered(answer: Callable[[], float]) -> float | str:
    """The figure of a case that asks for no scenario, or why there is none."""
    try:
        return answer()
    except RapidError as error:
        return error.message
    except Exception as error:
        return f"fault: {type(error).__name__}: {error}"


def _result(case: Case, outcome: Report | str) -> Result:
    if case.answer is not None:
        figure = _answered(case.answer)
        return Result(case, None, figure) if isinstance(figure, str) else Result(case, figure)
    if isinstance(outcome, str):
        return Result(case, None, outcome)
    predicted = READINGS[case.quantity](outcome)
    return Result(case, predicted, "" if predicted is not None else "the prediction has no such figure")
