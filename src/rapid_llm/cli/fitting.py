"""``calibrate accelerator``, ``calibrate kernel`` and the benchmark that makes their tables."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rapid_llm import operators
from rapid_llm.calibration import accelerators, kernels
from rapid_llm.calibration.benchmark import script
from rapid_llm.calibration.kernels import Calibration, Errors
from rapid_llm.cli.files import write_text
from rapid_llm.cli.style import show
from rapid_llm.cli.text import json_text
from rapid_llm.errors import InputError
from rapid_llm.units import format_percent, format_seconds


def emit_benchmark(out: str | None) -> int:
    """Write the benchmark to a file, or print it."""
    if out is None:
        sys.stdout.write(script())
    else:
        write_text(out, script())
        then = "rapid-llm calibrate kernel cublas --table tables/gemm.csv"
        show([f"written      {out}", f"run it       python {out} --out tables, then: {then}"])
    return 0


def calibrate_accelerator(name: str, table: Sequence[str], out: str | None, *, as_json: bool) -> int:
    """Fit an accelerator's sustained numbers and write its file."""
    found = accelerators.calibrate(name, _paths(table))
    path = accelerators.write(found, _folder(out))
    if as_json:
        print(json_text({**asdict(found), "file": str(path)}))
        return 0
    show(
        [
            f"accelerator  {found.name}, from {found.source}",
            f"hbm          {found.hbm:.3g} of the datasheet's bandwidth",
            f"launch       {format_seconds(found.launch)}",
            *_scores(found.before, found.after),
            f"written      {path}",
            f"use it       --set system.accelerator={path}",
        ]
    )
    return 0


def calibrate_kernel(name: str, table: Sequence[str], hold: Sequence[str], out: str | None, *, as_json: bool) -> int:
    """Fit a kernel's constants, an architecture at a time, and write its file."""
    found = list[Calibration]()
    for one in kernels.calibrate(name, _paths(table), kernels.held_of(name, hold)):
        found.append(one)
        if not as_json:
            show(_lines(one))
    path = kernels.write(found, _folder(out))
    if as_json:
        print(json_text({"kernel": name, "architectures": [{**_object(one), "file": str(path)} for one in found]}))
    else:
        family = operators.kernel(name).family
        show([f"written      {path}", f"use it       --set runtime.kernels.{family}.default={path}"])
    return 0


def _paths(table: Sequence[str]) -> list[Path]:
    if not table:
        raise InputError("--table must name at least one table of kernel timings.", field="table")
    return [Path(one) for one in table]


def _folder(out: str | None) -> Path:
    folder = Path(out or ".")
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _object(found: Calibration) -> dict[str, Any]:
    known = {name: {"before": asdict(b), "after": asdict(a)} for name, (b, a) in found.by_sample.items()}
    return {
        "architecture": found.architecture,
        "constants": dict(found.constants),
        "before": asdict(found.before),
        "after": asdict(found.after),
        "by_sample": known,
        "source": found.source,
    }


def _lines(found: Calibration) -> list[str]:
    lines = [f"kernel       {found.kernel} on {found.architecture}, from {found.source}"]
    lines += [f"{name:<13}{kernels.text_of(name, value)}" for name, value in found.constants.items()]
    lines += _scores(found.before, found.after)
    if len(found.by_sample) > 1:
        lines += [f"{'':<13}{label}: {_change(b, a)}" for label, (b, a) in found.by_sample.items()]
    return [*lines, ""]


def _scores(before: Errors, after: Errors) -> list[str]:
    if not after.rows:
        return ["error        no unseen row: every layer of the tables took part in the fit"]
    return [f"error        {_change(before, after)}"]


def _change(before: Errors, after: Errors) -> str:
    if not after.rows:
        return "no unseen row"
    return f"{format_percent(before.mape)} before, {format_percent(after.mape)} after: mean of {after.rows} unseen rows"
