"""What the engine runs: tasks as columns."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from rapid_llm.errors import InternalError

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

KINDS: Final = ("flow", "kernel", "wait")
"""What a task is, for reports; its code is the index here."""
OWN_QUEUE: Final = -1
"""A task that waits for its dependencies only."""
ALL: Final = -(1 << 30)
"""Lag of a dependency on every round of the other task."""


DISCIPLINES: Final = ("fq", "fifo", "pfc")
"""How flows share a link: fairly (max-min); by what each has in flight; by input port, with pauses."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Transport:
    """What packets do beyond shared rates. The default is a fluid.

    ``packet_bytes``: equal flows that drain together finish one packet apart; ``ack_share``: bytes acknowledged back
    per byte, ahead of data; ``window_bytes``: in flight per flow, what ``fifo`` shares by.
    """

    discipline: Literal["fq", "fifo", "pfc"] = "fq"
    packet_bytes: float = 0.0
    ack_share: float = 0.0
    window_bytes: float = float("inf")


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Tasks:
    """Columns, one entry a task.

    A task has ``rounds`` equal rounds, one after another, each of ``amount`` on its resources: at rate r it uses
    ``coefficient r`` of each, and r is at most its ``limit`` (empty: none has one). A round is posted ``delay`` seconds
    after its dependencies are met; in a queue it begins when those posted before it are drained (ties by index); what
    it sent arrives ``latency`` after its drain.

    kind: index into KINDS; queue: id of an in-order queue, or OWN_QUEUE. CSR rows of a task are
    ``resource[resource_start[i]:resource_start[i + 1]]`` (``coefficient`` may be empty: all 1), in path order, and
    ``dependency[dependency_start[i]:...]``: round k waits until the dependency has arrived in ``k + 1 - lag`` rounds,
    at most all of its rounds. ``lag`` 0 is the same round, 1 the round before, ALL every round. ``stage`` of a program
    that each belongs to (empty: not told).
    """

    kind: NDArray[np.int8]
    queue: Ints
    amount: Floats
    rounds: Ints
    delay: Floats
    latency: Floats
    resource_start: Ints
    resource: NDArray[np.int32]
    coefficient: Floats
    dependency_start: Ints
    dependency: NDArray[np.int32]
    lag: NDArray[np.int32]
    limit: Floats = field(default_factory=lambda: np.zeros(0))
    stage: Ints = field(default_factory=lambda: np.zeros(0, np.int64))

    def __len__(self) -> int:
        return len(self.amount)

    @property
    def total(self) -> Floats:
        """What each task moves in all its rounds."""
        return self.amount * self.rounds

    @property
    def row(self) -> Ints:
        """The task of each entry of ``resource``."""
        return np.repeat(np.arange(len(self)), np.diff(self.resource_start))


@dataclass(frozen=True, slots=True, eq=False)
class Result:
    """start, finish: seconds of each task (first round begins; last round has arrived); by resource: ``moved`` (bytes
    over a link), ``busy`` (seconds with a task on it), ``peak`` (highest rate, B/s), both empty where not measured.
    What it cost: ``events`` simulated, and ``classes``: distinct tasks after folding.
    """

    start: Floats
    finish: Floats
    moved: Floats
    busy: Floats
    peak: Floats
    events: int
    classes: int

    @property
    def seconds(self) -> float:
        """When the last task has finished."""
        return float(self.finish.max(initial=0.0))

    @property
    def link_bytes(self) -> Floats:
        """``moved`` under the name it has where every resource is a link."""
        return self.moved


