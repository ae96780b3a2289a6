"""The collectives suite: latency of NCCL, of engines' own all-reduces, of expert exchanges, and of public logs."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from importlib import resources
from typing import Any

import numpy as np

from rapid_llm import hardware
from rapid_llm.documents import Document, parse_yaml
from rapid_llm.errors import InputError
from rapid_llm.network import Fabric, bus_bandwidth, price
from rapid_llm.validation.cases import Baseline, Case, Skip
from rapid_llm.validation.tables import Row, Table, count, number

SUITE, METRIC = "collectives", "latency"
OPS = {"alltoall": "all_to_all", "sendrecv": "send_recv"}
"""What nccl-tests calls two of our operations."""
MICROSECOND = 1e-6


@dataclass(frozen=True, slots=True)
class _Measured:
    """One row read: where it belongs, its seconds, its size and ranks for the baselines, and what prices it."""

    id: str
    group: str
    key: str
    op: str
    seconds: float
    size: float
    ranks: int
    port: float
    answer: Callable[[], float]


def cases(table: Table) -> Iterator[Case]:
    """Cases of a table of collectives in one box, of expert exchanges, or of public logs."""
    reader = {"collectives": _box_row, "collective_logs": _log_row}.get(table.schema)
    if reader is None:
        return
    read: list[_Measured] = []
    for index, row in enumerate(table.rows):
        name = f"{table.path.name.split('.')[0]}-{index + 2}"
        try:
            read.append(reader(row, table, name))
        except (Skip, InputError) as reason:
            yield _skipped(row, table, name, str(reason))
    yield from _with_baselines(read)


@lru_cache(maxsize=1)
def machines() -> Mapping[str, Any]:
    """What measured tables ran on (``data/collectives.yaml``)."""
    file = resources.files("rapid_llm.validation").joinpath("data", "collectives.yaml")
    return parse_yaml(file.read_text("utf-8"), "collectives.yaml").data


@lru_cache(maxsize=64)
def fabric_of(name: str) -> Fabric:
    """The fabric of the machine of a log, or of a system of the catalogue."""
    known = machines()["logs"].get(name, {"system": name})["system"]
    system = hardware.system(known) if isinstance(known, str) else hardware.build_system(Document(known))
    return Fabric.of(system)


def gpu_of(row: Row, table: Table) -> str:
    """The catalogue's name of the accelerator that a table was measured on: a column, or the name of its file."""
    words = row.get("gpu") or re.sub(r"^(nccl|alltoall)_", "", table.path.name.split(".")[0])
    return hardware.accelerator(words).name


def _box_of(gpu: str, row: Row) -> str:
    boxes = machines()["boxes"]
    exact = f"{gpu}/{row.get('framework')}/{row.get('version')}"
    if exact in boxes or gpu in boxes:
        return str(boxes.get(exact) or boxes[gpu])
    raise Skip(f"no box of {gpu} is described")


def _box_row(row: Row, table: Table, name: str) -> _Measured:
    """NCCL and engines' own all-reduces inside one box."""
    gpu, op, ranks = gpu_of(row, table), OPS.get(row["op"], row["op"]), count(row, "ngpus")
    engine = "" if row["lib"] == "nccl" else row["framework"]
    if "eager" in row.get("kernel", ""):
        raise Skip("launched by the host, whose time it is")
    if engine and engine not in machines()["engines"]:
        raise Skip(f"the all-reduce of {engine} is not modelled")
    fabric = fabric_of(_box_of(gpu, row))
    if row["dtype"].startswith("int"):
        fabric = fabric.without_reduction()
    group = f"{gpu}/{row['lib']}/{op}"
    size, small = _positive(row, "bytes"), machines()["engines"].get(engine)
    return _Measured(
        name,
        group,
        f"{group}/{engine}/{ranks}" if engine else f"{group}/{ranks}",
        op,
        _positive(row, "latency_us") * MICROSECOND,
        size,
        ranks,
        fabric.tiers[0].bandwidth,
        partial(_seconds, op, size, ranks, fabric=fabric, library="nccl", small=small),
    )


