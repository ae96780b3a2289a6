"""Routed experts in the memory of the host: its CPUs run them, or a long prompt fetches them to the accelerator.

The accelerator runs attention and shared experts. Token states travel to the CPUs and back; these read the experts that
any token chose and multiply, one after the other, beside the shared experts: t = bytes / B + FLOPs / F. With few tokens
that is the bandwidth of host memory, with many the rate of its CPUs (KTransformers, Chen et al. 2025, SOSP). Where the
runtime can, a layer's experts cross the host link beside the layer before instead, if that is faster.

Engines that leave whole layers to the host (llama.cpp, ``-ngl``) run them there with their part of the cache, one after
the other, so that accelerator and CPUs take turns; for many tokens the weights are copied up, one tensor at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from rapid_llm.errors import InputError
from rapid_llm.execution.offload import HostPath
from rapid_llm.execution.passes import time_passes
from rapid_llm.execution.pricing import Priced, PricedKernels
from rapid_llm.hardware import Node
from rapid_llm.operators.work import WORK
from rapid_llm.runtime import HostExperts

Matrix = NDArray[np.float64]
STATE_BYTES = 2.0
"""Of an element of a token's state on its way to the host and back: 16 bit."""
SHARED = "shared_"
FETCHED_FROM = 32
"""Tokens of a pass from which llama.cpp fetches to the accelerator what lies on the host (offload_op of backends)."""
FLOPS_PER_BYTE = 15.0
"""That CPUs of which nothing is known multiply for a byte that they stream: 1 TFLOP/s of 16 desktop cores beside two
channels of DDR5."""


def experts_on_host(priced: Priced, share: float) -> tuple[Priced, Matrix]:
    """The prices of what stays on the accelerator, and the seconds [P, S] for which it waits for a ``share`` of the
    experts of each stage: for the CPUs to compute them, or for copies that the layer before does not hide.
    """
    forward = time_passes(priced).forward
    own, shared = _of_family(priced, forward.shape), _shared(priced, forward.shape)
    cpus, copies = _host_seconds(priced, share, forward.shape)
    waiting = np.maximum(cpus - shared - (1.0 - share) * own, 0.0)
    streaming = np.maximum(copies - forward, 0.0)
    there = waiting - share * own <= streaming
    waits = np.where(there, waiting, streaming)
    left: Matrix = np.where(there, 1.0 - share, 1.0)
    kept = tuple(_scaled(table, left) for table in priced.kernels)
    return replace(priced, kernels=kept), np.einsum("ups,up->ps", priced.lowered.layers, waits)


def layers_on_host(priced: Priced, share: float) -> tuple[Priced, Matrix]:
    """As ``experts_on_host``, for a ``share`` of all layers; passes of many tokens copy them up
    where the runtime can.
    """
    machine, lowered = priced.machine, priced.lowered
    facts, node, kinds = machine.runtime.host_experts, machine.node, len(lowered.units) - 2
    if facts is None:
        raise InputError("layers on the host need a runtime whose CPUs run them.", field="workload.offload.weights")
    forward = time_passes(priced).forward
    moved, flops = (
        _by_unit([(table, getattr(table.prices, name)) for table in priced.kernels], forward.shape)
        for name in ("hbm_bytes", "flops")
    )
    sharers = min(float(lowered.shapes.plans.ranks.max()), float(node.accelerators))
    memory, rate = facts.layers * node.host_memory_bandwidth, _multiplying(facts, node)
    cpus = sharers * np.maximum(moved / memory, flops / rate)
    held = (lowered.dense + lowered.expert) * lowered.shapes.weight
    copies = held / (facts.stream * HostPath.of(machine, to_drives=False).link) if facts.stream else np.inf
    s = lowered.shapes
    there = np.broadcast_to((s.batch * s.new < FETCHED_FROM) | (not facts.stream), forward.shape).copy()
    waits = share * np.where(there, cpus, copies)
    there[kinds:], waits[kinds:] = False, 0.0
    left: Matrix = np.where(there, 1.0 - share, 1.0)
    kept = tuple(_part(table, left) for table in priced.kernels)
    return replace(priced, kernels=kept), np.einsum("ups,up->ps", lowered.layers, waits)


