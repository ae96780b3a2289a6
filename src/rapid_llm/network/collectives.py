"""The time of collectives in closed form: templates priced on the tiers of a fabric with the costs of a library.

One algorithm with one protocol costs ``a + b S + c sqrt(S)``: ``a`` launch and dependent hops, ``b`` the busiest level
of each phase, ``c`` the ramp of pipelined slices. These lines are cached per group; a call evaluates them for its rows
and takes the cheapest, as a tuner does.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rapid_llm.errors import InputError, unknown_name
from rapid_llm.network.fabric import Fabric
from rapid_llm.network.groups import Group, group_of
from rapid_llm.network.lines import Way, ways
from rapid_llm.network.regimes import FLOORS, NO_FLOOR
from rapid_llm.network.technologies import Library, library_of
from rapid_llm.network.templates import OPS
from rapid_llm.network.tuner import tuned

Column = NDArray[np.float64]

WIDTH: Final = len(NO_FLOOR.coefficients)
MAX_RANKS: Final = 1 << 24
"""Ranks and strides above this are input errors (also what packs a group into one integer key)."""


@dataclass(frozen=True, slots=True)
class CollectivePrices:
    """One entry a row. seconds: time of the collective; algorithm: index into ALGORITHMS; wire_bytes: bytes that one
    rank sends (B); nodes: nodes that the group spans.
    """

    seconds: Column
    algorithm: NDArray[np.int8]
    wire_bytes: Column
    nodes: NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class _Lines:
    """Candidates of one group, an entry each: seconds ``fixed + per_byte S + root sqrt(S)``, those of floors, and the
    sizes between which each holds (``Line.coefficients``).
    """

    coefficients: Column  # (WIDTH, candidates)
    algorithm: NDArray[np.int8]
    sent: Column
    nodes: int


def price(
    op: str | ArrayLike,
    size_bytes: ArrayLike,
    ranks: ArrayLike,
    stride: ArrayLike,
    *,
    fabric: Fabric,
    library: str | Library,
    small: str | Library | None = None,
) -> CollectivePrices:
    """Price collectives, a row each.

    op: a name of OPS, or its codes by row; size_bytes (B) as nccl-tests: all_reduce, all_to_all and broadcast buffer
    per rank, all_gather total output, reduce_scatter total input, send_recv message; ranks of a group stand ``stride``
    accelerators apart, every accelerator belongs to one such group and all groups communicate at once. ``small`` is a
    further library that may carry all-reduces within a node. InputError when a group does not fit the fabric.
    """
    codes = op_code(op) if isinstance(op, str) else op
    code, size, n, step = np.broadcast_arrays(codes, np.asarray(size_bytes, dtype=np.float64), ranks, stride)
    if n.size and max(n.max(), step.max()) >= MAX_RANKS:
        raise InputError(
            f"a group of {n.max()} ranks, {step.max()} apart, is larger than any system.", field="parallelism"
        )
    shape = size.shape
    keys = ((np.asarray(code, np.int64) * MAX_RANKS + n) * MAX_RANKS + step).ravel()
    unique, inverse = np.unique(keys, return_inverse=True)
    lines_of = _pricer(fabric, library_of(library), None if small is None else library_of(small))
    lines = [lines_of(key // MAX_RANKS**2, key // MAX_RANKS % MAX_RANKS, key % MAX_RANKS) for key in unique.tolist()]
    table, algorithm, sent = _stack(lines)
    flat = size.ravel()
    seconds = _evaluate(table[:3], inverse, flat)
    for floor in table[3:-2].reshape(FLOORS, 3, *table.shape[1:]):
        if floor.any():
            np.maximum(seconds, _evaluate(floor, inverse, flat), out=seconds)
    if (table[-2] > 0).any():
        above, up_to = table[-2:, inverse]
        seconds[(flat[:, None] <= above) | (flat[:, None] > up_to)] = np.inf
    best = seconds.argmin(axis=1)
    rows = np.arange(len(flat))
    nodes = np.array([line.nodes for line in lines], dtype=np.int64)
    return CollectivePrices(
        seconds[rows, best].reshape(shape),
        algorithm[inverse, best].reshape(shape),
        (sent[inverse, best] * flat).reshape(shape),
        nodes[inverse].reshape(shape),
    )


def _evaluate(coefficients: Column, groups: NDArray[np.int64], size: Column) -> Column:
    """Seconds (rows, candidates) of lines (3, groups, candidates) for the group and the size of each row."""
    powers = np.stack([np.ones_like(size), size, np.sqrt(size)])
    return np.asarray(np.einsum("kr,krc->rc", powers, coefficients[:, groups]))


def _stack(lines: list[_Lines]) -> tuple[Column, NDArray[np.int8], Column]:
    """Candidates of several groups as (WIDTH, groups, candidates), (groups, candidates) twice; short rows never win."""
    width = max((len(line.sent) for line in lines), default=1)
    table = np.full((WIDTH, len(lines), width), 0.0)
    table[0] = table[-1] = np.inf
    algorithm = np.zeros((len(lines), width), dtype=np.int8)
    sent = np.zeros((len(lines), width))
    for row, line in enumerate(lines):
        count = len(line.sent)
        table[:, row, :count] = line.coefficients
        algorithm[row, :count] = line.algorithm
        sent[row, :count] = line.sent
    return table, algorithm, sent


def bus_bandwidth(op: str, size_bytes: ArrayLike, ranks: ArrayLike, seconds: ArrayLike) -> Column:
    """busbw of nccl-tests in B/s: algbw x 2 (n - 1)/n for an all-reduce, x 1 for send_recv and broadcast,
    else x (n - 1)/n.
    """
    n = np.asarray(ranks, dtype=np.float64)
    moved = np.ones_like(n) if op in ("send_recv", "broadcast") else (n - 1) / n
    return algorithm_bandwidth(size_bytes, seconds) * moved * (2 if op == "all_reduce" else 1)


def algorithm_bandwidth(size_bytes: ArrayLike, seconds: ArrayLike) -> Column:
    """algbw of nccl-tests in B/s: S / t."""
    return np.asarray(size_bytes, dtype=np.float64) / np.asarray(seconds, dtype=np.float64)


def op_code(op: str) -> int:
    """The code of an operation; InputError for an unknown name."""
    if op not in OPS:
        raise InputError(unknown_name("collective", op, OPS))
    return OPS.index(op)


@lru_cache(maxsize=64)
def _pricer(fabric: Fabric, library: Library, small: Library | None) -> Callable[[int, int, int], _Lines]:
    """Lines by (op code, ranks, stride) for one fabric and its libraries."""

    @lru_cache(maxsize=4096)
    def lines(code: int, ranks: int, stride: int) -> _Lines:
        if ranks == 1:
            return _Lines(np.array(NO_FLOOR.coefficients)[:, None], np.zeros(1, np.int8), np.zeros(1), 1)
        group = group_of(fabric, ranks, stride)
        found = [(way, line) for way in tuned(choices(OPS[code], group, library, small), library) for line in way.lines]
        coefficients = np.array([line.coefficients for _, line in found]).T
        algorithm = np.array([way.template.algorithm for way, _ in found], np.int8)
        return _Lines(coefficients, algorithm, np.array([way.template.sent for way, _ in found]), group.nodes)

    return lines


def choices(op: str, group: Group, library: Library, small: Library | None = None) -> list[Way]:
    """Every way in which the libraries can run an operation; InputError when there is none."""
    found = list(ways(op, group, library))
    if small is not None and len(group.tiers) == 1 and group.tiers[0].scope == "intra":
        found += ways(op, group, small)
    if not found:
        algorithms = {name for protocol in library.protocols.values() for name in protocol.algorithms}
        raise InputError(
            f"collective library '{library.name}' has no algorithm for {op} on {group.bounds[-1]} ranks; "
            f"it has {', '.join(sorted(algorithms))}.",
            field="communication.library",
        )
    return found
