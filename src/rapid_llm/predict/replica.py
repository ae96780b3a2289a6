"""One replica of an inference job: its forward passes and its memory, at any batch."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import ceil, hypot, sqrt

import numpy as np
from numpy.typing import NDArray

from rapid_llm.dtypes import Precision
from rapid_llm.execution import ForwardSteps, Machine, Slow, forward_steps
from rapid_llm.lowering import Lowered, Shapes, lower
from rapid_llm.lowering.linear import lower_pass
from rapid_llm.memory import CATEGORIES, Account, inference_account, inference_footprint, predictor_bytes
from rapid_llm.model import Model
from rapid_llm.nouns import replaced
from rapid_llm.operators.work import lateness
from rapid_llm.parallelism import Parallelism, Plans
from rapid_llm.predict.benching import sized
from rapid_llm.predict.images import encoding
from rapid_llm.predict.job import decoded, plans_of
from rapid_llm.predict.nano import in_nano_batches
from rapid_llm.predict.shifting import in_both_forms, tensor_parallel
from rapid_llm.runtime import Runtime, Serving
from rapid_llm.scenario import Draft, Scenario
from rapid_llm.workload import HostShare, Inference, Points, decode_points, points_of, prefill_points
from rapid_llm.workload.lengths import by_token, longest, running, written

Column = NDArray[np.float64]
WEIGHTS, KV_CACHE = CATEGORIES.index("weights"), CATEGORIES.index("kv_cache")
STATIC_ENGINE = Serving(kv_block_tokens=1)
"""What a runtime without an engine does: no blocks, no captured batches."""


@dataclass(frozen=True, slots=True)
class Job:
    """One replica of an inference job: everything that its forward passes share. ``work`` is what its decoder does,
    after ``source`` tokens of every prompt that cross attention reads (``job.decoded``).
    """

    model: Model
    runtime: Runtime
    precision: Precision
    plans: Plans
    work: Inference
    machine: Machine
    slow: Slow = field(default_factory=dict)
    draft: Draft | None = None
    source: float = 0.0

    @property
    def whole(self) -> bool:
        """Whether every prompt is read in one pass: where each token sees all others, a prompt cannot be cut into
        chunks.
        """
        return self.model.encoder is not None or not self.model.writes

    @property
    def budget(self) -> float:
        """Most tokens of one step. An engine that does not cut prompts is started so that a step holds the longest
        prompt and one token of every other sequence (trtllm-bench, ``get_settings``).
        """
        engine = self.engine
        if engine.chunks_prompts:
            return engine.max_batched_tokens
        return max(engine.max_batched_tokens, self.read_tokens + engine.max_sequences)

    @property
    def in_phase(self) -> bool:
        """Whether requests that start together also end together, and those queued behind them then start together:
        requests of equal lengths, in a job that queues them at its start. Closed loops and endless queues are taken as
        spread evenly.
        """
        return self.work.total_requests is not None and not self.work.varied and not self.work.closed_loop

    @property
    def read_tokens(self) -> float:
        """Tokens of a pass that reading one prompt takes, those of its encoder included."""
        return self.work.new_tokens + self.source

    @property
    def engine(self) -> Serving:
        """The serving facts of the runtime."""
        return self.runtime.serving or STATIC_ENGINE

    @property
    def joined(self) -> float:
        """Replicas that step together, because exchanging tokens of experts makes each wait for all others."""
        plans = self.plans
        return max(1.0, float(plans.ep[0] * plans.etp[0] / (plans.tp[0] * plans.cp[0])))

    def middle(self, running: float) -> float:
        """Mean number of cached tokens of a running sequence, on the fullest of the replicas that step together. With
        equal lengths replicas run in phase, and none is fuller than another.
        """
        work = self.work
        if self.joined <= 1.0 or not work.varied:
            return work.middle
        deviation = hypot(work.prompt_tokens * work.prompt_spread, written(work.output_tokens, work.output_spread)[1])
        return work.middle + lateness(self.joined) * deviation / sqrt(running)

    @property
    def past(self) -> int:
        """Prompt tokens that are cached already."""
        return self.work.prompt_tokens - self.work.new_tokens

    @property
    def ingress(self) -> float:
        """Seconds from a request's arrival to its first kernel launch on an idle engine."""
        return self.runtime.host.arrival(self.work.prompt_tokens + self.source) / self.machine.host_speed

    def tokenised(self, requests: int) -> tuple[float, float]:
        """Seconds, beyond those of a single prompt, until the first and the last of several prompts that arrive
        together are tokenised: one thread tokenises them, a call's worth at a time.
        """
        each = self.runtime.host.per_prompt_token * (self.work.prompt_tokens + self.source) / self.machine.host_speed
        return each * (min(requests, self.engine.tokenised_together) - 1), each * (requests - 1)

    @property
    def queued(self) -> int | None:
        """Requests that one replica works through until the job is done; None for a queue without end."""
        total = self.work.total_requests
        return None if total is None else ceil(total / int(self.plans.dp[0]))

    @property
    def stages(self) -> int:
        """Pipeline stages."""
        return int(self.plans.pp[0])

    @property
    def steady(self) -> float:
        """Share of a request's output that its cache holds when the cache is fullest: all of it in a static batch; half
        of it, on average, where requests are replaced as they finish. What admission reserves comes on top.
        """
        return 1.0 if self.work.batching == "static" else self.mean_output

    @property
    def mean_output(self) -> float:
        """Mean share of a request's output that its cache holds; what admission reserves comes on top."""
        return (0.5 + 0.5 * self.engine.reserved_output) * by_token(1.0, self.work.output_spread)

    @property
    def drafts(self) -> int:
        """Draft tokens that a decode step verifies beside the newest token."""
        return self.work.speculation.drafts if self.work.speculation else 0

    @property
    def decode_steps(self) -> float:
        """Decode steps of one request: those that produce the tokens after its first."""
        each = self.work.speculation.tokens_per_step if self.work.speculation else 1.0
        return (self.work.output_tokens - 1) / each

    @property
    def max_requests(self) -> int:
        """Most requests that the engine runs at once, with all beams of each."""
        return max(1, self.engine.max_sequences // self.work.beams)

    def held(self, output: float) -> float:
        """Tokens that one request's cache holds at a share of its output; beams share the cache of their prompt."""
        return self.work.prompt_tokens + output * self.work.output_tokens * self.work.beams

    def prompts(self, requests: int) -> Points:
        """The passes that read a number of prompts within the token budget."""
        new, budget = self.work.new_tokens, int(self.budget)
        if self.whole or not self.engine.chunks_prompts:
            budget = new * max(1, int(budget // self.read_tokens))
        return prefill_points(requests, new, budget, self.past + self.seen_further)

    @property
    def seen_further(self) -> float:
        """By how many tokens the mean context of prompt tokens grows where prompt lengths vary: long prompts have most
        of the tokens.
        """
        new = self.work.new_tokens
        return 0.0 if self.whole or new == 1 else (by_token(new, self.work.prompt_spread) - new) / 2.0

    def decoding(self, sequences: float, requests: int) -> Points:
        """The decode steps of a batch of requests, ``sequences`` of them at first in each: they run until the longest
        request is done, with the requests that are not done yet.
        """
        work = self.work
        prompt, spread = work.prompt_tokens, work.output_spread
        points = decode_points(sequences, prompt, longest(work.output_tokens, spread, requests))
        if not spread or not len(points.batch):
            return points
        first = points.past - (points.count - 1.0) / 2.0 - prompt + 1.0  # tokens that each has before the step
        left = running(first, points.count, work.output_tokens, spread)
        return replace(points, batch=np.maximum(1.0, sequences * left))

    def fullest(self, requests: int) -> Points:
        """The moment at which the cache is fullest, as a pass that counts for memory and takes no time."""
        return points_of([(requests, 1, self.held(self.steady) - 1.0, 0)])

    def token_time(self, steps: ForwardSteps, groups: int) -> Column:
        """Seconds until each of ``groups`` micro-batches has its next token [N]: the slower of one traversal of the
        pipeline and of all of them passing its pacing stage, or one traversal after the other.
        """
        if not self.engine.overlaps_stages:
            return groups * steps.traversal
        return np.maximum(steps.traversal, groups * steps.pace)

    def drafting(self, steps: ForwardSteps, at: int, sequences: float) -> float:
        """Seconds of drafting before one verifying step, from the decode pass ``at``: one layer and the head for each
        draft of a built-in predictor, one pass for each draft of a draft model.
        """
        spec = self.work.speculation
        if spec is None or spec.draft == "ngram":
            return 0.0
        if spec.draft == "mtp":
            return spec.drafts * float(steps.passes.forward[self.model.pattern[-1], at] + steps.passes.forward[-1, at])
        return spec.drafts * float(self.drafter.time(points_of([(sequences, 1, self.work.middle, 1)]))[1].traversal[0])

    @property
    def drafter(self) -> Job:
        """The draft model alone, on its share of the replica's accelerators."""
        draft = self.draft
        assert draft is not None
        plan = Parallelism(tp=draft.tp, etp=draft.tp, dp=1)
        plans = Plans.of(plan, micro_batch=1, micro_batches=1, order=self.plans.order)
        work = replaced(self.work, speculation=None, offload=HostShare(), images=None)
        return Job(draft.model, self.runtime, draft.precision, plans, work, self.machine)

    @property
    def predicts(self) -> bool:
        """Whether the model predicts further tokens itself: one more layer behind the others, with
        a cache of its own.
        """
        return self.work.speculation is not None and self.work.speculation.draft == "mtp"

    def drafted_prompts(self, first: Points, requests: int, steps: ForwardSteps) -> float:
        """Seconds in which the drafter reads the prompts of the first of ``steps``, and in which their images are
        encoded.
        """
        encoded = encoding(self, requests) if self.work.images else 0.0
        if self.predicts:
            read = steps.passes.forward[self.model.pattern[-1], : len(first.count)]
            return encoded + float(first.count @ read)
        if self.draft is None:
            return encoded
        return encoded + float(first.count @ self.drafter.time(first)[1].traversal)

    def lower(self, points: Points, verified: NDArray[np.bool_] | None = None) -> Lowered:
        """Lower forward passes. A replayed graph runs the batch that it was captured for, padding included.
        ``verified`` [N] marks decode steps that verify several tokens of a sequence: each of these tokens has its row
        of logits.
        """
        padding: Column | float = 1.0
        if "decode" in self.runtime.host.captured:
            padding = points.padded(self.engine.capture_sizes, self.engine.max_sequences) / points.batch
        shapes = Shapes.of(
            self.plans.repeat(points.batch),
            new=points.new,
            past=points.past,
            training=False,
            precision=self.precision,
            runtime=self.runtime,
            routing=self.work.routing,
            verified=verified,
            source=self.source,
            padding=padding,
            evenness=points.evenness,
        )
        if self.work.offload.any:
            return lower(self.model, shapes, self.runtime)
        return lower_pass((self.model, self.runtime, self.precision, self.work.routing), self.plans, shapes)

    def time(self, points: Points, verified: NDArray[np.bool_] | None = None) -> tuple[Lowered, ForwardSteps]:
        """Lower and time forward passes."""
        if self.plans.shift:
            return in_both_forms(self, points, verified)
        if self.runtime.overlap.nano_batches > 1:
            return in_nano_batches(self, points, verified, self.runtime.overlap.nano_batches)
        lowered = self.lower(points, verified)
        return lowered, forward_steps(lowered, self.machine, self.slow, self.work.offload)

    def account(self, requests: int, output: float | None = None) -> Account:
        """Memory of a replica with a number of requests at their longest (or at a share of their output), with the
        weights and cache of a draft model.
        """
        cached = self.held(self.steady if output is None else output)
        beside = (0.0, 0.0)
        if self.draft is not None:
            found = self.drafter.account(requests, output)
            beside = float(found.by_category[WEIGHTS].max()), float(found.by_category[KV_CACHE].max())
        if self.plans.shift:
            cut = replace(self, plans=tensor_parallel(self.plans), draft=None).account(requests, output)
            beside = beside[0] + float(cut.by_category[WEIGHTS].max()), beside[1]
        plans = self.plans
        if requests != plans.micro_batch[0] or plans.shift:
            plans = replaced(plans, micro_batch=np.array([float(requests)]), shift=False)
        software, prompt = (self.model, self.runtime, self.precision), float(self.work.prompt_tokens)
        step = inference_footprint(
            *software, plans, cached=cached, prompt=prompt, source=self.source, routing=self.work.routing
        )
        if self.predicts:
            ahead = predictor_bytes(step, self.model, self.precision)
            beside = beside[0] + ahead[0], beside[1] + ahead[1]
        common = self.runtime, self.precision, self.machine.accelerator
        return inference_account(step, *common, self.work.offload, beside)


def job_of(scenario: Scenario) -> Job:
    """The job of a scenario's replica, on accelerators without faults."""
    work = scenario.workload
    assert isinstance(work, Inference)
    model, precision, plans = scenario.model, scenario.precision, plans_of(scenario)
    runtime = sized(scenario.runtime, model, precision, plans, work, scenario.system.groups[0].node.accelerator)
    machine = Machine.of(scenario.system, runtime, accelerators=scenario.accelerators)
    own, source = decoded(model, work)
    return Job(model, runtime, precision, plans, own, machine, draft=scenario.draft, source=source)
