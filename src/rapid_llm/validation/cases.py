"""A case: one measured figure, the scenario that should reproduce it, and what a naive model says of it."""

import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

Split = Literal["fit", "unseen"]


class Skip(Exception):  # noqa: N818 - it is an outcome of reading a row, not an error
    """This row cannot be a case; the message is the reason that the scorecard counts."""


@dataclass(frozen=True, slots=True)
class Baseline:
    """What a naive model predicts for a case, in the unit of its measurement.

    ``constant`` names the rows that share one fitted factor (chosen in-sample to minimise their MAPE, the best that
    such a model can do); None takes the prediction as it is.
    """

    prediction: float
    constant: str | None = None


@dataclass(slots=True)
class Reading:
    """What a row is read into, step by step: a Skip on the way leaves what was read before, and the reason for it."""

    measured: float = 0.0
    scenario: Mapping[str, Any] | None = None
    baselines: Mapping[str, Baseline] = field(default_factory=dict)
    reason: str = ""

    def fields(self) -> dict[str, Any]:
        """The fields of a case that it gives."""
        return {name: getattr(self, name) for name in ("measured", "scenario", "baselines", "reason")}


@contextmanager
def reading() -> Iterator[Reading]:
    """A reading for the steps of a ``with`` block, which a Skip ends: then there is no scenario."""
    found = Reading()
    try:
        yield found
    except Skip as skip:
        found.scenario, found.reason = None, str(skip)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One figure of one suite.

    ``key`` is what the split rule hashes, and cases of one key are ranked among each other; ``quantity`` names the
    reading of a report that ``measured`` (SI) is compared with; ``reason`` says why there is no scenario. A group whose
    cases are not ``headline`` is shown beside the mean over groups, not in it. Answers quote no errors of cases that
    are not ``quoted``: measurements of machines with known faults. ``answer`` gives the figure itself where no whole
    scenario is needed, as for one kernel or one collective.
    """

    suite: str
    group: str
    metric: str
    id: str
    key: str
    quantity: str
    measured: float
    scenario: Mapping[str, Any] | None
    reason: str = ""
    headline: bool = True
    quoted: bool = True
    baselines: Mapping[str, Baseline] = field(default_factory=dict)
    answer: Callable[[], float] | None = None

    @property
    def split(self) -> Split:
        """The side of the split rule that this case falls on."""
        return split_of(self.key)


NEVER_FITTED = frozenset(
    {
        "uci-a100",
        "H800_SXM/DeepSeek internal/DeepSeek-V3/R1/fp8/tp1",
        "2x4 H100 (unnamed cloud)/all_reduce",
        "2x1 H100 NDR/all_reduce",
        "8x A100 NVLink3/send_recv",
        "dgxc/llama-3.1-8b",
        "dgxc/llama-3.1-70b",
        "dgxc/llama-3.1-405b",
        "dgxc/gpt-175b",
        "flagperf",
    }
)
"""Keys that may hash to ``fit`` but are the only group of their source, so that nothing would be left to score a fit
on, or were found when all constants stood."""


def split_of(key: str) -> Split:
    """The fixed split rule: crc32 of the group key, even is ``fit`` (constants may be fitted on it), odd ``unseen``.

    A source with a single group is never fitted.
    """
    return "unseen" if zlib.crc32(key.encode()) % 2 or key in NEVER_FITTED else "fit"
