"""Rows of kernel tables, read by columns, as sets that one kernel implementation is fitted and scored on."""

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from rapid_llm import hardware, operators
from rapid_llm.documents import read_table, show
from rapid_llm.errors import InputError
from rapid_llm.hardware import Accelerator
from rapid_llm.operators import Replay
from rapid_llm.validation.cases import split_of
from rapid_llm.validation.kernels.benches import bench_of
from rapid_llm.validation.kernels.columns import READERS, Cells, Columns
from rapid_llm.validation.kernels.slices import CONVOLUTION, KEYS, KernelSlice
from rapid_llm.validation.tables import Table

CODES: Final = "kernels.csv.gz"
"""The file beside a table that spells out its kernel codes."""
FASTEST: Final = 0.95
"""A row faster than this share of the datasheet roofline cannot be what its shape says (unless L2 holds it)."""
SIZES: Final[Mapping[str, tuple[str, ...]]] = {
    "kernel_gemm": ("m", "n", "k"),
    "kernel_context": ("batch", "isl", "heads", "kv_heads", "head_dim"),
    "kernel_generation": ("batch", "kv_len", "heads", "kv_heads", "head_dim"),
    "kernel_moe": ("tokens", "hidden", "inter", "topk", "experts", "tp", "ep"),
    "kernel_mla": ("batch", "isl", "heads", "tp"),
    "kernel_ssm": ("batch_size",),
}
"""Schema to the columns that must be positive numbers."""
LENGTHS: Final[Mapping[str, tuple[str, ...]]] = {
    "kernel_context": ("prefix", "window"),
    "kernel_generation": ("window",),
    "kernel_mla": ("prefix",),
    "kernel_ssm": ("seq_len", "num_v_heads", "head_k_dim", "head_v_dim"),
}
"""Schema to the columns that must be numbers of at least 0; those of scans are blank where a kernel has none."""
MOST_UNSOUND: Final = 0.1
"""A set with more such rows than this is mislabelled as a whole."""
_IN_A_MODEL: Final = ("llmservingsim",)  # profiles taken inside a running model, whose other layers use L2 in between
_PREFIXES: Final = ("gemm_mfine_", "gemm_", "attn_context_", "attn_generation_", "moe_", "mla_", "ssm_")


class UnknownAccelerator(InputError):  # noqa: N818 - it names what is not known
    """A table of an accelerator that the catalogue does not know."""


@dataclass(frozen=True)
class Sample:
    """Rows of one table, framework and dtype that one kernel ran: columns of its family, measured seconds.

    ``family``: that of the columns; ``key`` is the text that the split rule hashes, ``line`` the row's line in its
    file, ``metric`` what a suite calls its figure.
    """

    kernel: str
    schema: str
    accelerator: str
    framework: str
    version: str
    family: str
    table_dtype: str
    dtype: str
    columns: Columns
    seconds: NDArray[np.float64]
    key: NDArray[np.str_]
    line: NDArray[np.int64]
    metric: NDArray[np.str_]

    @property
    def label(self) -> str:
        """Accelerator, framework and version."""
        return f"{self.accelerator} {self.framework} {self.version}".strip()

    def take(self, index: NDArray[np.generic]) -> "Sample":
        """A subset of rows."""
        columns = {name: values[index] for name, values in self.columns.items()}
        rest = {name: getattr(self, name)[index] for name in ("seconds", "key", "line", "metric")}
        return replace(self, columns=columns, **rest)

    def half(self, split: str) -> "Sample":
        """The rows of one side of the split."""
        words, inverse = np.unique(self.key, return_inverse=True)
        return self.take(np.flatnonzero(np.array([split_of(str(word)) == split for word in words], bool)[inverse]))

    def some(self, count: int) -> "Sample":
        """At most ``count`` rows, evenly spread in time."""
        order = np.argsort(self.seconds, kind="stable")
        return self.take(order[np.linspace(0, len(order) - 1, min(count, len(order))).round().astype(int)])

    def price(
        self, kernel: str | operators.Kernel | None = None, device: Accelerator | None = None
    ) -> NDArray[np.float64]:
        """Predicted seconds of each row, replayed as the benchmark did, by this kernel and device or others."""
        known = device or hardware.accelerator(self.accelerator)
        chosen = kernel or self.kernel

        def price(clock: float, replay: bool | Replay) -> NDArray[np.float64]:
            return operators.price(
                self.family, self.columns, dtype=self.dtype, kernel=chosen, accelerator=known, clock=clock,
                replayed=replay,
            ).seconds  # fmt: skip

        if self.family != "gemm":
            return price(1.0, self.framework not in _IN_A_MODEL)
        bench = bench_of(self.framework, self.version, self.table_dtype)
        return bench.seconds(price, self.columns, known)

    def roofline(self) -> operators.Prices:
        """The datasheet roofline of each row."""
        device = hardware.accelerator(self.accelerator)
        return operators.roofline(self.family, self.columns, dtype=self.dtype, accelerator=device)

    def sound(self) -> NDArray[np.bool_]:
        """Rows that do not beat the roofline: of compute anywhere, of memory where L2 cannot hold the operands."""
        floor, device = self.roofline(), hardware.accelerator(self.accelerator)
        l2 = device.memory.l2.capacity if device.memory.l2 else 0.0
        slow_enough = self.seconds >= FASTEST * floor.memory_s
        return (self.seconds >= FASTEST * floor.compute_s) & (slow_enough | (floor.hbm_bytes < l2))


