"""The time of one pass of a unit: kernels and messages on their streams, and the host that feeds them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rapid_llm.execution.pricing import Machine, Priced, host_launched
from rapid_llm.lowering import Lowered, Messages
from rapid_llm.lowering.table import BACKWARD, FORWARD, OPTIMIZER, PHASES, RECOMPUTE

Matrix = NDArray[np.float64]

_HIDDEN_BY = {
    "tp": "tensor_parallel",
    "ep": "expert_all_to_all",
    "etp": "expert_all_to_all",
    "cp": "context_parallel",
    "shard": "parameter_gather",
    "edp": "parameter_gather",
    "data": "gradient_reduce",
    "replicas": "gradient_reduce",
}
"""Which flag of ``runtime.Overlap`` puts the messages of an axis on a stream of their own."""
_COVERS = {"tp": "gemm", "cp": "attention"}
"""Kernels that can run beside the messages of an axis, where it is not all of the pass: a chunked product beside its
gather or scatter, attention on one chunk of the sequence beside the ring."""


@dataclass(frozen=True, slots=True)
class Passes:
    """Seconds of one pass per phase, unit and plan [phases, U, P].

    kernels: sum of kernels; blocking: messages on the compute stream; side: messages beside it; exposed: what of the
    side stream is not hidden; host: idle time of the accelerator while the host prepares launches; total: their sum
    without ``side``.
    """

    kernels: Matrix
    blocking: Matrix
    side: Matrix
    exposed: Matrix
    host: Matrix

    @property
    def total(self) -> Matrix:
        """Seconds of one pass [phases, U, P]."""
        return np.asarray(self.kernels + self.blocking + self.exposed + self.host)

    @property
    def forward(self) -> Matrix:
        """Seconds of a forward pass of each unit [U, P]."""
        return np.asarray(self.total[FORWARD])

    @property
    def backward(self) -> Matrix:
        """Seconds of a backward pass with what it recomputes [U, P]."""
        total = self.total
        return np.asarray(total[RECOMPUTE] + total[BACKWARD])


def on_side_stream(machine: Machine, axis: str) -> bool:
    """Whether the runtime runs the messages of an axis beside computation."""
    flag = _HIDDEN_BY.get(axis)
    return bool(flag and getattr(machine.runtime.overlap, flag))


def time_passes(priced: Priced) -> Passes:
    """Form the time of each pass from its priced rows.

    On the side stream the messages of an axis, M seconds in all, slow the kernels that cover them (C seconds) by the
    share sigma of compute units that the collective library occupies: together they take max(M, C + sigma M). A product
    runs beside its own messages in tp chunks, the first (or last) of which has nothing beside it: M / tp more. The host
    launches ``per_kernel`` per row; its queue runs ahead within a pass, so a pass takes at least launches x per_kernel.
    """
    lowered, machine = priced.lowered, priced.machine
    shape = (len(PHASES), len(lowered.units), len(lowered.shapes.plans))
    kernels, blocking, issue = (np.zeros(shape) for _ in range(3))
    covers: dict[str, Matrix] = {family: np.zeros(shape) for family in _COVERS.values()}
    beside: dict[str, Matrix] = {}
    for table in priced.kernels:
        cell = (table.rows.phase, table.rows.unit)
        seconds = table.prices.seconds * table.rows.count
        np.add.at(kernels, cell, seconds)
        np.add.at(issue, cell, table.rows.count * machine.runtime.host.per_kernel)
        if table.rows.family in covers:
            np.add.at(covers[table.rows.family], cell, seconds)
    for message in priced.messages:
        rows = message.rows
        step = rows.phase != OPTIMIZER
        cell = (rows.phase[step], rows.unit[step])
        target = blocking
        if on_side_stream(machine, rows.axis):
            target = beside.setdefault(_COVERS.get(rows.axis, ""), np.zeros(shape))
        moving = rows.count[step] * (rows.ranks[step] > 1)
        np.add.at(target, cell, message.prices.seconds[step] * moving)
        np.add.at(issue, cell, moving * _issue(rows, lowered, machine)[step])
    share = occupied_share(machine)
    exposed = np.zeros(shape)
    tp = lowered.shapes.plans.tp
    for family, side in beside.items():
        cover = covers.get(family, kernels + blocking)
        alone = side / tp if family == _COVERS["tp"] else 0.0
        exposed += np.minimum(side, alone + np.maximum(side - alone - cover, share * side))
    side = sum(beside.values(), np.zeros(shape))
    return Passes(kernels, blocking, side, exposed, _host(machine, kernels + blocking + exposed, issue, priced))


def occupied_share(machine: Machine) -> float:
    """Share of the compute units that a running collective kernel takes from the kernels beside it."""
    return min(1.0, machine.runtime.communication.compute_units / machine.accelerator.compute_units)


def _issue(rows: Messages, lowered: Lowered, machine: Machine) -> Matrix:
    """Seconds in which the host launches each message [R, P]: a kernel's, and ``per_peer_piped`` per rank of a
    tensor-parallel group beside a pipeline that crosses nodes."""
    host, plans = machine.runtime.host, lowered.shapes.plans
    if rows.axis != "tp" or not host.per_peer_piped:
        return np.full(rows.count.shape, host.per_kernel)
    piped = (plans.pp > 1) & (plans.ranks > machine.fabric.node_span)
    return host.per_kernel + np.where(piped, rows.ranks * host.per_peer_piped, 0.0)


def _host(machine: Machine, busy: Matrix, issue: Matrix, priced: Priced) -> Matrix:
    """Seconds in which the accelerator waits for its host: launches beyond ``busy``, and gaps of a whole pass."""
    host = machine.runtime.host
    floor = issue.copy()
    gap = np.zeros_like(busy)
    shapes = priced.lowered.shapes
    layers = slice(0, len(priced.lowered.units) - 2)
    if shapes.training:
        gap[FORWARD, layers] = host.per_layer.forward
        gap[BACKWARD, layers] = host.per_layer.backward
        gap[[FORWARD, BACKWARD]] += host.per_dispatch * (priced.lowered.expert > 0)
        floor *= [[[phase not in host.captured]] for phase in PHASES]
    else:
        gap[FORWARD, layers] = np.where(shapes.decode > 0, host.per_layer.decode, host.per_layer.prefill)
        floor *= host_launched(priced.lowered, machine.runtime)
    floor[OPTIMIZER] = 0.0
    floor /= machine.host_speed
    return np.maximum(floor - busy, 0.0) + np.where(busy > 0, gap / machine.host_speed, 0.0)
