"""Seconds in which the caching allocator gives memory back to the driver and maps it again.

PyTorch keeps what a collective reads on a stream of its own until the host sees it done (``record_stream``). The host
runs ahead, so it needs memory for many of them at once. Where that is more than there is, the allocator waits for the
accelerator, frees every block that it has cached, and maps memory anew ("cudaMalloc retries").
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from rapid_llm.execution.machine import Machine
from rapid_llm.lowering import Lowered

GIB = 2.0**30
Column = NDArray[np.float64]
Matrix = NDArray[np.float64]


def mapping(lowered: Lowered, machine: Machine) -> Column:
    """Seconds of mapping memory in each inference pass [N]: once the tensors of its messages are more than the engine
    leaves free, every pass frees what they held and maps it again.
    """
    allocator = machine.runtime.allocator
    passes = lowered.layers.sum(axis=2)
    found = [m.size * m.count * (m.ranks > 1) * passes[m.unit] for m in lowered.messages if m.op == "all_reduce"]
    held = sum((rows.sum(axis=0) for rows in found), np.zeros(passes.shape[1]))
    free = (1.0 - (allocator.utilisation or 1.0)) * machine.accelerator.memory.reported_capacity
    return np.where(held > free, mapped(held, machine), 0.0)


def mapped(size: Matrix, machine: Machine) -> Matrix:
    """Seconds in which ``size`` bytes go back to the driver and are mapped again."""
    return np.asarray(size / GIB * machine.runtime.host.per_gib_mapped / machine.host_speed)
