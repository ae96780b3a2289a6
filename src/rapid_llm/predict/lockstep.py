"""Replicas that share experts step together: the exchange of tokens joins them, so that each waits for the fullest.

A prompt that one of them reads delays the next token of all. Of d replicas that each hold prompts in a share p of
their steps, some one does in 1 - (1 - p)^d of all steps, and d p / (1 - (1 - p)^d) of them at once on average.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from rapid_llm.workload import Points


@dataclass(frozen=True, slots=True)
class Lockstep:
    """Steps of so many replicas: those that hold prompts of any, for each that holds one's own, and how many replicas
    read prompts in such a step."""

    replicas: float
    spread: float = 1.0
    at_once: float = 1.0

    def together(self, points: Points, *, padded: bool) -> Points:
        """A replica's passes with prompts, decode steps and what follows, as it sees them among the others.

        Experts see the tokens of all ranks, of which some only decode; or all run as many tokens as the fullest.
        """
        if self.spread == 1.0:
            return points
        evenness = np.ones(len(points.batch))
        if not padded:
            full, decoded = (points.batch * points.new)[:2]
            evenness[0] = (self.at_once + (self.replicas - self.at_once) * decoded / full) / self.replicas
        count = points.count.copy()
        count[0] *= self.spread
        return replace(points, count=count, evenness=evenness)


def lockstep(replicas: float, passes: float, steps: float) -> Lockstep:
    """Of ``replicas`` that are joined, each with prompts in ``passes`` of its ``steps``, by chance."""
    if replicas <= 1.0 or passes >= steps:
        return Lockstep(replicas)
    own = passes / steps
    some = 1.0 - (1.0 - own) ** replicas
    return Lockstep(replicas, some / own, replicas * own / some)
