"""The memory of one stage through a step: a running sum over the tasks of its schedule."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rapid_llm.execution.schedules import BACKWARD, FORWARD, Task
from rapid_llm.memory.training import Holdings

Matrix = NDArray[np.float64]

PARTS = ("weights", "gradients", "optimizer", "activations", "workspace")
"""What a walk follows: the tensors of a rank."""
WEIGHTS, GRADIENTS, OPTIMIZER, ACTIVATIONS, WORKSPACE = range(len(PARTS))
RELEASES = (BACKWARD, "weight")
"""Tasks after which the activations of their micro-batch are gone."""


@dataclass(frozen=True, slots=True)
class Walk:
    """Bytes of the tensors of one rank at the moments of a step, in order.

    labels [T]; held [parts, T] in the order of PARTS. A step starts and ends with what lives between steps; a task
    shows twice where it ends with other bytes than it starts with.
    """

    labels: tuple[str, ...]
    held: Matrix

    @property
    def total(self) -> NDArray[np.float64]:
        """Bytes at each moment [T]."""
        return np.asarray(self.held.sum(axis=0))

    @property
    def peak(self) -> int:
        """The moment of the most bytes, the first of equals."""
        return int(self.total.argmax())

    @property
    def allocated(self) -> float:
        """Bytes that the step allocates."""
        return float(np.maximum(np.diff(self.held, axis=1), 0.0).sum())

    @property
    def freed(self) -> float:
        """Bytes that the step frees."""
        return float(np.maximum(-np.diff(self.held, axis=1), 0.0).sum())


def walk(h: Holdings, tasks: Sequence[Task], *, row: int, stage: int, share: int, frees_gradients: bool) -> Walk:
    """Walk the tasks of one stage of plan ``row``.

    A micro-batch leaves its activations on the stage in ``share`` parts, one with each forward task. While a backward
    task runs, the layer that is recomputed or the logits are held too, then freed. Gradients that a framework frees
    come with the first backward pass.
    """
    at = row, stage
    states = h.states
    micro = float(h.micro[at]) / share
    always, lasting = float(h.always[at]), float(h.lasting[row])
    rerun, beside = float(h.rerun[at]), float(max(h.rerun[at], h.loss[at]))
    gradients = float(states.gradients[at])
    have = 0.0 if frees_gradients else gradients
    held = 0.0
    between = float(states.between[at])
    moments: list[tuple[str, float, float, float]] = [("between steps", have, 0.0, lasting + between)]
    for direction, micro_batch, chunk in tasks:
        name = f"{direction} {micro_batch + 1}" + (f".{chunk + 1}" if share > 1 else "")
        if direction == FORWARD:
            held += micro
            moments.append((name, have, held, always))
            continue
        moments.append((name, have, held, always + beside))
        if direction in RELEASES:
            have, held = gradients, held - micro
        moments.append((name + " ends", have, held, always + rerun))
    moments.append(("optimizer", have, held, lasting + between))
    moments.append(("between steps", moments[0][1], held, lasting + between))
    varying = np.array([moment[1:] for moment in moments]).T
    whole = np.empty((len(PARTS), len(moments)))
    whole[[WEIGHTS, OPTIMIZER]] = [[float(states.weights[at])], [float(states.optimizer[at])]]
    whole[[GRADIENTS, ACTIVATIONS, WORKSPACE]] = varying
    return Walk(tuple(moment[0] for moment in moments), whole)
