"""What an engine admits: requests that its cache holds and its token budget feeds, prompts that come and wait."""

from __future__ import annotations

from math import ceil, floor
from typing import TYPE_CHECKING

import numpy as np

from rapid_llm.memory import CATEGORIES, cache_room
from rapid_llm.predict.arrivals import by_chance
from rapid_llm.predict.replica import Job

if TYPE_CHECKING:
    from rapid_llm.predict.inference import InferenceTable

KV_CACHE = CATEGORIES.index("kv_cache")


def room(table: InferenceTable, requests: int, job: Job, *, output: float) -> int:
    """Requests of one replica whose prompts and a share of their ``output`` fit beside weights and workspace. The cache
    takes what the engine's memory budget leaves; the fullest stage decides. ``table`` accounts for ``requests`` of them
    at the length of its last point.
    """
    free, cache = cache_room(table.account)[-1], table.account.by_category[KV_CACHE, -1]
    held = job.held(output) / (table.points.past[-1] + table.points.new[-1])
    if job.source:  # keys and values of the encoder do not grow with the output
        cache, held = job.account(requests, output).by_category[KV_CACHE, -1], 1.0
    with np.errstate(divide="ignore"):
        fit = np.where(cache > 0, free / (cache / requests * held), np.inf).min()
    return max(0, int(min(fit, job.max_requests)))


def fed(job: Job) -> int:
    """Requests that the token budget keeps busy. In mixed steps every token takes part of it: budget O / (S + O) a
    stage, the last request in part. Where prompts have passes of their own, they fill these.
    """
    work, engine = job.work, job.engine
    if not job.model.writes:
        return max(1, min(job.max_requests, job.stages * int(job.budget // job.read_tokens)))
    if not engine.mixed_steps:
        return job.max_requests
    each = (1.0 + job.drafts) * work.beams
    tokens = job.read_tokens + 1.0 + job.decode_steps * each
    kept = job.budget * (1.0 + job.decode_steps) / tokens
    if not engine.chunks_prompts:
        whole = np.arange(1.0, max(1.0, job.budget // job.read_tokens) + 1.0)
        rest = np.maximum(1.0, (job.budget - whole * job.read_tokens) / each)
        kept = float(np.minimum(rest, whole * (1.0 + job.decode_steps)).max())
    return max(1, min(job.max_requests, ceil(job.stages * kept)))


def coming(job: Job, requests: int, groups: int) -> tuple[float, float]:
    """Prompts that arrive in one step, and how many of them fill the share of the token budget that the engine waits
    for: at most all requests, since then none is left to decode.
    """
    engine = job.engine
    filled = (engine.batch_wait_share * job.budget - (requests - 1.0) / groups) / job.read_tokens
    return requests / (groups * (1.0 + job.decode_steps)), min(filled, requests / groups)


def ahead(job: Job, requests: int, reading: float) -> float:
    """Passes with other requests' prompts that a prompt waits for, where such passes take a given share of the time; at
    most half of them are ahead of it.
    """
    whole = job.budget / job.read_tokens
    together, each = max(1.0, floor(whole)), max(1.0, 1.0 / whole)
    return each * min(by_chance(reading, reading / together), (requests - 1.0) / together / 2.0)
