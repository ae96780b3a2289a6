"""``network collective``: all ways to run one collective, and what each tier carries."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from rapid_llm import hardware
from rapid_llm.charts import Part, Series, bar_list, heat_map, page, plot, table
from rapid_llm.cli import text
from rapid_llm.cli.link_by_link import LISTED, busiest, by_links, deliver, drawings, net_of, of_form
from rapid_llm.errors import InfeasibleError, InputError, nearest, unknown_name
from rapid_llm.network import OPS, Candidate, Fabric, bus_bandwidth, candidates, read_recipe
from rapid_llm.network.files import MOST_BYTES
from rapid_llm.network.technologies import library_for, library_of
from rapid_llm.provenance import is_path
from rapid_llm.units import format_bandwidth, format_bytes, format_seconds, parse

if TYPE_CHECKING:
    from rapid_llm.cli.network_flags import OnLinks, Tokens, Written
    from rapid_llm.network.contention import Contended
    from rapid_llm.network.flow_prices import Faulted

_SIZES = [2**k for k in range(10, 35, 2)]
"""Message sizes of the page's curves, B."""
_SHOWN = 12
"""Candidates that the terminal lists."""


UNSIZED = {"all_to_allv": "--matrix FILE", "dispatch": "--tokens 4096", "combine": "--tokens 4096"}
"""Operations that have no one size, and what they want instead."""


@dataclass(frozen=True, slots=True)
class Group:
    """Who takes part: ranks of a system, ``stride`` accelerators apart, and the library that they have."""

    system: str
    accelerators: int | None
    stride: int
    library: str | None


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked, read and checked."""

    op: str
    system: str
    ranks: int
    size: float
    stride: int
    library: str
    small: str | None
    algorithm: str | None

    def candidates(self, size: float | None = None, *, every: bool = False) -> tuple[Candidate, ...]:
        """The ways to run it, the fastest first; ``every`` looks beyond the algorithm that was asked for."""
        algorithm = None if every else self.algorithm
        return candidates(
            self.op,
            self.size if size is None else size,
            self.ranks,
            self.stride,
            fabric=Fabric.of(hardware.system(self.system)),
            library=self.library,
            small=self.small,
            algorithm=read_recipe(algorithm) if algorithm and is_path(algorithm) else algorithm,
        )

    def carrier(self, way: Candidate) -> str:
        """The library that runs a way: the one for small all-reduces, or that of all others."""
        if self.small is None or way.protocol in library_of(self.library).protocols:
            return self.library
        return self.small

    def bandwidths(self, seconds: float) -> tuple[float, float]:
        """algbw and busbw (B/s)."""
        return self.size / seconds, bus_bandwidth(self.op, self.size, self.ranks, seconds).item()


def operation(given: str) -> str:
    """The name of an operation in any spelling, such as ``AllReduce`` or ``alltoall``; InputError with the nearest."""
    known = {re.sub("[-_ ]", "", name): name for name in (*OPS, *UNSIZED)}
    found = known.get(re.sub("[-_ ]", "", given.lower()))
    if found is None:
        names = tuple(known.values())
        raise InputError(unknown_name("collective", given, names), field="op", suggestions=nearest(given, names))
    return found


def collective(
    given: str,
    group: Group,
    *,
    size: str | None,
    small: str | None,
    algorithm: str | None,
    links: OnLinks,
    tokens: Tokens,
    written: Written,
) -> int:
    """Price one collective and print it; with ``html`` or ``out`` write a page of it as well."""
    op = operation(given)
    if group.accelerators is not None and group.accelerators < 1:
        raise InputError(f"--accelerators must be at least 2 (got {group.accelerators}). Try 8.", field="accelerators")
    if group.stride < 1:
        raise InputError(f"--stride must be at least 1 (got {group.stride}). Try 1.", field="stride")
    _refuse_empty(links, tokens, written)
    _whole_question(op, tokens, {"--size": size, "--algorithm": algorithm, "--small": small})
    if op in UNSIZED:
        from rapid_llm.cli.exchanges import exchange

        return exchange(op, group, links, tokens, written)
    assert size is not None
    asked = _question(op, group, size, small, algorithm)
    found = asked.candidates()
    if not found:
        raise InputError("one accelerator has nobody to talk to. Use --accelerators 2 or more.", field="accelerators")
    best, faulted = _flow(asked, found, links)
    found = (best, *(way for way in found if way is not best))
    flow = faulted.best if faulted else None
    turns = faulted is None and _by_turns(asked, best)
    answer = _answer(asked, found, faulted) | {"shares_links_by_turns": turns}
    page = _page(asked, found, flow) if written.html or written.out else ""
    deliver(answer, _lines(asked, found, faulted, turns=turns), page, flow, links, written)
    return 0


def _question(op: str, group: Group, size: str, small: str | None, algorithm: str | None) -> Question:
    """The question with what is left open filled in: all accelerators of the system, the vendor's library."""
    known = hardware.system(group.system)
    return Question(
        op=op,
        system=group.system,
        ranks=known.accelerators if group.accelerators is None else group.accelerators,
        size=message_size(size),
        stride=group.stride,
        library=group.library or library_for(known.groups[0].node.accelerator.vendor),
        small=small,
        algorithm=algorithm,
    )


