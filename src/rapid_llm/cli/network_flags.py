"""The flags of ``network collective``, by group."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from cyclopts import Group, Parameter

_LINKS = Group("Link by link", sort_key=1)
_EXPERTS = Group("dispatch, combine and all_to_allv", sort_key=2)
_OUTPUT = Group("Output", sort_key=3)


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class OnLinks:
    """How the links are seen."""

    network: Annotated[
        str | None,
        Parameter(
            group=_LINKS,
            help="closed-form, or flow: link by link, with busiest links; default: flow with any other flag here.",
            show_default=False,
        ),
    ] = None
    fault: Annotated[
        tuple[str, ...],
        Parameter(
            group=_LINKS,
            negative=(),
            help="As 'link: [node0.nic0, leaf0.0], bandwidth: 50 %' or 'nic: node1.nic3, down: true'; repeatable.",
            show_default=False,
        ),
    ] = ()
    routing: Annotated[
        str, Parameter(group=_LINKS, help="How links are chosen: a name, or a CSV of routes (from, to, via).")
    ] = "auto"
    traffic: Annotated[
        str | None, Parameter(group=_LINKS, help="CSV of other flows from the start (from, to, bytes).")
    ] = None
    svg: Annotated[str | None, Parameter(group=_LINKS, help="Write a picture: links shaded by what they carry.")] = None

    @property
    def asked(self) -> str:
        """The first flag that wants links one by one, or ''."""
        given = {"--fault": self.fault, "--traffic": self.traffic, "--svg": self.svg}
        return next((flag for flag, value in given.items() if value), "--routing" if self.routing != "auto" else "")


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Tokens:
    """What experts exchange, or who sends how much to whom."""

    tokens: Annotated[int | None, Parameter(group=_EXPERTS, help="Tokens of each rank.")] = None
    hidden: Annotated[int | None, Parameter(group=_EXPERTS, help="Elements of a token; default: 7168.")] = None
    topk: Annotated[int | None, Parameter(group=_EXPERTS, help="Experts that a token goes to; default: 8.")] = None
    experts: Annotated[int | None, Parameter(group=_EXPERTS, help="Experts in all; default: 256.")] = None
    dtype: Annotated[
        str | None,
        Parameter(group=_EXPERTS, help="Format on the wire, such as fp8 or bf16; default: the library's."),
    ] = None
    mode: Annotated[
        str | None,
        Parameter(
            group=_EXPERTS,
            help="normal or low-latency; default as engines do: low-latency up to the tokens that its buffers hold "
            "(128 a rank), else normal.",
        ),
    ] = None
    units: Annotated[int | None, Parameter(group=_EXPERTS, help="Compute units (SMs) that carry it.")] = None
    node_limit: Annotated[
        int | None, Parameter(group=_EXPERTS, help="Nodes that a token's experts may lie on; default: all.")
    ] = None
    matrix: Annotated[
        str | None,
        Parameter(
            group=_EXPERTS, help="CSV for all_to_allv: bytes, a row for each sender, a column for each receiver."
        ),
    ] = None


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Written:
    """Where the answer goes."""

    json: Annotated[bool, Parameter(group=_OUTPUT, negative=(), help="One JSON object, SI units.")] = False
    html: Annotated[str | None, Parameter(group=_OUTPUT, help="Write a page of the answer.")] = None
    out: Annotated[str | None, Parameter(group=_OUTPUT, help="Folder for the answer and its page.")] = None


ON_LINKS, TOKENS, WRITTEN = OnLinks(), Tokens(), Written()
