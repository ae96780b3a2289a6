"""Lowered rows to seconds: shapes are deduplicated, each family is priced once, prices are gathered back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property, lru_cache
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from rapid_llm import operators
from rapid_llm.dtypes import dtype as number_format
from rapid_llm.errors import InputError
from rapid_llm.execution.alike import ALL, DEDUPLICATE_ABOVE, distinct, runs_of
from rapid_llm.execution.machine import Machine
from rapid_llm.hardware import Accelerator
from rapid_llm.lowering import Kernels, Lowered, Messages
from rapid_llm.lowering.table import BACKWARD, CAST
from rapid_llm.network import OPS, CollectivePrices, price_experts
from rapid_llm.network.collectives import price_rows as price_messages
from rapid_llm.network.flow_prices import (
    Message,
    Policy,
    policy,
    price_flow,
)
from rapid_llm.nouns import light, replaced
from rapid_llm.operators import Prices
from rapid_llm.operators import price_rows as price_kernels
from rapid_llm.operators.kernels import AttentionKernel
from rapid_llm.operators.rates import ON_CHIP_POWER, rates
from rapid_llm.operators.work import lateness
from rapid_llm.runtime import Runtime

Matrix = NDArray[np.float64]
SCALED_ELEMENT = 1.0 + 4.0 / 128.0
"""Bytes of an FP8 element of a token state, with its share of an FP32 scale for 128 of them (DeepEP)."""
_TURNED = operators.POINTWISE_KINDS.index("gather")
"""Access pattern of a cast that turns its operand."""


@light
class PricedKernels:
    """A table of kernels with its prices per launch: of its ``distinct`` cells, and ``at`` which of them each cell
    [R, P] is, or of all [R, P] where that is None."""

    rows: Kernels
    kernel: str
    distinct: Prices
    at: NDArray[np.int64] | None = None

    @property
    def seconds(self) -> Matrix:
        """Seconds of each launch [R, P]."""
        return self._spread(self.distinct.seconds)

    @property
    def reads(self) -> NDArray[np.bool_]:
        """Which launches memory binds [R, P]."""
        return self._spread(self.distinct.reads)

    @property
    def prices(self) -> Prices:
        """All that is known of each launch [R, P]."""
        return self.distinct if self.at is None else self.distinct.each(self._spread)

    def _spread(self, column: NDArray[Any]) -> NDArray[Any]:
        return column if self.at is None else column[self.at]


@light
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
        f"it has {', '.join(sorted(table)) or 'none at all'}. See: rapid-llm list kernels"
    )


def _clock(rows: Kernels, kernel: str, dtype: str, machine: Machine) -> float:
    """Share of the clock at which the kernels of a table run for hours.

    The machine's is that of long 16-bit products, at the limit of power, where narrower ones have none of their own. A
    kernel that keeps the matrix units less busy
    draws less: dynamic power is activity x frequency x voltage^2, and voltage follows frequency, so that the same power
    buys (power of products / its own)^(1/3) of the clock, up to boost. A kernel is busy for its rate; attention less,
    for the exponentials beside both products of a position (``operators.attention``), and at less power. The slowest
    accelerator of the job sets the ``pace`` of what the limit slows.
    """
    if machine.clock >= 1.0 or rows.family not in ("attention", "gemm", "moe"):
        return machine.clock * (machine.pace if machine.clock < 1.0 else 1.0)
    chip = machine.accelerator
    chosen = operators.kernel(kernel).shaped(chip.architecture)
    own = chosen.on(chip.architecture)
    busy = own.rate
    if rows.family == "attention":
        width = 2.0 * float(rows.columns["head_dim"].max())
        known = rates(chip, rows.dtype)
        exponential = own.softmax / 2.0 * known.attention / known.exponentials
        busy = known.reached(busy, pipe=known.pipe(cast(AttentionKernel, chosen).product_bits))
        busy *= ON_CHIP_POWER * width / float(np.hypot(width, exponential))
    product = implementation(machine.runtime, "gemm", "bf16", chip.architecture)
    reference = operators.kernel(product).on(chip.architecture)
    held = chip.sustained.clock_of(number_format(dtype).rate)
    return min(max(held * float((reference.rate / busy) ** (1.0 / 3.0)), held) * machine.pace, 1.0)


def price_table(rows: Kernels, machine: Machine) -> PricedKernels:
    """Price one table of kernels on a machine."""
    dtype = computed(rows, machine.accelerator)
    name = implementation(machine.runtime, rows.family, dtype, machine.accelerator.architecture)
    columns = np.array(list(rows.columns.values()))
    first, runs = (ALL, None) if rows.family == "attention" else runs_of(columns)  # whose caches all differ
    cells = columns[:, :, first]
    shape = cells.shape[1:]
    cells, kinds, inverse = cells.reshape(len(columns), -1), rows.kind.repeat(shape[1]), None
    if cells.shape[1] >= DEDUPLICATE_ABOVE:
        unique, inverse = distinct(np.concatenate([kinds[None], cells]))
        cells, kinds = unique[1:], unique[0].astype(np.int64)
    prices = price_kernels(
        rows.family,
        cells,
        kind=kinds,
        dtype=dtype,
        kernel=name,
        accelerator=machine.accelerator,
        clock=_clock(rows, name, dtype, machine),
    )
    if inverse is None and runs is None:
        return PricedKernels(rows, name, prices.each(lambda column: column.reshape(shape)))
    at = (np.arange(shape[0] * shape[1]) if inverse is None else inverse).reshape(shape)
    return PricedKernels(rows, name, prices, at if runs is None else at[:, runs])


def computed(rows: Kernels, accelerator: Accelerator) -> str:
    """The format in which rows multiply: attention over an 8-bit cache, and an indexer's scores, which engines take in
    fp8 whatever the precision, widen it where the accelerator has no rate."""
    if rows.family not in ("attention", "gemm") or accelerator.rate(number_format(rows.dtype).rate) is not None:
        return rows.dtype
    return next((wide for wide in ("bf16", "fp16") if accelerator.rate(wide) is not None), rows.dtype)


@light
class Request:
    """Messages of one operation to be priced: bytes, ranks of their groups, stride between them, of one shape; and the
    parallel axis that sends them, for sentences."""

    op: str
    size: Matrix
    ranks: Matrix
    stride: Matrix
    axis: str = ""


def price_requests(requests: Sequence[Request], machine: Machine) -> list[CollectivePrices]:
    """Price messages with the libraries of the machine's runtime, all in one call; each in the shape of its request.

    Link by link where the machine has a ``net``: InfeasibleError where its faults cut a group apart.
    """
    if not requests:
        return []
    if (carrier := machine.carrier) is not None:
        return [price_flow(r.op, r.size, r.ranks, r.stride, carrier, axis=said(r.axis)) for r in requests]
    communication = machine.runtime.communication
    groups = np.empty((3, sum(r.size.size for r in requests)), np.int64)
    parts, start = [], 0
    for r in requests:
        parts.append(part := slice(start, start + r.size.size))
        groups[0, part], groups[1, part], groups[2, part] = OPS.index(r.op), r.ranks.ravel(), r.stride.ravel()
        start = part.stop
    sizes = np.concatenate([r.size.ravel() for r in requests])
    prices = price_messages(
        groups,
        sizes,
        fabric=machine.fabric,
        library=communication.library,
        small=communication.small_all_reduce,
    )
    return [prices.part(part, r.size.shape) for r, part in zip(requests, parts, strict=True)]


def said(axis: str) -> str:
    """The name by which a user knows an axis."""
    return _SAID.get(axis, axis)


_SAID = {"kvp": "cp", "data": "dp", "shard": "dp", "replicas": "dp", "edp": "dp"}
"""Axes whose groups a user knows by another name."""


@light
class Sent:
    """The messages of all tables below each other [R, P]: of one the seconds, bytes on the wire, ranks and stride; and
    how many go out in a pass, none within one rank. ``cells`` as those of the tables."""

    seconds: Matrix
    wire_bytes: Matrix
    ranks: Matrix
    stride: Matrix
    count: Matrix
    cells: bytes

    @classmethod
    def of(cls, messages: Sequence[PricedMessages], plans: int) -> Sent:
        """Several tables as one."""
        parts = [(m.prices.seconds, m.prices.wire_bytes, m.rows.ranks, m.rows.stride, m.rows.count) for m in messages]
        columns = [np.concatenate(column) for column in zip(*parts, strict=True)] or [np.zeros((0, plans))] * 5
        seconds, wire_bytes, ranks, stride, count = columns
        cells = b"".join([m.rows.cells for m in messages])
        return cls(seconds, wire_bytes, ranks, stride, count * (ranks > 1), cells)


@light
class Priced:
    """A lowered step with a price on every row; ``others``: prices of the further requests, in their order;
    ``requests``: all that was asked of the network."""

    lowered: Lowered
    machine: Machine
    kernels: tuple[PricedKernels, ...]
    messages: tuple[PricedMessages, ...]
    others: tuple[CollectivePrices, ...]
    requests: tuple[Request, ...] = ()

    @cached_property
    def sent(self) -> Sent:
        """The messages of all passes."""
        return Sent.of(self.messages, len(self.lowered.shapes.plans))


def policies(priced: Priced) -> dict[tuple[str, str], Policy]:
    """How messages go on after faults, by axis and operation: the largest of each that faults slow down."""
    carrier, found = priced.machine.carrier, dict[tuple[str, str], tuple[float, Policy]]()
    if carrier is None:
        return {}
    for request in priced.requests:
        key = said(request.axis), request.op
        columns = (np.ravel(request.size), np.ravel(request.ranks), np.ravel(request.stride))
        for size, ranks, stride in dict.fromkeys(
            zip(*(c.tolist() for c in np.broadcast_arrays(*columns)), strict=True)
        ):
            if size <= found.get(key, (0.0,))[0]:
                continue
            one = policy(Message(request.op, size, int(ranks), int(stride)), carrier)
            if one is not None:
                found[key] = size, one
    return {key: one for key, (_, one) in found.items()}


def price_step(lowered: Lowered, machine: Machine, others: Sequence[Request] = ()) -> Priced:
    """Price all rows of a lowered step, and ``others``: messages that no pass of a unit sends."""
    rows = [Request(table.op, table.size, table.ranks, table.stride, table.axis) for table in lowered.messages]
    found = price_requests([*rows, *others], machine)
    messages = tuple(PricedMessages(*pair) for pair in zip(lowered.messages, found, strict=False))
    if machine.runtime.communication.piece:
        messages = tuple(_by_pieces(message, machine) for message in messages)
    if machine.runtime.communication.expert:
        messages = tuple(_by_experts(message, lowered, machine) for message in messages)
    return Priced(
        lowered,
        machine,
        tuple(_unturned(price_table(rows, machine), lowered, machine) for rows in lowered.kernels),
        tuple(_with_skew(message, lowered, machine) for message in messages) if machine.runtime.host.skew else messages,
        tuple(found[len(messages) :]),
        (*rows, *others),
    )


def _unturned(table: PricedKernels, lowered: Lowered, machine: Machine) -> PricedKernels:
    """A table without the copies of rounded operands that weight gradients multiply, where their products read both
    ways."""
    rows, chip = table.rows, machine.accelerator.architecture
    if rows.family != "pointwise" or not lowered.shapes.cast:
        return table
    product = operators.kernel(implementation(machine.runtime, "gemm", lowered.shapes.compute, chip)).shaped(chip)
    if getattr(product, "turns", True):
        return table
    kept = _not_turned(rows.names, tuple(rows.kind.tolist()))
    return replaced(table, distinct=table.prices.each(lambda column: column * kept), at=None)


@lru_cache(maxsize=256)
def _not_turned(names: tuple[str, ...], kinds: tuple[int, ...]) -> NDArray[np.bool_]:
    """Which rows of a table are no casts that turn their operand [R, 1]."""
    return np.array([[not (n.endswith(CAST) and k == _TURNED)] for n, k in zip(names, kinds, strict=True)])


def _by_pieces(message: PricedMessages, machine: Machine) -> PricedMessages:
    """Messages of sharded weights with the copies, one a rank, between a list of tensors and the library's buffer."""
    rows = message.rows
    if rows.axis not in ("shard", "edp"):
        return message
    copies = np.where(rows.ranks > 1, rows.ranks * machine.runtime.communication.piece, 0.0)
    return replaced(message, prices=replaced(message.prices, seconds=message.prices.seconds + copies))