def _refuse_empty(links: OnLinks, tokens: Tokens, written: Written) -> None:
    """InputError for a flag that names a file and is given none."""
    files = {"--matrix": tokens.matrix, "--traffic": links.traffic, "--routing": links.routing, "--svg": links.svg}
    for flag, value in {**files, "--html": written.html, "--out": written.out}.items():
        if value == "":
            raise InputError(f"{flag} is empty. Try the path of a file, or to leave it out.", field=flag[2:])


def _whole_question(op: str, tokens: Tokens, own: Mapping[str, str | None]) -> None:
    """InputError where an operation lacks what it needs, or has what it does not take."""
    wants = UNSIZED.get(op, "--size 256MiB")
    has: str | int | None = {"all_to_allv": tokens.matrix, "dispatch": tokens.tokens, "combine": tokens.tokens}.get(
        op, own["--size"]
    )
    if has is None:
        raise InputError(f"{op} needs {wants.split()[0]}, such as {wants}.", field=wants.split()[0][2:])
    other: dict[str, str | int | None] = dict(own) if op in UNSIZED else {}
    other |= {} if op == "all_to_allv" else {"--matrix": tokens.matrix}
    other |= {} if op in ("dispatch", "combine") else _of_experts(tokens)
    for flag, value in other.items():
        if value is not None:
            raise InputError(f"{op} does not take {flag}; it takes {wants.split()[0]}.", field=flag[2:])
    if own["--small"] is not None and op != "all_reduce":
        raise InputError(f"--small is a library for all_reduce (got {op}). Try to leave it out.", field="small")


def _of_experts(tokens: Tokens) -> dict[str, int | str | None]:
    """The flags of an exchange among experts."""
    return {
        f"--{one.name.replace('_', '-')}": getattr(tokens, one.name) for one in fields(tokens) if one.name != "matrix"
    }


def _flow(asked: Question, found: Sequence[Candidate], links: OnLinks) -> tuple[Candidate, Faulted | None]:
    """The fastest way that the explicit topology carries, and what it does there; None for the closed form alone."""
    if not by_links(links):
        return found[0], None
    from rapid_llm.network.contention import lies_in_whole_units
    from rapid_llm.network.flow_prices import under_faults

    able = [way for way in found if lies_in_whole_units(way.way)]
    if not able:
        raise InputError(
            f"the flow engine does not run {found[0].algorithm} of {asked.op} among {asked.ranks} ranks; try "
            "--network closed-form, or a number of ranks that fills nodes.",
            field="accelerators",
        )
    net, beside = net_of(asked.system, asked.ranks * asked.stride, links)
    first = None
    for way in able:
        try:
            return way, under_faults(way, asked.size, net, beside=beside)
        except InfeasibleError as error:  # a reducing switch that is down: libraries fall back
            first = first or error
    assert first is not None
    raise first


def message_size(given: str) -> float:
    """Bytes of ``--size``; InputError where it is not above 0."""
    try:
        size = parse(given, "bytes")
    except ValueError as error:
        raise InputError(f"--size {error}", field="size") from None
    if size <= 0:
        raise InputError(f"--size must be above 0 (got {given}). Try 256MiB.", field="size")
    if size > MOST_BYTES:
        raise InputError(f"--size must be at most 1 EiB (got {given}). Try 256MiB.", field="size")
    return size


def _answer(asked: Question, found: Sequence[Candidate], faulted: Faulted | None) -> dict[str, Any]:
    """The JSON object, SI units."""
    best, flow = found[0], faulted.best if faulted else None
    seconds = best.seconds if flow is None else flow.seconds
    algorithm_bandwidth, bus = asked.bandwidths(seconds)
    links = [] if flow is None else flow.busiest(LISTED)
    return {
        "op": asked.op,
        "system": asked.system,
        "accelerators": asked.ranks,
        "stride": asked.stride,
        "size_bytes": asked.size,
        "library": asked.library,
        "seconds": seconds,
        "closed_form_seconds": best.seconds,
        "algbw_bytes_per_s": algorithm_bandwidth,
        "busbw_bytes_per_s": bus,
        "algorithm": best.algorithm,
        "protocol": best.protocol,
        "nodes": best.way.group.nodes,
        "tiers": [{"tier": t.tier, "link": t.link, "bytes_per_rank": t.bytes} for t in best.traffic],
        "candidates": [
            {
                "algorithm": c.algorithm,
                "protocol": c.protocol,
                "seconds": c.seconds,
                "sent_bytes": c.sent,
                "passed_over": c.passed,
            }
            for c in found
        ],
        "busiest_links": [{"link": name, "bytes": moved, "use": use} for name, moved, use in links],
        "policies": {"detour": faulted.detour, "replan": faulted.replan, "plan": faulted.plan}
        if faulted and faulted.plan
        else None,
    }


