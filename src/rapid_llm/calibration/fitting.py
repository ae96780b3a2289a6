"""Robust fits: positive parameters in bounds, least log error with few outliers in charge, weak priors."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from rapid_llm.errors import InputError

Vector = NDArray[np.float64]

LOSS_SCALE: Final = 0.1
"""Errors beyond 10 % count linearly."""
_PRIOR_ROWS: Final = 3.0  # a factor e away from its prior costs a parameter as much as this many rows off by 10 %
_PRIOR_SHARE: Final = 0.01  # or as this share of all rows: where they leave two parameters to trade, neither runs away
_NEAR_ZERO: Final = 0.02  # of the prior: below it a smaller value is not better
_POLISH: Final = 400  # evaluations of the simplex that follows: tiles and waves leave no smooth way down
_CAPPED: Final = 0.3  # errors beyond this pull no harder


@dataclass(frozen=True, slots=True)
class Bound:
    """Least, usual and largest value of a parameter (SI)."""

    low: float
    prior: float
    high: float


def optimizer() -> Any:
    """scipy.optimize; InputError in one sentence where the extra is not installed."""
    try:
        from scipy import optimize
    except ImportError as error:
        raise InputError("calibration needs scipy, which is not installed: pip install 'rapid-llm[fit]'.") from error
    return optimize


def fit(
    log_time: Callable[[Vector], Vector], target: Vector, start: Mapping[str, float], bounds: Mapping[str, Bound]
) -> dict[str, float]:
    """Parameters that bring ``log_time(values)`` (n,) close to ``target`` (n,), values in the order of ``bounds``.

    Soft-L1 least squares from ``start`` (Levenberg-Marquardt in bounds), then Nelder-Mead on the mean absolute log
    error: the first crosses the landscape, the second settles among its steps.
    """
    optimize = optimizer()
    low, prior, high = (np.array([getattr(b, side) for b in bounds.values()]) for side in ("low", "prior", "high"))
    lower, upper = low / prior, high / prior
    weight = np.sqrt(max(_PRIOR_ROWS, _PRIOR_SHARE * len(target))) * LOSS_SCALE

    def residual(scaled: Vector) -> Vector:
        pull = np.log((scaled + _NEAR_ZERO) / (1.0 + _NEAR_ZERO))
        return np.concatenate([log_time(scaled * prior) - target, weight * pull])

    def robust(scaled: Vector) -> float:
        found = residual(np.clip(scaled, lower, upper))
        size, pull = np.abs(found[: len(target)]), found[len(target) :]
        return float(size.mean() + _CAPPED * np.minimum(size, _CAPPED).mean() + pull @ pull / len(target))

    first = np.clip([start[name] for name in bounds] / prior, lower + 1e-3, upper - 1e-3)
    crossed = optimize.least_squares(
        residual, first, bounds=(lower, upper), loss="soft_l1", f_scale=LOSS_SCALE, diff_step=2e-3, max_nfev=40
    ).x
    corners = np.vstack([crossed, crossed + np.diag(np.maximum(0.15 * crossed, 0.05))])
    options = {"maxfev": _POLISH, "adaptive": True, "initial_simplex": np.clip(corners, lower, upper)}
    settled = optimize.minimize(robust, crossed, method="Nelder-Mead", options=options).x
    best = np.clip(settled, lower, upper) * prior
    return dict(zip(bounds, map(float, best), strict=True))
