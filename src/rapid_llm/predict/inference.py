"""Evaluate an inference batch: its forward passes, the time to first token, the time per output token, memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import ceil

import numpy as np
from numpy.typing import NDArray

from rapid_llm.dtypes import Precision
from rapid_llm.execution import ForwardSteps, Machine, Slow
from rapid_llm.hardware import System
from rapid_llm.memory import Account
from rapid_llm.model import Model
from rapid_llm.network.flow_prices import Links
from rapid_llm.nouns import light
from rapid_llm.parallelism import Plans
from rapid_llm.predict.admission import ahead, coming, fed, room
from rapid_llm.predict.arrivals import gathered, in_waves, until_read
from rapid_llm.predict.benching import sized
from rapid_llm.predict.job import decoded
from rapid_llm.predict.lockstep import Lockstep, lockstep
from rapid_llm.predict.replica import Job
from rapid_llm.runtime import Runtime
from rapid_llm.scenario import Draft
from rapid_llm.workload import Inference, Points, join, points_of
from rapid_llm.workload.lengths import longest

Column = NDArray[np.float64]


@light(kw_only=True)
class InferenceTable:
    """One plan's batch, evaluated. points: the distinct forward passes; steps: their times. prefill, decode: how often
    each pass runs between a request's start, its first and its last token [N]; streamed: prefill passes that only the
    pacing pipeline stage waits for, since they follow another [N]; crossing: passes with prompts of other requests
    between a request's tokens [N]. running: requests that a replica runs at once, in ``rounds`` one after the other.
    ttft_s: until the first token of the last prompt, ``unread_s`` of it before the engine reads the prompt; decode_s:
    from there to the last token, ``gaps`` tokens later. job_s: until all requests of a job are done, in ``waves`` of
    requests; the other times are then means over its requests, which all arrive at its start.
    """

    points: Points
    steps: ForwardSteps
    account: Account
    prefill: Column
    streamed: Column
    decode: Column
    running: int
    rounds: int = 1
    ttft_s: float
    decode_s: float
    gaps: int
    unread_s: float = 0.0
    crossing: Column | None = None
    job_s: float | None = None
    waves: int = 1

    @property
    def tpot_s(self) -> float:
        """Mean gap between the tokens of a request after its first (s); 0 where there is no second."""
        return self.decode_s / self.gaps if self.gaps else 0.0

    @property
    def e2e_s(self) -> float:
        """Seconds from arrival to the last token: TTFT + TPOT (output - 1)."""
        return self.ttft_s + self.decode_s


def evaluate_inference(  # noqa: PLR0917
    model: Model,
    system: System,
    runtime: Runtime,
    precision: Precision,
    plans: Plans,
    workload: Inference,
    *,
    slow: Slow | None = None,
    links: Links | None = None,
    draft: Draft | None = None,
) -> InferenceTable:
    """Evaluate a batch under one plan.

    ``plans.micro_batch``: requests of one replica. ``slow``: the share of its compute that an accelerator has left, by
    its place (the slowest replica counts); ``links``: those of the job, where messages are priced link by link;
    ``draft``: the model that drafts tokens. A batch that the cache does not hold runs in rounds: requests wait until
    others are done, as engines queue them. Where admission reserves the whole output, rounds are equal; else the engine
    admits what fits at first, preempts the requests it admitted last as the cache fills, and so runs what the cache
    holds at the mean length. Memory is that of the batch as given, so that the verdict tells that it does not fit; an
    automatic batch is what the cache holds.
    """
    own, source = decoded(model, workload)
    runtime = sized(runtime, model, precision, plans, workload, system.groups[0].node.accelerator)
    machine = Machine.of(system, runtime, links, int(plans.ranks.max(initial=0)))
    job = Job(model, runtime, precision, plans, own, machine, slow or {}, draft, source)
    requests = int(plans.micro_batch[0])
    if job.queued is None:
        return _streamed(job, _in_flight(job, requests))
    table = _in_flight(job, min(requests, job.queued))
    return _streamed(job, until_done(job, table if table.running <= job.queued else _batch(job)(job, job.queued)))


def _streamed(job: Job, table: InferenceTable) -> InferenceTable:
    """The table as a streaming client sees it: the first event of a stream may hold several tokens, which are decoded
    before it is sent.
    """
    held = min(job.engine.first_event - 1, table.gaps)
    if held < 1:
        return table
    share = held / table.gaps
    crossing = np.zeros_like(table.decode) if table.crossing is None else table.crossing
    return replace(
        table,
        prefill=table.prefill + share * table.decode,
        decode=(1.0 - share) * table.decode,
        streamed=table.streamed + share * crossing,
        crossing=(1.0 - share) * crossing,
        ttft_s=table.ttft_s + share * table.decode_s,
        decode_s=(1.0 - share) * table.decode_s,
    )


def until_done(job: Job, table: InferenceTable) -> InferenceTable:
    """The table with the time until all requests of a replica's queue are done.

    Requests of equal lengths that start one after the other finish in that order, and the next ones start in it: they
    follow each other in waves of as many as the engine runs at once, each as long as one request, and the last wave is
    what is left over. Its decode steps have fewer sequences. All requests arrive at the start: those of a wave wait for
    the waves before it, and get their first token as the prompts of their wave are read one pass after the other. In a
    closed loop only the first requests arrive at once, each other one when a request before it is done.
    """
    together = max(1, table.running)
    waves, left = divmod(job.queued or 0, together)
    wave = table if table.rounds == 1 else _batch(job)(job, together)
    last = _batch(job)(job, left) if left else wave
    full, total = together * waves, together * waves + left
    waited = wave.e2e_s * (full * (waves - 1) / 2.0 + left * waves) / total
    first = (full * _first_tokens(job, wave) + left * _first_tokens(job, last)) / total
    lasts = (full * wave.e2e_s + left * last.e2e_s) / total
    if job.work.closed_loop:
        at_once = min(together, total)
        waits = in_waves(
            ceil(total / together) - 1, wave.e2e_s, job.work.output_spread, together, _read(job, together) / together
        )
        first = (at_once * _first_tokens(job, wave) + (total - at_once) * (table.ttft_s + waits)) / total
        waited, lasts = 0.0, max(lasts, table.e2e_s)
    means = replace(wave, account=table.account, rounds=table.rounds, running=together)
    return replace(
        _read_first(means, first),
        ttft_s=waited + first,
        decode_s=lasts - first if table.gaps else 0.0,
        job_s=waves * wave.e2e_s + (last.e2e_s if left else 0.0),
        waves=waves + bool(left),
    )


def _first_tokens(job: Job, wave: InferenceTable) -> float:
    """Mean seconds from the start of a wave to the first tokens of its requests, whose prompts are read together. A
    static batch has all first tokens once all prompts are read. In a continuous batch a request has its own when the
    pass that reads its prompt is done, but no sooner than in the steady loop.
    """
    if job.work.batching == "static":
        return wave.ttft_s
    requests = wave.running
    together = min(requests, max(1, int(job.budget // job.read_tokens)))
    share = float(np.mean(np.arange(requests) // together + 1.0)) / ceil(requests / together)
    first, last = job.tokenised(requests)
    read = job.ingress + first + share * max(_read(job, requests), last - first)
    if job.work.output_tokens == 1:
        return min(read, wave.e2e_s)
    return min(max(read, wave.ttft_s), wave.ttft_s + _beside_others(wave))  # its own decode steps come behind it


def _beside_others(wave: InferenceTable) -> float:
    """Seconds of passes that read prompts of others between a request's first and last token."""
    return 0.0 if wave.crossing is None else float(wave.crossing @ (wave.steps.pace + wave.steps.host))


