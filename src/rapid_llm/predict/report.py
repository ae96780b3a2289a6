"""What a prediction answers. SI units throughout; the JSON keys are the field names (DESIGN section 5)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import TYPE_CHECKING, Any

from rapid_llm import __version__
from rapid_llm.lazy import Later
from rapid_llm.predict.experts import ExpertsUse
from rapid_llm.predict.uses import EnergyUse, MemoryUse, PoolsUse, SeatsUse, StageMemory
from rapid_llm.units import SECONDS_PER_HOUR

if TYPE_CHECKING:
    from pandas import DataFrame

    from rapid_llm.scenario import Scenario


FLOP_CONVENTION = "matrix multiplications and LM head, full attention, no recompute, over the dense {} peak"
"""What MFU counts, over the matrix rate of a format."""


@dataclass(frozen=True, slots=True)
class Cost:
    """A node of the breakdown tree: its children's seconds sum to its own; hidden time stands beside, not in the sum.

    ``bound`` says what limits a leaf (compute, memory, launch, network, host, schedule).
    """

    name: str
    seconds: float
    hidden_seconds: float = 0.0
    children: tuple[Cost, ...] = ()
    bound: str = ""

    def leaves(self) -> Iterator[Cost]:
        """The leaves below this node, depth first."""
        if not self.children:
            yield self
        for child in self.children:
            yield from child.leaves()


@dataclass(frozen=True, slots=True)
class Where:
    """Where the time goes: the tree of costs, what binds it in words, and the trees of a request's phases."""

    breakdown: Cost
    bound_by: str
    phases: Mapping[str, Cost] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Recovered:
    """How the messages of an axis go on after faults: ``policy`` is the faster of detour and replan, ``plan`` what
    re-planning changes; how many times as long as on healthy links they take under it, and under a detour.
    """

    axis: str
    op: str
    policy: str
    plan: str
    slowdown: float
    detour_slowdown: float


@dataclass(frozen=True, slots=True)
class FaultsUse:
    """What faults cost: the headline time (s) without them, how messages go on where links are degraded, and the links
    that were drawn at random.
    """

    healthy_s: float
    messages: tuple[Recovered, ...]
    drawn_links: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Fix:
    """A change that makes an infeasible scenario fit, as ``--set`` takes it; its price was predicted."""

    change: str
    saves_bytes: int
    step_time_ratio: float | None = None


