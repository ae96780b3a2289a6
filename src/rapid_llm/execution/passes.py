"""The time of one pass of a unit: kernels and messages on their streams, and the host that feeds them."""

from __future__ import annotations

from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

from rapid_llm.execution.beside import SHARED, beside_kernels, hides_messages, side_share
from rapid_llm.execution.cells import Matrix, Names, by_cell, ending, named, places_of, stacked, starting, summed
from rapid_llm.execution.meeting import crowded
from rapid_llm.execution.pricing import Priced, compared, host_launched
from rapid_llm.lowering import Kernels
from rapid_llm.lowering.passes import FULL
from rapid_llm.lowering.table import (
    BACKWARD,
    CAST,
    EXPERT,
    FORWARD,
    OPTIMIZER,
    PHASES,
    RECOMPUTE,
    WEIGHT_GRADIENT,
    WITH_PRODUCT,
)
from rapid_llm.nouns import light


@light
class Passes:
    """Seconds of one pass per phase, unit and plan [phases, U, P].

    kernels: sum of kernels; blocking: messages on the compute stream; side: messages beside it; exposed: what of the
    side stream is not hidden; host: idle time of the accelerator while the host prepares launches; total: their sum
    without ``side``; spare: idle time of the host, whose launches are out before the accelerator has run them;
    reading: what of kernels waits for memory, where messages run beside them; apart: what kernels take beyond
    ``kernels``, hidden behind others.
    """

    kernels: Matrix
    blocking: Matrix
    side: Matrix
    exposed: Matrix
    host: Matrix
    spare: Matrix
    reading: Matrix
    apart: Matrix

    @cached_property
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


def time_passes(priced: Priced) -> Passes:
    """Form the time of each pass from its priced rows.

    Kernels and the messages on their stream add up; messages beside them cost what ``beside_kernels`` says. The host
    launches row after row; its queue runs ahead within a pass, so a pass takes at least what all its launches take.
    """
    lowered, machine = priced.lowered, priced.machine
    compute = lowered.shapes.compute
    shape = (len(PHASES), len(lowered.units), len(lowered.shapes.plans))
    rows, sending = [table.rows for table in priced.kernels], [message.rows for message in priced.messages]
    places, sent = places_of(rows), priced.sent
    counts = stacked([r.count for r in rows], shape)
    spent = stacked([table.seconds for table in priced.kernels], shape) * counts
    kernels, hidden = summed(spent, places, shape), np.zeros(shape)
    beside = machine.runtime.overlap.shared_beside and machine.accelerator.vendor == "NVIDIA"
    if beside and lowered.expert.any() and not lowered.shapes.training:
        hidden[FORWARD] = _beside_routed(priced, shape)
        kernels -= hidden
    moving, apart = sent.seconds * sent.count, side_share(machine, sending, compute)
    if machine.net is not None and sending:
        own = kernels + summed(moving * (1.0 - apart), sent.cells, shape)
        ends = np.cumsum([len(r.names) for r in sending])[:-1]
        whole, shares = (np.split(column, ends) for column in (moving, apart))
        moving = stacked([m for _, m in crowded(list(zip(sending, whole, strict=True)), shares, own, machine)], shape)
    blocking = summed(moving * (1.0 - apart), sent.cells, shape)
    blocking[OPTIMIZER] = 0.0
    reading, waiting = np.zeros(shape), spent
    if hides_messages(priced):
        waiting = spent * stacked([table.reads for table in priced.kernels], shape)
        reading = summed(waiting, places, shape)
    side, exposed = beside_kernels((spent, waiting), moving * apart, apart, (kernels + blocking, reading), priced)
    launched = np.minimum(counts, _most_launches(named(rows)))
    issued = np.concatenate([launched, sent.count])
    issue = machine.runtime.host.per_kernel * summed(issued, places + sent.cells, shape)
    host = machine.runtime.host
    counted = lowered.expert.any() and any((host.per_expert, host.per_dispatch, host.waits))
    experts = by_cell(_expert_launches(priced) if counted else [], shape)
    issue += host.per_expert * experts
    if machine.runtime.host.per_cast:
        casts = [(t.rows, t.rows.count * ending(t.rows.names, (CAST,))[:, None]) for t in priced.kernels]
        issue += machine.runtime.host.per_cast * by_cell(casts, shape)
    if machine.runtime.host.comparing.across:
        issue += summed(sent.count * compared(sent.ranks, sent.stride, machine), sent.cells, shape)
    busy = kernels + blocking + exposed
    spare = np.maximum(0.0, busy - issue / machine.host_speed)
    return Passes(kernels, blocking, side, exposed, _host(busy, issue, experts > 0, priced), spare, reading, hidden)


