"""What a kernel can count on from one accelerator: resolved once per (accelerator, dtype)."""

from functools import lru_cache
from math import inf
from typing import Final, NamedTuple

import numpy as np

from rapid_llm.dtypes import dtype as named
from rapid_llm.errors import InputError
from rapid_llm.hardware.accelerator import Accelerator
from rapid_llm.operators.elementwise import smaller
from rapid_llm.operators.families import Column

# Kernels replayed on the same buffers find them in L2 as long as all fit: a least-recently-used cache that is a little
# too small holds nothing. Steepness: L40S tables (aiconfigurator).
_RESIDENT_STEEPNESS: Final = 8.0


PARTITIONS: Final = {"ampere": 2.0, "hopper": 2.0, "blackwell": 4.0}
"""Architectures whose L2 is in parts that each keep a copy of what all read: less fits, and writes pass through."""

_LARGEST_UNIT: Final = 8192.0
"""16-bit FLOPs that the largest unit kernels were measured on finishes in a cycle (an SM of Blackwell). A core with
more (a TensorCore of a TPU, a matrix engine of Gaudi) has that many tiles in flight at once, so that what a tile costs
beside its products is shared: it counts as so many units."""

_VECTOR_FLOPS: Final = 8.0  # beside a byte that a unit's lanes can draw: 32 bytes a cycle on Hopper, 16 on Ampere
_DMA_BYTES: Final = 64.0  # that a unit of a large core has brought in a cycle, which no lane waits for

ON_CHIP_POWER: Final = 0.5
"""Of the dynamic power of a product, what attention draws per operation: scores stay in registers and shared memory,
and about half of a product's power moves its operands there (step times of Llama 3 8B on B200, Megatron-Bridge, fit
half: attention at 0.83 of the clock where products have 0.61)."""

_WHOLE_PIPE: Final[dict[str, float]] = {
    "volta": 1024.0, "turing": 1024.0, "ampere": 2048.0, "ampere-rtx": 1024.0, "ada": 1024.0, "hopper": 4096.0,
    "blackwell": 8192.0, "blackwell-rtx": 1024.0,
}  # fmt: skip
"""16-bit FLOPs that the matrix units of an architecture finish in a cycle and compute unit where nothing is cut (NVIDIA
architecture whitepapers). GeForce cards halve them at fp32 accumulation, H20 has a quarter."""
_WIDTHS: Final = {
    "tf32": 0.5, "bf16": 1.0, "fp16": 1.0, "fp8": 2.0, "mxfp8": 2.0, "int8": 2.0, "fp6": 2.0, "fp4": 4.0, "int4": 4.0,
}  # fmt: skip
"""How many times the 16-bit rate whole units have of a format."""

_WARP_FLOPS: Final = 2048.0
"""16-bit FLOPs that matrix instructions of one warp (mma.sync) finish in a cycle and compute unit of NVIDIA's: all of
the matrix rate of Ampere and Ada, half of that of Hopper, whose faster instructions take four warps and 64 rows."""
_ISSUED: Final = 256.0
"""FLOPs of the instructions that the four schedulers of a compute unit of NVIDIA's issue in a cycle, 32 lanes wide, if
each were a product and a sum. Units with 64 lanes of fp32 (Volta, Turing, A100) issue as many of the loads, conversions
and exchanges that most of a dot product of a cache is made of."""


class Replay(NamedTuple):
    """How a benchmark repeats a matrix multiplication: ``copies`` of its weights in turn, where ``to_l2`` only as many
    as exceed L2 together; ``inputs``: each copy has an input of its own."""

    copies: int = 5
    to_l2: bool = False
    inputs: bool = False

    def rotated(self, weights: Column, l2: float) -> Column:
        """Copies in use, of ``weights`` bytes each."""
        if not self.to_l2:
            return np.full_like(weights, float(self.copies))
        return np.clip(np.ceil(l2 / weights), 1.0, float(self.copies))


