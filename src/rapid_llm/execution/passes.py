"""The time of one pass of a unit: kernels and messages on their streams, and the host that feeds them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

from rapid_llm.execution.meeting import crowded
from rapid_llm.execution.pricing import Machine, Priced, compared, host_launched
from rapid_llm.lowering import Kernels, Messages
from rapid_llm.lowering.passes import FULL
from rapid_llm.lowering.table import (
    AGAIN,
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
from rapid_llm.network import expert_library
from rapid_llm.nouns import light
from rapid_llm.runtime import Overlap, Runtime

Matrix = NDArray[np.float64]
_Names = tuple[tuple[str, tuple[str, ...]], ...]
"""Of some tables of kernels each family, and the names of its rows."""
_Table = tuple[str, str, tuple[str, ...]]
"""Of a table of messages the operation, the axis, and the names of its rows."""

_HIDDEN_BY = {
    "tp": "tensor_parallel",
    "ep": "expert_all_to_all",
    "etp": "expert_all_to_all",
    "cp": "context_parallel",
    "kvp": "batch_exchange",
    "shard": "parameter_gather",
    "edp": "parameter_gather",
    "data": "gradient_reduce",
    "replicas": "gradient_reduce",
}
"""Which flag of ``runtime.Overlap`` puts the messages of an axis on a stream of their own."""
BESIDE = "normal"
"""The mode of an expert library whose kernels run beside others; the other takes all units for a short time."""
_NANO = ("tp", "ep", "etp", "cp", "kvp")
"""Axes whose messages travel beside the kernels of other nano-batches."""
_SHARDED = ("shard", "edp")
"""Axes over which weights are gathered and their gradients reduced."""
_COVERS = {"tp": "gemm", "cp": "attention", "kvp": "attention"}
"""Kernels that can run beside the messages of an axis, where it is not all of the pass: a chunked product beside its
gather or scatter, attention on one chunk of the sequence beside the ring."""
_COLUMNS = "column-parallel"
"""The products whose gradients ``Overlap.tensor_parallel_gradients`` puts messages beside: all but those that end in a
reduction of the forward pass."""
_ROWS = ("out", "down")
"""How the names of products begin that do."""
_MEMORY_PASSES = {
    "all_gather": 2.0,
    "broadcast": 2.0,
    "send_recv": 2.0,
    "all_to_all": 2.0,
    "reduce_scatter": 3.0,
    "all_reduce": 2.5,
}
"""Bytes of memory for every byte that a rank sends: it is read there and written here; a reduction also reads what it
adds to. An all-reduce is half of either."""
_SHARED = "shared_"
"""How the names of kernels of shared experts begin."""


@light
class Passes:
    """Seconds of one pass per phase, unit and plan [phases, U, P].

    kernels: sum of kernels; blocking: messages on the compute stream; side: messages beside it; exposed: what of the
    side stream is not hidden; host: idle time of the accelerator while the host prepares launches; total: their sum
    without ``side``; spare: idle time of the host, whose launches are out before the accelerator has run them;
    reading: what of kernels waits for memory, where messages run beside them.
    """

    kernels: Matrix
    blocking: Matrix
    side: Matrix
    exposed: Matrix
    host: Matrix
    spare: Matrix
    reading: Matrix

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


def on_side_stream(machine: Machine, axis: str) -> bool:
    """Whether the runtime runs the messages of an axis beside computation."""
    return _runs_beside(machine.runtime.overlap, axis)


def _runs_beside(overlap: Overlap, axis: str) -> bool:
    flag = _HIDDEN_BY.get(axis)
    if overlap.nano_batches > 1:
        return axis in _NANO
    partly = {"ep": overlap.shared_experts, "tp": overlap.tensor_parallel_gradients}
    return bool(flag and getattr(overlap, flag)) or partly.get(axis, False)


def side_share(machine: Machine, rows: Sequence[Messages], compute: str) -> Matrix:
    """1.0 for messages that run beside computation in a format, 0.0 for those on the compute stream [R, 1]."""
    return _side_share(machine.runtime, tuple(map(_table, rows)), _places(rows), compute)


def _table(rows: Messages) -> _Table:
    return rows.op, rows.axis, rows.names


@lru_cache(maxsize=512)
def _side_share(runtime: Runtime, tables: tuple[_Table, ...], cells: bytes, compute: str) -> Matrix:
    phases, shares, start = np.frombuffer(cells, np.int64) % len(PHASES), [np.zeros((0, 1))], 0
    for table in tables:
        end = start + len(table[-1])
        shares.append(_of_table(runtime.overlap, table, phases[start:end], compute))
        start = end
    return np.concatenate(shares)


def _of_table(overlap: Overlap, table: _Table, phase: NDArray[np.int64], compute: str) -> Matrix:
    op, axis, names = table
    if overlap.nano_batches > 1:
        return np.full((len(names), 1), float(axis in _NANO))
    if axis == "tp" and not overlap.tensor_parallel:
        reducing = (phase == BACKWARD) & (op in ("reduce_scatter", "all_reduce"))
        beside = overlap.tensor_parallel_gradients & (_ending(names, (AGAIN,)) | reducing)
        return np.asarray(beside, dtype=np.float64)[:, None]
    if axis == "tp":
        plain, again = (overlap.in_pieces(op, compute, again=repeated) for repeated in (False, True))
        return np.where(_ending(names, (AGAIN,)), float(again), float(plain))[:, None]
    reduced = axis in _SHARDED and op == "reduce_scatter"
    return np.full((len(names), 1), float(overlap.gradient_reduce if reduced else _runs_beside(overlap, axis)))


@lru_cache(maxsize=256)
def _ending(names: tuple[str, ...], ends: tuple[str, ...]) -> NDArray[np.bool_]:
    """Which names have one of these ends [R]."""
    return np.array([name.endswith(ends) for name in names])


@lru_cache(maxsize=256)
def _starting(names: tuple[str, ...], start: str) -> NDArray[np.bool_]:
    """Which names begin so [R]."""
    return np.array([name.startswith(start) for name in names])


def _cover(overlap: Overlap, axis: str) -> str:
    """Which kernels run beside the messages of an axis: a family, a prefix of names, or all of the pass where empty."""
    if overlap.nano_batches > 1:
        return ""
    if axis == "ep" and overlap.shared_experts and not overlap.expert_all_to_all:
        return _SHARED
    if axis == "tp" and not overlap.tensor_parallel:
        return _COLUMNS
    return _COVERS.get(axis, "")


@lru_cache(maxsize=256)
def _covering(cover: str, tables: _Names, cells: bytes) -> Matrix:
    """1.0 for the rows of some tables that ``cover`` names, 0.0 for the others [R, 1]."""
    phase = iter((np.frombuffer(cells, np.int64) % len(PHASES)).tolist())
    return np.array([[float(_covers(cover, family, name, next(phase)))] for family, names in tables for name in names])


def _covers(cover: str, family: str, name: str, phase: int) -> bool:
    if cover == _COLUMNS:
        return family == "gemm" and phase == BACKWARD and not name.startswith(_ROWS)
    return name.startswith(_SHARED) if cover == _SHARED else family == cover


def time_passes(priced: Priced) -> Passes:
    """Form the time of each pass from its priced rows.

    Kernels and the messages on their stream add up; messages beside them cost what ``_beside`` says. The host launches
    row after row; its queue runs ahead within a pass, so a pass takes at least what all its launches take.
    """
    lowered, machine = priced.lowered, priced.machine
    compute = lowered.shapes.compute
    shape = (len(PHASES), len(lowered.units), len(lowered.shapes.plans))
    rows, sending = [table.rows for table in priced.kernels], [message.rows for message in priced.messages]
    places, sent = _places(rows), priced.sent
    counts = _stacked([r.count for r in rows], shape)
    spent = _stacked([table.seconds for table in priced.kernels], shape) * counts
    kernels = summed(spent, places, shape)
    beside = machine.runtime.overlap.shared_beside and machine.accelerator.vendor == "NVIDIA"
    if beside and lowered.expert.any() and not lowered.shapes.training:
        kernels[FORWARD] -= _beside_routed(priced, shape)
    moving, apart = sent.seconds * sent.count, side_share(machine, sending, compute)
    if machine.net is not None and sending:
        own = kernels + summed(moving * (1.0 - apart), sent.cells, shape)
        ends = np.cumsum([len(r.names) for r in sending])[:-1]
        whole, shares = (np.split(column, ends) for column in (moving, apart))
        moving = _stacked([m for _, m in crowded(list(zip(sending, whole, strict=True)), shares, own, machine)], shape)
    blocking = summed(moving * (1.0 - apart), sent.cells, shape)
    blocking[OPTIMIZER] = 0.0
    reading, waiting = np.zeros(shape), spent
    if hides_messages(priced):
        waiting = spent * _stacked([table.reads for table in priced.kernels], shape)
        reading = summed(waiting, places, shape)
    side, exposed = _beside((spent, waiting), moving * apart, apart, (kernels + blocking, reading), priced)
    launched = np.minimum(counts, _most_launches(_named(rows)))
    issued = np.concatenate([launched, sent.count])
    issue = machine.runtime.host.per_kernel * summed(issued, places + sent.cells, shape)
    host = machine.runtime.host
    counted = lowered.expert.any() and any((host.per_expert, host.per_dispatch, host.waits))
    experts = by_cell(_expert_launches(priced) if counted else [], shape)
    issue += host.per_expert * experts
    if machine.runtime.host.per_cast:
        casts = [(t.rows, t.rows.count * _ending(t.rows.names, (CAST,))[:, None]) for t in priced.kernels]
        issue += machine.runtime.host.per_cast * by_cell(casts, shape)
    if machine.runtime.host.comparing.across:
        issue += summed(sent.count * compared(sent.ranks, sent.stride, machine), sent.cells, shape)
    busy = kernels + blocking + exposed
    spare = np.maximum(0.0, busy - issue / machine.host_speed)
    return Passes(kernels, blocking, side, exposed, _host(busy, issue, experts > 0, priced), spare, reading)


def _beside_routed(priced: Priced, shape: tuple[int, int, int]) -> Matrix:
    """Seconds that a shared expert costs no more on a stream beside the routed ones [U, P].

    Both compute and move what they do, on the same units and memory; what its kernels wait for otherwise (launch,
    ramp, a wave too small) hides as far as the routed ones last.
    """
    waits, routed = [], []
    for rows, prices in ((table.rows, table.prices) for table in priced.kernels):
        busy = np.maximum(prices.compute_s, prices.memory_s)
        waits.append((rows, (prices.seconds - busy) * rows.count * _starting(rows.names, _SHARED)[:, None]))
        own = _starting(rows.names, EXPERT) | (rows.family == "moe")
        routed.append((rows, prices.seconds * rows.count * own[:, None]))
    hidden = np.minimum(by_cell(waits, shape), by_cell(routed, shape))[FORWARD]
    return np.asarray(hidden * (1.0 - host_launched(priced.lowered, priced.machine.runtime)))


@lru_cache(maxsize=256)
def _most_launches(tables: _Names) -> Matrix:
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


def _named(tables: Sequence[Kernels]) -> _Names:
    return tuple((rows.family, rows.names) for rows in tables)


def _expert_launches(priced: Priced) -> list[tuple[Kernels, Matrix]]:
    """Products of single experts, and what rounds the operands of each (of a weight gradient both are)."""
    facts = priced.machine.runtime.training
    rounds = facts.expert_casts if facts and priced.lowered.shapes.cast else 0.0
    found = []
    for table in priced.kernels:
        rows = table.rows
        if rows.family == "gemm":
            experts = rows.columns["groups"] * rows.count * _starting(rows.names, EXPERT)[:, None]
            rounded = ~_ending(rows.names, (WEIGHT_GRADIENT,))[:, None]
            found.append((rows, experts * (1.0 + rounds * rounded)))
    return found


def by_cell(parts: Sequence[tuple[Kernels | Messages, Matrix]], shape: tuple[int, int, int]) -> Matrix:
    """Values of rows [R, P] summed over the rows of each phase and unit [phases, U, P]."""
    if not parts:
        return np.zeros(shape)
    return summed(_stacked([v for _, v in parts], shape), _places([r for r, _ in parts]), shape)


def _places(tables: Sequence[Kernels | Messages]) -> bytes:
    """The cell of each row of some tables."""
    return b"".join([rows.cells for rows in tables])


def _stacked(values: Sequence[Matrix] | Sequence[NDArray[np.bool_]], shape: tuple[int, int, int]) -> Matrix:
    """The rows of several tables below each other [R, P]."""
    return np.concatenate(values) if values else np.zeros((0, shape[2]))


def summed(values: Matrix, places: bytes, shape: tuple[int, int, int]) -> Matrix:
    """Values of rows [R, P] summed over the rows of each place [phases, U, P]."""
    return (_gathering(places, shape[1]) @ values).reshape(shape)


@lru_cache(maxsize=512)
def _gathering(cells: bytes, units: int) -> Matrix:
    """The matrix [phases x U, R] that adds up rows by their cells: a product with it costs less than adding at
    places."""
    unit, phase = np.divmod(np.frombuffer(cells, np.int64), len(PHASES))
    matrix = np.zeros((len(PHASES) * units, len(unit)))
    matrix[phase * units + unit, np.arange(len(unit))] = 1.0
    return matrix


@lru_cache(maxsize=512)
def _covers_of(runtime: Runtime, units: int, tables: tuple[_Table, ...]) -> list[tuple[str, Matrix]]:
    """What runs beside messages on side streams, and of the rows that it does: which they are, the share of so many
    compute units that they occupy, and the passes over memory for each byte that they send [3, R, 1]."""
    found: dict[str, Matrix] = {}
    start, count = 0, sum(len(names) for *_, names in tables)
    for op, axis, names in tables:
        end = start + len(names)
        if _runs_beside(runtime.overlap, axis):
            rows = found.setdefault(_cover(runtime.overlap, axis), np.zeros((3, count, 1)))
            rows[:, start:end, 0] = [[1.0], [_occupied(runtime, units, axis)], [_MEMORY_PASSES[op]]]
        start = end
    return sorted(found.items())


def _beside(
    kernels: tuple[Matrix, Matrix],
    moving: Matrix,
    apart: Matrix,
    within: tuple[Matrix, Matrix],
    priced: Priced,
) -> tuple[Matrix, Matrix]:
    """Seconds of the messages on side streams, and what of them shows in a pass [phases, U, P]. ``kernels``: seconds of
    all rows, and of those that wait for memory [R, P]; ``moving``: of all messages, as far as they are ``apart`` on
    side streams; ``within``: of the whole pass, and what of it the kernels are.

    M seconds of messages slow the C seconds of kernels that cover them by the share sigma of compute units that the
    collective library occupies, and take H seconds of memory from the share mu of C that waits for it: together they
    take max(M, C + sigma M + mu H). A product runs beside its own messages in tp chunks, the first (or last) of which
    has nothing beside it: M / tp more; the exchange of a batch runs request by request beside attention of the others.
    """
    machine, sent, tp = priced.machine, priced.sent, priced.lowered.shapes.plans.tp
    (own, reading), rows_of_kernels = within, [table.rows for table in priced.kernels]
    side, exposed = np.zeros_like(own), np.zeros_like(own)
    memory = _read(sent.wire_bytes * sent.count * apart, machine)
    tables = tuple([_table(message.rows) for message in priced.messages])
    for beside, (chosen, occupied, passes) in _covers_of(machine.runtime, machine.accelerator.compute_units, tables):
        columns = moving * chosen, moving * occupied, memory * passes
        moved, slowing, read = (summed(column, sent.cells, own.shape) for column in columns)
        cover, waits = own.copy(), reading
        if beside:
            places = _places(rows_of_kernels)
            named = _covering(beside, _named(rows_of_kernels), places)
            cover, waits = (summed(part * named, places, own.shape) for part in kernels)
        slowing += read * np.divide(waits, cover, out=np.zeros_like(own), where=cover > 0)
        moved[OPTIMIZER] = slowing[OPTIMIZER] = 0.0
        if not beside:
            again = np.where(moved[RECOMPUTE] == 0.0, own[RECOMPUTE], 0.0)
            alone_under = again > 0 if machine.runtime.overlap.fetched_once else np.zeros(again.shape, bool)
            cover[BACKWARD] = np.where(alone_under, again, cover[BACKWARD] + again)
        by_request = beside == _COVERS["kvp"] and any(
            axis == "kvp" and _runs_beside(machine.runtime.overlap, axis) for _, axis, _ in tables
        )
        pieces = tp if beside == _COVERS["tp"] else priced.lowered.shapes.batch if by_request else np.inf
        alone = moved / pieces
        exposed += np.minimum(moved, alone + np.maximum(moved - alone - cover, slowing))
        side += moved
    return side, exposed


def reads(op: str, wire_bytes: Matrix, machine: Machine) -> Matrix:
    """Seconds in which messages that send so many bytes keep the memory of their rank busy."""
    return _MEMORY_PASSES[op] * _read(wire_bytes, machine)


def _read(moved: Matrix, machine: Machine) -> Matrix:
    """Seconds in which the memory of a rank moves so many bytes."""
    chip = machine.accelerator
    return np.asarray(moved / (chip.memory.hbm.bandwidth * chip.sustained.hbm))


def hides_messages(priced: Priced) -> bool:
    """Whether any messages run beside computation, in a pass or once a step."""
    overlap = priced.machine.runtime.overlap
    if overlap.gradient_reduce or overlap.parameter_gather:
        return True
    return any(on_side_stream(priced.machine, message.rows.axis) for message in priced.messages)


def occupied_share(machine: Machine, axis: str = "") -> float:
    """Share of the compute units that a running collective kernel takes from the kernels beside it: of exchanges with
    experts in training as many as their library does, of nano-batches at least these.
    """
    return _occupied(machine.runtime, machine.accelerator.compute_units, axis)


def _occupied(runtime: Runtime, of: int, axis: str) -> float:
    """The same of so many compute units."""
    communication = runtime.communication
    units = communication.compute_units
    if communication.expert and (runtime.overlap.nano_batches > 1 or (axis == "ep" and runtime.workload == "training")):
        exchange = expert_library(communication.expert).modes[BESIDE].units
        units = exchange if runtime.workload == "training" else max(units, exchange)
    return min(1.0, units / of)


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
