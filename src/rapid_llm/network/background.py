"""Traffic of others beside a collective: flows that start with it and share its links."""

from dataclasses import dataclass, replace

from rapid_llm.network.engine import simulate
from rapid_llm.network.programs import latencies
from rapid_llm.network.routing import Table, route
from rapid_llm.network.tasks import Floats, Ints, Result, Tasks, concatenate, tasks
from rapid_llm.network.topology import Topology


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Background:
    """Source and target node of each flow, and its bytes, from time 0."""

    source: Ints
    target: Ints
    amount: Floats


def stream(topology: Topology, source: Ints, target: Ints, amount: Floats, policy: str | Table = "auto") -> Tasks:
    """Flows between nodes that all start at once, a task each, routed together."""
    routes = route(topology, source, target, policy=policy, amount=amount)
    shares = routes.share if len(routes.share) else None
    return tasks(amount, routes.start, routes.link, coefficient=shares, latency=latencies(topology, routes))


def simulate_beside(
    own: Tasks,
    topology: Topology,
    background: Background | None,
    policy: str | Table = "auto",
    *,
    measured: bool = True,
) -> Result:
    """Run tasks beside the background: times are of the tasks, what links moved (where ``measured``) is of both."""
    if background is None:
        return simulate(own, topology, measured=measured)
    others = stream(topology, background.source, background.target, background.amount, policy)
    found = simulate(concatenate([own, others]), topology, measured=measured)
    return replace(found, start=found.start[: len(own)], finish=found.finish[: len(own)])
