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


def confidence_of(scenario: Scenario) -> Confidence | None:
    """The validation group nearest to a scenario: same accelerator if measured, else the whole suite."""
    kind = scenario.workload.kind
    rows = [r for r in _quantiles() if r["suite"] == kind and r["metric"] == _METRIC[kind]]
    if not rows:
        return None
    chip = scenario.system.groups[0].node.accelerator.name
    near = [r for r in rows if r["group"].endswith("/" + chip)]
    chosen = max(near, key=lambda r: r["rows"]) if near else next((r for r in rows if r["group"] == "all"), rows[0])
    reasons = (
        () if near else (f"{chip} was not measured end to end: its datasheet and its architecture's constants answer",)
    )
    return Confidence(kind, chosen["group"], chosen["rows"], chosen["median"], chosen["p90"], reasons)
