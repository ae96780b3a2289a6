"""How many requests keep a latency objective, and how few accelerators serve a number of users within it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import ceil

from rapid_llm.errors import InputError
from rapid_llm.nouns import replaced
from rapid_llm.predict.engine import evaluate
from rapid_llm.predict.inference import InferenceTable
from rapid_llm.predict.pools import BUSY, PoolsTable
from rapid_llm.scenario import Pool, Scenario, check, replanned
from rapid_llm.scenario.scenario import POOLED
from rapid_llm.workload import Inference

TENSOR_DEGREES = (1, 2, 4, 8, 16, 32, 64)
ALL_BUT = 1.0 - 1e-6
"""Of the rate of a decode pool whose cache is full, what counts as full."""
PLENTY = 16
"""Prefill replicas beside a decode replica that never wait, and the most that are tried for each."""
TRIED = 3
"""Numbers of decode replicas that are tried from the least on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """The most requests in flight that keep an objective, all replicas together, and their times.

    requests is 0 where not even one per replica keeps it; the times are then of one. binds: what the next request
    breaks: ttft, tpot, memory, or prefill where its pool is as busy as it may be. scenario: with that batch, requests
    replaced as they finish.
    """

    scenario: Scenario
    requests: int
    ttft_s: float
    tpot_s: float
    requests_per_s: float
    output_tokens_per_s: float
    binds: str

    @property
    def accelerators(self) -> int:
        """Accelerators of the job, of all its pools."""
        pools = self.scenario.pools
        return pools.accelerators if pools else int(self.scenario.accelerators)


def largest_batch(scenario: Scenario, ttft_s: float | None = None, tpot_s: float | None = None) -> Capacity:
    """The most requests in flight under continuous batching with TTFT and TPOT within the limits (s).

    A closed loop by mean field: requests are replaced as they finish, so decode steps carry the prompts of others.
    InputError for a training scenario.
    """
    replicas = scenario.parallelism.dp or 1

    def at(requests: int) -> InferenceTable | PoolsTable:
        return _evaluated(_with_requests(scenario, requests * replicas))

    def broken(table: InferenceTable | PoolsTable) -> str:
        return _full(table) or _late(table, ttft_s, tpot_s)

    most = _last_good(lambda requests: not broken(at(requests)), 1)
    table, beyond = at(max(1, most)), at(most + 1)
    chosen = _with_requests(scenario, max(1, most) * replicas)
    work = chosen.workload
    assert isinstance(work, Inference)
    rate = max(1, most) * replicas / table.e2e_s
    return Capacity(
        scenario=chosen,
        requests=most * replicas,
        ttft_s=table.ttft_s,
        tpot_s=table.tpot_s,
        requests_per_s=rate,
        output_tokens_per_s=rate * work.output_tokens,
        binds=broken(beyond),
    )


def _evaluated(scenario: Scenario) -> InferenceTable | PoolsTable:
    table = evaluate(scenario)
    assert isinstance(table, (InferenceTable, PoolsTable))
    return table


def _full(table: InferenceTable | PoolsTable) -> str:
    """What has no room for more requests, so that further ones would only wait; empty where all has."""
    if isinstance(table, InferenceTable):
        return "memory" if table.rounds > 1 else ""
    held = bool(table.decode.account.fits[-1]) and table.rate < ALL_BUT * table.decode_rate
    return "" if held and table.rate <= BUSY * table.prefill_rate else "prefill" if held else "memory"


def _late(table: InferenceTable | PoolsTable, ttft_s: float | None, tpot_s: float | None) -> str:
    """Which limit (s) a table breaks; empty where it keeps both."""
    if ttft_s is not None and table.ttft_s > ttft_s:
        return "ttft"
    return "tpot" if tpot_s is not None and table.tpot_s > tpot_s else ""


