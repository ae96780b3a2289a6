"""Which layers stand on which pipeline stage."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from rapid_llm.model.architecture import Model
from rapid_llm.parallelism import Plans

Counts = NDArray[np.float64]


@lru_cache(maxsize=64)
def _prefix(pattern: tuple[int, ...], kinds: int) -> NDArray[np.float64]:
    """How many layers of each kind stand before each layer boundary [kinds, layers + 1]."""
    marks = np.zeros((kinds, len(pattern) + 1))
    marks[np.array(pattern), np.arange(1, len(pattern) + 1)] = 1.0
    return marks.cumsum(axis=1)


def layers_per_stage(model: Model, plans: Plans) -> Counts:
    """Layers of each block kind on each stage [kinds, P, stages]; stages beyond a plan's pp hold none.

    Layers are dealt in order; where pp does not divide them the later stages hold one more, as the first also embeds.
    """
    prefix = _prefix(model.pattern, len(model.blocks))
    stages = int(plans.pp.max())
    edge = np.minimum(np.arange(stages + 1)[None, :], plans.pp[:, None])
    bounds = np.floor(edge * model.num_hidden_layers / plans.pp[:, None] + 1e-9).astype(np.int64)
    return np.diff(prefix[:, bounds], axis=2)
