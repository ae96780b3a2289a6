"""The ways to run one collective, each with its time and what it moves over each tier."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import isfinite

from rapid_llm.errors import InputError, nearest, unknown_name
from rapid_llm.network.collectives import choices, op_code
from rapid_llm.network.fabric import Fabric
from rapid_llm.network.groups import Group, group_of
from rapid_llm.network.lines import NEEDS, Builders, Way, ways
from rapid_llm.network.ports import leaving
from rapid_llm.network.recipes import Recipe
from rapid_llm.network.technologies import Library, library_of
from rapid_llm.network.templates import BUILDERS
from rapid_llm.network.tuner import tuned
from rapid_llm.nouns import replaced


@dataclass(frozen=True, slots=True)
class TierTraffic:
    """Bytes that one rank sends across a tier, on average over the ranks of a unit, and the link technology there."""

    tier: str
    link: str
    bytes: float


@dataclass(frozen=True, slots=True)
class Candidate:
    """An algorithm under a protocol: its seconds, the bytes that one rank sends in all, and what crosses each tier;
    ``passed`` over by the library's tuner at this size.
    """

    algorithm: str
    protocol: str
    seconds: float
    sent: float
    traffic: tuple[TierTraffic, ...]
    way: Way
    passed: bool = False


def candidates(
    op: str,
    size_bytes: float,
    ranks: int,
    stride: int = 1,
    *,
    fabric: Fabric,
    library: str | Library,
    small: str | Library | None = None,
    algorithm: str | Recipe | None = None,
) -> tuple[Candidate, ...]:
    """Every way to run a collective, the fastest first (``price`` takes that one); ways that the library's tuner passes
    over, and falls back to, come last. ``algorithm`` restricts them to one: a name, whether or not the library would
    choose it, or a user's recipe, both under every protocol that carries the operation. InputError when a group does
    not fit, or nothing can run.
    """
    op_code(op)
    group = group_of(fabric, ranks, stride)
    known, little = library_of(library), None if small is None else library_of(small)
    if ranks == 1:
        return ()
    found = choices(op, group, known, little) if algorithm is None else _only(op, group, known, algorithm)
    chosen = _priced(tuned(found, known), size_bytes)
    names = {(c.algorithm, c.protocol) for c in chosen}
    rest = _priced([way for way in found if (way.algorithm, way.protocol) not in names], size_bytes)
    return (*chosen, *(replace(candidate, passed=True) for candidate in rest))


def _priced(ways: Sequence[Way], size: float) -> list[Candidate]:
    """Ways that a library may take at a size, the fastest first."""
    every = (_candidate(way, size) for way in ways)
    return sorted((c for c in every if isfinite(c.seconds)), key=lambda c: c.seconds)


def _only(op: str, group: Group, library: Library, algorithm: str | Recipe) -> list[Way]:
    """One algorithm under the protocols that have it, or else under all that carry the operation."""
    name, title = (algorithm, algorithm) if isinstance(algorithm, str) else ("custom", algorithm.name)
    builders: Builders = BUILDERS if isinstance(algorithm, str) else {name: (algorithm.build, algorithm.ops)}
    if name not in builders:
        near = nearest(name, BUILDERS)
        raise InputError(unknown_name("algorithm", name, BUILDERS), field="algorithm", suggestions=near)
    serves = builders[name][1]
    if op not in serves:
        raise InputError(f"algorithm '{title}' does not run {op}; it runs {', '.join(serves)}.", field="algorithm")
    having = {label for label, protocol in library.protocols.items() if name in protocol.algorithms}
    carrying = {label for label, protocol in library.protocols.items() if _carries(op, protocol.algorithms)}
    protocols = {
        label: replaced(protocol, algorithms=(name,))
        for label, protocol in library.protocols.items()
        if label in (having or carrying)
    }
    found = list(ways(op, group, replaced(library, protocols=protocols), builders))
    if not found:
        wants = f"it needs {NEEDS[name]}" if name in NEEDS else f"library '{library.name}' carries no {op}"
        message = f"algorithm '{title}' cannot run on these {group.bounds[-1]} ranks: {wants}."
        raise InputError(message, field="algorithm")
    return found


def _carries(op: str, algorithms: tuple[str, ...]) -> bool:
    """Whether a protocol moves data of an operation; protocols for reducing switches move nothing else."""
    return any(op in BUILDERS[name][1] and name not in ("nvls", "nvls-tree", "sharp") for name in algorithms)


def _candidate(way: Way, size: float) -> Candidate:
    seconds = min(line.seconds(size) for line in way.lines)
    crossing = [sum(column) for column in zip(*(leaving(p, way.group) for p in way.template.phases), strict=True)]
    traffic = tuple(
        TierTraffic(tier.name, tier.link, share * size) for tier, share in zip(way.group.tiers, crossing, strict=True)
    )
    return Candidate(way.algorithm, way.protocol, seconds, way.template.sent * size, traffic, way)
