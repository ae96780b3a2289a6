"""How a job is cut over ranks."""

from typing import Annotated, Final, Literal, get_args

from pydantic import BeforeValidator
from pydantic.dataclasses import dataclass

from rapid_llm.nouns import STRICT, hash_once
from rapid_llm.runtime import Exchange
from rapid_llm.units import Count, Whole

Axis = Literal["tp", "cp", "ep", "dp", "pp"]
AXES: Final[tuple[Axis, ...]] = ("tp", "cp", "ep", "dp", "pp")
_OTHERWISE: Final = {
    "p2p": "ring",
    "all_gather": "all-gather",
    "allgather": "all-gather",
    "a2a": "ulysses",
    "a2a+p2p": "hybrid",
}
"""What Megatron-Core and PyTorch call the ways to exchange a sequence."""
Schedule = Literal[
    "gpipe",
    "1f1b",
    "interleaved",
    "breadth-first",
    "zb-h1",
    "zb-h2",
    "zb-v",
    "dualpipe",
    "dualpipe-v",
    "pipedream-2bw",
]
SCHEDULES: Final[tuple[Schedule, ...]] = get_args(Schedule)
FOLDED: Final[tuple[Schedule, ...]] = ("zb-v", "dualpipe-v")
"""Schedules whose stages hold two parts of the model each, in a V: the last part is on the first stage."""
TWO_WAY: Final[tuple[Schedule, ...]] = ("dualpipe",)
"""Schedules whose micro-batches enter at both ends: stages hold their part and that of the stage they mirror."""


def _exchange(written: object) -> object:
    """Names of Megatron-Core (``cp_comm_type``) and PyTorch (``rotate_method``) are understood."""
    return _OTHERWISE.get(written, written) if isinstance(written, str) else written


@hash_once
@dataclass(frozen=True, kw_only=True, config=STRICT)
class Parallelism:
    """Degrees of the parallel axes. tp x pp x cp x dp = accelerators; dp is what is left over.

    ``etp`` is the tensor degree of the experts (etp x ep divides tp x cp x dp), ``vpp`` the model chunks per pipeline
    stage, ``dp_shard`` the ranks over which ZeRO shards (default dp). ``exchange`` of the cp ranks: keys and values go
    round a ring beside attention (p2p), or are gathered before it (all-gather), or heads are exchanged for sequence
    round the attention core (ulysses, a2a: arXiv 2309.14509), or that in groups of ``ulysses`` ranks, of which cp /
    ulysses form a ring (hybrid, a2a+p2p).
    ``layers_per_stage`` deals the layers by hand, none to a stage of the embedding or the head alone. ``shift``: passes
    of inference for which that is faster, decode steps always, run with the cp ranks as further tp ranks on the same
    cache (Shift Parallelism of Arctic Inference). ``helix``: in decode the cp ranks share the tokens of the cache, and
    everything but attention is cut over tp x cp ranks (arXiv 2507.07120, where tp is TPA and cp is KVP). A field left
    as None takes the runtime's default.
    """

    tp: Count = 1
    pp: Count = 1
    cp: Count = 1
    ep: Count = 1
    etp: Count | None = None
    vpp: Count = 1
    dp: Count | None = None
    sp: bool | None = None
    zero_stage: Literal[0, 1, 2, 3] | None = None
    dp_shard: Count | None = None
    exchange: Annotated[Exchange | None, BeforeValidator(_exchange)] = None
    ulysses: Count = 1
    shift: bool = False
    helix: bool = False
    layers_per_stage: tuple[Whole, ...] = ()
    schedule: Schedule | None = None

    @property
    def kvp(self) -> int:
        """Ranks of tensor parallelism that share the tokens of a cache: those of cp under Helix."""
        return self.cp if self.helix else 1


@dataclass(frozen=True, kw_only=True, config=STRICT)
class Placement:
    """The order in which axes fill the accelerators, innermost first.

    ``stages``: the group of nodes on which each pipeline stage sits, by its name; left out, ranks fill the groups of a
    system in their order.
    """

    order: tuple[Axis, ...] = AXES
    stages: tuple[str, ...] = ()
