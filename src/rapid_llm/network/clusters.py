"""Switched networks, and any network nested in another.

Bandwidths are B/s per link and direction; ``latency`` is from one accelerator (or card) to another below the same
switch, ``upper`` what a path over the spines adds. A spine stands for a plane of switches, however deep.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby

import numpy as np

from rapid_llm.errors import InputError
from rapid_llm.network.topology import NODE_KINDS, NONE, Builder, Ints, Topology


def switch(count: int, bandwidth: float, latency: float = 0.0, *, kind: str = "nvswitch", name: str = "") -> Topology:
    """Accelerators at one non-blocking switch, each at ``bandwidth``: an NVSwitch box of 8, or NVL72."""
    _at_least_one("accelerators", count)
    build = Builder(name or f"{kind}-{count}")
    hosts = build.add([f"gpu{i}" for i in range(count)], "accelerator", box=0, rail=np.arange(count))
    (center,) = build.add([kind], kind, box=0)
    link = "scale-up" if kind == "nvswitch" else "nic"
    build.join(hosts, np.full(count, center), bandwidth, latency / 2, link)
    return build.build()


def nvl72(bandwidth: float, latency: float = 0.0) -> Topology:
    """72 accelerators at one level of NVSwitch."""
    return switch(72, bandwidth, latency, name="nvl72")


def leaf_spine(
    count: int,
    per_leaf: int,
    bandwidth: float,
    latency: float = 0.0,
    *,
    oversubscription: float = 1.0,
    spines: int | None = None,
    upper: float = 0.0,
    rails: int = 1,
) -> Topology:
    """Hosts below leaves, every leaf joined to every spine.

    A leaf has ``per_leaf / oversubscription`` times the bandwidth of a host upwards, over ``spines`` links (as many as
    that ratio unless given). With ``rails``, host i is on rail ``i % rails`` and a leaf takes ``per_leaf`` hosts of one
    rail (rail-optimised: card r of every box at leaf r).
    """
    for what, value in (("hosts", count), ("per_leaf", per_leaf), ("rails", rails)):
        _at_least_one(what, value)
    if oversubscription <= 0:
        raise InputError(f"oversubscription must be above 0 (got {oversubscription:g}).", field="topology")
    build = Builder(f"{'rail' if rails > 1 else 'leaf'}-spine-{count}")
    index = np.arange(count)
    hosts = build.add([f"gpu{i}" for i in index], "accelerator", rail=index % rails if rails > 1 else NONE)
    units = -(-count // (rails * per_leaf))
    names = [f"leaf{u}.{r}" if rails > 1 else f"leaf{u}" for u in range(units) for r in range(rails)]
    leaves = build.add(names, "leaf", rail=np.tile(np.arange(rails), units) if rails > 1 else NONE)
    build.join(hosts, leaves[index // (rails * per_leaf) * rails + index % rails], bandwidth, latency / 2, "nic")
    if len(leaves) > 1:
        many = spines or max(1, round(per_leaf / oversubscription))
        tops = build.add([f"spine{i}" for i in range(many)], "spine")
        rate = bandwidth * per_leaf / oversubscription / many
        build.join(np.repeat(leaves, many), np.tile(tops, len(leaves)), rate, upper / 2, "fabric")
    return build.build()


def fat_tree(arity: int, bandwidth: float, latency: float = 0.0, *, upper: float = 0.0) -> Topology:
    """Three tiers of switches of ``arity`` ports (Al-Fares et al. 2008): arity^3 / 4 hosts at full bisection.

    ``upper`` is added by each of the two further tiers.
    """
    if arity < 2 or arity % 2:
        raise InputError(f"a fat tree needs an even number of ports per switch (got {arity}).", field="topology.arity")
    half, pods = arity // 2, arity
    build = Builder(f"fat-tree-{arity}")
    hosts = build.add([f"gpu{i}" for i in range(pods * half * half)], "accelerator")
    edges = build.add([f"leaf{p}.{i}" for p in range(pods) for i in range(half)], "leaf")
    middles = build.add([f"spine{p}.{i}" for p in range(pods) for i in range(half)], "spine")
    cores = build.add([f"core{i}.{j}" for i in range(half) for j in range(half)], "core")
    build.join(hosts, np.repeat(edges, half), bandwidth, latency / 2, "nic")
    below = middles.reshape(pods, half)
    build.join(np.repeat(edges, half), np.repeat(below, half, axis=0).ravel(), bandwidth, upper / 2)
    build.join(np.repeat(middles, half), np.tile(cores, pods), bandwidth, upper / 2)
    return build.build()


def dragonfly(
    groups: int,
    routers: int,
    hosts: int,
    bandwidth: float,
    latency: float = 0.0,
    *,
    local: float | None = None,
    far: float | None = None,
    upper: float = 0.0,
) -> Topology:
    """Groups of fully connected routers with ``hosts`` each, and one link for every pair of groups (Kim et al. 2008).

    ``local`` and ``far`` are the bandwidths between routers and between groups (as the hosts' unless given); ``upper``
    is the latency of a link between groups.
    """
    for what, value in (("groups", groups), ("routers", routers), ("hosts", hosts)):
        _at_least_one(what, value)
    build = Builder(f"dragonfly-{groups}x{routers}x{hosts}")
    total = groups * routers
    build.refuse_many(total * (routers - 1) + groups * (groups - 1) + 2 * total * hosts)
    ends = build.add(
        [f"gpu{i}" for i in range(total * hosts)], "accelerator", box=np.arange(total * hosts) // (routers * hosts)
    )
    names = [f"router{g}.{r}" for g in range(groups) for r in range(routers)]
    nodes = build.add(names, "router", box=np.repeat(np.arange(groups), routers))
    build.join(ends, np.repeat(nodes, hosts), bandwidth, latency / 2, "nic")
    a, b = np.triu_indices(routers, 1)
    for group in range(groups):
        build.join(nodes[group * routers + a], nodes[group * routers + b], local or bandwidth, latency / 2, "fabric")
    one, other = np.triu_indices(groups, 1)
    # the link from group g to group h leaves the router that counts h among g's peers
    left = nodes[one * routers + (other - 1) % routers]
    right = nodes[other * routers + one % routers]
    build.join(left, right, far or bandwidth, upper, "global")
    return build.build()


def nested(
    boxes: Sequence[Topology],
    outer: Topology,
    *,
    bandwidth: float | None = None,
    latency: float = 0.0,
    name: str = "",
    per_box: int | None = None,
) -> Topology:
    """Scale-up inside scale-out: the accelerators of ``outer`` become network cards of the boxes, in order.

    Every box gets as many cards as ``outer`` has for it (their number must divide), or ``per_box`` of them, and those
    left over forward what passes; a card serves equally many neighbouring accelerators of its box over links of
    ``bandwidth`` (B/s; unlimited beside the card unless given).
    """
    cards = len(outer.accelerators) if per_box is None else per_box * len(boxes)
    per_box = _cards_of_box(boxes, outer, cards)
    build = Builder(name or f"{len(boxes)} x {boxes[0].name} in {outer.name}")
    accelerators: list[Ints] = []
    for _, same in groupby(boxes, key=id):
        alike = list(same)
        placed = _place(build, alike[0], len(accelerators), len(alike))
        accelerators.extend(placed[:, alike[0].accelerators])
    renamed = _as_cards(outer, per_box)
    (cards_at,) = _place(build, renamed, None, 1)
    served = [np.repeat(np.arange(per_box), len(a) // per_box) + i * per_box for i, a in enumerate(accelerators)]
    card = cards_at[outer.accelerators][np.concatenate(served)]
    rate = bandwidth or float(outer.bandwidth.max(initial=1.0)) * max(len(a) for a in accelerators)
    ends = np.concatenate(accelerators)
    if len(ends) > cards:  # a card that several share is no switch between them
        lanes = build.add([f"{build.names[a]}.pcie" for a in ends.tolist()], "host", np.array(build.boxes)[ends])
        build.join(ends, lanes, rate, 0.0, "host")
        ends = lanes
    build.join(ends, card, rate, latency / 2, "host")
    return build.build()


def _cards_of_box(boxes: Sequence[Topology], outer: Topology, cards: int) -> int:
    """Network cards of each box; InputError where boxes or their accelerators cannot share them equally."""
    if not boxes or cards % len(boxes):
        raise InputError(
            f"{outer.name} has {cards} ports, which do not divide among {len(boxes)} boxes; "
            "give it the same number of ports for every box.",
            field="topology",
        )
    per_box = cards // len(boxes)
    for box in boxes:
        if (count := len(box.accelerators)) % per_box:
            raise InputError(
                f"{box.name} has {count} accelerators, which do not divide among {per_box} network cards.",
                field="topology",
            )
    return per_box


def _as_cards(outer: Topology, per_box: int) -> Topology:
    """``outer`` with its accelerators turned into cards of boxes; ``rail`` is the card's place in its box."""
    kind, box, rail = outer.node_kind.copy(), outer.box.copy(), outer.rail.copy()
    names, order = list(outer.names), np.arange(len(outer.accelerators))
    kind[outer.accelerators] = NODE_KINDS.index("nic")
    box[:] = NONE
    box[outer.accelerators], rail[outer.accelerators] = order // per_box, order % per_box
    for i, node in enumerate(outer.accelerators.tolist()):
        names[node] = f"node{i // per_box}.nic{i % per_box}"
    return replace(outer, node_kind=kind, box=box, rail=rail, names=tuple(names))


def _place(build: Builder, part: Topology, box: int | None, copies: int) -> Ints:
    """Add copies of a topology to another, as boxes from ``box`` on; where the nodes of each now are [copies, nodes].

    Without ``box`` nodes keep their names, boxes and rails.
    """
    first = len(build.names)
    prefixes = [""] if box is None else [f"node{box + copy}." for copy in range(copies)]
    build.names.extend([prefix + name for prefix in prefixes for name in part.names])
    build.kinds.extend(part.node_kind.tolist() * copies)
    rails = part.rail.copy()
    if box is None:
        build.boxes.extend(part.box.tolist())
    else:
        build.boxes.extend(np.repeat(np.arange(box, box + copies), part.nodes).tolist())
        rails[part.accelerators] = np.arange(len(part.accelerators))
    build.rails.extend(rails.tolist() * copies)
    places = first + np.arange(copies * part.nodes).reshape(copies, part.nodes)
    order = np.argsort(part.kind, kind="stable")
    again = np.tile(order, copies)
    source, target = places[:, part.source[order]].ravel(), places[:, part.target[order]].ravel()
    build.join(source, target, part.bandwidth[again], part.latency[again], part.kind[again], both=False)
    return places


def _at_least_one(what: str, value: int) -> None:
    if value < 1:
        raise InputError(f"{what} must be 1 or more (got {value}).", field="topology")
