"""Fit host constants of an inference runtime on the fit half of published runs, and score them on the unseen half.

    python tools/fit_runtimes.py vllm@2024 per_step broadcast per_sequence per_kv_block --data ../shared/data

Every host constant enters the time of a request linearly (floors aside), so each gets a column: the change of the
predicted time when it alone grows by a probe. The columns are fitted to the measured times by non-negative least
absolute relative error. Rows that wait for the cache, mixtures of experts and pipelines are left out.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from scipy.optimize import nnls

from rapid_llm.nouns import replaced
from rapid_llm.predict.engine import evaluate
from rapid_llm.scenario import Scenario, from_mapping
from rapid_llm.validation import running, tables

PROBE = 1e-5
ROUNDS = 30
READ = {"e2e": lambda t: t.e2e_s, "ttft": lambda t: t.ttft_s, "tpot": lambda t: t.tpot_s}


def with_constant(scenario: Scenario, field: str, value: float) -> Scenario:
    """The scenario with one host constant (``per_layer.decode`` is nested) set."""
    host = scenario.runtime.host
    name, _, phase = field.partition(".")
    inner = replaced(host.per_layer, **{phase: value}) if phase else value
    return replaced(scenario, runtime=replaced(scenario.runtime, host=replaced(host, **{name: inner})))


def rows(name: str, fields: Sequence[str], data: Path, metrics: Sequence[str], source: str) -> list[tuple]:
    """(split, label, measured, prediction without the fields, columns) of every usable case."""
    found = []
    for case in running.cases_of(["inference"], tables.find(data)):
        given = case.scenario
        if not given or given["runtime"] != name or case.metric not in metrics or source not in case.group:
            continue
        scenario = from_mapping(given)
        if any(b.ffn and b.ffn.kind == "moe" for b in scenario.model.blocks) or scenario.parallelism.pp > 1:
            continue
        bare = scenario
        for field in fields:
            bare = with_constant(bare, field, 0.0)
        read = READ[case.metric]
        table = evaluate(bare)
        if table.rounds > 1:
            continue
        base = read(table)
        columns = [(read(evaluate(with_constant(bare, field, PROBE))) - base) / PROBE for field in fields]
        label = f"{case.group}/{scenario.model.name}/tp{scenario.parallelism.tp}/{case.metric}"
        found.append((case.split, label, case.measured, base, columns))
    return found


def fitted(matrix: np.ndarray, target: np.ndarray) -> np.ndarray:
    """Non-negative least absolute deviations by reweighted non-negative least squares."""
    weight = np.ones(len(target))
    scale = np.maximum(matrix.max(axis=0), 1e-30)
    found = np.zeros(matrix.shape[1])
    for _ in range(ROUNDS):
        found = nnls(matrix / scale * weight[:, None], target * weight)[0]
        weight = 1.0 / np.sqrt(np.maximum(np.abs(matrix / scale @ found - target), 1e-3))
    return found / scale


def main() -> None:
    """Fit and print constants and errors."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runtime")
    parser.add_argument("fields", nargs="+")
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--metrics", default="e2e,ttft,tpot")
    parser.add_argument("--source", default="")
    args = parser.parse_args()
    found = rows(args.runtime, args.fields, args.data, args.metrics.split(","), args.source)
    split = np.array([r[0] for r in found])
    measured, base = (np.array([r[i] for r in found]) for i in (2, 3))
    matrix = np.array([r[4] for r in found])
    fit = split == "fit"
    relative = matrix / measured[:, None]
    constants = fitted(relative[fit], ((measured - base) / measured)[fit])
    for field, value in zip(args.fields, constants, strict=True):
        print(f"{field:20s} {value * 1e6:10.2f} us")
    error = (base + matrix @ constants) / measured - 1.0
    for name, rule in (("fit", fit), ("unseen", ~fit)):
        if rule.any():
            print(f"{name:8s} n={rule.sum():4d} MAPE {np.abs(error[rule]).mean():.3f} bias {error[rule].mean():+.3f}")
    labels = np.array([f"{s} {r[1]}" for s, r in zip(split, found, strict=True)])
    for label in sorted(set(labels)):
        chosen = error[labels == label]
        print(f"  {label:80s} n={len(chosen):3d} MAPE {np.abs(chosen).mean():.3f} bias {chosen.mean():+.3f}")


if __name__ == "__main__":
    main()
