"""Measured collectives from a table or from the log of nccl-tests."""

import csv
import gzip
import io
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from rapid_llm.errors import InputError
from rapid_llm.network import OPS

ALIASES: Mapping[str, str] = {"alltoall": "all_to_all", "sendrecv": "send_recv"}
"""Names of nccl-tests for two of our operations; its others differ in underscores only."""
COLUMNS: Mapping[str, tuple[str, ...]] = {
    "op": ("op", "collective"),
    "ranks": ("ranks", "ngpus"),
    "bytes": ("bytes", "size_bytes", "size"),
    "time": ("time_us", "latency_us"),
}
"""What a table must have, by the names that its columns may carry."""
_TEST = re.compile(r"(all_?reduce|all_?gather|reduce_?scatter|all_?to_?all|send_?recv|broadcast)_perf", re.I)
_RANK = re.compile(r"^#\s+Rank\s+(\d+)")
_NUMBERS = re.compile(r"^\s*(\d+)\s+(\d+)\s+(\S+)\s+(\S+)\s+(-?\d+)\s+([\d.]+)\s+([\d.]+)\s+([\d.]+)")
MICROSECOND = 1e-6


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
    try:
        data = file.read_bytes()
        text = (gzip.decompress(data) if file.suffix == ".gz" else data).decode("utf-8-sig")
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise InputError(f"{path} cannot be read: {_reason(error)}.", field="table") from None
    found = _log(text, file, op, ranks) if _is_log(text) else list(_table(text, file, op, ranks))
    if not found:
        raise InputError(f"{path} holds no measurement that can be used.", field="table")
    return found


def _reason(error: Exception) -> str:
    return (getattr(error, "strerror", None) or str(error)).lower()


def _is_log(text: str) -> bool:
    return any(_RANK.match(line) or line.startswith("# nThread") or _NUMBERS.match(line) for line in text.splitlines())


def _log(text: str, file: Path, op: str | None, ranks: int | None) -> list[Measurement]:
    """Out-of-place times of an nccl-tests log: its columns are size, count, type, redop, root, time, algbw, busbw."""
    lines = text.splitlines()
    count = ranks or sum(bool(_RANK.match(line)) for line in lines)
    named = op or next((m[1] for m in map(_TEST.search, [*lines, file.name]) if m), None)
    if named is None:
        raise InputError(
            f"{file} does not say which collective it timed; add --op, such as --op all_reduce.", field="op"
        )
    if count < 2:
        raise InputError(f"{file} does not list its ranks; add --ranks.", field="ranks")
    rows = [match for match in map(_NUMBERS.match, lines) if match]
    return [
        Measurement(operation(named), float(row[1]), count, float(row[6]) * MICROSECOND, "int" in row[3])
        for row in rows
        if float(row[1]) > 0 and float(row[6]) > 0
    ]


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
            count = int(float(row[names["ranks"]])) if names["ranks"] else int(ranks or 0)
        except (ValueError, TypeError):
            raise InputError(f"{file} has a cell that is no number.", file=str(file), line=index) from None
        if size > 0 and time > 0 and count > 1:
            named = operation(row[names["op"]] if names["op"] else str(op))
            yield Measurement(named, size, count, time * MICROSECOND, row.get("dtype", "").startswith("int"))


def operation(name: str) -> str:
    """Our name of a collective, however a test spells it; InputError for one that we do not know."""
    plain = name.lower().removesuffix("_perf")
    found = next((op for op in OPS if op.replace("_", "") == plain.replace("_", "")), ALIASES.get(plain))
    if found is None:
        raise InputError(f"collective '{name}' is unknown. Known: {', '.join(OPS)}.", field="op")
    return found
