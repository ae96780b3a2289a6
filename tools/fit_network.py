"""Fit the constants of collective libraries to measured tables and print them, for ``network/data/libraries``.

    python tools/fit_network.py --data ../shared/data

Inside a node a key is (operation, ranks): keys whose operation index + log2(ranks) is odd are fitted, the others only
scored, and both halves are printed. Between nodes a key is a cluster: two are fitted, the rest is scored by the tests.
Needs the ``fit`` and ``tables`` extras.
"""

import argparse
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.optimize import least_squares

from rapid_llm.network import OPS, Fabric, Library, LinkCost, Protocol, Tier, link, price
from rapid_llm.network.fabric import SWITCH_HOP
from rapid_llm.units import Si

US, GB = 1e-6, 1e9
PRIOR = 0.05
"""Weight of a weak prior at the start values (log units): it decides only what a table does not identify."""
GPUS = {  # table -> link technology, links per GPU, kind of the node's tier, reduction in the switch
    "a100_sxm": ("nvlink3", 12, "switch", False),
    "h100_sxm": ("nvlink4", 18, "switch", True),
    "b200_sxm": ("nvlink5", 18, "switch", True),
    "l40s": ("pcie4-x16", 1, "shared", False),
}
NCCL_OPS = {
    "all_reduce": "all_reduce",
    "all_gather": "all_gather",
    "reduce_scatter": "reduce_scatter",
    "alltoall": "all_to_all",
}
ENGINES = ("sglang", "vllm", "trtllm")


@dataclass(frozen=True)
class Parameter:
    """One fitted number: name, start and physical bounds in the unit of the prints."""

    name: str
    start: float
    low: float
    high: float


@lru_cache(maxsize=16)
def fabric(gpu: str, *, reduction: bool = True) -> Fabric:
    """The eight-GPU box of a table."""
    name, count, kind, switch = GPUS[gpu]
    unit = link(name)
    tier = Tier("node", 8, unit.bandwidth * count, unit.latency, name, kind, in_network_reduction=switch and reduction)
    return Fabric((tier,), gpu)


def nccl_rows(data: Path) -> pd.DataFrame:
    """Median latency of the NCCL rows by (gpu, op, dtype, ngpus, bytes), and which keys are fitted."""
    frames = []
    for gpu in GPUS:
        rows = pd.read_csv(data / "silicon" / f"nccl_{gpu}.csv.gz").query("lib == 'nccl'")
        rows = rows.groupby(["op", "dtype", "ngpus", "bytes"]).latency_us.median().reset_index()
        frames.append(rows.assign(gpu=gpu))
    rows = pd.concat(frames, ignore_index=True)
    index = rows.op.map(list(NCCL_OPS).index) + np.log2(rows.ngpus).astype(int)
    rows["fit"] = index % 2 == 1
    # The L40S box carries 5 and 2 GB/s across its sockets; only its pairs and its floors describe PCIe 4.0.
    rows["sane"] = (rows.gpu != "l40s") | (rows.ngpus == 2) | (rows.bytes <= 8192)
    rows["op"] = rows.op.map(NCCL_OPS)
    return rows


def custom_rows(data: Path, engine: str) -> pd.DataFrame:
    """The newest version of one engine's all-reduce, replayed from a graph."""
    frames = []
    for gpu in GPUS:
        rows = pd.read_csv(data / "silicon" / f"nccl_{gpu}.csv.gz").query("lib == 'custom' and framework == @engine")
        rows = rows[~rows.kernel.str.contains("eager")]
        newest = max(rows.version, key=lambda v: [int("".join(filter(str.isdigit, p)) or 0) for p in v.split(".")])
        frames.append(rows[rows.version == newest].assign(gpu=gpu))
    rows = pd.concat(frames, ignore_index=True)
    rows["fit"] = np.log2(rows.ngpus).astype(int) % 2 == 1
    rows["op"] = "all_reduce"
    rows["sane"] = (rows.gpu != "l40s") | (rows.ngpus == 2) | (rows.bytes <= 8192)
    return rows


def predict(rows: pd.DataFrame, library: Library, small: Library | None = None) -> np.ndarray:
    """Seconds of every row; the switch reduces no integers."""
    out = np.empty(len(rows))
    integer = (rows.get("dtype") == "int8").to_numpy()
    codes = rows.op.map(OPS.index).to_numpy()
    for gpu in GPUS:
        for whole in (False, True):
            at = np.flatnonzero((rows.gpu == gpu).to_numpy() & (integer == whole))
            if len(at):
                part = rows.iloc[at]
                box = fabric(gpu, reduction=not whole)
                out[at] = price(codes[at], part.bytes, part.ngpus, 1, fabric=box, library=library, small=small).seconds
    return out


