"""How far to trust an answer: error quantiles of the nearest validation group, as the scorecard wrote them."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from importlib import resources
from math import prod
from typing import Any

from rapid_llm import hardware
from rapid_llm.documents import parse_yaml
from rapid_llm.predict.report import Confidence
from rapid_llm.scenario import Scenario, used_groups

_METRICS = {"training": ("step_time",), "inference": ("e2e", "throughput", "tpot", "ttft")}
"""What an interval may rest on, the headline itself first: a group may have printed a rate or one phase alone."""
_OF_MEMORY = {"training": "peak", "inference": "cache"}
MEAN = "all"
"""The group that is the mean over groups."""
ENCODERS = ("encoder", "encoder-decoder", "relative-encoder-decoder", "speech", "image-encoder")
"""Kinds of model of which no job was measured end to end."""
ENOUGH = 10
"""Rows from which nine tenths of them can be told apart from all; fewer speak for no narrower an interval than the
mean over groups."""


@lru_cache(maxsize=1)
def written() -> dict[str, Any]:
    """The file as the scorecard wrote it: ``quantiles``, and ``lent``: errors of kernels priced without a fit of their
    own.
    """
    file = resources.files("rapid_llm.predict").joinpath("data", "confidence.yaml")
    return parse_yaml(file.read_text("utf-8"), "confidence.yaml").data


def confidence_of(scenario: Scenario, *, memory: bool = False) -> Confidence | None:
    """The validation group nearest to a scenario; None where nothing of the kind was measured.

    Nearest is what ran on its accelerator with its runtime, then on its accelerator, then on its architecture (with its
    runtime first), then its runtime, else the mean over groups. Of equally near groups the one with errors of the
    headline number, then the one with most rows. Of unlike accelerators the one with the largest error counts.
    ``memory``: errors of memory instead of time.
    """
    kind = scenario.workload.kind
    suite, metrics = ("memory", (_OF_MEMORY[kind],)) if memory else (kind, _METRICS[kind])
    chips = [group.node.accelerator for group in used_groups(scenario)]
    runtime = scenario.runtime.name.partition("@")[0]
    encodes = scenario.model.kind in ENCODERS
    found = [
        _nearest(suite, metrics, (chip.name, chip.architecture), runtime, encodes) for chip in dict.fromkeys(chips)
    ]
    least = max(found, key=lambda one: one.within if one else 0.0)
    if least is None:
        return None
    unlike = len(found) > 1 or bool(scenario.system.links)
    alone = ("no measured job joins unlike groups of nodes",) if unlike else ()
    frozen = ("no measured job trains adapters alone",) if getattr(scenario.workload, "lora", None) else ()
    return replace(least, reasons=(*least.reasons, *alone, *frozen))


@lru_cache(maxsize=256)
def _nearest(
    suite: str, metrics: tuple[str, ...], chip: tuple[str, str], runtime: str, encodes: bool
) -> Confidence | None:
    rows = [r for r in written()["quantiles"] if r["suite"] == suite and r["metric"] in metrics]
    if not rows:
        return None

    def nearness(row: dict[str, Any]) -> tuple[int, int, bool, int]:
        alike = 4 * (chip[0] in row["accelerators"]) + 2 * (chip[1] in _architectures(row))
        same = alike + (runtime in row["runtimes"])
        return same, -metrics.index(row["metric"]), row["group"] == MEAN and not same, row["rows"]

    chosen = max(rows, key=nearness)
    reasons = _reasons(chosen, chip[0], runtime)
    found = Confidence(suite, chosen["group"], chosen["rows"], chosen["median"], chosen["p90"], reasons, chosen["p90"])
    if suite == "memory":
        return found
    (p90, few), (factor, why) = _supported(chosen, rows), _widening(rows, chip, runtime, encodes)
    return replace(found, reasons=(*reasons, *few, *why), within=p90 * factor)


def power_strays(scenario: Scenario) -> float | None:
    """The relative error that the mean power of nine runs in ten stays within: of the accelerator where enough runs
    were measured, else of the mean over groups; of unlike accelerators the largest. All measured runs are of serving: a
    training step is trusted no better than their mean. None where the scorecard has no table of power.
    """
    rows = [r for r in written()["quantiles"] if (r["suite"], r["metric"]) == ("energy", "power")]
    mean = next((r for r in rows if r["group"] == MEAN), None)
    if mean is None:
        return None
    chips = {group.node.accelerator.name for group in used_groups(scenario)}
    known = {chip: [r for r in rows if chip in r["accelerators"] and r["rows"] >= ENOUGH] for chip in chips}
    strays = [float(max(mine, key=lambda r: r["rows"], default=mean)["p90"]) for mine in known.values()]
    return max(*strays, float(mean["p90"]) if scenario.workload.kind == "training" else 0.0)


def _supported(row: dict[str, Any], rows: list[dict[str, Any]]) -> tuple[float, tuple[str, ...]]:
    """The error that 90 % of rows stay within, as far as the number of a group's rows supports it."""
    mean = next((r["p90"] for r in rows if r["group"] == MEAN and r["metric"] == row["metric"]), row["p90"])
    if row["rows"] >= ENOUGH or mean <= row["p90"]:
        return row["p90"], ()
    return mean, (f"so few rows: the interval is that of the mean over groups, {100 * mean:.1f} %",)