def tasks(
    amount: Floats | float,
    resource_start: NDArray[np.integer],
    resource: NDArray[np.integer],
    *,
    coefficient: Floats | None = None,
    dependencies: tuple[NDArray[np.integer], NDArray[np.integer]] | None = None,
    lag: NDArray[np.integer] | int = 0,
    kind: NDArray[np.integer] | int = 0,
    queue: NDArray[np.integer] | int = OWN_QUEUE,
    rounds: NDArray[np.integer] | int = 1,
    delay: Floats | float = 0.0,
    latency: Floats | float = 0.0,
    limit: Floats | None = None,
) -> Tasks:
    """Columns from arrays and scalars; ``dependencies`` is (dependency_start, dependency)."""
    n = len(resource_start) - 1
    start, other = dependencies or (np.zeros(n + 1, np.int64), np.zeros(0, np.int32))
    if len(start) != n + 1 or int(start[-1]) != len(other) or int(resource_start[-1]) != len(resource):
        raise InternalError("columns of tasks do not fit each other.")

    def column(value: Any, dtype: type) -> NDArray[Any]:
        return np.ascontiguousarray(np.broadcast_to(np.asarray(value, dtype=dtype), n))

    return Tasks(
        kind=column(kind, np.int8),
        queue=column(queue, np.int64),
        amount=column(amount, np.float64),
        rounds=column(rounds, np.int64),
        delay=column(delay, np.float64),
        latency=column(latency, np.float64),
        resource_start=np.asarray(resource_start, np.int64),
        resource=np.asarray(resource, np.int32),
        coefficient=np.zeros(0) if coefficient is None else np.asarray(coefficient, np.float64),
        dependency_start=np.asarray(start, np.int64),
        dependency=np.asarray(other, np.int32),
        lag=np.full(len(other), lag, dtype=np.int32),
        limit=np.zeros(0) if limit is None else np.asarray(limit, np.float64),
    )


def csr(lists: Sequence[Sequence[int]]) -> tuple[Ints, NDArray[np.int32]]:
    """Lists of indices as (start, index)."""
    start = np.zeros(len(lists) + 1, dtype=np.int64)
    np.cumsum([len(one) for one in lists], out=start[1:])
    return start, np.array([value for one in lists for value in one], dtype=np.int32)


def concatenate(parts: Sequence[Tasks]) -> Tasks:
    """Tasks one after another; their dependencies move along, their queues stay."""
    counts = [0, *np.cumsum([len(p) for p in parts]).tolist()]
    weighted = any(len(p.coefficient) for p in parts)

    def joined(name: str) -> NDArray[Any]:
        return np.concatenate([getattr(p, name) for p in parts])

    def starts(name: str) -> Ints:
        ends = np.cumsum([0, *(getattr(p, name)[-1] for p in parts)])
        body = [getattr(p, name)[:-1] + offset for p, offset in zip(parts, ends, strict=False)]
        return np.concatenate([*body, ends[-1:]]).astype(np.int64)

    limits = [p.limit if len(p.limit) else np.full(len(p), np.inf) for p in parts]
    weights = [p.coefficient if len(p.coefficient) else np.ones(len(p.resource)) for p in parts] if weighted else []
    return Tasks(
        kind=joined("kind"),
        queue=joined("queue"),
        amount=joined("amount"),
        rounds=joined("rounds"),
        delay=joined("delay"),
        latency=joined("latency"),
        resource_start=starts("resource_start"),
        resource=joined("resource"),
        coefficient=np.concatenate(weights) if weights else np.zeros(0),
        dependency_start=starts("dependency_start"),
        dependency=np.concatenate([p.dependency + offset for p, offset in zip(parts, counts, strict=False)]).astype(
            np.int32
        ),
        lag=joined("lag"),
        limit=np.concatenate(limits) if any(len(p.limit) for p in parts) else np.zeros(0),
    )


def limited(tasks: Tasks, capacity: Floats) -> tuple[Tasks, Floats]:
    """The same tasks with a resource of its own behind the others for each that has a limit, and all capacities."""
    own = np.flatnonzero(np.isfinite(tasks.limit))
    if not len(own):
        return tasks, capacity
    at = tasks.resource_start[own + 1]
    start = tasks.resource_start.copy()
    start[1:] += np.cumsum(np.isfinite(tasks.limit))
    return replace(
        tasks,
        resource_start=start,
        resource=np.insert(tasks.resource, at, len(capacity) + np.arange(len(own), dtype=np.int32)),
        coefficient=np.insert(tasks.coefficient, at, 1.0) if len(tasks.coefficient) else tasks.coefficient,
        limit=np.zeros(0),
    ), np.concatenate([capacity, tasks.limit[own]])
