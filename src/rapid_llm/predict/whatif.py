"""What faster hardware would buy: the scenario predicted again with one number changed."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from rapid_llm.hardware import Accelerator, LinkUse, Node, ScaleOutFabric, ScaleUpFabric, System
from rapid_llm.nouns import FrozenDict, replaced
from rapid_llm.predict.job import runs_on_cpus
from rapid_llm.predict.report import WhatIf
from rapid_llm.scenario import Scenario

FACTOR = 2.0
_Fabric = TypeVar("_Fabric", ScaleUpFabric, ScaleOutFabric)


def what_if(scenario: Scenario, base: float, time_of: Callable[[Scenario], float]) -> tuple[WhatIf, ...]:
    """Relative change of the headline time with one resource doubled, largest gain first."""
    found = []
    for text, change in (
        ("matrix rate x2", _matrix),
        ("memory bandwidth x2", _hbm),
        ("scale-up bandwidth x2", _scale_up),
        ("host link bandwidth x2", _host_links),
        ("network cards x2", _nics),
        ("host speed x2", _host_speed),
        ("links between nodes x2", _fabrics),
        *([("links between groups x2", _links)] if scenario.system.links else []),
        *([("host memory bandwidth x2", _host)] if runs_on_cpus(scenario) else []),
    ):
        changed = _changed(scenario, change)
        if changed is None or base == 0.0:
            continue
        found.append(WhatIf(text, time_of(changed) / base - 1.0))
    return tuple(sorted(found, key=lambda w: w.time_ratio))


def _changed(scenario: Scenario, change: Callable[[System], System | None]) -> Scenario | None:
    """The scenario on changed hardware, in all of its pools; None where there is no such part."""
    system = change(scenario.system)
    if scenario.pools is None or system is None:
        return None if system is None else replaced(scenario, system=system)
    pools = scenario.pools
    named = {"prefill": pools.prefill, "decode": pools.decode, "ffn": pools.ffn}
    changed = {name: replaced(pool, system=change(pool.system) or pool.system) for name, pool in named.items() if pool}
    return replaced(scenario, system=system, pools=replaced(pools, **changed))


def _everywhere(system: System, change: Callable[[Node], Node]) -> System:
    """The system with the nodes of all its groups changed."""
    return replaced(system, groups=tuple(replaced(group, node=change(group.node)) for group in system.groups))


def _with_accelerator(system: System, change: Callable[[Accelerator], Accelerator]) -> System:
    return _everywhere(system, lambda node: replaced(node, accelerator=change(node.accelerator)))


def _matrix(system: System) -> System:
    def faster(chip: Accelerator) -> Accelerator:
        return replaced(chip, peak=FrozenDict({name: rate * FACTOR for name, rate in chip.peak.items()}))

    return _with_accelerator(system, faster)


def _hbm(system: System) -> System:
    def faster(chip: Accelerator) -> Accelerator:
        hbm = replaced(chip.memory.hbm, bandwidth=chip.memory.hbm.bandwidth * FACTOR)
        return replaced(chip, memory=replaced(chip.memory, hbm=hbm))

    return _with_accelerator(system, faster)


def _scale_up(system: System) -> System | None:
    """The system with faster ports of accelerators, those that join nodes of one accelerator included, and faster links
    of nodes that state their own rate; None where nothing is joined by them.
    """
    wide = system.fabric is not None

    def joined(node: Node) -> bool:
        return node.accelerator.scale_up is not None and (node.accelerators > 1 or (wide and node.nics is None))

    if not any(joined(group.node) for group in system.groups):
        return None

    def faster(node: Node) -> Node:
        chip, port = node.accelerator, node.accelerator.scale_up
        if port is not None:
            chip = replaced(chip, scale_up=replaced(port, bandwidth=port.bandwidth * FACTOR))
        return replaced(node, accelerator=chip, scale_up=_faster(node.scale_up, "bandwidth", "link_bandwidth"))

    return _everywhere(system, faster)


def _host_links(system: System) -> System | None:
    """The system with twice the links to the host, and between its sockets; None where no
    accelerators meet over them.
    """

    def meets(node: Node) -> bool:
        return node.accelerators > 1 and node.scale_up.topology in ("none", "pairs")

    def more(use: LinkUse | None) -> LinkUse | None:
        return use and replaced(use, count=use.count * int(FACTOR))

    def faster(node: Node) -> Node:
        return replaced(node, host_link=more(node.host_link), socket_link=more(node.socket_link))

    return _everywhere(system, faster) if any(meets(group.node) for group in system.groups) else None


def _fabrics(system: System) -> System | None:
    """The system with faster links between nodes where these have a rate of their own: of a direct network, of a
    dragonfly, above the leaves; None where nothing changes.
    """

    def faster(fabric: ScaleOutFabric | None) -> ScaleOutFabric | None:
        if fabric is None:
            return None
        wider = _faster(fabric, "link_bandwidth", "local_bandwidth", "global_bandwidth")
        return replaced(wider, oversubscription=max(1.0, fabric.oversubscription / FACTOR))

    groups = tuple(replaced(group, fabric=faster(group.fabric)) for group in system.groups)
    changed = replaced(system, fabric=faster(system.fabric), groups=groups)
    return None if changed == system else changed


def _faster(fabric: _Fabric, *names: str) -> _Fabric:
    """A fabric with its own rates raised, whether it states one or one along each axis."""
    given = {name: rate for name in names if (rate := getattr(fabric, name)) is not None}
    raised = {name: tuple(FACTOR * r for r in v) if isinstance(v, tuple) else FACTOR * v for name, v in given.items()}
    return replaced(fabric, **raised)


def _host(system: System) -> System:
    return _everywhere(system, lambda n: replaced(n, host_memory_bandwidth=n.host_memory_bandwidth * FACTOR))


def _host_speed(system: System) -> System:
    """The system with faster hosts: launches and engine steps, which a CPU runs one after the other."""
    return _everywhere(system, lambda n: replaced(n, host_speed=n.host_speed * FACTOR))


def _nics(system: System) -> System | None:
    if all(group.node.nics is None for group in system.groups):
        return None

    def more(node: Node) -> Node:
        nics = node.nics
        return node if nics is None else replaced(node, nics=replaced(nics, count=nics.count * int(FACTOR)))

    return _everywhere(system, more)


def _links(system: System) -> System:
    return replaced(system, links=tuple(replaced(one, bandwidth=one.bandwidth * FACTOR) for one in system.links))
