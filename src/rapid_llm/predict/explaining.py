"""Down to kernels: what each one does, what bounds it, in words with the formula's numbers in it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from rapid_llm.execution import Priced
from rapid_llm.execution.pricing import PricedKernels, PricedMessages, computed
from rapid_llm.lowering import Kernels, Messages
from rapid_llm.lowering.table import PHASES
from rapid_llm.network import ALGORITHMS
from rapid_llm.operators import BOUNDS, Prices
from rapid_llm.predict.breakdown import READING
from rapid_llm.predict.engine import evaluate
from rapid_llm.predict.inference import InferenceTable
from rapid_llm.predict.pools import PoolsTable
from rapid_llm.predict.training import TrainingTable
from rapid_llm.scenario import Scenario
from rapid_llm.units import format_bytes, format_flops, format_seconds
from rapid_llm.workload import Inference

SHAPES = {
    "gemm": "[{m:.0f} x {k:.0f}] x [{k:.0f} x {n:.0f}] x {groups:.0f}",
    "attention": "{batch:.0f} sequences x {heads:.0f} heads ({kv_heads:.0f} kv) x {new:.0f} queries after {past:.0f}",
    "moe": "{rows:.0f} token-expert rows over {hit:.0f} experts, {hidden:.0f} x {inter:.0f}",
    "scan": "{batch:.0f} sequences x {heads:.0f} heads x {new:.0f} tokens",
    "convolution": "{batch:.0f} sequences x {channels:.0f} channels x {new:.0f} tokens",
    "pointwise": "{read} in, {written} out",
}

_VECTOR = frozenset(("pointwise", "convolution"))  # families that matrix units have no part in
SHORTEST_SHOWN = 50e-9
"""Less than this (s) beyond compute and memory is not said."""


@dataclass(frozen=True, slots=True)
class KernelLine:
    """One kernel or message of one unit and phase: seconds of one launch, launches of the whole step on this rank.

    ``flops`` and ``hbm_bytes`` are of one launch; messages have none. ``dtype``: the format whose matrix rate bounds
    it; empty where vector units work alone.
    """

    unit: str
    phase: str
    name: str
    implementation: str
    seconds: float
    count: float
    total_seconds: float
    bound: str
    words: str
    flops: float = 0.0
    hbm_bytes: float = 0.0
    dtype: str = ""


def explain(scenario: Scenario) -> list[KernelLine]:
    """Every kernel and message of the critical rank, the costliest first."""
    table = evaluate(scenario)
    tables = [table.prefill, *_decoding(table)] if isinstance(table, PoolsTable) else [table]
    lines = [line for one in tables for line in _lines(one)]
    if isinstance(scenario.workload, Inference) and not scenario.workload.output_tokens:
        lines = [replace(line, phase=READING) for line in lines]
    return sorted((line for line in lines if line.total_seconds > 0), key=lambda line: -line.total_seconds)


def _decoding(table: PoolsTable) -> list[InferenceTable]:
    """The decode steps of a replica; with all micro-batches of both pools, where two pools share the steps."""
    halved, decode = table.halved, table.decode
    if halved is None:
        return [decode]
    runs = halved.count * halved.micro_batches
    attention = replace(decode, points=replace(decode.points, count=decode.decode))
    points = decode.points[: len(runs)]
    return [attention, replace(decode, steps=halved.ffn, points=replace(points, count=runs))]


def _lines(table: TrainingTable | InferenceTable) -> list[KernelLine]:
    if isinstance(table, TrainingTable):
        priced = table.step.priced
        passes = float(table.plans.micro_batches[0] / table.plans.copies[0])
        weight = passes * priced.lowered.layers[:, 0, int(table.step.stage[0])][:, None]
    else:
        priced = table.steps.priced
        weight = priced.lowered.layers.sum(axis=2) * table.points.count[None, :]
    return _kernels(priced, weight, table) + _messages(priced, weight, table)


def _phase_sets(table: TrainingTable | InferenceTable, width: int) -> list[tuple[str | None, np.ndarray]]:
    """Columns of the table by the name of their phase: in training rows have phases, in inference passes."""
    if isinstance(table, TrainingTable):
        return [(None, np.ones(width, dtype=bool))]
    return [("prefill", ~table.points.decode), ("decode", table.points.decode)]


@dataclass(frozen=True, slots=True)
class _Run:
    """A row of a table in one phase: how often it runs, the seconds of all its runs, and the column in which it runs
    most.
    """

    row: int
    at: int
    unit: str
    phase: str
    name: str
    count: float
    total: float

    @property
    def each(self) -> float:
        """Mean seconds of one run."""
        return self.total / self.count


def _runs(
    table: TrainingTable | InferenceTable,
    priced: Priced,
    priced_table: PricedKernels | PricedMessages,
    counts: np.ndarray,
) -> Iterator[_Run]:
    """The rows of a priced table that run at all, phase by phase."""
    rows, seconds = priced_table.rows, priced_table.prices.seconds
    for label, chosen in _phase_sets(table, counts.shape[1]):
        for r, name in enumerate(rows.names):
            count = float(counts[r, chosen].sum())
            if count > 0.0:
                at = int(np.flatnonzero(chosen)[np.argmax(counts[r, chosen])])
                total = float((seconds[r] * counts[r])[chosen].sum())
                unit, phase = priced.lowered.units[rows.unit[r]], label or PHASES[rows.phase[r]]
                yield _Run(r, at, unit, phase, name, count, total)


def _counts(rows: Kernels | Messages, weight: np.ndarray) -> np.ndarray:
    """How often each row runs: with its unit, or once a step in the optimizer's phase."""
    return np.asarray(rows.count * np.where(rows.phase[:, None] == PHASES.index("optimizer"), 1.0, weight[rows.unit]))


