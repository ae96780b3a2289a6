"""How many requests keep a latency objective, and how few accelerators serve a number of users within it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import ceil, lcm

from rapid_llm.errors import InputError
from rapid_llm.model import MoE
from rapid_llm.nouns import replaced
from rapid_llm.parallelism import Parallelism
from rapid_llm.predict.engine import evaluate
from rapid_llm.predict.inference import InferenceTable
from rapid_llm.predict.pools import BUSY, PoolsTable
from rapid_llm.scenario import Pool, Scenario, check, replanned
from rapid_llm.scenario.scenario import POOLED
from rapid_llm.workload import Inference

DEGREES = (1, 2, 4, 8, 16, 32, 64)
ALL_BUT = 1.0 - 1e-6
"""Of the rate of a decode pool whose cache is full, what counts as full."""
PLENTY = 16
"""Prefill replicas beside a decode replica that never wait, and the most that are tried for each."""
_SIZE, _REPLICAS = " accelerators: ", " parallelism.dp: "
"""Defaults that an answer of so many replicas replaces, in the words of a scenario."""
TRIED = 3
"""Numbers of decode replicas that are tried from the least on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """The most requests in flight that keep an objective, over all replicas, and their times. requests is 0 where not
    even one per replica keeps it; the times are then those of one. binds: what one more request would break: ttft,
    tpot, memory, or prefill where its pool is as busy as it may be. scenario: with that batch, requests replaced as
    they finish.
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
    """What leaves no room for more requests, so that further ones would only wait, or for any at all; empty where there
    is room.
    """
    if isinstance(table, InferenceTable):
        return "memory" if table.rounds > 1 or not table.account.fits[-1] else ""
    held = bool(table.decode.account.fits[-1]) and table.rate < ALL_BUT * table.decode_rate
    return "" if held and table.rate <= BUSY * table.prefill_rate else "prefill" if held else "memory"


def _late(table: InferenceTable | PoolsTable, ttft_s: float | None, tpot_s: float | None) -> str:
    """Which latency limit (s) a table breaks; empty where it keeps both."""
    if ttft_s is not None and table.ttft_s > ttft_s:
        return "ttft"
    return "tpot" if tpot_s is not None and table.tpot_s > tpot_s else ""


def fewest_accelerators(
    scenario: Scenario, users: int, ttft_s: float | None = None, tpot_s: float | None = None
) -> Capacity | None:
    """The plan with the fewest accelerators that keeps ``users`` requests in flight within the limits, or None.

    Tried are tensor parallelism of 1 to 64, as the model's heads and the system allow, with independent replicas, or
    with replicas that share experts where expert parallelism spans them. The pipeline degree stays as given, and the
    expert degree too unless it is left open. Pools keep their degrees and take as many replicas each as they need. Of
    plans with equally many accelerators the one with the lower TPOT wins.
    """
    if scenario.pools is not None:
        return _fewest_of_pools(scenario, users, ttft_s, tpot_s)
    found: list[Capacity] = []
    for one, capacity in _replicas(scenario, ttft_s, tpot_s):
        plan = one.parallelism
        many = replanned(one, one.accelerators * ceil(users / capacity.requests), tp=plan.tp, ep=plan.ep)
        if many.accelerators <= scenario.system.accelerators and not _contradicts(_with_requests(many, users)):
            found.append(largest_batch(many, ttft_s, tpot_s))
    return min(found, key=lambda c: (c.accelerators, c.tpot_s), default=None)


def most_users(scenario: Scenario, ttft_s: float | None = None, tpot_s: float | None = None) -> int:
    """Requests in flight within the limits (s) on all of a system without pools, of the best tensor parallelism."""
    has = scenario.system.accelerators
    return max(
        (has // one.accelerators * capacity.requests for one, capacity in _replicas(scenario, ttft_s, tpot_s)),
        default=0,
    )


def _replicas(scenario: Scenario, ttft_s: float | None, tpot_s: float | None) -> Iterator[tuple[Scenario, Capacity]]:
    """Under every valid plan the fewest replicas that run on their own (one, or several that share experts), with the
    requests that they hold; plans that hold none are left out.
    """
    for tp, ep in _plans(scenario):
        size = tp * scenario.parallelism.pp * scenario.parallelism.cp
        alone = replanned(scenario, size, tp=tp, ep=ep)
        together = _together(alone.parallelism)
        one = replanned(scenario, size * together, tp=tp, ep=ep) if together > 1 else alone
        if _contradicts(_with_requests(one, together)):
            continue
        capacity = largest_batch(one, ttft_s, tpot_s)
        if capacity.requests:
            yield one, capacity


def _plans(scenario: Scenario) -> Iterator[tuple[int, int]]:
    """Tensor and expert degrees to try: expert degrees as given; where they are left open, those of the tensor ranks
    too, and experts over replicas of one accelerator each.
    """
    given = scenario.parallelism.ep
    yield from ((tp, given) for tp in DEGREES)
    if given == 1 and any(isinstance(block.ffn, MoE) for block in scenario.model.blocks):
        yield from ((tp, tp) for tp in DEGREES[1:])
        yield from ((1, ep) for ep in DEGREES[1:])


def _together(plan: Parallelism) -> int:
    """Data-parallel replicas that share one set of experts: as many as expert parallelism spans, 1 where it ends within
    one.
    """
    ranks = plan.tp * plan.cp
    return lcm(ranks, (plan.etp or 1) * plan.ep) // ranks


def _fewest_of_pools(scenario: Scenario, users: int, ttft_s: float | None, tpot_s: float | None) -> Capacity | None:
    """Replicas of both pools by rate matching: decode replicas that hold the users, prefill replicas that keep up with
    them. One decode replica with more prefill than it needs shows how many users it holds within the limits, and their
    rate; a few larger numbers of decode replicas are tried, since requests in transit are in neither pool.
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
        most = _most_prefill(scenario, decode, found[-1].accelerators if found else None)
        prefill = _fewest_prefill(scenario, users, decode, most, (ttft_s, tpot_s))
        if prefill:
            found.append(largest_batch(_with_replicas(scenario, prefill, decode), ttft_s, tpot_s))
    return min(found, key=lambda c: (c.accelerators, c.tpot_s), default=None)


