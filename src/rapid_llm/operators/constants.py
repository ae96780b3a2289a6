"""The fitted numbers of a kernel on an architecture of accelerators, at most seven a family: times, and shares of what
the accelerator sustains.
"""

from pydantic.dataclasses import dataclass

from rapid_llm.nouns import STRICT
from rapid_llm.units import Fraction, NonNegative, Positive, Seconds


@dataclass(frozen=True, kw_only=True, config=STRICT)
class GemmConstants:
    """``setup`` beyond the launch floor (s); ``rate``, ``bandwidth`` reachable shares of peak and of sustained HBM.

    ``step``: least time of one k-step of a tile, the latency of its loads over the stages in flight (s); ``epilogue``:
    cycles in which a compute unit writes 64 bytes of its output that nothing hides; ``overlap``: p of the norm that
    joins compute and memory; ``split``: cost of the reduction pass of split-K (s); ``row``: cost of one activation row
    in the kernel's own quantise pass (s).
    """

    setup: Seconds
    rate: Fraction
    bandwidth: Fraction
    step: Seconds
    epilogue: NonNegative
    overlap: Positive
    split: Seconds = 0.0
    row: Seconds = 0.0


@dataclass(frozen=True, kw_only=True, config=STRICT)
class ContextConstants:
    """``softmax``: what one score takes beside its products, in exponentials (a compute unit has 16 a clock,
    FlashAttention-3, 3.1); ``item``: prologue and epilogue of one query tile (s); ``token``: time of a compute unit to
    write one token into the cache (s); ``spill``: share of ``rate`` that the largest of ``spilling`` reaches;
    ``backward_rate``: share of peak of the backward pass, None for a kernel that no training runs.
    """

    setup: Seconds
    rate: Fraction
    bandwidth: Fraction
    item: Seconds
    overlap: Positive = 4.0
    softmax: NonNegative = 0.0
    token: Seconds = 0.0
    spill: Fraction = 0.7
    backward_rate: Fraction | None = None


@dataclass(frozen=True, kw_only=True, config=STRICT)
class DecodeConstants:
    """``item``: fixed time of one work item, a KV head of a sequence (s), ``lone_item`` of one whose query heads run
    alone, at ``lone_rate`` of the vector instructions that a unit issues (``Rates.issued``); ``combine``: pass that
    joins splits (s); ``occupancy``: exponent of the share of units in use.
    """

    setup: Seconds
    rate: Fraction
    bandwidth: Fraction
    item: Seconds
    combine: Seconds
    lone_item: Seconds = 0.0
    lone_rate: Fraction = 0.12
    occupancy: NonNegative = 0.0
    overlap: Positive = 4.0


@dataclass(frozen=True, kw_only=True, config=STRICT)
class MoeConstants:
    """``expert``: cost of each expert that has tokens (s); ``row_passes``, ``token_passes``: hidden-size passes to
    permute and to combine, per token-expert pair and per scanned token; ``pair``: to sort one pair by expert (s).
    """

    setup: Seconds
    rate: Fraction
    bandwidth: Fraction
    expert: Seconds
    row_passes: NonNegative
    token_passes: NonNegative
    pair: Seconds


@dataclass(frozen=True, kw_only=True, config=STRICT)
class TiledMoeConstants:
    """``fill``: time in which one compute unit gets 1 KiB of its tiles' operands (s); ``step``: least time of a k-step,
    the latency of its loads; ``tile``: prologue and epilogue of one tile (s); ``passes``: share of sustained HBM of the
    activations between the GEMMs.
    """

    setup: Seconds
    rate: Fraction
    bandwidth: Fraction
    fill: Seconds
    step: Seconds
    tile: Seconds
    passes: Fraction


@dataclass(frozen=True, kw_only=True, config=STRICT)
class ScanConstants:
    """``chunk``: serial time of one chunk (s); ``ramp``: what a first chunk takes beyond its first token (s);
    ``turn``: time of a unit for a chunk of one item, or of a fused kernel between two items (s); ``bandwidth`` of the
    tokens, ``decode_bandwidth`` of states, shares of sustained HBM.
    """

    setup: Seconds
    bandwidth: Fraction
    chunk: Seconds
    decode_setup: Seconds
    decode_bandwidth: Fraction
    ramp: Seconds = 0.0
    turn: Seconds = 0.0


@dataclass(frozen=True, kw_only=True, config=STRICT)
class ConvolutionConstants:
    """``launch``, ``decode_launch``: what comes before the first block and after the last, in launch floors of the
    accelerator, which are those of products: a light block, without shared memory to set up, starts sooner; ``ramp``:
    what a block waits for one chunk of tokens and those before it (s); ``turn``: time of a compute unit for one block
    of a prompt, ``decode_turn`` for one of the update (s); ``bandwidth``, ``decode_bandwidth``: shares of sustained
    HBM.
    """

    launch: Positive
    ramp: Seconds
    turn: Seconds
    bandwidth: Fraction
    decode_launch: Positive
    decode_turn: Seconds
    decode_bandwidth: Fraction


@dataclass(frozen=True, kw_only=True, config=STRICT)
class PointwiseConstants:
    """Shares of sustained HBM by access pattern, and the cost beyond the launch floor (s)."""

    setup: Seconds
    stream: Fraction
    reduce: Fraction
    gather: Fraction
    optimizer: Fraction
