"""Fit the constants of collective libraries to measured tables and print them, for ``network/data/libraries``.

    python tools/fit_network.py --data ../shared/data [nccl | vllm-custom-all-reduce ...]

Rows, machines and the split rule are those of ``rapid-llm validate collectives``: only keys on the ``fit`` side are
fitted, both sides are printed. Needs the ``fit`` extra.
"""

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from scipy.optimize import least_squares

from rapid_llm.network import OPS, Library, LinkCost, Protocol, library, price
from rapid_llm.nouns import replaced
from rapid_llm.units import Si
from rapid_llm.validation import split_of
from rapid_llm.validation.suites.collectives import Measured, Question, fabric_of, read_rows
from rapid_llm.validation.tables import find

US, GB = 1e-6, 1e9
PRIOR = 0.05
"""Weight of a weak prior at the start values (log units): it decides only what a table does not identify."""
Vector = np.ndarray


@dataclass(frozen=True)
class Parameter:
    """One fitted number: name, start and physical bounds in the unit of the prints."""

    name: str
    start: float
    low: float
    high: float


class Rows:
    """Measured rows of one library, grouped by fabric for the pricing."""

    def __init__(self, rows: Sequence[Measured]) -> None:
        self.rows = list(rows)
        self.seconds = np.array([row.seconds for row in rows])
        self.fit = np.array([split_of(row.key) == "fit" for row in rows])
        asked = [row.question for row in rows]
        self.columns = [np.array(c) for c in zip(*[(OPS.index(q.op), q.size, q.ranks) for q in asked], strict=True)]
        fabrics = list(dict.fromkeys(q.fabric for q in asked))
        index = np.array([fabrics.index(q.fabric) for q in asked])
        self.parts = [(fabric, np.flatnonzero(index == k)) for k, fabric in enumerate(fabrics)]

    def predict(self, base: Library, small: Library | None = None) -> Vector:
        """Seconds of every row."""
        out = np.empty(len(self.rows))
        for fabric, at in self.parts:
            op, size, ranks = (column[at] for column in self.columns)
            out[at] = price(
                op.astype(int), size, ranks.astype(int), 1, fabric=fabric, library=base, small=small
            ).seconds
        return out

    def report(self, seconds: Vector) -> None:
        """Mean absolute percentage error by group and side of the split."""
        error = seconds / self.seconds - 1
        for group in dict.fromkeys(row.group for row in self.rows):
            inside = np.array([row.group == group for row in self.rows])
            halves = [error[inside & side] for side in (self.fit, ~self.fit)]
            cells = [f"{100 * np.abs(h).mean():5.1f} ({100 * h.mean():+5.1f})" if len(h) else "    -" for h in halves]
            print(f"  {group:34} fit {cells[0]:16} unseen {cells[1]}")


def solve(rows: Rows, parameters: Sequence[Parameter], model: Callable[[Vector], Vector]) -> Vector:
    """Robust least squares on log error over the fitted rows, inside the bounds."""
    start, low, high = np.log([[p.start, p.low, p.high] for p in parameters]).T
    measured = np.log(rows.seconds)

    def residual(x: Vector) -> Vector:
        return np.concatenate([(np.log(model(np.exp(x))) - measured)[rows.fit], PRIOR * (x - start)])

    bounds = (low - 1e-9, high + 1e-9)
    found = least_squares(residual, start, bounds=bounds, loss="soft_l1", f_scale=0.1, max_nfev=200, diff_step=1e-3)
    return np.clip(np.exp(found.x), np.exp(low), np.exp(high))


def show(parameters: Sequence[Parameter], x: Vector) -> None:
    """Print fitted numbers, a line for each prefix."""
    lines: dict[str, list[str]] = {}
    for p, v in zip(parameters, x, strict=True):
        prefix, _, name = p.name.rpartition(".")
        lines.setdefault(prefix, []).append(f"{name}: {v:.3g}")
    for prefix, cells in lines.items():
        print(f"  {prefix}: {{{', '.join(cells)}}}")