def _beside_routed(priced: Priced, shape: tuple[int, int, int]) -> Matrix:
    """Seconds that a shared expert costs no more on a stream beside the routed ones [U, P].

    Both compute and move what they do, on the same units and memory; what its kernels wait for otherwise (launch,
    ramp, a wave too small) hides as far as the routed ones last.
    """
    routed = []
    for rows, seconds in ((table.rows, table.seconds) for table in priced.kernels):
        own = starting(rows.names, EXPERT) | (rows.family == "moe")
        routed.append((rows, seconds * rows.count * own[:, None]))
    hidden = np.minimum(by_cell(_shared_waits(priced), shape), by_cell(routed, shape))[FORWARD]
    return np.asarray(hidden * (host_launched(priced.lowered, priced.machine.runtime) == 0.0))


def _shared_waits(priced: Priced) -> list[tuple[Kernels, Matrix]]:
    """Seconds in which each kernel of shared experts neither computes nor moves [R, P]."""
    waits = []
    for rows, prices in ((table.rows, table.prices) for table in priced.kernels):
        busy = np.maximum(prices.compute_s, prices.memory_s)
        waits.append((rows, (prices.seconds - busy) * rows.count * starting(rows.names, SHARED)[:, None]))
    return waits


def hidden_kernels(priced: Priced, passes: Passes) -> list[Matrix]:
    """What each row of each table of kernels takes of ``passes.apart`` [R, P]."""
    waits = _shared_waits(priced)
    whole = by_cell(waits, passes.apart.shape)
    share = np.divide(passes.apart, whole, out=np.zeros_like(whole), where=whole > 0)
    return [seconds * share[rows.phase, rows.unit] for rows, seconds in waits]


@lru_cache(maxsize=256)
def _most_launches(tables: Names) -> Matrix:
    """Operators that the host issues at most for the rows of some tables (family, names) [R, 1]: none for those that go
    out with a product, one for a product in pieces or of many experts (``Host.per_dispatch`` holds these), each of
    another kind."""
    return np.array(
        [
            [0.0 if name.endswith(WITH_PRODUCT) else np.inf if family == "pointwise" else 1.0]
            for family, names in tables
            for name in names
        ]
    ).reshape(-1, 1)


def _expert_launches(priced: Priced) -> list[tuple[Kernels, Matrix]]:
    """Products of single experts, and what rounds the operands of each (of a weight gradient both are)."""
    facts = priced.machine.runtime.training
    rounds = facts.expert_casts if facts and priced.lowered.shapes.cast else 0.0
    found = []
    for table in priced.kernels:
        rows = table.rows
        if rows.family == "gemm":
            experts = rows.columns["groups"] * rows.count * starting(rows.names, EXPERT)[:, None]
            rounded = ~ending(rows.names, (WEIGHT_GRADIENT,))[:, None]
            found.append((rows, experts * (1.0 + rounds * rounded)))
    return found


@lru_cache(maxsize=64)
def _launched(captured: tuple[str, ...]) -> Matrix:
    """1.0 for the phases of a training pass that the host launches, 0.0 for captured ones [phases, 1, 1]."""
    return np.array([[[float(phase not in captured)]] for phase in PHASES])


def _host(busy: Matrix, issue: Matrix, through: NDArray[np.bool_], priced: Priced) -> Matrix:
    """Seconds in which the accelerator waits for its host: launches beyond ``busy``, and gaps of a whole pass.

    ``through``: passes through experts. What runs again of a layer, but not all of it, is part of its backward pass.
    """
    machine, shapes = priced.machine, priced.lowered.shapes
    host = machine.runtime.host
    floor = issue + (host.per_dispatch * through if shapes.training else 0.0)
    gap, busy = np.zeros_like(busy), busy.copy()
    if shapes.training:
        parts = shapes.plans.recompute != FULL
        for seconds in (busy, floor):
            seconds[BACKWARD] += np.where(parts, seconds[RECOMPUTE], 0.0)
            seconds[RECOMPUTE] *= ~parts
    layers = slice(0, len(priced.lowered.units) - 2)
    if shapes.training:
        gap[FORWARD, layers] = host.per_layer.forward
        gap[BACKWARD, layers] = host.per_layer.backward
        floor *= _launched(host.captured)
    else:
        gap[FORWARD, layers] = np.where(shapes.decode > 0, host.per_layer.decode, host.per_layer.prefill)
        preparing = np.where(shapes.decode > 0, host.preparing.decode, host.preparing.prefill)
        floor[FORWARD, layers] += np.where(busy[FORWARD, layers] > 0, preparing, 0.0)
        floor *= host_launched(priced.lowered, machine.runtime)
    floor[OPTIMIZER] = 0.0
    floor /= machine.host_speed
    serial = host.serial + host.waits * through
    least, most = np.minimum(floor, busy), np.maximum(floor, busy)
    exposed = most - busy + serial * least
    if host.jitter:
        ratio = np.divide(least, most, out=np.zeros_like(most), where=most > 0)
        exposed += most * ((1.0 + ratio ** (1.0 / host.jitter)) ** host.jitter - 1.0)
    return np.asarray(exposed + np.where(busy > 0, gap, 0.0))
