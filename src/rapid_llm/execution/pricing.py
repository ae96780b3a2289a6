"""Lowered rows to seconds: shapes are deduplicated, each family is priced once, prices are gathered back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rapid_llm.errors import InputError
from rapid_llm.hardware import Accelerator, System
from rapid_llm.lowering import Kernels, Lowered, Messages
from rapid_llm.lowering.table import BACKWARD
from rapid_llm.network import OPS, CollectivePrices, Fabric, price_experts
from rapid_llm.network import price as price_messages
from rapid_llm.nouns import replaced
from rapid_llm.operators import Prices
from rapid_llm.operators import price as price_kernels
from rapid_llm.runtime import Runtime

Matrix = NDArray[np.float64]
SCALED_ELEMENT = 1.0 + 4.0 / 128.0
"""Bytes of an FP8 element of a token state, with its share of an FP32 scale for 128 of them (DeepEP)."""
DEDUPLICATE_ABOVE = 256
"""Rows from which sorting out repeated shapes costs less than pricing them."""


@dataclass(frozen=True, slots=True)
class Machine:
    """What prices a step: one accelerator, its fabric, the runtime, whether long compute-bound work throttles it, and
    the speed of the CPUs that feed it over those the runtime's host costs were measured on."""

    accelerator: Accelerator
    fabric: Fabric
    runtime: Runtime
    clock: float
    host_speed: float

    @classmethod
    def of(cls, system: System, runtime: Runtime) -> Machine:
        """The machine of a system with one node group. Training keeps the matrix units busy for hours, so it runs at
        the clock that the power limit sustains; inference alternates with memory-bound decode and runs at boost."""
        if len(system.groups) > 1:
            raise InputError(f"system '{system.name}' has {len(system.groups)} node groups; one is priced so far.")
        accelerator = system.groups[0].node.accelerator
        clock = accelerator.sustained.clock if runtime.workload == "training" else 1.0
        fabric = Fabric.of(_driven(system, runtime.communication.nics))
        return cls(accelerator, fabric, runtime, clock, system.groups[0].node.host_speed)


@lru_cache(maxsize=64)
def _driven(system: System, nics: int | None) -> System:
    """The system with only as many network cards a node as the runtime's collectives drive."""
    group = system.groups[0]
    cards = group.node.nics
    if nics is None or cards is None or cards.count <= nics:
        return system
    node = replaced(group.node, nics=replaced(cards, count=nics))
    return replaced(system, groups=(replaced(group, node=node),))


@dataclass(frozen=True, slots=True)
class PricedKernels:
    """A table of kernels with its prices [R, P] per launch."""

    rows: Kernels
    kernel: str
    prices: Prices


@dataclass(frozen=True, slots=True)
class PricedMessages:
    """A table of messages with its prices [R, P] per message."""

    rows: Messages
    prices: CollectivePrices


@lru_cache(maxsize=1024)
def implementation(runtime: Runtime, family: str, dtype: str, architecture: str) -> str:
    """The kernel implementation that ``runtime`` runs for a family: the most specific of dtype@architecture, dtype,
    @architecture, default."""
    table: dict[str, str] = getattr(runtime.kernels, family)
    for key in (f"{dtype}@{architecture}", dtype, f"@{architecture}", "default"):
        if key in table:
            return table[key]
    raise InputError(
        f"runtime '{runtime.name}' has no {family} kernel for {dtype} on {architecture}: "
        f"it has {', '.join(sorted(table))}."
    )


def price_table(rows: Kernels, machine: Machine) -> PricedKernels:
    """Price one table of kernels on a machine."""
    name = implementation(machine.runtime, rows.family, rows.dtype, machine.accelerator.architecture)
    shape = rows.count.shape
    cells = np.stack([column.ravel() for column in rows.columns.values()])
    unique, inverse = (cells, None) if cells.shape[1] < DEDUPLICATE_ABOVE else _distinct(cells)
    prices = price_kernels(
        rows.family,
        dict(zip(rows.columns, unique, strict=True)),
        kind=rows.kind,
        dtype=rows.dtype,
        kernel=name,
        accelerator=machine.accelerator,
        clock=machine.clock,
    )
    if inverse is None:
        return PricedKernels(rows, name, _map(prices, lambda column: column.reshape(shape)))
    return PricedKernels(rows, name, _map(prices, lambda column: column[inverse].reshape(shape)))


def _map(prices: Prices, change: Callable[[Matrix], Matrix]) -> Prices:
    changed: dict[str, Any] = {name: change(getattr(prices, name)) for name in Prices.__slots__}
    return Prices(**changed)


def _distinct(cells: Matrix) -> tuple[Matrix, NDArray[np.int64]]:
    """Distinct columns of a [C, N] table and where each of the N came from."""
    packed = np.ascontiguousarray(cells.T).view(np.dtype((np.void, cells.shape[0] * cells.itemsize))).ravel()
    _, first, inverse = np.unique(packed, return_index=True, return_inverse=True)
    return cells[:, first], inverse


