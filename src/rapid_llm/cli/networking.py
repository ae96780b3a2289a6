"""``network``: one collective with all ways to run it and what each tier carries; the order of parallel axes."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rapid_llm import hardware
from rapid_llm.charts import Part, Series, bar_list, heat_map, page, plot, table
from rapid_llm.cli import text
from rapid_llm.cli.files import write_page
from rapid_llm.cli.flags import Common
from rapid_llm.cli.style import show
from rapid_llm.documents import parse_yaml
from rapid_llm.errors import InputError
from rapid_llm.network import Candidate, Fabric, bus_bandwidth, candidates, read_recipe
from rapid_llm.network.placement import BestOrder
from rapid_llm.network.technologies import library_for
from rapid_llm.provenance import is_path
from rapid_llm.units import format_bandwidth, format_bytes, format_percent, format_seconds, parse

if TYPE_CHECKING:
    from rapid_llm.network.contention import Contended
    from rapid_llm.network.flow_prices import Hurt

_SIZES = [2**k for k in range(10, 35, 2)]
"""Message sizes of the page's curves, B."""
_SHOWN = 12
"""Candidates that the terminal lists."""
_LINKS, _BOXES, _DRAWN = 5, 64, 400
"""Busiest links that are listed, boxes that the heat map shows, and nodes of a topology that is drawn."""


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

    def bandwidths(self, seconds: float) -> tuple[float, float]:
        """algbw and busbw (B/s)."""
        return self.size / seconds, bus_bandwidth(self.op, self.size, self.ranks, seconds).item()


def collective(
    op: str,
    *,
    system: str,
    accelerators: int | None,
    size: str,
    stride: int,
    library: str | None,
    small: str | None,
    algorithm: str | None,
    network: str,
    faults: Sequence[str],
    as_json: bool,
    html: str | None,
    out: str | None,
) -> int:
    """Price one collective and print it; with ``html`` or ``out`` write a page of it as well."""
    known = hardware.system(system)
    if stride < 1:
        raise InputError(f"--stride must be at least 1 (got {stride}).", field="stride")
    asked = Question(
        op.replace("-", "_"),
        system,
        known.accelerators if accelerators is None else accelerators,
        message_size(size),
        stride,
        library or library_for(known.groups[0].node.accelerator.vendor),
        small,
        algorithm,
    )
    found = asked.candidates()
    if not found:
        raise InputError("one accelerator has nobody to talk to. Use --accelerators 2 or more.", field="accelerators")
    hurt = _flow(asked, found[0], network, faults)
    flow = hurt.best if hurt else None
    answer = _answer(asked, found, hurt)
    _write(_page(asked, found, flow) if html or out else "", answer, html, out)
    if as_json:
        print(json.dumps(answer, indent=2))
    else:
        show(_lines(asked, found, hurt))
    return 0


def _flow(asked: Question, best: Candidate, network: str, faults: Sequence[str]) -> Hurt | None:
    """The fastest way on the explicit topology, with its faults; None for the closed form alone."""
    if network not in ("closed-form", "flow"):
        raise InputError(f"--network is closed-form or flow (got {network}).", field="network")
    if network == "closed-form":
        if faults:
            raise InputError("the closed form knows no single link: faults need --network flow.", field="faults")
        return None
    from rapid_llm.network.faults import read_faults
    from rapid_llm.network.flow_prices import Links, interconnect, under_faults

    given = read_faults([fault(text) for text in faults], prefix="--fault")
    net = interconnect(hardware.system(asked.system), Links(asked.ranks * asked.stride, given))
    return under_faults(best, asked.size, net)


def fault(given: str) -> Mapping[str, Any]:
    """A fault as a scenario writes it, such as {link: [node0.nic0, leaf0.0], bandwidth: 50 %}."""
    return parse_yaml(given if given.lstrip().startswith("{") else f"{{{given}}}", "--fault").data


def message_size(given: str) -> float:
    """Bytes of ``--size``; InputError where it is not above 0."""
    try:
        size = parse(given, "bytes")
    except ValueError as error:
        raise InputError(f"--size {error}", field="size") from None
    if size <= 0:
        raise InputError(f"--size must be above 0 (got {given}).", field="size")
    return size