LINKS = {"nvlink3": False, "nvlink4": True, "nvlink5": True, "pcie4-x16": False}
"""Link technologies inside a node, and whether their switch reduces."""
SHARED = [
    Parameter("LL128.channel", 200, 20, 2000),
    Parameter("LL128.step", 1.1, 1, 4),
    Parameter("LL128.ramp", 0.3, 0.01, 1),
    Parameter("NVLS.setup", 15, 0.1, 40),
    Parameter("NVLS.chunk", 16, 1, 256),
    Parameter("exchange.channel", 6, 1, 20),
]
PER_LINK = [
    Parameter("launch", 6, 2, 12),
    Parameter("step", 0.4, 0.05, 3),
    Parameter("efficiency", 0.78, 0.3, 1),
    Parameter("spread", 0.78, 0.3, 1),
    Parameter("peer", 0.4, 0.02, 5),
    Parameter("slice", 0.5, 0.01, 30),
    Parameter("fence", 5, 0.1, 30),
    Parameter("wide", 2, 0.1, 5),
    Parameter("switch", 0.6, 0.3, 1),
    Parameter("copy", 900, 430, 4000),
    Parameter("keep", 900, 430, 4000),
]
CHANNELS = {"nvlink3": 32, "nvlink4": 32, "nvlink5": 32, "pcie4-x16": 2}
"""Channels to a peer that NCCL opens (graph/paths.cc): two for every NVLink, at most 32, and two elsewhere."""
CHANNEL = {"nvlink3": 14.3, "nvlink4": 21.8, "nvlink5": 22}
"""GB/s of one: sends of 64 MB between two GPUs over 16 channels reach 228 (A100) and 348 (H100, Vidur profiles)."""
ROUND = {"pcie4-x16": Si(2 * 2**20)}
"""Two channels, a slice of two slots of 512 KiB in each (NCCL_STEPS / 4); over NVLink there are ten times as many."""
UNTIL = "16 KiB"
"""NCCL_P2P_LL_THRESHOLD."""
STAGED = ("host-staged", "socket-staged")
"""Links through host memory."""
OF_STAGED = [
    Parameter("step", 0.7, 0.05, 3),
    Parameter("efficiency", 0.5, 0.05, 1),
    Parameter("memory", 0.4, 0.05, 1),
    Parameter("polled", 0.9, 0.4, 1),
]


def standing(link: str, p: Parameter) -> Parameter:
    """A parameter of a link that starts where the catalogue stands, in the unit of the prints."""
    now = getattr(library("nccl").links[link], p.name)
    unit = 1.0 if p.name in {"efficiency", "spread", "switch", "memory", "polled"} else US
    start = now / (GB if p.name in {"copy", "keep"} else unit) if now else p.start
    return Parameter(f"{link}.{p.name}", start, p.low, p.high)


NCCL = [
    *SHARED,
    *(standing(link, p) for link in LINKS for p in PER_LINK),
    standing("pcie4-x16", Parameter("flush", 10, 0.1, 30)),
    *(standing(link, p) for p in OF_STAGED for link in STAGED),
    standing("host-staged", Parameter("fence", 10, 0.1, 30)),
    standing("host-staged", Parameter("exchange", 2, 0.1, 30)),
]
LAST = 3 + 4 * len(STAGED)
"""Parameters behind those of the links themselves."""
CACHE = Si(6e6)
"""What devices may fill of the last cache of a CPU: two of 11 or 12 ways (Intel Data Direct I/O)."""
SLOTS = 8
"""Pieces in flight on a connection under Simple (NCCL_STEPS)."""
TREE = 0.8
"""What a tree keeps of a ring's bandwidth; see data/libraries/nccl.yaml."""
START = {"LL": "6.6 us", "LL128": "14 us", "Simple": "8.4 us"}
"""What NCCL's tuner takes the start of each protocol for."""
FILL = "28 us"
"""A hop with its first chunk on it, from NCCL's own tuner."""
LL, LL128 = 1 / 2, 120 / 128
"""Share of the wire that carries data in NCCL's flagged protocols: 4 of 8 bytes, 120 of 128."""


def nccl(x: Vector) -> Library:
    """NCCL inside a node from a vector in the order of NCCL; between nodes as the catalogue has it."""
    ll128, step128, ramp128, multicast, chunk, channel = (float(v) for v in x[: len(SHARED)])
    over, exchange = ("ring", "tree"), ("direct", "p2p")
    known = library("nccl")
    flagged = Protocol(algorithms=over, bandwidth=LL128, tree=TREE, step=step128, ramp=ramp128, believed=START["LL128"])
    protocols = {
        "LL": Protocol(algorithms=over, bandwidth=LL, believed=START["LL"]),
        "LL128": replaced(flagged, channel=ll128 * GB),
        "Simple": Protocol(
            algorithms=over,
            tree=TREE,
            ramp=1.0,
            fence=1.0,
            exchange=1.0,
            slots=SLOTS,
            believed=START["Simple"],
        ),
        "NVLS": Protocol(
            algorithms=("nvls", "nvls-tree"),
            fence=1.0,
            setup=Si(multicast * US),
            fill=FILL,
            chunk=Si(chunk * 2**20),
        ),
        "LL-exchange": Protocol(algorithms=exchange, bandwidth=LL, channel=Si(channel * GB), until=UNTIL),
        "Simple-exchange": Protocol(algorithms=exchange, ramp=1.0, exchange=1.0),
    }
    links = {}
    values = x[len(SHARED) : -LAST].reshape(len(LINKS), -1)
    for row, (name, switch) in zip(values, LINKS.items(), strict=True):
        links[name] = _cost(name, row, switch=switch)
    flush, *own, fence, exchange = (float(v) for v in x[-LAST:])
    links["pcie4-x16"] = replaced(links["pcie4-x16"], flush=Si(flush * US))
    for name, hop, cached, memory, polled in zip(STAGED, *np.reshape(own, (4, -1)).tolist(), strict=True):
        links[name] = replaced(
            links["pcie4-x16"],
            step=Si(hop * US),
            efficiency=cached,
            memory=memory,
            polled=polled,
            fence=Si(fence * US),
            exchange=Si(exchange * US),
            cache=CACHE,
            tuner=known.links[name].tuner,
        )
    return Library(name="nccl", protocols=protocols, links={**known.links, **links})


