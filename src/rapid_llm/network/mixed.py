"""Tiers of a system of unlike node groups: inside one group, across groups, and from one group to another."""

from dataclasses import dataclass, replace
from functools import lru_cache
from math import ceil, inf
from typing import NoReturn

from rapid_llm.errors import InputError
from rapid_llm.hardware.system import SHAPES, NodeGroup, ScaleOutFabric, System
from rapid_llm.network.fabric import Fabric
from rapid_llm.network.system_tiers import SWITCH_HOP, network_tiers, node_tiers
from rapid_llm.network.technologies import link as technology
from rapid_llm.network.tier import Tier
from rapid_llm.nouns import replaced

PLAIN = "ethernet-100g"
"""The technology whose library costs a link has where no node on it has network cards of its own."""


@dataclass(frozen=True, slots=True)
class Crossing:
    """How the ranks of a message sit on several groups of nodes: their indices, the accelerators (in a row) that the
    ranks on the smaller side span, and those that send over a link between groups at once.
    """

    groups: tuple[int, ...]
    extent: int
    sharing: int


@lru_cache(maxsize=64)
def inside(system: System, index: int) -> Fabric:
    """Tiers of one group of nodes, by itself; a last one reaches the other groups, which its own messages never use."""
    group = system.groups[index]
    if group.fabric is None and system.fabric is not None and _direct(system.fabric):
        _refuse_direct(system, system.fabric, "Try a fabric in each group.")
    alone = replaced(system, groups=(group,), fabric=group.fabric or system.fabric, links=())
    if group.count > 1 and alone.fabric is None:
        raise InputError(
            f"system '{system.name}' does not say what joins the {group.count} nodes of group {group.name}. "
            "Try fabric: {topology: single-switch} in the group, with nics in its node.",
            field="system.groups",
        )
    own = (*node_tiers(group.node), *network_tiers(group.node, alone))
    whole = Crossing(tuple(range(len(system.groups))), group.accelerators, group.accelerators)
    return Fabric((*own, _reaching(system, whole)[-1]), f"{group.name} of {system.name}")


@lru_cache(maxsize=256)
def across(system: System, index: int, crossing: Crossing) -> Fabric:
    """Tiers of a message among ranks on several groups, as a rank of group ``index`` sees them: its own node, then what
    the slowest network cards of all and the links between them leave.
    """
    group = system.groups[index]
    size = group.node.accelerators
    outer = tuple(tier for tier in _reaching(system, crossing) if tier.span > size)
    return Fabric((*node_tiers(group.node), *outer), f"{system.name} across groups")


@lru_cache(maxsize=256)
def between(system: System, one: int, other: int, sharing: int) -> Fabric:
    """The one tier of messages from accelerators of a group to as many of another, ``sharing`` of them at once."""
    last = _reaching(system, Crossing((one, other), sharing, sharing))[-1]
    return Fabric((last,), f"{system.groups[one].name} to {system.groups[other].name}")


def _reaching(system: System, crossing: Crossing) -> tuple[Tier, ...]:
    """Tiers between nodes that join several groups: of the slowest network cards, and of the slowest link."""
    used = [system.groups[i] for i in crossing.groups]
    pairs = [(i, j) for k, i in enumerate(crossing.groups) for j in crossing.groups[k + 1 :]]
    found = [system.link(*pair) for pair in pairs]
    slow, total = min(used, key=_rate), system.accelerators
    wire = max((_wire(group) for group in used), default=0.0)
    if any(link is None for link in found):
        _refuse(system, used, pairs[found.index(None)])
        count = ceil(total / slow.node.accelerators)
        joined = replaced(system, groups=(replaced(slow, count=count),), links=())
        tiers = network_tiers(slow.node, joined)
        tiers = tuple(replace(tier, latency=max(tier.latency, wire + SWITCH_HOP)) for tier in tiers)
        tiers = (*tiers[:-1], replace(tiers[-1], span=max(tiers[-1].span, total)))
    else:
        span, rate = crossing.extent, _rate(slow)
        name = slow.node.nics.link if slow.node.nics else PLAIN
        near = Tier("groups", span, rate if rate < inf else _fastest(used), wire + SWITCH_HOP, name, scope="inter")
        tiers = (near, replace(near, name="link", span=total))
    given = [link for link in found if link is not None]
    if not given:
        return tiers
    narrow = min(link.bandwidth for link in given) / max(crossing.sharing, 1)
    far = max(link.latency for link in given)
    last = tiers[-1]
    return (*tiers[:-1], replace(last, bandwidth=min(last.bandwidth, narrow), latency=last.latency + far, port=0.0))


def why_apart(system: System) -> str:
    """Why some groups of a system, or the nodes of one, cannot reach each other; empty where all can."""
    try:
        for index in range(len(system.groups)):
            inside(system, index)
    except InputError as error:
        return error.message
    return ""


def _refuse(system: System, used: list[NodeGroup], pair: tuple[int, int]) -> None:
    """InputError where a fabric would have to join what it cannot."""
    names = [system.groups[i].name for i in pair]
    advice = f"Try links: [{{bandwidth: 100 Gb/s, latency: 10 us, between: [{', '.join(names)}]}}]."
    if system.fabric is None:
        message = f"system '{system.name}' does not say what joins {names[0]} and {names[1]}. {advice}"
        raise InputError(message, field="system.links")
    for fabric in (system.fabric, *(g.fabric for g in used if g.fabric)):
        if _direct(fabric):
            _refuse_direct(system, fabric, advice)
    bare = next((g.name for g in used if g.node.nics is None), "")
    if bare:
        message = f"system '{system.name}': group {bare} has no network cards, so no fabric joins it. {advice}"
        raise InputError(message, field="system.links")


def _direct(fabric: ScaleOutFabric) -> bool:
    """Whether places are joined to each other, so that all must be alike."""
    return fabric.topology in SHAPES or fabric.topology == "dragonfly"


def _refuse_direct(system: System, fabric: ScaleOutFabric, advice: str) -> NoReturn:
    what = "chips" if fabric.topology == "torus" else "nodes"
    raise InputError(
        f"system '{system.name}': a {fabric.topology} joins {what} of one kind, so no fabric joins it. {advice}",
        field="system.links",
    )


def _rate(group: NodeGroup) -> float:
    """B/s each way of an accelerator's share of the network cards of its node; infinite where it has none."""
    nics = group.node.nics
    if nics is None:
        return inf
    return (nics.bandwidth or technology(nics.link).bandwidth) * nics.count / group.node.accelerators


def _wire(group: NodeGroup) -> float:
    nics = group.node.nics
    if nics is None:
        return 0.0
    return technology(nics.link).latency if nics.latency is None else nics.latency


def _fastest(used: list[NodeGroup]) -> float:
    """What an accelerator without network cards sends at most: the rate of its host link."""
    return min(
        (g.node.host_link.bandwidth or technology(g.node.host_link.link).bandwidth) * g.node.host_link.count
        for g in used
    )
