"""The named checks of how tokens choose experts, and where these sit."""

from rapid_llm.scenario.rules import Check, divides
from rapid_llm.scenario.sentences import Row, listed


def _routing(row: Row) -> str:
    """Routing or adapters of experts are given for a model without any."""
    said = "lora.targets experts" if row["expert_adapters"] else "routing"
    return f"workload.{said} needs a model with experts, and {row['model']} has none. Try to leave it out."


def _ranks(row: Row) -> str:
    """A placement lists another number of ranks than an expert group has."""
    return (
        f"workload.routing.placement lists {row['placed_ranks']} ranks, and an expert group has ep {row['ep']}. "
        f"Try ep {row['placed_ranks']}, or placement: greedy."
    )


def _slots(row: Row) -> str:
    """Experts and their copies do not divide evenly over the ranks of an expert group."""
    experts, copies, ep = row["num_experts"], row["copied_experts"], row["ep"]
    fits = [more for more in range(ep) if (experts + more) % ep == 0 and more] or [ep]
    tried = sorted({max(copies - (experts + copies) % ep, 0), copies + -(experts + copies) % ep} | set(fits[:1]))
    return (
        f"workload.routing.redundant_experts {copies} beside {experts} experts are {experts + copies}, which ep {ep} "
        f"does not divide. Try {listed(tried)}."
    )


def _copies(row: Row) -> str:
    """Experts are copied to several ranks of an expert group in a training job."""
    many = row["copied_experts"]
    said = f"placement lists {many} more than once" if row["placed_ranks"] else f"redundant_experts is {many}"
    tried = "a placement that lists every expert once" if row["placed_ranks"] else "redundant_experts 0"
    return (
        f"workload.routing.{said}, and workload.kind is training: copies of an expert are for inference, since "
        f"{row['runtime']} adds up the gradients of an expert over its data-parallel replicas alone, and copies inside "
        f"an expert group would drift apart. Try {tried}, or placement: greedy, which levels without copies."
    )


EXPERTS: tuple[Check, ...] = (
    Check(
        "tokens choose among the experts that there are",
        "model",
        lambda c: c.overchosen == 0,
        lambda r: (
            f"num_experts_per_tok of {r['model']} is more than its {r['num_experts']} experts. "
            f"Try at most {r['num_experts']}."
        ),
    ),
    Check(
        "routing needs experts",
        "workload.routing",
        lambda c: (c.num_experts > 0) | ((c.routed == 0) & (c.expert_adapters == 0)),
        _routing,
    ),
    Check(
        "every expert is counted",
        "workload.routing.counts",
        lambda c: (c.counted_experts == 0) | (c.num_experts == 0) | (c.counted_experts == c.num_experts),
        lambda r: (
            f"workload.routing.counts must count each of num_experts {r['num_experts']} (got {r['counted_experts']}). "
            "Try routing: {hottest: 1.3}, the load of the hottest rank over the mean."
        ),
    ),
    Check(
        "counts are of all layers or of each",
        "workload.routing.counts",
        lambda c: (c.counted_layers <= 1) | (c.num_experts == 0) | (c.counted_layers == c.expert_layers),
        lambda r: (
            f"workload.routing.counts has {r['counted_layers']} lists, and {r['model']} has {r['expert_layers']} "
            "layers with experts. Try one list for all of them, or one a layer."
        ),
    ),
    Check(
        "experts are placed on several ranks",
        "workload.routing.placement",
        lambda c: (c.placed == 0) | (c.num_experts == 0) | (c.ep > 1),
        lambda r: (
            "workload.routing places experts on the ranks of an expert group, and ep 1 has one rank with all of them. "
            "Try ep 8, or to leave placement and redundant_experts out."
        ),
    ),
    Check(
        "every rank is given experts",
        "workload.routing.placement",
        lambda c: (c.placed_ranks == 0) | (c.num_experts == 0) | (c.placed_ranks == c.ep),
        _ranks,
    ),
    Check(
        "every expert has a place",
        "workload.routing.placement",
        lambda c: (c.misplaced_experts == 0) | (c.num_experts == 0),
        lambda r: (
            f"workload.routing.placement {r['why_misplaced_experts']}. "
            "Try placement: greedy, which places them by counts."
        ),
    ),
    Check(
        "experts and their copies fill the ranks",
        "workload.routing.redundant_experts",
        lambda c: (c.copied_experts <= 0) | (c.placed_ranks > 0) | divides(c.ep, c.num_experts + c.copied_experts),
        _slots,
    ),
    Check(
        "a rank holds no expert twice",
        "workload.routing.redundant_experts",
        lambda c: (c.copied_experts <= 0) | (c.ep == 1) | (c.copied_experts <= c.num_experts * (c.ep - 1)),
        lambda r: (
            f"workload.routing.redundant_experts {r['copied_experts']} are more than {r['num_experts']} experts have "
            f"room for on ep {r['ep']} ranks without two copies on one. Try {r['ep']}."
        ),
    ),
    Check(
        "copies of experts are for inference",
        "workload.routing.redundant_experts",
        lambda c: (c.copied_experts <= 0) | (c.training == 0) | (c.num_experts == 0),
        _copies,
    ),
    Check(
        "a placement has something to level",
        "workload.routing.placement",
        lambda c: (c.placed == 0) | (c.popular > 0) | (c.num_experts == 0),
        lambda _: (
            "workload.routing places experts that are all as popular, so that ranks wait no less for each other. Add "
            "counts of tokens by expert, or skew: 0.8."
        ),
        "warning",
    ),
)
"""What must hold of routing, in the order in which a user wants to hear of it."""