def _multiplying(facts: HostExperts, node: Node) -> float:
    """FLOP/s that the CPUs of a node reach."""
    return facts.matrix * node.host_matrix if node.host_matrix else FLOPS_PER_BYTE * node.host_memory_bandwidth


def _experts(priced: Priced) -> list[PricedKernels]:
    return [table for table in priced.kernels if table.rows.family == "moe"]


def _scaled(table: PricedKernels, kept: Matrix) -> PricedKernels:
    """A table of experts of which a part [U, P] remains; other tables as they are."""
    return _part(table, kept) if table.rows.family == "moe" else table


def _part(table: PricedKernels, kept: Matrix) -> PricedKernels:
    """A table of which a part [U, P] remains."""
    left, prices = kept[table.rows.unit], table.prices
    scaled = replace(
        prices, seconds=prices.seconds * left, flops=prices.flops * left, hbm_bytes=prices.hbm_bytes * left
    )
    return replace(table, distinct=scaled, at=None)


def _by_unit(parts: Sequence[tuple[PricedKernels, Matrix]], shape: tuple[int, ...]) -> Matrix:
    """Values of rows [R, P] times their counts, summed by unit [U, P]."""
    total = np.zeros(shape)
    for table, values in parts:
        np.add.at(total, table.rows.unit, values * table.rows.count)
    return total


def _of_family(priced: Priced, shape: tuple[int, ...]) -> Matrix:
    return _by_unit([(table, table.seconds) for table in _experts(priced)], shape)


def _shared(priced: Priced, shape: tuple[int, ...]) -> Matrix:
    """Seconds of shared experts, which run beside the host's [U, P]."""
    parts = [
        (table, table.seconds * np.array([[name.startswith(SHARED)] for name in table.rows.names]))
        for table in priced.kernels
    ]
    return _by_unit(parts, shape)


def _host_seconds(priced: Priced, share: float, shape: tuple[int, ...]) -> tuple[Matrix, Matrix]:
    """Seconds in which the CPUs run a share of each unit's experts, transfers of token states included, and seconds in
    which these experts cross the host link [U, P]; the latter infinite where the runtime never fetches them. The job's
    accelerators on a node share its CPUs.
    """
    machine = priced.machine
    facts, node = machine.runtime.host_experts, machine.node
    if facts is None:
        raise InputError("experts on the host need a runtime that runs them.", field="workload.offload.experts")
    path = HostPath.of(machine, to_drives=False)
    tables = _experts(priced)
    work = [_moved(table) for table in tables]
    flops, weights, states = (
        _by_unit([(table, one[part]) for table, one in zip(tables, work, strict=True)], shape) for part in range(3)
    )
    sharers = min(float(priced.lowered.shapes.plans.ranks.max()), float(node.accelerators))
    memory, rate = facts.memory * node.host_memory_bandwidth, _multiplying(facts, node)
    computing = share * sharers * (weights / memory + flops / rate)
    cpus = computing + np.where(flops > 0, 2.0 * path.seconds(states, np.zeros_like(states)), 0.0)
    return cpus, share * weights / (facts.stream * path.link) if facts.stream else np.full(shape, np.inf)


def _moved(table: PricedKernels) -> tuple[Matrix, Matrix, Matrix]:
    """FLOPs of the experts, bytes of the weights of those that any token chose, and of all tokens' states [R, P]."""
    columns = table.rows.columns
    flops, _ = WORK["moe"](tuple(columns.values()))
    weights = columns["hit"] * columns["matrices"] * columns["hidden"] * columns["inter"] * columns["w_bytes"]
    return flops, weights, columns["tokens"] * columns["hidden"] * STATE_BYTES
