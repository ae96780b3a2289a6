"""How software executes: kernels, fusion, graph capture, overlap, host cost, allocator."""

from rapid_llm.runtime.catalogue import USUAL, load, names, runs_on, sources, usual, written
from rapid_llm.runtime.runtime import Runtime
from rapid_llm.runtime.software import (
    EXCHANGES,
    Allocator,
    Communication,
    Comparing,
    Defaults,
    Exchange,
    Host,
    HostExperts,
    Kernels,
    Overlap,
    PerPhase,
    Serving,
)
from rapid_llm.runtime.training import Training

__all__ = [
    "EXCHANGES",
    "USUAL",
    "Allocator",
    "Communication",
    "Comparing",
    "Defaults",
    "Exchange",
    "Host",
    "HostExperts",
    "Kernels",
    "Overlap",
    "PerPhase",
    "Runtime",
    "Serving",
    "Training",
    "load",
    "names",
    "runs_on",
    "sources",
    "usual",
    "written",
]