def fewest_accelerators(
    scenario: Scenario, users: int, ttft_s: float | None = None, tpot_s: float | None = None
) -> Capacity | None:
    """The plan with the fewest accelerators that keeps ``users`` requests in flight within the limits, or None.

    Tensor parallelism 1 to 64 as the model's heads and the system allow, replicas beside each other; pipeline and
    expert degrees as given. Pools keep their degrees, and take as many replicas each as they need. Of equal numbers the
    lower TPOT wins.
    """
    if scenario.pools is not None:
        return _fewest_of_pools(scenario, users, ttft_s, tpot_s)
    found: list[Capacity] = []
    for tp in TENSOR_DEGREES:
        one = replanned(scenario, tp * scenario.parallelism.pp * scenario.parallelism.cp, tp=tp)
        if _contradicts(_with_requests(one, 1)):
            continue
        capacity = largest_batch(one, ttft_s, tpot_s)
        if not capacity.requests:
            continue
        many = replanned(one, one.accelerators * ceil(users / capacity.requests), tp=tp)
        if many.accelerators <= scenario.system.accelerators and not _contradicts(_with_requests(many, users)):
            found.append(largest_batch(many, ttft_s, tpot_s))
    return min(found, key=lambda c: (c.accelerators, c.tpot_s), default=None)


def _fewest_of_pools(scenario: Scenario, users: int, ttft_s: float | None, tpot_s: float | None) -> Capacity | None:
    """Replicas of both pools by rate matching: decode replicas that hold the users, prefill replicas that feed them.

    One decode replica with more prefill than it needs says how many users it holds within the limits, and their rate; a
    few further numbers of decode replicas are tried, since requests under way are in neither.
    """
    pools = scenario.pools
    assert pools is not None
    if pools.ffn is not None:
        raise InputError(
            "--users does not size a pool of feed-forward parts. Try --slo alone, with pools.ffn as given.",
            field="pools.ffn",
        )
    alone = largest_batch(_with_replicas(scenario, PLENTY, 1), ttft_s, tpot_s)
    if not alone.requests:
        return None
    found: list[Capacity] = []
    least = max(1, ceil(users / alone.requests))
    for decode in range(least, least + TRIED):
        for prefill in range(1, PLENTY * decode + 1):
            many = _with_replicas(scenario, prefill, decode)
            given = _with_requests(many, users)
            if _too_large(many) or (found and many.pools and many.pools.accelerators >= found[-1].accelerators):
                break
            if _contradicts(given):
                continue
            table = _evaluated(given)
            if not _full(table) and not _late(table, ttft_s, tpot_s):
                found.append(largest_batch(many, ttft_s, tpot_s))
                break
    return min(found, key=lambda c: (c.accelerators, c.tpot_s), default=None)


def _with_replicas(scenario: Scenario, prefill: int, decode: int) -> Scenario:
    """The scenario with so many replicas of each pool."""
    pools = scenario.pools
    assert pools is not None

    def pool(one: Pool, replicas: int) -> Pool:
        plan = replaced(one.parallelism, dp=replicas, dp_shard=replicas)
        return replaced(one, parallelism=plan, accelerators=plan.tp * plan.pp * plan.cp * replicas)

    first, last = pool(pools.prefill, prefill), pool(pools.decode, decode)
    own = {name: getattr(last, name) for name in POOLED}
    return replaced(scenario, pools=replaced(pools, prefill=first, decode=last), **own)


def _too_large(scenario: Scenario) -> bool:
    assert scenario.pools is not None
    return any(pool.accelerators > pool.system.accelerators for pool in scenario.pools.all)


def _contradicts(scenario: Scenario) -> bool:
    return any(finding.message and finding.severity == "error" for finding in check(scenario))


def _with_requests(scenario: Scenario, requests: int) -> Scenario:
    work = scenario.workload
    if not isinstance(work, Inference):
        raise InputError(f"workload.kind must be inference for a latency objective (got {work.kind}).")
    return replaced(scenario, workload=replaced(work, batch_size=requests, batching="continuous", total_requests=None))


def _last_good(good: Callable[[int], bool], start: int) -> int:
    """The largest whole number from ``start`` for which ``good`` holds, if it fails from some number on; 0 if none."""
    if not good(start):
        return 0
    high = start * 2
    while good(high):
        high *= 2
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if good(middle) else (low, middle)
    return low