def _answer(asked: Question, found: Sequence[Candidate], hurt: Hurt | None) -> dict[str, Any]:
    """The JSON object, SI units."""
    best, flow = found[0], hurt.best if hurt else None
    seconds = best.seconds if flow is None else flow.seconds
    algorithm_bandwidth, bus = asked.bandwidths(seconds)
    links = [] if flow is None else flow.busiest(_LINKS)
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
        "policies": {"detour": hurt.detour, "replan": hurt.replan, "plan": hurt.plan} if hurt and hurt.plan else None,
    }


def _lines(asked: Question, found: Sequence[Candidate], hurt: Hurt | None) -> list[str]:
    best, flow = found[0], hurt.best if hurt else None
    seconds = best.seconds if flow is None else flow.seconds
    algorithm_bandwidth, bus = asked.bandwidths(seconds)
    apart = f", {asked.stride} apart" if asked.stride > 1 else ""
    where = f"{asked.ranks} accelerators of {asked.system}{apart}, {_nodes(best.way.group.nodes)}"
    lines = [
        f"{asked.op:<13}{format_bytes(asked.size)} on {where}",
        f"{'time':<13}{format_seconds(seconds)}{_beside(best, flow)}",
        f"{'algbw':<13}{format_bandwidth(algorithm_bandwidth)}",
        f"{'busbw':<13}{format_bandwidth(bus)}",
        f"{'algorithm':<13}{best.algorithm}, protocol {best.protocol} of {asked.library}",
    ]
    if hurt and hurt.plan:
        again = f"{hurt.plan} {format_seconds(hurt.replan)}" if hurt.replan < hurt.detour else "no plan that is faster"
        lines.append(f"{'faults':<13}detour {format_seconds(hurt.detour)}; re-plan: {again}")
    for index, tier in enumerate(best.traffic):
        label = "each rank" if index == 0 else ""
        lines.append(f"{label:<13}sends {format_bytes(tier.bytes)} over {tier.tier} ({tier.link})")
    for index, (name, moved, use) in enumerate([] if flow is None else flow.busiest(_LINKS)):
        label = "busiest link" if index == 0 else ""
        lines.append(f"{label:<13}{name}: {format_bytes(moved)}, {format_percent(use)} of what it can move meanwhile")
    rows = [
        [c.algorithm, c.protocol, format_seconds(c.seconds), f"{c.seconds / best.seconds:.2f}", format_bytes(c.sent)]
        for c in found[:_SHOWN]
    ]
    if best.seconds > min(c.seconds for c in found):
        lines.append(f"{'':<13}the tuner of {asked.library} takes it, though another would be faster")
    lines += ["", *text.columns(rows, ("candidate", "protocol", "time", "x best", "sent"), right=(2, 3, 4))]
    if len(found) > _SHOWN:
        lines.append(f"and {len(found) - _SHOWN} more; --json lists all")
    return lines


def _beside(best: Candidate, flow: Contended | None) -> str:
    return "" if flow is None else f", link by link (closed form {format_seconds(best.seconds)})"


def _nodes(count: int) -> str:
    return "one node" if count == 1 else f"{count} nodes"


def _write(drawn: str, answer: dict[str, Any], html: str | None, out: str | None) -> None:
    if html is not None:
        write_page("--html", html, drawn)
    if out is not None:
        folder = Path(out)
        if folder.exists() and not folder.is_dir():
            raise InputError(f"--out {out} is a file. Name a folder.")
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "collective.json").write_text(json.dumps(answer, indent=2) + "\n", "utf-8")
        (folder / "collective.html").write_text(drawn, "utf-8")


