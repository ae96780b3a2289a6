"""Fit the constants of expert exchanges to measured tables and print them, for ``network/data/experts``.

    python tools/fit_experts.py --data ../shared/data

As ``fit_network``: the rows and the split of ``rapid-llm validate collectives``. Needs the ``fit`` extra.
"""

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from fit_network import GB, US, Parameter, Vector, rows_of, show
from scipy.optimize import least_squares

from rapid_llm.network import ExpertLibrary, expert_library, price_experts
from rapid_llm.network.experts import ExpertCost
from rapid_llm.units import Si
from rapid_llm.validation import split_of
from rapid_llm.validation.suites.collectives import ExpertQuestion, Measured

MODES = {
    "normal": [
        Parameter("launch", 25, 5, 80),
        Parameter("efficiency", 0.6, 0.1, 1),
        Parameter("lone", 1, 0.1, 1e6),
        Parameter("visit", 0.01, 1e-6, 1),
        Parameter("read", 15, 0.1, 1e4),
        Parameter("copy", 20, 0.1, 1e4),
    ],
    "low-latency": [
        Parameter("launch", 9, 1, 80),
        Parameter("efficiency", 0.6, 0.1, 1),
        Parameter("lone", 5, 0.1, 1e6),
        Parameter("expert", 0.01, 1e-6, 1),
        Parameter("token", 2, 1e-6, 10),
    ],
}
RATES = {"lone", "read", "copy"}


def cost(parameters: Sequence[Parameter], x: Vector) -> ExpertCost:
    """The cost of a vector in the unit of the prints: us, GB/s."""
    scale = {p.name: GB if p.name in RATES else 1.0 if p.name == "efficiency" else US for p in parameters}
    return ExpertCost(**{p.name: Si(float(v) * scale[p.name]) for p, v in zip(parameters, x, strict=True)})


def fit(rows: list[Measured], phase: str, mode: str, link: str) -> None:
    """One phase of one mode on one link technology."""
    base = expert_library("deepep")
    asked: list[ExpertQuestion] = [row.question for row in rows]
    fields = ("tokens", "hidden_size", "experts_per_token", "experts", "ranks")
    columns = {name: np.array([getattr(q, name) for q in asked]) for name in fields}
    units = None if asked[0].units is None else np.array([q.units for q in asked])
    seconds = np.array([row.seconds for row in rows])
    used = np.array([split_of(row.key) == "fit" for row in rows])
    parameters = MODES[mode]

    def library(x: Vector) -> ExpertLibrary:
        kept = base.modes[mode]
        kernel = getattr(kept, phase)
        changed = replace(kernel, links={**kernel.links, link: cost(parameters, x)})
        return replace(base, modes={mode: replace(kept, **{phase: changed})})

    def model(x: Vector) -> Vector:
        tokens = columns["tokens"]
        rest = {k: v for k, v in columns.items() if k != "tokens"}
        return price_experts(
            phase, tokens, **rest, fabric=asked[0].fabric, library=library(x), mode=mode, units=units
        ).seconds

    start, low, high = np.log([[p.start, p.low, p.high] for p in parameters]).T
    found = least_squares(
        lambda x: np.log(model(np.exp(x)) / seconds)[used],
        start,
        bounds=(low - 1e-9, high + 1e-9),
        loss="soft_l1",
        f_scale=0.1,
    )
    x = np.clip(np.exp(found.x), np.exp(low), np.exp(high))
    error = abs(model(x) / seconds - 1)
    print(f"{mode} {phase} {link}: fit {100 * error[used].mean():.1f} unseen {100 * error[~used].mean():.1f}")
    show(parameters, x)


def main() -> None:
    """Fit every phase and mode on every box."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    rows = [r for r in rows_of(parser.parse_args().data) if isinstance(r.question, ExpertQuestion)]
    for group in dict.fromkeys(row.group for row in rows):
        chosen = [row for row in rows if row.group == group]
        q = chosen[0].question
        fit(chosen, q.phase, q.mode, q.fabric.tiers[0].link)


if __name__ == "__main__":
    main()
