"""The collectives suite: latency of NCCL, of engines' own all-reduces, of expert exchanges, and of public logs."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources
from typing import Any

import numpy as np

from rapid_llm import hardware
from rapid_llm.documents import Document, parse_yaml
from rapid_llm.errors import InputError
from rapid_llm.network import NCCL_TESTS, PHASES, ExpertPrices, Fabric, bus_bandwidth, price, price_experts
from rapid_llm.validation.cases import Baseline, Case, Skip
from rapid_llm.validation.tables import Row, Table, count, integer, number

SUITE, METRIC = "collectives", "latency"
MICROSECOND = 1e-6


@dataclass(frozen=True, slots=True)
class Question:
    """A collective whose time was measured: what ran, on which fabric, by which libraries."""

    op: str
    size: float
    ranks: int
    fabric: Fabric
    library: str
    small: str | None = None

    def seconds(self) -> float:
        """What the closed form answers."""
        group = (self.op, self.size, self.ranks, 1)
        return price(*group, fabric=self.fabric, library=self.library, small=self.small).seconds.item()

    def datasheet(self) -> float:
        """What the narrowest links on the way allow at their rated bandwidth."""
        outer = next(tier for tier in self.fabric.tiers if tier.span >= self.ranks)
        port = outer.bandwidth * (self.fabric.node_span if outer.scope == "inter" else 1)
        return self.size * bus_bandwidth(self.op, 1.0, self.ranks, 1.0).item() / port


@dataclass(frozen=True, slots=True)
class ExpertQuestion:
    """A dispatch or combine whose time was measured."""

    phase: str
    tokens: int
    hidden_size: int
    experts_per_token: int
    experts: int
    ranks: int
    fabric: Fabric
    library: str
    mode: str
    units: int | None

    def price(self) -> ExpertPrices:
        """What the closed form answers."""
        return price_experts(
            self.phase,
            self.tokens,
            hidden_size=self.hidden_size,
            experts_per_token=self.experts_per_token,
            experts=self.experts,
            ranks=self.ranks,
            fabric=self.fabric,
            library=self.library,
            mode=self.mode,
            units=self.units,
        )

    def seconds(self) -> float:
        """Its time."""
        return self.price().seconds.item()

    @property
    def size(self) -> float:
        """Bytes that a rank sends."""
        return self.price().wire_bytes.item()

    def datasheet(self) -> float:
        """What the links allow at their rated bandwidth."""
        return self.size / self.fabric.tiers[0].bandwidth


@dataclass(frozen=True, slots=True)
class Measured:
    """One row read: where it belongs, its seconds, and the question that it answers."""

    id: str
    group: str
    key: str
    seconds: float
    question: Question | ExpertQuestion


def cases(table: Table) -> Iterator[Case]:
    """Cases of a table of collectives in one box, or of public logs."""
    read, skipped = read_rows(table)
    yield from skipped
    yield from _with_baselines(read)


def read_rows(table: Table) -> tuple[list[Measured], list[Case]]:
    """The rows of a table that can be asked, and cases that say why the others cannot."""
    readers = {"collectives": _box_row, "expert_exchanges": _expert_row, "collective_logs": _log_row}
    reader = readers.get(table.schema)
    read: list[Measured] = []
    skipped: list[Case] = []
    for index, row in enumerate(table.rows if reader else ()):
        name = row.get("id") or f"{table.path.name.split('.')[0]}-{index + 2}"
        try:
            read.append(reader(row, table, name))  # type: ignore[misc]
        except (Skip, InputError) as reason:
            skipped.append(_skipped(row, table, name, str(reason)))
    return read, skipped


@lru_cache(maxsize=1)
def machines() -> Mapping[str, Any]:
    """What measured tables ran on (``data/collectives.yaml``)."""
    file = resources.files("rapid_llm.validation").joinpath("data", "collectives.yaml")
    return parse_yaml(file.read_text("utf-8"), "collectives.yaml").data


@lru_cache(maxsize=64)
def fabric_of(name: str) -> Fabric:
    """The fabric of a system that ``machines`` describes, or of the catalogue."""
    described = machines()["systems"].get(name)
    return Fabric.of(hardware.build_system(Document(described)) if described else hardware.system(name))


def gpu_of(row: Row, table: Table) -> str:
    """The catalogue's name of the accelerator that a table was measured on: a column, or the name of its file."""
    words = row.get("gpu") or re.sub(r"^(nccl|alltoall)_", "", table.path.name.split(".")[0])
    return hardware.accelerator(words).name


def _described(section: str, name: str, version: str) -> str | None:
    """What a section of ``machines`` says of a name, or of one version of it."""
    known: Mapping[str, str] = machines()[section]
    return known.get(f"{name}/{version}", known.get(name))


