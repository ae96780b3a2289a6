"""The named checks of systems of unlike groups of nodes: what can be laid over them, and where."""

from __future__ import annotations

from rapid_llm.scenario.rules import Check
from rapid_llm.scenario.sentences import Row


def _trains(row: Row) -> str:
    names = row["group_names"]
    return (
        f"system {row['system']} joins unlike groups of nodes, {' and '.join(names)}, which only the stages "
        "and replicas of a training job can be laid over. "
        f"Try system: {names[0]}, or pools: {{prefill: {{system: {names[0]}}}, decode: {{system: {names[-1]}}}}}."
    )


def _flows(row: Row) -> str:
    return (
        f"network: flow lays out equal nodes, and system {row['system']} joins {' and '.join(row['group_names'])}. "
        "Try network: closed-form."
    )


def _vendors(row: Row) -> str:
    vendors = row["vendor_names"]
    return (
        f"system {row['system']} joins accelerators of {' and '.join(vendors)}, which no collective library of "
        f"{row['runtime']} joins in one job. Try groups of one vendor."
    )


GROUPS: tuple[Check, ...] = (
    Check("unlike groups train", "system", lambda c: (c.mixed == 0) | (c.training > 0), _trains),
    Check("unlike groups are priced in closed form", "network", lambda c: (c.mixed == 0) | (c.flow == 0), _flows),
    Check("groups share a vendor", "system.groups", lambda c: c.vendors == 1, _vendors),
    Check("groups are joined", "system.groups", lambda c: c.apart == 0, lambda r: str(r["why_apart"])),
    Check("stages are seated", "placement.stages", lambda c: c.unseated == 0, lambda r: str(r["why_unseated"])),
)