class Rates(NamedTuple):
    """SI rates of one accelerator for one compute dtype.

    ``units`` what tiles are spread over: compute units, a core of many matrix units as several (``_LARGEST_UNIT``);
    ``clock`` the boost clock in Hz; ``peak``, ``vector`` (FLOP/s) and ``exponentials`` (1/s) at the given share of it,
    ``peak`` as far as power allows products, ``attention`` and ``exponentials`` as far as it allows attention, which
    runs at one clock, ``rated`` whatever power allows; ``issued`` the FLOP/s of vector instructions if all multiply and
    add; ``warps`` what instructions of one warp could reach, ``cut`` the share of its architecture's matrix rate that
    the chip has and ``warps_cut`` that of what such instructions could reach there, ``eight_bit`` how many times as
    fast products of 8-bit floats run: 1 on an accelerator without them; ``hbm`` the reachable bandwidth and
    ``datasheet`` the unreduced one in B/s, ``launch`` the floor of one captured kernel in s; ``l2`` the reachable
    bandwidth of buffers that stay in L2 between calls and ``l2_datasheet`` the unreduced one, ``resident`` how many
    bytes stay: 0 in a model, which cycles through more than fits; ``shared`` memory of one compute unit in bytes, 0
    where that is not known; ``draw`` what a unit can take from memory in B/s; ``rereads`` whether L2 keeps what is
    written for the next kernel; ``replay`` how a benchmark comes back.
    """

    units: int
    clock: float
    peak: float
    rated: float
    attention: float
    warps: float
    cut: float
    warps_cut: float
    eight_bit: float
    wide: float
    vector: float
    issued: float
    exponentials: float
    hbm: float
    datasheet: float
    launch: float
    l2: float
    l2_datasheet: float
    resident: float
    shared: float
    draw: float
    rereads: bool = True
    replay: Replay = Replay()

    @property
    def instructions(self) -> float:
        """Instructions of vector lanes a second, of which each counts as a product and a sum in ``vector``."""
        return self.vector / 2.0

    def multiplies(self, bits: int, *, warps: bool = False) -> float:
        """Matrix rate in FLOP/s of products that are bound by memory, by instructions of one warp or by any: most of
        their rows are padding and they wait most of the time, so that no limit of power slows them."""
        return (min(self.warps, self.rated) if warps else self.rated) * (self.eight_bit if bits == 8 else 1.0)

    def in_attention(self, bits: int, *, warps: bool = False) -> float:
        """Matrix rate in FLOP/s of attention's products on 8 or 16 bits, by instructions of one warp or by any."""
        return (min(self.warps, self.attention) if warps else self.attention) * (self.eight_bit if bits == 8 else 1.0)

    def reached(self, rate: float | Column, *, warps: bool = False, pipe: float = 1.0) -> float | Column:
        """The share of the peak that a kernel reaches which reaches ``rate`` of a whole matrix pipe, or of one that is
        ``pipe`` times as fast.

        What goes on beside products (loads of operands, issue) takes its time whatever the pipe: of a slower one,
        which products keep busy for longer, it takes less. To instructions of one warp the pipe is no wider than they
        can fill: a chip that leaves them less than that is cut, one that could do more is not.
        """
        return 1.0 / (1.0 + (1.0 / rate - 1.0) * (self.warps_cut if warps else self.cut) * pipe)

    def pipe(self, bits: int) -> float:
        """How many times as fast as products on 16 bits those of the compute dtype are, or on 8 where ``bits`` are."""
        return self.wide * (self.eight_bit if bits == 8 else 1.0)

    def beside(self, block: float) -> float:
        """Blocks of so many bytes of shared memory that a compute unit holds at once; 1 for those that keep it busy."""
        return max(self.shared // block, 1.0) if block else 1.0

    def stream(
        self, moved: Column, share: float | Column, held: Column | None = None, l2_share: float | Column = 1.0
    ) -> Column:
        """Seconds to move ``moved`` bytes at a share of the reachable bandwidth.

        ``held``: bytes that a replayed benchmark of this kernel keeps coming back to (default: what it moves);
        ``l2_share``: share of the L2 bandwidth that the kernel reaches.
        """
        seconds = moved / (share * self.hbm)
        if self.resident:
            near = self.near(moved if held is None else held)
            seconds = seconds * (1.0 - near) + near * smaller(seconds, moved / (l2_share * self.l2))
        return seconds

    def hand_on(self, moved: Column, share: float, held: Column) -> Column:
        """Seconds for ``moved`` bytes that kernels write and the next ones read, ``held`` of them at a time."""
        return self.stream(moved, share, held) if self.rereads else moved / (share * self.hbm)

    def near(self, held: Column) -> float | Column:
        """The share that L2 still has of so many bytes when a replayed benchmark comes back to them."""
        return 1.0 / (1.0 + (held / self.resident) ** _RESIDENT_STEEPNESS) if self.resident else 0.0


@lru_cache(maxsize=512)
def rates(accelerator: Accelerator, dtype: str, *, clock: float = 1.0, replayed: bool | Replay = False) -> Rates:
    """Rates of an accelerator for a compute dtype; ``clock`` scales the compute side only.

    InputError where the accelerator has no matrix rate for the dtype.
    """
    peak = accelerator.rate(named(dtype).rate)
    if peak is None:
        known = ", ".join(sorted(accelerator.peak))
        raise InputError(
            f"{accelerator.name} has no matrix rate for {dtype}: it has {known}. Try one of these.",
            field="precision.compute",
        )
    units = _units(accelerator)
    cycles = units * accelerator.clocks.boost * clock
    share = accelerator.sustained.matrix
    matrix = peak * share * clock
    lighter = min(share * (1.0 / ON_CHIP_POWER) ** (1.0 / 3.0), max(share, 1.0))  # power is activity x clock^3
    dma = _DMA_BYTES * accelerator.clocks.boost if units > accelerator.compute_units else 0.0
    widest = _WARP_FLOPS if accelerator.vendor == "NVIDIA" else inf
    hbm, l2, sustained = accelerator.memory.hbm, accelerator.memory.l2, accelerator.sustained
    return Rates(
        units=units,
        clock=accelerator.clocks.boost,
        peak=matrix,
        rated=peak * max(share, 1.0) * clock,
        attention=peak * lighter * clock,
        warps=widest * cycles,
        cut=_cut(accelerator, named(dtype).rate, peak / cycles * clock),
        warps_cut=_cut(accelerator, named(dtype).rate, peak / cycles * clock, widest=widest),
        eight_bit=(accelerator.rate("fp8") or peak) / peak,
        wide=max(peak / (accelerator.rate("bf16") or accelerator.rate("fp16") or peak), 1.0),
        vector=accelerator.vector * clock,
        issued=max(accelerator.vector * clock, _ISSUED * cycles if accelerator.vendor == "NVIDIA" else 0.0),
        exponentials=accelerator.exponentials * cycles * lighter,
        hbm=hbm.bandwidth * sustained.hbm,
        datasheet=hbm.bandwidth,
        launch=sustained.launch,
        l2=l2.bandwidth * sustained.l2 if l2 else 0.0,
        l2_datasheet=l2.bandwidth if l2 else 0.0,
        resident=float(l2.capacity) if l2 and replayed else 0.0,
        shared=float(accelerator.memory.shared_per_unit or 0.0),
        draw=max(accelerator.vector * clock / (_VECTOR_FLOPS * units), dma),
        rereads=accelerator.architecture not in PARTITIONS,
        replay=replayed if isinstance(replayed, Replay) else Replay(),
    )


def _cut(accelerator: Accelerator, rate: str, per_cycle: float, widest: float = inf) -> float:
    """The share of its architecture's matrix rate that a chip with so many FLOPs a cycle and unit has.

    ``widest``: FLOPs a cycle and unit that the instructions in question can ask for.
    """
    whole = min(_WHOLE_PIPE.get(accelerator.architecture, 0.0) * _WIDTHS.get(rate, 0.0), widest)
    return min(per_cycle / whole, 1.0) if whole else 1.0


def _units(accelerator: Accelerator) -> int:
    """Units that tiles are spread over."""
    wide = next((rate for name in ("bf16", "fp16") if (rate := accelerator.rate(name))), 0.0)
    size = wide / (accelerator.compute_units * accelerator.clocks.boost)
    return accelerator.compute_units * max(round(size / _LARGEST_UNIT), 1)