def _read(job: Job, requests: int) -> float:
    """Seconds in which the prompts of a number of requests are read in a row."""
    return static_batch(job, requests).ttft_s - job.ingress


def _read_first(wave: InferenceTable, first: float) -> InferenceTable:
    """The wave with as many passes of others' prompts before a request's first token as take ``first`` seconds."""
    if wave.crossing is None:
        return wave
    if not wave.gaps:
        return replace(wave, streamed=wave.streamed * first / wave.ttft_s)
    seconds = _beside_others(wave)
    share = min(1.0, max(0.0, first - wave.ttft_s) / seconds) if seconds else 0.0
    return replace(wave, streamed=wave.streamed + share * wave.crossing, crossing=(1.0 - share) * wave.crossing)


def _batch(job: Job) -> Callable[[Job, int], InferenceTable]:
    return static_batch if job.work.batching == "static" else continuous_batch


def _in_flight(job: Job, requests: int) -> InferenceTable:
    """Requests of a replica in flight: as given, or as many as the engine runs at once where it chooses."""
    workload, evaluate = job.work, _batch(job)
    table = evaluate(job, requests)
    static = workload.batching == "static"
    fit = room(table, requests, job, output=job.steady)
    held = fit
    if workload.batch_size == "auto" or (job.model.writes and not static):
        fit = fit if static and job.model.writes else min(fit, fed(job))
    if workload.batch_size == "auto":
        return evaluate(job, fit) if fit > 1 else table
    if fit >= requests or fit < 1:
        return table
    if static and job.engine.reserved_output < 1.0:
        together = min(requests, room(table, requests, job, output=job.mean_output))
    else:
        together = ceil(requests / ceil(requests / fit)) if static else fit
    admitted = room(table, requests, job, output=job.engine.reserved_output) if static else fit
    running = evaluate(job, together)
    if fit < held:  # the token budget is the limit: who waits is known to the engine, and read as soon as it has room
        running = replace(running, ttft_s=running.ttft_s - running.unread_s)
    return in_rounds(replace(running, account=table.account), requests, max(admitted, together))


