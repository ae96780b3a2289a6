"""What a benchmark that repeats one matrix multiplication finds in L2, operand by operand.

An operand is met again after all that was touched since: within a launch, or after a rotation through every copy of
the weights. It is still there where that fits (a least-recently-used cache). Sources: the collectors of the public
aiconfigurator tables say what rotates; the shares are read off their rows with one operand large.
"""

from collections.abc import Iterator
from typing import Final

import numpy as np

from rapid_llm.operators.families import Column
from rapid_llm.operators.rates import PARTITIONS, Rates

_RAW_BYTES: Final = 2.0  # activations before a kernel's own quantise pass are 16 bit
_SHARES: Final = (0.5, 0.8)
"""Share of L2 bandwidth at which tiles read what they find there: copied line by line, in boxes (TMA)."""
_BY_LINE: Final = frozenset(("volta", "turing", "ampere", "ampere-rtx", "ada"))
"""Architectures whose tiles are copied line by line."""
_KEPT: Final = 0.75  # of such an L2 holds what one launch touches; a rotation of many is read by all parts

Part = tuple[Column, Column]
"""Bytes moved, and bytes touched since they were last met."""


class Reuse:
    """The operands of some rows under a replay."""

    def __init__(self, columns: tuple[Column, ...], quantise: int, r: Rates, architecture: str) -> None:
        m, n, k, groups, x_bytes, w_bytes, y_bytes = columns
        self.x, self.w, self.y = groups * m * k * x_bytes, groups * k * n * w_bytes, groups * m * n * y_bytes
        self.raw = groups * m * k * (_RAW_BYTES if quantise else 0.0)
        self.again = quantise - 1
        self.share = _SHARES[architecture not in _BY_LINE] * r.l2_datasheet / r.l2
        copies = r.replay.rotated(self.w, r.resident)
        inputs = self.x + self.raw
        self.launch = inputs + self.w + self.y
        self.rotation = copies * self.w + self.y + inputs * (copies if r.replay.inputs else 1.0)
        self.written = self.launch
        if architecture in PARTITIONS:
            self.launch, self.rotation = self.launch / _KEPT, self.rotation * PARTITIONS[architecture]
            self.written = np.full_like(self.launch, np.inf)
        self.input = self.rotation if r.replay.inputs else self.launch

    def product(self) -> Iterator[Part]:
        """X, W and Y; an X that the quantise pass has just written is near."""
        yield self.x, self.x + self.raw if self.again >= 0 else self.input
        yield self.w, self.rotation
        yield self.y, self.written

    def cast(self) -> Iterator[Part]:
        """Reads and write of the quantise pass."""
        yield self.raw, self.input
        yield self.raw * self.again, self.raw
        yield self.x, self.written

    def seconds(self, parts: Iterator[Part], bandwidth: float, r: Rates) -> Column:
        """Seconds to move some parts at a share of the reachable HBM bandwidth.

        Each is met again at one distance, where a whole kernel's bytes are a mixture of distances: what fits is cut off
        twice as sharply as there (few rows on L40S run at the rate of L2 up to 0.9 of it, at that of HBM from 1.1 on).
        """
        return np.asarray(sum(r.stream(moved, bandwidth, met * met / r.resident, self.share) for moved, met in parts))
