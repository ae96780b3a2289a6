"""Decode with attention on one pool and feed-forward parts on another: every micro-batch travels between them at each
layer.

While one micro-batch is in its feed-forward part another computes attention and a third travels (MegaScale-Infer, Zhu
et al. 2025, arXiv 2504.02263, section 4.1; Step-3, arXiv 2507.19427). With Ta, Tf seconds of a layer on either side and
Tc of one transfer, m micro-batches pass a layer in max(m Ta, m Tf, m Tc, Ta + Tf + 2 Tc): the busiest of the three, or
the latency of one micro-batch where there are too few, m < 2 (1 + Tc / T).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import ceil

import numpy as np
from numpy.typing import NDArray

from rapid_llm.dtypes import dtype
from rapid_llm.errors import InputError
from rapid_llm.execution import ForwardSteps, forward_steps
from rapid_llm.execution.forward import engine_time
from rapid_llm.model import Block, MoE
from rapid_llm.network import Fabric, link, price
from rapid_llm.nouns import replaced
from rapid_llm.predict.inference import InferenceTable
from rapid_llm.predict.replica import Job, job_of
from rapid_llm.scenario import Pool, Pools, Scenario, pool_scenario
from rapid_llm.workload import Points, join, points_of

Column = NDArray[np.float64]
OUTER = 2
"""Units around the layers: embedding and LM head, which the attention pool runs."""
MOST_MICRO_BATCHES = 4
"""What is tried where the number is left open: with transfers no longer than computation, four always hide them."""
SIDES = ("attention", "ffn", "transfer", "latency")
"""What a layer can wait for; latency: of one micro-batch, too few being under way."""
DOUBLINGS = 12
"""Replicas of attention, as a power of two, up to which the balance of both pools is looked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HalvedSteps:
    """Decode steps on both pools. table: with the passes of the attention pool, as often as they run. attention_s,
    ffn_s, transfer_s: of one micro-batch in the mean step, over all layers, transfers in one direction; binds: the
    largest of SIDES. ffn: the passes of a micro-batch in the feed-forward pool, ``count`` [N] of each a step;
    ``sequences``: of a micro-batch on one attention replica.
    """

    table: InferenceTable
    ffn: ForwardSteps
    count: Column
    micro_batches: int
    sequences: float
    attention_s: float
    ffn_s: float
    transfer_s: float
    binds: str


