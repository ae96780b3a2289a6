"""Closed forms of groups that are priced by what their links carry: a template's own sends, all groups at once.

A port's rate says little of a mesh or a dragonfly: which links a pattern takes depends on where its ranks lie. Laid out
once for a shape of group, the sends give lines of the size that are looked up from then on.
"""

from functools import lru_cache
from typing import Final

from rapid_llm.network.contention import OWN, ROUNDS, RUNS, laid_out, lies_in_whole_units
from rapid_llm.network.explicit import UNIT, Laid
from rapid_llm.network.groups import Group, members_of
from rapid_llm.network.lines import Way
from rapid_llm.network.paths import Path
from rapid_llm.network.programs import run_on
from rapid_llm.network.templates import ALGORITHMS, Template
from rapid_llm.network.topology import Topology

MOST_SENDS: Final = 1 << 16
"""Sends of a phase up to which they are laid out; beyond, a tier's rates stand for them."""
SENDS: Final = 1 << 19
"""Sends of one channel in all rounds up to which a ring is laid out in all of its rounds."""


@lru_cache(maxsize=4096)
def paths(template: Template, group: Group) -> list[Path] | None:
    """Seconds, and seconds per byte of S, of lines of which the highest counts; None where the
    sends are not laid out.
    """
    way = Way(ALGORITHMS[template.algorithm], "", template, group, ())
    system, ranks = group.links, group.bounds[-1]
    if system is None or way.algorithm not in (*RUNS, OWN) or not lies_in_whole_units(way):
        return None
    node = system.groups[0].node.accelerators
    total = min(system.accelerators, -(-group.job // node) * node)
    members = members_of(total, ranks, group.stride)
    if not len(members) or members.size * _peers(way) > MOST_SENDS:
        return None
    topology = Topology.of(system, total)
    tasks = laid_out(way, UNIT, topology, members, slices=1, rounds=max(ROUNDS, SENDS // members.size))
    return Laid.of(tasks, run_on(template), topology.capacity).lines()


def _peers(way: Way) -> int:
    """The most that a rank sends to in one phase."""
    bounds = way.group.bounds
    direct = (phase.levels for phase in way.template.phases if phase.pattern == "direct")
    return max((bounds[high - 1] // (bounds[low - 1] if low else 1) for low, high in direct), default=1)