def in_rounds(table: InferenceTable, requests: int, admitted: int) -> InferenceTable:
    """The table of ``requests`` of which the cache holds ``table.running`` to their end and admits ``admitted``. The
    job takes as long as its rounds of requests that finish together; the last request starts when it is admitted.
    """
    rounds = requests / table.running
    ttft = table.ttft_s + (max(1.0, requests / admitted) - 1.0) * table.e2e_s if table.gaps else rounds * table.e2e_s
    return replace(table, rounds=ceil(rounds), ttft_s=ttft, decode_s=rounds * table.e2e_s - ttft)


def static_batch(job: Job, requests: int) -> InferenceTable:
    """All prompts are prefilled, then decoded together.

    With pipeline stages the requests are dealt into up to pp micro-batches that fill the stages in turn, where the
    engine does so: a token then takes the slower of one traversal and of every micro-batch passing the pacing stage.
    Prefill passes follow each other through the stages.
    """
    work = job.work
    groups = min(job.stages, requests) if job.engine.deals_batch else 1
    micro = ceil(requests / groups)
    groups = ceil(requests / micro)
    first = job.prompts(requests)
    rest = job.decoding(micro * work.beams, requests)
    points = join([first, rest.verifying(job.drafts), job.fullest(requests)])
    n, end = len(first.batch), len(points.batch) - 1
    steps = job.time(points, _verified(points, job, slice(n, end)))[1]
    streamed, decode = points.count.copy(), points.count.copy()
    streamed[n:], decode[:n] = 0.0, 0.0
    decode *= job.decode_steps / max(1, work.output_tokens - 1)
    traversal, pace = steps.traversal, steps.pace
    prefill = np.zeros_like(streamed)
    prefill[np.argmax(traversal[:n])] = 1.0
    streamed -= prefill
    prefill_s = float(prefill @ (traversal + steps.host) + streamed @ (pace + steps.host))
    drafting = job.drafting(steps, end, micro)
    decode_s = float(decode @ (job.token_time(steps, groups) + steps.host + drafting))
    return InferenceTable(
        points=points,
        steps=steps,
        account=job.account(requests),
        prefill=prefill,
        streamed=streamed,
        decode=decode,
        running=requests,
        ttft_s=prefill_s + job.ingress + job.drafted_prompts(first, requests, steps),
        decode_s=decode_s,
        gaps=longest(work.output_tokens, work.output_spread, requests) - 1,
    )


def _verified(points: Points, job: Job, decode: slice) -> NDArray[np.bool_] | None:
    """Which passes verify drafts [N]: those of the decode phase, where there is speculation."""
    if not job.drafts:
        return None
    mask = np.zeros(len(points.batch), dtype=bool)
    mask[decode] = True
    return mask


