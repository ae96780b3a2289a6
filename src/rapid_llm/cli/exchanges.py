"""``network collective`` where messages differ: an exchange by a matrix, and dispatch and combine of tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from rapid_llm import hardware
from rapid_llm.charts import Part, bar_list, page
from rapid_llm.cli import text
from rapid_llm.cli.networking import busiest, by_links, deliver, drawn_links, net_of
from rapid_llm.cli.style import show
from rapid_llm.dtypes import dtype
from rapid_llm.errors import InputError
from rapid_llm.network import Fabric, price_experts, price_matrix
from rapid_llm.network.experts import distinct, expert_library
from rapid_llm.network.technologies import library_for
from rapid_llm.units import format_bandwidth, format_bytes, format_seconds

if TYPE_CHECKING:
    from rapid_llm.cli.network_flags import OnLinks, Tokens, Written
    from rapid_llm.cli.networking import Group
    from rapid_llm.network.contention import Contended
    from rapid_llm.network.tasks import Floats

_SCALED = {"fp8": 1 + 4 / 128}
"""Bytes of an element on the wire where scales travel along: one of 4 bytes for 128 elements of a token (DeepEP)."""


def exchange(op: str, group: Group, links: OnLinks, tokens: Tokens, written: Written) -> int:
    """Price an exchange and print it."""
    priced = _by_matrix if op == "all_to_allv" else _of_experts
    answer, lines, bars, flow = priced(op, group, links, tokens)
    drawn = ""
    if written.html or written.out:
        title = f"{op} on {answer['accelerators']} x {group.system}"
        drawn = page(title, [*drawn_links(flow), ("Time", bar_list(bars, form=format_seconds))])
    deliver(answer, drawn, flow, links, written)
    if not written.json:
        show(lines)
    return 0


_Priced = tuple[dict[str, Any], list[str], list[Part], "Contended | None"]


def _by_matrix(op: str, group: Group, links: OnLinks, tokens: Tokens) -> _Priced:
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
    known = hardware.system(group.system)
    fabric, library = Fabric.of(known), group.library or library_for(known.groups[0].node.accelerator.vendor)
    closed = price_matrix(messages, group.stride, fabric=fabric, library=library)
    flow = None
    if by_links(links):
        from rapid_llm.network.exchange import exchange_on_links, stretch_of

        net, beside = net_of(group.system, ranks * group.stride, links)
        stretch = stretch_of(messages, group.stride, fabric, library)
        flow = exchange_on_links(messages, closed.seconds, stretch, net, fabric, group.stride, beside)
    seconds = closed.seconds if flow is None else flow.seconds
    most, mean = float(closed.sent.max()), float(closed.sent.mean())
    answer = {
        **_head(op, group, ranks, seconds, closed.seconds),
        "library": library,
        "sent_bytes": closed.sent.tolist(),
        "received_bytes": closed.received.tolist(),
        "bytes_per_s": most / seconds if seconds else 0.0,
        "busiest": {"rank": closed.rank, "tier": closed.tier},
        **_busy(flow),
    }
    lines = [
        f"{op:<13}{format_bytes(float(closed.sent.sum()))} among {_where(group, ranks)}",
        f"{'time':<13}{format_seconds(seconds)}{_beside(closed.seconds, flow)}",
        f"{'rate':<13}{format_bandwidth(answer['bytes_per_s'])} of the rank that sends most",
        f"{'each rank':<13}sends {format_bytes(mean)} on average, at most {format_bytes(most)}; receives at most "
        f"{format_bytes(float(closed.received.max()))}",
        f"{'bound by':<13}rank {closed.rank} on tier {closed.tier}, with {library}",
        *busiest(flow),
    ]
    own = np.eye(ranks, dtype=np.bool_)
    even = np.where(own, messages, messages[~own].mean())
    alike = price_matrix(even, group.stride, fabric=fabric, library=library).seconds
    lines.append(f"{'even':<13}{format_seconds(alike)} if all messages were alike")
    bars = [Part("this matrix", closed.seconds), Part("all messages alike", alike)]
    return {**answer, "even_seconds": alike}, lines, bars, flow


def _of_experts(op: str, group: Group, links: OnLinks, tokens: Tokens) -> _Priced:
    known, library = hardware.system(group.system), expert_library(group.library or "deepep")
    fabric = Fabric.of(known)
    ranks = known.accelerators if group.accelerators is None else group.accelerators
    _checked(tokens, ranks)
    inside = min(ranks, max(1, fabric.node_span // group.stride))
    nodes = -(-ranks // inside)
    if (tokens.node_limit or 0) > nodes:
        raise InputError(
            f"--node-limit {tokens.node_limit} is more than the nodes of these ranks, {nodes}. Try {nodes}, or to "
            "leave it out.",
            field="node_limit",
        )
    element = None if tokens.dtype is None else _SCALED.get(tokens.dtype, dtype(tokens.dtype).bytes)

    def price(mode: str | None) -> Any:
        return price_experts(
            op, tokens.tokens or 0, hidden_size=tokens.hidden, experts_per_token=tokens.topk, experts=tokens.experts,
            ranks=ranks, stride=group.stride, fabric=fabric, library=library, mode=mode, units=tokens.units,
            node_limit=tokens.node_limit, element_bytes=element,
        )  # fmt: skip

    best, modes = price(tokens.mode), list(library.modes)
    mode = modes[int(best.mode)]
    sent, far = float(best.wire_bytes), float(best.node_bytes)
    closed, flow = float(best.seconds), None
    if by_links(links):
        flow = _expert_flow(op, group, links, (sent, far), closed, ranks, inside, library.modes[mode].deduplicated)
    seconds = closed if flow is None else flow.seconds
    copies = _copies(tokens, ranks, nodes, deduplicated=library.modes[mode].deduplicated)
    answer = {
        **_head(op, group, ranks, seconds, closed),
        "library": library.name,
        "mode": mode,
        "tokens": tokens.tokens,
        "hidden": tokens.hidden,
        "topk": tokens.topk,
        "experts": tokens.experts,
        "sent_bytes": sent,
        "node_bytes": far,
        "bytes_per_s": sent / seconds if seconds else 0.0,
        "compute_units": float(best.units),
        "destinations_per_token": {"ranks": copies[0], "nodes": copies[1]},
        "candidates": [{"mode": one, "seconds": float(price(one).seconds)} for one in modes],
        **_busy(flow),
    }
    shape = f"{tokens.tokens:,} tokens a rank of {tokens.hidden:,}, top {tokens.topk} of {tokens.experts} experts"
    lines = [
        f"{op:<13}{shape}, {_where(group, ranks)}",
        f"{'time':<13}{format_seconds(seconds)}{_beside(closed, flow)}",
        f"{'rate':<13}{format_bandwidth(answer['bytes_per_s'])} of a rank",
        f"{'library':<13}{library.name}, mode {mode}, on {best.units:.0f} compute units",
        f"{'each token':<13}goes to {copies[0]:.2f} ranks on {copies[1]:.2f} nodes on average"
        + (", once to each" if library.modes[mode].deduplicated else ", once for each expert"),
        f"{'each rank':<13}sends {format_bytes(sent)} to others, {format_bytes(far)} of them to other nodes",
        *busiest(flow),
    ]
    times = [(c["mode"], c["seconds"]) for c in answer["candidates"]]
    rows = [[name, format_seconds(s), f"{s / max(closed, 1e-300):.2f}"] for name, s in times]
    lines += ["", *text.columns(rows, ("mode", "time", "x best"), right=(1, 2))]
    return answer, lines, [Part(*one) for one in times], flow


def _expert_flow(  # noqa: PLR0917
    op: str,
    group: Group,
    links: OnLinks,
    moved: tuple[float, float],
    closed: float,
    ranks: int,
    inside: int,
    deduplicated: bool,
) -> Contended:
    from rapid_llm.network.exchange import exchange_on_links, expert_messages

    messages: Floats = expert_messages(ranks, inside, *moved, deduplicated=deduplicated)
    net, beside = net_of(group.system, ranks * group.stride, links)
    back = messages.T if op == "combine" else messages
    return exchange_on_links(back, closed, 1.0, net, Fabric.of(hardware.system(group.system)), group.stride, beside)


def _copies(tokens: Tokens, ranks: int, nodes: int, *, deduplicated: bool) -> tuple[float, float]:
    """Ranks and nodes that a token goes to, its own among them."""
    reach = min(nodes, tokens.node_limit or nodes)
    if not deduplicated:
        return float(tokens.topk), float(distinct(nodes, tokens.topk))
    return float(distinct(ranks * reach / nodes, tokens.topk)), float(distinct(reach, tokens.topk))


def _checked(tokens: Tokens, ranks: int) -> None:
    """InputError for numbers of tokens and experts that cannot be."""
    for name in ("tokens", "hidden", "topk", "experts", "units", "node_limit"):
        value = getattr(tokens, name)
        if value is not None and value < 1:
            raise InputError(f"--{name.replace('_', '-')} must be at least 1 (got {value}).", field=name)
    if tokens.topk > tokens.experts:
        raise InputError(f"--topk {tokens.topk} is above --experts {tokens.experts}.", field="topk")
    if ranks > 1 and tokens.experts % ranks:
        raise InputError(
            f"--experts {tokens.experts} must be a multiple of the {ranks} ranks that hold them; give --accelerators "
            f"{max(n for n in range(1, min(ranks, tokens.experts) + 1) if tokens.experts % n == 0)}.",
            field="experts",
        )
    if ranks < 2:
        raise InputError("one accelerator has nobody to talk to. Use --accelerators 2 or more.", field="accelerators")


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
