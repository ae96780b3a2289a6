"""Replicas that share experts step together: the exchange of tokens makes each wait for the fullest.

A prompt that one of them reads delays the next token of all. If each of d replicas holds prompts in a share p of its
steps, at least one does in 1 - (1 - p)^d of all steps, and d p / (1 - (1 - p)^d) of them at once on average.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from rapid_llm.workload import Points


@dataclass(frozen=True, slots=True)
class Lockstep:
    """How replicas step together: steps in which any replica holds prompts, for each step in which one's own does, and
    how many replicas read prompts in such a step.
    """

    replicas: float
    spread: float = 1.0
    at_once: float = 1.0

    def together(self, points: Points, *, padded: bool) -> Points:
        """A replica's passes with prompts, its decode steps and what follows them, as they are beside those of the
        others. Experts see the tokens of all ranks, some of which only decode; where the engine pads, all ranks run as
        many tokens as the fullest.
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
    """The steps of ``replicas`` that step together, each of which holds prompts in ``passes`` of its ``steps``, at
    random.
    """
    if replicas <= 1.0 or passes >= steps:
        return Lockstep(replicas)
    own = passes / steps
    some = 1.0 - (1.0 - own) ** replicas
    return Lockstep(replicas, some / own, replicas * own / some)
