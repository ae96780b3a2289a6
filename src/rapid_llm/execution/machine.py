"""The machine that prices a step: an accelerator in its node, the fabric between them, and the software on them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from rapid_llm.errors import InputError
from rapid_llm.hardware import Accelerator, Node, NodeGroup, System, part_of
from rapid_llm.network import Fabric
from rapid_llm.network.flow_prices import Carrier, Interconnect, Links, interconnect
from rapid_llm.network.technologies import library_for, library_of
from rapid_llm.nouns import replaced
from rapid_llm.operators.work import lateness
from rapid_llm.runtime import Runtime


@dataclass(frozen=True, slots=True)
class Machine:
    """What prices a step: one accelerator in its ``node``, the fabric, the runtime, whether long compute-bound work
    lowers its clock, and the speed of the CPUs that feed it relative to those on which the runtime's host costs were
    measured. With ``net``, messages are priced link by link. ``pace``: the clock of the slowest accelerator of the job
    over that of the slowest of a node's eight.
    """

    accelerator: Accelerator
    fabric: Fabric
    runtime: Runtime
    clock: float
    host_speed: float
    node: Node
    net: Interconnect | None = None
    pace: float = 1.0

    @classmethod
    def of(cls, system: System, runtime: Runtime, links: Links | None = None, accelerators: int = 0) -> Machine:
        """The machine of a system of equal nodes, for a job on its first ``accelerators``."""
        system = part_of(system, system.accelerators)
        if system.mixed:
            names = " and ".join(group.name for group in system.groups)
            raise InputError(
                f"system '{system.name}' joins unlike groups of nodes, {names}, which only the stages of a training "
                "job can be laid over. Try a system of one of them.",
                field="system",
            )
        node = system.groups[0].node
        runtime = at_home(runtime, node.accelerator.vendor)
        system = driven(system, runtime.communication.nics)
        net = None if links is None else interconnect(system, links)
        return cls.on(node, Fabric.of(system, accelerators), runtime, net, accelerators)

    @classmethod
    def on(
        cls, node: Node, fabric: Fabric, runtime: Runtime, net: Interconnect | None = None, accelerators: int = 0
    ) -> Machine:
        """The machine of a node, in a job of so many ``accelerators``. Training keeps the matrix units busy for hours,
        so it runs at the clock that the power limit sustains; inference alternates with memory-bound decode and runs at
        boost."""
        chip = node.accelerator
        clock = chip.sustained.clock if runtime.workload == "training" else 1.0
        return cls(chip, fabric, runtime, clock, node.host_speed, node, net, slowest(chip, accelerators))

    @property
    def carrier(self) -> Carrier | None:
        """What moves messages, where they are priced link by link."""
        if self.net is None:
            return None
        communication = self.runtime.communication
        return Carrier(self.net, self.fabric, communication.library, communication.small_all_reduce)


def slowest(chip: Accelerator, accelerators: int) -> float:
    """The clock of the slowest of several accelerators at their limit of power, over that of the slowest of eight.

    Chips of one name need unequal voltage for a clock, so that one limit buys each a clock of its own; a step waits for
    the last of all; a clock that is fixed (no boost above the base) is the same for all. ``sustained.clock`` comes from
    nodes of eight and more. 0: as in such a node.
    """
    if chip.clocks.boost <= chip.clocks.base:
        return 1.0
    eight, all_of_them = (1.0 + chip.sustained.spread * lateness(count) for count in (8, accelerators or 8))
    return eight / all_of_them


@lru_cache(maxsize=64)
def at_home(runtime: Runtime, vendor: str) -> Runtime:
    """The runtime with the vendor's own collective library where it names NVIDIA's, which runs on
    no other accelerator.
    """
    communication, native = runtime.communication, library_for(vendor)
    if communication.library != library_for("NVIDIA") or native == communication.library:
        return runtime
    units = 0 if library_of(native).engines else communication.compute_units
    return replaced(runtime, communication=replaced(communication, library=native, compute_units=units))


@lru_cache(maxsize=64)
def driven(system: System, nics: int | None) -> System:
    """The system with only as many network cards per node as the runtime's collectives use."""
    if nics is None or all(g.node.nics is None or g.node.nics.count <= nics for g in system.groups):
        return system
    return replaced(system, groups=tuple(_with_cards(group, nics) for group in system.groups))


def _with_cards(group: NodeGroup, most: int) -> NodeGroup:
    cards = group.node.nics
    if cards is None or cards.count <= most:
        return group
    return replaced(group, node=replaced(group.node, nics=replaced(cards, count=most)))
