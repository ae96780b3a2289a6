"""``diff``: what two scenarios asked and what came out, side by side."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import NoneType
from typing import Any

from rapid_llm.cli import text, words
from rapid_llm.cli.style import show
from rapid_llm.cli.text import json_text
from rapid_llm.documents import read_yaml
from rapid_llm.errors import InputError
from rapid_llm.predict import predict
from rapid_llm.provenance import is_path
from rapid_llm.scenario import load
from rapid_llm.units import (
    format_bandwidth,
    format_bytes,
    format_flops,
    format_frequency,
    format_percent,
    format_power,
    format_rate,
)

_SHOWN = 12
_COST = "breakdown."
_WIDEST = 24
_QUANTITIES: Mapping[str, Callable[[float], str]] = {
    "B": format_bytes,
    "B/s": format_bandwidth,
    "FLOP/s": format_flops,
    "Hz": format_frequency,
    "W": format_power,
    "s": text.seconds,
}
_UNITS: Mapping[str, Callable[[Any], str]] = {
    "tokens_per_s": format_rate,
    "tokens_per_s_per_accelerator": format_rate,
    "tokens_per_s_per_user": format_rate,
    "requests_per_s": lambda value: f"{text.amount(value)} requests/s",
    "mfu": format_percent,
    "_bytes": format_bytes,
    "time_s": text.seconds,
    "ttft_s": text.seconds,
    "tpot_s": text.seconds,
    "e2e_s": text.seconds,
}
_RESULTS = (
    "feasible",
    "step_time_s",
    "tokens_per_s",
    "tokens_per_s_per_accelerator",
    "mfu",
    "ttft_s",
    "tpot_s",
    "e2e_s",
    "output_tokens_per_s_per_user",
    "output_tokens_per_s",
    "total_tokens_per_s",
    "requests_per_s",
    "memory.peak_bytes",
    "memory.capacity_bytes",
)


def compare(a: str, b: str, *, as_json: bool) -> int:
    """Print the fields that differ in the input, then the results with B / A."""
    first, second = _flat(_result(a)), _flat(_result(b))
    asked = _asked(first, second)
    parts = _most_changed(first, second)
    came_out = [_pair(key, first.get(key), second.get(key)) for key in (*_RESULTS, *parts)]
    came_out = [pair for pair in came_out if pair["a"] is not None or pair["b"] is not None]
    if as_json:
        print(json_text({"scenario": asked, "results": came_out}))
        return 0
    inputs = [[row["field"].removeprefix("scenario."), _cell(row["a"]), _cell(row["b"])] for row in asked[:_SHOWN]]
    results = [_cells(row) for row in came_out[: len(_RESULTS) + _SHOWN]]
    show(text.columns(inputs, ("asked", "A", "B")) if inputs else ["asked  the same"])
    more = [f"and {len(asked) - _SHOWN} more fields; --json prints them all"] if len(asked) > _SHOWN else []
    show([*more, "", *text.columns(results, ("came out", "A", "B", "B / A"), right=(1, 2, 3))])
    return 0


def _asked(first: Mapping[str, Any], second: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The input fields that differ, names first and hardware last; of another model, runtime or precision the name."""
    renamed = [f"scenario.{noun}." for noun in _NAMED if _another(f"scenario.{noun}.name", first, second)]

    def tells(key: str) -> bool:
        inside = any(key.startswith(noun) and key != f"{noun}name" for noun in renamed)
        return key.startswith("scenario.") and not key.endswith(".aliases") and not inside

    keys = [key for key in dict.fromkeys([*first, *second]) if tells(key) and _differs(key, first, second)]
    keys.sort(key=lambda key: (key not in _FIRST, key.startswith("scenario.system.")))
    return [{"field": key, "a": first.get(key), "b": second.get(key)} for key in keys]


_NAMED = ("model", "runtime", "precision")
_FIRST = frozenset((*(f"scenario.{noun}.name" for noun in (*_NAMED, "system")), "scenario.accelerators"))
"""What a reader wants to know before all else that differs."""


def _another(key: str, first: Mapping[str, Any], second: Mapping[str, Any]) -> bool:
    """Whether two names are of different things, and not of one that is changed in one of both."""
    a, b = (str(one.get(key)).removesuffix(" (changed)") for one in (first, second))
    return a != b


def _differs(key: str, first: Mapping[str, Any], second: Mapping[str, Any]) -> bool:
    return first.get(key) != second.get(key)


