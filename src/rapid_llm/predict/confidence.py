"""How far to trust an answer: error quantiles of the nearest validation group, as the scorecard wrote them."""

from __future__ import annotations

from functools import lru_cache
from importlib import resources
from typing import Any

from rapid_llm.documents import parse_yaml
from rapid_llm.predict.report import Confidence
from rapid_llm.scenario import Scenario

_METRIC = {"training": "step_time", "inference": "e2e"}


@lru_cache(maxsize=1)
def _quantiles() -> tuple[dict[str, Any], ...]:
    file = resources.files("rapid_llm.predict").joinpath("data", "confidence.yaml")
    return tuple(parse_yaml(file.read_text("utf-8"), "confidence.yaml").data["quantiles"])


def confidence_of(scenario: Scenario, *, memory: bool = False) -> Confidence | None:
    """The validation group nearest to a scenario: measured on its accelerator and runtime, on either, or the mean.

    Of equally near groups the one with most rows. ``memory``: of peak memory (training) instead of time.
    """
    kind = scenario.workload.kind
    if memory and kind != "training":
        return None
    suite, metric = ("memory", "peak") if memory else (kind, _METRIC[kind])
    chip = scenario.system.groups[0].node.accelerator.name
    return _nearest(suite, metric, chip, scenario.runtime.name.partition("@")[0])


@lru_cache(maxsize=256)
def _nearest(suite: str, metric: str, chip: str, runtime: str) -> Confidence | None:
    rows = [r for r in _quantiles() if r["suite"] == suite and r["metric"] == metric]
    if not rows:
        return None

    def nearness(row: dict[str, Any]) -> tuple[int, int, int]:
        same = 2 * (chip in row.get("accelerators", ())) + (runtime in row.get("runtimes", ()))
        return same, row["group"] == "all" if not same else 0, row["rows"]

    chosen = max(rows, key=nearness)
    return Confidence(
        suite, chosen["group"], chosen["rows"], chosen["median"], chosen["p90"], _reasons(chosen, chip, runtime)
    )


def _reasons(row: dict[str, Any], chip: str, runtime: str) -> tuple[str, ...]:
    found = []
    if chip not in row.get("accelerators", ()):
        found.append(f"{chip} was not measured end to end: its datasheet and its architecture's constants answer")
    if runtime not in row.get("runtimes", ()):
        found.append(f"{runtime} was not measured on it")
    return tuple(found)
