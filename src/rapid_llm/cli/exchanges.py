"""``network collective`` where messages differ: an exchange by a matrix, and dispatch and combine of tokens."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from rapid_llm import hardware
from rapid_llm.charts import Part, bar_list, page
from rapid_llm.cli import text
from rapid_llm.cli.link_by_link import busiest, by_links, deliver, drawings, net_of, of_form
from rapid_llm.dtypes import dtype
from rapid_llm.errors import InputError
from rapid_llm.network import Fabric, price_experts, price_matrix
from rapid_llm.network.experts import distinct, expert_library
from rapid_llm.network.technologies import library_for
from rapid_llm.units import MAX_COUNT, format_bandwidth, format_bytes, format_seconds

if TYPE_CHECKING:
    from rapid_llm.cli.network_flags import OnLinks, Tokens, Written
    from rapid_llm.cli.networking import Group
    from rapid_llm.network.contention import Contended
    from rapid_llm.network.experts import ExpertPrices
    from rapid_llm.network.tasks import Floats
    from rapid_llm.network.uneven import MatrixPrice

_SCALED = {"fp8": 1 + 4 / 128}
"""Bytes of an element on the wire where scales travel along: one of 4 bytes for 128 elements of a token (DeepEP)."""
_USUAL = {"hidden": 7168, "topk": 8, "experts": 256}
"""Flags that are not given: the layers of DeepSeek-V3, as the benchmarks of DeepEP have them."""


def exchange(op: str, group: Group, links: OnLinks, tokens: Tokens, written: Written) -> int:
    """Price an exchange and print it."""
    priced = _by_matrix if op == "all_to_allv" else _of_experts
    answer, lines, bars, flow = priced(op, group, links, tokens)
    drawn = ""
    if written.html or written.out:
        title = f"{op} on {answer['accelerators']} accelerators of {group.system}"
        drawn = page(title, [*drawings(flow), ("Time", bar_list(bars, form=format_seconds))])
    deliver(answer, lines, drawn, flow, links, written)
    return 0


_Priced = tuple[dict[str, Any], list[str], list[Part], "Contended | None"]


def _by_matrix(op: str, group: Group, links: OnLinks, tokens: Tokens) -> _Priced:
    messages = _messages(group, tokens)
    ranks = len(messages)
    known = hardware.system(group.system)
    fabric, library = Fabric.of(known), group.library or library_for(known.groups[0].node.accelerator.vendor)
    closed = price_matrix(messages, group.stride, fabric=fabric, library=library)
    flow = _matrix_flow(messages, closed.seconds, group, links, library) if by_links(links) else None
    seconds = closed.seconds if flow is None else flow.seconds
    own = np.eye(ranks, dtype=np.bool_)
    even = np.where(own, messages, messages[~own].mean())
    alike = price_matrix(even, group.stride, fabric=fabric, library=library).seconds
    answer = {
        **_head(op, group, ranks, seconds, closed.seconds),
        "library": library,
        "sent_bytes": closed.sent.tolist(),
        "received_bytes": closed.received.tolist(),
        "bytes_per_s": float(closed.sent.max()) / seconds if seconds else 0.0,
        "busiest": {"rank": closed.rank, "tier": closed.tier},
        **_busy(flow),
        "even_seconds": alike,
    }
    bars = [Part("this matrix", closed.seconds), Part("all messages alike", alike)]
    return answer, _matrix_lines(answer, group, closed, flow), bars, flow


def _messages(group: Group, tokens: Tokens) -> Floats:
    """Bytes from every rank (row) to every rank, of ``--matrix``; InputError for another number of accelerators."""
    from rapid_llm.network.files import read_messages

    assert tokens.matrix is not None
    messages = read_messages(tokens.matrix)
    ranks = len(messages)
    if group.accelerators not in (None, ranks):
        raise InputError(
            f"--matrix has {ranks} rows, but --accelerators is {group.accelerators}; leave it out.",
            field="accelerators",
        )
    if ranks < 2:
        raise InputError("one accelerator has nobody to talk to. Give a matrix of 2 rows or more.", field="matrix")
    return messages


def _matrix_flow(messages: Floats, seconds: float, group: Group, links: OnLinks, library: str) -> Contended:
    from rapid_llm.network.exchange import exchange_on_links, stretch_of

    fabric = Fabric.of(hardware.system(group.system))
    net, beside = net_of(group.system, len(messages) * group.stride, links)
    stretch = stretch_of(messages, group.stride, fabric, library)
    return exchange_on_links(messages, seconds, stretch, net, fabric, group.stride, beside)


def _matrix_lines(answer: dict[str, Any], group: Group, closed: MatrixPrice, flow: Contended | None) -> list[str]:
    most, mean = format_bytes(float(closed.sent.max())), format_bytes(float(closed.sent.mean()))
    total, received = format_bytes(float(closed.sent.sum())), format_bytes(float(closed.received.max()))
    return [
        f"{answer['op']:<13}{total} among {_where(group, answer['accelerators'])}",
        f"{'time':<13}{format_seconds(answer['seconds'])}{_beside(closed.seconds, flow)}",
        f"{'rate':<13}{format_bandwidth(answer['bytes_per_s'])} of the rank that sends most",
        f"{'each rank':<13}sends {mean} on average, at most {most}; receives at most {received}",
        f"{'bound by':<13}rank {closed.rank} on tier {closed.tier}, with {answer['library']}",
        *busiest(flow),
        f"{'even':<13}{format_seconds(answer['even_seconds'])} if all messages were alike",
    ]


@dataclass(frozen=True, kw_only=True, slots=True)
class _Routing:
    """Tokens of every rank and the experts that they go to, over ranks of which ``inside`` stand on a node."""

    op: str
    tokens: int
    hidden: int
    topk: int
    experts: int
    node_limit: int | None
    ranks: int
    inside: int

    @property
    def nodes(self) -> int:
        return -(-self.ranks // self.inside)

    def copies(self, *, deduplicated: bool) -> tuple[float, float]:
        """Ranks and nodes that a token goes to, its own among them."""
        reach = min(self.nodes, self.node_limit or self.nodes)
        ranks = distinct(self.ranks * reach / self.nodes, self.topk) if deduplicated else self.topk
        return float(ranks), float(distinct(reach, self.topk))


def _of_experts(op: str, group: Group, links: OnLinks, tokens: Tokens) -> _Priced:
    known, library = hardware.system(group.system), expert_library(group.library or "deepep")
    fabric = Fabric.of(known)
    routing = _routing(
        op, tokens, known.accelerators if group.accelerators is None else group.accelerators, fabric, group
    )
    element = None if tokens.dtype is None else _SCALED.get(tokens.dtype, dtype(tokens.dtype).bytes)

    def price(mode: str | None) -> ExpertPrices:
        return price_experts(
            op, routing.tokens, hidden_size=routing.hidden, experts_per_token=routing.topk, experts=routing.experts,
            ranks=routing.ranks, stride=group.stride, fabric=fabric, library=library, mode=mode, units=tokens.units,
            node_limit=routing.node_limit, element_bytes=element,
        )  # fmt: skip

    best = price(tokens.mode)
    mode = list(library.modes)[int(best.mode)]
    deduplicated = library.modes[mode].deduplicated
    flow = _expert_flow(routing, group, links, best, deduplicated=deduplicated) if by_links(links) else None
    times = [(one, float(price(one).seconds)) for one in library.modes]
    copies = routing.copies(deduplicated=deduplicated)
    answer = _expert_answer(routing, group, best, flow, copies) | {
        "library": library.name,
        "mode": mode,
        "candidates": [{"mode": one, "seconds": seconds} for one, seconds in times],
    }
    lines = _expert_lines(answer, group, flow, "once to each" if deduplicated else "once for each expert")
    if tokens.mode is None and any(seconds < answer["closed_form_seconds"] for _, seconds in times):
        lines.append(f"{'':<13}as engines decode: calls of the faster mode also wait for the host, not in its time")
    fastest = max(min(seconds for _, seconds in times), 1e-300)
    rows = [[one, format_seconds(seconds), f"{seconds / fastest:.2f}"] for one, seconds in times]
    lines += ["", *text.columns(rows, (f"mode{of_form(flow)}", "time", "x best"), right=(1, 2))]
    return answer, lines, [Part(*one) for one in times], flow


def _expert_answer(
    routing: _Routing, group: Group, best: ExpertPrices, flow: Contended | None, copies: tuple[float, float]
) -> dict[str, Any]:
    closed, sent = float(best.seconds), float(best.wire_bytes)
    seconds = closed if flow is None else flow.seconds
    return {
        **_head(routing.op, group, routing.ranks, seconds, closed),
        "tokens": routing.tokens,
        "hidden": routing.hidden,
        "topk": routing.topk,
        "experts": routing.experts,
        "sent_bytes": sent,
        "node_bytes": float(best.node_bytes),
        "bytes_per_s": sent / seconds if seconds else 0.0,
        "compute_units": float(best.units),
        "destinations_per_token": {"ranks": copies[0], "nodes": copies[1]},
        **_busy(flow),
    }


def _expert_lines(answer: dict[str, Any], group: Group, flow: Contended | None, how_often: str) -> list[str]:
    shape = f"{answer['tokens']:,} tokens a rank of {answer['hidden']:,}, top {answer['topk']} of {answer['experts']}"
    reached = answer["destinations_per_token"]
    sent, far = format_bytes(answer["sent_bytes"]), format_bytes(answer["node_bytes"])
    return [
        f"{answer['op']:<13}{shape} experts, {_where(group, answer['accelerators'])}",
        f"{'time':<13}{format_seconds(answer['seconds'])}{_beside(answer['closed_form_seconds'], flow)}",
        f"{'rate':<13}{format_bandwidth(answer['bytes_per_s'])} of a rank",
        f"{'library':<13}{answer['library']}, mode {answer['mode']}, on {answer['compute_units']:.0f} compute units",
        f"{'each token':<13}goes to {reached['ranks']:.2f} ranks on {reached['nodes']:.2f} nodes on average, "
        f"{how_often}",
        f"{'each rank':<13}sends {sent} to others, {far} of them to other nodes",
        *busiest(flow),
    ]


def _expert_flow(
    routing: _Routing, group: Group, links: OnLinks, best: ExpertPrices, *, deduplicated: bool
) -> Contended:
    from rapid_llm.network.exchange import exchange_on_links, expert_messages

    moved = float(best.wire_bytes), float(best.node_bytes)
    messages: Floats = expert_messages(routing.ranks, routing.inside, *moved, deduplicated=deduplicated)
    net, beside = net_of(group.system, routing.ranks * group.stride, links)
    back = messages.T if routing.op == "combine" else messages
    fabric = Fabric.of(hardware.system(group.system))
    return exchange_on_links(back, float(best.seconds), 1.0, net, fabric, group.stride, beside)


def _routing(op: str, tokens: Tokens, ranks: int, fabric: Fabric, group: Group) -> _Routing:
    """What is routed where; InputError for numbers of tokens and experts that cannot be."""
    for name in ("tokens", *_USUAL, "units", "node_limit"):
        value, flag = getattr(tokens, name), f"--{name.replace('_', '-')}"
        if value is not None and value < 1:
            raise InputError(f"{flag} must be at least 1 (got {value}). Try {_USUAL.get(name, 1)}.", field=name)
        if value is not None and value > MAX_COUNT:
            raise InputError(f"{flag} must be an integer of at most {MAX_COUNT:,} (got {str(value)[:40]}).", field=name)
    usual = {name: usual if (given := getattr(tokens, name)) is None else given for name, usual in _USUAL.items()}
    inside = min(ranks, max(1, fabric.node_span // group.stride))
    found = _Routing(
        op=op, tokens=tokens.tokens or 0, node_limit=tokens.node_limit, ranks=ranks, inside=inside, **usual
    )
    if found.topk > found.experts:
        raise InputError(
            f"--topk {found.topk} is above --experts {found.experts}. Try --topk {found.experts}.", field="topk"
        )
    if ranks < 2:
        raise InputError("one accelerator has nobody to talk to. Use --accelerators 2 or more.", field="accelerators")
    if found.experts % ranks:
        raise InputError(
            f"--experts {found.experts} must be a multiple of the {ranks} ranks that hold them; give --accelerators "
            f"{max(n for n in range(1, min(ranks, found.experts) + 1) if found.experts % n == 0)}.",
            field="experts",
        )
    if (found.node_limit or 0) > found.nodes:
        raise InputError(
            f"--node-limit {found.node_limit} is more than the nodes of these ranks, {found.nodes}. "
            f"Try {found.nodes}, or to leave it out.",
            field="node_limit",
        )
    return found


def _head(op: str, group: Group, ranks: int, seconds: float, closed: float) -> dict[str, Any]:
    return {
        "op": op,
        "system": group.system,
        "accelerators": ranks,
        "stride": group.stride,
        "seconds": seconds,
        "closed_form_seconds": closed,
    }


def _busy(flow: Contended | None) -> dict[str, Any]:
    links = [] if flow is None else flow.busiest(5)
    return {"busiest_links": [{"link": name, "bytes": moved, "use": use} for name, moved, use in links]}


def _where(group: Group, ranks: int) -> str:
    apart = f", {group.stride} apart" if group.stride > 1 else ""
    return f"{ranks} accelerators of {group.system}{apart}"


def _beside(closed: float, flow: Contended | None) -> str:
    return "" if flow is None else f", link by link (closed form {format_seconds(closed)})"
