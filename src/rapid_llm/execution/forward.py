"""The time of forward passes in inference: prefill chunks and decode steps, over pipeline stages."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from rapid_llm import operators
from rapid_llm.execution.host_experts import experts_on_host, layers_on_host
from rapid_llm.execution.machine import Machine
from rapid_llm.execution.mapping import mapping
from rapid_llm.execution.messages import send_time, sends
from rapid_llm.execution.offload import host_copies
from rapid_llm.execution.passes import Passes, time_passes
from rapid_llm.execution.pricing import Priced, price_step
from rapid_llm.execution.stragglers import Slow, paces
from rapid_llm.lowering import Lowered
from rapid_llm.lowering.table import FORWARD
from rapid_llm.nouns import light, replaced
from rapid_llm.operators.kernels import AttentionKernel
from rapid_llm.workload import HostShare

Column = NDArray[np.float64]
Matrix = NDArray[np.float64]


@light
class ForwardSteps:
    """N forward passes, each with its own shapes. stages: seconds of one pass on each stage, sends included [N, S];
    host: what the engine's host adds to each step [N] (s); late: what slow accelerators add to each stage of the
    slowest replica [N, S]; fetched: what copies from the host add to each stage [N, S], of ``copies`` seconds in all;
    hosted: seconds for which a stage waits for experts or layers that are ``left`` to its host, computed there or
    copied up [N, S].
    """

    priced: Priced
    passes: Passes
    stages: Matrix
    send: Column
    host: Column
    late: Matrix
    fetched: Matrix | None = None
    copies: Matrix | None = None
    hosted: Matrix | None = None
    left: str = "experts"

    @property
    def traversal(self) -> Column:
        """Seconds of one pass through all stages [N]."""
        return np.asarray(self.stages.sum(axis=1))

    @property
    def pace(self) -> Column:
        """Seconds between passes when every stage has one [N]."""
        return np.asarray(self.stages.max(axis=1))

    def family(self, name: str) -> Column:
        """Seconds that one family of kernels takes in one pass through all stages [N]."""
        passes = self.priced.lowered.layers.sum(axis=2)
        tables = [t for t in self.priced.kernels if t.rows.family == name]
        found = [(t.seconds * t.rows.count * passes[t.rows.unit]).sum(axis=0) for t in tables]
        return np.asarray(sum(found, np.zeros(passes.shape[1])))

    @property
    def starts_of_attention(self) -> Column:
        """Seconds of one pass through all stages [N] that attention takes at any length, where one launch serves
        prompts and the sequences that decode beside them (``AttentionKernel.varlen``); 0 elsewhere."""
        layers = self.priced.lowered.layers.sum(axis=2)
        total = np.zeros(layers.shape[1])
        for table in self.priced.kernels:
            if table.rows.family == "attention" and starts_once(table.kernel):
                total += (table.prices.fixed_s * table.rows.count * layers[table.rows.unit]).sum(axis=0)
        return total


def starts_once(kernel: str) -> bool:
    """Whether the prompts and the decoding sequences of one step share one launch of an attention kernel."""
    found = operators.kernel(kernel)
    return isinstance(found, AttentionKernel) and found.varlen


def forward_steps(
    lowered: Lowered, machine: Machine, slow: Slow | None = None, offload: HostShare | None = None
) -> ForwardSteps:
    """Time the forward passes of a lowered inference table, of one plan; ``slow``: accelerators that compute slower;
    ``offload``: what they fetch from their hosts."""
    priced = price_step(lowered, machine, sends(lowered, machine.runtime))
    hosted, left = None, "experts"
    if offload is not None and offload.experts:
        priced, hosted = experts_on_host(priced, offload.experts)
    elif offload is not None and offload.weights and machine.runtime.runs_layers_on_host:
        priced, hosted = layers_on_host(priced, offload.weights)
        left, offload = "layers", replaced(offload, weights=0.0)
    passes = time_passes(priced)
    plans = lowered.shapes.plans
    stages = np.einsum("ups,up->ps", lowered.layers, passes.forward)
    send = send_time(priced.others, lowered) + (plans.pp > 1) * machine.runtime.host.per_stage / machine.host_speed
    last = np.arange(stages.shape[1])[None, :] >= plans.pp[:, None] - 1
    late = _late(lowered, passes, slow) if slow else np.zeros_like(stages)
    stages = stages + np.where(last, 0.0, send[:, None]) + late
    host = engine_time(lowered, machine)
    if machine.runtime.host.per_gib_mapped:
        host = host + mapping(lowered, machine)
    if machine.runtime.serving and machine.runtime.serving.async_scheduling:
        host = np.maximum(host - stages.sum(axis=1), 0.0)
    if offload is None or not (offload.any or hosted is not None):
        return ForwardSteps(priced, passes, stages, send, host, late)
    stages = stages if hosted is None else stages + hosted
    copies = host_copies(lowered, machine, offload)
    fetched = np.maximum(copies - stages, 0.0)
    return ForwardSteps(priced, passes, stages + fetched, send, host, late, fetched, copies, hosted, left)


def _late(lowered: Lowered, passes: Passes, slow: Slow) -> Matrix:
    """Seconds by which slow accelerators delay each stage of the replica that they delay most [N, S]."""
    work, idle = (np.einsum("ups,up->ps", lowered.layers, one[FORWARD]) for one in (passes.kernels, passes.host))
    pace = paces(lowered.shapes.plans, 0, slow, work.shape[1])[:, None, :]
    late = np.maximum((pace - 1.0) * work - idle, 0.0)
    return np.asarray(late[late.sum(axis=(1, 2)).argmax()])


def engine_time(lowered: Lowered, machine: Machine) -> Column:
    """Scheduler, input preparation and output handling of one step: fixed, per sequence, per block of its cache."""
    host, serving = machine.runtime.host, machine.runtime.serving
    s = lowered.shapes
    blocks = s.batch * np.ceil((s.past + s.new) / (serving.kv_block_tokens if serving else 1))
    growing = host.per_sequence * s.batch + host.per_kv_block * blocks
    decoding, ranks = s.decode > 0, s.plans.tp * s.plans.pp
    hosted = host.per_step + host.broadcast * np.log2(ranks) + np.where(decoding, growing, 0.0)
    return hosted / machine.host_speed + np.where(decoding, host.per_sample * s.batch, 0.0)
