"""Measured tables: CSV files read with the standard library, recognised by their columns and not by their names."""

import csv
import io
import json
from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite
from pathlib import Path

from rapid_llm.documents import read_table, show
from rapid_llm.errors import InputError

Row = Mapping[str, str]


def _columns(names: str) -> frozenset[str]:
    return frozenset(names.split())


SCHEMAS: Mapping[str, frozenset[str]] = {
    "training": _columns(
        "id source gpu n_gpus framework hidden layers heads seq_len global_batch micro_batch tp pp metric value"
    ),
    "nanotron": _columns(
        "id gpu n_gpus framework hidden layers seq_len global_batch_seqs micro_batch tp pp outcome "
        "tokens_per_s_per_gpu mem_alloc_gb mem_reserved_gb"
    ),
    "memory": _columns("id source gpu n_gpus framework model tp pp outcome mem_gb mem_unit mem_kind"),
    "caches": _columns("id source source_ref model accelerator n_gpus runtime tp precision utilisation cache_gib"),
    "inference": _columns(
        "id source gpu n_gpus engine model tp pp batch_or_concurrency arrival input_len output_len metric value "
        "completeness"
    ),
    "served": _columns(
        "backend backend_version model_path system precision mode isl osl batch_size tp_size attention_dp_size "
        "moe_ep_size concurrency ttft_ms tpot_ms"
    ),
    "energy": _columns(
        "id source gpu n_gpus engine model tp batch_or_concurrency scenario input_len output_len metric value scope"
    ),
    "collectives": _columns("lib op dtype ngpus bytes latency_us framework version kernel"),
    "expert_exchanges": _columns("op phase node_num num_token hidden_size num_topk num_experts sms latency_us"),
    "profile_vidur": _columns(
        "device model tp d_model d_ff n_head n_kv_head tokens attn_pre_proj_ms attn_post_proj_ms mlp_up_proj_ms "
        "mlp_down_proj_ms"
    ),
    "profile_dense": _columns("hardware model tp layer tokens time_us"),
    "profile_experts": _columns("hardware model tp tokens activated_experts time_us"),
    "profile_attention": _columns("hardware model tp prefill_chunk kv_prefill n_decode kv_decode time_us"),
    "kernel_gemm": _columns("m n k dtype latency_us"),
    "kernel_context": _columns("batch isl prefix heads kv_heads head_dim window attn_dtype kv_dtype latency_us"),
    "kernel_generation": _columns("batch kv_len heads kv_heads head_dim window attn_dtype kv_dtype latency_us"),
    "kernel_moe": _columns("tokens hidden inter topk experts tp ep dtype dist latency_us"),
    "kernel_mla": _columns("op heads batch isl prefix tp mla_dtype kv_dtype gemm_dtype latency_us"),
    "kernel_ssm": _columns("op kernel_source phase batch_size seq_len num_v_heads head_k_dim head_v_dim latency_us"),
    "collective_logs": _columns("system gpu nodes ranks collective bytes time_us algbw_GBps"),
}
"""The columns that make a table one of a schema; further columns are welcome."""


FIGURES = _columns("value tokens_per_s_per_gpu mem_gb cache_gib ttft_ms tpot_ms latency_us time_us bytes")
"""Columns that hold what was measured: blank, or a number above 0."""
SUFFIXES = (".csv", ".csv.gz", ".json", ".json.gz")
PATTERN_KEYS = frozenset({"topology", "flows", "transport", "results"})
"""What a case of a file of packet-level patterns has."""


@dataclass(frozen=True, slots=True)
class Table:
    """One file: its schema, and its rows as text by column name (blank: the source does not say).

    Tables of kernels (``kernel_...``) hold many rows: these are read by columns, by who needs them (``kernels``).
    """

    schema: str
    path: Path
    rows: tuple[Row, ...]
    broken: tuple[str, ...] = ()
    """A sentence, with file and line, for each row whose figure is not one."""


def _cell(text: str | None) -> str:
    """A cell without blanks around it; whole numbers without ``.0``, so that rules can name them."""
    cell = (text or "").strip()
    return cell[:-2] if cell.endswith(".0") and cell[:-2].isdigit() else cell


def schema_of(columns: frozenset[str]) -> str | None:
    """The schema that a header belongs to, or None."""
    return next((name for name, needed in SCHEMAS.items() if needed <= columns), None)


def header(path: Path) -> list[str]:
    """The names of a file's columns."""
    return [name.strip() for name in read_table(path).split("\n", 1)[0].split(",")]


