"""Which nodes reach each other over live links, and the accelerators that are cut off, in words."""

from typing import Any, Final

import numpy as np

from rapid_llm.network.topology import Ints, Topology

_SHOWN: Final = 8
"""Accelerators that a sentence names."""


def parts(topology: Topology, live: Any) -> Ints:
    """The lowest node that each node is joined to by links that are live."""
    a, b = topology.source[live], topology.target[live]
    part = np.arange(topology.nodes)
    while True:
        low = np.minimum(part[a], part[b])
        fresh = part.copy()
        np.minimum.at(fresh, a, low)
        np.minimum.at(fresh, b, low)
        fresh = fresh[fresh]
        if (fresh == part).all():
            return part
        part = fresh


def severed(topology: Topology, live: Any) -> str | None:
    """The accelerators outside the largest part, as ``accelerators 8 (node1.gpu0), 9 (node1.gpu1) with the other 8``;
    None where live links join all of them.
    """
    part = parts(topology, live)[topology.accelerators]
    labels, counts = np.unique(part, return_counts=True)
    if len(labels) < 2:
        return None
    cut = np.flatnonzero(part != labels[len(counts) - 1 - int(np.argmax(counts[::-1]))])
    shown = ", ".join(f"{place} ({topology.names[topology.accelerators[place]]})" for place in cut[:_SHOWN])
    more = f" and {len(cut) - _SHOWN} more" if len(cut) > _SHOWN else ""
    what = "accelerators" if len(cut) > 1 else "accelerator"
    return f"{what} {shown}{more} with the other {len(part) - len(cut)}"