def _most_prefill(scenario: Scenario, decode: int, below: int | None) -> int:
    """Prefill replicas worth trying beside a number of decode replicas: those that there is room for, with fewer
    accelerators in all than the best plan so far.
    """
    pools = _with_replicas(scenario, 1, decode).pools
    assert pools is not None
    if pools.decode.accelerators > pools.decode.system.accelerators:
        return 0
    room = pools.prefill.system.accelerators
    room = room if below is None else min(room, below - 1 - pools.decode.accelerators)
    return min(PLENTY * decode, room // pools.prefill.accelerators)


def _fewest_prefill(
    scenario: Scenario, users: int, decode: int, most: int, limits: tuple[float | None, float | None]
) -> int:
    """The fewest prefill replicas, of up to ``most``, that keep the limits beside a number of decode replicas; 0 where
    none do. Too few keep prompts waiting: the fewest that keep up with the decode pool are found by bisection. More of
    them only send it more at once, so that a decode pool that is too slow or full with these stays so.
    """
    assert scenario.pools is not None
    ttft_s, tpot_s = limits
    period = scenario.pools.prefill.system.groups[0].node.accelerators  # in which numbers come that fill nodes

    def given(prefill: int) -> Scenario:
        return _with_requests(_with_replicas(scenario, prefill, decode), users)

    def table(prefill: int) -> PoolsTable:
        found = _evaluated(given(prefill))
        assert isinstance(found, PoolsTable)
        return found

    def whole(prefill: int, end: int) -> int:
        """The next number of replicas, below an end, of which no check says anything; the end where there is none."""
        tried = range(prefill, min(prefill + period, end))
        return next((n for n in tried if not _contradicts(given(n))), end)

    few, enough, end = 0, 0, most + 1
    while end - few > 1:
        middle = (few + end) // 2
        at = whole(middle, end)
        if at == end:
            end = middle
        elif _feeds(table(at), ttft_s):
            enough, end = at, middle
        else:
            few = at
    if not enough:
        return 0
    found = table(enough)
    return enough if not _full(found) and not _late(found, ttft_s, tpot_s) else 0


def _feeds(table: PoolsTable, ttft_s: float | None) -> bool:
    """Whether the prefill pool is no busier than it may be, and first tokens come in time."""
    return table.rate <= BUSY * table.prefill_rate and (ttft_s is None or table.ttft_s <= ttft_s)


def _with_replicas(scenario: Scenario, prefill: int, decode: int) -> Scenario:
    """The scenario with a number of replicas of each pool; those that share experts count as one."""
    pools = scenario.pools
    assert pools is not None

    def pool(one: Pool, number: int) -> Pool:
        replicas = number * _together(one.parallelism)
        plan = replaced(one.parallelism, dp=replicas, dp_shard=replicas)
        return replaced(one, parallelism=plan, accelerators=plan.tp * plan.pp * plan.cp * replicas)

    first, last = pool(pools.prefill, prefill), pool(pools.decode, decode)
    own = {name: getattr(last, name) for name in POOLED}
    kept = tuple(one for one in scenario.defaults if _SIZE not in f" {one}" and _REPLICAS not in f" {one}")
    return replaced(scenario, pools=replaced(pools, prefill=first, decode=last), defaults=kept, **own)


def _contradicts(scenario: Scenario) -> bool:
    return any(finding.message and finding.severity == "error" for finding in check(scenario))


def _with_requests(scenario: Scenario, requests: int) -> Scenario:
    work = scenario.workload
    if not isinstance(work, Inference):
        raise InputError(f"workload.kind must be inference for a latency objective (got {work.kind}).")
    return replaced(scenario, workload=replaced(work, batch_size=requests, batching="continuous", total_requests=None))


def _last_good(good: Callable[[int], bool], start: int) -> int:
    """The largest whole number from ``start`` for which ``good`` holds, if it fails from some number on; 0 if it never
    holds.
    """
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
