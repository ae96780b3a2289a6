"""Fit the constants of a kernel implementation, one architecture at a time, and score them on rows it never saw."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from math import nan
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from rapid_llm import hardware, operators
from rapid_llm.calibration.fitting import Bound, Vector, fit
from rapid_llm.calibration.writing import write_whole
from rapid_llm.errors import InputError, nearest
from rapid_llm.nouns import FrozenDict, replaced
from rapid_llm.operators import Kernel
from rapid_llm.operators.kernels import AttentionKernel, DecodeKernel, GemmKernel, ScanKernel, TiledMoeKernel
from rapid_llm.units import Si, parse
from rapid_llm.validation import tables
from rapid_llm.validation.kernels import KernelSlice, Sample, samples, slice_of
from rapid_llm.validation.kernels.samples import read_cells
from rapid_llm.validation.kernels.slices import SLICES

BOUNDS: Final[Mapping[str, Bound]] = {
    "setup": Bound(0.0, 2e-6, 1e-4),
    "rate": Bound(0.05, 0.7, 1.0),
    "bandwidth": Bound(0.05, 0.9, 1.0),
    "step": Bound(0.0, 1e-7, 5e-6),
    "epilogue": Bound(0.0, 4.0, 80.0),
    "row": Bound(0.0, 5e-10, 2e-8),
    "occupancy": Bound(0.0, 0.6, 1.0),
    "overlap": Bound(1.0, 2.2, 6.0),
    "split": Bound(0.0, 2e-6, 1.5e-5),
    "softmax": Bound(0.0, 2.0, 12.0),
    "token": Bound(0.0, 2e-7, 5e-6),
    "spill": Bound(0.1, 0.5, 1.0),
    "item": Bound(0.0, 1.5e-6, 1e-5),
    "lone_item": Bound(0.0, 7e-7, 1e-5),
    "lone_rate": Bound(0.01, 0.15, 1.0),
    "combine": Bound(0.0, 2e-6, 2e-5),
    "expert": Bound(0.0, 2e-7, 4e-6),
    "pair": Bound(0.0, 3e-10, 2e-8),
    "row_passes": Bound(0.0, 6.0, 40.0),
    "token_passes": Bound(0.0, 4.0, 60.0),
    "fill": Bound(0.0, 1.2e-8, 4e-7),
    "tile": Bound(0.0, 4e-7, 1e-5),
    "passes": Bound(0.1, 0.8, 1.0),
    "chunk": Bound(0.0, 2.6e-6, 2e-5),
    "ramp": Bound(0.0, 1e-5, 1e-4),
    "turn": Bound(0.0, 8e-6, 5e-5),
    "decode_setup": Bound(0.0, 2e-6, 1e-4),
    "decode_bandwidth": Bound(0.6, 0.9, 1.0),
    "launch": Bound(0.5, 1.0, 4.0),
    "decode_launch": Bound(0.3, 1.0, 4.0),
    "decode_turn": Bound(0.0, 1.5e-7, 1e-5),
}
"""Constant to its bounds, SI; shares of a physical limit end at 1."""
FREE: Final[Mapping[str, tuple[str, ...]]] = {
    "gemm": ("setup", "rate", "bandwidth", "step", "epilogue", "overlap", "split"),
    "cast": ("setup", "rate", "bandwidth", "step", "epilogue", "overlap", "row"),
    "attention": ("setup", "rate", "bandwidth", "softmax", "item", "overlap"),
    "append": ("setup", "rate", "bandwidth", "softmax", "item", "overlap", "token"),
    "spill": ("setup", "rate", "bandwidth", "softmax", "item", "token", "spill"),
    "decode": ("setup", "rate", "bandwidth", "item", "combine", "occupancy", "overlap"),
    "lone": ("setup", "rate", "bandwidth", "item", "lone_item", "lone_rate", "combine"),
    "moe": ("setup", "rate", "bandwidth", "expert", "row_passes", "token_passes", "pair"),
    "tiled": ("setup", "rate", "bandwidth", "fill", "step", "tile", "passes"),
    "scan": ("setup", "ramp", "bandwidth", "chunk", "turn", "decode_setup", "decode_bandwidth"),
    "convolution": ("launch", "ramp", "turn", "bandwidth", "decode_launch", "decode_turn", "decode_bandwidth"),
    "fused": ("setup", "bandwidth", "chunk", "turn", "decode_setup", "decode_bandwidth"),
}
"""Family (or variant of one) to the constants that are fitted: at most seven."""
_SECONDS: Final = frozenset(
    (
        "setup",
        "step",
        "row",
        "token",
        "split",
        "item",
        "lone_item",
        "combine",
        "expert",
        "pair",
        "fill",
        "tile",
        "chunk",
        "ramp",
        "turn",
        "decode_setup",
        "decode_turn",
    )
)
LEAST_ROWS: Final = 40
"""A half with fewer rows fits nothing."""
_IMPLAUSIBLE: Final = 50.0  # times slower than the known constants say: a unit, not a kernel
_ROWS: Final = 2000  # of a fit: more move no constant by more than its own uncertainty


@dataclass(frozen=True, kw_only=True)
class Errors:
    """Mean and median absolute error and bias, fractions, over some rows."""

    mape: float
    median: float
    bias: float
    rows: int

    @classmethod
    def of(cls, parts: Iterable[NDArray[np.float64]]) -> "Errors":
        """Over parts of signed errors; nan where there is no row."""
        signed = np.concatenate([np.zeros(0), *parts])
        if not len(signed):
            return cls(mape=float("nan"), median=float("nan"), bias=float("nan"), rows=0)
        size = np.abs(signed)
        return cls(mape=float(size.mean()), median=float(np.median(size)), bias=float(signed.mean()), rows=len(signed))


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """Constants of one kernel on one architecture, and what they score on unseen rows before and after."""

    kernel: str
    architecture: str
    constants: Mapping[str, float]
    before: Errors
    after: Errors
    by_sample: Mapping[str, tuple[Errors, Errors]]
    source: str


def free_of(kernel: Kernel) -> tuple[str, ...]:
    """The constants of a kernel that a fit may move."""
    if isinstance(kernel, GemmKernel):
        return FREE["cast" if kernel.quantise and kernel.splits == (1,) else "gemm"]
    if isinstance(kernel, AttentionKernel):
        return FREE["spill" if kernel.spilling else "attention" if kernel.append == "none" else "append"]
    if isinstance(kernel, DecodeKernel) and kernel.groups != DecodeKernel.groups:
        return FREE["lone"]
    if isinstance(kernel, TiledMoeKernel):
        return FREE["tiled"]
    if isinstance(kernel, ScanKernel) and kernel.fused:
        return FREE["fused"]
    if kernel.family not in FREE:
        raise InputError(f"kernel {kernel.name} is of family {kernel.family}: no table of kernels describes it.")
    return FREE[kernel.family]


def calibrate(name: str, files: Sequence[Path], held: Mapping[str, float] = FrozenDict()) -> Iterator[Calibration]:
    """Fit a kernel on the tables in ``files``, an architecture at a time; constants that are ``held`` (SI) stay so.

    InputError for an unknown kernel, for files without a row of it, and for too few rows.
    """
    kernel, part = operators.kernel(name), slice_of(name)
    found = [table for table in map(read_table, files) if table.schema == part.schema]
    by_architecture: dict[str, list[Sample]] = {}
    for one in (part, *_sharing(kernel, part)):
        for sample in samples(one, found):
            by_architecture.setdefault(hardware.accelerator(sample.accelerator).architecture, []).append(sample)
    if not by_architecture:
        raise InputError(no_row(part, found, files), field="table")
    for architecture, mine in by_architecture.items():
        yield calibrate_on(kernel, architecture, mine, part.priors or {}, held)


def held_of(name: str, texts: Sequence[str]) -> dict[str, float]:
    """Constants of a kernel that its user holds, each ``rate=0.8`` or ``setup=2 us``, in SI; InputError for others."""
    known = free_of(operators.kernel(name))
    held = {}
    for text in texts:
        constant, _, value = map(str.strip, text.partition("="))
        if constant not in known:
            raise InputError(
                f"--hold names a constant of the fit and its value, as rate=0.8 (got {text!r}): {name} has "
                f"{', '.join(known)}.", field="hold", suggestions=nearest(constant, known),
            )  # fmt: skip
        bound, unit = BOUNDS[constant], "us" if constant in _SECONDS else ""
        try:
            held[constant] = parse(value, "time") if unit else float(value)
        except ValueError:
            held[constant] = nan
        if not bound.low <= held[constant] <= bound.high:
            limits = f"{text_of(constant, bound.low)} to {text_of(constant, bound.high)}"
            raise InputError(f"--hold: {constant} goes from {limits} (got {value or 'nothing'}).", field="hold")
    return held


def _sharing(kernel: Kernel, part: KernelSlice) -> Iterator[KernelSlice]:
    """Slices of kernels that differ from one in structure alone and take all its numbers."""
    for one in SLICES:
        other = operators.kernel(one.kernel)
        alike = other.family == kernel.family and other.constants == kernel.constants  # type: ignore[attr-defined]
        if alike and one.schema == part.schema and other.name != kernel.name:
            yield one


def no_row(part: KernelSlice, found: Sequence[tables.Table], files: Sequence[Path]) -> str:
    """Why tables hold no row to fit a kernel on: another schema, times that are implausibly short, or rows of other
    kernels.
    """
    names, kernel = ", ".join(map(str, files)), part.kernel
    if not found:
        columns = ", ".join(sorted(tables.SCHEMAS[part.schema]))
        return f"no row of {names} belongs to kernel {kernel}: it needs columns {columns}."
    if any(part.rows(read_cells(table)).any() for table in found):
        return f"most rows of {names} beat the datasheet's roofline: is latency_us in microseconds, and gpu right?"
    rules = " or ".join(", ".join(f"{column} {pattern}" for column, pattern in rule.items()) for rule in part.rules)
    cells = [read_cells(table) for table in found]
    others = [one.kernel for one in SLICES if one.schema == part.schema and any(one.rows(cell).any() for cell in cells)]
    hint = f" Try {', '.join(sorted(set(others)))}, whose rows it has." if others else ""
    return f"no row of {names} belongs to kernel {kernel}, which takes rows of {rules}.{hint}"


def read_table(path: Path) -> tables.Table:
    """A table of kernel timings; InputError in one sentence where the file is none."""
    if not path.is_file():
        what = "is not one" if path.exists() else "does not exist"
        raise InputError(f"--table must name a file: {path} {what}.", field="table")
    table = tables.read(path)
    if table is None or not table.schema.startswith("kernel_"):
        raise InputError(_no_schema(path), field="table")
    return table


def _no_schema(path: Path) -> str:
    """What the schema nearest to a file misses."""
    header = tables.header(path)
    if len(header) == 1 and (sign := next((one for one in (";", "\t") if one in header[0]), "")):
        named = {";": "semicolons", "\t": "tabs"}[sign]
        return f"{path} is no table of kernel timings: {named} part its columns, and a CSV has commas."
    kind, missing = tables.lacking(path, "kernel_")
    also = f"also needs the column{'s' if missing[1:] else ''} {', '.join(missing)}"
    other = next((name for name in header if name.startswith(("latency", "time", "duration"))), "")
    unit = f" (it has {other}: microseconds are wanted)" if "latency_us" in missing and other else ""
    return f"{path} is no table of kernel timings: one of {kind.removeprefix('kernel_')} {also}{unit}."


def calibrate_on(
    kernel: Kernel,
    architecture: str,
    mine: Sequence[Sample],
    priors: Mapping[str, float],
    held: Mapping[str, float] = FrozenDict(),
) -> Calibration:
    """Fit the constants of one architecture but the ``held`` ones on the ``fit`` half of its samples; InputError where
    that is too small."""
    train = [half for half in (s.half("fit") for s in mine) if len(half.seconds)]
    rows = sum(len(s.seconds) for s in train)
    _require_plausible(kernel, architecture, train, rows)
    start = kernel.on(architecture)
    names = [name for name in free_of(kernel.shaped(architecture)) if name not in held]
    bounds = {n: replace(BOUNDS[n], prior=priors[n]) if n in priors else BOUNDS[n] for n in names}
    some = [s.some(round(_ROWS * len(s.seconds) / rows)) for s in train]

    def trial(values: Vector) -> Kernel:
        return _with(kernel, architecture, {**held, **dict(zip(names, map(float, values), strict=True))})

    def log_time(values: Vector) -> Vector:
        tried = trial(values)
        return np.asarray(np.log(np.concatenate([_price(s, tried) for s in some])))

    target = np.log(np.concatenate([s.seconds for s in some]))
    found = {**fit(log_time, target, {n: getattr(start, n) for n in names}, bounds), **held}
    fitted = _with(kernel, architecture, found)
    unseen = [s.half("unseen") for s in mine]
    by_label: dict[str, list[Sample]] = {}
    for half in unseen:
        by_label.setdefault(half.label, []).append(half)
    scores = {label: (_errors(parts, kernel), _errors(parts, fitted)) for label, parts in by_label.items()}
    labels = ", ".join(by_label)
    return Calibration(
        kernel=kernel.name,
        architecture=architecture,
        constants=found,
        before=_errors(unseen, kernel),
        after=_errors(unseen, fitted),
        by_sample=scores,
        source=f"{rows} rows of kernel tables ({labels}{'; held: ' if held else ''}{', '.join(held)})",
    )


def _require_plausible(kernel: Kernel, architecture: str, train: Sequence[Sample], rows: int) -> None:
    """InputError where the fit half is too small, or its times are in another unit."""
    if rows < LEAST_ROWS:
        raise InputError(
            f"the tables hold {rows} rows of kernel {kernel.name} on {architecture} to fit on: "
            f"at least {LEAST_ROWS} are needed. Try more --minutes for the benchmark, or several --table.",
            field="table",
        )
    off = float(np.median(np.concatenate([s.seconds / s.price(kernel) for s in train])))
    if off > _IMPLAUSIBLE:
        raise InputError(
            f"half of the rows of kernel {kernel.name} on {architecture} take more than {off:.0f} times what they "
            f"should: is latency_us in microseconds?",
            field="table",
        )


def _with(kernel: Kernel, architecture: str, values: Mapping[str, float]) -> Kernel:
    """A copy of a kernel with other numbers for one architecture."""
    start = kernel.on(architecture)
    held = {f.name: Si(value) for f in fields(start) if (value := getattr(start, f.name)) is not None}
    constants = type(start)(**held | {name: Si(value) for name, value in values.items()})
    known: dict[str, Any] = kernel.constants  # type: ignore[attr-defined]
    return replaced(kernel, constants=FrozenDict({**known, architecture: constants}))


def _price(rows: Sample, kernel: Kernel) -> Vector:
    """Rows priced with the numbers of a kernel by their own, which may be built otherwise."""
    if rows.kernel == kernel.name:
        return rows.price(kernel)
    return rows.price(replaced(operators.kernel(rows.kernel), constants=kernel.constants))  # type: ignore[attr-defined]


def _errors(parts: Sequence[Sample], kernel: Kernel) -> Errors:
    return Errors.of(_price(s, kernel) / s.seconds - 1.0 for s in parts)


def text_of(name: str, value: float) -> str:
    """A constant as a YAML scalar."""
    return f"{value * 1e6:.3g} us" if name in _SECONDS else f"{value:.3g}"


def write(found: Sequence[Calibration], folder: Path) -> Path:
    """Write one kernel with the constants of these architectures as a file of ``folder``, whole or not at all;
    everything else is that of the package's file, even where the folder has one of this name.
    """
    name = found[0].kernel
    lines = [f"base: {name}", f"source: {json.dumps('; '.join(one.source for one in found))}", "kind: fitted"]
    lines += ["constants:"]
    for one in found:
        lines += [f"  {one.architecture}:", f"    source: {json.dumps(one.source)}", "    kind: fitted"]
        lines += [f"    {constant}: {text_of(constant, value)}" for constant, value in one.constants.items()]
    path = folder / f"{name}.yaml"
    write_whole(path, "\n".join(lines) + "\n")
    return path
