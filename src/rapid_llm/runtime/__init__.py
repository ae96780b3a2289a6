"""How software executes: kernels, fusion, graph capture, overlap, host cost, allocator."""

from rapid_llm.runtime.catalogue import load, names, sources
from rapid_llm.runtime.software import (
    Allocator,
    Communication,
    Comparing,
    Defaults,
    Host,
    Kernels,
    Overlap,
    PerPhase,
    Runtime,
    Serving,
    Training,
)

__all__ = [
    "Allocator",
    "Communication",
    "Comparing",
    "Defaults",
    "Host",
    "Kernels",
    "Overlap",
    "PerPhase",
    "Runtime",
    "Serving",
    "Training",
    "load",
    "names",
    "sources",
]
