"""Prefill and decode on accelerators of their own: rates of both pools, the cache that travels between them, and the
requests that a closed loop keeps in each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import ceil

import numpy as np

from rapid_llm.dtypes import dtype
from rapid_llm.lowering.cache import cache_bytes
from rapid_llm.parallelism import Parallelism, Plans
from rapid_llm.predict.admission import room
from rapid_llm.predict.halves import HalvedSteps, Halves, way
from rapid_llm.predict.inference import InferenceTable, decode_steps_of, static_batch
from rapid_llm.predict.replica import Job, job_of
from rapid_llm.scenario import Scenario, pool_scenario
from rapid_llm.workload import Inference

PASSES_IN_FLIGHT = 2
"""Passes whose prompts a prefill replica holds cache for: the one that runs and the one that leaves."""
HALVINGS = 40
"""Steps of the search for the requests that decode at once."""
BUSY = 0.95
"""Utilisation of the prefill pool at which an engine that chooses its own batch stops: waits grow without bound."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolsTable:
    """A batch evaluated on two pools. prefill: one prompt (continuous) or all prompts of one replica (static); decode:
    the steps of one replica. prefill_rate, decode_rate: requests/s that each pool can run; rate: what the job runs.
    wait_s: until the prefill starts, or until the cache has room; transfer_s: of one request's cache, ``exposed_s`` of
    it before its second token. running: requests that decode on one replica; requests: in flight in the whole job.
    """

    prefill: InferenceTable
    decode: InferenceTable
    halved: HalvedSteps | None = None
    prefill_rate: float
    decode_rate: float
    rate: float
    wait_s: float
    transfer_bytes: float
    transfer_s: float
    exposed_s: float
    running: float
    requests: int

    @property
    def ttft_s(self) -> float:
        """Arrival to first token, which comes from the prefill pool (s)."""
        return self.wait_s + self.prefill.ttft_s

    @property
    def decode_s(self) -> float:
        """First to last token, the transfer of the cache first (s)."""
        return self.exposed_s + self.decode.decode_s

    @property
    def tpot_s(self) -> float:
        """Mean gap between the tokens of a request after its first (s)."""
        return self.decode_s / self.decode.gaps if self.decode.gaps else 0.0

    @property
    def e2e_s(self) -> float:
        """Arrival to last token (s)."""
        return self.ttft_s + self.decode_s


def evaluate_pools(scenario: Scenario) -> PoolsTable:
    """Evaluate a scenario with pools. InputError where nothing joins them."""
    first, last = (job_of(pool_scenario(scenario, phase)) for phase in ("prefill", "decode"))
    first = replace(first, work=replace(first.work, output_tokens=1, speculation=None), draft=None)
    size, seconds = _transfer(scenario, last)
    both = _Both(scenario, first, last, size, seconds, Halves.of(scenario, last))
    return both.static() if both.together_to_the_end else both.loop()


