"""Evaluate an inference batch: its forward passes, the time to first token, the time per output token, memory."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil

import numpy as np

from rapid_llm.dtypes import Precision
from rapid_llm.execution import ForwardSteps, Machine, forward_steps
from rapid_llm.hardware import System
from rapid_llm.lowering import Shapes, lower
from rapid_llm.memory import Account, inference_account
from rapid_llm.model import Model
from rapid_llm.parallelism import Plans
from rapid_llm.runtime import Runtime
from rapid_llm.workload import Inference, Points, decode_points, join, prefill_points

DEFAULT_BUDGET_TOKENS = 8192


@dataclass(frozen=True, slots=True)
class InferenceTable:
    """One plan's batch, evaluated.

    points: the distinct forward passes of one micro-batch; steps: their times; ``waves`` micro-batches share the
    pipeline stages. ttft_s: until the last prompt's first token; tpot_s: mean gap after it; e2e_s (s).
    """

    points: Points
    steps: ForwardSteps
    account: Account
    waves: int
    prefill_s: float
    ttft_s: float
    tpot_s: float
    e2e_s: float


def evaluate_inference(
    model: Model, system: System, runtime: Runtime, precision: Precision, plans: Plans, workload: Inference
) -> InferenceTable:
    """Evaluate a batch under one plan. ``plans.micro_batch`` is the requests of one replica.

    With pipeline stages the requests are dealt into up to pp micro-batches that fill the stages in turn: a token takes
    the slower of one traversal and of every micro-batch passing the pacing stage. Prefill streams its passes through.
    """
    requests = int(plans.micro_batch[0])
    waves = min(int(plans.pp[0]), requests)
    micro = ceil(requests / waves)
    waves = ceil(requests / micro)
    budget = runtime.serving.max_batched_tokens if runtime.serving else DEFAULT_BUDGET_TOKENS
    prefill = prefill_points(requests, workload.prompt_tokens, budget)
    decode = decode_points(micro, workload.prompt_tokens, workload.output_tokens)
    last = Points(
        *(np.array([v]) for v in (float(requests), 1.0, workload.prompt_tokens + workload.output_tokens - 1.0, 0.0))
    )
    points = join([prefill, decode, last])
    columns = replace(plans.repeat(len(points.batch)), micro_batch=points.batch)
    shapes = Shapes.of(columns, new=points.new, past=points.past, training=False, precision=precision, runtime=runtime)
    lowered = lower(model, shapes, runtime)
    machine = Machine.of(system, runtime)
    steps = forward_steps(lowered, machine)
    account = inference_account(lowered, runtime, precision, machine.accelerator)
    return _times(points, steps, account, waves, workload, machine)


def _times(
    points: Points, steps: ForwardSteps, account: Account, waves: int, workload: Inference, machine: Machine
) -> InferenceTable:
    count = points.count
    first = ~points.decode
    traversal, pace = steps.traversal, steps.pace
    slowest = int(np.argmax(np.where(first, traversal, -1.0)))
    passes = float(count[first].sum())
    prefill = float((count * pace)[first].sum() + traversal[slowest] - pace[slowest])
    prefill += passes * float(steps.host[slowest])
    ttft = prefill + machine.runtime.host.ingress
    gaps = float(count[~first].sum())
    step = np.maximum(traversal, waves * pace) + steps.host
    tpot = float((count * step)[~first].sum()) / gaps if gaps else 0.0
    return InferenceTable(
        points, steps, account, waves, prefill, ttft, tpot, ttft + tpot * (workload.output_tokens - 1)
    )