@dataclass(frozen=True, slots=True)
class Violation:
    """Why this hardware cannot run it: ``need`` and ``have`` in the unit of ``kind`` (memory: bytes)."""

    kind: str
    message: str
    need: float
    have: float
    fixes: tuple[Fix, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """Money, in the currency of the price of an accelerator for an hour; ``per_million_tokens``: of training, or of
    prompts and outputs together; ``run``: all tokens of a training job."""

    per_hour: float
    per_step: float | None
    run: float | None
    per_million_tokens: float | None
    per_million_output_tokens: float | None


@dataclass(frozen=True, slots=True)
class Confidence:
    """How far to trust the answer: the nearest validation suite and group, its error quantiles (fractions), and why.

    ``within``: the error that the interval allows for, wider than ``p90`` where nothing as near was measured.
    """

    suite: str
    group: str
    rows: int
    median: float
    p90: float
    reasons: tuple[str, ...] = ()
    within: float = 0.0


@dataclass(frozen=True, slots=True)
class WhatIf:
    """One sensitivity: a change as ``--set`` takes it, and the relative change of the headline time."""

    change: str
    time_ratio: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Objective:
    """A latency objective (s, by ``ttft`` and ``tpot``) and what keeps it: the most requests in flight, and their rate.
    ``requests_in_flight`` is 0 where not even one keeps it; the report is then that of one per replica. ``users``:
    requests in flight that were asked for; ``binds``: what one more request would break; ``flags``: in place of the
    objective they give the same answer again.
    """

    limits_s: Mapping[str, float]
    users: int | None
    requests_in_flight: int
    requests_per_s: float
    binds: str
    flags: str

    @property
    def met(self) -> bool:
        """Whether anything keeps it."""
        return self.requests_in_flight > 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The answer to one scenario. Times are None where it does not fit (unless infeasible ones are allowed).

    ``where`` the time goes is worked out when ``breakdown``, ``phases`` or ``bound_by`` is first looked at.
    """

    kind: str
    feasible: bool
    violations: tuple[Violation, ...] = ()
    # training
    step_time_s: float | None = None
    tokens_per_s: float | None = None
    tokens_per_s_per_accelerator: float | None = None
    mfu: float | None = None
    mfu_causal: float | None = None
    hfu: float | None = None
    flop_convention: str = ""
    # inference
    ttft_s: float | None = None
    tpot_s: float | None = None
    e2e_s: float | None = None
    output_tokens_per_s: float | None = None
    total_tokens_per_s: float | None = None
    requests_per_s: float | None = None
    sound_s_per_s: float | None = None
    running_requests: int | None = None
    waves: int | None = None
    compute_bound_batch: int | None = None
    pools: PoolsUse | None = None
    seats: SeatsUse | None = None
    experts: ExpertsUse | None = None
    # both
    run_time_s: float | None = None
    accelerator_hours: float | None = None
    memory: MemoryUse
    where: Later[Where] | None = None
    confidence: Confidence | None = None
    interval: tuple[float, float] | None = None
    what_if: tuple[WhatIf, ...] = ()
    faults: FaultsUse | None = None
    defaults: tuple[str, ...] = ()
    assumptions: tuple[str, ...] = ()
    price: Price | None = None
    objective: Objective | None = None
    origin: Scenario | None = field(default=None, repr=False, compare=False)
    energy_of: Callable[[], EnergyUse | None] | None = field(default=None, repr=False, compare=False)
    turns_of: Callable[[], tuple[str, ...]] | None = field(default=None, repr=False, compare=False)

    @property
    def output_tokens_per_s_per_user(self) -> float | None:
        """How fast one request's output grows: 1 / TPOT; None where nothing follows a first token."""
        return 1.0 / self.tpot_s if self.tpot_s else None

    @property
    def breakdown(self) -> Cost | None:
        """The tree of costs; None where there are no times."""
        return self.where.value.breakdown if self.where else None

    @property
    def phases(self) -> Mapping[str, Cost]:
        """The trees of a request's phases by name; empty for training, and where there are no times."""
        return self.where.value.phases if self.where else {}

    @property
    def bound_by(self) -> str:
        """What binds the time, in words; empty where there are no times."""
        return self.where.value.bound_by if self.where else ""

    @property
    def energy(self) -> EnergyUse | None:
        """What the accelerators draw, computed when asked for; None where it is not modelled, or there are no times."""
        return self.energy_of() if self.energy_of and self.where else None

    @property
    def shares_links_by_turns(self) -> tuple[str, ...]:
        """Axis and operation of messages whose sends share links in ways that closed forms do not follow, worked out
        when asked for; nearer there: ``network: flow``.
        """
        return self.turns_of() if self.turns_of and self.where else ()

    @property
    def scenario(self) -> Mapping[str, Any]:
        """The resolved input, every number filled in."""
        return self.origin.to_mapping() if self.origin else {}

    @property
    def hash(self) -> str:
        """Name of the resolved input: same scenario, same hash, same answer."""
        return self.origin.hash if self.origin else ""

    @property
    def version(self) -> str:
        """Version of the package that answered."""
        return __version__

    def _repr_html_(self) -> str:
        """How a notebook shows the report."""
        from rapid_llm.predict.pictures import report_html

        return report_html(self)

    def to_pandas(self) -> DataFrame:
        """The breakdown as a table: a row a node, with its path, seconds, hidden seconds and bound.

        Of a report without times, as ``fit`` gives, the memory: a row a stage and category, with its bytes at the peak.
        """
        import pandas as pd

        if self.breakdown is None and self.origin is not None:
            from rapid_llm.predict.fitting import by_stage

            return pd.DataFrame(list(by_stage(self.origin)), columns=["stage", "category", "bytes"])
        rows = list(_walk(self.breakdown, ())) if self.breakdown else []
        return pd.DataFrame(rows, columns=["path", "seconds", "hidden_seconds", "bound"])

    def to_dict(self) -> dict[str, Any]:
        """The answer as plain values, keys as in DESIGN section 5."""
        own = {f.name: plain_value(getattr(self, f.name)) for f in fields(self) if f.name not in _BEHIND}
        return {
            **own,
            "bound_by": self.bound_by,
            "output_tokens_per_s_per_user": self.output_tokens_per_s_per_user,
            "breakdown": plain_value(self.breakdown),
            "phases": plain_value(self.phases),
            "energy": plain_value(self.energy),
            "shares_links_by_turns": list(self.shares_links_by_turns),
            "scenario": dict(self.scenario),
            "version": self.version,
            "hash": self.hash,
        }


_BEHIND = ("origin", "energy_of", "turns_of", "where")
"""What stands behind an answer, and is not part of it."""


def hours(seconds: float | None, accelerators: int) -> float | None:
    """Accelerator hours of a run; None where the length of the run is not given."""
    return seconds * accelerators / SECONDS_PER_HOUR if seconds else None


_TIMES = (
    "step_time_s", "tokens_per_s", "tokens_per_s_per_accelerator", "mfu", "mfu_causal", "hfu", "ttft_s", "tpot_s",
    "e2e_s", "run_time_s", "accelerator_hours", "output_tokens_per_s", "total_tokens_per_s", "requests_per_s",
    "sound_s_per_s", "where", "interval", "price",
)  # fmt: skip


def without_times(report: Report) -> Report:
    """The report of a scenario that does not fit, or that was asked for memory alone."""
    empty: dict[str, Any] = dict.fromkeys(_TIMES)
    return replace(report, **empty)


def _walk(cost: Cost, above: tuple[str, ...]) -> Iterator[tuple[str, float, float, str]]:
    path = (*above, cost.name)
    yield " / ".join(path), cost.seconds, cost.hidden_seconds, cost.bound
    for child in cost.children:
        yield from _walk(child, path)


def plain_value(value: Any) -> Any:
    """Dataclasses, mappings and tuples as dictionaries and lists."""
    if is_dataclass(value) and not isinstance(value, type):
        return {f.name: plain_value(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, StageMemory):
        return value._asdict()
    if isinstance(value, Mapping):
        return {key: plain_value(item) for key, item in value.items()}
    if isinstance(value, (tuple, list)):
        return [plain_value(item) for item in value]
    return value