def lacking(path: Path, start: str = "") -> tuple[str, tuple[str, ...]]:
    """The schema (of those whose name has this start) that a file's header is nearest to, and what it lacks of it."""
    known = frozenset(header(path))
    missing = {name: tuple(sorted(columns - known)) for name, columns in SCHEMAS.items() if name.startswith(start)}
    nearest = min(missing, key=lambda name: len(missing[name]) / len(SCHEMAS[name]))
    return nearest, missing[nearest]


def read(path: Path) -> Table | None:
    """Read one CSV file, gzipped or not; None where its columns are of no schema here.

    Raises InputError for a file that is not readable text.
    """
    text = read_table(path)
    if path.name.endswith((".json", ".json.gz")):
        return _read_json(path, text)
    try:
        reader = csv.DictReader(io.StringIO(text))
        reader.fieldnames = [name.strip() for name in reader.fieldnames or ()]
        schema = schema_of(frozenset(reader.fieldnames or ()))
        if schema is None:
            return None
        if schema.startswith("kernel_"):
            return Table(schema, path, ())
        numbered = [
            (reader.line_num, {k: _cell(v) for k, v in row.items() if k is not None and not isinstance(v, list)})
            for row in reader
        ]
    except csv.Error as error:
        raise InputError(f"cannot be read as a CSV table: {error}.", file=str(path)) from error
    broken = (_broken(row, f"{path}:{line}") for line, row in numbered)
    return Table(schema, path, tuple(row for _, row in numbered), tuple(filter(None, broken)))


def _broken(row: Row, place: str) -> str:
    """Which figure of a row is not a number above 0; empty where all are, or blank."""
    for column in sorted(FIGURES & row.keys()):
        if row[column] and not (number(row, column) or 0) > 0:
            return f"{place}: {column} must be a number above 0, or blank (got {show(row[column])})."
    return ""


def _read_json(path: Path, text: str) -> Table | None:
    """A file of packet-level patterns, known by the keys of its first case; it is read by its suite."""
    try:
        data = json.loads(text)
    except (json.JSONDecodeError, RecursionError) as error:
        raise InputError(f"cannot be read as JSON: {str(error).lower()}.", file=str(path)) from error
    cases = data.get("cases") if isinstance(data, dict) else None
    known = isinstance(cases, list) and cases and isinstance(cases[0], dict) and cases[0].keys() >= PATTERN_KEYS
    return Table("packet_patterns", path, ()) if known else None


def find(folder: Path) -> tuple[Table, ...]:
    """Every table of a known schema in a folder and below it, in the order of their paths.

    Raises InputError where the folder does not exist.
    """
    if not folder.is_dir():
        raise InputError(f"--data must be a folder of measured tables: {folder} is not one.", field="data")
    return tuple(table for table in map(read, _files(folder)) if table is not None)


def _files(folder: Path) -> list[Path]:
    return sorted(p for p in folder.rglob("*") if p.name.endswith(SUFFIXES) and p.is_file())


def almost(folder: Path) -> str:
    """Which file of a folder lacks the fewest columns of a schema, in words; empty where none has most of them."""
    found = [(path, *lacking(path)) for path in _files(folder) if path.name.endswith((".csv", ".csv.gz"))]
    near = [one for one in found if 0 < len(one[2]) <= len(SCHEMAS[one[1]]) / 2]
    if not near:
        return ""
    path, schema, missing = min(near, key=lambda one: len(one[2]))
    return f"{path.name} is no table of {schema.replace('_', ' ')}s: it lacks {', '.join(missing)}."


def number(row: Row, column: str) -> float | None:
    """A cell as a number; None where it is blank or no finite one."""
    try:
        value = float(row.get(column, ""))
    except ValueError:
        return None
    return value if isfinite(value) else None


def integer(row: Row, column: str, default: int | None = None) -> int | None:
    """A cell as a whole number (tables write counts as ``8.0`` too)."""
    value = number(row, column)
    return default if value is None else round(value)


def count(row: Row, column: str) -> int:
    """A degree: a whole number, 1 where blank."""
    return integer(row, column) or 1


def matches(row: Row, where: Mapping[str, str]) -> bool:
    """Whether every named cell contains the given text, ignoring case; ``=text`` wants the whole cell."""
    for column, wanted in where.items():
        cell, text = row.get(column, "").lower(), str(wanted).lower()
        if not (cell == text[1:] if text.startswith("=") else text in cell):
            return False
    return True
