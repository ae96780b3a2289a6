"""What accelerators draw: a floor while they are awake, and energy for every FLOP, byte of memory and byte of link.

P = P_awake + A u + e_byte B + e_link L, at most the board's limit. u is the rate of matrix products over the peak at
the boost clock; B and L are bytes/s of main memory and links. A is what products draw at that peak. Those that run
for long have only the sustained clock c left of it, since they draw the limit there: A = (P_limit - P_awake) / c. So
it needs no constant of its own, and a format of twice the rate takes half of the energy a FLOP. The form is the one
of linear power models of GPUs (GPUJoule, Arunkumar et al. 2019, HPCA; AccelWattch, Kandiah et al. 2021, MICRO).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rapid_llm.dtypes import dtype as number_format
from rapid_llm.execution import Priced
from rapid_llm.hardware import Accelerator
from rapid_llm.lowering.table import OPTIMIZER

Column = NDArray[np.float64]
Matrix = NDArray[np.float64]

PER_LINK_BYTE = 43e-12
"""J a rank spends on a byte of a link: 5.4 pJ a bit, 602 mW for both directions of a 112 Gb/s lane over a long reach
(Im et al. 2020, ISSCC 6.1); a hundredth of the power of an accelerator that sends at full rate."""
UNCERTAINTY = 0.29
"""Share by which the mean power of nine runs in ten strays, where the scorecard wrote none: suite ``energy``, 232 runs
of ML.ENERGY v3, LLM-Inference-Bench and Splitwise on A100, H100, GH200, B200. The limit as power errs by 54 %."""


@dataclass(frozen=True, slots=True)
class PowerModel:
    """W of one accelerator: limit, awake with nothing to do, and beyond that what matrix units draw that are busy for
    long; J a byte of its memory."""

    accelerator: Accelerator
    limit: float
    awake: float
    products: float
    per_byte: float

    @classmethod
    def of(cls, accelerator: Accelerator) -> PowerModel | None:
        """The model of an accelerator; None where its file does not say enough (``missing``)."""
        power = accelerator.power
        if power.awake is None or power.per_byte is None:
            return None
        return cls(accelerator, power.limit, power.awake, power.limit - power.awake, power.per_byte)

    def per_flop(self, name: str) -> float:
        """J of a matrix FLOP in a format, or in the one that stands in where the chip has no rate for it."""
        chip = self.accelerator
        found = next((one for one in (number_format(name).rate, "bf16", "fp16") if chip.rate(one)), "")
        return self.products / (chip.sustained.clock_of(found) * (chip.rate(found) or chip.vector))


def missing(accelerator: Accelerator) -> str:
    """What an accelerator's file would have to say for its energy to be modelled; empty where it says all."""
    fields = [name for name in ("awake", "per_byte") if getattr(accelerator.power, name) is None]
    return f"{accelerator.name} has no {' and no '.join(f'power.{name}' for name in fields)}" if fields else ""


def drawn(
    priced: Priced, model: PowerModel, *, often: float = 1.0, family: str = "", stage: int | None = None
) -> Column:
    """J beyond the floor of one rank of each stage in one pass through all stages [P], or of one ``stage``; ``often``:
    how many times a pass runs, but for the optimizer's, which runs once; ``family``: of these kernels alone."""
    passes = priced.lowered.layers.sum(axis=2) if stage is None else priced.lowered.layers[:, :, stage]
    total = np.zeros(passes.shape[1])
    for kernels in priced.kernels:
        rows, prices = kernels.rows, kernels.prices
        if family and rows.family != family:
            continue
        each = prices.hbm_bytes * model.per_byte
        if rows.family != "pointwise":
            each = each + prices.flops * model.per_flop(rows.dtype)
        total += _over(each * rows.count, rows.unit, rows.phase, passes, often)
    for messages in () if family else priced.messages:
        sent, prices_m = messages.rows, messages.prices
        each = prices_m.wire_bytes * PER_LINK_BYTE * sent.count * (sent.ranks > 1)
        total += _over(each, sent.unit, sent.phase, passes, often)
    return total


def _over(each: Matrix, unit: NDArray[np.int64], phase: NDArray[np.int64], passes: Matrix, often: float) -> Column:
    times = np.where(phase == OPTIMIZER, 1.0, often)
    return np.asarray(np.einsum("rp,rp,r->p", each, passes[unit], times))


def of_step(priced: Priced, model: PowerModel, seconds: float) -> float:
    """J of all ranks of the first plan over one optimizer step of so many seconds."""
    plans = priced.lowered.shapes.plans
    columns = float(plans.tp[0] * plans.cp[0] * plans.dp[0])
    ranks, micro_batches = columns * float(plans.pp[0]), float(plans.micro_batches[0] / plans.copies[0])
    beyond = columns * float(drawn(priced, model, often=micro_batches)[0])
    return ranks * seconds * model.awake + min(beyond, ranks * seconds * (model.limit - model.awake))


def of_ranks(priced: Priced, model: PowerModel, seconds: float, ranks: Sequence[float]) -> float:
    """J of so many ranks on each stage of the first plan over one optimizer step of so many seconds."""
    plans = priced.lowered.shapes.plans
    often, total = float(plans.micro_batches[0] / plans.copies[0]), float(sum(ranks))
    beyond = sum(n * float(drawn(priced, model, often=often, stage=s)[0]) for s, n in enumerate(ranks) if n)
    return total * seconds * model.awake + min(beyond, total * seconds * (model.limit - model.awake))
