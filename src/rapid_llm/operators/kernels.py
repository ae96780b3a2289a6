"""Kernel implementations: structure, and fitted numbers (``constants``) per architecture of accelerators.

A kernel is one file in ``data/``. Its numbers are shared by every accelerator of an architecture and by training and
inference; what differs between two accelerators of one architecture stands in the accelerator (``sustained``).
"""

from dataclasses import fields
from functools import lru_cache
from typing import Any, Final, Literal

from pydantic.dataclasses import dataclass

from rapid_llm.documents import build
from rapid_llm.dtypes import DtypeName
from rapid_llm.nouns import STRICT, FrozenDict, Map, hash_once, replaced
from rapid_llm.operators.constants import (
    ContextConstants,
    ConvolutionConstants,
    DecodeConstants,
    GemmConstants,
    MoeConstants,
    PointwiseConstants,
    ScanConstants,
    TiledMoeConstants,
)
from rapid_llm.provenance import Catalogue, Sources
from rapid_llm.units import Bytes, BytesPerSecond, Count, NonNegative, Positive, Seconds

KERNELS: Final = Catalogue("rapid_llm.operators", "data", "kernel")

NEAREST: Final[dict[str, tuple[str, ...]]] = {
    "volta": ("turing", "ampere"), "turing": ("ampere",), "ampere-rtx": ("ampere", "ada"), "ampere": ("ada",),
    "ada": ("ampere",), "blackwell-rtx": ("ada", "ampere"), "hopper": ("blackwell",), "blackwell": ("hopper",),
    "cdna2": ("cdna3", "ampere"), "cdna3": ("ampere",), "cdna4": ("cdna3", "ampere"), "gaudi": ("hopper",),
    "rdna3": ("cdna3", "ampere"),
    "tpu": ("hopper",), "neuron": ("tpu", "hopper"), "xe2": ("ampere",),
    "apple": ("ada", "ampere"), "apple9": ("apple", "ada"),
}  # fmt: skip
"""The architectures whose numbers stand in for one that a kernel was not measured on, the nearest first: those whose
matrix instructions work alike."""

FALLBACK: Final = "hopper"
"""The one for all others."""

FITTED_AT: Final[dict[str, float]] = {"ampere": 1.41e9, "ada": 2.52e9, "hopper": 1.83e9, "blackwell": 1.856e9}
"""Boost clock (Hz) of the accelerator that an architecture's numbers were fitted on. Latencies inside a chip are
cycles: on another clock, of the architecture or of one it stands in for, the seconds change with it."""

Tiles = tuple[tuple[int, int], ...]
ContextTiles = tuple[tuple[Count, Count, Count], ...]
Shapes = tuple[tuple[Count, Count], ...]


@dataclass(frozen=True, kw_only=True, config=STRICT)
class Kernel:
    """One implementation of a family; ``variants``: fields of its structure that differ on an architecture;
    ``computes``: the format whose rate its instructions have, where that is not the row's own (activations may be
    rounded to it beside weights of fewer bits)."""

    name: str
    family: str
    computes: DtypeName | None = None
    variants: Map[Map[bool | int | float | str | ContextTiles | Shapes | tuple[Count, ...]]] = FrozenDict()

    def shaped(self, architecture: str) -> "Kernel":
        """The kernel as it is built for an architecture: its structure with what ``variants`` says differs there.

        An architecture that has neither numbers nor a variant of its own takes both from the one that stands in.
        """
        if not self.variants:
            return self
        likely = architecture if architecture in self.variants else self.stands_in(architecture)
        return _variant(self, likely) if likely in self.variants else self

    def on(self, architecture: str, clock: float | None = None) -> Any:
        """The numbers for an architecture: its own, or those of the nearest one that has any (see ``stands_in``), with
        times as they are at a boost clock (Hz) where one is given."""
        return _numbers(self, architecture, clock)

    @property
    def steady(self) -> tuple[str, ...]:
        """Times that do not follow the clock: waits for memory."""
        return ()

    @property
    def measured(self) -> tuple[str, ...]:
        """Architectures that the kernel has numbers of its own for."""
        return tuple(self.constants)  # type: ignore[attr-defined]

    def stands_in(self, architecture: str) -> str:
        """The architecture whose numbers ``on`` returns; differs from the argument where nothing was measured."""
        known: dict[str, Any] = self.constants  # type: ignore[attr-defined]
        if architecture in known:
            return architecture
        likely = (architecture, *NEAREST.get(architecture, ()), FALLBACK, *known)
        return next(name for name in likely if name in known)


