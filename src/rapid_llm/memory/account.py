"""What one rank of every stage holds at its peak, by category."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from rapid_llm.nouns import light
from rapid_llm.parallelism import Plans
from rapid_llm.runtime import Allocator

Matrix = NDArray[np.float64]
Mask = NDArray[np.bool_]

CATEGORIES = (
    "weights",
    "gradients",
    "optimizer",
    "activations",
    "kv_cache",
    "workspace",
    "communication",
    "framework",
    "allocator",
)
"""Weights to workspace are tensors; communication and framework stand outside the allocator; allocator is its slack."""
COMMUNICATORS = ("tp", "pp", "cp", "data", "ep")
OUTSIDE = ("communication", "framework")
_INDEX = {name: index for index, name in enumerate(CATEGORIES)}
_OUTSIDE = [CATEGORIES.index(name) for name in OUTSIDE]


@light
class Account:
    """Bytes of one rank of each stage under P plans.

    by_category [categories, P, S] at the peak; they sum to peak [P, S] (reserved, with context and libraries).
    allocated is the peak of tensors; persistent what lives between steps. reclaimable: bytes of category ``allocator``
    that a process short of memory gets back. displaced: bytes that wait behind a side stream and find no room, so that
    the allocator empties its cache in every pass; none where the rest does not fit. limits: bytes that a process may
    use [P, S]; capacity: what the driver reports, ``capacities`` where stages differ in it [P, S]. host: bytes that
    live on the host for the rank [P, S], outside the peak.
    """

    by_category: Matrix
    persistent: Matrix
    allocated: Matrix
    reclaimable: Matrix
    displaced: Matrix
    limits: Matrix
    capacity: float
    host: Matrix
    capacities: Matrix | None = None

    @cached_property
    def peak(self) -> Matrix:
        """Bytes of the process at the peak [P, S]."""
        return np.asarray(self.by_category.sum(axis=0))

    @cached_property
    def reserved(self) -> Matrix:
        """Bytes that the allocator holds at the peak: the process without context and libraries [P, S]."""
        return np.asarray(self.peak - self.by_category[_OUTSIDE].sum(axis=0))

    @cached_property
    def need(self) -> Matrix:
        """Bytes of the process at the peak that it cannot give back [P, S]."""
        return np.asarray(self.peak - self.reclaimable)

    @cached_property
    def fullest(self) -> NDArray[np.int64]:
        """The stage of each plan that is nearest to what it may use [P]."""
        return np.asarray((self.need - self.limits).argmax(axis=1))

    @cached_property
    def fits(self) -> Mask:
        """Whether every rank stays within what it may use [P]."""
        return np.asarray((self.need <= self.limits).all(axis=1))

    @cached_property
    def limit(self) -> float:
        """Bytes that the fullest rank of the last plan may use."""
        return float(self.limits[-1, self.fullest[-1]])


def communicators(plans: Plans) -> NDArray[np.float64]:
    """Process groups of more than one rank that a rank is part of [P]."""
    found = np.zeros(len(plans))
    for axis in COMMUNICATORS:
        found += getattr(plans, axis) > 1
    return found


def stacked(parts: Mapping[str, Matrix], plans: Plans, allocator: Allocator, alive: Mask) -> Matrix:
    """Parts with communicators, context and graphs, in the order of CATEGORIES [C, P, S]; nothing on absent stages."""
    full = np.zeros((len(CATEGORIES), *alive.shape))
    for name, part in parts.items():
        full[_INDEX[name]] = part
    full[_INDEX["communication"]] = (communicators(plans) * allocator.communicator)[:, None]
    full[_INDEX["framework"]] = allocator.context + allocator.libraries + allocator.graphs
    full *= alive
    return full
