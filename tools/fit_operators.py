"""Fit the numbers of kernel implementations on measured tables, and score them on rows that the fit never saw.

    python tools/fit_operators.py TABLES [KERNEL ...] [--write]

TABLES is a folder with `gemm_<gpu>.csv.gz` and so on (columns: see `operator_tables.py`). The split comes first: crc32
of the shape key, even is fitted, odd is scored (as `rapid_llm.validation`). The loss is soft-L1 on log time with weak
priors at physical values. `--write` puts the numbers into `src/rapid_llm/operators/data/`.
"""

import argparse
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from operator_tables import SLICES, Sample, Slice, read
from scipy.optimize import least_squares, minimize

from rapid_llm import hardware, operators
from rapid_llm.operators.kernels import Kernel
from rapid_llm.units import Si

DATA = Path(__file__).parents[1] / "src/rapid_llm/operators/data"
POLISH = 400
SUBSAMPLE = 700  # rows per fit: more move no constant by more than its own uncertainty
LOSS_SCALE = 0.1  # errors beyond 10 % count linearly
PRIOR_WIDTH = 1.0  # a factor e away from the prior costs as much as ...
PRIOR_ROWS = 3.0  # ... this many rows off by LOSS_SCALE

# field -> (lower, prior, upper), SI; shares of a physical limit end at 1
BOUNDS: dict[str, tuple[float, float, float]] = {
    "setup": (0.0, 2e-6, 1e-4),
    "rate": (0.05, 0.7, 1.0),
    "bandwidth": (0.05, 0.9, 1.0),
    "step": (0.0, 1e-7, 2e-6),
    "row": (0.0, 5e-10, 2e-8),
    "epilogue": (0.0, 0.5, 2.0),
    "occupancy": (0.0, 0.6, 1.2),
    "overlap": (1.0, 2.2, 6.0),
    "split": (0.0, 2e-6, 1.5e-5),
    "softmax": (0.0, 32.0, 256.0),
    "item": (0.0, 1.5e-6, 1e-5),
    "lone_item": (0.0, 7e-7, 1e-5),
    "combine": (0.0, 2e-6, 2e-5),
    "backward_rate": (0.05, 0.4, 1.0),
    "expert": (0.0, 2e-7, 4e-6),
    "row_passes": (0.0, 6.0, 40.0),
    "token_passes": (0.0, 4.0, 60.0),
    "chunk": (0.0, 2.6e-6, 2e-5),
    "decode_setup": (0.0, 2e-6, 1e-4),
    "decode_bandwidth": (0.6, 0.9, 1.0),
}
SECONDS = frozenset("setup step row split item lone_item combine expert chunk decode_setup".split())