@hash_once
@dataclass(frozen=True, kw_only=True, config=STRICT)
class GemmKernel(Kernel):
    """Tiles (bm, bn) by architecture (``default`` for the others), split-K counts and the step in which k is padded.

    ``quantise``: how often the kernel's own quantise pass reads the 16-bit activations: 1, 2 where it looks for their
    largest value first, 0 without such a pass. ``vector``: most rows that a matrix-vector kernel takes where it is
    faster. ``edges``: where a library takes its tile by rows alone, the most rows of each tile but the last.
    ``turns``: the operands of a weight gradient must be copied the other way round first; instructions that read either
    way need no copy.
    Of kernels with few loads in flight, by architecture: ``draws``, B/s of weights that a compute unit takes at most,
    and ``unpacks``, operations of the vector lanes on each weight. ``expands``: rows above which quantised weights are
    first written out in 16 bits, by a kernel of its own.
    """

    family: Literal["gemm"]
    constants: Map[GemmConstants]
    tiles: Map[tuple[tuple[Count, Count], ...]]
    splits: tuple[Count, ...] = (1,)
    k_step: Count = 64
    quantise: int = 0
    vector: int = 0
    turns: bool = True
    edges: Map[tuple[Count, ...]] = FrozenDict()
    draws: Map[BytesPerSecond] = FrozenDict()
    unpacks: Map[NonNegative] = FrozenDict()
    expands: Count | None = None

    def tiles_on(self, architecture: str) -> Tiles:
        """The tiles that the kernel has on an architecture."""
        return self.tiles.get(architecture) or self.tiles["default"]

    def rows_on(self, architecture: str) -> tuple[tuple[float, float], ...] | None:
        """Rows that each tile serves on an architecture, above the first up to the second number; None: any."""
        edges = self.edges.get(architecture)
        return tuple(zip((0.0, *edges), (*edges, float("inf")), strict=True)) if edges else None


@hash_once
@dataclass(frozen=True, kw_only=True, config=STRICT)
class AttentionKernel(Kernel):
    """A kernel for many queries per sequence; ``decode`` names the kernel that serves one query per
    sequence, ``decode_8bit`` the one of a cache in 8 bits (default: the same); ``cached_8bit``
    the kernel for many queries over such a cache (default: this one).

    ``tiles``: (head size, query rows, KV columns), the first whose head size suffices or else the last; a short
    sequence takes fewer rows, down to ``query_pad``. ``packed``: query heads that share a KV head share a tile;
    ``split_kv``: units left idle take a part of the keys of a tile; ``windowed``: tiles outside a window are skipped,
    not only masked, ``window_rows``: of query rows at most, where the kernel for windows has fewer; ``padded_head``:
    head sizes are padded to a power of two; ``spilling``: head sizes whose accumulators exceed the registers;
    ``product_bits`` of both products, where they differ from the compute dtype's 16.
    ``casts``: a pass of its own rounds Q to the 8 bits of the products first, at this share of the bandwidth; 0: none.
    ``append`` is the pass before it that writes new K and V into the cache: by ``token``, by ``block`` (one a token, a
    thread a column of K, up to 512), one over Q, K and V with rotary (``qkv``), or one over a ``latent`` and the rotary
    parts of Q and K. ``fresh``: K and V are 16-bit activations, whatever the cache holds. ``latent`` names the
    kernel for rows whose K and V differ in width (latent attention), ``sinks`` the one for heads with a learned logit
    beside their scores, where this one has no place for it, ``otherwise`` the one for the head sizes that it was not
    built for (``odd_heads``). ``varlen``: prompts and the sequences that decode beside them are one launch. ``shared``:
    bytes of shared memory of the block of one tile, which waits for its first
    keys whatever the clock, beside as many more as a unit has room for; 0: a tile keeps its unit busy. ``warps``: as of
    decode, instructions of a warp multiply.
    """

    family: Literal["attention"]
    constants: Map[ContextConstants]
    tiles: ContextTiles
    query_pad: Count = 16
    packed: bool = False
    split_kv: bool = False
    windowed: bool = True
    padded_head: bool = False
    spilling: tuple[Count, ...] = ()
    window_rows: int = 0
    product_bits: Literal[8, 16] = 16
    casts: NonNegative = 0.0
    append: Literal["none", "token", "block", "qkv", "latent"] = "none"
    fresh: bool = False
    decode: str
    decode_8bit: str | None = None
    cached_8bit: str | None = None
    latent: str | None = None
    sinks: str | None = None
    odd_heads: tuple[Count, ...] = ()
    otherwise: str | None = None
    varlen: bool = False
    warps: bool = False
    shared: Bytes = 0

    @property
    def steady(self) -> tuple[str, ...]:
        """What a block waits for its first keys."""
        return ("item",) if self.shared else ()


