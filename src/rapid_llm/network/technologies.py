"""Link technologies and collective libraries: the nouns behind ``data/links`` and ``data/libraries``."""

from functools import lru_cache
from typing import Literal

from pydantic.dataclasses import dataclass

from rapid_llm.documents import build
from rapid_llm.errors import unknown_name
from rapid_llm.network.templates import ALGORITHMS
from rapid_llm.nouns import STRICT, Map, hash_once
from rapid_llm.provenance import Catalogue
from rapid_llm.units import Bytes, BytesPerSecond, Count, Fraction, NonNegative, Seconds

LINKS = Catalogue("rapid_llm.network", "data/links", "link")
LIBRARIES = Catalogue("rapid_llm.network", "data/libraries", "collective library")

Scope = Literal["intra", "inter"]


@dataclass(frozen=True, kw_only=True, config=STRICT)
class Link:
    """One link unit of a technology: B/s per direction, latency of one hop in seconds (wire, port and switch).

    ``scope`` is ``intra`` inside a node (or rack-scale domain) and ``inter`` between nodes; ``torus_dimensions`` the
    rank of the torus that these links form; ``downlinks`` the ports toward nodes of a leaf switch of these links;
    ``staged`` what of the bandwidth two accelerators exchange through host memory that do not reach each other.
    """

    name: str
    bandwidth: BytesPerSecond
    latency: Seconds
    scope: Scope
    torus_dimensions: Count | None = None
    downlinks: Count = 32
    staged: Fraction | None = None


@dataclass(frozen=True, kw_only=True, config=STRICT)
class Tuner:
    """What a library's tuner assumes of a link, by protocol: seconds of a ``hop``, and the ``rate`` of a rank (B/s)."""

    hop: Map[Seconds]
    rate: Map[BytesPerSecond]


@dataclass(frozen=True, kw_only=True, config=STRICT)
class LinkCost:
    """What one library pays on one link technology.

    ``launch`` once per collective (s), and ``wide`` once it leaves its first channel (s); ``step`` per dependent hop
    beyond the wire latency (s), and ``fence`` per hop whose flag waits for the data to be visible to the peer (s);
    ``flush`` what a ring pays whenever it begins with empty buffers, where that is not one fence (s);
    ``efficiency`` share of the link rate that long messages reach; ``slice`` overhead of one pipeline slice (s), which
    makes the ramp; ``peer`` per peer of an exchange, ``exchange`` a fence between peers, where that differs (s);
    ``switch`` share of the link rate when the switch reduces; ``spread`` share that messages between peers (exchange,
    send and receive) reach, where it differs, and ``polled`` what protocols with flags keep of their share where a
    reader polls over the link; ``copy`` rate at which a rank copies its own share (B/s), and ``keep`` in
    an exchange, where that differs; ``channels`` that a message to a peer may get, and what each of these moves without
    flags (``channel``, B/s). ``round``: bytes of its own that a rank has under way in all channels of a ring at once.
    Through host memory, buffers that the ``cache`` of a CPU does not hold (B) bring
    ``efficiency`` down to ``memory``. ``tuner`` is what decides between protocols, where the least time does not;
    ``without`` names those that are off there, and ``most`` is how many ranks the library runs over such links.
    ``fill`` what a dependent hop takes more, under any protocol, once all
    channels together have a ``chunk`` to move (B), in proportion below. ``relay``: bytes, in all channels together,
    that a rank of a chain takes whole before it passes them on, under a protocol without flags.
    """

    launch: Seconds
    step: Seconds
    efficiency: Fraction
    fill: Seconds = 0.0
    chunk: Bytes = 0
    relay: Bytes = 0
    slice: Seconds = 0.0
    fence: Seconds = 0.0
    flush: Seconds | None = None
    wide: Seconds = 0.0
    peer: Seconds = 0.0
    exchange: Seconds | None = None
    switch: Fraction | None = None
    spread: Fraction | None = None
    polled: Fraction = 1.0
    copy: BytesPerSecond | None = None
    keep: BytesPerSecond | None = None
    channels: Count | None = None
    channel: BytesPerSecond | None = None
    round: Bytes = 0
    cache: Bytes | None = None
    memory: Fraction | None = None
    tuner: Tuner | None = None
    without: tuple[str, ...] = ()
    most: Count | None = None


