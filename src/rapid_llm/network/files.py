"""A user's own interconnect: an edge list as YAML or CSV, or a measured bandwidth matrix."""

import csv
import io
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike

from rapid_llm.documents import parse_yaml
from rapid_llm.errors import InputError
from rapid_llm.network.topology import Builder, Topology
from rapid_llm.units import parse

COLUMNS: Final = ("from", "to", "bandwidth")
"""Columns of an edge list; ``latency``, ``reverse`` (bandwidth of the way back; 0 for none) and ``kind`` may follow."""
GUESSES: Final = {
    "nvswitch": "nvswitch",
    "nvs": "nvswitch",
    "nic": "nic",
    "leaf": "leaf",
    "tor": "leaf",
    "spine": "spine",
    "core": "core",
    "router": "router",
    "switch": "leaf",
    "host": "host",
}
"""What the end of a node's name says it is; every other node is an accelerator."""


def read_topology(path: Path | str) -> Topology:
    """Read an edge list: CSV with the columns of COLUMNS, or YAML with a list ``links`` of such mappings and, where
    names do not say it, ``nodes: {NAME: KIND}``. InputError with file and line otherwise.
    """
    file = Path(path)
    try:
        text = file.read_text("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{file} cannot be read as an edge list: {error}.", field="topology") from error
    if file.suffix.lower() == ".csv":
        reader = csv.DictReader(io.StringIO(text))
        rows: list[Mapping[str, Any]] = [{(k or "").strip(): v for k, v in row.items()} for row in reader]
        return topology_of_edges(rows, name=file.stem, file=str(file), first_line=2)
    data = parse_yaml(text, str(file)).data
    if not isinstance(data, dict) or not isinstance(data.get("links"), list):
        raise InputError(f"{file} must hold a list 'links' of {{from, to, bandwidth}}.", field="links", file=str(file))
    kinds = data.get("nodes") or {}
    return topology_of_edges(data["links"], name=str(data.get("name", file.stem)), kinds=kinds, file=str(file))


def topology_of_edges(
    rows: Sequence[Mapping[str, Any]],
    *,
    name: str = "edges",
    kinds: Mapping[str, str] | None = None,
    file: str | None = None,
    first_line: int | None = None,
) -> Topology:
    """A topology from mappings with ``from``, ``to``, ``bandwidth`` (``50 GB/s``; both ways unless ``reverse``) and
    maybe ``latency`` (``1 us``) and ``kind``. InputError for a missing column, a bad quantity or a link to itself.
    """
    ends, back, rates = [], [], []
    names: dict[str, None] = {}
    for index, row in enumerate(rows):
        line = None if first_line is None else first_line + index
        where = f"links[{index}]"
        missing = [c for c in COLUMNS if not (isinstance(row, Mapping) and row.get(c) not in (None, ""))]
        if missing:
            raise InputError(f"{where} of {name} needs {' and '.join(missing)}.", field=where, file=file, line=line)
        a, b = str(row["from"]).strip(), str(row["to"]).strip()
        if a == b:
            raise InputError(f"{where} of {name} joins '{a}' with itself.", field=where, file=file, line=line)
        rate = _quantity(row["bandwidth"], "bandwidth", f"{where}.bandwidth", file, line)
        if rate <= 0:
            raise InputError(
                f"{where}.bandwidth of {name} must be above 0 (got '{row['bandwidth']}').",
                field=where,
                file=file,
                line=line,
            )
        way_back = row.get("reverse")
        back.append(
            rate if way_back in (None, "") else _quantity(way_back, "bandwidth", f"{where}.reverse", file, line)
        )
        wait = row.get("latency")
        delay = 0.0 if wait in (None, "") else _quantity(wait, "time", f"{where}.latency", file, line)
        rates.append((rate, delay))
        ends.append((a, b))
        names.update({a: None, b: None})
    table = np.array(rates).reshape(-1, 2)
    return _built(name, list(names), ends, rates=table, back=np.array(back), kinds=kinds or {})


def topology_of_matrix(bandwidth: ArrayLike, *, latency: float = 0.0, name: str = "matrix") -> Topology:
    """A link for every pair whose measured bandwidth (B/s, row to column) is above 0.

    InputError for a matrix that is not square or holds a negative number.
    """
    matrix = np.asarray(bandwidth, dtype=np.float64)
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
        shape = " x ".join(str(side) for side in matrix.shape)
        raise InputError(
            f"a bandwidth matrix is square, one row and column an accelerator (got {shape}).", field="topology.matrix"
        )
    if not np.isfinite(matrix).all() or (matrix < 0).any():
        row, column = np.argwhere(~np.isfinite(matrix) | (matrix < 0))[0]
        raise InputError(
            f"bandwidth from accelerator {row} to {column} must be 0 or more (got {matrix[row, column]:g} B/s).",
            field="topology.matrix",
        )
    build = Builder(name)
    nodes = build.add([f"gpu{i}" for i in range(len(matrix))], "accelerator")
    a, b = np.nonzero(np.where(np.eye(len(matrix), dtype=bool), 0.0, matrix))
    build.join(nodes[a], nodes[b], matrix[a, b], latency, "scale-up", both=False)
    return build.build()


def _built(
    name: str, names: list[str], ends: list[tuple[str, str]], *, rates: Any, back: Any, kinds: Mapping[str, str]
) -> Topology:
    build, place = Builder(name), {}
    for one in names:
        box = re.match(r"node(\d+)\.", one)
        place[one] = int(build.add([one], kinds.get(one) or _guess(one), box=int(box[1]) if box else -1)[0])
    a, b = (np.array([place[pair[k]] for pair in ends], np.int64) for k in (0, 1))
    build.join(a, b, rates[:, 0], rates[:, 1], both=False)
    returns = back > 0
    build.join(b[returns], a[returns], back[returns], rates[returns, 1], both=False)
    return build.build()


def _guess(name: str) -> str:
    last = name.rsplit(".", 1)[-1].lower()
    return next((kind for start, kind in GUESSES.items() if last.startswith(start)), "accelerator")


def _quantity(value: Any, dimension: str, field: str, file: str | None, line: int | None) -> float:
    try:
        return parse(str(value), dimension)
    except ValueError as error:
        raise InputError(f"{field} {error}", field=field, file=file, line=line) from error
