"""What a schedule is: an order of tasks per stage, where its chunks stand along the model, and how a step ends."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

FORWARD, BACKWARD, INPUT, WEIGHT = "forward", "backward", "input", "weight"
DIRECTIONS = (FORWARD, BACKWARD, INPUT, WEIGHT)
"""A backward pass is one task, or its input gradient, which the stage before waits for, and its weight gradient."""
HELD = {FORWARD: 1, BACKWARD: -1, INPUT: 0, WEIGHT: -1}
"""Micro-batches whose activations a task adds to its stage; a weight gradient is the last to read them."""

Task = tuple[str, int, int]
"""(direction, micro-batch, chunk)."""
Order = Callable[[int, int, int, int], list[Task]]
"""(stage, stages, micro-batches, chunks) -> tasks of the stage."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """A pipeline schedule as data.

    ``order`` lists the tasks of a stage. ``placement`` says which part of the model chunk c of stage s holds:
    ``loop``, the (c x stages + s)-th; ``vee``, down the stages and back; ``both``, chunk 0 the s-th and chunk 1 the
    s-th from the end, half of the micro-batches entering at either end. ``chunks`` is fixed by the schedule, or None:
    the plan's vpp. ``period``: micro-batches after which the order repeats, None: one per stage. ``end``: stages wait
    for each other (flush), a stage starts its next step when its own is done (skewed: the optimizer does not wait, Qi
    et al. 2023, section 4), or micro-batches never stop (stream). ``splits``: backward passes are split. ``pairs``: a
    forward pass that a backward pass of the other chunk follows runs beside it. ``copies``: copies of the parameters
    that a rank holds. ``folded``: the schedule that one half of the stages runs for half of the micro-batches, where
    the other half mirrors it.
    """

    name: str
    order: Order
    placement: Literal["loop", "vee", "both"] = "loop"
    chunks: int | None = 1
    period: int | None = 1
    end: Literal["flush", "skewed", "stream"] = "flush"
    splits: bool = False
    pairs: bool = False
    copies: int = 1
    folded: str | None = None

    def __call__(self, stage: int, stages: int, micro_batches: int, chunks: int) -> list[Task]:
        """Tasks of a stage in order."""
        return self.order(stage, stages, micro_batches, chunks)

    def position(self, stage: int, stages: int, chunk: int) -> int:
        """Which part of the model a chunk of a stage holds, counted from the embedding."""
        if self.placement == "loop":
            return chunk * stages + stage
        last = 2 * stages - 1 if self.placement == "vee" else stages - 1
        return stage if chunk == 0 else last - stage

    def parts(self, stages: int, chunks: int) -> int:
        """Into how many parts the model is cut."""
        return stages if self.placement == "both" else stages * chunks

    def repeats(self, stages: int) -> int:
        """Micro-batches of one period."""
        return self.period or stages
