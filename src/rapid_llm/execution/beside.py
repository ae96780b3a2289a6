"""What runs beside what: messages on streams of their own, and the kernels of a pass that cover them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from rapid_llm.execution.cells import Matrix, Names, ending, named, places_of, summed
from rapid_llm.execution.machine import Machine
from rapid_llm.execution.pricing import Priced
from rapid_llm.lowering import Messages
from rapid_llm.lowering.table import AGAIN, BACKWARD, OPTIMIZER, PHASES, RECOMPUTE
from rapid_llm.network import expert_library
from rapid_llm.runtime import Overlap, Runtime

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
SHARED = "shared_"
"""How the names of kernels of shared experts begin."""


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
    return _side_share(machine.runtime, tuple(map(_table, rows)), places_of(rows), compute)


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
        beside = overlap.tensor_parallel_gradients & (ending(names, (AGAIN,)) | reducing)
        return np.asarray(beside, dtype=np.float64)[:, None]
    if axis == "tp":
        plain, again = (overlap.in_pieces(op, compute, again=repeated) for repeated in (False, True))
        return np.where(ending(names, (AGAIN,)), float(again), float(plain))[:, None]
    reduced = axis in _SHARDED and op == "reduce_scatter"
    return np.full((len(names), 1), float(overlap.gradient_reduce if reduced else _runs_beside(overlap, axis)))


def _cover(overlap: Overlap, axis: str) -> str:
    """Which kernels run beside the messages of an axis: a family, a prefix of names, or the whole pass where empty."""
    if overlap.nano_batches > 1:
        return ""
    if axis == "ep" and overlap.shared_experts and not overlap.expert_all_to_all:
        return SHARED
    if axis == "tp" and not overlap.tensor_parallel:
        return _COLUMNS
    return _COVERS.get(axis, "")


@lru_cache(maxsize=256)
def _covering(cover: str, tables: Names, cells: bytes) -> Matrix:
    """1.0 for the rows of some tables that ``cover`` names, 0.0 for the others [R, 1]."""
    phase = iter((np.frombuffer(cells, np.int64) % len(PHASES)).tolist())
    return np.array([[float(_covers(cover, family, name, next(phase)))] for family, names in tables for name in names])


def _covers(cover: str, family: str, name: str, phase: int) -> bool:
    if cover == _COLUMNS:
        return family == "gemm" and phase == BACKWARD and not name.startswith(_ROWS)
    return name.startswith(SHARED) if cover == SHARED else family == cover


@lru_cache(maxsize=512)
def _covers_of(runtime: Runtime, units: int, tables: tuple[_Table, ...]) -> list[tuple[str, Matrix]]:
    """What runs beside messages on side streams: which rows do, the share of the compute units that the collective
    library occupies then, and the passes over memory for each byte sent [3, R, 1].
    """
    found: dict[str, Matrix] = {}
    start, count = 0, sum(len(names) for *_, names in tables)
    for op, axis, names in tables:
        end = start + len(names)
        if _runs_beside(runtime.overlap, axis):
            rows = found.setdefault(_cover(runtime.overlap, axis), np.zeros((3, count, 1)))
            rows[:, start:end, 0] = [[1.0], [_occupied(runtime, units, axis)], [_MEMORY_PASSES[op]]]
        start = end
    return sorted(found.items())


def beside_kernels(
    kernels: tuple[Matrix, Matrix],
    moving: Matrix,
    apart: Matrix,
    within: tuple[Matrix, Matrix],
    priced: Priced,
) -> tuple[Matrix, Matrix]:
    """Seconds of the messages on side streams, and the part of them that shows in a pass [phases, U, P].

    ``kernels``: seconds of all rows, and of those that wait for memory [R, P]; ``moving``: of all messages, where they
    are ``apart`` on side streams; ``within``: of the whole pass, and of the kernels in it. M seconds of messages slow
    the C seconds of kernels that cover them by the share sigma of compute units that the collective library occupies,
    and take H seconds of memory bandwidth from the share mu of C that waits for memory: together they take max(M, C +
    sigma M + mu H). A product runs beside its own messages in tp chunks, the first (or last) of which has nothing
    beside it: M / tp more. The exchange of a batch runs request by request beside attention of the other requests.
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
            places = places_of(rows_of_kernels)
            covering = _covering(beside, named(rows_of_kernels), places)
            cover, waits = (summed(part * covering, places, own.shape) for part in kernels)
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
    """Seconds for which messages of a number of sent bytes keep the memory of their rank busy."""
    return _MEMORY_PASSES[op] * _read(wire_bytes, machine)


def _read(moved: Matrix, machine: Machine) -> Matrix:
    """Seconds in which the memory of a rank moves a number of bytes."""
    chip = machine.accelerator
    return np.asarray(moved / (chip.memory.hbm.bandwidth * chip.sustained.hbm))


def hides_messages(priced: Priced) -> bool:
    """Whether any messages run beside computation, in a pass or once a step."""
    overlap = priced.machine.runtime.overlap
    if overlap.gradient_reduce or overlap.parameter_gather:
        return True
    return any(on_side_stream(priced.machine, message.rows.axis) for message in priced.messages)


def occupied_share(machine: Machine, axis: str = "") -> float:
    """Share of the compute units that a running collective takes from the kernels beside it: in training, exchanges of
    experts take as many as their library does; under nano-batches at least those.
    """
    return _occupied(machine.runtime, machine.accelerator.compute_units, axis)


def _occupied(runtime: Runtime, of: int, axis: str) -> float:
    """The share that a number of compute units is."""
    communication = runtime.communication
    units = communication.compute_units
    if communication.expert and (runtime.overlap.nano_batches > 1 or (axis == "ep" and runtime.workload == "training")):
        exchange = expert_library(communication.expert).modes[BESIDE].units
        units = exchange if runtime.workload == "training" else max(units, exchange)
    return min(1.0, units / of)
