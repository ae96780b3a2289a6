"""Evaluate training plans: lower, time, account; and the model FLOPs that MFU counts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rapid_llm.dtypes import Precision
from rapid_llm.dtypes import dtype as number_format
from rapid_llm.execution import Machine, Slow, TrainingStep, training_step
from rapid_llm.execution.cluster import machines
from rapid_llm.hardware import System
from rapid_llm.lowering import lower
from rapid_llm.memory import Account, training_account
from rapid_llm.model import Model
from rapid_llm.model.flops import step_flops, weightless_flops
from rapid_llm.network.flow_prices import Links
from rapid_llm.parallelism import Plans
from rapid_llm.predict.job import training_shapes
from rapid_llm.runtime import Runtime
from rapid_llm.workload import Training

Column = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class TrainingTable:
    """P plans of one training job, evaluated: step time (s), fit, peak bytes of the fullest rank [P]."""

    plans: Plans
    step: TrainingStep
    account: Account

    @property
    def step_time_s(self) -> Column:
        """Seconds of one optimizer step [P]."""
        return self.step.total

    @property
    def fits(self) -> NDArray[np.bool_]:
        """Whether the fullest rank fits [P]."""
        return self.account.fits

    @property
    def peak_bytes(self) -> Column:
        """Bytes of the fullest rank [P]."""
        return np.asarray(self.account.peak.max(axis=1))


def evaluate_training(
    model: Model,
    system: System,
    runtime: Runtime,
    precision: Precision,
    plans: Plans,
    *,
    work: Training,
    slow: Slow | None = None,
    links: Links | None = None,
    stages: Sequence[str] = (),
) -> TrainingTable:
    """Evaluate every plan of ``plans`` for one training job, as one table.

    ``slow``: the share of its compute that an accelerator has left, by its place; ``links``: those that messages are
    priced on, one by one; ``stages``: the group of nodes of each stage, where the user says it. InfeasibleError where
    their faults cut a group apart.
    """
    lowered = lower(model, training_shapes(plans, work, precision, runtime), runtime)
    machine = machines(system, runtime, links, plans, stages)
    if isinstance(machine, Machine):
        account = training_account(lowered, runtime, precision, machine.accelerator)
        return TrainingTable(plans, training_step(lowered, machine, slow, account.displaced), account)
    from rapid_llm.execution.mixed import mixed_step  # few jobs need it

    chip, capacities = machine.system.groups[0].node.accelerator, machine.capacities(plans, lowered.layers.shape[2])
    account = training_account(lowered, runtime, precision, chip, capacities)
    return TrainingTable(plans, mixed_step(lowered, machine, slow, account.displaced), account)


@dataclass(frozen=True, slots=True)
class Utilisation:
    """Model FLOPs of a step over the dense peak: with full attention, with causal attention, and
    with recompute (HFU).
    """

    mfu: float
    mfu_causal: float
    hfu: float


def utilisation(table: TrainingTable, model: Model, precision: Precision, work: Training) -> Utilisation:
    """MFU of the first plan: three times the forward FLOPs of all sequences (backward is twice the forward), of
    products with frozen weights twice.

    HFU adds what recomputation runs again, as the table counts it.
    """
    sequences, read = work.global_batch_size, work.sequence_length
    lengths = (work.decoder_sequence_length, read) if work.decoder_sequence_length else (read, 0)
    full, causal, _ = step_flops(model, *lengths, work.predictions)
    rank_seconds = float(table.step.total[0]) * _peak(table, number_format(precision.compute).rate)
    if table.step.priced.lowered.shapes.lora:
        again = [weightless_flops(model, *lengths, causal=mask) for mask in (False, True)]
        model_flops, causal_flops = (
            sequences * (2.0 * one + core) for one, core in zip((full, causal), again, strict=True)
        )
    else:
        model_flops, causal_flops = 3.0 * sequences * full, 3.0 * sequences * causal
    return Utilisation(
        model_flops / rank_seconds,
        causal_flops / rank_seconds,
        (model_flops + _recomputed(table)) / rank_seconds,
    )


def _peak(table: TrainingTable, name: str) -> float:
    """Dense peak of all accelerators of the first plan together (FLOP/s)."""
    seats, plans = table.step.seats, table.plans
    if seats is None:
        used = [(table.step.priced.machine.accelerator, float(plans.ranks[0]))]
    else:
        counts = seats.cluster.counts(plans, 0).sum(axis=0).tolist()
        used = [(g.node.accelerator, n) for g, n in zip(seats.cluster.system.groups, counts, strict=True)]
    return sum(n * (c.rate(name) or 0.0) for c, n in used)


def _recomputed(table: TrainingTable) -> float:
    """Matrix FLOPs that recomputation adds to a step over all ranks of the first plan."""
    from rapid_llm.lowering.table import RECOMPUTE

    lowered, plans = table.step.priced.lowered, table.plans
    passes = lowered.layers[:, 0, :].sum(axis=1)
    total = 0.0
    for table_ in table.step.priced.kernels:
        rows = table_.rows
        if rows.family == "pointwise":
            continue
        again = rows.phase == RECOMPUTE
        flops = table_.prices.flops[again, 0] * rows.count[again, 0] * passes[rows.unit[again]]
        total += float(flops.sum())
    return total * float(plans.micro_batches[0] / plans.copies[0] * plans.tp[0] * plans.cp[0] * plans.dp[0])
