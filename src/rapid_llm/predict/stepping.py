"""The time of one engine step of any composition, read from grids that are built once."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import log2

import numpy as np
from numpy.typing import NDArray

from rapid_llm.errors import InputError
from rapid_llm.execution import ForwardSteps, Machine
from rapid_llm.execution.mapping import mapping
from rapid_llm.execution.pricing import price_table
from rapid_llm.lowering import Lowered
from rapid_llm.nouns import replaced
from rapid_llm.predict.engine import conditions
from rapid_llm.predict.job import plans_of
from rapid_llm.predict.replica import Job
from rapid_llm.runtime import Host, Serving
from rapid_llm.runtime.software import Pieces
from rapid_llm.scenario import Scenario
from rapid_llm.workload import Inference, points_of

Column = NDArray[np.float64]
EVERY_TOKEN = 64
"""Up to here every number of tokens has its node: tiles, captured batches and memory-bound products differ most."""
EVERY_SEQUENCE = 160
"""Up to here every number of sequences: how attention splits the cache over the units changes with each."""
TILE = 64
"""Products and attention step at multiples of their tiles; both sides of every multiple are nodes."""
EVERY_TILE = 4096
"""Up to here every tile has its nodes; beyond, one more tile is a small share."""
BEYOND = 8
"""Up to so many times the model's positions lengths are interpolated."""
RATIO = 1.08
"""Between neighbouring nodes of the smooth terms."""


class Line:
    """A function of one number: linear between its nodes, beyond them with the slope of the last pair."""

    __slots__ = ("_nodes", "_slopes", "_values")

    def __init__(self, nodes: Sequence[float], values: Sequence[float]) -> None:
        """Nodes in rising order, at least two, and the value at each."""
        slopes = [(b - a) / (y - x) for (x, y), (a, b) in zip(pairwise(nodes), pairwise(values), strict=True)]
        self._nodes, self._values, self._slopes = list(nodes), list(values), [*slopes, slopes[-1]]

    def __call__(self, x: float) -> float:
        """Value at ``x``."""
        i = max(bisect_right(self._nodes, x) - 1, 0)
        return self._values[i] + self._slopes[i] * (x - self._nodes[i])


class Plane:
    """A function of two numbers, bilinear between its nodes and beyond them."""

    __slots__ = ("_first", "_rows", "_second")

    def __init__(self, first: Sequence[float], second: Sequence[float], values: Column) -> None:
        """Nodes in rising order, at least two each, and values [first, second]."""
        self._first, self._second, self._rows = list(first), list(second), values.tolist()

    def __call__(self, x: float, y: float) -> float:
        """Value at (``x``, ``y``)."""
        first, second, rows = self._first, self._second, self._rows
        i = min(max(bisect_right(first, x), 1), len(first) - 1)
        j = min(max(bisect_right(second, y), 1), len(second) - 1)
        low, high = rows[i - 1], rows[i]
        share = (y - second[j - 1]) / (second[j] - second[j - 1])
        near: float = low[j - 1] + (low[j] - low[j - 1]) * share
        far: float = high[j - 1] + (high[j] - high[j - 1]) * share
        return near + (far - near) * (x - first[i - 1]) / (first[i] - first[i - 1])