def _lines(asked: Question, found: Sequence[Candidate], faulted: Faulted | None, *, turns: bool) -> list[str]:
    best, flow = found[0], faulted.best if faulted else None
    seconds = best.seconds if flow is None else flow.seconds
    algorithm_bandwidth, bus = asked.bandwidths(seconds)
    apart = f", {asked.stride} apart" if asked.stride > 1 else ""
    where = f"{asked.ranks} accelerators of {asked.system}{apart}, {_nodes(best.way.group.nodes)}"
    lines = [
        f"{asked.op + ' ':<13}{format_bytes(asked.size)} on {where}",
        f"{'time':<13}{format_seconds(seconds)}{_beside(best, flow)}",
        f"{'algbw':<13}{format_bandwidth(algorithm_bandwidth)}",
        f"{'busbw':<13}{format_bandwidth(bus)}",
        f"{'algorithm':<13}{best.algorithm}, protocol {best.protocol} of {asked.carrier(best)}",
    ]
    if faulted and faulted.plan:
        again = (
            f"{faulted.plan} {format_seconds(faulted.replan)}"
            if faulted.replan < faulted.detour
            else "no plan that is faster"
        )
        lines.append(f"{'faults':<13}detour {format_seconds(faulted.detour)}; re-plan: {again}")
    for index, tier in enumerate(best.traffic):
        label = "each rank" if index == 0 else ""
        lines.append(f"{label:<13}sends {format_bytes(tier.bytes)} over {tier.tier} ({tier.link})")
    lines += busiest(flow)
    rows = [
        [c.algorithm, c.protocol, format_seconds(c.seconds), f"{c.seconds / best.seconds:.2f}", format_bytes(c.sent)]
        for c in found[:_SHOWN]
    ]
    if turns:
        lines.append(
            f"{'':<13}its sends share links by turns, which a closed form does not follow; nearer: --network flow"
        )
    unable = dict.fromkeys(c.algorithm for c in found if flow and not c.passed and c.seconds < best.seconds)
    if unable:
        lines.append(f"{'':<13}the flow engine does not run {', '.join(unable)} here, which the closed form takes")
    if any(c.passed and c.seconds < best.seconds for c in found):
        lines.append(f"{'':<13}the tuner of {asked.library} takes it, though another would be faster")
    header = (f"candidate{of_form(flow)}", "protocol", "time", "x best", "sent")
    lines += ["", *text.columns(rows, header, right=(2, 3, 4))]
    if len(found) > _SHOWN:
        lines.append(f"and {len(found) - _SHOWN} more; --json lists all")
    return lines


def _by_turns(asked: Question, best: Candidate) -> bool:
    """Whether sends of a way share links in ways that its closed form does not follow."""
    if not best.way.group.unlike:
        return False  # no engine need be loaded
    from rapid_llm.network.agreement import may_meet

    return may_meet(hardware.system(asked.system), best.way)


def _beside(best: Candidate, flow: Contended | None) -> str:
    return "" if flow is None else f", link by link (closed form {format_seconds(best.seconds)})"


def _nodes(count: int) -> str:
    return "one node" if count == 1 else f"{count} nodes"


def _curve(series: Series) -> str:
    """Bus bandwidth over size, in decimal units as its marks are powers of ten."""
    decimal = ("B", "kB", "MB", "GB", "TB")

    def size(value: float) -> str:
        power = min(int(math.log10(value) + 1e-9) // 3, len(decimal) - 1)
        return f"{value / 1e3**power:g} {decimal[power]}"

    return plot([series], x_label="size", log_x=True, form=lambda rate: f"{rate / 1e9:g} GB/s", form_x=size)


def _page(asked: Question, found: Sequence[Candidate], flow: Contended | None) -> str:
    """Candidates as bars, bus bandwidth over size, and which algorithm costs what at which size."""
    title = f"{asked.op} on {asked.ranks} accelerators of {asked.system}"
    bars = [Part(f"{c.algorithm} {c.protocol}", c.seconds) for c in found]
    curve = {size: asked.candidates(size) for size in _SIZES}
    points = [(s, bus_bandwidth(asked.op, s, asked.ranks, c[0].seconds).item()) for s, c in curve.items()]
    names = list(dict.fromkeys(c.algorithm for ways in curve.values() for c in ways))
    times = [
        [min((c.seconds for c in ways if c.algorithm == name), default=None) for ways in curve.values()]
        for name in names
    ]
    series = Series("bus bandwidth (busbw of nccl-tests)", [p[0] for p in points], [p[1] for p in points])
    tiers = [[t.tier, t.link, format_bytes(t.bytes)] for t in found[0].traffic]
    return page(
        title,
        [
            *drawings(flow),
            (f"Candidates at {format_bytes(asked.size)}", bar_list(bars, form=format_seconds)),
            ("Bytes of one rank by tier", table(("tier", "link", "bytes"), tiers)),
            ("Bus bandwidth", _curve(series)),
            (
                "Time by algorithm and size",
                heat_map(names, [format_bytes(s) for s in _SIZES], times, form=format_seconds),
            ),
        ],
    )
