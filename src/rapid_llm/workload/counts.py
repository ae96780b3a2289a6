"""Tokens of each expert as measured, from a file: what traces and engines write is too long for a command line."""

import csv
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from rapid_llm.documents import read_table, read_yaml, show
from rapid_llm.errors import InputError

LONG = ("layer", "expert", "tokens")
"""Columns of a table with one line for each expert of each layer, in any order; ``layer`` may be left out."""
MOST = 2**12
"""A layer or an expert of a higher number is none of any model."""


def read_counts(path: Path) -> object:
    """Counts as ``Routing.counts`` takes them.

    YAML or JSON with a list ``counts``; or CSV: a line a layer with a number for each expert, or the columns of LONG.
    InputError with file and line otherwise.
    """
    if path.suffix.lower() in (".yaml", ".yml", ".json"):
        document = read_yaml(path)
        found = document.data.get("counts")
        if not isinstance(found, (list, tuple)):
            got = show(found) if found is not None else ", ".join(document.data) or "nothing"
            message = f"must hold a list 'counts', tokens of each expert (got {got}). Try counts: [120, 87, ...]."
            raise InputError(message, field="workload.routing.counts", file=str(path))
        return found
    rows = list(_rows(read_table(path)))
    if not rows:
        raise _error("is empty: a line a layer is needed, with a number for each expert.", path)
    names = [name.lower() for name in rows[0][1]]
    return _long(names, rows[1:], path) if {"expert", "tokens"} <= set(names) else _wide(rows, path)


def _rows(text: str) -> Iterator[tuple[int, list[str]]]:
    """Lines that say anything, with their numbers and cells."""
    for line, cells in enumerate(csv.reader(text.splitlines()), 1):
        if any(cell.strip() for cell in cells):
            yield line, [cell.strip() for cell in cells]


def _wide(rows: Sequence[tuple[int, list[str]]], path: Path) -> list[list[int]]:
    """A line a layer, a column an expert."""
    _, first = rows[0]
    for line, cells in rows:
        if len(cells) != len(first):
            raise _error(f"has {len(cells)} numbers in this line and {len(first)} in the first.", path, line)
    return [[_count(cell, path, line) for cell in cells] for line, cells in rows]


def _long(names: list[str], rows: Sequence[tuple[int, list[str]]], path: Path) -> list[list[int]]:
    """A line for each expert of each layer; experts without a line had no token."""
    unknown = [name for name in names if name not in LONG]
    if unknown:
        raise _error(f"has a column '{unknown[0]}'. Try {', '.join(LONG)}.", path, 1)
    found: dict[tuple[int, int], int] = {}
    for line, cells in rows:
        if len(cells) != len(names):
            raise _error(f"has {len(cells)} cells in this line, and {len(names)} columns.", path, line)
        row = {name: _count(cell, path, line) for name, cell in zip(names, cells, strict=True)}
        place = row.get("layer", 0), row["expert"]
        if max(place) > MOST:
            raise _error(
                f"names layer {place[0]}, expert {place[1]}: numbers start at 0 and end at {MOST}.", path, line
            )
        if place in found:
            raise _error(f"counts expert {place[1]} of layer {place[0]} twice.", path, line)
        found[place] = row["tokens"]
    if not found:
        raise _error("has a header and no line below it.", path)
    return _filled(found)


def _filled(found: Mapping[tuple[int, int], int]) -> list[list[int]]:
    """Layers in their order, whatever the number of the first (dense layers come before), with all of their experts."""
    experts = 1 + max(expert for _, expert in found)
    layers = sorted({layer for layer, _ in found})
    return [[found.get((layer, expert), 0) for expert in range(experts)] for layer in layers]


def _count(cell: str, path: Path, line: int) -> int:
    try:
        value = float(cell)
        if value == int(value) and value >= 0:
            return int(value)
    except (ValueError, OverflowError):
        pass
    raise _error(f"must hold whole numbers of at least 0 (got {show(cell)}).", path, line)


def _error(message: str, path: Path, line: int | None = None) -> InputError:
    return InputError(message, field="workload.routing.counts", file=str(path), line=line)
