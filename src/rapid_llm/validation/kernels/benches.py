"""How the benchmarks behind tables of matrix multiplications repeat a kernel, and what that does to its time.

A graph of a few launches is replayed without a pause: each replay starts late by a gap, what is met again soon stays
in L2, and a chip that is busy for tens of milliseconds falls from its boost clock to the one it sustains.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from rapid_llm.hardware import Accelerator
from rapid_llm.operators import Replay
from rapid_llm.validation.kernels.columns import Columns

Array = NDArray[np.float64]

_GAP: Final = 3.1e-6
"""Seconds between two replays of a graph: one launch a replay against six (aiconfigurator, H100 and B200)."""
_LAUNCHES: Final = 5.5  # a replay, of which the launch floors of accelerators already hold their share of the gap
_ROUNDS: Final = 12.0  # warm-up and timed passes over all launches (aiconfigurator: 3 + 3 + 6)
_SETTLING: Final = 0.08
"""Seconds in which the clock follows the power limit: onset and end of slowing in GEMMs of 1 to 50 ms, same tables."""
_SETTLED: Final = 0.5
"""Share of the way to the sustained clock that a benchmark of a second sees; the rest is heat, and takes minutes."""


@dataclass(frozen=True, slots=True)
class Bench:
    """How one table was made; ``gaps``: graphs are replayed one after another; ``toggles``: operands are random, and
    draw the power that they draw in a model."""

    replay: Replay | None
    gaps: bool = True
    toggles: bool = True

    def seconds(self, price: Callable[[float, bool | Replay], Array], columns: Columns, device: Accelerator) -> Array:
        """What the benchmark reads for kernels of a ``price`` at a share of the boost clock (s)."""
        if self.replay is None:
            return price(1.0 - _SETTLED * (1.0 - device.sustained.clock) if self.toggles else 1.0, False)
        short = price(1.0, self.replay)
        long = price(device.sustained.clock, self.replay) if self.toggles else short
        l2 = float(device.memory.l2.capacity) if device.memory.l2 else 0.0
        copies = self.replay.rotated(columns["n"] * columns["k"] * columns["w_bytes"], l2)
        settled = _SETTLED * -np.expm1(-short * copies * _ROUNDS / _SETTLING)
        late = _GAP * (1.0 / copies - 1.0 / _LAUNCHES) if self.gaps else 0.0
        return np.asarray(short + (long - short) * settled + late)


@lru_cache(maxsize=64)
def bench_of(framework: str, version: str, dtype: str) -> Bench:
    """The benchmark of a framework's tables (aiconfigurator, ``collector/*/collect_gemm.py``): vLLM six weights, one in
    block formats; SGLang six with an input each; TensorRT-LLM as many of five as exceed L2, always five before 1.3."""
    if framework == "vllm":
        return Bench(Replay(1 if dtype in ("nvfp4", "fp8_block") else 6), toggles=False)
    if framework == "sglang":
        return Bench(Replay(6, inputs=True))
    if framework == "trtllm":
        return Bench(Replay(5, to_l2=not version.startswith("1.0")))
    if framework in ("vidur", "llmservingsim"):
        return Bench(None, gaps=False, toggles=framework == "vidur")
    return Bench(Replay(5), gaps=False)
