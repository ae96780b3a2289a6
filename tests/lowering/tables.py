"""Lowered training tables for tests, and what one rank moves in them."""

from __future__ import annotations

from typing import Any

import numpy as np

from rapid_llm import model as models
from rapid_llm import runtime as runtimes
from rapid_llm.dtypes import precision
from rapid_llm.lowering import Lowered, Shapes, lower
from rapid_llm.lowering.table import BACKWARD, FORWARD, OPTIMIZER, RECOMPUTE
from rapid_llm.nouns import replaced
from rapid_llm.parallelism import Parallelism, Plans
from rapid_llm.workload import Training

PHASES = {"forward": FORWARD, "recompute": RECOMPUTE, "backward": BACKWARD, "optimizer": OPTIMIZER}
SENT = {"all_reduce": 2.0, "all_gather": 1.0, "reduce_scatter": 1.0, "all_to_all": 1.0}
"""Bytes that a rank sends of a message of size S in a group of n, in units of S (n - 1) / n (nccl-tests)."""


def plan(micro_batch: int = 1, micro_batches: int = 1, recompute: str = "none", **degrees: Any) -> Plans:
    return Plans.of(Parallelism(**degrees), micro_batch=micro_batch, micro_batches=micro_batches, recompute=recompute)


def table(
    plans: Plans,
    model: str = "gpt-22b",
    runtime: str = "megatron-core",
    sequence: int = 2048,
    preset: str = "",
    *,
    work: Training | None = None,
    **facts: Any,
) -> Lowered:
    software = runtimes.load(runtime)
    if facts:
        software = replaced(software, training=replaced(software.training, **facts))
    width = len(plans)
    shapes = Shapes.of(
        plans,
        new=np.full(width, float(sequence)),
        past=np.zeros(width),
        training=True,
        precision=precision(preset or software.defaults.precision),
        runtime=software,
        work=work,
    )
    return lower(models.load(model), shapes, software)


def sent(lowered: Lowered, phase: str, unit: int = 0, **only: str) -> float:
    """Bytes that one rank sends in a pass of a unit of the first plan; ``only`` filters on op or axis."""
    total = 0.0
    for rows in lowered.messages:
        if any(getattr(rows, field) != value for field, value in only.items()):
            continue
        chosen = (rows.phase == PHASES[phase]) & (rows.unit == unit)
        size, n = rows.size[chosen, 0] * rows.count[chosen, 0], rows.ranks[chosen, 0]
        total += float((SENT[rows.op] * size * (n - 1) / n).sum())
    return total


def gemm_flops(lowered: Lowered, phase: str, unit: int = 0) -> float:
    """2 m n k of every product of a pass of the first plan."""
    total = 0.0
    for rows in lowered.kernels:
        if rows.family == "gemm":
            chosen = (rows.phase == PHASES[phase]) & (rows.unit == unit)
            cell = {name: values[chosen, 0] for name, values in rows.columns.items()}
            total += float((2 * cell["m"] * cell["n"] * cell["k"] * cell["groups"] * rows.count[chosen, 0]).sum())
    return total


def moved(lowered: Lowered, phase: str, name: str, unit: int = 0) -> float:
    """Bytes that the memory-bound kernels of a name (or an end of one) read and write in a pass of the first plan."""
    total = 0.0
    for rows in lowered.kernels:
        if rows.family == "pointwise":
            named = np.array([row.endswith(name) for row in rows.names])
            chosen = named & (rows.phase == PHASES[phase]) & (rows.unit == unit)
            cells = rows.columns["read_bytes"] + rows.columns["write_bytes"]
            total += float((cells * rows.count)[chosen, 0].sum())
    return total
