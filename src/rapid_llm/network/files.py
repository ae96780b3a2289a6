"""A user's own interconnect: an edge list as YAML or CSV, or a measured bandwidth matrix; routes and other traffic."""

import csv
import io
import re
from collections.abc import Mapping, Sequence
from itertools import pairwise, zip_longest
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from rapid_llm.documents import parse_yaml, read_table
from rapid_llm.errors import InputError, did_you_mean, nearest, unknown_name
from rapid_llm.network.routing import Table
from rapid_llm.network.topology import LINK_KINDS, Builder, Floats, Ints, Topology
from rapid_llm.units import MAX_BANDWIDTH, parse

COLUMNS: Final = ("from", "to", "bandwidth")
"""Columns of an edge list; those of MORE may follow."""
MORE: Final = ("latency", "reverse", "kind")
"""``reverse``: bandwidth of the way back, 0 for none; ``kind``: one of LINK_KINDS."""
MOST_BYTES: Final = 2.0**60
"""A message of more is no message (1 EiB)."""
GIGA: Final = 1e9
"""Bandwidths are decimal (B/s per GB/s)."""
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
    names do not say it, ``nodes: {NAME: KIND}``; or a matrix of bandwidths (GB/s), a line a row, with commas or blanks
    between. InputError with file and line otherwise.
    """
    file = Path(path)
    text = _text(file)
    unpacked = file.with_suffix("") if file.suffix.lower() == ".gz" else file
    if unpacked.suffix.lower() in (".csv", ".txt"):
        if _is_matrix(text):
            return topology_of_matrix(_matrix(text, str(file)), name=unpacked.stem)
        return topology_of_edges(_rows(text, file, COLUMNS, MORE), name=unpacked.stem, file=str(file), first_line=2)
    data = parse_yaml(text, str(file)).data
    if not isinstance(data, dict) or not isinstance(data.get("links"), list):
        raise InputError("must hold a list 'links' of {from, to, bandwidth}.", field="links", file=str(file))
    kinds = data.get("nodes") or {}
    if not isinstance(kinds, dict):
        raise InputError("nodes must be a mapping {NAME: KIND}.", field="nodes", file=str(file))
    kinds = {str(name): str(kind) for name, kind in kinds.items()}
    return topology_of_edges(data["links"], name=str(data.get("name", file.stem)), kinds=kinds, file=str(file))


def read_routes(path: Path | str, topology: Topology) -> Table:
    """A CSV of routes: ``from``, ``to``, and ``via``, the nodes between them in order, with blanks between.

    InputError for a node or a link that the topology has not.
    """
    table: dict[tuple[int, int], tuple[int, ...]] = {}
    for index, row in enumerate(_listed(path, ("from", "to", "via"))):
        between = str(row["via"] or "").split()
        if row["from"] in between or row["to"] in between:
            raise InputError(
                f"via names an end of the route from {row['from']} to {row['to']}. Try only the nodes between them.",
                field="via", file=str(path), line=index + 2,
            )  # fmt: skip
        way = [topology.node(name) for name in (row["from"], *between, row["to"])]
        links = [topology.links_between(a, b)[:1].tolist() for a, b in pairwise(way)]
        if not all(links):
            a, b = next(pair for pair, link in zip(pairwise(way), links, strict=True) if not link)
            raise InputError(
                f"a route goes from {topology.names[a]} to {topology.names[b]}, which {topology.name} does not join.",
                field="via", file=str(path), line=index + 2,
            )  # fmt: skip
        table[way[0], way[-1]] = tuple(link[0] for link in links)
    return table


def read_traffic(path: Path | str, topology: Topology) -> tuple[Ints, Ints, Floats]:
    """A CSV of flows beside a collective: ``from``, ``to``, ``bytes``; their nodes, and bytes (``2 GiB``)."""
    rows = _listed(path, ("from", "to", "bytes"))
    ends = [np.array([topology.node(row[end]) for row in rows], np.int64) for end in ("from", "to")]
    for i in np.flatnonzero(ends[0] == ends[1]).tolist():
        said = f"a flow goes from {rows[i]['from']} to itself. Leave it out."
        raise InputError(said, field="to", file=str(path), line=i + 2)
    amount = [_quantity(row["bytes"], "bytes", "bytes", str(path), i + 2) for i, row in enumerate(rows)]
    for i, (row, one) in enumerate(zip(rows, amount, strict=True)):
        if not 0 <= one <= MOST_BYTES:
            raise InputError(
                f"a flow must be 0 bytes or more, and at most 1 EiB (got {row['bytes']}).",
                field="bytes", file=str(path), line=i + 2,
            )  # fmt: skip
    return ends[0], ends[1], np.array(amount, np.float64)


def read_messages(path: Path | str) -> Floats:
    """A square CSV of bytes, a row for each sender and a column for each receiver, such as ``0,1MiB`` or ``0,1048576``.

    InputError with the line where it is none.
    """
    file = Path(path)
    rows = [re.split(r"[,;\t]", line.strip().rstrip(",;")) for line in _text(file).splitlines() if line.strip()]
    if not any(re.match(r"\s*[-+.\d]", cell) for cell in rows[0]) and not any(map(_number, rows[0])):
        raise InputError("line 1 is a header. Try rows of numbers alone.", field="matrix", file=str(file), line=1)
    for line, row in enumerate(rows, 1):
        if len(row) != len(rows):
            raise InputError(
                f"must be square, a row and a column for each rank (got {len(rows)} rows and {len(row)} columns).",
                field="matrix", file=str(file), line=line,
            )  # fmt: skip
    return np.array(
        [[_bytes(cell, f"{file}", line) for cell in row] for line, row in enumerate(rows, 1)], dtype=np.float64
    )


def _bytes(cell: str, file: str, line: int) -> float:
    """A cell in bytes, with or without a unit; not below 0."""
    cell = cell.strip()
    found = float(cell) if _number(cell) else _quantity(cell, "bytes", "a message", file, line)
    if not found >= 0 or found == float("inf"):
        raise InputError(f"a message must be 0 bytes or more (got {cell}).", field="matrix", file=file, line=line)
    if found > MOST_BYTES:
        raise InputError(
            f"a message must be at most 1 EiB (got {cell}). Try a size such as 1MiB.",
            field="matrix", file=file, line=line,
        )  # fmt: skip
    return found


def _listed(path: Path | str, columns: tuple[str, ...]) -> list[dict[str, str]]:
    """The rows of a CSV with these columns."""
    return _rows(_text(Path(path)), Path(path), columns)


def _text(file: Path) -> str:
    text = read_table(file)
    if not text.strip():
        raise InputError("cannot be read: it is empty.", field="topology", file=str(file))
    return text


def _rows(text: str, file: Path, columns: tuple[str, ...], more: tuple[str, ...] = ()) -> list[dict[str, str]]:
    """The rows of a CSV that must have some columns and may have more, blanks round cells left out.

    InputError for a file without a header or a row, a column of another name, and a row with more cells than columns.
    """
    try:
        read = csv.reader(io.StringIO(text), delimiter=_separator(text))
        header, *rows = [[cell.strip() for cell in row] for row in read if row]
    except csv.Error as error:
        raise InputError(f"cannot be read as CSV: {error}.", field="topology", file=str(file)) from None
    named, known = [name for name in header if name], (*columns, *more)
    if not set(named) & set(known) and not nearest(named[0] if named else "", known):
        raise InputError(f"has no header: its first line must be {','.join(columns)}.", file=str(file), line=1)
    for name in named:
        if name not in known:
            raise InputError(unknown_name("column", name, known), field=name, file=str(file), line=1)
        if named.count(name) > 1:
            raise InputError(f"has more than one column {name}.", field=name, file=str(file), line=1)
    if missing := [name for name in columns if name not in named]:
        raise InputError(f"needs the columns {', '.join(columns)}.", field=missing[0], file=str(file), line=1)
    if not rows:
        raise InputError("has a header and no row below it.", file=str(file))
    for line, row in enumerate(rows, 2):
        if any(cell and not name for name, cell in zip_longest(header, row, fillvalue="")):
            raise InputError(f"has {len(row)} cells below {len(named)} columns.", file=str(file), line=line)
    return [{name: cell for name, cell in zip_longest(header, row, fillvalue="") if name} for row in rows]


def _separator(text: str) -> str:
    """What stands between the names of a header: a comma, or what spreadsheets write elsewhere."""
    header = text.lstrip().partition("\n")[0]
    return max(",;\t", key=header.count)


def _is_matrix(text: str) -> bool:
    """Whether the last line holds numbers only, after a label perhaps."""
    cells = re.split(r"[,\s]+", text.strip().rpartition("\n")[2].strip().strip(","))
    return len(cells) > 0 and all(_number(cell) for cell in cells[1:] or cells)


def _matrix(text: str, file: str) -> list[list[float]]:
    """B/s from a table of GB/s; a first line and column of labels are dropped."""
    rows = [re.split(r"[,\s]+", line.strip().strip(",")) for line in text.splitlines() if line.strip()]
    if rows and not _number(rows[0][0]):  # labels, as tools print them
        rows = [row[1:] for row in rows[1:]]
    width = len(rows[0]) if rows else 0
    for line, row in enumerate(rows):
        bad = next((cell for cell in row if not (_number(cell) and 0 <= float(cell) < float("inf"))), None)
        if bad is not None:
            raise InputError(
                f"'{bad}' is not a bandwidth in GB/s, 0 or more.", field="topology.matrix", file=file, line=line + 1
            )
        if len(row) != width or len(rows) != width:
            raise InputError(
                f"a bandwidth matrix is square, one row and column an accelerator (got {len(rows)} rows and "
                f"{len(row)} columns).", field="topology.matrix", file=file, line=line + 1,
            )  # fmt: skip
    return [[float(cell) * GIGA for cell in row] for row in rows]


def _number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


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
    edges = []
    for index, row in enumerate(rows):
        line = None if first_line is None else first_line + index
        edges.append(_edge(row, name, f"links[{index}]", file, line))
    names = dict.fromkeys(end for edge in edges for end in edge.ends)
    return _built(
        name,
        list(names),
        [edge.ends for edge in edges],
        rates=np.array([(edge.rate, edge.latency) for edge in edges]).reshape(-1, 2),
        back=np.array([edge.reverse for edge in edges]),
        sorts=np.array([edge.sort for edge in edges], np.int8),
        kinds=kinds or {},
    )


class _Edge(NamedTuple):
    """A link as a row states it: B/s from its first end to the second and ``reverse``, s, the place of its kind."""

    ends: tuple[str, str]
    rate: float
    reverse: float
    latency: float
    sort: int


def _edge(row: Mapping[str, Any], name: str, where: str, file: str | None, line: int | None) -> _Edge:
    """A row of a list of links; InputError for a missing column, a bad quantity or a link to itself."""
    _known(row, where, file, line)
    missing = [c for c in COLUMNS if not (isinstance(row, Mapping) and row.get(c) not in (None, ""))]
    if missing:
        raise InputError(f"{where} of {name} needs {' and '.join(missing)}.", field=where, file=file, line=line)
    a, b = str(row["from"]).strip(), str(row["to"]).strip()
    if a == b:
        raise InputError(f"{where} of {name} joins '{a}' with itself.", field=where, file=file, line=line)

    def amount(field: str, dimension: str, default: float) -> float:
        given = row.get(field)
        found = default if given in (None, "") else _quantity(given, dimension, f"{where}.{field}", file, line)
        least = "above 0" if field == "bandwidth" else "0 or more"
        if not (found > 0 if field == "bandwidth" else found >= 0):
            said = f"{where}.{field} of {name} must be {least} (got '{given}')."
            raise InputError(said, field=where, file=file, line=line)
        return found

    rate = amount("bandwidth", "bandwidth", 0.0)
    reverse, latency = amount("reverse", "bandwidth", rate), amount("latency", "time", 0.0)
    return _Edge((a, b), rate, reverse, latency, LINK_KINDS.index(row.get("kind") or "fabric"))


def _known(row: Any, where: str, file: str | None, line: int | None) -> None:
    """InputError for a field of an edge that none has, and for a kind of link that is none."""
    if not isinstance(row, Mapping):
        return
    known = (*COLUMNS, *MORE)
    for name in row:
        if name not in known:
            hint = did_you_mean(str(name), known) or f"Known: {', '.join(known)}."
            raise InputError(f"unknown field '{where}.{name}'. {hint}", field=where, file=file, line=line)
    if row.get("kind") and row["kind"] not in LINK_KINDS:
        said = unknown_name(f"{where}.kind", str(row["kind"]), LINK_KINDS)
        raise InputError(said, field=f"{where}.kind", file=file, line=line)


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
    name: str,
    names: list[str],
    ends: list[tuple[str, str]],
    *,
    rates: Any,
    back: Any,
    sorts: Any,
    kinds: Mapping[str, str],
) -> Topology:
    unknown = next((one for one in kinds if one not in names), None)
    if unknown is not None:
        hint = did_you_mean(str(unknown), names)
        raise InputError(f"nodes of {name} name '{unknown}', which no link joins. {hint}".strip(), field="nodes")
    build, place = Builder(name), {}
    for one in names:
        box = re.match(r"node(\d+)\.", one)
        place[one] = int(build.add([one], kinds.get(one) or _guess(one), box=int(box[1]) if box else -1)[0])
    a, b = (np.array([place[pair[k]] for pair in ends], np.int64) for k in (0, 1))
    build.join(a, b, rates[:, 0], rates[:, 1], sorts, both=False)
    returns = back > 0
    build.join(b[returns], a[returns], back[returns], rates[returns, 1], sorts[returns], both=False)
    return build.build()


def _guess(name: str) -> str:
    last = name.rsplit(".", 1)[-1].lower()
    return next((kind for start, kind in GUESSES.items() if last.startswith(start)), "accelerator")


def _quantity(value: Any, dimension: str, field: str, file: str | None, line: int | None) -> float:
    try:
        found = parse(str(value), dimension)
    except ValueError as error:
        raise InputError(f"{field} {error}", field=field, file=file, line=line) from error
    if found > MAX_BANDWIDTH:  # nor are there so many seconds
        said = f"{field} is beyond any network (got {value})."
        raise InputError(said, field=field, file=file, line=line)
    return found