def fit(kernel: Kernel, part: Slice, architecture: str, samples: list[Sample]) -> tuple[Kernel, Any]:
    """The kernel with constants of one architecture fitted on the given samples, fit halves only."""
    start = kernel.on(architecture)
    names = [f.name for f in fields(start) if f.name in part.free]
    low, prior, high = (np.array([BOUNDS[n][i] for n in names]) for i in range(3))
    prior = np.array([dict(part.priors).get(n, p) for n, p in zip(names, prior, strict=True)])
    train = [s.half("fit").some(SUBSAMPLE // len(samples)) for s in samples]
    target = np.concatenate([np.log(s.seconds) for s in train])

    def build(scaled: NDArray[np.float64]) -> Any:
        values = {f.name: Si(getattr(start, f.name)) for f in fields(start)}
        return type(start)(**values | dict(zip(names, map(Si, scaled * prior), strict=True)))

    def residual(scaled: NDArray[np.float64]) -> NDArray[np.float64]:
        trial = with_constants(kernel, architecture, build(scaled))
        error = np.concatenate([np.log(predict(trial, s)) for s in train]) - target
        pull = np.log((scaled * prior + 0.02 * prior) / (1.02 * prior)) / PRIOR_WIDTH
        return np.concatenate([error, np.sqrt(PRIOR_ROWS) * LOSS_SCALE * pull])

    first = np.clip(np.array([getattr(start, n) for n in names]) / prior, low / prior + 1e-3, high / prior - 1e-3)
    found = least_squares(
        residual,
        first,
        bounds=(low / prior, high / prior),
        loss="soft_l1",
        f_scale=LOSS_SCALE,
        diff_step=2e-3,
        max_nfev=40,
    )
    lower, upper = low / prior, high / prior

    def robust(scaled: NDArray[np.float64]) -> float:
        r = residual(np.clip(scaled, lower, upper))
        error, pull = r[: len(target)], r[len(target) :]
        size = np.abs(error)
        return float(size.mean() + 0.3 * np.minimum(size, 0.3).mean() + (pull @ pull) / len(target))

    steps = np.vstack([found.x, found.x + np.diag(np.maximum(0.15 * found.x, 0.05))])
    options = {"maxfev": POLISH, "adaptive": True, "initial_simplex": np.clip(steps, lower, upper)}
    polished = minimize(robust, found.x, method="Nelder-Mead", options=options)
    best = build(np.clip(polished.x, lower, upper))
    return with_constants(kernel, architecture, best), best


def with_constants(kernel: Kernel, architecture: str, constants: Any) -> Kernel:
    """A copy of a kernel with other numbers for one architecture."""
    known: dict[str, Any] = kernel.constants  # type: ignore[attr-defined]
    return replace(kernel, constants={**known, architecture: constants})  # type: ignore[call-arg]


def predict(kernel: Kernel, sample: Sample) -> NDArray[np.float64]:
    """Seconds of each row of a sample."""
    return operators.price(
        sample.family, sample.columns, kind=sample.kind, dtype=sample.dtype, kernel=kernel,
        accelerator=hardware.accelerator(sample.accelerator), replayed=True,
    ).seconds  # fmt: skip


def score(predicted: Callable[[Sample], NDArray[np.float64]], samples: list[Sample], half: str) -> str:
    """MAPE, median and bias in per cent over the samples, and the number of rows."""
    parts = [s.half(half) for s in samples]
    error = np.concatenate([predicted(s) / s.seconds - 1.0 for s in parts])
    if not len(error):
        return "no rows"
    mape, median, bias = (100.0 * v for v in (np.abs(error).mean(), np.median(np.abs(error)), error.mean()))
    return f"{mape:5.1f} {median:5.1f} {bias:+6.1f} ({len(error)})"


def text(constants: Any) -> dict[str, str]:
    """The constants as YAML scalars, by field."""
    return {
        f.name: f"{getattr(constants, f.name) * 1e6:.3g} us"
        if f.name in SECONDS
        else f"{getattr(constants, f.name):.3g}"
        for f in fields(constants)
    }


def write(part: Slice, architecture: str, values: dict[str, str], source: str) -> None:
    """Replace the fitted numbers of one architecture in the data file of a kernel; the others keep their lines."""
    path = DATA / f"{part.kernel}.yaml"
    lines = path.read_text("utf-8").splitlines()
    head = f"  {architecture}:"
    start = lines.index(head) if head in lines else len(lines)
    end = start + 1
    while end < len(lines) and lines[end].startswith("    "):
        end += 1
    kept = [old for old in lines[start + 1 : end] if old.split(":")[0].strip() not in {*part.free, "source", "kind"}]
    there = {old.split(":")[0].strip() for old in kept}
    fresh = [f"    {name}: {value}" for name, value in values.items() if name not in there]
    lines[start:end] = [head, f"    source: {source}", "    kind: fitted", *fresh, *kept]
    path.write_text("\n".join(lines) + "\n", "utf-8")


def main() -> None:
    """Fit every slice, or those of the named kernels."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tables", type=Path)
    parser.add_argument("kernels", nargs="*")
    parser.add_argument("--write", action="store_true")
    arguments = parser.parse_args()
    for part in SLICES:
        if arguments.kernels and part.kernel not in arguments.kernels:
            continue
        by_architecture: dict[str, list[Sample]] = {}
        for sample in read(arguments.tables, part):
            by_architecture.setdefault(hardware.accelerator(sample.accelerator).architecture, []).append(sample)
        for architecture, samples in by_architecture.items():
            fitted, constants = fit(operators.kernel(part.kernel), part, architecture, samples)
            run = lambda s, k=fitted: predict(k, s)  # noqa: E731
            line = ", ".join(f"{name} {value}" for name, value in text(constants).items())
            halves = " ".join(f"{half} {score(run, samples, half)}" for half in ("fit", "unseen"))
            print(f"{part.kernel:20s} {architecture:10s} {halves} {line}", flush=True)
            for sample in samples:
                print(f"    {sample.label:45s} unseen {score(run, [sample], 'unseen')}")
            if arguments.write:
                write(part, architecture, text(constants), part.source(samples))


if __name__ == "__main__":
    main()
