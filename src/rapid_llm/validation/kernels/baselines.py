"""What simpler models say of a set of kernel rows: three constants a set, and published errors of structural fits."""

from functools import lru_cache
from importlib import resources
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from rapid_llm.documents import parse_yaml

_FITS: Final = "structural_fits.yaml"
_ROWS: Final = 1500  # more rows move no constant
_ROUNDS: Final = 3  # of a grid that narrows around its best point
_POINTS: Final = 9  # a side of it

STRUCTURAL: Final = "structural fit"
"""Name of the baseline that ``published`` gives."""


@lru_cache(maxsize=1)
def _published() -> dict[str, Any]:
    text = resources.files("rapid_llm.validation").joinpath("data", _FITS).read_text("utf-8")
    return parse_yaml(text, _FITS).data


def published(suite: str, metric: str, group: str) -> float | None:
    """Mean error of a published structural fit to the very rows of a group; None where the study has none."""
    known, name = _published(), f"{suite} {metric}"
    found = known["sets"].get(name, {}).get(group)
    if found is None and (between := known["ranges"].get(name, {}).get(group.split("/", maxsplit=1)[0])):
        found = sum(between) / 2.0
    return None if found is None else float(found)


def three_constants(
    flops: NDArray[np.float64], moved: NDArray[np.float64], seconds: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Predictions of t = t0 + max(F / a, B / b), its constants chosen on these very rows by a grid on log error."""
    pick = np.linspace(0, len(seconds) - 1, min(_ROWS, len(seconds))).round().astype(int)
    f, b, target = flops[pick], moved[pick], np.log(seconds[pick])
    shortest = float(seconds.min())
    centre = np.log([shortest, np.max(f / seconds[pick]), np.max(b / seconds[pick])])
    width = np.array([1.5, 2.0, 2.0])
    for _ in range(_ROUNDS):
        axes = [middle + np.linspace(-side, side, _POINTS) for middle, side in zip(centre, width, strict=True)]
        grid = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, 3)
        errors = [np.abs(np.log(_line(f, b, point)) - target).mean() for point in grid]
        centre, width = grid[int(np.argmin(errors))], width / 3.0
    return _line(flops, moved, centre)


def _line(flops: NDArray[np.float64], moved: NDArray[np.float64], point: NDArray[np.float64]) -> NDArray[np.float64]:
    start, rate, bandwidth = np.exp(point)
    return np.asarray(start + np.maximum(flops / rate, moved / bandwidth))
