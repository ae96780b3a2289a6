"""Which messages of a step share links in ways that closed forms do not follow."""

from functools import lru_cache

import numpy as np

from rapid_llm.errors import InputError
from rapid_llm.execution.machine import driven
from rapid_llm.execution.pricing import Priced, said
from rapid_llm.hardware import System
from rapid_llm.network import Fabric, candidates
from rapid_llm.network.groups import group_of

Largest = dict[tuple[str, str, int, int], float]


def by_turns(priced: Priced, system: System, accelerators: int) -> tuple[str, ...]:
    """Axis and operation of closed-form messages of a step whose sends share links by turns; of each kind of group the
    largest message stands for all. Empty where messages were priced link by link, and on systems of unlike nodes.
    """
    machine = priced.machine
    if machine.net is not None or system.mixed:
        return ()
    known = driven(system, machine.runtime.communication.nics)
    largest: Largest = {}
    for request in priced.requests:
        columns = (np.ravel(request.size), np.ravel(request.ranks), np.ravel(request.stride))
        for size, ranks, stride in zip(*(c.tolist() for c in np.broadcast_arrays(*columns)), strict=True):
            key = f"{said(request.axis)} {request.op}", request.op, int(ranks), int(stride)
            if ranks > 1 and size > 0:
                largest[key] = max(size, largest.get(key, 0.0))
    fabric, used = Fabric.of(known, accelerators), machine.runtime.communication
    found = [
        name
        for (name, op, ranks, stride), size in largest.items()
        if _meets(op, size, ranks, stride, fabric, known, used.library, used.small_all_reduce)
    ]
    return tuple(dict.fromkeys(found))


@lru_cache(maxsize=256)
def _meets(  # noqa: PLR0917
    op: str, size: float, ranks: int, stride: int, fabric: Fabric, system: System, library: str, small: str | None
) -> bool:
    try:
        group = group_of(fabric, ranks, stride)
        if not group.unlike:
            return False  # no engine need be loaded
        ways = candidates(op, size, ranks, stride, fabric=fabric, library=library, small=small)
    except InputError:  # what a library of its own carries, such as experts' exchanges
        return False
    from rapid_llm.network.agreement import may_meet

    return bool(ways) and may_meet(system, ways[0].way)
