"""The time of a vision tower before the prompts that its images are part of."""

from __future__ import annotations

from dataclasses import replace
from math import ceil, gcd
from typing import TYPE_CHECKING

from rapid_llm.model.tower import encoder
from rapid_llm.nouns import replaced
from rapid_llm.parallelism import Parallelism, Plans
from rapid_llm.workload import HostShare, points_of

if TYPE_CHECKING:
    from rapid_llm.predict.replica import Job


def encoding(job: Job, requests: int) -> float:
    """Seconds in which a replica encodes the images of ``requests`` prompts, as many at a time as the token budget
    takes. Each image is a sequence of patches, in the 16-bit format of activations; tensor parallelism cuts heads as
    far as their number allows.
    """
    images, tower = job.work.images, job.model.vision
    assert images is not None
    assert tower is not None
    patches = tower.sequence(images.width, images.height)
    together = max(1, min(images.count * requests, job.engine.max_batched_tokens // patches))
    points = points_of([(together, patches, 0, ceil(images.count * requests / together))])
    steps = _encoder(job).time(points)[1]
    return float(points.count @ steps.traversal)


def _encoder(job: Job) -> Job:
    tower = job.model.vision
    assert tower is not None
    tp = gcd(int(job.plans.tp[0]), tower.num_attention_heads)
    plans = Plans.of(Parallelism(tp=tp, etp=tp, dp=1), micro_batch=1, micro_batches=1, order=job.plans.order)
    form = job.precision.activations
    formats = replaced(job.precision, compute=form, weights=form, kv_cache=form, experts=None, head=None)
    work = replaced(job.work, speculation=None, offload=HostShare(), images=None)
    return replace(job, model=encoder(tower), precision=formats, plans=plans, work=work, draft=None, slow={})
