"""Measured collectives from a table or from the log of nccl-tests."""

import csv
import io
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import inf
from pathlib import Path

from rapid_llm.documents import read_table
from rapid_llm.errors import InputError
from rapid_llm.network import NCCL_TESTS, OPS

COLUMNS: Mapping[str, tuple[str, ...]] = {
    "op": ("op", "collective"),
    "ranks": ("ranks", "ngpus"),
    "bytes": ("bytes", "size_bytes", "size"),
    "time": ("time_us", "latency_us"),
}
"""What a table must have, by the names that its columns may carry."""
_TEST = re.compile(r"(all_?reduce|all_?gather|reduce_?scatter|all_?to_?all|send_?recv|broadcast)_perf", re.I)
_LAUNCHER = re.compile(r"^(?:.*<std(?:out|err)>:|\[\d+(?:,\d+)?\] ?)")
"""What mpirun and its kin write before every line (--tag-output, --timestamp-output)."""
_RANK = re.compile(r"^#\s+Rank\s+(\d+)")
_TITLE = re.compile(r"^#\s+(size\s+count\s+type\s.*\btime\b.*)")
_ROW = re.compile(r"^\s*\d+\s+\d+\s+[a-z]\w*\s+.*\d")
_COLUMNS = ("size", "count", "type", "redop", "root", "time")
"""Columns of nccl-tests up to the out-of-place time; older versions lack one or two, as their header says."""
MICROSECOND = 1e-6
PLAUSIBLE = (1e-7, 1e3)
"""Seconds that a collective can take: less than a store to a peer, or more than any watchdog waits, is another unit."""


@dataclass(frozen=True, slots=True)
class Measurement:
    """One figure: operation, message size as nccl-tests counts it (B), ranks, seconds; ``integer`` data is not reduced
    by switches.
    """

    op: str
    size: float
    ranks: int
    seconds: float
    integer: bool = False

    @property
    def key(self) -> str:
        """What belongs together: all sizes of one operation on as many ranks."""
        return f"{self.op}/{self.ranks}"


def read(path: Path | str, *, op: str | None = None, ranks: int | None = None) -> list[Measurement]:
    """Measurements of a CSV table (gzipped or not), or of an nccl-tests log.

    ``op`` and ``ranks`` say what a log or table leaves out. InputError where nothing can be read, or something is
    missing.
    """
    file = Path(path)
    text = read_table(file)
    if not text.strip():
        raise InputError(f"{path} is empty.", field="table")
    found = _log(text, file, op, ranks) if _is_log(text) else list(_table(text, file, op, ranks))
    if not found:
        raise InputError(f"{path} holds no measurement that can be used.", field="table")
    return found


def _is_log(text: str) -> bool:
    lines = (_LAUNCHER.sub("", line) for line in text.splitlines())
    return any(line.startswith("# nThread") or _RANK.match(line) or _ROW.match(line) for line in lines)


def _log(text: str, file: Path, op: str | None, ranks: int | None) -> list[Measurement]:
    """Out-of-place times of an nccl-tests log, of every test in it; what launchers write before a line is dropped."""
    lines = [_LAUNCHER.sub("", line) for line in text.splitlines()]
    starts = [k for k, line in enumerate(lines) if line.startswith("# nThread")] or [0]
    found: list[Measurement] = []
    named, after = _TEST.search(file.name), 0
    for start, end in zip(starts, [*starts[1:], len(lines)], strict=True):
        rows = [k for k in range(start, end) if _ROW.match(lines[k])]
        if not rows:
            continue
        head = lines[after : rows[0]]
        named = next((m for m in map(_TEST.search, reversed(head)) if m), named)
        after = rows[-1] + 1
        count = ranks or len({m[1] for m in map(_RANK.match, lines[start : rows[0]]) if m})
        if op is None and named is None:
            raise InputError(
                f"{file} does not say which collective it timed; add --op, such as --op all_reduce.", field="op"
            )
        if count < 2:
            raise InputError(f"{file} does not list its ranks; add --ranks.", field="ranks")
        collective = operation(op or named[1])  # type: ignore[index]
        found += _timed(head, [lines[k] for k in rows], collective, count)
    return found