@hash_once
@dataclass(frozen=True, kw_only=True, config=STRICT)
class DecodeKernel(Kernel):
    """Split-KV attention of one query per sequence.

    ``kv_tile`` rounds lengths up; ``query_pad`` rounds the query heads of a KV head up, but to
    ``query_few`` where they are no more (a smaller matrix instruction), ``query_tile`` is the most that
    one work item takes, or ``query_pad`` where there are at most ``narrow``; ``cluster``: so many items of more heads
    read their cache once for each other; ``split_tokens`` is the least length of a split, ``most_splits`` their largest
    number; ``groups``: least and most query heads of a KV head that share a work item, ``powers``: only where they are
    a power of two, ``fills``: only where sequences times KV heads, times blocks of ``fills_by`` tokens where it is
    given, are that share of the compute units; the others run alone on vector units, in steps of ``lone_tile``.
    ``splits_alone``: rows with one query head a KV head are split too; ``waves``: items are split by rule, into parts
    of ``split_tokens`` that make at most so many waves, ``parts``: into so many, whatever their length; ``warps``:
    instructions of a warp multiply (``Rates.warps``), so that ``rate`` is a share of what those reach; ``regroups``:
    copies of Q and O bring the heads of a group together; ``appends``: a kernel of its own rotates the new token and
    writes it into the cache before, ``casts``: so many light ones more scale and round Q, K and V to 8 bits;
    ``widens``: the share of the bandwidth at which another one writes a cache of 8 bits out in 16 first, 0 without;
    ``product_bits`` as in prefill. ``shared``: bytes of shared memory of the block of one work item, which then waits
    for its tiles most of its time, whatever the clock, beside as many more as a unit has room for; 0: an item keeps its
    unit busy, or has it for itself where it ``waits`` all the same. ``rounds``: blocks run in whole rounds; ``blocks``:
    so many share a unit by what the kernel was compiled for, up to 16 rows of 128, ``lone_blocks`` of query heads that
    run alone.
    ``rotates``: the kernel before it rotates Q as well, which it reads and writes.
    """

    family: Literal["decode"]
    constants: Map[DecodeConstants]
    kv_tile: Count
    query_pad: Count = 16
    query_few: int = 0
    query_tile: Count = 64
    narrow: int = 0
    cluster: Count = 1
    split_tokens: Count = 256
    most_splits: Count = 1 << 20
    groups: tuple[Count, Count] = (1, 1 << 20)
    powers: bool = False
    fills: NonNegative = 0.0
    fills_by: Count | None = None
    lone_tile: Count = 16
    splits_alone: bool = True
    waves: NonNegative = 0.0
    parts: int = 0
    warps: bool = False
    regroups: bool = False
    appends: bool = False
    casts: int = 0
    widens: NonNegative = 0.0
    product_bits: Literal[8, 16] = 16
    shared: Bytes = 0
    waits: bool = False
    rounds: bool = False
    blocks: int = 0
    lone_blocks: Count = 1
    rotates: bool = False

    @property
    def ruled(self) -> bool:
        """Whether rules of the length decide what runs, so that one key more may take less."""
        return self.fills > 0.0 or self.waves > 0.0 or any({"fills", "waves"} & set(v) for v in self.variants.values())

    @property
    def steady(self) -> tuple[str, ...]:
        """What a block of one work item waits for its tiles."""
        return ("item",) if self.shared or self.waits else ()


@hash_once
@dataclass(frozen=True, kw_only=True, config=STRICT)
class MoeKernel(Kernel):
    """Grouped GEMMs over experts by a library that picks the fastest of its tiles, at most ``row_tile`` rows, or by one
    whose launcher takes the least with a row for every ``pairs_a_row`` pairs of an average expert, where it counts the
    pairs of all ranks over the experts of this one.
    """

    family: Literal["moe"]
    constants: Map[MoeConstants]
    row_tile: Count
    pairs_a_row: Positive | None = None


