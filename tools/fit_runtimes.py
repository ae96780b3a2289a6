"""Fit host constants of an inference runtime on the fit half of published runs, and score them on the unseen half.

    python tools/fit_runtimes.py vllm@2024 per_step broadcast per_sequence per_kv_block --data ../shared/data

A pattern search over the logarithms of the constants, from what the runtime says, minimises the mean absolute relative
error of the fit half, every source and accelerator alike: floors make times piecewise linear in them, which no single
linear solution sees. Rows that wait for the cache and pipelines are left out, mixtures of experts unless asked for.
"""

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from rapid_llm.nouns import replaced
from rapid_llm.predict.engine import evaluate
from rapid_llm.scenario import Scenario, from_mapping
from rapid_llm.validation import running, tables

START = 1e-6
"""Where a constant that is zero starts (s)."""
MOST = 8
"""Rows of one label that the search looks at."""
WIDEST, FINEST = 2.0, 1.05
"""First and last factor that the search tries."""
READ = {
    "e2e": lambda table: table.e2e_s,
    "ttft": lambda table: table.ttft_s,
    "tpot": lambda table: table.tpot_s,
    "output_rate": None,
}

Row = tuple[str, str, str, float, Scenario]


def constant(scenario: Scenario, field: str) -> float:
    """A host constant (``per_layer.decode`` is nested) of the scenario's runtime."""
    value = scenario.runtime.host
    for name in field.split("."):
        value = getattr(value, name)
    return float(value)


def with_constants(scenario: Scenario, constants: Mapping[str, float]) -> Scenario:
    """The scenario with these host constants."""
    host = scenario.runtime.host
    for field, value in constants.items():
        name, _, phase = field.partition(".")
        inner = replaced(getattr(host, name), **{phase: value}) if phase else value
        host = replaced(host, **{name: inner})
    return replaced(scenario, runtime=replaced(scenario.runtime, host=host))


def rows(args: argparse.Namespace) -> list[Row]:
    """(split, label, metric, measured, scenario) of every usable case."""
    found = []
    for case in running.cases_of(["inference"], tables.find(args.data)):
        given, wanted = case.scenario, args.metrics.split(",")
        known = case.metric in wanted and case.quantity in READ
        if not given or not known or given["runtime"] != args.runtime or args.source not in case.group:
            continue
        scenario = from_mapping(given)
        experts = any(b.ffn and b.ffn.kind == "moe" for b in scenario.model.blocks)
        if (experts and not args.experts) or scenario.parallelism.pp > 1 or evaluate(scenario).rounds > 1:
            continue
        label = f"{case.group}/{scenario.model.name}/tp{scenario.parallelism.tp}/{case.metric}"
        found.append((case.split, label, case.quantity, case.measured, scenario))
    return found


def errors(found: Sequence[Row], constants: Mapping[str, float]) -> np.ndarray:
    """Relative error of every case."""
    return np.array([predicted(quantity, with_constants(s, constants)) / m - 1.0 for _, _, quantity, m, s in found])


def predicted(quantity: str, scenario: Scenario) -> float:
    """What a row measures: seconds, or output tokens/s of all replicas."""
    table = evaluate(scenario)
    if quantity != "output_rate":
        return float(READ[quantity](table))
    work, replicas = scenario.workload, scenario.parallelism.dp or 1
    requests = table.running * replicas if work.batch_size == "auto" else work.batch_size
    return float(requests * work.output_tokens / table.e2e_s)


def spread(seen: Sequence[Row]) -> list[Row]:
    """At most MOST rows of each label, evenly spaced."""
    labels = dict.fromkeys(row[1] for row in seen)
    own = [[row for row in seen if row[1] == label] for label in labels]
    return [rows_[at] for rows_ in own for at in sorted({round(x) for x in np.linspace(0, len(rows_) - 1, MOST)})]


def fitted(seen: Sequence[Row], fields: Sequence[str]) -> dict[str, float]:
    """The constants with the least mean over groups of the mean absolute error that the search finds."""
    groups = np.array([row[1].rsplit("/", 3)[0] + row[1].rsplit("/", 1)[1] for row in seen])
    weight = np.array([1.0 / np.sum(groups == group) for group in groups])

    def error_of(constants: Mapping[str, float]) -> float:
        return float(np.average(np.abs(errors(seen, constants)), weights=weight))

    best = {field: max(constant(seen[0][4], field), START) for field in fields}
    least, factor = error_of(best), WIDEST
    while factor > FINEST:
        moved = False
        for field in fields:
            for step in (factor, 1.0 / factor):
                tried = {**best, field: best[field] * step}
                error = error_of(tried)
                if error < least - 1e-6:
                    best, least, moved = tried, error, True
                    break
        factor = factor if moved else factor**0.5
    return best


def main() -> None:
    """Fit and print constants and errors."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runtime")
    parser.add_argument("fields", nargs="+")
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--metrics", default="e2e,ttft,tpot")
    parser.add_argument("--source", default="")
    parser.add_argument("--experts", action="store_true", help="also mixtures of experts")
    args = parser.parse_args()
    found = rows(args)
    split = np.array([row[0] for row in found])
    constants = fitted(spread([row for row in found if row[0] == "fit"]), args.fields)
    for field, value in constants.items():
        print(f"{field:20s} {value * 1e6:10.2f} us")
    error = errors(found, constants)
    for name in ("fit", "unseen"):
        if (split == name).any():
            chosen = error[split == name]
            print(f"{name:8s} n={len(chosen):4d} MAPE {np.abs(chosen).mean():.3f} bias {chosen.mean():+.3f}")
    labels = np.array([f"{row[0]} {row[1]}" for row in found])
    for label in sorted(set(labels)):
        chosen = error[labels == label]
        print(f"  {label:80s} n={len(chosen):3d} MAPE {np.abs(chosen).mean():.3f} bias {chosen.mean():+.3f}")


if __name__ == "__main__":
    main()
