"""Accelerators, nodes and systems, from datasheets and a few measurements; ``data/`` holds one device a file."""

from rapid_llm.hardware.accelerator import (
    Accelerator,
    Clocks,
    Memory,
    MemoryLevel,
    Power,
    ScaleUp,
    Sustained,
)
from rapid_llm.hardware.catalogue import (
    accelerator,
    accelerator_names,
    alone,
    build_accelerator,
    build_system,
    entry,
    sources,
    system,
    system_names,
    typical,
)
from rapid_llm.hardware.system import (
    LinkUse,
    Node,
    NodeGroup,
    ScaleOutFabric,
    ScaleUpFabric,
    System,
    shared_racks,
)

__all__ = [
    "Accelerator",
    "Clocks",
    "LinkUse",
    "Memory",
    "MemoryLevel",
    "Node",
    "NodeGroup",
    "Power",
    "ScaleOutFabric",
    "ScaleUp",
    "ScaleUpFabric",
    "Sustained",
    "System",
    "accelerator",
    "accelerator_names",
    "alone",
    "build_accelerator",
    "build_system",
    "entry",
    "shared_racks",
    "sources",
    "system",
    "system_names",
    "typical",
]
