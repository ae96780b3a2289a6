"""Published measurements, metrics, and the scorecard that holds predictions against them."""

from rapid_llm.validation.cases import Case, split_of
from rapid_llm.validation.evaluation import Result
from rapid_llm.validation.running import published, run, suite_names
from rapid_llm.validation.scorecard import Scorecard, ScoreRow

__all__ = ["Case", "Result", "ScoreRow", "Scorecard", "published", "run", "split_of", "suite_names"]
