"""The time of offload: copies over the host link beside the passes, and the step that the CPUs take."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rapid_llm.execution.machine import Machine
from rapid_llm.lowering import Lowered
from rapid_llm.lowering.operators import FP32_BYTES
from rapid_llm.lowering.outer import OPTIMIZER_STATES
from rapid_llm.network import link
from rapid_llm.workload import HostShare

Matrix = NDArray[np.float64]
UPDATE_SHARE = 0.46
"""Of the bandwidth of host memory, what a vectorised Adam of the CPUs reaches: 10 billion parameters take 2.57 s on a
DGX-2 with twelve channels of DDR4-2666, 256 GB/s (ZeRO-Offload, arXiv 2101.06840, table 4), of 30 bytes each: the
gradient read, master and moments read and written, the weight of 16 bits written."""


@dataclass(frozen=True, slots=True)
class Offloading:
    """Seconds of offload on each stage [P, S].

    forward, backward: what the copies of a micro-batch add to its passes; copies: what they take in both; update: the
    optimizer step of the CPUs; tail: what the copies of that step add to it; tail_copies: what they take.
    """

    forward: Matrix
    backward: Matrix
    copies: Matrix
    update: Matrix
    tail: Matrix
    tail_copies: Matrix


@dataclass(frozen=True, slots=True)
class HostPath:
    """B/s of one accelerator of a full node, in each direction of its host link, of the CPUs' memory, and of the
    drives. ``drives`` is infinite where nothing is offloaded to drives.
    """

    link: float
    memory: float
    drives: float

    @classmethod
    def of(cls, machine: Machine, *, to_drives: bool) -> HostPath:
        """Memory and drives of a node are shared by its accelerators; a link is one accelerator's own."""
        node = machine.node
        use = node.host_link
        rate = (use.bandwidth or link(use.link).bandwidth) * use.count
        drives = node.nvme / node.accelerators if to_drives and node.nvme else np.inf
        return cls(rate, node.host_memory_bandwidth / node.accelerators, drives)

    def seconds(self, up: Matrix, down: Matrix) -> Matrix:
        """Seconds in which so many bytes reach the accelerator and leave it: the link carries both ways at once, drives
        read or write."""
        return np.asarray(np.maximum(np.maximum(up, down) / self.link, (up + down) / self.drives))


def offloading(lowered: Lowered, machine: Machine, forward: Matrix, backward: Matrix) -> Offloading | None:
    """Time what a job offloads, beside passes of ``forward`` and ``backward`` seconds [P, S]; None where it offloads
    nothing.

    Copy engines take no compute units: M seconds of copies beside C of a pass take max(M, C). Copies of activations
    always run beside the pass; those of weights and gradients where the runtime gathers or reduces beside computation.
    Gradients leave with every micro-batch where the host adds them up, else with the last.
    """
    s = lowered.shapes
    if not s.offload.any:
        return None
    zero, shares, overlap = s.plans.zero_stage, s.offload, machine.runtime.overlap
    path = HostPath.of(machine, to_drives=shares.to == "nvme")
    weights = shares.weights * s.act * _held(lowered, np.stack([lowered.dense, lowered.expert]), zero >= 3)
    gradients = shares.gradients * s.reduce * _held(lowered, lowered.trained, zero >= 2)
    left = shares.activations * np.einsum("ups,up->ps", lowered.layers, lowered.saved)
    fetched, reduced = float(overlap.parameter_gather), float(overlap.gradient_reduce)

    def shown(weights_up: Matrix, up: Matrix, gradients_down: Matrix, down: Matrix, cover: Matrix) -> Matrix:
        beside = path.seconds(up + fetched * weights_up, down + reduced * gradients_down)
        blocking = path.seconds((1.0 - fetched) * weights_up, (1.0 - reduced) * gradients_down)
        return blocking + np.maximum(beside - cover, 0.0)

    none = np.zeros_like(weights)
    update, tail, tail_copies = _step(lowered, path, backward if overlap.gradient_reduce else none)
    return Offloading(
        forward=shown(weights, none, none, left, forward),
        backward=shown(weights, left, gradients, none, backward),
        copies=path.seconds(weights, left) + path.seconds(weights + left, gradients),
        update=update,
        tail=tail,
        tail_copies=tail_copies,
    )


def host_copies(lowered: Lowered, machine: Machine, shares: HostShare) -> Matrix:
    """Seconds for which the copies of each forward pass keep the host link of each stage busy [P, S]. A pass fetches
    the weights of its layers that are not on the accelerator, and the cache that its queries read; new keys and values
    go to the host. Layers are fetched while earlier layers compute, so a pass takes the longer of the two.
    """
    s, layers = lowered.shapes, lowered.layers
    path = HostPath.of(machine, to_drives=shares.to == "nvme")
    kinds = slice(0, len(lowered.units) - 2)
    weights = np.einsum("ups,up->ps", layers[kinds], (lowered.dense + lowered.expert)[kinds]) * s.weight
    cache = np.einsum("ups,up->ps", layers, lowered.cache)
    read = s.past / np.maximum(s.past + s.new, 1.0)
    up = shares.weights * weights + shares.kv_cache * cache * read[:, None]
    return path.seconds(up, shares.kv_cache * cache * (1.0 - read)[:, None])


def _step(lowered: Lowered, path: HostPath, cover: Matrix) -> tuple[Matrix, Matrix, Matrix]:
    """Seconds of the CPUs' update, what copies add to it, and what they take [P, S]; ``cover``: of the backward pass
    beside which gradients leave.

    Gradients are scaled in place and read, master and moments read and written, at Adam's share of the bandwidth of
    host memory. Then masters are cast, and the weights, in pageable memory, go through the driver's buffer to the
    link: written, read, written and read (DeepSpeed's stage3.py, step: unscale_and_clip_grads, the copy of
    fp32_partitioned_groups_flat). The next states come from the drives meanwhile (ZeRO-Infinity, arXiv 2104.07857).
    """
    s, shares = lowered.shapes, lowered.shapes.offload
    owned = _held(lowered, lowered.trained, s.plans.zero_stage >= 1)
    updated, states = shares.optimizer, OPTIMIZER_STATES * FP32_BYTES
    handed = FP32_BYTES + 4.0 * s.act
    update = owned * updated * (3.0 * s.gradient + 2.0 * states + handed) / (UPDATE_SHARE * path.memory)
    down = owned * s.reduce * max(updated - shares.gradients, 0.0) + owned * s.act * max(shares.weights - updated, 0.0)
    up = owned * s.act * max(updated - shares.weights, 0.0) + owned * s.reduce * max(shares.gradients - updated, 0.0)
    none = np.zeros_like(owned)
    leaving, returning = path.seconds(none, down), path.seconds(up, none)
    drives = owned * updated * 2.0 * states / path.drives
    tail = np.maximum(leaving - cover, 0.0) + returning + np.maximum(drives - update - returning, 0.0)
    return update, tail, leaving + np.maximum(returning, drives)


def _held(lowered: Lowered, parameters: NDArray[np.float64], sharded: NDArray[np.bool_]) -> Matrix:
    """Parameters of one rank of each stage [P, S] from those of units outside and inside experts [2, U, P]."""
    plans = lowered.shapes.plans
    dense, expert = np.einsum("ups,kup->kps", lowered.layers, parameters)
    return np.asarray(
        dense / np.where(sharded, plans.shard, 1.0)[:, None] + expert / np.where(sharded, plans.edp, 1.0)[:, None]
    )
