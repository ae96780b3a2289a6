"""Direct networks: accelerators whose own links form the interconnect.

Every constructor takes B/s per link and direction and seconds per hop; InputError for sizes that are not positive.
"""

from collections.abc import Sequence
from math import prod

import numpy as np

from rapid_llm.errors import InputError
from rapid_llm.network.topology import Builder, Floats, Ints, Topology


def ring(count: int, bandwidth: float, latency: float = 0.0) -> Topology:
    """A ring; two accelerators are joined by one link."""
    return torus((count,), bandwidth, latency, name=f"ring-{count}")


def mesh(sides: Sequence[int], bandwidth: float | Sequence[float], latency: float = 0.0) -> Topology:
    """A mesh, open at its ends; ``bandwidth`` per axis or one for all."""
    return _lattice(sides, bandwidth, latency, wrap=False, name=f"mesh-{_times(sides)}")


def torus(
    sides: Sequence[int], bandwidth: float | Sequence[float], latency: float = 0.0, *, name: str = ""
) -> Topology:
    """A torus; ``bandwidth`` per axis or one for all. A side of two has one link, not two."""
    return _lattice(sides, bandwidth, latency, wrap=True, name=name or f"torus-{_times(sides)}")


def hypercube(count: int, bandwidth: float, latency: float = 0.0) -> Topology:
    """A hypercube of a power of two accelerators: a torus of sides 2."""
    if count < 1 or count & (count - 1):
        below = 1 << max(count.bit_length() - 1, 0)
        raise InputError(
            f"a hypercube needs a power of two accelerators (got {count}); try {below} or {2 * below}.",
            field="topology.accelerators",
        )
    return torus((2,) * (count.bit_length() - 1) or (1,), bandwidth, latency, name=f"hypercube-{count}")


def fully_connected(count: int, bandwidth: float, latency: float = 0.0) -> Topology:
    """A link for every pair; ``bandwidth`` is of one link."""
    build, nodes = _accelerators(f"full-{_positive((count,))[0]}", count)
    build.refuse_many(count * (count - 1))
    a, b = np.triu_indices(count, 1)
    build.join(nodes[a], nodes[b], bandwidth, latency, "scale-up")
    return build.build()


def king_mesh(sides: Sequence[int], bandwidth: float, latency: float = 0.0) -> Topology:
    """A 2-D mesh with diagonals, as a king moves."""
    if len(sides) != 2:
        raise InputError(f"a king mesh has two sides (got {len(sides)}).", field="topology.sides")
    width, height = _positive(sides)
    build, nodes = _accelerators(f"king-mesh-{_times(sides)}", width * height)
    grid = nodes.reshape(height, width)
    for a, b in (
        (grid[:, :-1], grid[:, 1:]),
        (grid[:-1], grid[1:]),
        (grid[:-1, :-1], grid[1:, 1:]),
        (grid[:-1, 1:], grid[1:, :-1]),
    ):
        build.join(a.ravel(), b.ravel(), bandwidth, latency, "scale-up")
    return build.build()


def _lattice(
    sides: Sequence[int], bandwidth: float | Sequence[float], latency: float, *, wrap: bool, name: str
) -> Topology:
    sides = _positive(sides)
    rates: Floats = np.asarray(bandwidth, dtype=np.float64)
    if rates.ndim and len(rates) != len(sides):
        raise InputError(
            f"{name} has {len(sides)} axes but {len(rates)} bandwidths; give one for all or one per axis.",
            field="topology.bandwidth",
        )
    build, nodes = _accelerators(name, prod(sides))
    stride = 1
    for side, rate in zip(sides, np.broadcast_to(rates, len(sides)), strict=True):
        place = nodes // stride % side
        inner = nodes[place < side - 1]
        if side > 1:
            build.join(inner, inner + stride, float(rate), latency, "scale-up")
        if wrap and side > 2:
            last = nodes[place == side - 1]
            build.join(last, last - (side - 1) * stride, float(rate), latency, "scale-up")
        stride *= side
    return build.build(grid=(sides, tuple(wrap and side > 2 for side in sides)))


def _accelerators(name: str, count: int) -> tuple[Builder, Ints]:
    build = Builder(name)
    build.refuse_many(count)
    return build, build.add([f"gpu{i}" for i in range(count)], "accelerator")


def _positive(sides: Sequence[int]) -> tuple[int, ...]:
    if not sides or any(side < 1 for side in sides):
        raise InputError(f"sides must be 1 or more (got {_times(sides) or 'none'}).", field="topology.sides")
    return tuple(sides)


def _times(sides: Sequence[int]) -> str:
    return "x".join(str(side) for side in sides)