@dataclass(frozen=True, slots=True)
class Stepper:
    """Seconds of one step of an engine: one pass through all pipeline stages, and the host.

    decode, prefill: the layers without attention, over the tokens of a step without and with prompt tokens; outer:
    embedding and sends, over tokens, of both; head: over rows, and no less than ``least_head`` in a step with prompts,
    whose kernels may be launched one by one, in ``pieces`` or not; decode_attention: over sequences and their mean
    cache; prefill_attention: over new tokens and the cached tokens before them. floors: what launching the layers takes
    where no graph is replayed, of prompts beyond those that run in ``pieces``; gaps: per pass, always exposed. shared:
    launches of attention that prompts and the sequences beside them share, where the runtime gives both to one kernel.
    """

    decode: Line
    prefill: Line
    outer: tuple[Line, Line]
    head: Line
    least_head: tuple[float, float]
    decode_attention: Plane
    prefill_attention: Plane
    shared: float
    floors: tuple[float, float]
    gaps: tuple[float, float]
    pieces: Pieces
    serial: float
    per_step: float
    per_sequence: float
    per_block: float
    block: int

    def __call__(self, tokens: int, prefill_pairs: float, sequences: int, kv_tokens: float, longest_kv: float) -> float:
        """Seconds of a step of ``tokens`` new tokens, ``sequences`` of them decoded one each, the rest prompts.

        prefill_pairs: pairs of a prompt token and a token that it sees, new (S^2/2 a prompt) x (past + S/2) summed over
        prompts; kv_tokens: cached tokens that the decoding sequences read, longest_kv the most of one of them. All
        prompts of a step are priced as one, or as equal ones where the pairs say so. InputError for a step of no
        tokens, more sequences than tokens, or a negative number.
        """
        if not (0 <= sequences <= tokens and tokens > 0 and prefill_pairs >= 0 and 0 <= kv_tokens >= longest_kv >= 0):
            raise InputError(
                f"a step has tokens, at most so many sequences, and caches (got tokens={tokens}, prefill_pairs="
                f"{prefill_pairs}, sequences={sequences}, kv_tokens={kv_tokens}, longest_kv={longest_kv}). "
                "Try tokens=8, prefill_pairs=0, sequences=8, kv_tokens=8192, longest_kv=1024."
            )
        prompt = tokens - sequences
        mixed = 1 if prompt > 0 else 0
        busy = (self.prefill if mixed else self.decode)(tokens)
        if sequences:
            busy += self._caches(sequences, kv_tokens / sequences, longest_kv)
        if mixed:
            busy += self._prompts(prompt, prefill_pairs) - (self.shared if sequences else 0.0)
        whole = tokens > self.pieces.tokens
        floor = self.floors[mixed] * (1.0 if whole or not mixed else self.pieces.left)
        layers = max(busy, floor) + self.serial * min(busy, floor) + self.gaps[mixed]
        outer = self.outer[mixed](tokens) + max(self.head(sequences + mixed), self.least_head[whole] * mixed)
        blocks = kv_tokens / self.block + sequences
        return layers + outer + self.per_step + self.per_sequence * sequences + self.per_block * blocks

    def _caches(self, sequences: int, mean: float, longest: float) -> float:
        """One long cache among short ones may outlast them: its work spreads over fewer units."""
        together = self.decode_attention(sequences, mean)
        return together if longest <= 2.0 * mean else max(together, self.decode_attention(1, longest))

    def _prompts(self, new: int, pairs: float) -> float:
        past = pairs / new - new / 2.0
        if past >= 0.0:
            return self.prefill_attention(new, past)
        count = new * new / (2.0 * pairs) if pairs > 0 else float(new)
        fixed = self.prefill_attention(1, 0.0)
        return fixed + count * (self.prefill_attention(new / count, 0.0) - fixed)