@dataclass(frozen=True, kw_only=True, config=STRICT)
class Protocol:
    """A way to move data, and the ``algorithms`` that can use it.

    ``bandwidth`` share of the reachable rate, and ``tree`` what of it trees keep; ``step``, ``ramp``, ``fence`` and
    ``exchange`` multiply ``LinkCost.step``, ``.slice``, ``.fence`` and ``.exchange``; ``setup`` is paid once per
    collective (s); ``channel`` bounds what one channel moves, and ``far`` what a rank sends between nodes (B/s);
    messages between peers take this protocol ``until`` so many bytes for each channel of a peer; ``slots`` are the
    pieces that a connection buffers, and ``believed`` the start that a tuner expects (s). An all-reduce that leaves its
    node, or its ranks for the switch, fills every dependent hop with a first chunk: ``fill`` seconds a hop once all
    channels together have a ``chunk`` to move (B), in proportion below.
    """

    algorithms: tuple[str, ...]
    bandwidth: Fraction = 1.0
    tree: Fraction = 1.0
    step: NonNegative = 1.0
    ramp: NonNegative = 0.0
    setup: Seconds = 0.0
    fence: NonNegative = 0.0
    exchange: NonNegative = 0.0
    channel: BytesPerSecond | None = None
    until: Bytes = 0
    far: BytesPerSecond | None = None
    slots: NonNegative = 0.0
    believed: Seconds = 0.0
    fill: Seconds = 0.0
    chunk: Bytes = 0


@hash_once
@dataclass(frozen=True, kw_only=True, config=STRICT)
class Library:
    """A collective library: its protocols, and its cost by link.

    ``links`` maps a link technology, or the defaults ``intra`` and ``inter``, to its cost; ``engines``: collectives run
    on engines of their own, and take no compute units from kernels.
    """

    name: str
    protocols: Map[Protocol]
    links: Map[LinkCost]
    engines: bool = False

    def __post_init__(self) -> None:
        """Refuse a library without defaults, or with an algorithm that no template describes."""
        for scope in ("intra", "inter"):
            if scope not in self.links:
                raise ValueError(f"links must hold the default '{scope}'")
        for protocol in self.protocols.values():
            for algorithm in protocol.algorithms:
                if algorithm not in ALGORITHMS:
                    raise ValueError(unknown_name("algorithm", algorithm, ALGORITHMS))

    def cost(self, link: str, scope: Scope) -> LinkCost:
        """What this library pays on a link technology, or on its scope when the technology was never measured."""
        return self.links.get(link) or self.links[scope]


@lru_cache(maxsize=256)
def link(name: str) -> Link:
    """The link technology of a name (``nvlink4``, ``infiniband-ndr``)."""
    data, _ = LINKS.load(name)
    return build(Link, {"name": name, **data})


@lru_cache(maxsize=64)
def library(name: str) -> Library:
    """The collective library of a name (``nccl``, ``vllm-custom-all-reduce``)."""
    data, _ = LIBRARIES.load(name)
    return build(Library, {"name": name, **data})


def library_of(given: str | Library) -> Library:
    """A library, or the one of a name."""
    return library(given) if isinstance(given, str) else given


VENDORS = {"AMD": "rccl", "Amazon": "nccom", "Google": "xla-ici", "Intel": "hccl"}
"""The collective library of a vendor's accelerators; others run NCCL or what is modelled on it."""


def library_for(vendor: str) -> str:
    """The name of the library that accelerators of a vendor communicate with."""
    return VENDORS.get(vendor, "nccl")