def _result(file: str) -> Mapping[str, Any]:
    """The JSON object of a result file, or of the answer to a scenario file."""
    if not is_path(file) and not Path(file).exists():
        raise InputError(
            f"diff compares scenario files, or answers in JSON (got {file}). Make one with: "
            "rapid-llm infer ... --json > a.json"
        )
    if Path(file).suffix != ".json":
        return predict(load(file)).to_dict()
    data = read_yaml(file).data
    if "feasible" not in data:
        raise InputError(f"{file} is not a result: it has no 'feasible'. Make one with: {_MADE}")
    wrong = next(_malformed(data), None)
    if wrong is not None:
        raise InputError(f"{file} is not a result as --json prints it: see '{wrong}'. Make one with: {_MADE}")
    return data


_MADE = "rapid-llm run FILE --json"


def _malformed(data: Mapping[str, Any]) -> Iterator[str]:
    """The fields of a result that are not what an answer has there."""
    if not isinstance(data["feasible"], bool):
        yield "feasible"
    if not isinstance(data.get("scenario"), Mapping):
        yield "scenario"
    flat = dict(_leaves({key: value for key, value in data.items() if key != "breakdown"}, ""))
    for key in _RESULTS:
        if not isinstance(flat.get(key), (int, float, NoneType)):
            yield key
    if data.get("breakdown") is not None and not _is_cost(data["breakdown"]):
        yield "breakdown"


def _is_cost(cost: Any) -> bool:
    """Whether this is a node of a breakdown, all of its children included."""
    return (
        isinstance(cost, Mapping)
        and isinstance(cost.get("name"), str)
        and isinstance(cost.get("seconds"), (int, float))
        and isinstance(cost.get("children"), list)
        and all(map(_is_cost, cost["children"]))
    )


def _flat(result: Mapping[str, Any]) -> dict[str, Any]:
    flat = dict(_leaves(result, ""))
    for key, seconds in _costs(result.get("breakdown") or {"children": ()}, ()):
        flat[key] = flat.get(key, 0.0) + seconds
    return flat


def _leaves(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping) and not path.startswith("breakdown"):
        for key, item in value.items():
            yield from _leaves(item, f"{path}.{key}" if path else str(key))
    else:
        yield path, value


def _costs(cost: Mapping[str, Any], path: tuple[str, ...]) -> Iterator[tuple[str, float]]:
    """The leaves of a breakdown; of kernels without what bounds them, which may differ between A and B."""
    for child in cost["children"]:
        here = path if child["children"] and child["name"] in words.KERNELS else (*path, child["name"])
        if not child["children"]:
            yield f"breakdown.{'/'.join(here)}", child["seconds"]
        yield from _costs(child, here)


def _most_changed(first: Mapping[str, Any], second: Mapping[str, Any]) -> list[str]:
    """The leaves of both breakdowns, the largest change in seconds first."""
    keys = [key for key in dict.fromkeys([*first, *second]) if key.startswith(_COST)]
    return sorted(keys, key=lambda key: -abs(second.get(key, 0.0) - first.get(key, 0.0)))


def _pair(key: str, a: Any, b: Any) -> dict[str, Any]:
    numbers = all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in (a, b))
    return {"field": key, "a": a, "b": b, "ratio": b / a if numbers and a else None}


def _cells(row: Mapping[str, Any]) -> list[str]:
    """A result as a reader wants it: values with their unit, costs indented."""
    name = str(row["field"])
    printed = next((printed for suffix, printed in _UNITS.items() if name.endswith(suffix)), _cell)
    if name.startswith(_COST):
        name, printed = f"  {words.cost(tuple(name.removeprefix(_COST).split('/')))}", text.seconds
    ratio = "-" if row["ratio"] is None else f"{row['ratio']:.3f}"
    return [name, *("-" if row[side] is None else printed(row[side]) for side in ("a", "b")), ratio]


def _cell(value: Any) -> str:
    """A value of an input field as a reader wants it."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (list, tuple)):
        value = ", ".join(map(str, value)) or "none"
    if isinstance(value, (int, float)):
        return f"{value:,.5g}" if isinstance(value, float) else f"{value:,}"
    number, _, unit = str(value).partition(" ")
    shown = _QUANTITIES[unit](float(number)) if unit in _QUANTITIES else str(value)
    return shown if len(shown) <= _WIDEST else f"{shown[: _WIDEST - 2]} …"
