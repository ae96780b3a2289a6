"""A system seen by its network: tiers of reach, innermost first."""

from dataclasses import dataclass, replace
from functools import lru_cache

from rapid_llm.errors import InputError
from rapid_llm.hardware.system import System, part_of
from rapid_llm.network.system_tiers import network_tiers, node_tiers
from rapid_llm.network.tier import Tier


@dataclass(frozen=True, eq=False, slots=True)
class Fabric:
    """Tiers of a system, innermost first; ``accelerators`` of the job that groups fill (0: of one group); ``links``:
    the system, whose links say more than tiers do of some groups.
    """

    tiers: tuple[Tier, ...]
    name: str = "fabric"
    accelerators: int = 0
    links: System | None = None

    @staticmethod
    def of(system: System, accelerators: int = 0) -> "Fabric":
        """The tiers of a system of equal nodes; ``network.mixed`` has those of others."""
        return _of(system) if not accelerators else _for_job(system, accelerators)

    def without_reduction(self) -> "Fabric":
        """The same fabric for data that its switches do not reduce, such as integers."""
        return _without_reduction(self)

    @property
    def node_span(self) -> int:
        """Accelerators of one node (or rack-scale domain)."""
        return max((tier.span for tier in self.tiers if tier.scope == "intra"), default=1)


@lru_cache(maxsize=64)
def _without_reduction(fabric: Fabric) -> Fabric:
    return replace(fabric, tiers=tuple(replace(tier, in_network_reduction=False) for tier in fabric.tiers))


@lru_cache(maxsize=256)
def _for_job(system: System, accelerators: int) -> Fabric:
    fabric = _of(system)
    sizes = [accelerators, *(tier.span for tier in fabric.tiers if tier.span < accelerators)]
    if fabric.links is None and all(size & (size - 1) == 0 for size in sizes):  # groups of such a job straddle nothing
        return fabric
    return replace(fabric, accelerators=accelerators)


@lru_cache(maxsize=64)
def _of(system: System) -> Fabric:
    system = of_equal_nodes(system)
    node = system.groups[0].node
    tiers = (*node_tiers(node), *network_tiers(node, system))
    told = any(tier.by_links or tier.kind == "ring" for tier in tiers)
    return Fabric(tiers, system.name, links=system if told else None)


def of_equal_nodes(system: System) -> System:
    """The system with its groups as one; InputError where they are unlike."""
    whole = part_of(system, system.accelerators)
    if whole.mixed:
        names = [group.name for group in system.groups]
        raise InputError(
            f"system '{system.name}' joins unlike groups of nodes, {' and '.join(names)}, and its links are told apart "
            f"for the stages of a training job alone. Try one of them, such as {names[0]}.",
            field="system.groups",
        )
    return whole