def stepper(scenario: Scenario) -> Stepper:
    """Build the grids of a scenario's replica: model, plan, runtime, system and precision; its workload plays no part.

    InputError for a training scenario, or one with slow accelerators, pools or offload.
    """
    work = _stepped(scenario)
    given = conditions(scenario)
    if given["slow"]:
        raise InputError("a step predictor knows no slow accelerators. Try faults: [].", field="faults")
    machine = Machine.of(scenario.system, scenario.runtime, given["links"], scenario.accelerators)
    work = replaced(work, speculation=None, beams=1)
    job = Job(scenario.model, scenario.runtime, scenario.precision, plans_of(scenario), work, machine)
    host, engine, speed = scenario.runtime.host, job.engine, machine.host_speed
    tokens = _token_nodes(engine)
    longest = scenario.model.max_position_embeddings
    decode = _terms(job, [(n, 1, TILE - 1, 0) for n in tokens])
    prefill = _terms(job, [(1, n, 0, 0) for n in tokens])
    sequences = _smooth(1, max(2, engine.max_sequences), exact=EVERY_SEQUENCE)
    lengths = _length_nodes(longest)
    news = _chunk_nodes(max(tokens), 0 if engine.chunks_prompts else longest)
    pasts = [0.0, *lengths]
    ranks = float(job.plans.tp[0] * job.plans.pp[0])
    return Stepper(
        decode=Line(tokens, decode.layers),
        prefill=Line(tokens, prefill.layers),
        outer=(Line(tokens, decode.outer), Line(tokens, prefill.outer)),
        head=Line([0.0, *tokens], [0.0, *decode.head]),
        least_head=(prefill.head[0], prefill.head[-1]),
        decode_attention=_plane(job, sequences, lengths, decode=True),
        prefill_attention=_plane(job, news, pasts, decode=False),
        shared=decode.shared,
        floors=(decode.floor, prefill.floor),
        gaps=(decode.gap, prefill.gap),
        pieces=host.pieces,
        serial=host.serial,
        per_step=(host.per_step + host.broadcast * log2(ranks)) / speed,
        per_sequence=host.per_sequence / speed + host.per_sample,
        per_block=host.per_kv_block / speed,
        block=engine.kv_block_tokens,
    )


def _stepped(scenario: Scenario) -> Inference:
    """The workload; InputError where grids of one replica's passes do not hold what a step of it does."""
    work, engine = scenario.workload, scenario.runtime
    if not isinstance(work, Inference):
        raise InputError(f"workload.kind must be inference for a step predictor (got {work.kind}).")
    if scenario.model.encoder is not None or not scenario.model.writes:
        raise InputError(
            f"a step predictor knows decoders alone, and {scenario.model.name} has an encoder. Try rapid_llm.predict.",
            field="model",
        )
    unknown = {
        "pools": scenario.pools is not None,
        "workload.offload": work.offload.any,
        "parallelism.shift": scenario.parallelism.shift,
        "runtime.overlap.batch_exchange": engine.overlap.batch_exchange,
        "runtime.overlap.nano_batches": engine.overlap.nano_batches > 1,
        "runtime.serving.async_scheduling": bool(engine.serving and engine.serving.async_scheduling),
    }
    if field := next((name for name, said in unknown.items() if said), None):
        raise InputError(f"a step predictor knows no {field.rpartition('.')[2]}. Try to leave it out.", field=field)
    return work


@dataclass(frozen=True, slots=True)
class _Terms:
    """The parts of passes [N] that do not depend on the cache: layers, outer, head; floor and gap of the host (s).

    shared: launches of attention that prompts and sequences share (s).
    """

    layers: list[float]
    outer: list[float]
    head: list[float]
    floor: float
    gap: float
    shared: float


def _terms(job: Job, rows: list[tuple[float, float, float, float]]) -> _Terms:
    points = points_of(rows)
    lowered, steps = job.time(points)
    passes, count = steps.passes, lowered.layers.sum(axis=2)
    host = (passes.host[0] * count)[:-2].sum(axis=0)
    outer = (passes.forward * count)[-2:]
    layers = (passes.forward * count)[:-2].sum(axis=0) - host - _attention(lowered, job.machine)
    sends = steps.traversal - (passes.forward * count).sum(axis=0) + mapping(lowered, job.machine)
    constants: Host = job.runtime.host
    phase = "decode" if points.decode[-1] else "prefill"
    layers_run = float(count[:-2, -1].sum())
    prepared = layers_run * getattr(constants.preparing, phase)
    floor = 0.0 if phase in constants.captured else constants.per_kernel * _launches(steps) + prepared
    gap = layers_run * getattr(constants.per_layer, phase)
    speed = job.machine.host_speed
    shared = float(steps.starts_of_attention[-1])
    return _Terms(layers.tolist(), (outer[0] + sends).tolist(), outer[1].tolist(), floor / speed, gap / speed, shared)