def read_cells(table: Table) -> dict[str, NDArray[np.str_]]:
    """All cells of a kernel table by column; the spelled-out kernel as ``source``, the accelerator as ``gpu``.

    InputError where a measured time is no positive number, and for an accelerator that the catalogue does not know.
    """
    reader = csv.reader(io.StringIO(read_table(table.path)))
    header = [name.strip() for name in next(reader)]
    numbered = [(reader.line_num, row) for row in reader if row]
    for line, row in numbered:
        if len(row) != len(header):
            what = f"this row has {len(row)} cells, and the header names {len(header)} columns"
            raise InputError(f"{what}.", field="table", file=str(table.path), line=line)
    values = list(zip(*(row for _, row in numbered), strict=True)) or [()] * len(header)
    cells = {name: np.array(column, dtype=str) for name, column in zip(header, values, strict=True)}
    count = len(numbered)
    if "gpu" not in cells:
        cells["gpu"] = np.full(count, device_of(table.path).name)
    words, inverse = np.unique(cells["gpu"], return_inverse=True)
    cells["gpu"] = np.array([_known(str(word)).name for word in words] or [""])[inverse]
    for name, default in (("framework", "user"), ("version", ""), ("kernel", "")):
        cells.setdefault(name, np.full(count, default))
    cells["source"] = _spelled(cells["kernel"], table.path)
    cells["line"] = np.array([str(line) for line, _ in numbered])
    if not count:
        raise InputError(f"{table.path} holds no row.", field="table")
    for name in ("latency_us", *SIZES.get(table.schema, ())):
        _check_numbers(cells, table.path, name, " above 0")
    for name in LENGTHS.get(table.schema, ()):
        blank = ", or blank" if table.schema == "kernel_ssm" else ""
        _check_numbers(cells, table.path, name, f" of at least 0{blank}")
    return cells


def device_of(path: Path) -> Accelerator:
    """The accelerator that a file is named after: ``gemm_h100_sxm.csv.gz``."""
    name = path.name.split(".")[0]
    prefix = next((p for p in _PREFIXES if name.startswith(p)), "")
    try:
        return hardware.accelerator(name.removeprefix(prefix).replace("_", "-"))
    except InputError as error:
        raise UnknownAccelerator(
            f"{path} must have a column gpu, or be named after an accelerator as gemm_h100_sxm.csv is.", field="table"
        ) from error


