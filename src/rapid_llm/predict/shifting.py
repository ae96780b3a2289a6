"""Passes that run with sequence or with tensor parallelism on the same ranks, whichever is faster.

Heads of the cache lie on the ranks as tensor parallelism over tp x cp places them, whether tokens or heads are dealt
out in the projections, so that each pass can choose (Shift Parallelism, Arctic Inference, Snowflake 2025). Dealing out
tokens exchanges less, which suits long prompts; dealing out weights reads less, which suits decode: it always runs so.
Both forms of the weights are held.
"""

from __future__ import annotations

from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from rapid_llm.execution import ForwardSteps, Passes
from rapid_llm.lowering import Lowered
from rapid_llm.parallelism import Plans
from rapid_llm.workload import Points

if TYPE_CHECKING:
    from rapid_llm.predict.replica import Job

Chosen = NDArray[np.bool_]
Table = TypeVar("Table")


def tensor_parallel(plans: Plans) -> Plans:
    """The same ranks with those of context parallelism as further ones of tensor parallelism."""
    one = np.ones_like(plans.cp)
    return replace(plans, tp=plans.tp * plans.cp, cp=one, ulysses=one, shift=False)


def in_both_forms(job: Job, points: Points, verified: NDArray[np.bool_] | None) -> tuple[Lowered, ForwardSteps]:
    """Lower and time forward passes in the faster form each; decode steps in the tensor-parallel one."""
    lowered, dealt = replace(job, plans=replace(job.plans, shift=False)).time(points, verified)
    cut = replace(job, plans=tensor_parallel(job.plans)).time(points, verified)[1]
    decoding = points.decode if verified is None else points.decode | verified
    chosen = decoding | (cut.traversal < dealt.traversal)
    return lowered, _merged(dealt, cut, chosen)


def _merged(dealt: ForwardSteps, cut: ForwardSteps, chosen: Chosen) -> ForwardSteps:
    """The steps of ``cut`` where that form is chosen, else of ``dealt``; each row runs in the passes of its own form
    only.
    """
    priced = replace(
        dealt.priced,
        kernels=tuple(_where(t, ~chosen) for t in dealt.priced.kernels)
        + tuple(_where(t, chosen) for t in cut.priced.kernels),
        messages=tuple(_where(t, ~chosen) for t in dealt.priced.messages)
        + tuple(_where(t, chosen) for t in cut.priced.messages),
    )
    passes = {
        f.name: np.where(chosen, getattr(cut.passes, f.name), getattr(dealt.passes, f.name)) for f in fields(Passes)
    }
    given: dict[str, Any] = {"priced": priced, "passes": Passes(**passes)}
    for name in ("stages", "send", "host", "late", "fetched", "copies", "hosted"):
        first, second = getattr(dealt, name), getattr(cut, name)
        if first is not None:
            given[name] = np.where(chosen if first.ndim == 1 else chosen[:, None], second, first)
    return ForwardSteps(**given)


def _where(table: Any, runs: Chosen) -> Any:
    """A priced table whose rows run in some of the passes only."""
    return replace(table, rows=replace(table.rows, count=table.rows.count * runs))