def price_all_messages(tables: tuple[Messages, ...], machine: Machine) -> tuple[PricedMessages, ...]:
    """Price every table of messages in one call."""
    if not tables:
        return ()
    codes = np.concatenate([np.full(t.size.size, OPS.index(t.op)) for t in tables])
    size = np.concatenate([t.size.ravel() for t in tables])
    ranks = np.concatenate([t.ranks.ravel() for t in tables])
    stride = np.concatenate([t.stride.ravel() for t in tables])
    prices = price_group(codes, size, ranks, stride, machine)
    out, start = [], 0
    for table in tables:
        stop = start + table.size.size
        part = {
            name: getattr(prices, name)[start:stop].reshape(table.size.shape) for name in CollectivePrices.__slots__
        }
        out.append(PricedMessages(table, CollectivePrices(**part)))
        start = stop
    return tuple(out)


def price_group(
    codes: NDArray[np.int64], size: Matrix, ranks: Matrix, stride: Matrix, machine: Machine
) -> CollectivePrices:
    """Price messages by op code with the libraries of the machine's runtime."""
    communication = machine.runtime.communication
    return price_messages(
        codes,
        size,
        ranks.astype(np.int64),
        stride.astype(np.int64),
        fabric=machine.fabric,
        library=communication.library,
        small=communication.small_all_reduce,
    )


@dataclass(frozen=True, slots=True)
class Priced:
    """A lowered step with a price on every row."""

    lowered: Lowered
    machine: Machine
    kernels: tuple[PricedKernels, ...]
    messages: tuple[PricedMessages, ...]


def price_step(lowered: Lowered, machine: Machine) -> Priced:
    """Price all rows of a lowered step."""
    messages = price_all_messages(lowered.messages, machine)
    if machine.runtime.communication.expert:
        messages = tuple(_by_experts(message, lowered, machine) for message in messages)
    return Priced(
        lowered,
        machine,
        tuple(price_table(rows, machine) for rows in lowered.kernels),
        tuple(_with_drift(message, lowered, machine) for message in messages) if _drifts(machine) else messages,
    )


def _by_experts(message: PricedMessages, lowered: Lowered, machine: Machine) -> PricedMessages:
    """Dispatch and combine priced by a library made for them. The backward pass of one is the other; training runs the
    kernels that the host waits for, inference whichever is faster. Token states of one byte carry scales beside them.
    """
    rows, s, library = message.rows, lowered.shapes, machine.runtime.communication.expert
    if rows.op != "all_to_all" or rows.axis != "ep" or library is None:
        return message
    tokens = rows.size / (lowered.experts_per_token * lowered.hidden_size * s.act)
    combines = [(name == "combine") != (phase == BACKWARD) for name, phase in zip(rows.names, rows.phase, strict=True)]
    back = np.array(combines)
    out = np.where(s.input < s.act, SCALED_ELEMENT, s.act) if not s.training else s.act
    seconds, wire = np.empty((2, *rows.size.shape))
    for phase, at in (("combine", back), ("dispatch", ~back)):
        found = price_experts(
            phase,
            tokens[at],
            hidden_size=lowered.hidden_size,
            experts_per_token=lowered.experts_per_token,
            experts=lowered.experts,
            ranks=rows.ranks[at],
            stride=rows.stride[at],
            fabric=machine.fabric,
            library=library,
            mode="normal" if s.training else None,
            element_bytes=s.act if phase == "combine" else out,
        )
        seconds[at], wire[at] = found.seconds, found.wire_bytes
    return replace(message, prices=replace(message.prices, seconds=seconds, wire_bytes=wire))


def host_launched(lowered: Lowered, runtime: Runtime) -> Matrix:
    """1.0 for plans (or points) whose forward pass the host launches kernel by kernel, 0.0 for a replayed graph [P]."""
    s, captured = lowered.shapes, runtime.host.captured
    if s.training:
        return np.full(len(s.plans), float("forward" not in captured))
    return np.where(s.decode > 0, float("decode" not in captured), float("prefill" not in captured))


def _drifts(machine: Machine) -> bool:
    host = machine.runtime.host
    return bool(host.per_peer or host.per_peer_across)


def further(per_rank: float, ranks: Matrix, stride: Matrix, machine: Machine) -> Matrix:
    """``per_rank`` seconds for each rank but the first of groups that cross nodes, 0 for those inside one."""
    return np.where((ranks - 1.0) * stride >= machine.fabric.node_span, per_rank * (ranks - 1.0), 0.0)


def _with_drift(message: PricedMessages, lowered: Lowered, machine: Machine) -> PricedMessages:
    """A collective starts when its last rank has launched it.

    It takes at least ``per_peer`` log2 of the ranks of the group; groups that cross nodes take ``per_peer_across`` for
    each further rank besides.
    """
    rows, host = message.rows, machine.runtime.host
    launched = host_launched(lowered, machine.runtime) / machine.host_speed
    seconds = message.prices.seconds + launched * further(host.per_peer_across, rows.ranks, rows.stride, machine)
    seconds = np.where(
        rows.ranks > 1, np.maximum(seconds, np.log2(rows.ranks) * host.per_peer * launched), message.prices.seconds
    )
    return replace(message, prices=replace(message.prices, seconds=seconds))
