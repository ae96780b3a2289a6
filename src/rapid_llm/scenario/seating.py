"""Which groups of nodes a job reaches, and whether its stages can sit where they are put by hand."""

from collections import Counter
from functools import lru_cache

from rapid_llm.hardware import NodeGroup, System
from rapid_llm.hardware.system import part_of
from rapid_llm.scenario.scenario import Scenario


def used_groups(scenario: Scenario) -> tuple[NodeGroup, ...]:
    """The groups of nodes that a job reaches."""
    return reached_groups(scenario.system, scenario.accelerators, bool(scenario.placement.stages))


@lru_cache(maxsize=256)
def reached_groups(system: System, accelerators: int, seated: bool) -> tuple[NodeGroup, ...]:
    """The node groups that a number of accelerators reach; any of them where stages are ``seated`` by hand."""
    groups, ends = system.groups, system.ends
    if len(groups) == 1 or seated:
        return groups
    return tuple(g for g, end in zip(groups, ends, strict=True) if end - g.accelerators < accelerators)


def apart(scenario: Scenario) -> str:
    """Why the node groups that a training job reaches cannot communicate; empty where they can."""
    system = scenario.system
    if not scenario.placement.stages:
        system = part_of(system, scenario.accelerators)
    if not system.mixed or scenario.workload.kind != "training":
        return ""
    from rapid_llm.network.mixed import why_apart

    return why_apart(system)


def unseated(scenario: Scenario) -> str:
    """Why stages cannot run where ``placement.stages`` puts them; empty where they can."""
    said, plan = scenario.placement.stages, scenario.parallelism
    if not said:
        return ""
    groups = {group.name: group for group in scenario.system.groups}
    if len(groups) == 1:
        return "placement.stages names groups of nodes, and the system has one. Try to leave it out."
    if len(said) != plan.pp:
        return (
            f"placement.stages must name the group of each of the {plan.pp} pipeline stages (got {len(said)}). "
            f"Known: {', '.join(groups)}."
        )
    if scenario.placement.order[-1] != "pp":
        return "placement.stages needs pp as the last axis of placement.order. Try order: [tp, cp, ep, dp, pp]."
    if scenario.faults:
        return (
            "placement.stages does not go with faults, which count accelerators and nodes through the groups in their "
            "order. Try system.groups in the order of the stages."
        )
    ranks = plan.tp * plan.cp * (plan.dp or 1)
    for name, stages in Counter(said).items():
        size, has = groups[name].node.accelerators, groups[name].accelerators
        if stages * ranks > has:
            return (
                f"placement.stages puts {stages} stages of {ranks} accelerators on {name}, which has {has}. "
                f"Try {has // ranks} of them there, or more nodes in the group."
            )
        if ranks % size and size % ranks:
            return f"a stage of {ranks} accelerators does not fill nodes of {size} of {name}. Try tp, cp or dp that do."
    return ""