def _known(name: str) -> Accelerator:
    """The accelerator of a cell: of the catalogue, also as a driver names it, or of a file."""
    plain = name if name.endswith((".yaml", ".yml")) else name.partition("/")[0].strip()  # AMD Instinct MI250X/MI250
    try:
        return hardware.accelerator(plain)
    except InputError as error:
        hint = "; the path of your own YAML file in column gpu works too."
        raise UnknownAccelerator(f"{error.message}{hint}", field="table", suggestions=error.suggestions) from None


def _spelled(codes: NDArray[np.str_], path: Path) -> NDArray[np.str_]:
    file = path.parent / CODES
    known = dict(csv.reader(io.StringIO(read_table(file)))) if file.exists() else {}
    words, inverse = np.unique(codes, return_inverse=True)
    return np.array([known.get(str(word), str(word)) for word in words] or [""])[inverse]


def _check_numbers(cells: Cells, path: Path, name: str, wanted: str) -> None:
    """InputError with the line of the first cell that is not a number as it is ``wanted``."""
    words, inverse = np.unique(cells[name], return_inverse=True)
    good = np.array([_is_number(str(word), wanted) for word in words])[inverse]
    if not good.all():
        at = int(np.flatnonzero(~good)[0])
        what = "microseconds, a number" if name == "latency_us" else "a number"
        got = show(str(cells[name][at]))
        line = int(cells["line"][at])
        raise InputError(f"{name} must be {what}{wanted} (got {got}).", field=name, file=str(path), line=line)


def _is_number(text: str, wanted: str) -> bool:
    if not text:
        return wanted.endswith("blank")
    try:
        value = float(text)
    except ValueError:
        return False
    return 0.0 < value < inf or (value == 0.0 and "at least" in wanted)


def sample(part: KernelSlice, cells: Cells, table_dtype: str) -> Sample:
    """The rows of a slice (cells of one accelerator and framework) as a sample."""
    from rapid_llm.validation.kernels.labels import metrics_of

    shape = [cells[name] for name in KEYS[part.schema]]
    key = np.array([",".join(map(str, row)) for row in zip(*shape, strict=True)])
    return Sample(
        kernel=part.kernel,
        schema=part.schema,
        accelerator=str(cells["gpu"][0]),
        framework=str(cells["framework"][0]),
        version=str(cells["version"][0]),
        family=part.family,
        table_dtype=table_dtype,
        dtype=part.dtype,
        columns=READERS[CONVOLUTION if part.family == CONVOLUTION else part.schema](cells),
        seconds=cells["latency_us"].astype(float) * 1e-6,
        key=key,
        line=cells["line"].astype(int),
        metric=metrics_of(part.schema, cells),
    )


def samples(part: KernelSlice, tables: Sequence[Table]) -> Iterator[Sample]:
    """The samples of a slice in some tables, one per accelerator and framework, unsound rows left out."""
    from rapid_llm.validation.kernels.labels import dtypes_of

    for table in tables:
        if table.schema != part.schema:
            continue
        cells = read_cells(table)
        cells["table_dtype"] = dtypes_of(part.schema, cells)
        mine = subset(cells, part.rows(cells))
        for group in split_cells(mine, ("gpu", "framework")):
            found = sample(part, group, str(group["table_dtype"][0]))
            sound = found.sound()
            if sound.mean() >= 1.0 - MOST_UNSOUND:
                yield found.take(np.flatnonzero(sound))


def subset(cells: Cells, mask: NDArray[np.bool_]) -> dict[str, NDArray[np.str_]]:
    """The cells of some rows."""
    return {name: column[mask] for name, column in cells.items()}


def split_cells(cells: Cells, names: Sequence[str]) -> Iterator[dict[str, NDArray[np.str_]]]:
    """The cells of each distinct combination of some columns."""
    joined = np.array(["\t".join(map(str, row)) for row in zip(*(cells[name] for name in names), strict=True)])
    for word in dict.fromkeys(joined.tolist()):
        yield subset(cells, joined == word)
