"""A scenario as a user writes it: nouns by name, path or mapping, and what may be left out."""

from dataclasses import field
from typing import Any, Literal

from pydantic.dataclasses import dataclass

from rapid_llm.hardware.health import Fault
from rapid_llm.nouns import STRICT
from rapid_llm.parallelism import Parallelism, Placement
from rapid_llm.scenario.named import DraftInput
from rapid_llm.units import Count, Positive
from rapid_llm.workload import Workload


@dataclass(frozen=True, kw_only=True, config=STRICT)
class PoolInput:
    """One pool of a disaggregated job; fields that are left out are those of the scenario, except the number of
    accelerators.
    """

    system: str | dict[str, Any] | None = None
    accelerators: Count | None = None
    runtime: str | dict[str, Any] | None = None
    parallelism: dict[str, Any] = field(default_factory=dict)
    precision: str | dict[str, Any] | None = None
    price_per_hour: Positive | None = None


@dataclass(frozen=True, kw_only=True, config=STRICT)
class PoolsInput:
    """Prefill and decode on accelerators of their own, and how the cache is sent from one to the other."""

    prefill: PoolInput
    decode: PoolInput
    ffn: PoolInput | None = None
    transfer: Literal["layerwise", "whole"] = "layerwise"
    link: str | None = None
    micro_batches: Count | None = None


@dataclass(frozen=True, kw_only=True, config=STRICT)
class Input:
    """A scenario as a user writes it."""

    model: str | dict[str, Any]
    system: str | dict[str, Any]
    workload: Workload
    accelerators: Count | None = None
    runtime: str | dict[str, Any] | None = None
    parallelism: Parallelism = Parallelism()
    placement: Placement = Placement()
    precision: str | dict[str, Any] | None = None
    network: Literal["closed-form", "flow"] = "closed-form"
    faults: tuple[Fault, ...] = ()
    draft: str | DraftInput | None = None
    pools: PoolsInput | None = None
    price_per_hour: Positive | None = None
    base: str | None = None