@hash_once
@dataclass(frozen=True, kw_only=True, config=STRICT)
class TiledMoeKernel(Kernel):
    """Grouped GEMMs over experts whose tile (rows, columns, k-step) the engine picks: the first whose ``until`` is not
    below ``chosen_by``, else the last. ``tuned``: experts of a rank and their width, of which the engine ships a tile
    found by search on devices of an architecture. ``weight_bytes``: of the weights as the kernel reads them, where the
    engine expands them once at load; ``pads``: multiples that hidden size and width are padded to then. ``unpacks`` as
    of products: operations of the vector lanes on each weight; ``in_registers``: a block unpacks the weights of each of
    its tiles into registers and multiplies from there. ``activates``: the first product applies the activation.
    ``launches``: kernels of one run, each of which takes ``setup``; ``remaps``: further ones that take the pairs of
    other ranks out; ``sorts``: these are left out before anything passes through memory.
    """

    family: Literal["moe"]
    constants: Map[TiledMoeConstants]
    tiles: tuple[tuple[Count, Count, Count], ...]
    chosen_by: Literal["tokens", "tokens_per_expert", "pairs_per_expert"] = "tokens"
    until: tuple[Positive, ...] = ()
    tuned: Shapes = ()
    weight_bytes: Positive | None = None
    pads: tuple[Count, Count] = (1, 1)
    unpacks: NonNegative = 0.0
    in_registers: bool = False
    activates: bool = False
    launches: Count = 1
    remaps: int = 0
    sorts: bool = False


@hash_once
@dataclass(frozen=True, kw_only=True, config=STRICT)
class ScanKernel(Kernel):
    """Chunked recurrent mixers; ``chunk_tokens`` tokens a chunk; ``fused``: one kernel does all of it."""

    family: Literal["scan"]
    constants: Map[ScanConstants]
    chunk_tokens: Count = 64
    fused: bool = True


@hash_once
@dataclass(frozen=True, kw_only=True, config=STRICT)
class ConvolutionKernel(Kernel):
    """Short causal convolutions of a sequence: blocks of ``chunk_tokens`` tokens by ``channels`` channels, in the
    decode update of one token by ``update_channels``. ``walks``: a block takes the chunks of its channels one after
    another, instead of one block a chunk."""

    family: Literal["convolution"]
    constants: Map[ConvolutionConstants]
    chunk_tokens: Count
    channels: Count
    update_channels: Count
    walks: bool = False


@hash_once
@dataclass(frozen=True, kw_only=True, config=STRICT)
class PointwiseKernel(Kernel):
    """Memory-bound kernels."""

    family: Literal["pointwise"]
    constants: Map[PointwiseConstants]


_NOUNS: Final[dict[str, type[Kernel]]] = {
    "gemm": GemmKernel, "attention": AttentionKernel, "decode": DecodeKernel, "moe": MoeKernel, "scan": ScanKernel,
    "convolution": ConvolutionKernel, "pointwise": PointwiseKernel,
}  # fmt: skip


@lru_cache(maxsize=1024)
def built(chosen: Kernel, architecture: str, clock: float) -> tuple[Any, Any]:
    """Structure and numbers of a kernel on an architecture at a boost clock (Hz): ``shaped`` and its ``on``."""
    shaped = chosen.shaped(architecture)
    return shaped, shaped.on(architecture, clock)


@lru_cache(maxsize=1024)
def _numbers(chosen: Kernel, architecture: str, clock: float | None) -> Any:
    """What ``Kernel.on`` answers: at another clock all times but the steady ones are so many times as long."""
    found = chosen.stands_in(architecture)
    constants: Any = chosen.constants[found]  # type: ignore[attr-defined]
    if clock is None or FITTED_AT.get(found, clock) == clock:
        return constants
    slower, steady = FITTED_AT[found] / clock, chosen.steady
    times = (field.name for field in fields(constants) if field.type is Seconds and field.name not in steady)
    return replaced(constants, **{name: slower * getattr(constants, name) for name in times})


@lru_cache(maxsize=256)
def _variant(chosen: Kernel, architecture: str) -> Kernel:
    differing: dict[str, Any] = dict(chosen.variants[architecture])
    return replaced(chosen, variants=FrozenDict(), **differing)


@lru_cache(maxsize=256)
def kernel(name: str) -> Kernel:
    """The kernel implementation of that name or YAML file; InputError with the nearest names if there is none."""
    document = KERNELS.document(name)
    family = document.data.get("family")
    if family not in _NOUNS:
        raise document.error(f"family must be one of {', '.join(_NOUNS)} (got {family!r}).", "family")
    noun = TiledMoeKernel if family == "moe" and "tiles" in document.data else _NOUNS[family]
    return build(noun, {"name": name, **document.data}, document)


@lru_cache(maxsize=256)
def kernel_sources(name: str) -> Sources:
    """Where the numbers of a kernel come from, by dotted path."""
    return KERNELS.load(name)[1]


def kernel_names() -> tuple[str, ...]:
    """The names of all kernel implementations."""
    return tuple(KERNELS.names())
