"""What faster hardware would buy: the scenario predicted again with one number changed."""

from __future__ import annotations

from collections.abc import Callable

from rapid_llm.hardware import Accelerator, System
from rapid_llm.nouns import FrozenDict, replaced
from rapid_llm.predict.job import runs_on_cpus
from rapid_llm.predict.report import WhatIf
from rapid_llm.scenario import Scenario

FACTOR = 2.0


def what_if(scenario: Scenario, base: float, time_of: Callable[[Scenario], float]) -> tuple[WhatIf, ...]:
    """Relative change of the headline time with one resource doubled, largest gain first."""
    found = []
    for text, change in (
        ("matrix rate x2", _matrix),
        ("memory bandwidth x2", _hbm),
        ("scale-up bandwidth x2", _scale_up),
        ("network cards x2", _nics),
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


def _with_accelerator(system: System, accelerator: Accelerator) -> System:
    group = system.groups[0]
    return replaced(system, groups=(replaced(group, node=replaced(group.node, accelerator=accelerator)),))


def _matrix(system: System) -> System:
    chip = system.groups[0].node.accelerator
    peak = FrozenDict({name: rate * FACTOR for name, rate in chip.peak.items()})
    return _with_accelerator(system, replaced(chip, peak=peak))


def _hbm(system: System) -> System:
    chip = system.groups[0].node.accelerator
    hbm = replaced(chip.memory.hbm, bandwidth=chip.memory.hbm.bandwidth * FACTOR)
    return _with_accelerator(system, replaced(chip, memory=replaced(chip.memory, hbm=hbm)))


def _scale_up(system: System) -> System | None:
    chip = system.groups[0].node.accelerator
    if chip.scale_up is None or system.groups[0].node.accelerators == 1:
        return None
    port = replaced(chip.scale_up, bandwidth=chip.scale_up.bandwidth * FACTOR)
    return _with_accelerator(system, replaced(chip, scale_up=port))


def _host(system: System) -> System:
    group = system.groups[0]
    node = replaced(group.node, host_memory_bandwidth=group.node.host_memory_bandwidth * FACTOR)
    return replaced(system, groups=(replaced(group, node=node),))


def _nics(system: System) -> System | None:
    group = system.groups[0]
    nics = group.node.nics
    if nics is None:
        return None
    node = replaced(group.node, nics=replaced(nics, count=nics.count * int(FACTOR)))
    return replaced(system, groups=(replaced(group, node=node),))
