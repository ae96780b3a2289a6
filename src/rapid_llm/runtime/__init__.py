"""How software executes: kernels, fusion, graph capture, overlap, host cost, allocator."""

from rapid_llm.runtime.catalogue import USUAL, load, names, runs_on, sources, usual
from rapid_llm.runtime.software import (
    Allocator,
    Communication,
    Comparing,
    Defaults,
    Host,
    HostExperts,
    Kernels,
    Overlap,
    PerPhase,
    Runtime,
    Serving,
    Training,
)

__all__ = [
    "USUAL",
    "Allocator",
    "Communication",
    "Comparing",
    "Defaults",
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
]
