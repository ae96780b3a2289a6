"""What leaves the accelerator for its host: bytes there, and the buffers through which they pass."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from rapid_llm.lowering import Lowered
from rapid_llm.memory.states import States

Matrix = NDArray[np.float64]

BUFFERS = 2.0
"""One in use while the other is filled or emptied (ZeRO-Infinity, arXiv 2104.07857, section 6.2)."""


@dataclass(frozen=True, slots=True)
class Stays:
    """What an offloaded job leaves on the accelerator [P, S]: its states, the activations of a micro-batch, the staging
    buffers; and on the host: states, activations of a micro-batch."""

    states: States
    micro: Matrix
    staging: Matrix
    host_states: Matrix
    host_micro: Matrix


def staying(lowered: Lowered, states: States, micro: Matrix, flight: Matrix, bucket: float) -> Stays:
    """Split states and activations [P, S] between accelerator and host.

    Staging holds two of the largest unit, of gradients two buckets where the runtime has them (``bucket`` bytes), and
    never more than left: offloading more never needs more memory. Optimizer states have none, for the CPUs update them
    where they are and copy into the weights themselves.
    """
    shares = lowered.shapes.offload
    if not shares.any:
        none = np.zeros_like(micro)
        return Stays(states, micro, none, none, none)
    weights, gradients = shares.weights * states.weights, shares.gradients * states.gradients
    left = shares.activations * micro
    present = lowered.layers > 0
    buckets = bucket if bucket else _largest(lowered, lowered.trained.sum(axis=0)) * states.gradients
    layer = (present * lowered.saved[:, :, None]).max(axis=0) if shares.activations else np.zeros_like(micro)
    staging = (
        np.minimum(weights, BUFFERS * _largest(lowered, lowered.dense + lowered.expert) * states.weights)
        + np.minimum(gradients, BUFFERS * buckets)
        + np.minimum(left * flight, BUFFERS * layer)
    )
    updated = shares.optimizer * states.optimizer
    return Stays(
        states=replace(
            states,
            weights=states.weights - weights,
            gradients=states.gradients - gradients,
            optimizer=states.optimizer - updated,
        ),
        micro=micro - left,
        staging=staging,
        host_states=weights + gradients + updated,
        host_micro=left,
    )


def _largest(lowered: Lowered, parameters: Matrix) -> Matrix:
    """Share of a stage's parameters in its largest unit [P, S]; parameters [U, P]."""
    largest = ((lowered.layers > 0) * parameters[:, :, None]).max(axis=0)
    return np.asarray(largest / np.maximum(np.einsum("ups,up->ps", lowered.layers, parameters), 1.0))
