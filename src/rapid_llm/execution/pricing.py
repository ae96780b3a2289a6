"""Lowered rows to seconds: shapes are deduplicated, each family is priced once, prices are gathered back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rapid_llm import operators
from rapid_llm.dtypes import dtype as number_format
from rapid_llm.errors import InputError
from rapid_llm.hardware import Accelerator, Node, NodeGroup, System, part_of
from rapid_llm.lowering import Kernels, Lowered, Messages
from rapid_llm.lowering.table import BACKWARD, CAST
from rapid_llm.network import OPS, CollectivePrices, Fabric, price_experts
from rapid_llm.network import price as price_messages
from rapid_llm.network.flow_prices import Interconnect, Links, Policy, interconnect, policy, price_flow
from rapid_llm.network.technologies import library_for
from rapid_llm.nouns import replaced
from rapid_llm.operators import Prices
from rapid_llm.operators import price as price_kernels
from rapid_llm.operators.rates import rates
from rapid_llm.runtime import Runtime

Matrix = NDArray[np.float64]
SCALED_ELEMENT = 1.0 + 4.0 / 128.0
"""Bytes of an FP8 element of a token state, with its share of an FP32 scale for 128 of them (DeepEP)."""
ON_CHIP_POWER = 0.5
"""Of the dynamic power of a product, what attention draws per operation: scores stay in registers and shared memory,
and about half of a product's power moves its operands there (step times of Llama 3 8B on B200, Megatron-Bridge, fit
half: attention at 0.83 of the clock where products have 0.61)."""
_TURNED = operators.POINTWISE_KINDS.index("gather")
"""Access pattern of a cast that turns its operand."""
DEDUPLICATE_ABOVE = 256
"""Rows from which sorting out repeated shapes costs less than pricing them."""


@dataclass(frozen=True, slots=True)
class Machine:
    """What prices a step: one accelerator, its fabric, the runtime, whether long compute-bound work throttles it, and
    the speed of the CPUs that feed it over those the runtime's host costs were measured on; ``node`` holds it. With
    ``net``, messages are priced link by link."""

    accelerator: Accelerator
    fabric: Fabric
    runtime: Runtime
    clock: float
    host_speed: float
    node: Node
    net: Interconnect | None = None

    @classmethod
    def of(cls, system: System, runtime: Runtime, links: Links | None = None) -> Machine:
        """The machine of a system of equal nodes."""
        system = part_of(system, system.accelerators)
        if system.mixed:
            names = " and ".join(group.name for group in system.groups)
            raise InputError(
                f"system '{system.name}' joins unlike groups of nodes, {names}, which only the stages of a training "
                "job can be laid over. Try a system of one of them.",
                field="system",
            )
        node = system.groups[0].node
        runtime = at_home(runtime, node.accelerator.vendor)
        system = driven(system, runtime.communication.nics)
        net = None if links is None else interconnect(system, links)
        return cls.on(node, Fabric.of(system), runtime, net)

    @classmethod
    def on(cls, node: Node, fabric: Fabric, runtime: Runtime, net: Interconnect | None = None) -> Machine:
        """The machine of a node. Training keeps the matrix units busy for hours, so it runs at the clock that the power
        limit sustains; inference alternates with memory-bound decode and runs at boost."""
        chip = node.accelerator
        clock = chip.sustained.clock if runtime.workload == "training" else 1.0
        return cls(chip, fabric, runtime, clock, node.host_speed, node, net)


@lru_cache(maxsize=64)
def at_home(runtime: Runtime, vendor: str) -> Runtime:
    """The runtime with the vendor's collective library where it calls NVIDIA's, which runs on no other accelerator."""
    communication, native = runtime.communication, library_for(vendor)
    if communication.library != library_for("NVIDIA") or native == communication.library:
        return runtime
    return replaced(runtime, communication=replaced(communication, library=native))


@lru_cache(maxsize=64)
def driven(system: System, nics: int | None) -> System:
    """The system with only as many network cards a node as the runtime's collectives drive."""
    if nics is None or all(g.node.nics is None or g.node.nics.count <= nics for g in system.groups):
        return system
    return replaced(system, groups=tuple(_with_cards(group, nics) for group in system.groups))


def _with_cards(group: NodeGroup, most: int) -> NodeGroup:
    cards = group.node.nics
    if cards is None or cards.count <= most:
        return group
    return replaced(group, node=replaced(group.node, nics=replaced(cards, count=most)))


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


