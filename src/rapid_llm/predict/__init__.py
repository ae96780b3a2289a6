"""Scenario -> Report: the time, the memory verdict and the reason.

``rapid_llm.predict`` is this room and, called, its main function: ``rapid_llm.predict(scenario)``.
"""

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

from rapid_llm.lazy import exports

if TYPE_CHECKING:
    from rapid_llm.predict.engine import evaluate, evaluate_many, infer, predict, train
    from rapid_llm.predict.explaining import KernelLine, explain
    from rapid_llm.predict.fitting import fit, grown, grown_field, largest
    from rapid_llm.predict.job import plans_of
    from rapid_llm.predict.objective import Capacity, fewest_accelerators, largest_batch
    from rapid_llm.predict.report import Confidence, Cost, Fix, Report, Violation, WhatIf
    from rapid_llm.predict.stepping import Stepper, stepper
    from rapid_llm.predict.uses import MemoryUse
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
    "grown",
    "grown_field",
    "infer",
    "largest",
    "largest_batch",
    "plans_of",
    "predict",
    "stepper",
    "train",
]

__getattr__ = exports(__name__, "report", "uses", "fitting", "engine", "explaining", "objective", "stepping")


class _Room(ModuleType):
    """Importing a submodule binds the room over the package's function of the same name, so the room is callable."""

    def __call__(self, scenario: "Scenario", **options: Any) -> "Report":
        from rapid_llm.predict.engine import predict

        return predict(scenario, **options)


sys.modules[__name__].__class__ = _Room