def solve(rows: pd.DataFrame, parameters: list[Parameter], model: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    """Robust least squares on log error over the fitted rows, inside the bounds."""
    start, low, high = np.log([[p.start, p.low, p.high] for p in parameters]).T
    measured = np.log(rows.latency_us.to_numpy() * US)
    used = (rows.fit & rows.sane).to_numpy()

    def residual(x: np.ndarray) -> np.ndarray:
        return np.concatenate([(np.log(model(np.exp(x))) - measured)[used], PRIOR * (x - start)])

    found = least_squares(
        residual, start, bounds=(low - 1e-9, high + 1e-9), loss="soft_l1", f_scale=0.1, max_nfev=60, diff_step=1e-3
    )
    return np.clip(np.exp(found.x), np.exp(low), np.exp(high))


def _with_defaults(links: dict[str, LinkCost]) -> dict[str, LinkCost]:
    return {**links, "intra": links["nvlink4"], "inter": links["nvlink4"]}


SHARED = [
    Parameter("LL.bandwidth", 0.05, 0.02, 0.5),
    Parameter("LL128.bandwidth", 0.6, 0.3, 0.95),
    Parameter("LL128.step", 1.1, 1, 4),
    Parameter("LL128.ramp", 0.3, 0.01, 1),
    Parameter("Simple.step", 3, 1, 20),
    Parameter("Simple.setup", 4, 0.1, 20),
    Parameter("NVLS.setup", 15, 0.1, 40),
    Parameter("channel", 6, 1, 20),
]
PER_LINK = [
    Parameter("launch", 6, 2, 12),
    Parameter("step", 0.4, 0.05, 3),
    Parameter("efficiency", 0.78, 0.3, 1),
    Parameter("peer", 0.4, 0.02, 5),
    Parameter("exchange", 3, 0.1, 20),
    Parameter("slice", 1.5, 0.05, 30),
    Parameter("switch", 0.6, 0.3, 1),
    Parameter("copy", 900, 20, 4000),
]


def nccl(x: np.ndarray) -> Library:
    """NCCL from a vector in the order of SHARED, then PER_LINK for each GPU."""
    ll, ll128, step128, ramp128, step, setup, multicast, channel = (float(v) for v in x[: len(SHARED)])
    over, exchange = ("ring", "tree"), ("direct", "p2p")
    protocols = {
        "LL": Protocol(algorithms=over, bandwidth=ll),
        "LL128": Protocol(algorithms=over, bandwidth=ll128, step=step128, ramp=ramp128),
        "Simple": Protocol(algorithms=over, step=step, ramp=1.0, setup=Si(setup * US)),
        "NVLS": Protocol(algorithms=("nvls", "nvls-tree"), step=step, ramp=1.0, setup=Si(multicast * US)),
        "LL-exchange": Protocol(algorithms=exchange, channel=Si(channel * GB)),
        "Simple-exchange": Protocol(algorithms=exchange, ramp=1.0, exchange=1.0),
    }
    links = {}
    for values, (name, _, _, switch) in zip(x[len(SHARED) :].reshape(len(GPUS), -1), GPUS.values(), strict=True):
        launch, hop, efficiency, peer, long, part, reduced, copy = (float(v) for v in values)
        links[name] = LinkCost(
            launch=Si(launch * US), step=Si(hop * US), efficiency=efficiency, peer=Si(peer * US),
            exchange=Si(long * US), slice=Si(part * US), switch=reduced if switch else None, copy=Si(copy * GB),
        )  # fmt: skip
    return Library(
        name="nccl", protocols=protocols, links={**links, "intra": links["nvlink4"], "inter": links["nvlink4"]}
    )


CUSTOM_SHARED = [Parameter("two-shot.setup", 3, 0.1, 20)]
CUSTOM_PER_LINK = [
    Parameter("launch", 4, 0.5, 12),
    Parameter("peer", 0.1, 0.01, 5),
    Parameter("efficiency", 0.6, 0.2, 1),
]


def custom(x: np.ndarray, engine: str) -> Library:
    """An engine's own all-reduce from a vector in the order of CUSTOM_SHARED, then CUSTOM_PER_LINK for each GPU."""
    setup = float(x[0])
    protocols = {
        "one-shot": Protocol(algorithms=("one-shot",)),
        "two-shot": Protocol(algorithms=("two-shot",), setup=Si(setup * US)),
    }
    links = {}
    for values, (name, *_) in zip(x[len(CUSTOM_SHARED) :].reshape(len(GPUS), -1), GPUS.values(), strict=True):
        launch, peer, efficiency = (float(v) for v in values)
        links[name] = LinkCost(launch=Si(launch * US), step=0, peer=Si(peer * US), efficiency=efficiency)
    return Library(
        name=engine, protocols=protocols, links={**links, "intra": links["nvlink4"], "inter": links["nvlink4"]}
    )


BETWEEN = [
    Parameter("step", 4, 0.5, 60),
    Parameter("efficiency", 0.85, 0.3, 1),
    Parameter("exchange", 5, 0.1, 50),
    Parameter("slice", 1, 0.01, 300),
]


def with_inter(base: Library, x: np.ndarray) -> Library:
    """A library whose default between nodes comes from a vector in the order of BETWEEN."""
    step, efficiency, exchange, part = (float(v) for v in x)
    cost = LinkCost(
        launch=Si(base.links["nvlink4"].launch),
        step=Si(step * US),
        efficiency=efficiency,
        peer=Si(0.5 * US),
        exchange=Si(exchange * US),
        slice=Si(part * US),
    )
    return replace(base, links={**base.links, "inter": cost})


def between_rows(data: Path) -> pd.DataFrame:
    """NCCL between two NDR cards: a log of 2 x 1 H100, and a tenth of the send/receive profile of two DGX H100."""
    log = pd.read_csv(data / "network" / "nccl_measured.csv.gz").query("system == '2x1 H100 NDR'")
    log = pd.DataFrame({"op": "all_reduce", "bytes": log.bytes, "latency_us": log.time_us})
    profile = pd.read_csv(data / "kernels" / "vidur_send_recv_ms.csv.gz")
    profile = profile.query("network == 'h100_dgx' and devices_per_node == 1").iloc[::10]
    profile = pd.DataFrame({"op": "send_recv", "bytes": profile.bytes, "latency_us": 1e3 * profile.time_ms})
    return pd.concat([log, profile], ignore_index=True).assign(fit=True, sane=True, gpu="h100 over NDR")


def fit_between(data: Path, base: Library) -> None:
    """Fit and print the default between nodes."""
    rows = between_rows(data)
    unit = link("infiniband-ndr")
    pair = Fabric((Tier("leaf", 2, unit.bandwidth, unit.latency + SWITCH_HOP, unit.name, "switch", "inter"),))
    codes = rows.op.map(OPS.index).to_numpy()

    def model(x: np.ndarray) -> np.ndarray:
        return price(codes, rows.bytes, 2, 1, fabric=pair, library=with_inter(base, x)).seconds

    x = solve(rows, BETWEEN, model)
    print("inter", {p.name: float(f"{v:.3g}") for p, v in zip(BETWEEN, x, strict=True)})
    report(rows, model(x), "between nodes (in sample)")


def report(rows: pd.DataFrame, seconds: np.ndarray, title: str) -> None:
    """Mean absolute percentage error by GPU, operation and half."""
    rows = rows.assign(error=abs(seconds / (rows.latency_us * US) - 1), half=np.where(rows.fit, "fit", "unseen"))
    print(f"# {title}: mean error by GPU, rows outside the fit's sanity rule included")
    print((100 * rows.groupby(["gpu", "op", "half"]).error.mean().unstack(["op", "half"])).round(1).to_string())


def show(parameters: list[Parameter], x: np.ndarray, per_link: list[Parameter]) -> None:
    """Print the fitted numbers, shared ones first, then a line per link."""
    shared = len(x) - len(per_link) * len(GPUS)
    print({p.name: float(f"{v:.3g}") for p, v in zip(parameters, x[:shared], strict=False)})
    for values, (name, *_) in zip(x[shared:].reshape(len(GPUS), -1), GPUS.values(), strict=True):
        print(name, {p.name: float(f"{v:.3g}") for p, v in zip(per_link, values, strict=True)})


def fit_engine(data: Path, engine: str, base: Library) -> None:
    """Fit and print the all-reduce of one engine, which may fall back to NCCL."""
    rows = custom_rows(data, engine)
    parameters = CUSTOM_SHARED + CUSTOM_PER_LINK * len(GPUS)
    x = solve(rows, parameters, lambda v: predict(rows, base, custom(v, engine)))
    show(CUSTOM_SHARED, x, CUSTOM_PER_LINK)
    report(rows, predict(rows, base, custom(x, engine)), engine)


def main() -> None:
    """Fit NCCL inside a node, then between nodes, then each engine's all-reduce."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    data = parser.parse_args().data
    rows = nccl_rows(data)
    x = solve(rows, SHARED + PER_LINK * len(GPUS), lambda v: predict(rows, nccl(v)))
    base = nccl(x)
    show(SHARED, x, PER_LINK)
    report(rows, predict(rows, base), "nccl")
    fit_between(data, base)
    for engine in ENGINES:
        fit_engine(data, engine, base)


if __name__ == "__main__":
    main()
