"""Scenario -> Report: the time, the memory verdict and the reason."""

from rapid_llm.predict.engine import evaluate, evaluate_many, fit, infer, plans_of, predict, train
from rapid_llm.predict.report import Confidence, Cost, Fix, MemoryUse, Report, Violation, WhatIf

__all__ = [
    "Confidence",
    "Cost",
    "Fix",
    "MemoryUse",
    "Report",
    "Violation",
    "WhatIf",
    "evaluate",
    "evaluate_many",
    "fit",
    "infer",
    "plans_of",
    "predict",
    "train",
]
