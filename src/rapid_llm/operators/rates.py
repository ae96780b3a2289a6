"""What a kernel can count on from one accelerator: resolved once per (accelerator, dtype)."""

from functools import lru_cache
from typing import Final, NamedTuple

from rapid_llm.errors import InputError
from rapid_llm.hardware.accelerator import Accelerator

# A dtype without an entry of its own in a datasheet runs at the rate of the one beside it.
_SAME_RATE: Final[dict[str, tuple[str, ...]]] = {
    "fp16": ("bf16",), "bf16": ("fp16",), "fp8_e4m3": ("fp8",), "fp8_e5m2": ("fp8",), "fp8_block": ("fp8",),
    "mxfp8": ("fp8",), "nvfp4": ("fp4",), "mxfp4": ("fp4",), "fp4": ("nvfp4",),
}  # fmt: skip


class Rates(NamedTuple):
    """SI rates of one accelerator for one compute dtype.

    ``peak`` and ``vector`` in FLOP/s at the given clock share, ``hbm`` and ``l2`` the reachable bandwidths in B/s,
    ``datasheet`` the unreduced HBM bandwidth, ``launch`` the floor of one captured kernel in s.
    """

    units: int
    peak: float
    vector: float
    hbm: float
    datasheet: float
    l2: float
    launch: float


@lru_cache(maxsize=512)
def rates(accelerator: Accelerator, dtype: str, clock: float = 1.0) -> Rates:
    """Rates of an accelerator for a compute dtype; ``clock`` scales the compute side only.

    InputError where the accelerator has no matrix rate for the dtype.
    """
    known = accelerator.peak
    names = (dtype, *_SAME_RATE.get(dtype, ()))
    peak = next((known[name] for name in names if name in known), None)
    if peak is None:
        have = ", ".join(sorted(known))
        raise InputError(
            f"{accelerator.name} has no matrix rate for {dtype}: it has {have}. Try one of these.",
            field="precision.compute",
        )
    memory, sustained = accelerator.memory, accelerator.sustained
    l2 = memory.l2.bandwidth * sustained.l2 if memory.l2 else memory.hbm.bandwidth * sustained.hbm
    return Rates(
        accelerator.compute_units, peak * clock, accelerator.vector * clock, memory.hbm.bandwidth * sustained.hbm,
        memory.hbm.bandwidth, l2, sustained.launch,
    )  # fmt: skip
