"""Dispatch of tokens to experts and the combine of their results, as libraries made for it do them (DeepEP).

A token goes once to every rank (and over the network once to every node) that holds any of its experts, or in a
low-latency kernel once to each expert. The kernel is bound by the compute units that carry it or by the busiest link.
"""

from collections.abc import Sequence
from dataclasses import dataclass as plain_dataclass
from functools import lru_cache
from math import ceil
from typing import Final

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pydantic.dataclasses import dataclass

from rapid_llm.documents import build
from rapid_llm.errors import InputError, unknown_name
from rapid_llm.network.fabric import Fabric
from rapid_llm.nouns import STRICT, Map, hash_once, light
from rapid_llm.provenance import Catalogue
from rapid_llm.units import BytesPerSecond, Count, Fraction, NonNegative, Seconds

Column = NDArray[np.float64]
LIBRARIES: Final = Catalogue("rapid_llm.network", "data/experts", "library of expert exchanges")
PHASES: Final = ("dispatch", "combine")


@dataclass(frozen=True, kw_only=True, config=STRICT)
class ExpertCost:
    """What one kernel pays on one link technology.

    ``launch`` once (s); ``expert`` per expert of the group (s); ``lone`` rate at which one warp moves its token (B/s),
    paid once; a compute unit spends ``token`` on each of its tokens and ``visit`` on each destination of it (s), reads
    it once at ``read`` and moves each copy at ``copy`` (B/s); ``efficiency`` share of the link rate.
    """

    launch: Seconds
    efficiency: Fraction
    expert: Seconds = 0.0
    lone: BytesPerSecond | None = None
    token: Seconds = 0.0
    visit: Seconds = 0.0
    read: BytesPerSecond | None = None
    copy: BytesPerSecond | None = None


@hash_once
@dataclass(frozen=True, kw_only=True, config=STRICT)
class ExpertKernel:
    """One phase of one mode: ``element`` bytes on the wire per element of the hidden state where the caller does not
    say, and the cost by link technology, or by its scope where the technology was never measured.
    """

    element: NonNegative
    links: Map[ExpertCost]


@hash_once
@dataclass(frozen=True, kw_only=True, config=STRICT)
class Mode:
    """One set of kernels. ``deduplicated`` sends a token once to each destination; ``units`` compute units that it
    takes (at most one an expert where ``per_expert``); ``most_tokens`` of a rank that its buffers hold, where its calls
    leave out that the host reads how many tokens come: engines run it up to these.
    """

    units: Count
    dispatch: ExpertKernel
    combine: ExpertKernel
    deduplicated: bool = True
    per_expert: bool = False
    most_tokens: Count | None = None


@dataclass(frozen=True, kw_only=True, config=STRICT)
class ExpertLibrary:
    """A library of expert exchanges by mode (``normal``, ``low-latency``)."""

    name: str
    modes: Map[Mode]


@lru_cache(maxsize=16)
def expert_library(name: str) -> ExpertLibrary:
    """The library of a name (``deepep``, ``trtllm-alltoall``)."""
    data, _ = LIBRARIES.load(name)
    return build(ExpertLibrary, {"name": name, **data})


@plain_dataclass(frozen=True, slots=True)
class ExpertPrices:
    """One entry a row: seconds; bytes that one rank sends to others, and of these to other nodes; compute units that
    are busy meanwhile; index of the mode in the library.
    """

    seconds: Column
    wire_bytes: Column
    node_bytes: Column
    units: Column
    mode: NDArray[np.int8]


def distinct(places: ArrayLike, copies: ArrayLike) -> Column:
    """Expected number of different places among ``places`` that ``copies`` even, independent draws hit:
    D (1 - (1 - 1/D)^k).
    """
    d = np.asarray(places, dtype=np.float64)
    return np.asarray(d * (1.0 - (1.0 - 1.0 / d) ** np.asarray(copies, dtype=np.float64)))


