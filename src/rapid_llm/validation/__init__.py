"""Published measurements, metrics, and the scorecard that holds predictions against them."""

from rapid_llm.validation.cases import Case, split_of
from rapid_llm.validation.evaluation import Result
from rapid_llm.validation.kernels.baselines import STRUCTURAL
from rapid_llm.validation.running import published, run, suite_names
from rapid_llm.validation.scorecard import Scorecard, ScoreRow, against

__all__ = [
    "STRUCTURAL",
    "Case",
    "Result",
    "ScoreRow",
    "Scorecard",
    "against",
    "published",
    "run",
    "split_of",
    "suite_names",
]
