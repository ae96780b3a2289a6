"""The noun of a runtime: one framework or engine with all that a prediction needs of it."""

from typing import Literal

from pydantic.dataclasses import dataclass

from rapid_llm.model.architecture import ModelKind
from rapid_llm.nouns import STRICT, hash_once
from rapid_llm.runtime.software import (
    Allocator,
    Communication,
    Defaults,
    Host,
    HostExperts,
    Kernels,
    Overlap,
    Serving,
)
from rapid_llm.runtime.training import Training


@hash_once
@dataclass(frozen=True, kw_only=True, config=STRICT)
class Runtime:
    """How software executes. ``fusions`` are runs of canonical operators that become one launch.

    ``fused_experts``: one kernel family runs permute, both expert GEMMs, activation and unpermute. ``runs_on``: vendors
    of accelerators, or architectures where it runs on some of a vendor's alone; empty: anything. ``runs_models``: kinds
    of models that it has an implementation of.
    """

    name: str
    version: str
    workload: Literal["training", "inference"]
    runs_on: tuple[str, ...] = ()
    runs_models: tuple[ModelKind, ...] = ("decoder",)
    kernels: Kernels
    fusions: tuple[tuple[str, ...], ...] = ()
    fused_experts: bool = False
    host: Host
    overlap: Overlap = Overlap()
    communication: Communication
    allocator: Allocator
    defaults: Defaults
    training: Training | None = None
    serving: Serving | None = None
    host_experts: HostExperts | None = None

    @property
    def runs_layers_on_host(self) -> bool:
        """Whether layers whose weights are left to the host run there."""
        return self.host_experts is not None and self.host_experts.layers > 0