def _clock(rows: Kernels, kernel: str, machine: Machine) -> float:
    """Share of the clock at which the kernels of a table run for hours.

    The machine's is that of long products, at the limit of power. A kernel that keeps the matrix units less busy draws
    less: dynamic power is activity x frequency x voltage^2, and voltage follows frequency, so that the same power buys
    (power of products / its own)^(1/3) of the clock, up to boost. Attention is busy for its rate, but for the
    exponentials beside both products of a position (``operators.attention``).
    """
    if rows.family != "attention" or machine.clock >= 1.0:
        return machine.clock
    chip = machine.accelerator
    product = implementation(machine.runtime, "gemm", rows.dtype, chip.architecture)
    own, reference = (operators.kernel(name).on(chip.architecture) for name in (kernel, product))
    width = 2.0 * float(rows.columns["head_dim"].max())
    known = rates(chip, rows.dtype)
    exponential = own.softmax / 2.0 * known.peak / known.exponentials
    busy = own.rate * width / float(np.hypot(width, exponential))
    return float(min(1.0, machine.clock * (reference.rate / (ON_CHIP_POWER * busy)) ** (1.0 / 3.0)))


def price_table(rows: Kernels, machine: Machine) -> PricedKernels:
    """Price one table of kernels on a machine."""
    dtype = _computed(rows, machine.accelerator)
    name = implementation(machine.runtime, rows.family, dtype, machine.accelerator.architecture)
    columns = np.array(list(rows.columns.values()))
    first, runs = (_ALL, _ALL) if rows.family == "attention" else _runs(columns)  # whose caches all differ
    columns = columns[:, :, first]
    shape = columns.shape[1:]
    kinds = np.repeat(rows.kind, shape[1])
    cells = np.concatenate([kinds[None], columns.reshape(len(columns), -1)])
    unique, inverse = (cells, None) if cells.shape[1] < DEDUPLICATE_ABOVE else _distinct(cells)
    prices = price_kernels(
        rows.family,
        dict(zip(rows.columns, unique[1:], strict=True)),
        kind=kinds if inverse is None else unique[0].astype(np.int64),
        dtype=dtype,
        kernel=name,
        accelerator=machine.accelerator,
        clock=_clock(rows, name, machine),
    )
    if inverse is None:
        return PricedKernels(rows, name, _map(prices, lambda column: column.reshape(shape)[:, runs]))
    back = inverse.reshape(shape)[:, runs]
    return PricedKernels(rows, name, _map(prices, lambda column: column[back]))


_ALL = slice(None)


