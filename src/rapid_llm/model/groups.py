"""Parameters by what they are for, as ``rapid-llm show`` lists them."""

from rapid_llm.model.architecture import Model
from rapid_llm.model.weights import block_weights, outer_weights

_GROUPS = {
    "attention": "attention",
    "cross": "cross attention",
    "mla": "attention",
    "ssm": "state space",
    "mlp": "MLP",
    "moe.router": "router",
    "moe.expert": "routed experts",
    "moe": "shared experts",
    "embedding": "embedding",
    "position": "embedding",
    "patch": "embedding",
    "class": "embedding",
    "head": "head",
    "pooler": "head",
    "classifier": "head",
    "encoder": "embedding",
    "encoder.norm": "norms",
    "encoder.extra": "other",
    "vision": "vision",
    "extra": "other",
    "hyper": "other",
}


def _group(role: str) -> str:
    parts = role.split(".")
    for length in range(len(parts), 0, -1):
        group = _GROUPS.get(".".join(parts[:length]))
        if group is not None:
            return group
    return "norms"


def parameters_by_group(model: Model) -> dict[str, int]:
    """Parameters by group (attention, routed experts, embedding ...), largest first; they sum to ``parameters``."""
    totals: dict[str, int] = {}
    layers = [(block_weights(block, hidden), count) for block, hidden, count in model.stacks]
    for weights, count in [*layers, (outer_weights(model), 1)]:
        for weight in weights:
            group = _group(weight.role)
            totals[group] = totals.get(group, 0) + weight.size * count
    return dict(sorted(totals.items(), key=lambda item: -item[1]))
