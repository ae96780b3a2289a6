"""The health of a cluster: what is degraded, slow or down, as a user writes it."""

from typing import Annotated, Any

from pydantic import BeforeValidator
from pydantic.dataclasses import dataclass

from rapid_llm.nouns import STRICT
from rapid_llm.units import Count, Remainder, Seconds, format_percent, format_seconds


def _pair(value: Any) -> Any:
    if not isinstance(value, (list, tuple)) or len(value) != 2:
        given = f"{len(value)} of them" if isinstance(value, (list, tuple)) else f"'{value}'"
        raise ValueError(f"must name the two nodes that it joins, such as [node0.nic0, leaf0.0] (got {given})")
    return value


@dataclass(frozen=True, kw_only=True, config=STRICT)
class RandomFaults:
    """``links`` cables drawn by ``seed``."""

    links: Count
    seed: int = 0


@dataclass(frozen=True, kw_only=True, config=STRICT)
class Fault:
    """One fault: exactly one of where it is, and what it does there.

    Where: ``link`` joins two named nodes (both directions); ``nic``, ``switch`` a named node; ``node`` a box by its
    name or number; ``accelerator`` a rank's place, or a name (``node0.gpu3``); ``random`` links. What: ``down``;
    ``bandwidth``, the share that is left; ``latency``, added per link (s); ``speed``, the share of compute that an
    accelerator or node has left.
    """

    link: Annotated[tuple[str, str], BeforeValidator(_pair)] | None = None
    nic: str | None = None
    switch: str | None = None
    node: str | int | None = None
    accelerator: int | str | None = None
    random: RandomFaults | None = None
    down: bool = False
    bandwidth: Remainder | None = None
    latency: Seconds | None = None
    speed: Remainder | None = None

    def __post_init__(self) -> None:
        """Refuse a fault without a place or without an effect."""
        places = [name for name in ("link", "nic", "switch", "node", "accelerator", "random") if self._given(name)]
        if len(places) != 1:
            raise ValueError(
                "must be at one of link, nic, switch, node, accelerator or random "
                f"(got {' and '.join(places) or 'none'})"
            )
        if not self.down and self.bandwidth is None and self.latency is None and self.speed is None:
            raise ValueError(f"does nothing at {places[0]}; give down: true, bandwidth, latency or speed")
        if self.speed is not None and places[0] not in ("accelerator", "node"):
            raise ValueError(f"takes speed at an accelerator or a node, not at a {places[0]}")

    def _given(self, name: str) -> bool:
        return getattr(self, name) is not None

    @property
    def of_links(self) -> bool:
        """Whether it changes what links carry, and not only how fast an accelerator computes."""
        return self.down or self.bandwidth is not None or self.latency is not None

    @property
    def place(self) -> str:
        """Where it is, in words: ``node1.nic2``, ``accelerator 17``."""
        if self.link is not None:
            return f"{self.link[0]} - {self.link[1]}"
        if self.random is not None:
            return f"{self.random.links} random link{'s' * (self.random.links > 1)} (seed {self.random.seed})"
        if self.accelerator is not None:
            return f"accelerator {self.accelerator}" if isinstance(self.accelerator, int) else self.accelerator
        return self.nic or self.switch or f"node{str(self.node).removeprefix('node')}"

    def __str__(self) -> str:
        """Where it is and what it does there: ``node1.nic2 at 50 % of its bandwidth``."""
        if self.down:
            return f"{self.place} down"
        does, whose = [], "their" if self.random is not None and self.random.links > 1 else "its"
        if self.bandwidth is not None:
            does.append(f"at {format_percent(self.bandwidth)} of {whose} bandwidth")
        if self.latency is not None:
            does.append(f"{format_seconds(self.latency)} slower")
        if self.speed is not None:
            does.append(f"at {format_percent(self.speed)} of its speed")
        return f"{self.place} {', '.join(does)}"
