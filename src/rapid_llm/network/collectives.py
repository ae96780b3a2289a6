"""The time of collectives in closed form: templates priced on the tiers of a fabric with the costs of a library.

One algorithm with one protocol costs ``a + b S + c sqrt(S)``: ``a`` launch and dependent hops, ``b`` the busiest level
of each phase, ``c`` the ramp of pipelined slices. These lines are cached per group; a call evaluates them for its rows
and takes the cheapest, as a tuner does.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rapid_llm.errors import InputError, unknown_name
from rapid_llm.network.fabric import Fabric
from rapid_llm.network.groups import Group, group_of
from rapid_llm.network.lines import Way, ways
from rapid_llm.network.technologies import Library, library_of
from rapid_llm.network.templates import OPS
from rapid_llm.network.tuner import tuned
from rapid_llm.nouns import light

Column = NDArray[np.float64]

MAX_RANKS: Final = 1 << 24
"""Ranks and strides above this are input errors (also what packs a group into one integer key)."""
REMEMBERED_ROWS: Final = 1024
"""Rows up to which their candidates are kept for the next call: about 0.5 MB a table."""
ANY_SIZE: Final = (-1.0, np.inf)
"""Above what size, and up to what size (bytes), a line holds that always does."""


@light
class CollectivePrices:
    """One entry a row. seconds: time of the collective; algorithm: index into ALGORITHMS; wire_bytes: bytes that one
    rank sends (B); nodes: nodes that the group spans.
    """

    seconds: Column
    algorithm: NDArray[np.int8]
    wire_bytes: Column
    nodes: NDArray[np.int64]

    def part(self, rows: slice, shape: tuple[int, ...]) -> "CollectivePrices":
        """Some of the rows, in a shape."""
        return CollectivePrices(
            self.seconds[rows].reshape(shape),
            self.algorithm[rows].reshape(shape),
            self.wire_bytes[rows].reshape(shape),
            self.nodes[rows].reshape(shape),
        )


@dataclass(frozen=True, slots=True, eq=False)
class _Lines:
    """Candidates of one group, an entry each: the most of several seconds ``fixed + per_byte S + root sqrt(S)``, and
    the sizes above and up to which it holds.
    """

    coefficients: Column  # (lines, 3, candidates)
    sizes: Column  # (2, candidates)
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
    groups = np.array([code.ravel(), n.ravel(), step.ravel()], dtype=np.int64)
    prices = price_rows(groups, size.ravel(), fabric=fabric, library=library, small=small)
    return prices.part(slice(None), size.shape)


def price_rows(
    groups: NDArray[np.int64],
    size: Column,
    *,
    fabric: Fabric,
    library: str | Library,
    small: str | Library | None = None,
) -> CollectivePrices:
    """``price`` of rows whose operation code, ranks and stride stand in one array [3, rows]."""
    libraries = library_of(library), None if small is None else library_of(small)
    remembered = len(size) <= REMEMBERED_ROWS
    table = (_candidates if remembered else _candidates.__wrapped__)(groups.tobytes(), fabric, *libraries)
    powers = np.empty((3, len(size)))
    powers[0], powers[1] = 1.0, size
    np.sqrt(size, out=powers[2])
    seconds = np.einsum("kr,krc->rc", powers, table.held[0])
    for further in table.held[1:]:
        np.maximum(seconds, np.einsum("kr,krc->rc", powers, further), out=seconds)
    if table.sizes is not None:
        above, up_to = table.sizes
        seconds[(size[:, None] <= above) | (size[:, None] > up_to)] = np.inf
    best = seconds.argmin(axis=1)
    at = np.arange(len(size)), best
    return CollectivePrices(seconds[at], table.algorithm[at], table.sent[at] * size, table.nodes)


class _Table(NamedTuple):
    """Candidates of several rows; short rows are padded with candidates that never win."""

    held: tuple[Column, ...]  # coefficients of lines, and of others that hold them up, each (3, rows, candidates)
    sizes: Column | None  # (2, rows, candidates) above and up to which each holds; None where all always do
    algorithm: NDArray[np.int8]
    sent: Column
    nodes: NDArray[np.int64]


@lru_cache(maxsize=64)
def _candidates(groups: bytes, fabric: Fabric, library: Library, small: Library | None) -> _Table:
    """Candidates of rows by operation code, ranks and stride."""
    rows = np.frombuffer(groups, np.int64).reshape(3, -1)
    if rows.size and rows[1:].max() >= MAX_RANKS:
        raise InputError(
            f"a group of {rows[1].max()} ranks, {rows[2].max()} apart, is larger than any system.", field="parallelism"
        )
    unique, inverse = np.unique((rows[0] * MAX_RANKS + rows[1]) * MAX_RANKS + rows[2], return_inverse=True)
    lines_of = _pricer(fabric, library, small)
    lines = [lines_of(key // MAX_RANKS**2, key // MAX_RANKS % MAX_RANKS, key % MAX_RANKS) for key in unique.tolist()]
    return _stack(lines, inverse)


def _stack(lines: list[_Lines], inverse: NDArray[np.int64]) -> _Table:
    """The lines of each row's group as one table."""
    width = max((len(line.sent) for line in lines), default=1)
    deep = max((len(line.coefficients) for line in lines), default=1)
    table = np.zeros((deep, 3, len(lines), width))
    table[0, 0] = np.inf
    sizes = np.empty((2, len(lines), width))
    sizes[0], sizes[1] = ANY_SIZE
    algorithm = np.zeros((len(lines), width), dtype=np.int8)
    sent = np.zeros((len(lines), width))
    for row, line in enumerate(lines):
        count = len(line.sent)
        table[: len(line.coefficients), :, row, :count] = line.coefficients
        sizes[:, row, :count] = line.sizes
        algorithm[row, :count] = line.algorithm
        sent[row, :count] = line.sent
    held = (table[0], *(part for part in table[1:] if part.any()))
    limited = (sizes.T != ANY_SIZE).any()
    nodes = np.array([line.nodes for line in lines], dtype=np.int64)
    spread = tuple(np.ascontiguousarray(part[:, inverse]) for part in held)
    return _Table(spread, sizes[:, inverse] if limited else None, algorithm[inverse], sent[inverse], nodes[inverse])


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
            return _Lines(np.zeros((1, 3, 1)), np.array(ANY_SIZE)[:, None], np.zeros(1, np.int8), np.zeros(1), 1)
        group = group_of(fabric, ranks, stride)
        found = [(way, line) for way in tuned(choices(OPS[code], group, library, small), library) for line in way.lines]
        deep = max(len(line.coefficients) for _, line in found)
        coefficients = np.zeros((deep, 3, len(found)))
        for at, (_, line) in enumerate(found):
            coefficients[: len(line.coefficients), :, at] = line.coefficients
        algorithm = np.array([way.template.algorithm for way, _ in found], np.int8)
        sizes = np.array([(line.above, line.up_to) for _, line in found]).T
        sent = np.array([way.template.sent for way, _ in found])
        return _Lines(coefficients, sizes, algorithm, sent, group.nodes)

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
