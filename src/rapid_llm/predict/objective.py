"""How many requests keep a latency objective, and how few accelerators serve a number of users within it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import ceil

from rapid_llm.errors import InputError
from rapid_llm.nouns import replaced
from rapid_llm.predict.engine import evaluate
from rapid_llm.predict.inference import InferenceTable
from rapid_llm.scenario import Scenario, check
from rapid_llm.workload import Inference

TENSOR_DEGREES = (1, 2, 4, 8, 16, 32, 64)


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """The most requests in flight that keep an objective, all replicas together, and their times.

    requests is 0 where not even one per replica keeps it; the times are then of one. binds: what the next request
    breaks: ttft, tpot, or memory. scenario: with that batch, requests replaced as they finish.
    """

    scenario: Scenario
    requests: int
    ttft_s: float
    tpot_s: float
    output_tokens_per_s: float
    binds: str

    @property
    def accelerators(self) -> int:
        """Accelerators of the job."""
        return int(self.scenario.accelerators)


def largest_batch(scenario: Scenario, ttft_s: float | None = None, tpot_s: float | None = None) -> Capacity:
    """The most requests in flight under continuous batching with TTFT and TPOT within the limits (s).

    A closed loop by mean field: requests are replaced as they finish, so decode steps carry the prompts of others.
    InputError for a training scenario.
    """
    replicas = scenario.parallelism.dp or 1

    def at(requests: int) -> InferenceTable:
        table = evaluate(_with_requests(scenario, requests * replicas))
        assert isinstance(table, InferenceTable)
        return table

    def broken(table: InferenceTable) -> str:
        if table.rounds > 1:
            return "memory"
        if ttft_s is not None and table.ttft_s > ttft_s:
            return "ttft"
        return "tpot" if tpot_s is not None and table.tpot_s > tpot_s else ""

    most = _last_good(lambda requests: not broken(at(requests)), 1)
    table, beyond = at(max(1, most)), at(most + 1)
    chosen = _with_requests(scenario, max(1, most) * replicas)
    work = chosen.workload
    assert isinstance(work, Inference)
    return Capacity(
        scenario=chosen,
        requests=most * replicas,
        ttft_s=table.ttft_s,
        tpot_s=table.tpot_s,
        output_tokens_per_s=max(1, most) * replicas * work.output_tokens / table.e2e_s,
        binds=broken(beyond),
    )


def fewest_accelerators(
    scenario: Scenario, users: int, ttft_s: float | None = None, tpot_s: float | None = None
) -> Capacity | None:
    """The plan with the fewest accelerators that keeps ``users`` requests in flight within the limits, or None.

    Tensor parallelism 1 to 64 as the model's heads and the system allow, replicas beside each other; pipeline and
    expert degrees as given. Of equal numbers the lower TPOT wins.
    """
    found: list[Capacity] = []
    for tp in TENSOR_DEGREES:
        plan = replaced(scenario.parallelism, tp=tp, dp=1, dp_shard=1, etp=1 if scenario.parallelism.ep > 1 else tp)
        one = replaced(scenario, parallelism=plan, accelerators=tp * plan.pp * plan.cp)
        if _contradicts(_with_requests(one, 1)):
            continue
        capacity = largest_batch(one, ttft_s, tpot_s)
        if not capacity.requests:
            continue
        replicas = ceil(users / capacity.requests)
        wide = replaced(plan, dp=replicas, dp_shard=replicas)
        many = replaced(one, parallelism=wide, accelerators=one.accelerators * replicas)
        if many.accelerators <= scenario.system.accelerators and not _contradicts(_with_requests(many, users)):
            found.append(largest_batch(many, ttft_s, tpot_s))
    return min(found, key=lambda c: (c.accelerators, c.tpot_s), default=None)


def _contradicts(scenario: Scenario) -> bool:
    return any(finding.message and finding.severity == "error" for finding in check(scenario))


def _with_requests(scenario: Scenario, requests: int) -> Scenario:
    work = scenario.workload
    if not isinstance(work, Inference):
        raise InputError(f"workload.kind must be inference for a latency objective (got {work.kind}).")
    if scenario.pools is not None:
        raise InputError(
            "a latency objective is answered for one pool. Try each pool as a scenario, or a batch_size on both.",
            field="pools",
        )
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
