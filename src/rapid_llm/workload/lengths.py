"""Lengths that vary: what their spread does to means over requests, and which of a batch is the longest.

``spread`` is the standard deviation over the mean. Mean squares need no more; where the shape matters, lengths are
lognormal, as the bodies of served lengths are (BurstGPT, arXiv 2401.17644; ServeGen, arXiv 2505.09999).
"""

from __future__ import annotations

from functools import lru_cache
from math import erfc, exp, log1p, sqrt
from statistics import NormalDist, fmean

import numpy as np
from numpy.typing import NDArray

Column = NDArray[np.float64]

_QUANTILES = 256
"""Midpoints over which the expected maximum is averaged."""
_PLACES = 8
"""Places within a group of steps at which requests that are left are counted."""
_LEAST = 1e-9


def by_token(mean: float, spread: float) -> float:
    """Mean length of the request that a token is of: mean square over mean."""
    return mean * (1.0 + spread**2)


def written(mean: float, spread: float) -> tuple[float, float]:
    """Tokens that a running request has written, mean and standard deviation: any moment of its output is as likely.

    E[L^2] / 2 E[L] and, of lognormal lengths, E[L^3] / 3 E[L] for the mean square.
    """
    more = 1.0 + spread**2
    return mean * more / 2.0, mean * more * sqrt(more / 3.0 - 0.25)


@lru_cache(maxsize=256)
def longest(mean: int, spread: float, requests: int) -> int:
    """Expected length of the longest of so many requests."""
    if not spread or requests < 2 or mean < 2:
        return mean
    sigma = _sigma(spread)
    chances = (((i + 0.5) / _QUANTILES) ** (1.0 / requests) for i in range(_QUANTILES))
    return round(mean * fmean(exp(sigma * (NormalDist().inv_cdf(u) - sigma / 2.0)) for u in chances))


def running(first: Column, count: Column, mean: float, spread: float) -> Column:
    """Share of requests that are not done in steps from each ``first`` on, over so many of them, on average [N]."""
    sigma = _sigma(spread)
    among = np.maximum(first[:, None] + count[:, None] * (np.arange(_PLACES) + 0.5) / _PLACES, 1.0)
    scaled = (np.log(among / mean) / sigma + sigma / 2.0) / sqrt(2.0)
    return np.array([fmean(0.5 * erfc(x) for x in row) for row in scaled.tolist()])


def _sigma(spread: float) -> float:
    """Standard deviation of the logarithm."""
    return max(sqrt(log1p(spread**2)), _LEAST)
