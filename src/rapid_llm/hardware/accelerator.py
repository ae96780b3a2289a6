"""One accelerator, as its datasheet describes it, and the few numbers that measurements add."""

from collections.abc import Mapping
from typing import Annotated, Final

from pydantic import AfterValidator
from pydantic.dataclasses import dataclass

from rapid_llm.dtypes import DTYPES
from rapid_llm.errors import unknown_name
from rapid_llm.nouns import STRICT, Map, hash_once
from rapid_llm.units import (
    Bytes,
    BytesPerSecond,
    Count,
    FlopsPerSecond,
    Fraction,
    Hertz,
    JoulesPerByte,
    Positive,
    Seconds,
    Watts,
    format_bytes,
    format_power,
)


@dataclass(frozen=True, kw_only=True, config=STRICT)
class MemoryLevel:
    """One level of the memory hierarchy of an accelerator: size in bytes, bandwidth in B/s per direction mix."""

    capacity: Bytes
    bandwidth: BytesPerSecond


@dataclass(frozen=True, kw_only=True, config=STRICT)
class Memory:
    """Memory levels of an accelerator, farthest first.

    ``withheld``: bytes of ``hbm`` that no process gets (ECC, firmware, driver). ``unified``: the host has no other
    memory than ``hbm``.
    """

    hbm: MemoryLevel
    withheld: Bytes = 0
    unified: bool = False
    l2: MemoryLevel | None = None
    shared_per_unit: Bytes | None = None
    registers_per_unit: Bytes | None = None

    def __post_init__(self) -> None:
        """Refuse a memory of which processes get nothing."""
        if self.withheld >= self.hbm.capacity:
            raise ValueError(
                f"leaves processes nothing: hbm.capacity is {format_bytes(self.hbm.capacity)}, of which "
                f"{format_bytes(self.withheld)} are withheld"
            )

    @property
    def reported_capacity(self) -> int:
        """Bytes that the driver shows to a process; feasibility is judged against them."""
        return self.hbm.capacity - self.withheld


@dataclass(frozen=True, kw_only=True, config=STRICT)
class Clocks:
    """Core clock in Hz: guaranteed, and the one that the datasheet's matrix rates assume.

    ``boost`` times compute units times operations per unit and clock is the matrix peak; a driver may allow more.
    """

    base: Hertz
    boost: Hertz


@dataclass(frozen=True, kw_only=True, config=STRICT)
class Power:
    """Board power in W: limit, idle, and ``awake``: clocks up for a process that runs nothing. ``per_byte``: J that a
    byte of main memory takes on its way to a compute unit; where either is unknown energy is not modelled.
    """

    limit: Watts
    idle: Watts | None = None
    awake: Watts | None = None
    per_byte: JoulesPerByte | None = None

    def __post_init__(self) -> None:
        """Refuse a floor above the limit."""
        if self.awake is not None and self.awake >= self.limit:
            raise ValueError(
                f"has awake {format_power(self.awake)} and limit {format_power(self.limit)}: awake must be below limit"
            )


@dataclass(frozen=True, kw_only=True, config=STRICT)
class ScaleUp:
    """The accelerator's own port into the scale-up fabric: technology name, B/s per direction over all its links."""

    link: str
    bandwidth: BytesPerSecond


@dataclass(frozen=True, kw_only=True, config=STRICT)
class Sustained:
    """What real kernels reach of the datasheet: the fitted numbers of an accelerator (at most five).

    ``clock`` is the share of the boost clock that long tensor work sustains, ``hbm`` and ``l2`` the reachable shares
    of those bandwidths, ``launch`` the floor of one captured kernel in seconds; ``matrix`` is the share of the matrix
    peak that one short kernel can draw on: below 1 on boards far below their chip's power, above where the driver
    clocks beyond the boost that the datasheet rates. ``narrow``: ``clock`` of products of 8 bits and fewer, which draw
    less a cycle, where that is known apart. ``spread``: the standard deviation of that clock among chips of one name,
    as a share of it, not fitted: the 8 % between the whiskers of five large systems (Sinha et al. 2022, arXiv
    2208.11035) are 5.4 standard deviations. bf16 steps of NVIDIA's DGX Cloud recipes on 8 to 2,048 H100 lengthen alike.
    """

    clock: Fraction
    hbm: Fraction
    l2: Fraction
    launch: Seconds
    matrix: Positive = 1.0
    narrow: Fraction | None = None
    spread: Fraction = 0.015

    def clock_of(self, rate: str) -> float:
        """Share of the boost clock that long products in a format sustain, by the name of its matrix rate."""
        return self.clock if self.narrow is None or rate not in _NARROW else self.narrow


_NARROW: Final = frozenset({"fp8", "mxfp8", "fp6", "fp4", "int8", "int4"})
FORMATS: Final = tuple(dict.fromkeys([*(one.rate for one in DTYPES.values()), "int4", "fp6", "fp64"]))
"""Formats for which a datasheet may give a matrix rate."""


def _formats(peak: Mapping[str, float]) -> Mapping[str, float]:
    for name in peak:
        if name not in FORMATS:
            raise ValueError(unknown_name("rate of", name, FORMATS))
    return peak


HOST_MEMORY_BANDWIDTH = 328e9
"""B/s of a host that nothing else is known of: that of a DGX A100, as ``architectures.yaml`` has it."""


@hash_once
@dataclass(frozen=True, kw_only=True, config=STRICT)
class Accelerator:
    """An accelerator from its datasheet.

    ``peak`` maps a compute dtype to its dense matrix rate in FLOP/s (or OP/s); ``vector`` is the fp32 rate outside
    the matrix units. ``compute_units`` are SMs, CUs or cores: what a kernel's blocks are scheduled on;
    ``exponentials`` that one takes in a clock (FlashAttention-3, section 3.1). ``host_speed``: single-thread speed of
    the CPUs that it is usually sold with, over an EPYC 7742 (DGX A100); ``peer_to_peer``: whether its driver lets
    others read and write its memory over ``host_link``; ``host_memory_bandwidth``: B/s that the CPUs of such a server
    stream.
    """

    name: str
    aliases: tuple[str, ...] = ()
    vendor: str
    architecture: str
    compute_units: Count
    clocks: Clocks
    peak: Annotated[Map[FlopsPerSecond], AfterValidator(_formats)]
    vector: FlopsPerSecond
    exponentials: Count = 16
    memory: Memory
    scale_up: ScaleUp | None = None
    host_link: str
    peer_to_peer: bool = True
    host_speed: Positive = 1.0
    host_memory_bandwidth: BytesPerSecond = HOST_MEMORY_BANDWIDTH
    power: Power
    sustained: Sustained

    def rate(self, name: str) -> float | None:
        """Dense rate of a format in FLOP/s; None where it has none.

        A datasheet leaves fp16 out where units made for bf16 run it alike; fp32 runs on the vector units. Units that
        apply a scale to every 32 operands (OCP MX) multiply 4 bits too, and 8 bits with such scales as fast as without.
        """
        scaled = self.peak.get("fp8") if "fp4" in self.peak else None
        stands_in = {"fp32": self.vector, "fp16": self.peak.get("bf16"), "mxfp8": scaled}
        return self.peak.get(name, stands_in.get(name))
