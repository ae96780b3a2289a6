"""The noun that a prediction takes: everything that a user typed, resolved."""

import hashlib
import json
from collections.abc import Callable, Mapping
from functools import cached_property, lru_cache
from typing import Any, Literal

from pydantic.dataclasses import dataclass

from rapid_llm.documents import plain
from rapid_llm.dtypes import Precision
from rapid_llm.hardware import System
from rapid_llm.hardware.health import Fault
from rapid_llm.model import Model
from rapid_llm.model.halves import attention_half, feed_forward_half
from rapid_llm.nouns import STRICT, FrozenDict, Map, hash_once, replaced
from rapid_llm.parallelism import Parallelism, Placement
from rapid_llm.provenance import Source
from rapid_llm.runtime import Runtime
from rapid_llm.units import Count, Positive
from rapid_llm.workload import Workload


@dataclass(frozen=True, kw_only=True, config=STRICT)
class Draft:
    """A smaller model that drafts tokens for speculation, on ``tp`` accelerators of every replica."""

    model: Model
    precision: Precision
    tp: Count = 1


@dataclass(frozen=True, kw_only=True, config=STRICT)
class Pool:
    """Accelerators that run one phase of every request: where they are, under which plan, with which software."""

    system: System
    accelerators: Count
    runtime: Runtime
    parallelism: Parallelism
    precision: Precision
    price_per_hour: Positive | None = None


@dataclass(frozen=True, kw_only=True, config=STRICT)
class Pools:
    """Prefill and decode on accelerators of their own (disaggregation).

    ``transfer`` of a prompt's cache between them: layerwise, each layer's as soon as it is computed, or whole, behind
    the prefill. ``link``: a technology that joins the pools; none: the network of each. ``ffn``: accelerators that run
    the feed-forward parts of decode, so that those of ``decode`` run its attention, in ``micro_batches`` that alternate
    between both (none: the fastest number).
    """

    prefill: Pool
    decode: Pool
    ffn: Pool | None = None
    transfer: Literal["layerwise", "whole"] = "layerwise"
    link: str | None = None
    micro_batches: Count | None = None

    @property
    def all(self) -> tuple[Pool, ...]:
        """The pools that there are."""
        return (self.prefill, self.decode, *([self.ffn] if self.ffn else []))

    @property
    def accelerators(self) -> int:
        """Accelerators of all pools."""
        return int(sum(pool.accelerators for pool in self.all))


@hash_once
@dataclass(frozen=True, kw_only=True, config=STRICT)
class Scenario:
    """A resolved scenario: model x system x plan x workload.

    With ``pools`` the scenario's own system, plan and software are those of the decode pool. ``draft``: the model that
    drafts tokens. ``price_per_hour``: of one accelerator, in any currency.

    ``parallelism`` and ``workload`` have no field left to a default. ``defaults`` are the choices that the user did not
    make, as sentences; ``written`` is the plan as the user wrote it, None where left open; ``origins`` maps model,
    system and runtime to the catalogue names that they came from.
    """

    model: Model
    system: System
    accelerators: Count
    runtime: Runtime
    parallelism: Parallelism
    placement: Placement = Placement()
    precision: Precision
    workload: Workload
    network: Literal["closed-form", "flow"] = "closed-form"
    faults: tuple[Fault, ...] = ()
    draft: Draft | None = None
    pools: Pools | None = None
    price_per_hour: Positive | None = None
    defaults: tuple[str, ...] = ()
    written: Parallelism | None = None
    origins: Map[str] = FrozenDict()

    def to_mapping(self) -> dict[str, Any]:
        """The resolved input as plain data with every number; ``from_mapping`` reads it back."""
        return {
            "model": _noun(self.model),
            "system": system_mapping(self.system),
            "accelerators": self.accelerators,
            "runtime": _noun(self.runtime),
            "parallelism": plain(self.parallelism),
            "placement": _placed(self.placement),
            "precision": _noun(self.precision),
            "workload": plain(self.workload),
            "network": self.network,
            "faults": [_given(fault) for fault in self.faults],
            **({"draft": _part(self.draft)} if self.draft else {}),
            **({"pools": _pools(self.pools)} if self.pools else {}),
            **({"price_per_hour": self.price_per_hour} if self.price_per_hour else {}),
        }

    @cached_property
    def hash(self) -> str:
        """SHA-256 over the canonical JSON of ``to_mapping``; twelve hex digits name a scenario."""
        text = json.dumps(self.to_mapping(), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()

    @property
    def sources(self) -> Mapping[str, Source]:
        """Dotted path of each number of the model, the system and the runtime to its source."""
        from rapid_llm import hardware, model, runtime

        readers: dict[str, Callable[[str], Mapping[str, Source]]] = {
            "model": lambda name: model.document(name)[1],
            "system": lambda name: hardware.sources("system", name),
            "runtime": lambda name: runtime.sources(runtime.written(name, self.workload.kind)),
        }
        return {
            f"{slot}.{path}": source
            for slot, name in self.origins.items()
            for path, source in readers[slot](name).items()
        }


POOLED = ("system", "accelerators", "runtime", "parallelism", "precision", "price_per_hour")
"""Fields of a scenario that each of its pools has its own of."""


def pool_scenario(scenario: Scenario, phase: Literal["prefill", "decode", "ffn"]) -> Scenario:
    """The scenario of one pool alone; with one for feed-forward parts, each has its half of the model."""
    assert scenario.pools is not None
    pool: Pool = getattr(scenario.pools, phase)
    half = attention_half if phase == "decode" and scenario.pools.ffn else _HALF.get(phase)
    own = {"model": half(scenario.model)} if half else {}
    return replaced(scenario, pools=None, **own, **{name: getattr(pool, name) for name in POOLED})


_HALF: Mapping[str, Callable[[Model], Model]] = {"ffn": feed_forward_half}


def _given(fault: Fault) -> dict[str, Any]:
    """The fields of a fault that are set."""
    return {name: value for name, value in plain(fault).items() if value is not False}


def _placed(placement: Placement) -> dict[str, Any]:
    """The fields of a placement that are set."""
    return {name: value for name, value in plain(placement).items() if value}


def _part(noun: Draft | Pool) -> dict[str, Any]:
    """A draft or a pool as a scenario file writes it."""
    given = {name: getattr(noun, name) for name in noun.__dataclass_fields__ if name != "system"}
    found = {name: _noun(value) for name, value in given.items() if value is not None}
    return {**found, "system": system_mapping(noun.system)} if isinstance(noun, Pool) else found


def _pools(pools: Pools) -> dict[str, Any]:
    said = {"link": pools.link, "micro_batches": pools.micro_batches, "ffn": pools.ffn and _part(pools.ffn)}
    given = {name: value for name, value in said.items() if value}
    return {"prefill": _part(pools.prefill), "decode": _part(pools.decode), "transfer": pools.transfer, **given}


@lru_cache(maxsize=256)
def _noun(noun: Any) -> Any:
    return plain(noun)


@lru_cache(maxsize=64)
def system_mapping(system: System) -> dict[str, Any]:
    """A system as its YAML file writes it: name, node, nodes, fabric; or groups of nodes, and links between them."""
    data: dict[str, Any] = plain(system)
    groups, links = data.pop("groups"), data.pop("links")
    if len(groups) == 1:
        return {**data, "node": groups[0]["node"], "nodes": groups[0]["count"]}
    written = [
        {"name": g["name"], "node": g["node"], "nodes": g["count"], **{k: g[k] for k in ("fabric",) if k in g}}
        for g in groups
    ]
    return {**data, "groups": written, **({"links": links} if links else {})}
