"""What the scorecard computes: errors as fractions, over pairs of a prediction and a measurement."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

MIN_RANKED = 3
"""A rank correlation of fewer rows than this says nothing."""


@dataclass(frozen=True, slots=True)
class Errors:
    """Mean, median and 90th percentile of |predicted/measured - 1|; ``bias`` is the mean of the signed error."""

    mape: float
    median: float
    p90: float
    bias: float


def relative(predicted: ArrayLike, measured: ArrayLike) -> NDArray[np.float64]:
    """Signed relative error predicted/measured - 1, shape (n,)."""
    ratio: NDArray[np.float64] = np.asarray(predicted, dtype=float) / np.asarray(measured, dtype=float)
    return ratio - 1.0


def errors(predicted: ArrayLike, measured: ArrayLike) -> Errors | None:
    """Error statistics of n pairs; None of no pair. Percentiles interpolate linearly."""
    signed = relative(predicted, measured)
    if not signed.size:
        return None
    size = np.abs(signed)
    return Errors(
        mape=float(size.mean()),
        median=float(np.median(size)),
        p90=float(np.quantile(size, 0.9)),
        bias=float(signed.mean()),
    )


def ranks(values: ArrayLike) -> NDArray[np.float64]:
    """Ranks from 1, ties averaged, shape (n,)."""
    _, inverse, counts = np.unique(np.asarray(values, dtype=float), return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return np.asarray((last - (counts - 1) / 2.0)[inverse], dtype=float)


def spearman(predicted: ArrayLike, measured: ArrayLike) -> float | None:
    """Spearman's rank correlation: Pearson's of the ranks; None of fewer than three rows or of constant values."""
    first, second = ranks(predicted), ranks(measured)
    if first.size < MIN_RANKED or np.ptp(first) == 0 or np.ptp(second) == 0:
        return None
    return float(np.corrcoef(first, second)[0, 1])


def rank_within(groups: Iterable[tuple[Sequence[float], Sequence[float]]]) -> float | None:
    """Mean over groups of Spearman's correlation inside each (predicted, measured); None where no group has one."""
    found = [r for r in (spearman(p, m) for p, m in groups) if r is not None]
    return float(np.mean(found)) if found else None


def regret(jobs: Iterable[tuple[Sequence[float], Sequence[float]]]) -> float | None:
    """Mean over jobs of how much longer the plan that is predicted fastest took than the fastest one, of the
    (predicted, measured) times of a job's plans; None where no job has two."""
    swept = [(predicted, measured) for predicted, measured in jobs if len(measured) > 1]
    found = [measured[int(np.argmin(predicted))] / min(measured) - 1.0 for predicted, measured in swept]
    return float(np.mean(found)) if found else None


@dataclass(frozen=True, slots=True)
class Verdict:
    """How often the verdict is right; precision and recall are of running out of memory (None: no such row)."""

    accuracy: float
    precision: float | None
    recall: float | None


def verdict(predicted_out: ArrayLike, measured_out: ArrayLike) -> Verdict | None:
    """Accuracy, precision and recall of running out of memory over n pairs of booleans; None of no pair."""
    said, was = np.asarray(predicted_out, dtype=bool), np.asarray(measured_out, dtype=bool)
    if not said.size:
        return None
    hits = float(np.sum(said & was))
    return Verdict(
        accuracy=float(np.mean(said == was)),
        precision=hits / float(said.sum()) if said.any() else None,
        recall=hits / float(was.sum()) if was.any() else None,
    )


def best_constant(predicted: ArrayLike, measured: ArrayLike) -> float:
    """The factor c that minimises mean |c predicted/measured - 1|: the median of measured/predicted by weight.

    With a = predicted/measured the sum is sum a |c - 1/a|, so c is the median of 1/a weighted by a.
    """
    a = np.asarray(predicted, dtype=float) / np.asarray(measured, dtype=float)
    order = np.argsort(1.0 / a)
    weight = np.cumsum(a[order])
    return float((1.0 / a)[order][np.searchsorted(weight, weight[-1] / 2.0)])