def _by_experts(message: PricedMessages, lowered: Lowered, machine: Machine) -> PricedMessages:
    """Dispatch and combine priced by a library made for them. The backward pass of one is the other; training runs the
    kernels that the host waits for, inference those of decode as far as their buffers hold. Token states of one byte
    carry scales beside them. Link by link, it takes longer by as much as the exchange of a collective library does.
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
            node_share=lowered.reached_groups,
            ranks=rows.ranks[at],
            stride=rows.stride[at],
            fabric=machine.fabric,
            library=library,
            mode="normal" if s.training else None,
            element_bytes=s.act if phase == "combine" else out,
        )
        seconds[at], wire[at] = found.seconds, found.wire_bytes
    if machine.net is not None:
        (plain,) = price_requests([Request(rows.op, rows.size, rows.ranks, rows.stride)], replace(machine, net=None))
        taken = message.prices.seconds
        seconds *= np.divide(taken, plain.seconds, out=np.ones_like(taken), where=plain.seconds > 0)
    return replaced(message, prices=replaced(message.prices, seconds=seconds, wire_bytes=wire))


def host_launched(lowered: Lowered, runtime: Runtime) -> Matrix:
    """1.0 for plans (or points) whose forward pass the host launches kernel by kernel, 0.0 for a replayed graph, what
    is left of it for graphs between attentions [P]."""
    s, captured = lowered.shapes, runtime.host.captured
    if s.training:
        return np.full(len(s.plans), float("forward" not in captured))
    pieces = runtime.host.pieces
    prompts = float("prefill" not in captured) * np.where(s.tokens <= pieces.tokens, pieces.left, 1.0)
    return np.where(s.decode > 0, float("decode" not in captured), prompts)


def compared(ranks: Matrix, stride: Matrix, machine: Machine) -> Matrix:
    """Seconds, on a host of speed 1, in which the hosts of a group compare one collective before they launch it."""
    comparing = machine.runtime.host.comparing
    if not (comparing.across or comparing.inside):
        return np.zeros(ranks.shape)
    across = (ranks - 1.0) * stride >= machine.fabric.node_span
    return np.where(ranks > 1, ranks * np.where(across, comparing.across, comparing.inside), 0.0)


def _with_skew(message: PricedMessages, lowered: Lowered, machine: Machine) -> PricedMessages:
    """Collectives that hosts launch, each after the last of its ranks has come to it."""
    launched = host_launched(lowered, machine.runtime) / machine.host_speed
    ranks, at = np.unique(message.rows.ranks, return_inverse=True)
    late = np.array([lateness(n) for n in ranks.tolist()])[at].reshape(message.rows.ranks.shape)
    seconds = message.prices.seconds + late * machine.runtime.host.skew * launched
    return replaced(message, prices=replaced(message.prices, seconds=seconds))
