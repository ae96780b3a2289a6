"""Scenario -> Report: the time, the memory verdict and the reason.

``rapid_llm.predict`` is this room and, called, its main function: ``rapid_llm.predict(scenario)``.
"""

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

from rapid_llm.predict.engine import evaluate, evaluate_many, fit, infer, plans_of, predict, train
from rapid_llm.predict.explain import KernelLine, explain
from rapid_llm.predict.fitting import largest
from rapid_llm.predict.objective import Capacity, fewest_accelerators, largest_batch
from rapid_llm.predict.report import Confidence, Cost, Fix, MemoryUse, Report, Violation, WhatIf
from rapid_llm.predict.stepping import Stepper, stepper

if TYPE_CHECKING:
    from rapid_llm.scenario import Scenario

__all__ = [
    "Capacity",
    "Confidence",
    "Cost",
    "Fix",
    "KernelLine",
    "MemoryUse",
    "Report",
    "Stepper",
    "Violation",
    "WhatIf",
    "evaluate",
    "evaluate_many",
    "explain",
    "fewest_accelerators",
    "fit",
    "infer",
    "largest",
    "largest_batch",
    "plans_of",
    "predict",
    "stepper",
    "train",
]


class _Room(ModuleType):
    """Importing a submodule binds the room over the package's function of the same name, so the room is callable."""

    def __call__(self, scenario: "Scenario", **options: Any) -> Report:
        return predict(scenario, **options)


sys.modules[__name__].__class__ = _Room
