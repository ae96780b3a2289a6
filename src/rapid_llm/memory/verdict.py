"""Whether it fits, and how surely: the spread of predicted against measured memory."""

from __future__ import annotations

from functools import lru_cache
from importlib import resources
from math import erfc, log, sqrt

from rapid_llm.documents import parse_yaml

SURE = 0.9
"""Probability from which a plan that fits does so with room to spare."""


_FIELD = {"training": "spread", "inference": "engines"}


@lru_cache(maxsize=2)
def spread(kind: str = "training") -> float:
    """Standard deviation of ln(measured / predicted) of reserved memory on measured training runs, or of engines."""
    file = resources.files("rapid_llm.memory").joinpath("data", "verdict.yaml")
    return float(parse_yaml(file.read_text("utf-8"), "verdict.yaml").data[_FIELD[kind]]["value"])


def fit_probability(need: float, limit: float, kind: str = "training") -> float:
    """Probability that a rank predicted to need ``need`` bytes stays within ``limit``.

    Memory is log-normal about its prediction: Phi(ln(limit / need) / spread).
    """
    if need <= 0.0:
        return 1.0
    return 0.0 if limit <= 0.0 else 0.5 * erfc(-log(limit / need) / (spread(kind) * sqrt(2.0)))


def verdict(need: float, limit: float, kind: str = "training") -> str:
    """``fits``, ``fits narrowly`` or ``does not fit``."""
    if need > limit:
        return "does not fit"
    return "fits" if fit_probability(need, limit, kind) >= SURE else "fits narrowly"