@dataclass(frozen=True, slots=True)
class Halves:
    """Both pools of decode: the job of an attention replica, that of a replica of feed-forward parts."""

    scenario: Scenario
    attention: Job
    ffn: Job

    @classmethod
    def of(cls, scenario: Scenario, attention: Job) -> Halves | None:
        """The halves of a scenario; None where one pool decodes."""
        pools = scenario.pools
        if pools is None or pools.ffn is None:
            return None
        return cls(scenario, _whole(attention), _whole(job_of(pool_scenario(scenario, "ffn"))))

    @property
    def pools(self) -> tuple[Pools, Pool]:
        """The pools, and the one of feed-forward parts."""
        pools = self.scenario.pools
        assert pools is not None
        assert pools.ffn is not None
        return pools, pools.ffn

    @property
    def replicas(self) -> tuple[int, int]:
        """Replicas of attention, and replicas of feed-forward parts, over which the tokens of all the former spread."""
        pools, ffn = self.pools
        return pools.decode.parallelism.dp or 1, ffn.parallelism.dp or 1

    def steps(self, running: float) -> HalvedSteps:
        """The decode steps of one request among a number of them on a replica, their progress spread evenly."""
        work = self.attention.work
        middle = self.attention.middle(max(1.0, running))

        def step(sequences: float) -> Points:
            return points_of([(sequences * work.beams, 1, middle, work.output_tokens - 1)])

        return self._fastest(max(1.0, running), step)

    def batch(self, requests: int) -> HalvedSteps:
        """A number of requests that decode together on a replica."""
        work = self.attention.work
        if work.output_tokens == 1:
            return self.steps(float(requests))

        def steps(sequences: float) -> Points:
            return self.attention.decoding(sequences * work.beams, requests)

        return self._fastest(float(requests), steps)

    def _fastest(self, running: float, make: Callable[[float], Points]) -> HalvedSteps:
        """With the given number of micro-batches, else the one of least time; no micro-batch is empty."""
        given, most = self.pools[0].micro_batches, max(1, int(running))
        tried = [min(given, most)] if given else range(1, min(MOST_MICRO_BATCHES, most) + 1)
        return min((self._timed(running, make, m) for m in tried), key=lambda found: found.table.decode_s)

    def _timed(self, running: float, make: Callable[[float], Points], micro_batches: int) -> HalvedSteps:
        m, job, sequences = float(micro_batches), self.attention, running / micro_batches
        points = make(sequences)
        n = len(points.batch)
        lowered, steps = job.time(join([points, job.fullest(ceil(running))]))
        s = lowered.shapes
        host = engine_time(replace(lowered, shapes=replace(s, batch=s.batch * m)), job.machine)
        steps = replace(steps, host=host / m)
        ffn = self.feed_forward(points)
        passes = steps.priced.lowered.layers.sum(axis=2)[:, :n]
        mine, theirs = steps.passes.forward[:, :n], ffn.passes.forward[:-OUTER]
        moved = np.array([[self.transfer(block, float(points.batch[0]))] * n for block in job.model.blocks])
        own = mine[:-OUTER]
        layer = np.maximum.reduce([m * own, m * theirs, m * moved, own + theirs + 2.0 * moved])
        seconds = (passes[:-OUTER] * layer).sum(axis=0) + m * (passes[-OUTER:] * mine[-OUTER:]).sum(axis=0)
        whole = [float((passes[:-OUTER] * part).sum(axis=0) @ points.count) for part in (own, theirs, moved)]
        waits = dict(
            zip(SIDES, [m * whole[0], m * whole[1], m * whole[2], whole[0] + whole[1] + 2.0 * whole[2]], strict=True)
        )
        each = [part / max(float(points.count.sum()), 1.0) for part in whole]
        decode = np.append(m * points.count, 0.0)
        table = InferenceTable(
            points=join([points, job.fullest(ceil(running))]),
            steps=steps,
            account=job.account(ceil(running)),
            prefill=np.zeros(n + 1),
            streamed=np.zeros(n + 1),
            decode=decode,
            running=ceil(running),
            ttft_s=0.0,
            decode_s=float(points.count @ (seconds + host[:n])),
            gaps=round(float(points.count.sum())),
        )
        return HalvedSteps(
            table=table,
            ffn=ffn,
            count=points.count,
            micro_batches=micro_batches,
            sequences=sequences,
            attention_s=each[0],
            ffn_s=each[1],
            transfer_s=each[2],
            binds=max(waits, key=lambda side: waits[side]),
        )

    def feed_forward(self, points: Points, replicas: float | None = None) -> ForwardSteps:
        """Passes of the feed-forward pool for a micro-batch of every attention replica. Tokens come from the attention
        pool straight to the ranks of their experts: that takes the place of the exchange within the pool.
        """
        attention, own = self.replicas
        spread = replace(points, batch=points.batch * (attention if replicas is None else replicas) / own)
        lowered = self.ffn.lower(spread)
        lowered = replace(lowered, messages=tuple(m for m in lowered.messages if m.axis != "ep"))
        return forward_steps(lowered, self.ffn.machine)

    def transfer(self, block: Block, sequences: float) -> float:
        """Seconds in which a micro-batch, of a number of sequences on every replica, gets from one pool to the other. A
        token goes once to each rank that holds any of its experts, or to every rank of a tensor-parallel group; each
        rank of a replica sends its share. The slower of sending and receiving decides.
        """
        pools, ffn = self.pools
        there, back, (attention, _) = pools.decode, ffn, self.replicas
        tokens, width = sequences * attention, self.scenario.model.hidden_size
        size = tokens * copies(block, ffn) * width * dtype(there.precision.activations).bytes
        sent, received = size / there.accelerators, size / back.accelerators
        return max(way(pools, there, back, sent), way(pools, back, there, received))

    def balance(self, found: HalvedSteps) -> float:
        """Replicas of attention with which both pools compute equally long; 0 where a single one is too much."""
        middle = points_of([(found.sequences * self.attention.work.beams, 1, self.attention.work.prompt_tokens, 1)])

        def seconds(replicas: float) -> float:
            ffn = self.feed_forward(middle, replicas)
            return float((ffn.priced.lowered.layers.sum(axis=2)[:-OUTER] * ffn.passes.forward[:-OUTER]).sum())

        low, high = 1.0, 2.0**DOUBLINGS
        if seconds(low) > found.attention_s:
            return 0.0
        while high > 1.02 * low:
            tried = (low * high) ** 0.5
            low, high = (tried, high) if seconds(tried) <= found.attention_s else (low, tried)
        return low


def _whole(job: Job) -> Job:
    """The job with passes in one piece: micro-batches already alternate between the pools."""
    overlap = replaced(job.runtime.overlap, nano_batches=1)
    return replace(job, runtime=replaced(job.runtime, overlap=overlap))


def copies(block: Block, ffn: Pool) -> float:
    """Ranks of the feed-forward pool that need a token. Of E ranks k random choices reach E (1 - (1 - 1/E)^k), each
    counted once for every rank that an expert is cut over; the rank of its shared expert counts as one of the choices.
    """
    plan, part = ffn.parallelism, block.ffn
    if not isinstance(part, MoE) or plan.ep * (plan.etp or 1) <= plan.tp:
        return float(plan.tp)
    picks = part.num_experts_per_tok + (part.shared_intermediate_size > 0)
    return plan.ep * (1.0 - (1.0 - 1.0 / plan.ep) ** picks) * (plan.etp or 1)


def way(pools: Pools, pool: Pool, other: Pool, size: float) -> float:
    """Seconds in which every rank of a pool's replica sends or receives ``size`` bytes to or from another pool."""
    if pools.link is not None:
        joined = link(pools.link)
        return size / joined.bandwidth + joined.latency
    fabric = Fabric.of(pool.system)
    inside = pool.system == other.system and pools.accelerators <= fabric.node_span
    if not inside and pool.system.accelerators < 2 * fabric.node_span:
        raise InputError(
            f"nothing joins the pools: system {pool.system.name} is one node of {fabric.node_span} without a network. "
            "Try pools.link: infiniband-ndr, or a system of several nodes such as dgx-h100.",
            field="pools.link",
        )
    stride = 1 if inside else fabric.node_span
    library = pool.runtime.communication.library
    return float(price("send_recv", [size], [2], [stride], fabric=fabric, library=library).seconds[0])