def _cost(name: str, values: Vector, *, switch: bool) -> LinkCost:
    """Costs of one link; only NVLink keeps the 128 bytes of LL128 together (NCCL leaves it off elsewhere)."""
    launch, hop, share, spread, peer, part, fence, wide, reduced, copy, keep = (float(v) for v in values)
    return LinkCost(
        without=() if name in ("nvlink3", "nvlink4") else ("LL128",),
        launch=Si(launch * US),
        step=Si(hop * US),
        efficiency=share,
        peer=Si(peer * US),
        slice=Si(part * US),
        fence=Si(fence * US),
        wide=Si(wide * US),
        switch=reduced if switch else None,
        spread=None if name in ROUND else spread,  # lanes that rings do not leave idle carry both alike
        copy=Si(copy * GB),
        keep=Si(keep * GB),
        channels=CHANNELS[name],
        round=ROUND.get(name, 0.0),
        channel=Si(CHANNEL[name] * GB) if name in CHANNEL else None,
        tuner=library("nccl").links[name].tuner,
    )


ENGINES = ("vllm-custom-all-reduce", "sglang-custom-all-reduce", "trtllm-one-shot")
CUSTOM = [
    Parameter("two-shot.setup", 3, 0.1, 20),
    Parameter("nvlink.peer", 0.1, 0.01, 5),
    Parameter("pcie.peer", 1, 0.01, 5),
    *(
        Parameter(f"{link}.{name}", *numbers)
        for link in LINKS
        for name, *numbers in (("launch", 4, 0.5, 12), ("efficiency", 0.6, 0.2, 1))
    ),
]


def custom(x: Vector) -> Library:
    """An engine's own all-reduce from a vector in the order of CUSTOM; a peer costs the same on every NVLink."""
    setup, nvlink, pcie = (float(v) * US for v in x[:3])
    protocols = {
        "one-shot": Protocol(algorithms=("one-shot",)),
        "two-shot": Protocol(algorithms=("two-shot",), setup=Si(setup)),
    }
    links = {
        name: LinkCost(
            launch=Si(float(launch) * US),
            step=0,
            peer=Si(nvlink if name.startswith("nvlink") else pcie),
            efficiency=float(share),
        )
        for name, (launch, share) in zip(LINKS, x[3:].reshape(len(LINKS), -1), strict=True)
    }
    defaults = {"intra": links["nvlink4"], "inter": links["nvlink4"]}
    return Library(name="custom", protocols=protocols, links={**links, **defaults})


def rows_of(data: Path) -> list[Measured]:
    """Every row of a collective that the suite reads."""
    return [row for table in find(data) for row in read_rows(table)[0] if isinstance(row.question, Question)]


def fit_nccl(rows: list[Measured]) -> None:
    """NCCL inside a node, and engines that fall back to it on the boxes that its own rows come from."""
    chosen = Rows([r for r in rows if "/nccl/" in r.group or _falls_back(r)])
    x = solve(chosen, NCCL, lambda v: chosen.predict(nccl(v)))
    print("nccl")
    show(NCCL, x)
    chosen.report(chosen.predict(nccl(x)))


MANY: Final = 100_000
"""Bytes above which TensorRT-LLM leaves two cards to NCCL."""


def _falls_back(row: Measured) -> bool:
    """Whether an engine leaves a row to NCCL: over PCI Express, but for a box that NCCL's table did not see."""
    asked = row.question
    staged, direct = fabric_of("l40s-staged"), fabric_of("l40s-pcie-8")
    return (asked.ranks > 2 and asked.fabric in {staged, direct}) or (asked.size > MANY and asked.fabric is staged)


def fit_engine(rows: list[Measured], engine: str) -> None:
    """The all-reduce of one engine's library, which falls back to NCCL."""
    chosen = Rows([r for r in rows if r.question.small == engine])
    base = library("nccl")
    x = solve(chosen, CUSTOM, lambda v: chosen.predict(base, custom(v)))
    print(engine)
    show(CUSTOM, x)
    chosen.report(chosen.predict(base, custom(x)))


def main() -> None:
    """Fit what was named, or all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("what", nargs="*", default=["nccl", *ENGINES])
    arguments = parser.parse_args()
    rows = rows_of(arguments.data)
    for what in arguments.what:
        fit_nccl(rows) if what == "nccl" else fit_engine(rows, what)


if __name__ == "__main__":
    main()