def _launches(steps: ForwardSteps) -> float:
    """Kernels and messages that the layers of one pass launch, of the last of the passes."""
    count = steps.priced.lowered.layers.sum(axis=2)[:, -1].copy()
    count[-2:] = 0.0
    kernels = sum(float(t.rows.count[:, -1] @ count[t.rows.unit]) for t in steps.priced.kernels)
    moving = [(m.rows, m.rows.count[:, -1] * (m.rows.ranks[:, -1] > 1)) for m in steps.priced.messages]
    return kernels + sum(float(sent @ count[rows.unit]) for rows, sent in moving)


def _attention(lowered: Lowered, machine: Machine) -> Column:
    """Seconds of the rows that read the cache in one pass [N]: attention, and the indexer that chooses its tokens."""
    layers = lowered.layers.sum(axis=2)
    total = np.zeros(layers.shape[1])
    for rows in lowered.kernels:
        reads = np.array([rows.family == "attention" or name.startswith("index_") for name in rows.names])
        if reads.any():
            seconds = price_table(rows, machine).seconds
            total += (seconds * rows.count * layers[rows.unit])[reads].sum(axis=0)
    return total


def _plane(job: Job, first: list[float], second: list[float], *, decode: bool) -> Plane:
    rows = [(x, 1.0, y, 0.0) if decode else (1.0, x, y, 0.0) for x in first for y in second]
    values = _attention(job.lower(points_of(rows)), job.machine)
    return Plane(first, second, values.reshape(len(first), len(second)))


def _token_nodes(engine: Serving) -> list[float]:
    """Numbers of tokens: every one while few, then both sides of every tile and of every captured batch."""
    limit = max(engine.max_batched_tokens, engine.max_sequences)
    steps = [*range(TILE, limit + TILE, TILE), *engine.capture_sizes]
    nodes = {float(x) for x in range(1, EVERY_TOKEN + 1)} | {float(s + d) for s in steps for d in (0, 1)}
    return sorted(nodes | {2.0 * (max(steps) + 1)})  # the slope beyond is that of many tiles, not of one's start


def _chunk_nodes(limit: float, longest: int) -> list[float]:
    """New tokens of prompts: every one below a tile, both sides of every tile of a step, then RATIO apart, up to the
    ``longest`` prompt that is read whole; attention grows with their square, of which a tile's start is no slope."""
    tiles = [*range(TILE, EVERY_TILE, TILE), *range(EVERY_TILE, int(limit) + TILE, 2 * TILE)]
    far = _smooth(tiles[-1] + TILE, max(2 * tiles[-1], longest), tile=TILE)
    return sorted({float(x) for x in range(2, TILE)} | {float(t + d) for t in tiles for d in (0, 1)} | set(far))


def _length_nodes(longest: int) -> list[float]:
    """Cached tokens of a sequence: both sides of every tile (the new token fills it) while few, then RATIO apart.

    The last node lies so far beyond the model's positions that lengths between are interpolated.
    """
    near = range(TILE, EVERY_TILE, TILE)
    far = _smooth(EVERY_TILE, BEYOND * max(longest, EVERY_TILE), tile=TILE)
    return sorted({1.0} | {float(t - d) for t in near for d in (0, 1)} | {t - 1.0 for t in far})


def _smooth(start: int, stop: int, *, exact: int = 0, tile: int = 1) -> list[float]:
    """Nodes from ``start`` to ``stop``: every one up to ``exact``, then RATIO apart, whole tiles once beyond one."""
    nodes = [float(x) for x in range(start, exact + 1)] or [float(start)]
    while nodes[-1] < stop:
        up = max(nodes[-1] + 1.0, nodes[-1] * RATIO)
        nodes.append(float(min(stop, np.ceil(up / tile) * tile)) if tile > 1 else float(min(stop, np.ceil(up))))
    return [a for a, b in pairwise([*nodes, np.inf]) if b > a]
