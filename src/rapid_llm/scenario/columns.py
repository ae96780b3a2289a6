"""What the checks look at: numbers of a scenario as columns with a leading plan axis."""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from rapid_llm.dtypes import Precision, dtype
from rapid_llm.hardware import System, part_of
from rapid_llm.parallelism import FOLDED, TWO_WAY, Parallelism
from rapid_llm.runtime import EXCHANGES, Runtime, runs_on
from rapid_llm.scenario.model_columns import model_columns
from rapid_llm.scenario.quoted import kept_formats, names_of, why_misplaced, without_rate
from rapid_llm.scenario.scenario import Scenario
from rapid_llm.scenario.seating import apart, reached_groups, unseated
from rapid_llm.scenario.work_columns import work_columns


class Columns:
    """The columns that checks look at. ``values``: a number for what all plans share, else an array [P]; each is an
    attribute as well. ``scenario``: what sentences quote.
    """

    def __init__(self, values: Mapping[str, Any], scenario: Scenario) -> None:
        """Columns by name, of a scenario."""
        self.__dict__.update(values)
        self.values, self.scenario = values, scenario

    def __getattr__(self, name: str) -> Any:
        """No column of that name."""
        raise AttributeError(name)

    def __len__(self) -> int:
        return max((len(value) for value in self.values.values() if isinstance(value, np.ndarray)), default=1)

    def row(self, index: int) -> dict[str, Any]:
        """One plan as whole numbers and names."""
        numbers = {
            name: int(value[index] if isinstance(value, np.ndarray) else value) for name, value in self.values.items()
        }
        return {**numbers, **names_of(self.scenario)}


def columns(scenario: Scenario, plans: Mapping[str, Any] | None = None) -> Columns:
    """Columns of a scenario; ``plans`` puts arrays [P] in place of degrees, batch sizes or counts. Names are explained
    where their column is made: of the model, the system, the plan, the work, the places.
    """
    runtime, plan = scenario.runtime, scenario.parallelism
    seated = bool(scenario.placement.stages)
    system = _system(scenario.system, scenario.accelerators, seated, runtime, scenario.precision)
    own = {
        **model_columns(scenario.model),
        **system,
        **_plan(plan, runtime),
        **work_columns(scenario),
        **_places(scenario),
    }
    given = {name: np.asarray(value, dtype=np.float64) for name, value in (plans or {}).items()}
    return Columns(values={**own, **given}, scenario=scenario)


@lru_cache(maxsize=256)
def _system(system: System, accelerators: int, seated: bool, runtime: Runtime, precision: Precision) -> dict[str, int]:
    """Numbers of the node groups that a job reaches; ``before``: accelerators of the groups that it fills before its
    last one; ``weight_only``: whether a format cannot be trained; ``packed``: whether it is that of all weights.
    """
    groups = reached_groups(system, accelerators, seated)
    nodes, last = [group.node for group in groups], groups[-1]
    chips = [node.accelerator for node in nodes]
    return {
        "accelerators": accelerators,
        "system_accelerators": system.accelerators,
        "node_size": last.node.accelerators,
        "groups": len(system.groups),
        "before": 0 if seated else sum(group.accelerators for group in groups[:-1]),
        "mixed": len(groups) > 1 and part_of(system, accelerators).mixed,
        "vendors": len({chip.vendor for chip in chips}),
        "has_rate": not without_rate(groups, precision)[0],
        "has_platform": all(runs_on(runtime, chip.vendor, chip.architecture) for chip in chips),
        "has_drives": all(node.nvme is not None for node in nodes),
        "unified": any(chip.memory.unified for chip in chips),
        "runs_host_experts": runtime.host_experts is not None,
        "weight_only": any(dtype(kept).weight_only for kept in kept_formats(precision)),
        "packed": dtype(precision.weights).weight_only,
    }


