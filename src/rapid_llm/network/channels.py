"""Channels of messages between peers of one node: how many carry a message, and what that leaves of its rate.

A channel is one thread block, which moves so many bytes a second whatever the link. NCCL (2.27, enqueue.cc and
graph/paths.cc) cuts a message into parts of at least 64 KiB, gives each a channel while the accelerator has some for
every peer, and then doubles them while a part is longer than 16 MiB. It uses the protocol with flags up to 16 KiB for
each channel that a peer may get, whether or not the other would be faster.
"""

from dataclasses import dataclass
from typing import Final

from rapid_llm.network.technologies import Library, LinkCost

POOL: Final = 32
"""Channels of an accelerator for messages between peers."""
CROWDED: Final = 4
"""Messages that share a channel at most."""
PART: Final = 64 * 1024
"""Bytes of the smallest part."""
FULL: Final = 16 * 1024 * 1024
"""Bytes of a part above which further channels join."""

Bound = tuple[float, float]
"""Seconds, and seconds per byte, that a message takes at least."""


@dataclass(frozen=True, slots=True)
class Channels:
    """How many a message to one peer gets: ``few`` while its parts are short, and ``many`` once they are not."""

    few: int
    many: int
    all: int

    @staticmethod
    def of(cost: LinkCost, ranks: int) -> "Channels | None":
        """Those of a group on a link; None where a library says nothing of them."""
        if cost.channels is None:
            return None
        few = many = cost.channels
        while few > 1 and few * ranks > POOL:
            few //= 2
        while many > 1 and many * ranks > POOL * CROWDED:
            many //= 2
        return Channels(few, many, cost.channels)

    def bounds(self, share: float, rate: float) -> tuple[tuple[Bound, ...], ...]:
        """Lower bounds of the time of a message of ``share`` S, at ``rate`` a channel (B/s); the least of these sets
        counts.
        """
        one = ((0.0, share / rate),)
        short = ((PART / rate, 0.0), (0.0, share / rate / self.few))
        long = ((FULL / rate, 0.0), (0.0, share / rate / self.many))
        return (one, short, long) if self.many > self.few else (one, short)

    def seconds(self, size: float, rate: float) -> float:
        """The lower bound of the time of a message of ``size`` bytes that its channels set."""
        return min(max(s + b * size for s, b in bounds) for bounds in self.bounds(1.0, rate))

    def flagged(self, library: Library) -> float:
        """Bytes to a peer up to which a library uses its protocol with flags."""
        return max(protocol.until for protocol in library.protocols.values()) * self.all