def _runs(columns: NDArray[np.float64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The first plan of every run of plans with equal rows, and the run of each plan, from columns [C, R, P].

    Decode steps of one batch differ in their cache alone, so most tables have one run of them.
    """
    changes = (columns[:, :, 1:] != columns[:, :, :-1]).any(axis=(0, 1))
    runs = np.concatenate([[0], np.cumsum(changes)])
    return np.flatnonzero(np.concatenate([[True], changes])), runs


def _computed(rows: Kernels, accelerator: Accelerator) -> str:
    """The format in which rows multiply: attention over an 8-bit cache widens it where the accelerator has no rate."""
    if rows.family != "attention" or accelerator.rate(number_format(rows.dtype).rate) is not None:
        return rows.dtype
    return next((wide for wide in ("bf16", "fp16") if accelerator.rate(wide) is not None), rows.dtype)


def _map(prices: Prices, change: Callable[[Matrix], Matrix]) -> Prices:
    changed: dict[str, Any] = {name: change(getattr(prices, name)) for name in Prices.__slots__}
    return Prices(**changed)


def _distinct(cells: Matrix) -> tuple[Matrix, NDArray[np.int64]]:
    """Distinct columns of a [C, N] table and where each of the N came from."""
    packed = np.ascontiguousarray(cells.T).view(np.dtype((np.void, cells.shape[0] * cells.itemsize))).ravel()
    _, first, inverse = np.unique(packed, return_index=True, return_inverse=True)
    return cells[:, first], inverse


@dataclass(frozen=True, slots=True)
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
    if machine.net is not None:
        return [_by_link(request, machine, machine.net) for request in requests]
    communication, plans = machine.runtime.communication, requests[0].size.shape[-1]
    lines = [[np.reshape(getattr(r, name), (-1, plans)) for r in requests] for name in ("size", "ranks", "stride")]
    cells = np.array([np.concatenate(line) for line in lines])
    first, runs = _runs(cells)
    size, ranks, stride = cells[:, :, first]
    counts = [len(line) for line in lines[0]]
    prices = price_messages(
        np.repeat([OPS.index(r.op) for r in requests], counts)[:, None],
        size,
        ranks.astype(np.int64),
        stride.astype(np.int64),
        fabric=machine.fabric,
        library=communication.library,
        small=communication.small_all_reduce,
    )
    columns = {name: getattr(prices, name)[:, runs] for name in CollectivePrices.__slots__}
    out, start = [], 0
    for request, count in zip(requests, counts, strict=True):
        part, shape = slice(start, start + count), request.size.shape
        out.append(CollectivePrices(**{name: column[part].reshape(shape) for name, column in columns.items()}))
        start = part.stop
    return out


def _by_link(request: Request, machine: Machine, net: Interconnect) -> CollectivePrices:
    communication = machine.runtime.communication
    return price_flow(
        request.op,
        request.size,
        request.ranks,
        request.stride,
        net=net,
        fabric=machine.fabric,
        library=communication.library,
        small=communication.small_all_reduce,
        axis=said(request.axis),
    )


def said(axis: str) -> str:
    """The name by which a user knows an axis."""
    return _SAID.get(axis, axis)


_SAID = {"data": "dp", "shard": "dp", "replicas": "dp", "edp": "dp"}
"""Axes whose groups a user knows by another name."""


@dataclass(frozen=True, slots=True)
class Priced:
    """A lowered step with a price on every row; ``others``: prices of the further requests, in their order;
    ``requests``: all that was asked of the network."""

    lowered: Lowered
    machine: Machine
    kernels: tuple[PricedKernels, ...]
    messages: tuple[PricedMessages, ...]
    others: tuple[CollectivePrices, ...]
    requests: tuple[Request, ...] = ()


def policies(priced: Priced) -> dict[tuple[str, str], Policy]:
    """How messages go on after faults, by axis and operation: the largest of each that faults slow down."""
    machine, net, found = priced.machine, priced.machine.net, dict[tuple[str, str], tuple[float, Policy]]()
    communication = machine.runtime.communication
    for request in priced.requests:
        if net is None:
            break
        key = said(request.axis), request.op
        columns = (np.ravel(request.size), np.ravel(request.ranks), np.ravel(request.stride))
        for size, ranks, stride in dict.fromkeys(
            zip(*(c.tolist() for c in np.broadcast_arrays(*columns)), strict=True)
        ):
            if size <= found.get(key, (0.0,))[0]:
                continue
            one = policy(
                request.op, size, int(ranks), int(stride), net, machine.fabric,
                communication.library, communication.small_all_reduce,
            )  # fmt: skip
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
        tuple(_with_drift(message, lowered, machine) for message in messages)
        if machine.runtime.host.per_peer
        else messages,
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
    return replace(table, prices=_map(table.prices, lambda column: column * kept))


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
    return replace(message, prices=replace(message.prices, seconds=message.prices.seconds + copies))


def _by_experts(message: PricedMessages, lowered: Lowered, machine: Machine) -> PricedMessages:
    """Dispatch and combine priced by a library made for them. The backward pass of one is the other; training runs the
    kernels that the host waits for, inference whichever is faster. Token states of one byte carry scales beside them.
    Link by link, it takes longer by as much as the exchange of a collective library does.
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
    return replace(message, prices=replace(message.prices, seconds=seconds, wire_bytes=wire))


def host_launched(lowered: Lowered, runtime: Runtime) -> Matrix:
    """1.0 for plans (or points) whose forward pass the host launches kernel by kernel, 0.0 for a replayed graph [P]."""
    s, captured = lowered.shapes, runtime.host.captured
    if s.training:
        return np.full(len(s.plans), float("forward" not in captured))
    return np.where(s.decode > 0, float("decode" not in captured), float("prefill" not in captured))


def compared(ranks: Matrix, stride: Matrix, machine: Machine) -> Matrix:
    """Seconds, on a host of speed 1, in which the hosts of a group compare one collective before they launch it."""
    comparing = machine.runtime.host.comparing
    across = (ranks - 1.0) * stride >= machine.fabric.node_span
    return np.where(ranks > 1, ranks * np.where(across, comparing.across, comparing.inside), 0.0)


def _with_drift(message: PricedMessages, lowered: Lowered, machine: Machine) -> PricedMessages:
    """A collective starts when its last rank has launched it: it takes ``per_peer`` log2 of the ranks or more."""
    rows = message.rows
    launched = host_launched(lowered, machine.runtime) / machine.host_speed
    drift = np.log2(rows.ranks) * machine.runtime.host.per_peer * launched
    return replace(message, prices=replace(message.prices, seconds=np.maximum(message.prices.seconds, drift)))