def _kernels(priced: Priced, weight: np.ndarray, table: TrainingTable | InferenceTable) -> list[KernelLine]:
    lines = []
    for priced_table in priced.kernels:
        rows, prices = priced_table.rows, priced_table.prices
        dtype = "" if rows.family in _VECTOR else computed(rows, priced.machine.accelerator)
        for run in _runs(table, priced, priced_table, _counts(rows, weight)):
            r, at = run.row, run.at
            shape = _shape(rows.family, {c: float(v[r, at]) for c, v in rows.columns.items()})
            lines.append(
                KernelLine(
                    run.unit, run.phase, run.name, priced_table.kernel, run.each, run.count, run.total,
                    BOUNDS[int(prices.bound[r, at])], f"{shape}: {_terms(prices, r, at)}", float(prices.flops[r, at]),
                    float(prices.hbm_bytes[r, at]), dtype,
                )
            )  # fmt: skip
    return lines


def _shape(family: str, columns: Mapping[str, float]) -> str:
    """What a kernel works on; bytes with their unit."""
    sizes = {
        name: format_bytes(columns[column])
        for name, column in (("read", "read_bytes"), ("written", "write_bytes"))
        if column in columns
    }
    return SHAPES[family].format(**columns, **sizes)


def _terms(prices: Prices, row: int, at: int) -> str:
    """The terms of a kernel's time: the larger of compute and memory, then what it takes to start and to finish."""
    compute, memory = float(prices.compute_s[row, at]), float(prices.memory_s[row, at])
    flops, moved = (
        format_flops(float(prices.flops[row, at]))[:-2],
        format_bytes(round(float(prices.hbm_bytes[row, at]))),
    )
    rest = float(prices.seconds[row, at]) - max(compute, memory)
    said = f"{moved} take {format_seconds(memory)} of memory"
    if compute > 0.0:
        said = f"{flops} take {format_seconds(compute)} of compute, {said}"
    return f"{said}, then {format_seconds(rest)} to start and finish" if rest > SHORTEST_SHOWN else said


def _messages(priced: Priced, weight: np.ndarray, table: TrainingTable | InferenceTable) -> list[KernelLine]:
    lines = []
    library = priced.machine.runtime.communication.library
    for priced_table in priced.messages:
        rows, prices = priced_table.rows, priced_table.prices
        for run in _runs(table, priced, priced_table, _counts(rows, weight) * (rows.ranks > 1)):
            r, at = run.row, run.at
            words = (
                f"{rows.op} of {format_bytes(round(float(rows.size[r, at])))} over {rows.ranks[r, at]:.0f} ranks "
                f"{rows.stride[r, at]:.0f} apart ({rows.axis}), by {ALGORITHMS[int(prices.algorithm[r, at])]}"
            )
            lines.append(
                KernelLine(
                    run.unit,
                    run.phase,
                    run.name,
                    library,
                    run.each,
                    run.count,
                    run.total,
                    "network",
                    words,
                )
            )
    return lines
