"""Plans as columns: one array per degree over a leading plan axis [P], and where each process group sits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rapid_llm.nouns import light, replaced
from rapid_llm.parallelism.plan import AXES, FOLDED, SCHEDULES, TWO_WAY, Parallelism

Column = NDArray[np.float64]

RECOMPUTE_MODES = ("none", "selective", "full")


@light
class Plans:
    """P plans as float64 columns [P]; modes are indices into RECOMPUTE_MODES and SCHEDULES.

    ``micro_batch`` is sequences per micro-batch (training) or requests per replica (inference), ``micro_batches`` how
    many of them one step runs; ``gathers``: keys and values over cp, in place of a ring (0 or 1); ``kvp`` of the tp
    ranks share the tokens of a cache (Helix, whose cp ranks are among those of tp here). ``order`` is the placement,
    innermost axis first, ``stage_layers`` the layers of each stage where a user deals them, ``shift`` whether passes
    switch cp ranks to tp; all are the same for all plans.
    """

    tp: Column
    pp: Column
    vpp: Column
    cp: Column
    dp: Column
    ep: Column
    etp: Column
    sp: Column
    zero_stage: Column
    dp_shard: Column
    micro_batch: Column
    micro_batches: Column
    recompute: Column
    recompute_every: Column
    schedule: Column
    ulysses: Column
    gathers: Column
    kvp: Column
    order: tuple[str, ...] = AXES
    stage_layers: tuple[int, ...] = ()
    shift: bool = False

    @classmethod
    @lru_cache(maxsize=1024)
    def of(
        cls,
        plan: Parallelism,
        *,
        micro_batch: float,
        micro_batches: float,
        recompute: str = "none",
        recompute_every: int = 1,
        order: tuple[str, ...] = AXES,
    ) -> Plans:
        """One resolved plan as read-only columns of length one; the same object for the same plan."""
        values: dict[str, float] = {
            "tp": plan.tp * plan.kvp,
            "pp": plan.pp,
            "vpp": plan.vpp,
            "cp": plan.cp / plan.kvp,
            "dp": plan.dp or 1,
            "ep": plan.ep,
            "etp": plan.etp or 1,
            "sp": float(bool(plan.sp)),
            "zero_stage": plan.zero_stage or 0,
            "dp_shard": plan.dp_shard or plan.dp or 1,
            "micro_batch": micro_batch,
            "micro_batches": micro_batches,
            "recompute": RECOMPUTE_MODES.index(recompute),
            "recompute_every": recompute_every,
            "schedule": SCHEDULES.index(plan.schedule or "1f1b"),
            "ulysses": plan.ulysses,
            "gathers": float(plan.exchange == "all-gather"),
            "kvp": plan.kvp,
        }
        columns = np.array(list(values.values()), dtype=np.float64)[:, None]
        columns.flags.writeable = False
        given: dict[str, Any] = dict(zip(values, columns, strict=True))
        return cls(**given, order=order, stage_layers=plan.layers_per_stage, shift=plan.shift)

    @classmethod
    def stack(cls, plans: Sequence[Plans]) -> Plans:
        """Several tables of plans with one placement order as one table."""
        columns: dict[str, Any] = {name: np.concatenate([getattr(p, name) for p in plans]) for name in PLAN_COLUMNS}
        return cls(**columns, order=plans[0].order, stage_layers=plans[0].stage_layers)

    def repeat(self, micro_batch: Column) -> Plans:
        """The one plan of this table for each of so many sequences per micro-batch, else the same."""
        if len(micro_batch) == 1:
            return replaced(self, micro_batch=micro_batch)
        columns = np.array([getattr(self, name) for name in PLAN_COLUMNS]).repeat(len(micro_batch), axis=1)
        given = {**dict(zip(PLAN_COLUMNS, columns, strict=True)), "micro_batch": micro_batch}
        return Plans(**given, order=self.order, stage_layers=self.stage_layers)

    def take(self, rows: NDArray[np.int64]) -> Plans:
        """Some of the plans, in this order."""
        columns: dict[str, Any] = {name: getattr(self, name)[rows] for name in PLAN_COLUMNS}
        return Plans(**columns, order=self.order, stage_layers=self.stage_layers, shift=self.shift)

    @cached_property
    def key(self) -> tuple[object, ...]:
        """A hashable value that differs between different plans, except for their number of micro-batches."""
        columns = (getattr(self, name).tobytes() for name in PLAN_COLUMNS if name != "micro_batches")
        return (self.order, self.stage_layers, self.shift, *columns)

    @cached_property
    def in_numbers(self) -> Plans:
        """The plan of a table of one, in numbers in place of its columns."""
        return replaced(self, **{name: getattr(self, name)[0] for name in PLAN_COLUMNS})

    def __len__(self) -> int:
        return self.tp.size

    @cached_property
    def edp(self) -> Column:
        """Replicas of one expert: what is left of tp x cp x dp after the expert axes, times copies."""
        return self.tp * self.cp * self.dp * self.copies / (self.etp * self.ep)

    @cached_property
    def tpa(self) -> Column:
        """Ranks over which decode steps cut the heads of attention: tp / kvp."""
        return self.tp / self.kvp

    @cached_property
    def data(self) -> Column:
        """Ranks that hold the same dense weights: dp x cp, times copies."""
        return self.dp * self.cp * self.copies

    @cached_property
    def shard(self) -> Column:
        """Ranks over which ZeRO shards dense states: dp_shard x cp, times copies."""
        return self.dp_shard * self.cp * self.copies

    @cached_property
    def replicas(self) -> Column:
        """Copies of the sharded states (HSDP): dp / dp_shard."""
        return self.dp / self.dp_shard

    @cached_property
    def ends(self) -> Column:
        """First and last stage, which share tied embeddings: 2 ranks, or 1 where a stage is both."""
        return np.where((self.pp > 1) & ~self.folded & ~self.two_way, 2.0, 1.0)

    @cached_property
    def folded(self) -> NDArray[np.bool_]:
        """Whether the parts of the model run down the stages and back up."""
        return _IS_FOLDED[self.schedule.astype(np.int64)]

    @cached_property
    def two_way(self) -> NDArray[np.bool_]:
        """Whether micro-batches enter at both ends of the pipeline."""
        return _IS_TWO_WAY[self.schedule.astype(np.int64)]

    @cached_property
    def copies(self) -> Column:
        """Copies of a part of the model in one pipeline."""
        found: Column = _COPIES[self.schedule.astype(np.int64)]
        return found

    @cached_property
    def parts(self) -> Column:
        """Parts of the model that stand one behind the other, where a stage holds the layers of each in a row."""
        return self.pp * np.where(self.folded, 2.0, 1.0)

    @cached_property
    def chunks(self) -> Column:
        """Chunks of a stage: vpp, or the two of a schedule that brings its own."""
        return np.where(self.folded | self.two_way, 2.0, self.vpp)

    @cached_property
    def ranks(self) -> Column:
        """Accelerators of the job."""
        return self.tp * self.cp * self.dp * self.pp

    def group(self, axis: str) -> tuple[Column, Column]:
        """Ranks of a process group of ``axis`` and accelerators between its neighbours [P].

        The cp ranks of one sequence are a grid: ``ulysses`` neighbours exchange heads, those at the same place in each
        such group form the ring that ``cp`` names, or gather over it (``keys``), which nothing hides.
        """
        if axis in ("cp", "keys"):
            return self.cp / self.ulysses, self.stride("cp") * self.ulysses
        return getattr(self, axis), self.stride("cp" if axis == "ulysses" else axis)

    def stride(self, axis: str) -> Column:
        """Accelerators between neighbours of a process group of ``axis`` in placement order [P].

        Dense axes are tp, cp, dp, pp; the expert grid etp, ep, edp, pp re-divides the same ranks (Megatron-Core
        "parallel folding"), so ep never moves a dense group. data and shard start at the inner of cp and dp.
        """
        if axis in ("data", "shard"):
            return self.stride(next(inner for inner in self.order if inner in ("cp", "dp")))
        if axis == "replicas":
            return self.stride("dp") * self.dp_shard
        if axis == "ends":
            return self.stride("pp") * np.maximum(self.pp - 1.0, 1.0)
        if axis == "kvp":
            innermost = self.order.index("cp") < self.order.index("tp")
            return self.stride("tp") * (1.0 if innermost else self.tpa)
        expert = axis in ("etp", "ep", "edp")
        sizes = (
            {"tp": self.etp, "ep": self.ep, "dp": self.edp / self.copies, "pp": self.pp}
            if expert
            else {"tp": self.tp, "cp": self.cp, "dp": self.dp, "pp": self.pp}
        )
        position = {"etp": "tp", "edp": "dp"}.get(axis, axis)
        stride = self.tp / self.tp
        for inner in self.order:
            if inner == position:
                return stride
            if inner in sizes:
                stride = stride * sizes[inner]
        return stride


PLAN_COLUMNS = tuple(f.name for f in fields(Plans) if f.name not in ("order", "stage_layers", "shift"))
"""The fields of Plans that are columns."""
_IS_FOLDED, _IS_TWO_WAY = (np.array([name in names for name in SCHEDULES]) for names in (FOLDED, TWO_WAY))
_COPIES = np.where(_IS_TWO_WAY, 2.0, 1.0)