@dataclass(frozen=True, slots=True)
class _Both:
    scenario: Scenario
    prefill: Job
    decode: Job
    transfer_bytes: float
    transfer_s: float
    halves: Halves | None

    def steps(self, running: float) -> InferenceTable:
        """The decode steps of one request among so many on a replica."""
        return decode_steps_of(self.decode, running) if self.halves is None else self.halves.steps(running).table

    def batch(self, requests: int) -> InferenceTable:
        """So many requests that decode together on a replica, from their first token to their last."""
        return static_batch(self.decode, requests) if self.halves is None else self.halves.batch(requests).table

    def _halved(self, running: float) -> HalvedSteps | None:
        if self.halves is None:
            return None
        return self.halves.batch(round(running)) if self.together_to_the_end else self.halves.steps(running)

    @property
    def together_to_the_end(self) -> bool:
        """Whether all requests arrive at once; else each is replaced as it finishes."""
        return self.decode.work.batching == "static" and self.decode.work.batch_size != "auto"

    @property
    def replicas(self) -> tuple[int, int]:
        """Replicas of the prefill pool and of the decode pool."""
        pools = self.scenario.pools
        assert pools is not None
        return pools.prefill.parallelism.dp or 1, pools.decode.parallelism.dp or 1

    @property
    def together(self) -> int:
        """Prompts of one prefill pass: what the token budget takes."""
        return max(1, self.prefill.engine.max_batched_tokens // self.prefill.work.new_tokens)

    def prompts(self, count: int) -> InferenceTable:
        """``count`` prompts on one replica, which holds the cache of no more than are in flight."""
        table, held = static_batch(self.prefill, count), min(count, PASSES_IN_FLIGHT * self.together)
        return table if held == count else replace(table, account=static_batch(self.prefill, held).account)

    def exposed(self, each: float) -> float:
        """Seconds of a request's transfer behind its prefill of ``each`` seconds: of all layers, or of the last, and of
        those that a slower link has not taken yet."""
        pools = self.scenario.pools
        assert pools is not None
        if self.decode.work.output_tokens == 1:
            return 0.0
        if pools.transfer == "whole":
            return self.transfer_s
        layer = 1.0 / self.scenario.model.num_hidden_layers
        return max(self.transfer_s * layer, self.transfer_s - each * (1.0 - layer))

    def prefill_rate(self) -> float:
        """Requests/s of the prefill pool with full passes, which a slower link paces."""
        table = self.prompts(self.together)
        spent = (table.prefill + table.streamed) @ (table.steps.pace + table.steps.host)
        return self.replicas[0] / max(float(spent) / self.together, self.transfer_s)

    def most(self) -> int:
        """Requests whose cache one decode replica holds."""
        table = self.steps(1.0)
        return max(1, room(table, 1, self.decode, output=self.decode.steady))

    def static(self) -> PoolsTable:
        """All requests arrive together: the prompts are prefilled, then decoded together."""
        work = self.decode.work
        x, y = self.replicas
        per_prefill, per_decode = ceil(work.requests / x), ceil(work.requests / y)
        prefill, decode = self.prompts(per_prefill), self.batch(per_decode)
        each = prefill.ttft_s / per_prefill
        behind = max(0.0, (per_prefill - 1) * (self.transfer_s - each)) if work.output_tokens > 1 else 0.0
        exposed = self.exposed(each) + behind
        e2e = prefill.ttft_s + exposed + decode.decode_s
        return self._table(prefill, decode, work.requests / e2e, 0.0, exposed, per_decode, work.requests)

    def loop(self) -> PoolsTable:
        """A closed loop by mean field: each request that is done is replaced at once.

        With b requests decoding on each of y replicas the rate is X = y b / D(b); by Little's law X (t + w(X) + s) are
        in prefill and under way, with the wait w = rho t / (2 (1 - rho)) of a queue with constant service. b is where
        both add up to the requests in flight; where the cache holds no more, the rest wait.
        """
        x, y = self.replicas
        alone, limit = self.prompts(1), self.prefill_rate()
        exposed, most = self.exposed(alone.ttft_s), self.most()
        service = x / limit

        def rate(running: float) -> float:
            return y * running / max(self.steps(running).decode_s, 1e-12)

        def wait(rate_: float) -> float:
            used = min(rate_ / limit, 1.0 - 1e-9)
            return service * used / (2.0 * (1.0 - used))

        def in_flight(running: float) -> float:
            found = rate(running)
            return np.inf if found >= limit else y * running + found * (alone.ttft_s + exposed + wait(found))

        work = self.decode.work
        if work.output_tokens == 1:
            return self._first_tokens(alone, limit, wait)
        if work.batch_size == "auto":
            running = _crossing(lambda b: rate(b) - BUSY * limit, most)
            requests = max(1, round(in_flight(running)))
        else:
            requests = work.requests
            running = _crossing(lambda b: in_flight(b) - requests, most)
        decode = self.steps(running)
        found = y * running / max(decode.decode_s, 1e-12)
        waited = max(0.0, requests / found - alone.ttft_s - exposed - decode.decode_s)
        return self._table(alone, decode, found, waited, exposed, running, requests)

    def _first_tokens(self, alone: InferenceTable, limit: float, wait: Callable[[float], float]) -> PoolsTable:
        """The closed loop of requests whose first token is their last: the prefill pool alone."""

        def in_flight(rate: float) -> float:
            return rate * (alone.ttft_s + wait(rate))

        asked = self.decode.work.batch_size
        found = BUSY * limit if asked == "auto" else _crossing(lambda rate: in_flight(rate) - asked, limit)
        requests = max(1, round(in_flight(found))) if asked == "auto" else asked
        waited = max(0.0, requests / found - alone.ttft_s)
        return self._table(alone, self.steps(1.0), found, waited, 0.0, 0.0, requests)

    def _table(  # noqa: PLR0917
        self,
        prefill: InferenceTable,
        decode: InferenceTable,
        rate: float,
        wait: float,
        exposed: float,
        running: float,
        requests: int,
    ) -> PoolsTable:
        most = self.most()
        full = self.steps(float(most)).decode_s
        return PoolsTable(
            prefill=prefill,
            decode=decode,
            halved=self._halved(running),
            prefill_rate=self.prefill_rate(),
            decode_rate=self.replicas[1] * most / full if full else np.inf,
            rate=rate,
            wait_s=wait,
            transfer_bytes=self.transfer_bytes,
            transfer_s=self.transfer_s,
            exposed_s=exposed,
            running=running,
            requests=requests,
        )


def _crossing(excess: Callable[[float], float], most: float) -> float:
    """Requests on a replica at which an increasing function reaches 0, or the most where it does not."""
    if excess(most) <= 0:
        return float(most)
    low, high = 0.0, float(most)
    for _ in range(HALVINGS):
        middle = (low + high) / 2.0
        low, high = (middle, high) if excess(middle) < 0 else (low, middle)
        if high - low < 1e-3 * high:
            break
    return high


def _transfer(scenario: Scenario, decode: Job) -> tuple[float, float]:
    """Bytes of one request's cache, and the seconds in which it gets from one replica to the other. Ranks of the
    prefill replica each send their share of what they computed; ranks of the decode replica receive what they hold,
    with heads and latents repeated as its plan repeats them. The slower side decides.
    """
    pools, work = scenario.pools, scenario.workload
    assert pools is not None
    assert isinstance(work, Inference)
    kv = dtype(pools.decode.precision.kv_cache).bytes
    whole = _cache(scenario, Plans.of(Parallelism(etp=1, dp=1), micro_batch=1, micro_batches=1), kv)
    plan = pools.prefill.parallelism
    sent = whole / (plan.tp * plan.pp * plan.cp)
    received = _cache(scenario, decode.plans, kv)
    there, back = ((pools.prefill, pools.decode), (pools.decode, pools.prefill))
    return whole, max(way(pools, *there, sent), way(pools, *back, received))


def _cache(scenario: Scenario, plans: Plans, kv: float) -> float:
    """Bytes of a prompt's cache on one rank of the stage that holds most."""
    work, model = scenario.workload, scenario.model
    assert isinstance(work, Inference)
    each = cache_bytes(model, plans.tp, np.array([float(work.prompt_tokens)]), kv, kvp=plans.kvp)[
        : len(model.blocks), 0
    ]
    layers = np.bincount(model.pattern, minlength=len(model.blocks))
    return float(each @ layers) / ceil(float(plans.pp[0])) / float(plans.cp[0])
