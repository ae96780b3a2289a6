"""``diff``: what two scenarios asked and what came out, side by side."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rapid_llm.cli import text
from rapid_llm.cli.style import show
from rapid_llm.documents import read_yaml
from rapid_llm.errors import InputError
from rapid_llm.predict import predict
from rapid_llm.scenario import load

_SHOWN = 20
_RESULTS = (
    "feasible",
    "step_time_s",
    "tokens_per_s",
    "tokens_per_s_per_accelerator",
    "mfu",
    "ttft_s",
    "tpot_s",
    "e2e_s",
    "output_tokens_per_s",
    "total_tokens_per_s",
    "memory.peak_bytes",
    "memory.capacity_bytes",
)


def compare(a: str, b: str, *, as_json: bool) -> int:
    """Print the fields that differ in the input, then the results with B / A."""
    first, second = _flat(_result(a)), _flat(_result(b))
    asked = _asked(first, second)
    costs = [key for key in dict.fromkeys([*first, *second]) if key.startswith("breakdown.")]
    came_out = [_pair(key, first.get(key), second.get(key)) for key in (*_RESULTS, *costs)]
    came_out = [pair for pair in came_out if pair["a"] is not None or pair["b"] is not None]
    if as_json:
        print(json.dumps({"scenario": asked, "results": came_out}, indent=2))
        return 0
    inputs = [[row["field"].removeprefix("scenario."), _cell(row["a"]), _cell(row["b"])] for row in asked[:_SHOWN]]
    results = [[row["field"], *map(_cell, (row["a"], row["b"], row["ratio"]))] for row in came_out]
    show(text.columns(inputs, ("asked", "A", "B")) if inputs else ["asked  the same"])
    more = [f"and {len(asked) - _SHOWN} more fields; --json prints them all"] if len(asked) > _SHOWN else []
    show([*more, "", *text.columns(results, ("came out", "A", "B", "B / A"), right=(1, 2, 3))])
    return 0


def _asked(first: Mapping[str, Any], second: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The input fields that differ; of another model or runtime only the name."""
    renamed = [f"scenario.{noun}." for noun in ("model", "runtime") if _differs(f"scenario.{noun}.name", first, second)]
    keys = [key for key in dict.fromkeys([*first, *second]) if key.startswith("scenario.")]
    return [
        {"field": key, "a": first.get(key), "b": second.get(key)}
        for key in keys
        if _differs(key, first, second) and not any(key.startswith(noun) and key != f"{noun}name" for noun in renamed)
    ]


def _differs(key: str, first: Mapping[str, Any], second: Mapping[str, Any]) -> bool:
    return first.get(key) != second.get(key)


def _result(file: str) -> Mapping[str, Any]:
    """The JSON object of a result file, or of the answer to a scenario file."""
    if Path(file).suffix != ".json":
        return predict(load(file)).to_dict()
    data = read_yaml(file).data
    if "feasible" not in data:
        raise InputError(f"{file} is not a result: it has no 'feasible'. Make one with: rapid-llm run FILE --json")
    return data


def _flat(result: Mapping[str, Any]) -> dict[str, Any]:
    flat = dict(_leaves(result, ""))
    tree = result.get("breakdown")
    return {**flat, **dict(_costs(tree, ()))} if tree else flat


def _leaves(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping) and not path.startswith("breakdown"):
        for key, item in value.items():
            yield from _leaves(item, f"{path}.{key}" if path else str(key))
    else:
        yield path, value


def _costs(cost: Mapping[str, Any], path: tuple[str, ...]) -> Iterator[tuple[str, float]]:
    for child in cost["children"]:
        here = (*path, child["name"])
        if not child["children"]:
            yield f"breakdown.{'/'.join(here)}", child["seconds"]
        yield from _costs(child, here)


def _pair(key: str, a: Any, b: Any) -> dict[str, Any]:
    numbers = all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in (a, b))
    return {"field": key, "a": a, "b": b, "ratio": b / a if numbers and a else None}


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    return f"{value:,.5g}" if isinstance(value, float) else f"{value:,}" if type(value) is int else str(value)
