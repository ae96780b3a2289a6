"""One collective on the explicit topology: what shared and broken links do to the time of its closed form."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from rapid_llm.network.candidates import Candidate
from rapid_llm.network.detours import both_ways
from rapid_llm.network.groups import Group
from rapid_llm.network.lattice import cycle
from rapid_llm.network.lines import Way, bare_line
from rapid_llm.network.regimes import Line
from rapid_llm.network.tasks import Result, Tasks
from rapid_llm.network.templates import SLICES, Pattern, Phase, Template
from rapid_llm.network.topology import NODE_KINDS, NONE, Topology

if TYPE_CHECKING:
    from rapid_llm.network.background import Background
    from rapid_llm.network.routing import Table

Vector = NDArray[np.float64]
RUNS: Final = (
    "ring",
    "two-way-ring",
    "halving-doubling",
    "tree",
    "hierarchical",
    "orders",
    "nvls",
    "nvls-tree",
    "one-shot",
    "two-shot",
    "direct",
    "pxn",
    "p2p",
    "sharp",
)
"""Algorithms whose phases the flow engine lays out."""
OWN: Final = "custom"
"""A user's, which is made of the same phases."""
ROUNDS: Final = 64
"""Rounds that a long ring is simulated in at least: uneven links meet as they do in more of them."""
SENDS: Final = 8_000_000
"""Sends in all rounds up to which rings run in all of theirs."""
_WOVEN: Final[dict[Pattern, Pattern]] = {"ring": "direct", "relay": "weave"}
"""What runs over all links of a full mesh."""


@dataclass(frozen=True, slots=True, eq=False)
class Contended:
    """seconds: of the collective with what its library adds; flow: of its bytes on the links alone; bare: the same
    where nothing contends; link_bytes and use (share of what it can move meanwhile) of every link of ``topology``.
    """

    seconds: float
    flow: float
    bare: float
    topology: Topology
    link_bytes: Vector
    use: Vector

    def by_box(self) -> tuple[list[str], list[str], list[list[float | None]]]:
        """Highest use of the links of each kind at each box: boxes, kinds of link, and values (None: no such link)."""
        top = self.topology
        box = np.maximum(top.box[top.source], top.box[top.target])
        ends = zip(top.node_kind[top.source].tolist(), top.node_kind[top.target].tolist(), strict=True)
        kind = [f"{NODE_KINDS[a]} > {NODE_KINDS[b]}" for a, b in ends]
        boxes, kinds = sorted(set(box.tolist())), list(dict.fromkeys(kind))
        value: dict[tuple[int, str], float] = {}
        for key, use in zip(zip(box.tolist(), kind, strict=True), self.use.tolist(), strict=True):
            value[key] = max(value.get(key, 0.0), use)
        names = ["network" if b == NONE else f"box {b}" for b in boxes]
        return names, kinds, [[value.get((b, k)) for k in kinds] for b in boxes]

    def busiest(self, count: int) -> list[tuple[str, float, float]]:
        """Links by use, the busiest first: name, bytes, use."""
        order = np.argsort(-self.use, kind="stable")[:count]
        return [(self.topology.link_name(int(k)), float(self.link_bytes[k]), float(self.use[k])) for k in order]


def contend(
    candidate: Candidate,
    size_bytes: float,
    topology: Topology,
    *,
    policy: "str | Table" = "auto",
    seed: int = 0,
    members: NDArray[np.int64] | None = None,
    routed: Topology | None = None,
    background: "Background | None" = None,
) -> Contended:
    """Run every group of a collective at once over the links of a topology.

    The library's launch, steps and protocol are added as in the closed form, so that both agree where nothing contends.
    ``members`` [groups, ranks]: the accelerators of every group (default: those that interleave with the first; rows of
    a send_recv may be chains of any length); ``routed``: the links that routes may take, where not all; ``background``:
    other flows on the same links. InfeasibleError where no live path joins two ranks.
    """
    way, group = candidate.way, candidate.way.group
    if members is None:
        members = np.arange(group.stride)[:, None] + group.stride * np.arange(group.bounds[-1])
    result = on_links(
        way, size_bytes, topology, members, policy=policy, seed=seed, routed=routed, background=background
    )
    return contended(way, size_bytes, topology, result)


def contended(way: Way, size_bytes: float, topology: Topology, result: Result) -> Contended:
    """The result of running a collective on the links of a topology, with its library's costs added."""
    bare = bare_line(way)
    seconds = with_library(way, size_bytes, bare, result.seconds - bare.seconds(size_bytes))
    moved = np.asarray(result.link_bytes, dtype=np.float64)
    use = np.where(moved > 0, moved / np.maximum(topology.capacity * result.seconds, 1e-300), 0.0)
    use = np.minimum(use, 1.0)  # what others move may go on when this has ended
    return Contended(seconds, result.seconds, bare.seconds(size_bytes), topology, moved, use)