def _timed(head: list[str], rows: list[str], op: str, ranks: int) -> Iterator[Measurement]:
    """Rows of one test, by the columns that its header names."""
    title = next((m[1].split() for m in map(_TITLE.match, head) if m), None)
    if title is None:
        title = list(_COLUMNS)
        _check(rows[-1].split())
    for row in rows:
        cells = dict(zip(title[: title.index("time") + 1], row.split(), strict=False))
        try:
            size, time = float(cells["size"]), float(cells["time"])
        except (KeyError, ValueError):
            continue  # a line that was cut, or a test that has no such figure
        if size > 0 and 0 < time < inf:
            yield Measurement(op, size, ranks, time * MICROSECOND, "int" in cells["type"])


def _check(cells: list[str]) -> None:
    """InputError where a log without its header has other columns than those of today's nccl-tests."""
    at = len(_COLUMNS) - 1
    try:
        rate = float(cells[0]) / float(cells[at]) / 1e3
        fits = abs(float(cells[at + 1]) - rate) <= 0.1 * rate + 0.01
    except (IndexError, ValueError, ZeroDivisionError):
        fits = False
    if not fits:
        raise InputError(
            f"an nccl-tests log needs its header ('# {' '.join(_COLUMNS)} ...'): its rows have other columns.",
            field="table",
        )


def _table(text: str, file: Path, op: str | None, ranks: int | None) -> Iterator[Measurement]:
    """Rows of a CSV; other libraries than NCCL's kind, host-launched kernels and rows without a time are left out."""
    reader = csv.DictReader(io.StringIO(text))
    header = reader.fieldnames or []
    names = {what: next((n for n in known if n in header), None) for what, known in COLUMNS.items()}
    given = {"op": op, "ranks": ranks}
    for what, name in names.items():
        if name is None and given.get(what) is None:
            raise InputError(
                f"{file} has no column for {what}: name one {' or '.join(COLUMNS[what])}, or give an nccl-tests log.",
                field="table",
            )
    for index, row in enumerate(reader, start=2):
        if row.get("lib", "nccl") != "nccl":
            continue
        try:
            size, time = (float(row[str(names[what])] or "nan") for what in ("bytes", "time"))
            whole = float(row[names["ranks"]]) if names["ranks"] else float(ranks or 0)
            count = int(whole)
        except (ValueError, TypeError, OverflowError):
            raise InputError(f"{file} has a cell that is no number.", file=str(file), line=index) from None
        if count < 1 or count != whole:
            raise InputError(f"{file} has {whole:g} ranks in a row.", file=str(file), line=index)
        if 0 < size < inf and 0 < time < inf and count > 1:
            _plausible(time, file, index)
            named = operation(row[names["op"]] if names["op"] else str(op))
            yield Measurement(named, size, count, time * MICROSECOND, row.get("dtype", "").startswith("int"))


def _plausible(time: float, file: Path, line: int) -> None:
    """InputError for a time (us) that no collective can take."""
    low, high = PLAUSIBLE
    if not low <= time * MICROSECOND <= high:
        raise InputError(
            f"a collective cannot take {time:g} us: times are in microseconds, from {low / MICROSECOND:g} us to "
            f"{high:g} s.", field="table", file=str(file), line=line,
        )  # fmt: skip


def operation(name: str) -> str:
    """Our name of a collective, however a test spells it; InputError for one that we do not know."""
    plain = name.lower().removesuffix("_perf")
    found = next((op for op in OPS if op.replace("_", "") == plain.replace("_", "")), NCCL_TESTS.get(plain))
    if found is None:
        raise InputError(f"collective '{name}' is unknown. Known: {', '.join(OPS)}.", field="op")
    return found
