"""What a job uses: memory of its ranks, pools of accelerators, places of its stages, energy. SI units throughout."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple


class StageMemory(NamedTuple):
    """Bytes on one rank of a pipeline stage, ``reserved_bytes`` without context and libraries; ``limit_bytes``: what
    the process may use."""

    persistent_bytes: int
    allocated_bytes: int
    reserved_bytes: int
    peak_bytes: int
    limit_bytes: int = 0


@dataclass(frozen=True, slots=True)
class CacheUse:
    """What an engine's cache holds on one replica.

    ``terms`` sum to ``room_bytes``; ``sequences`` of ``length`` tokens fit at once.
    """

    room_bytes: int
    blocks: int
    block_tokens: int
    block_bytes: int
    tokens: int
    length: int
    sequences: int
    terms: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class MemoryUse:
    """Bytes on the fullest rank. The categories sum to the peak.

    ``limit_bytes``: what a process may use of the capacity; ``stages``: a rank of every pipeline stage; ``verdict``
    (fits, fits narrowly, does not fit) with its ``probability`` of fitting, from measured runs; ``cache`` of an engine;
    ``host_bytes`` of the rank live outside the accelerator. ``displaced_bytes`` of messages' tensors find no room, so
    that the allocator empties its cache in every pass.
    """

    persistent_bytes: int
    allocated_bytes: int
    peak_bytes: int
    capacity_bytes: int
    by_category: Mapping[str, int]
    rank: int
    stage: int
    reserved_bytes: int = 0
    limit_bytes: int = 0
    stages: tuple[StageMemory, ...] = ()
    verdict: str = ""
    probability: float | None = None
    cache: CacheUse | None = None
    host_bytes: int = 0
    displaced_bytes: int = 0

    @property
    def fits(self) -> bool:
        """Whether the fullest rank stays within what it may use."""
        return self.verdict != "does not fit"


@dataclass(frozen=True, slots=True)
class PoolUse:
    """One pool of a disaggregated job: requests/s that it can run (None where the other pools leave it nothing to do),
    and the share of them that it runs.
    """

    accelerators: int
    replicas: int
    requests_per_s: float | None
    utilisation: float
    memory: MemoryUse


@dataclass(frozen=True, slots=True)
class HalvesUse:
    """Decode between a pool of attention (``decode``) and one of feed-forward parts (``ffn``).

    ``micro_batches`` alternate between them; ``attention_s``, ``ffn_s``, ``transfer_s``: of one in one step, over all
    layers, transfers one way. ``binds``: attention, ffn, transfer, or latency of one micro-batch where there are too
    few; ``balanced_replicas`` of attention keep the other pool as busy as themselves, 0 where one is too many.
    """

    accelerators: int
    memory: MemoryUse
    micro_batches: int
    attention_s: float
    ffn_s: float
    transfer_s: float
    binds: str
    balanced_replicas: float


@dataclass(frozen=True, slots=True)
class PoolsUse:
    """Prefill and decode pools, and the cache between them.

    ``limited_by``: the pool with the lower rate; ``decode_per_prefill``: decode replicas that keep up with one prefill
    replica; ``wait_s``: of a request before its prefill; ``transfer``: of one request's cache, ``exposed`` of it before
    its second token.
    """

    prefill: PoolUse
    decode: PoolUse
    limited_by: str
    decode_per_prefill: float
    running_per_decode_replica: float
    wait_s: float
    transfer_bytes: int
    transfer_s: float
    transfer_exposed_s: float
    ffn: HalvesUse | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EnergyUse:
    """What the accelerators draw; hosts, network and cooling come on top. ``mean_power_w``: of all accelerators;
    ``uncertainty``: relative error of measured runs.
    """

    joules_per_step: float | None = None
    joules_per_output_token: float | None = None
    joules_per_request: float | None = None
    run_joules: float | None = None
    mean_power_w: float
    mean_power_w_per_accelerator: float
    limit_w_per_accelerator: float
    uncertainty: float


@dataclass(frozen=True, slots=True)
class StageSeat:
    """Where a pipeline stage runs on unlike groups of nodes: the groups and accelerators that its ranks wait for.
    ``layers``; seconds of a micro-batch, and those of its messages to other stages; bytes of a rank, and what it may
    use.
    """

    groups: tuple[str, ...]
    accelerators: tuple[str, ...]
    layers: int
    forward_s: float
    backward_s: float
    send_s: float
    peak_bytes: int
    limit_bytes: int


@dataclass(frozen=True, slots=True)
class SeatsUse:
    """The stages of a job on unlike groups of nodes, and the stage that the others wait for. ``pipelines``: how many of
    its pipelines differ; stages are those of the pipeline that the step waits for, ``waiting`` the groups that only
    other pipelines run on. ``balanced``: layers of each stage with which stages take equally long and fit, and the step
    time then over that of the job (None where nothing is gained).
    """

    stages: tuple[StageSeat, ...]
    pacing_stage: int
    pipelines: int
    waiting: tuple[str, ...] = ()
    balanced_layers_per_stage: tuple[int, ...] | None = None
    balanced_time_ratio: float | None = None
