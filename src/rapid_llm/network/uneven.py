"""Exchanges of unequal messages: who sends how much to whom is a matrix (all-to-all-v)."""

from dataclasses import dataclass
from math import sqrt

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rapid_llm.errors import InputError
from rapid_llm.network.channels import Channels
from rapid_llm.network.detours import detours
from rapid_llm.network.fabric import Fabric
from rapid_llm.network.groups import Group, group_of
from rapid_llm.network.lines import once_per_collective, side_by_side
from rapid_llm.network.ports import port_rates
from rapid_llm.network.technologies import Library, LinkCost, Protocol, library_of
from rapid_llm.network.templates import BUILDERS, hops

Matrix = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class MatrixPrice:
    """seconds; bytes that each rank sends to others and receives from them [n]; ``tier`` and ``rank`` of the busiest
    port.
    """

    seconds: float
    sent: Matrix
    received: Matrix
    tier: str
    rank: int


def price_matrix(messages: ArrayLike, stride: int = 1, *, fabric: Fabric, library: str | Library) -> MatrixPrice:
    """Price an exchange in which rank i sends ``messages[i][j]`` bytes to rank j, all at once.

    The time is that of the busiest port of any tier, in either direction; equal messages cost as ``all_to_all`` does.
    InputError for a matrix that is not square, a negative message, and a group that does not fit.
    """
    matrix = np.asarray(messages, dtype=np.float64)
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
        shape = " x ".join(map(str, matrix.shape))
        raise InputError(f"a message matrix must be square, a row and a column for each rank: got {shape}.")
    if not np.isfinite(matrix).all() or (matrix < 0).any():
        i, j = np.argwhere(~np.isfinite(matrix) | (matrix < 0))[0]
        raise InputError(f"message sizes must be 0 or more: rank {i} sends {matrix[i, j]:g} bytes to rank {j}.")
    known = library_of(library)
    others = matrix * (1 - np.eye(len(matrix)))
    sent, received = others.sum(axis=1), others.sum(axis=0)
    if not others.any():
        return MatrixPrice(0.0, sent, received, "none", 0)
    group = group_of(fabric, len(matrix), stride)
    costs = [known.cost(tier.link, tier.scope) for tier in group.tiers]
    rates = port_rates(BUILDERS["direct"][0]("all_to_all", group.bounds, group.inside), group, costs)
    waits = np.array([_port_loads(others, group, way) / rates[:, None] for way in range(2)])  # direction, level, rank
    carriers = [p for p in known.protocols.values() if "direct" in p.algorithms]
    if group.nodes == 1 and (channels := Channels.of(costs[-1], len(matrix))):
        flagged = bool(others.max() <= channels.flagged(known))
        carriers = [p for p in carriers if bool(p.until) == flagged] or carriers
    if not carriers:
        raise InputError(f"collective library '{known.name}' has no all-to-all.", field="communication.library")
    _, level, rank = np.unravel_index(waits.argmax(), waits.shape)
    busiest = waits.max()
    seconds = min(_seconds(p, group, costs, matrix, busiest, int(level)) for p in carriers)
    return MatrixPrice(seconds, sent, received, group.tiers[level].name, int(rank))


def _port_loads(others: Matrix, group: Group, way: int) -> Matrix:
    """Bytes through each rank's port of each level [levels, n]: out (way 0) or in (1)."""
    n = len(others)
    index = np.arange(n)
    crossed = np.zeros((n, n), dtype=int)
    for level, bound in enumerate(group.bounds):
        crossed[index[:, None] // bound != index[None, :] // bound] = level + 1
    loads = np.array([np.where(crossed == level, others, 0).sum(axis=1 - way) for level in range(len(group.bounds))])
    for level in range(len(loads) - 1, -1, -1):
        tier, below = group.tiers[level], group.bounds[level - 1] if level else 1
        if level + 1 < len(loads) and tier.scope == "inter":  # far traffic passes the nearer network as well
            loads[level] += loads[level + 1]
        loads[level] *= tier.exchange_hops(group.bounds[level] // below, group.stride * below)
        if tier.kind == "shared":  # units behind a bridge share one port
            unit = index // below
            loads[level] = np.bincount(unit, weights=loads[level])[unit]
    return loads


def _seconds(  # noqa: PLR0917
    protocol: Protocol, group: Group, costs: list[LinkCost], matrix: Matrix, wait: float, level: int
) -> float:
    """Launch, hops and peers, then the busiest port (of a ``level``), its ramp, and the copy of what stays."""
    cost = costs[level]
    (phase,) = BUILDERS["direct"][0]("all_to_all", group.bounds, group.inside).phases
    off = matrix * (1 - np.eye(len(matrix)))
    spoken = max((off > 0).sum(axis=1).max(), (off > 0).sum(axis=0).max())
    fixed = once_per_collective(protocol, costs) + detours(phase, group)
    for k, count in enumerate(hops(phase, group.bounds)):
        fixed += count * (group.tiers[k].latency + costs[k].step * protocol.step)
    beside = group.tiers[-1].scope == "intra"
    moving = wait / protocol.bandwidth / (cost.polled if protocol.bandwidth < 1 else 1.0)
    moving += 2 * sqrt(protocol.ramp * cost.slice * moving)
    rate, longest = protocol.channel or costs[-1].channel, float(off.max())
    channels = Channels.of(costs[-1], len(matrix)) if group.nodes == 1 else None
    held = channels.seconds(longest, rate) if channels and rate else 0.0
    if not channels and protocol.channel is not None:
        held = longest / protocol.channel
    keep = costs[0].keep or costs[0].copy
    kept = float(np.diag(matrix).max()) / keep if keep else 0.0
    turns = costs[-1].peer * (side_by_side(spoken) if beside else spoken)
    if group.tiers[level].kind == "shared":  # a bridge is busy with what came first
        return float(fixed + max(turns + held, moving) + kept)
    return float(fixed + turns + max(moving, held) + kept)