def price_experts(
    phase: str,
    tokens: ArrayLike,
    *,
    hidden_size: ArrayLike,
    experts_per_token: ArrayLike,
    experts: ArrayLike,
    ranks: ArrayLike,
    stride: ArrayLike = 1,
    fabric: Fabric,
    library: str | ExpertLibrary = "deepep",
    mode: str | None = None,
    units: ArrayLike | None = None,
    node_limit: int | None = None,
    node_share: float = 1.0,
    element_bytes: ArrayLike | None = None,
) -> ExpertPrices:
    """Price a phase, dispatch or combine, of ``tokens`` on every rank, a row each, under even routing.

    ranks of the group stand ``stride`` accelerators apart; ``mode`` None what engines run (``_best``); ``units``
    compute units given to it (default: the mode's own); ``node_limit`` the nodes that a token's experts may lie on, or
    ``node_share`` of those of the group (group-limited routing); ``element_bytes`` on the wire per element (default:
    the library's, FP8 with scales out, BF16 back).
    InputError for an unknown phase or mode, and when a group does not fit the fabric.
    """
    if phase not in PHASES:
        raise InputError(unknown_name("phase", phase, PHASES))
    known = expert_library(library) if isinstance(library, str) else library
    if mode is not None and mode not in known.modes:
        raise InputError(unknown_name(f"mode of '{known.name}'", mode, known.modes))
    columns = _together(
        *(tokens, hidden_size, experts_per_token, experts, ranks, stride),
        np.nan if units is None else units,
        np.nan if element_bytes is None else element_bytes,
    )
    shape, work = columns.shape[1:], columns.reshape(len(columns), -1)
    names, same = list(known.modes) if mode is None else [mode], work[1:].tobytes()
    shares = [_share(phase, known.modes[name], fabric, same, (node_limit, node_share)) for name in names]
    priced = np.array([_mode(work[0], share) for share in shares])
    best = _best(priced[:, 0], work[0], [known.modes[name].most_tokens for name in names])
    seconds, wire, far, busy = (column.reshape(shape) for column in priced[best, :, np.arange(len(best))].T)
    index = np.array([list(known.modes).index(name) for name in names], dtype=np.int8)
    return ExpertPrices(seconds, wire, far, busy, index[best].reshape(shape))


def _together(*given: ArrayLike) -> Column:
    """Values of all rows [number of values, ...], each broadcast to the shape of all."""
    columns = np.empty((len(given), *np.broadcast(*given).shape))
    for at, column in enumerate(given):
        columns[at] = column
    return columns


def _best(seconds: Column, tokens: Column, most: Sequence[int | None]) -> NDArray[np.intp]:
    """Index of the mode that engines run, a row each: one whose buffers hold the tokens, and the fastest otherwise.

    What a kernel takes says nothing of the wait of the host for the counts of what it receives, which other modes need
    and decode cannot hide, nor lets it replay a graph (DeepEP's README: normal for training and prefill, low-latency
    for decode).
    """
    if len(most) == 1 or not any(most):
        return np.asarray(seconds.argmin(axis=0))
    made = np.array([[limit or 0.0] for limit in most])
    fits = tokens <= made
    able = np.where(fits.any(axis=0), fits, made == 0.0)
    return np.asarray(np.where(able, seconds, np.inf).argmin(axis=0))


@light
class _Share:
    """What a mode takes of rows at any number of tokens [rows]: ``fixed`` seconds; compute units; ``busy`` seconds of
    one of them for a token, ``link`` seconds of the slower link for a byte of one; ``size`` of a token's state (B);
    copies of it that are ``sent``, and ``crossing`` to other nodes; ``several``: groups of more than one rank.
    """

    fixed: Column
    units: Column
    busy: Column
    link: Column
    size: Column
    sent: Column
    crossing: Column
    several: NDArray[np.bool_]


def _mode(tokens: Column, share: _Share) -> Column:
    """Seconds, bytes sent, bytes sent to other nodes, and compute units of one mode [4, rows]."""
    slowest = np.maximum(tokens / share.units * share.busy, tokens * share.size * share.link)
    seconds = np.where(share.several, share.fixed + slowest, 0.0)
    moved = tokens * share.sent * share.size, tokens * share.crossing * share.size
    return np.array([seconds, *moved, np.where(share.several, share.units, 0.0)])


