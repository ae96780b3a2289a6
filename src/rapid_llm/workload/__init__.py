"""What is asked of the cluster: a training job or an inference batch."""

from rapid_llm.workload.counts import read_counts
from rapid_llm.workload.jobs import (
    ONE_LAYER_DRAFTS,
    RECOMPUTED,
    HostShare,
    Images,
    Inference,
    Lora,
    Offload,
    Recompute,
    Speculation,
    Training,
    Workload,
)
from rapid_llm.workload.points import KV_TILE_TOKENS, Points, decode_points, join, points_of, prefill_points
from rapid_llm.workload.routing import BY_CHANCE, NATURAL_SKEW, Routing, misplaced, scattered_load

__all__ = [
    "BY_CHANCE",
    "KV_TILE_TOKENS",
    "NATURAL_SKEW",
    "ONE_LAYER_DRAFTS",
    "RECOMPUTED",
    "HostShare",
    "Images",
    "Inference",
    "Lora",
    "Offload",
    "Points",
    "Recompute",
    "Routing",
    "Speculation",
    "Training",
    "Workload",
    "decode_points",
    "join",
    "misplaced",
    "points_of",
    "prefill_points",
    "read_counts",
    "scattered_load",
]