def _log_row(row: Row, table: Table, name: str) -> _Measured:
    """Figures that people published of their own machines."""
    known = machines()["logs"].get(row["system"])
    if known is None:
        raise Skip(f"the machine '{row['system']}' is not described")
    fabric, op, ranks = fabric_of(row["system"]), OPS.get(row["collective"], row["collective"]), count(row, "ranks")
    size, seconds = _positive(row, "bytes"), number(row, "time_us")
    seconds = seconds * MICROSECOND if seconds else size / (_positive(row, "algbw_GBps") * 1e9)
    outer = fabric.tiers[-1]
    return _Measured(
        name,
        f"{known['label']}/{op}",
        f"{row['system']}/{op}",
        op,
        seconds,
        size,
        ranks,
        outer.bandwidth * (fabric.node_span if outer.scope == "inter" else 1),
        partial(_seconds, op, size, ranks, fabric=fabric, library=known["library"]),
    )


def _seconds(op: str, size: float, ranks: int, *, fabric: Fabric, library: str, small: str | None = None) -> float:
    return price(op, size, ranks, 1, fabric=fabric, library=library, small=small).seconds.item()


def _positive(row: Row, column: str) -> float:
    value = number(row, column)
    if not value or value <= 0:
        raise Skip(f"no {column}")
    return value


def _skipped(row: Row, table: Table, name: str, reason: str) -> Case:
    op = row.get("op") or row["collective"]
    known = machines()["logs"].get(row.get("system"), {"label": row.get("system")})
    group = f"{known['label'] or gpu_of(row, table) + '/' + row['lib']}/{OPS.get(op, op)}"
    return Case(
        suite=SUITE,
        group=group,
        metric=METRIC,
        id=name,
        key=group,
        quantity="seconds",
        measured=0.0,
        scenario=None,
        reason=reason,
    )


def _with_baselines(read: Sequence[_Measured]) -> Iterator[Case]:
    """Cases with what a line t = a + S / B per operation and ranks says (fitted to these rows), and the datasheet."""
    keys: dict[str, list[_Measured]] = {}
    for one in read:
        keys.setdefault(one.key, []).append(one)
    for rows in keys.values():
        line = alpha_beta([r.size for r in rows], [r.seconds for r in rows])
        for one, fitted in zip(rows, line, strict=True):
            factor = bus_bandwidth(one.op, 1.0, one.ranks, 1.0).item()
            sheet = one.size * factor / one.port
            yield Case(
                suite=SUITE,
                group=one.group,
                metric=METRIC,
                id=one.id,
                key=one.key,
                quantity="seconds",
                measured=one.seconds,
                scenario=None,
                answer=one.answer,
                baselines={"alpha-beta": Baseline(fitted), "datasheet": Baseline(sheet)},
            )


def alpha_beta(size: Sequence[float], seconds: Sequence[float]) -> list[float]:
    """Predictions of t = a + b S with a, b >= 0 that minimise the relative squared error on these very rows."""
    t, s = np.asarray(seconds), np.asarray(size)
    columns = np.stack([1 / t, s / t], axis=1)
    found = np.linalg.lstsq(columns, np.ones_like(t), rcond=None)[0] if len(set(size)) > 1 else np.array([0.0, -1.0])
    if found.min() < 0:
        a, b = (columns[:, k].sum() / (columns[:, k] ** 2).sum() for k in range(2))
        found = np.array([a, 0.0]) if _misfit(columns, a, 0.0) < _misfit(columns, 0.0, b) else np.array([0.0, b])
    return [float(v) for v in found[0] + found[1] * s]


def _misfit(columns: np.ndarray[Any, Any], a: float, b: float) -> float:
    return float(((columns @ np.array([a, b]) - 1) ** 2).sum())