@lru_cache(maxsize=64)
def _share(phase: str, mode: Mode, fabric: Fabric, given: bytes, reach: tuple[int | None, float]) -> _Share:
    """Of rows ``given`` by hidden size, experts of a token, experts in all, ranks, stride, compute units and bytes of
    an element (NaN: as the mode has it); ``reach``: most nodes of a token's experts, and share of the group's.
    """
    hidden, copies, experts, ranks, stride, units, element = np.frombuffer(given).reshape(7, -1)
    kernel: ExpertKernel = getattr(mode, phase)
    size = hidden * np.where(np.isnan(element), kernel.element, element)
    units = np.where(np.isnan(units), mode.units, units)
    units = np.minimum(units, experts) if mode.per_expert else units
    nodes, launch, expert, lone, token, visit, read, copy, near, far = _costs(fabric, kernel, ranks, stride)
    visits, sent, crossing = _traffic(copies, ranks, nodes, mode, reach)
    inside = sent - (0.0 if mode.deduplicated else crossing)  # deduplicated copies pass the node's links as well
    return _Share(
        fixed=launch + experts * expert + size * lone,
        units=units,
        busy=token + size * read + visits * (visit + size * copy),
        link=np.maximum(inside * near, crossing * far),
        size=size,
        sent=sent,
        crossing=crossing,
        several=ranks > 1,
    )


def _traffic(
    copies: Column, ranks: Column, nodes: Column, mode: Mode, reach: tuple[int | None, float]
) -> tuple[Column, Column, Column]:
    """Per token: destinations that its kernel serves, copies that leave the rank, copies that leave the node.

    Deduplicated copies cross the network once a node, to the rank of equal place there, which forwards them.
    """
    if not mode.deduplicated:
        return copies, copies * (ranks - 1) / ranks, copies * (nodes - 1) / nodes
    node_limit, node_share = reach
    reachable = np.maximum(1.0, np.ceil(node_share * nodes))
    if node_limit is not None:
        reachable = np.minimum(reachable, node_limit)
    visits = distinct(ranks * reachable / nodes, copies)
    return visits, visits * (ranks - 1) / ranks, distinct(reachable, copies) * (nodes - 1) / nodes


def _costs(fabric: Fabric, kernel: ExpertKernel, ranks: Column, stride: Column) -> Column:
    """``_constants`` of rows [10, rows]."""
    rows = list(zip(ranks.tolist(), stride.tolist(), strict=True))
    known = {group: _constants(fabric, kernel, *map(int, group)) for group in dict.fromkeys(rows)}
    return np.array([known[group] for group in rows]).T


@lru_cache(maxsize=1024)
def _constants(fabric: Fabric, kernel: ExpertKernel, ranks: int, stride: int) -> tuple[float, ...]:
    """Nodes of a group, then its costs: launch, expert, 1/lone, token, visit, 1/read, 1/copy, and seconds per byte
    inside a node and between nodes.
    """
    reach = fabric.tiers[-1].span if fabric.tiers else 1
    if (ranks - 1) * stride >= reach:
        raise InputError(
            f"a group of {ranks} ranks, {stride} apart, does not fit '{fabric.name}': {reach} accelerators are "
            "connected. Use fewer ranks or a larger system.",
            field="parallelism.ep",
        )
    inside = max(1, fabric.node_span // stride)
    used = [t for t in fabric.tiers if t.scope == "intra"][:1] if min(inside, ranks) > 1 else []
    nodes = ceil(ranks / inside)
    if nodes > 1:
        outer = [t for t in fabric.tiers if t.scope == "inter"]
        used.append(next((t for t in outer if t.span >= ranks * stride), outer[-1]))
    if not used:
        return (float(nodes), *[0.0] * 9)
    costs = [kernel.links.get(tier.link) or kernel.links[tier.scope] for tier in used]
    first = costs[0]
    rates = {tier.scope: 1.0 / (tier.bandwidth * cost.efficiency) for tier, cost in zip(used, costs, strict=True)}
    return (
        float(nodes),
        max(cost.launch for cost in costs) + max(tier.latency for tier in used),
        first.expert,
        _inverse(first.lone),
        first.token,
        first.visit,
        _inverse(first.read),
        _inverse(first.copy),
        rates.get("intra", 0.0),
        rates.get("inter", 0.0),
    )


def _inverse(rate: float | None) -> float:
    return 0.0 if rate is None else 1.0 / rate