def on_links(
    way: Way,
    size: float,
    topology: Topology,
    members: NDArray[np.int64],
    *,
    policy: "str | Table" = "auto",
    seed: int = 0,
    routed: Topology | None = None,
    lanes: tuple[int, ...] | None = None,
    fan: bool = False,
    background: "Background | None" = None,
) -> Result:
    """The bytes of all groups of a collective on the links alone; arguments as of ``contend`` and ``Plan``."""
    from rapid_llm.network.background import simulate_beside
    from rapid_llm.network.programs import run_in_slices

    def run(slices: int) -> Result:
        some = laid_out(
            way, size, routed or topology, members, policy=policy, seed=seed, lanes=lanes, fan=fan, slices=slices
        )
        return simulate_beside(some, topology, background, measured=False)

    return run_in_slices(way.template, run)


def laid_out(
    way: Way,
    size: float,
    topology: Topology,
    members: NDArray[np.int64],
    *,
    policy: "str | Table" = "auto",
    seed: int = 0,
    lanes: tuple[int, ...] | None = None,
    fan: bool = False,
    slices: int = SLICES,
    rounds: int | None = None,
) -> Tasks:
    """The tasks of all groups [groups, ranks], routed together, so that they spread over the links; a ring in at most
    ``rounds`` rounds (default: in all of them, where these are not too many).
    """
    from rapid_llm.network.programs import program

    template, group = _meshed(way), way.group
    bounds = group.bounds if template.phases[0].pattern != "neighbour" else (members.shape[1],)
    members = _in_cycle(way, topology, members)
    inner = group.tiers[0]  # a node's ports are what further channels would use, but for those of a direct network
    channels = 1 if inner.scope == "inter" and inner.wires is None else None
    return program(
        template, bounds, size, topology,
        placement=topology.accelerators[members.ravel()], groups=len(members), seed=seed,
        policy="fan" if fan and isinstance(policy, str) else policy,
        channels=channels, most_rounds=rounds or max(ROUNDS, SENDS // (members.size * (channels or bounds[0]))),
        lanes=lanes, slices=slices, uneven=(group.node_span, group.rails) if group.rails else None,
    )  # fmt: skip


def lies_in_whole_units(way: Way) -> bool:
    """Whether the ranks fill the units that the phases of a way join."""
    bounds = way.group.bounds
    joined = [
        (bounds[low - 1] if low else 1, bounds[high - 1]) for low, high in (p.levels for p in way.template.phases)
    ]
    return all(bounds[-1] % outer == 0 == outer % inner for inner, outer in joined)


def _in_cycle(way: Way, topology: Topology, members: NDArray[np.int64]) -> NDArray[np.int64]:
    """Ranks in the order of a ring that takes one link a hop, where they fill dimensions of a torus."""
    group, grid = way.group, topology.grid
    if grid is None or group.tiers[0].kind != "torus" or way.template.phases[0].pattern not in ("ring", "relay"):
        return members
    places = np.cumprod([1, *grid.sides]).tolist()
    end = group.stride * members.shape[1]
    if group.stride not in places or end not in places:
        return members
    return members[:, cycle(grid.sides[places.index(group.stride) : places.index(end)])]


def _meshed(way: Way) -> Template:
    """Rings and chains as they run over direct links: both ways round a ring of links; over all links of a full mesh at
    once, where in every round a rank of a single ring sends a share to every other.
    """
    return replace(way.template, phases=tuple(_over_links(phase, way.group) for phase in way.template.phases))


def _over_links(phase: Phase, group: Group) -> Phase:
    low, high = phase.levels
    kind = group.tiers[low].kind
    if phase.pattern == "neighbour":  # along a row of any length
        return replace(phase, levels=(0, 1))
    if phase.pattern in _WOVEN and high - low == 1 and kind == "full":
        return replace(phase, pattern=_WOVEN[phase.pattern])
    return replace(phase, both=both_ways(phase, group))


def with_library(way: Way, size: float, bare: Line, excess: float) -> float:
    """Seconds of a way whose links take ``excess`` longer than in the ``bare`` closed form: the time with its library,
    and the excess scaled by the rate that the library reaches on links.
    """
    line = min(way.lines, key=lambda line: line.seconds(size))
    theirs, links = line.holding(size).per_byte, bare.holding(size).per_byte
    stretch = theirs / links if links > 0 else 1.0
    return max(bare.seconds(size) + excess, line.seconds(size) + stretch * excess)