def _widening(
    rows: list[dict[str, Any]], chip: tuple[str, str], runtime: str, encodes: bool
) -> tuple[float, tuple[str, ...]]:
    """By how much an interval widens where no row ran on this accelerator with this runtime, and why. For kernels that
    price a device without a fit of its own, the scorecard writes their error beside that of the same kernels with a
    fit: the mean ratio holds for a device whose architecture was measured, the largest for one of an unmeasured
    architecture, and for an encoder on any device.
    """
    if not encodes and any(chip[0] in row["accelerators"] and runtime in row["runtimes"] for row in rows):
        return 1.0, ()
    if not written().get("lent"):
        return 1.0, ()
    mean, most = straying()
    if encodes:
        why = f"no encoder was measured end to end: interval {most:.1f} times as wide"
        return most, (f"{why}, the most that kernels stray without a fit of their own",)
    if any(chip[1] in _architectures(row) for row in (*rows, *written()["lent"])):
        return mean, (f"interval {mean:.1f} times as wide, as kernels stray without a fit of their own",)
    why = f"nothing of architecture {chip[1]} was measured in {rows[0]['suite']}: interval {most:.1f} times as wide"
    return most, (f"{why}, the most that kernels stray without a fit of their own",)


def straying() -> tuple[float, float]:
    """Ratio of errors of kernels without and with a fit of their own: the mean over devices, and the largest."""
    ratios = [max(1.0, row["lent"] / row["own"]) for row in written()["lent"]]
    return prod(ratios) ** (1.0 / len(ratios)), max(ratios)


def kernels_stray(accelerator: str) -> float:
    """The same ratio for one accelerator: the mean where kernels of its architecture were measured,
    else the largest.
    """
    mean, most = straying()
    return mean if any(_architecture(accelerator) in _architectures(row) for row in written()["lent"]) else most


def _architectures(row: dict[str, Any]) -> frozenset[str]:
    return frozenset(_architecture(name) for name in row["accelerators"])


@lru_cache(maxsize=256)
def _architecture(name: str) -> str:
    return hardware.accelerator(name).architecture


def _reasons(row: dict[str, Any], chip: str, runtime: str) -> tuple[str, ...]:
    found = []
    if chip not in row["accelerators"]:
        found.append(f"{chip} was not measured end to end: its datasheet and its architecture's constants answer")
    if runtime not in row["runtimes"]:
        found.append(f"none of these rows ran {runtime}")
    return tuple(found)
