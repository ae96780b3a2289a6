"""What the placement of experts amounts to: the load of the rank that the others wait for, and the memory of copies."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rapid_llm.dtypes import dtype
from rapid_llm.lowering.shapes import EVEN
from rapid_llm.lowering.weights import block_parameters
from rapid_llm.model import MoE
from rapid_llm.nouns import replaced
from rapid_llm.parallelism import Plans
from rapid_llm.scenario import Scenario


@dataclass(frozen=True, slots=True)
class ExpertsUse:
    """Tokens of the hottest rank of an expert group over the mean of all ranks, as means over layers.
    ``in_a_row_over_mean``: with consecutive experts on each rank, the default placement; ``layer``: the layer, counted
    among those with experts, whose hottest rank is hottest (None where all are counted alike); ``copies`` of experts
    beyond one each, and their ``copied_bytes`` on one rank.
    """

    ranks: int
    hottest_over_mean: float
    in_a_row_over_mean: float
    layer: int | None
    layer_over_mean: float
    copies: int
    copied_bytes: float


def experts_use(scenario: Scenario) -> ExpertsUse | None:
    """How evenly the ranks of an expert group are loaded; None where neither popularity nor placement of experts is
    given.
    """
    routing, ep = scenario.workload.routing, scenario.parallelism.ep
    experts = max((b.ffn.num_experts for b in scenario.model.blocks if isinstance(b.ffn, MoE)), default=0)
    if ep == 1 or not experts or routing == EVEN or (found := routing.shares(experts, ep)) is None:
        return None
    loads = routing.layer_loads(ep, experts)
    unplaced = replaced(routing, placement=None, redundant_experts=0)
    return ExpertsUse(
        ranks=ep,
        hottest_over_mean=float(loads.mean()),
        in_a_row_over_mean=unplaced.load(ep, experts),
        layer=int(np.argmax(loads)) if len(found) > 1 else None,
        layer_over_mean=float(loads.max()),
        copies=routing.held(experts) - experts,
        copied_bytes=_copied(scenario),
    )


def _copied(scenario: Scenario) -> float:
    """Bytes of one rank's copies of experts, on a stage with the mean number of layers."""
    plan, routing = scenario.parallelism, scenario.workload.routing
    columns = Plans.of(plan, micro_batch=1.0, micro_batches=1.0)
    more = sum(
        count * float((block_parameters(b, h, columns, routing)[1] - block_parameters(b, h, columns, EVEN)[1])[0])
        for b, h, count in scenario.model.stacks
    )
    return more * dtype(scenario.precision.of_experts.weights).bytes / plan.pp