def _box_of(gpu: str, row: Row) -> str:
    """The system of the catalogue that a table was measured on."""
    box = _described("boxes", gpu, f"{row.get('framework')}/{row.get('version')}")
    if box is None:
        raise Skip(f"no box of {gpu} is described")
    return box


def _box_row(row: Row, table: Table, name: str) -> Measured:
    """NCCL and engines' own all-reduces inside one box."""
    gpu, op, ranks = gpu_of(row, table), NCCL_TESTS.get(row["op"], row["op"]), count(row, "ngpus")
    engine = "" if row["lib"] == "nccl" else row["framework"]
    if "eager" in row.get("kernel", ""):
        raise Skip("launched by the host, whose time it is")
    small = _described("engines", engine, row["version"]) if engine else None
    if engine and small is None:
        raise Skip(f"the all-reduce of {engine} is not modelled")
    fabric = fabric_of(_box_of(gpu, row))
    if row["dtype"].startswith("int"):
        fabric = fabric.without_reduction()
    group = f"{gpu}/{row['lib']}/{op}"
    asked = Question(op, _positive(row, "bytes"), ranks, fabric, "nccl", small)
    key = f"{group}/{engine}/{ranks}" if engine else f"{group}/{ranks}"
    return Measured(name, group, key, _positive(row, "latency_us") * MICROSECOND, asked)


def _expert_row(row: Row, table: Table, name: str) -> Measured:
    """Dispatch and combine inside one box, every GPU of it in the group."""
    gpu, phase = gpu_of(row, table), row["phase"]
    known = machines()["exchanges"].get(row["op"])
    if known is None or phase not in PHASES:
        raise Skip(f"the {phase} of '{row['op']}' is not modelled")
    if count(row, "node_num") > 1:
        raise Skip("over several nodes, whose network the table does not name")
    fabric = fabric_of(_box_of(gpu, row))
    tokens, hidden, chosen, experts = (count(row, c) for c in ("num_token", "hidden_size", "num_topk", "num_experts"))
    library, mode, ranks = known["library"], known["mode"], fabric.node_span
    asked = ExpertQuestion(phase, tokens, hidden, chosen, experts, ranks, fabric, library, mode, integer(row, "sms"))
    group = f"{gpu}/{library}-{mode}/{phase}"
    key = f"{group}/h{hidden}/k{chosen}/e{experts}"
    return Measured(name, group, key, _positive(row, "latency_us") * MICROSECOND, asked)


def _log_row(row: Row, table: Table, name: str) -> Measured:
    """Figures that people published of their own machines."""
    known = machines()["logs"].get(row["system"])
    if known is None:
        raise Skip(f"the machine '{row['system']}' is not described")
    op = NCCL_TESTS.get(row["collective"], row["collective"])
    size, time = _positive(row, "bytes"), number(row, "time_us")
    seconds = time * MICROSECOND if time else size / (_positive(row, "algbw_GBps") * 1e9)
    asked = Question(op, size, count(row, "ranks"), fabric_of(known["system"]), known["library"])
    return Measured(name, f"{known['label']}/{op}", f"{row['system']}/{op}", seconds, asked)


def _positive(row: Row, column: str) -> float:
    value = number(row, column)
    if not value or value <= 0:
        raise Skip(f"no {column}")
    return value


def _skipped(row: Row, table: Table, name: str, reason: str) -> Case:
    op = row.get("op") or row["collective"]
    known = machines()["logs"].get(row.get("system"), {"label": row.get("system")})
    machine = known["label"] or f"{gpu_of(row, table)}/{row.get('lib') or row['framework']}"
    group = f"{machine}/{NCCL_TESTS.get(op, op)}"
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


def _with_baselines(read: Sequence[Measured]) -> Iterator[Case]:
    """Cases with what a line t = a + S / B per operation and ranks says (fitted to these rows), and the datasheet."""
    lines: dict[str, list[Measured]] = {}
    for one in read:
        lines.setdefault(one.key if isinstance(one.question, Question) else one.group, []).append(one)
    for rows in lines.values():
        line = alpha_beta([r.question.size for r in rows], [r.seconds for r in rows])
        for one, fitted in zip(rows, line, strict=True):
            yield Case(
                suite=SUITE,
                group=one.group,
                metric=METRIC,
                id=one.id,
                key=one.key,
                quantity="seconds",
                measured=one.seconds,
                scenario=None,
                answer=one.question.seconds,
                baselines={"alpha-beta": Baseline(fitted), "datasheet": Baseline(one.question.datasheet())},
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