def _page(asked: Question, found: Sequence[Candidate], flow: Contended | None) -> str:
    """Candidates as bars, bus bandwidth over size, and which algorithm costs what at which size."""
    from rapid_llm.network.picture import topology_svg

    title = f"{asked.op} on {asked.ranks} x {asked.system}"
    bars = [Part(f"{c.algorithm} {c.protocol}", c.seconds) for c in found]
    curve = {size: asked.candidates(size) for size in _SIZES}
    points = [(s, bus_bandwidth(asked.op, s, asked.ranks, c[0].seconds).item()) for s, c in curve.items()]
    names = list(dict.fromkeys(c.algorithm for ways in curve.values() for c in ways))
    times = [
        [min((c.seconds for c in ways if c.algorithm == name), default=None) for ways in curve.values()]
        for name in names
    ]
    series = Series("busbw", [p[0] for p in points], [p[1] for p in points])
    tiers = [[t.tier, t.link, format_bytes(t.bytes)] for t in found[0].traffic]
    used = []
    if flow is not None:
        if flow.topology.nodes <= _DRAWN:
            used.append(("Bytes of links", topology_svg(flow.topology, flow.link_bytes)))
        boxes, kinds, values = flow.by_box()
        drawing = heat_map(boxes[:_BOXES], kinds, values[:_BOXES], form=format_percent, cell=(130, 24))
        used.append(("Use of the busiest link of each kind", drawing))
    return page(
        title,
        [
            *used,
            (f"Candidates at {format_bytes(asked.size)}", bar_list(bars, form=format_seconds)),
            ("Bytes of one rank by tier", table(("tier", "link", "bytes"), tiers)),
            ("Bus bandwidth", plot([series], x_label="bytes", y_label="B/s", log_x=True, form=format_bytes)),
            (
                "Time by algorithm and size",
                heat_map(names, [format_bytes(s) for s in _SIZES], times, form=format_seconds),
            ),
        ],
    )


def placement(file: str, common: Common) -> int:
    """The best order of the axes of a training scenario by the messages of its step, and what the step gains."""
    from rapid_llm.execution.traffic import step_traffic
    from rapid_llm.network.placement import best_order
    from rapid_llm.predict.engine import evaluate
    from rapid_llm.predict.training import TrainingTable
    from rapid_llm.scenario import load, require

    scenario = load(file, overrides=list(common.sets))
    require(scenario)
    table = evaluate(scenario)
    if not isinstance(table, TrainingTable):
        raise InputError("network placement reads training scenarios: an inference step repeats one kind of message.")
    if table.step.seats is not None:
        raise InputError(
            "network placement orders axes on equal nodes, and here the order also moves stages from group to group. "
            "Try placement.order in rapid-llm run."
        )
    priced, used = table.step.priced, scenario.runtime.communication
    traffic, fabric = step_traffic(priced.lowered), priced.machine.fabric
    found = best_order(traffic, table.plans, fabric=fabric, library=used.library, small=used.small_all_reduce)
    again = load(file, overrides=[*common.sets, f"placement.order=[{', '.join(found.best.order)}]"])
    before, after = float(table.step_time_s[0]), float(evaluate(again).step_time_s[0])  # type: ignore[union-attr]
    if common.json:
        print(json.dumps(_orders(found, before, after), indent=2))
    else:
        show(_order_lines(found, before, after))
    return 0


def _orders(found: BestOrder, before: float, after: float) -> dict[str, Any]:
    tried = [{"order": p.order, "seconds": p.seconds, "by_axis": dict(p.by_axis)} for p in found.tried]
    return {
        "asked": list(found.asked.order),
        "best": list(found.best.order),
        "gain": found.gain,
        "step_time_s": before,
        "best_step_time_s": after,
        "tried": tried,
    }


def _order_lines(found: BestOrder, before: float, after: float) -> list[str]:
    rows = [
        [", ".join(p.order), format_seconds(p.seconds), *(format_seconds(s) for _, s in p.by_axis)]
        for p in found.tried[:_SHOWN]
    ]
    header = ("order, innermost first", "messages", *(axis for axis, _ in found.asked.by_axis))
    return [
        *text.wrapped("placement", found.sentence()),
        f"{'step time':<13}{format_seconds(before)} as asked, {format_seconds(after)} with the best order",
        "",
        *text.columns(rows, header, right=range(1, len(header))),
    ]
