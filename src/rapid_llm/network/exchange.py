"""Exchanges of unequal messages link by link, and the messages of dispatch and combine as such an exchange."""

from typing import Final

import numpy as np

from rapid_llm.network.background import simulate_beside, stream
from rapid_llm.network.contention import Contended
from rapid_llm.network.fabric import Fabric
from rapid_llm.network.flow_prices import NOTHING, Beside, Interconnect, whole_groups
from rapid_llm.network.groups import Members
from rapid_llm.network.lines import FREE
from rapid_llm.network.tasks import Floats, Result
from rapid_llm.network.technologies import Library, Protocol
from rapid_llm.network.topology import Topology
from rapid_llm.network.uneven import price_matrix

_LINKS: Final = Library(
    name="links", protocols={"only": Protocol(algorithms=("direct",))}, links={"intra": FREE, "inter": FREE}
)
"""A library that adds nothing to what links take."""


def exchange_on_links(  # noqa: PLR0917
    messages: Floats,
    seconds: float,
    stretch: float,
    net: Interconnect,
    fabric: Fabric,
    stride: int = 1,
    beside: Beside = NOTHING,
) -> Contended:
    """An exchange (bytes [ranks, ranks]) of all groups that interleave, over the links of a job with their faults.

    ``seconds`` is what its library takes by closed form, and ``stretch`` how much longer than the bare links it needs
    for a byte: links add what they take beyond their own closed form. Never faster than without faults. InfeasibleError
    where no live path joins two ranks.
    """
    members = np.arange(stride)[:, None] + stride * np.arange(len(messages))
    whole_groups(net, members, "")
    bare = price_matrix(messages, stride, fabric=fabric, library=_LINKS).seconds
    healthy = _run(messages, members, net.healthy, beside)
    found = healthy if net.topology is net.healthy else _run(messages, members, net.topology, beside)
    flow = max(found.seconds, healthy.seconds)
    moved = np.asarray(found.moved, np.float64)
    use = np.where(moved > 0, moved / np.maximum(net.topology.capacity * flow, 1e-300), 0.0)
    return Contended(
        max(flow, seconds + stretch * (flow - bare)), flow, bare, net.topology, moved, np.minimum(use, 1.0)
    )


def stretch_of(messages: Floats, stride: int, fabric: Fabric, library: str | Library) -> float:
    """How much longer a library takes for a byte of an exchange than the links that carry it."""

    def grows(of: str | Library) -> float:
        one, two = (price_matrix(messages * k, stride, fabric=fabric, library=of).seconds for k in (1.0, 2.0))
        return two - one

    links = grows(_LINKS)
    return grows(library) / links if links > 0 else 1.0


def _run(messages: Floats, members: Members, topology: Topology, beside: Beside) -> Result:
    source, target = np.nonzero(messages * (1 - np.eye(len(messages))))
    first, last = (topology.accelerators[members[:, side].ravel()] for side in (source, target))
    amount = np.tile(messages[source, target], len(members))
    own = stream(topology, first, last, amount, beside.policy)
    return simulate_beside(own, topology, beside.background, beside.policy)


def expert_messages(ranks: int, per_node: int, near: float, far: float, *, deduplicated: bool) -> Floats:
    """Bytes from rank to rank of a dispatch in which a rank sends ``near`` bytes to other ranks in all, and ``far`` to
    other nodes: a deduplicated copy crosses once for each node, to the rank of equal place, which forwards it.
    """
    rank = np.arange(ranks)
    inside = rank[:, None] // per_node == rank[None, :] // per_node
    away = ~np.eye(ranks, dtype=np.bool_)
    nodes = -(-ranks // per_node)
    if nodes == 1 or not deduplicated:
        return np.where(away, near / max(ranks - 1, 1), 0.0)
    same = rank[:, None] % per_node == rank[None, :] % per_node
    # to each of the other ranks as much: those of the own node, and as forwarder of every other node's
    forwarded = near / (ranks - 1) * nodes
    return np.where(inside & away, forwarded, 0.0) + np.where(~inside & same, far / (nodes - 1), 0.0)
