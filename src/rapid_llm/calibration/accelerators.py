"""The sustained numbers of an accelerator from a table of its 16-bit GEMMs: reachable HBM bandwidth, launch floor."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from rapid_llm import hardware, operators
from rapid_llm.calibration.kernels import Errors, no_row, read_table
from rapid_llm.calibration.writing import write_whole
from rapid_llm.documents import Document
from rapid_llm.errors import InputError
from rapid_llm.hardware import Accelerator
from rapid_llm.validation.kernels import Sample, samples, slice_of

_STREAM_ROWS: Final = 16  # a GEMM of at most this many rows streams its weights
_OVER_L2: Final = 4.0  # weights this many times L2 come from HBM
_STREAM_QUANTILE: Final = 0.99
_LAUNCH_QUANTILE: Final = 0.01
_LEAST: Final = 5  # rows that a quantile is taken of
_LEAST_SHARE: Final = 0.2  # of the datasheet's bandwidth: the best of any memory controller reaches more
_MOST_LAUNCH: Final = 1e-3  # s: no driver takes so long to start a kernel


@dataclass(frozen=True, kw_only=True)
class Sustained:
    """Reachable share of HBM, launch floor (s), what GEMMs score on unseen rows before and after, rows behind it."""

    name: str
    hbm: float
    launch: float
    before: Errors
    after: Errors
    source: str


def calibrate(name: str, files: Sequence[Path]) -> Sustained:
    """Read two sustained numbers off a table of bf16 GEMMs; the clock and L2 need tables that few can make.

    ``hbm``: the 99th percentile of bandwidth over GEMMs of at most 16 rows whose weights exceed L2 fourfold;
    ``launch``: the 1st percentile of all times, less what a GEMM takes beyond any kernel. Rows of the split's ``fit``
    side only. InputError where too few.
    """
    device = hardware.accelerator(name)
    part, tables = slice_of("cublas"), [read_table(f) for f in files]
    sound = list(samples(part, tables))
    if not sound:
        raise InputError(no_row(part, [t for t in tables if t.schema == part.schema], files), field="table")
    found = [s for s in sound if s.accelerator == device.name]
    train = [s.half("fit") for s in found]
    streaming = np.concatenate([np.zeros(0), *(_bandwidth(s, device) for s in train)])
    times = np.concatenate([np.zeros(0), *(s.seconds for s in train)])
    if not found:
        of = sorted({s.accelerator for s in sound})
        raise InputError(
            f"the tables are of {', '.join(of)}, and none of their rows is of {device.name}. Try: rapid-llm calibrate "
            f"accelerator {of[0]}, or {device.name} in column gpu.",
            field="table",
        )
    if len(streaming) < _LEAST or len(times) < 100 * _LEAST:
        raise InputError(
            f"the tables hold {len(times)} bf16 GEMMs of {device.name} to fit on, {len(streaming)} of them streaming "
            f"weights over {_OVER_L2:g} x L2 at m <= {_STREAM_ROWS}: at least {100 * _LEAST} and {_LEAST} are needed. "
            "Try more --minutes for the benchmark, or several --table.",
            field="table",
        )
    hbm = min(float(np.quantile(streaming, _STREAM_QUANTILE)) / device.memory.hbm.bandwidth, 1.0)
    setup = operators.kernel("cublas").on(device.architecture, device.clocks.boost).setup
    launch = max(float(np.quantile(times, _LAUNCH_QUANTILE)) - setup, 0.0)
    _plausible(hbm, launch, device)
    fitted = hardware.build_accelerator(Document({"base": device.name, "sustained": _texts(hbm, launch)}))
    unseen = [s.half("unseen") for s in found]
    labels = ", ".join(dict.fromkeys(s.label for s in found))
    return Sustained(
        name=device.name,
        hbm=hbm,
        launch=launch,
        before=_errors(unseen, device),
        after=_errors(unseen, fitted),
        source=f"{len(times)} bf16 GEMMs ({labels}): streaming bandwidth, least times",
    )


def _plausible(hbm: float, launch: float, device: Accelerator) -> None:
    """InputError for numbers that no accelerator has, which a table in another unit gives."""
    if hbm >= _LEAST_SHARE and launch <= _MOST_LAUNCH:
        return
    raise InputError(
        f"the fastest GEMMs of the tables reach {hbm:.3g} of the datasheet's bandwidth of {device.name} and take "
        f"{launch * 1e6:.3g} us to start, which is too slow to be true: is latency_us in microseconds, and gpu right?",
        field="table",
    )


def _bandwidth(sample: Sample, device: Accelerator) -> "np.ndarray[tuple[int], np.dtype[np.float64]]":
    """B/s of the rows that stream their weights."""
    c = sample.columns
    weights = c["n"] * c["k"] * c["w_bytes"]
    l2 = device.memory.l2.capacity if device.memory.l2 else 0.0
    rows = (c["m"] <= _STREAM_ROWS) & (weights > _OVER_L2 * l2)
    return np.asarray(weights[rows] / sample.seconds[rows])


def _errors(parts: Sequence[Sample], device: Accelerator) -> Errors:
    return Errors.of(s.price(device=device) / s.seconds - 1.0 for s in parts)


def _texts(hbm: float, launch: float) -> dict[str, float | str]:
    return {"hbm": float(f"{hbm:.3g}"), "launch": f"{launch * 1e6:.3g} us"}


def write(found: Sustained, folder: Path) -> Path:
    """Write the accelerator with these numbers as a file of ``folder``, whole or not at all."""
    path = folder / f"{found.name}-calibrated.yaml"
    lines = [f"base: {found.name}", f"source: {json.dumps(found.source)}", "kind: fitted", "sustained:"]
    lines += [f"  {name}: {value}" for name, value in _texts(found.hbm, found.launch).items()]
    write_whole(path, "\n".join(lines) + "\n")
    return path