def continuous_batch(job: Job, requests: int) -> InferenceTable:
    """Requests that finish are replaced at once, spread evenly over their progress: the mean field of a closed loop.

    In the time of one request, n prompts are prefilled in m passes and every sequence takes O - 1 decode steps. Engines
    that mix steps add the prompt tokens to decode steps, others interrupt decoding: cycle = m t_mixed + (O - m) t_dec
    or m t_prefill + (O - 1) t_dec. At one request both are a static batch of one.
    """
    work, engine = job.work, job.engine
    groups = min(job.stages, requests)
    others = (requests - 1.0) / groups * (1.0 + job.drafts) * work.beams
    budget = max(1.0, job.budget - (others if engine.mixed_steps else 0.0))
    most = budget / job.read_tokens if engine.chunks_prompts else max(1.0, budget // job.read_tokens)
    come = requests / groups if job.in_phase else gathered(engine, *coming(job, requests, groups))
    together = min(come, requests / groups, most)
    together = max(1.0, together) if job.whole else together
    passes = requests / together
    batch, new = max(1.0, together), work.new_tokens * min(1.0, together)
    beside = others / batch if engine.mixed_steps else 0.0
    seen = job.past + job.seen_further + (work.new_tokens - new) / 2.0
    passes_of = points_of(
        [
            (batch, new + beside, seen, passes),
            (requests / groups * work.beams, 1 + job.drafts, job.middle(requests), job.decode_steps),
        ]
    )
    points = join([passes_of, job.fullest(requests)])
    total = groups * (1.0 + job.decode_steps) if engine.mixed_steps else passes + groups * job.decode_steps
    shared = lockstep(job.joined if work.varied else 1.0, passes, total)
    points = shared.together(points, padded=engine.pads_ranks)
    steps = job.time(points, _verified(points, job, slice(1, 2)))[1]
    return _cycle(job, points, steps, job.account(requests), groups, shared)


def decode_steps_of(job: Job, running: float) -> InferenceTable:
    """The decode steps of one request, beside others whose progress is spread evenly: ``running`` in all, on average.
    The prompt is not part of them: another pool prefilled it.
    """
    work = job.work
    groups = min(job.stages, max(1, int(running)))
    sequences = max(1.0, running) / groups
    step = points_of([(sequences * work.beams, 1 + job.drafts, job.middle(max(1.0, running)), job.decode_steps)])
    points = join([step, job.fullest(ceil(running))])
    steps = job.time(points, _verified(points, job, slice(0, 1)))[1]
    seconds = float(job.token_time(steps, groups)[0] + steps.host[0])
    return InferenceTable(
        points=points,
        steps=steps,
        account=job.account(ceil(running)),
        prefill=np.zeros(2),
        streamed=np.zeros(2),
        decode=points.count,
        running=ceil(running),
        ttft_s=0.0,
        decode_s=job.decode_steps * (seconds + job.drafting(steps, 1, sequences)),
        gaps=work.output_tokens - 1,
    )


def _cycle(  # noqa: PLR0917
    job: Job, points: Points, steps: ForwardSteps, account: Account, groups: int, shared: Lockstep
) -> InferenceTable:
    """Times of the mean field: prompts, decode and memory are the three points.

    While a prompt is in later stages those of others pass the first: a request sees them less by that lag. One whose
    first token is its last waits for all of them before it.
    """
    engine, requests = job.engine, int(points.batch[2])
    passes, share = float(points.count[0]), (requests - 1.0) / requests
    read = passes / shared.spread
    decoding = float(steps.family("attention")[1] - steps.starts_of_attention[1])
    beside = decoding * share / job.stages if engine.mixed_steps else 0.0
    drafted = job.drafted_prompts(_row(points, 0), requests, steps)
    prompt = float(steps.pace[0] + steps.host[0]) + beside + drafted / read
    step = float(job.token_time(steps, groups)[1] + steps.host[1])
    step += job.drafting(steps, 2, requests / groups)
    # a prompt that is read beside others takes all of their pass
    mine, lag = max(1.0, read / requests), float(steps.traversal[0] - steps.pace[0])
    # in mixed steps others' prompts are read beside its decoding, but it decodes nothing while its own is
    reads = groups + mine - 1.0 if engine.mixed_steps else read
    alone = max(0.0, job.decode_steps * groups + reads - passes) / groups
    others = max(0.0, passes - mine - lag / prompt)
    own, wait = mine * prompt + lag, 0.0
    before = others
    alone = alone if job.work.output_tokens > 1 else 0.0
    if job.work.output_tokens > 1:
        period = own + others * prompt + alone * step
        reading = (others * prompt) / period
        before = min(others, ahead(job, requests, reading))
        if requests > 1:
            mean, come = period / (mine + others + alone), coming(job, requests, groups)
            # a request comes as one before it ends: in a step that decodes, of which those beside prompts are few
            between = 1.0 - reading if engine.mixed_steps else 1.0
            wait = until_read(engine, *come, step=step, mean=mean, decoding=between, most=1.0 + job.decode_steps)
    after = others - before
    return InferenceTable(
        points=points,
        steps=steps,
        account=account,
        prefill=np.array([min(mine, 1.0), 0.0, 0.0]),
        streamed=np.array([max(mine - 1.0, 0.0) + before, 0.0, 0.0]),
        decode=np.array([0.0, alone, 0.0]),
        crossing=np.array([after, 0.0, 0.0]),
        running=requests,
        ttft_s=own + before * prompt + wait + job.ingress,
        unread_s=wait,
        decode_s=after * prompt + alone * step,
        gaps=job.work.output_tokens - 1,
    )


def _row(points: Points, at: int) -> Points:
    """One of the passes as a table of its own."""
    return points[at : at + 1]