@lru_cache(maxsize=1024)
def _plan(plan: Parallelism, runtime: Runtime) -> dict[str, int]:
    """Degrees, layers dealt by hand, and the schedule: ``looped`` has vpp chunks a stage, ``folded`` runs in a V,
    ``fewest`` micro-batches; ``exchange`` is its place in EXCHANGES."""
    names = ("tp", "pp", "cp", "dp", "ep", "etp", "vpp", "sp", "zero_stage", "dp_shard", "ulysses")
    dealt = plan.layers_per_stage
    return {
        "dealt_stages": len(dealt),
        "dealt_layers": sum(dealt),
        "idle_stages": sum(layers == 0 for layers in dealt[1:-1]),
        **{name: int(getattr(plan, name) or 0) for name in names},
        "shifts": plan.shift,
        "helix": plan.helix,
        "scheduled": plan.schedule is not None,
        "interleaved": plan.schedule == "interleaved",
        "exchange": EXCHANGES.index(plan.exchange or "ring"),
        **_framework(plan, runtime),
        "looped": plan.schedule in ("interleaved", "breadth-first"),
        "folded": plan.schedule in FOLDED,
        "two_way": plan.schedule in TWO_WAY,
        "fewest": int(_FEWEST.get(plan.schedule or "", 0) * plan.pp),
    }


def _bits(ways: Sequence[str]) -> int:
    return sum(1 << EXCHANGES.index(way) for way in ways)


def _framework(plan: Parallelism, runtime: Runtime) -> dict[str, int]:
    """What the framework of a training job refuses; a serving engine refuses none of it. ``zero_stages`` and
    ``exchanges`` have a bit for each that it runs.
    """
    facts = runtime.training
    if facts is None:
        return _OPEN
    return {
        "pipeline_zero_stage": facts.pipeline_zero_stage,
        "experts_zero_stage": facts.experts_zero_stage,
        "zero_stages": sum(1 << stage for stage in facts.zero_stages),
        "exchanges": _bits(facts.exchange),
        "window_exchanges": _bits(facts.window_exchange),
        "latent_exchanges": _bits(facts.latent_exchange),
        "runs_schedule": not facts.schedules or (plan.schedule or "1f1b") in facts.schedules,
        "lacks": any(getattr(plan, axis) > 1 for axis in facts.without),
        "experts_need_sp": facts.experts_need_sp,
        "repeats_kv_heads": facts.repeats_kv_heads,
        "offloads": facts.offloads,
        "offload_zero_stage": facts.offload_zero_stage,
        "pipeline_offload": facts.pipeline_offload,
    }


_OPEN = {
    "pipeline_zero_stage": 3,
    "experts_zero_stage": 3,
    "zero_stages": 0b1111,
    "exchanges": 0b1111,
    "window_exchanges": 0b1111,
    "latent_exchanges": 0b1111,
    "runs_schedule": 1,
    "lacks": 0,
    "experts_need_sp": 0,
    "repeats_kv_heads": 1,
    "offloads": 1,
    "offload_zero_stage": 0,
    "pipeline_offload": 1,
}
"""What a framework refuses that refuses nothing."""
_FEWEST = {"breadth-first": 1, "dualpipe": 2, "dualpipe-v": 2}
"""Micro-batches per stage that a schedule needs, where it needs more than one in all."""


def _places(scenario: Scenario) -> dict[str, int]:
    """Whether the job has the places that its faults and its stages name; ``divided``: tp from cp."""
    return {
        "unseated": bool(unseated(scenario)),
        "apart": bool(apart(scenario)),
        "flow": scenario.network == "flow",
        "link_faults": any(fault.of_links for fault in scenario.faults),
        "misplaced": bool(why_misplaced(scenario)),
        "divided": _divided(scenario.placement.order),
    }


def _divided(order: tuple[str, ...]) -> bool:
    """Whether another dense axis stands between tp and cp in placement."""
    dense = [axis for axis in order if axis != "ep"]
    return abs(dense.index("tp") - dense.index("cp")) > 1
