"""What the checks look at of how tokens choose experts: numbers of a scenario."""

from rapid_llm.model import Model, MoE
from rapid_llm.workload import Routing, misplaced


def expert_columns(model: Model, routing: Routing) -> dict[str, int]:
    """What the checks look at of routing."""
    experts = experts_of(model)
    found = {len(layer) for layer in routing.counts}
    return {
        "overchosen": any(f.num_experts_per_tok > f.num_experts for f in _mixtures(model)),
        "routed": routing != Routing(),
        "counted_experts": next((count for count in found if count != experts), max(found, default=0)),
        "counted_layers": len(routing.counts),
        "expert_layers": sum(count for block, _, count in model.stacks if isinstance(block.ffn, MoE)),
        "placed": routing.placed,
        "placed_ranks": len(routing.seats),
        "misplaced_experts": bool(misplaced(routing, experts)),
        "copied_experts": routing.held(experts) - experts if experts else 0,
        "popular": bool(routing.counts or routing.skew),
    }


def experts_of(model: Model) -> int:
    """Routed experts of a layer; 0 where no layer has any."""
    return max((ffn.num_experts for ffn in _mixtures(model)), default=0)


def _mixtures(model: Model) -> list[MoE]:
    return [block.ffn for block in model.blocks if isinstance(block.ffn, MoE)]
