"""The suites of kernels: gemm, attention, mla, moe, ssm. A row is one kernel on one accelerator, replayed in a loop.

Layer profiles of other tools (``profiles``) show what transfers to devices without a fit; they stand beside the mean.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from rapid_llm import hardware
from rapid_llm.validation.cases import Baseline, Case
from rapid_llm.validation.kernels import baselines, profiles, slices, unmeasured
from rapid_llm.validation.kernels.columns import Cells
from rapid_llm.validation.kernels.labels import dtypes_of, metrics_of
from rapid_llm.validation.kernels.modules import module_seconds
from rapid_llm.validation.kernels.samples import (
    MOST_UNSOUND,
    Sample,
    read_cells,
    sample,
    split_cells,
    subset,
)
from rapid_llm.validation.tables import Table

SCHEMAS = {
    "gemm": ("kernel_gemm", "profile_vidur", "profile_dense"),
    "attention": ("kernel_context", "kernel_generation", "profile_attention"),
    "mla": ("kernel_mla",),
    "moe": ("kernel_moe", "profile_experts"),
    "ssm": ("kernel_ssm",),
}
"""Suite to the schemas of its tables."""

_LENT: Final = frozenset({("gemm", "bf16"), ("attention", "bf16"), ("attention", "fp8")})
"""Suites and compute dtypes that are scored without the fit of the device, too."""

_MISLABELLED = f"more than {MOST_UNSOUND:.0%} of this set beats the roofline: it is not what its shape says"
_UNSOUND = "faster than the datasheet roofline, with operands that L2 cannot hold"
_HOST_BOUND = "block fp8 of vLLM: a floor of 80 to 380 us at few rows, the host's time"
_ONE_TOKEN = "one new token: a row of the generation kernel"
_ALIASED = "TensorRT-LLM on L40S: caches beyond L2 stream at its speed, the run shared their blocks"
_LATENT_HOST = "latent attention of vLLM 0.14: 150 to 330 us before anything runs"
_ABSORBED = "absorbed prefill: SGLang takes it for a few tokens behind a long prefix alone, and these have none"
_BLOCKS = "blocks of vLLM: 40 to 75 us and passes over the hidden size of the run itself beside their kernels"
_OTHER = "not modelled: {source} (a fall-back, a variant or another operator)"
_NOT_RUN = "measured on {kernel}; the engine's own choice here is {chosen}"

_KNOWN: tuple[tuple[str, dict[str, str], str], ...] = (
    ("kernel_gemm", {"dtype": "fp8_block", "framework": "vllm"}, _HOST_BOUND),
    ("kernel_context", {"isl": "1"}, _ONE_TOKEN),
    ("kernel_generation", {"gpu": "l40s", "framework": "trtllm"}, _ALIASED),
    ("kernel_mla", {"framework": "vllm", "version": "0.14.*", "op": "context|generation"}, _LATENT_HOST),
    ("kernel_mla", {"framework": "sglang", "source": "flash_attention", "op": "context"}, _ABSORBED),
    ("kernel_mla", {"framework": "vllm", "op": "module.*"}, _BLOCKS),
)
"""Rows that are set aside before anything else: schema, pattern by column, reason."""


def suite(name: str) -> Callable[[Table], Iterator[Case]]:
    """The reader of a suite."""
    return partial(_cases, name)


def _cases(name: str, table: Table) -> Iterator[Case]:
    if table.schema not in SCHEMAS[name]:
        return
    if table.schema in profiles.READERS:
        for schema, cells in profiles.cells_of(table):
            yield from _rows(name, table, schema, dict(cells))
        return
    yield from _rows(name, table, table.schema, read_cells(table))


def _rows(name: str, table: Table, schema: str, cells: dict[str, NDArray[np.str_]]) -> Iterator[Case]:
    """The cases of the rows of one schema: known bad ones first, then those of each kernel, then the rest."""
    cells["table_dtype"] = dtypes_of(schema, cells)
    cells["metric"] = metrics_of(schema, cells)
    left = np.ones(len(cells["line"]), dtype=bool)
    for known, rule, reason in _KNOWN:
        if known == schema:
            mask = left & slices.KernelSlice("", schema, "", (rule,)).rows(cells)
            yield from _skipped(name, table, subset(cells, mask), reason)
            left &= ~mask
    for part in slices.SLICES:
        if part.schema == schema:
            mask = left & part.rows(cells)
            left &= ~mask
            for group in split_cells(subset(cells, mask), ("gpu", "framework", "table_dtype")):
                yield from _scored(name, table, part, group)
    if schema == "kernel_mla":
        mask = left & (cells["metric"] == "module") & (cells["framework"] == "trtllm")
        yield from _modules(name, table, subset(cells, mask))
        left &= ~mask
    for group in split_cells(subset(cells, left), ("source",)):
        yield from _skipped(name, table, group, _OTHER.format(source=group["source"][0] or group["op"][0]))


def _scored(name: str, table: Table, part: slices.KernelSlice, cells: Cells) -> Iterator[Case]:
    """The cases of rows that one kernel ran, on one accelerator, in one framework and dtype."""
    dtype, framework = str(cells["table_dtype"][0]), str(cells["framework"][0])
    architecture = hardware.accelerator(str(cells["gpu"][0])).architecture
    known = slices.runs(part, framework, dtype, architecture)
    if known and part.kernel not in known:
        yield from _skipped(name, table, cells, _NOT_RUN.format(kernel=part.kernel, chosen=known[0]))
        return
    found = sample(part, cells, dtype)
    sound = found.sound()
    if sound.mean() < 1.0 - MOST_UNSOUND:
        yield from _skipped(name, table, cells, _MISLABELLED)
        return
    yield from _skipped(name, table, subset(cells, ~sound), _UNSOUND)
    yield from _priced(name, table, part, found.take(np.flatnonzero(sound)))


def _priced(name: str, table: Table, part: slices.KernelSlice, found: Sample) -> Iterator[Case]:
    """The cases of sound rows; of 16-bit GEMMs and attention also what the device gets without its own fit."""
    floor = found.roofline()
    known: dict[str, Any] = {"floor": floor.seconds, "work": (floor.flops, floor.hbm_bytes)}
    yield from _answered(name, table, found, predicted=found.price(), **known)
    if (name, part.dtype) in _LENT and table.schema not in profiles.READERS:
        bare = unmeasured.without_its_fit(part, found.accelerator, found.framework, found.table_dtype)
        if bare is not None:
            renamed = replace(found, metric=np.char.add(found.metric, unmeasured.LENT))
            yield from _answered(name, table, renamed, predicted=found.price(*bare), **known)


def _modules(name: str, table: Table, cells: Cells) -> Iterator[Case]:
    """Whole latent-attention blocks: projections and attention, each by its kernel."""
    for group in split_cells(cells, ("gpu", "framework", "table_dtype")):
        part = slices.KernelSlice("mla", table.schema, "bf16", ())
        found = sample(part, group, str(group["table_dtype"][0]))
        seconds, floor, work = module_seconds(group)
        yield from _answered(name, table, found, predicted=seconds, floor=floor, work=work)


def _answered(
    name: str,
    table: Table,
    found: Sample,
    *,
    predicted: NDArray[np.float64],
    floor: NDArray[np.float64],
    work: tuple[NDArray[np.float64], NDArray[np.float64]],
) -> Iterator[Case]:
    group = f"{found.accelerator}/{found.table_dtype}/{found.framework}"
    file = table.path.name.split(".")[0]
    for metric in np.unique(found.metric):
        rows = np.flatnonzero(found.metric == metric)
        line = baselines.three_constants(work[0][rows], work[1][rows], found.seconds[rows])
        published = baselines.published(name, str(metric), group)
        for at, row in enumerate(rows):
            measured = float(found.seconds[row])
            known = {"three-constants": Baseline(float(line[at])), "roofline": Baseline(float(floor[row]))}
            if published is not None:
                known[baselines.STRUCTURAL] = Baseline(measured * (1.0 + published))
            yield Case(
                suite=name,
                group=group,
                metric=str(metric),
                id=f"{file}-{found.line[row]}",
                key=str(found.key[row]),
                quantity="seconds",
                measured=measured,
                scenario=None,
                answer=partial(float, predicted[row]),
                headline=table.schema not in profiles.READERS,
                baselines=known,
            )


def _skipped(name: str, table: Table, cells: Cells, reason: str) -> Iterator[Case]:
    file = table.path.name.split(".")[0]
    words = zip(cells["gpu"], cells["table_dtype"], cells["framework"], cells["metric"], cells["line"], strict=True)
    for gpu, dtype, framework, metric, line in words:
        yield Case(
            suite=name,
            group=f"{gpu}/{dtype}/{framework}",
            metric=str(metric),
            id=f"{file}-{line}",
            key=f"{file}-{line}",
            quantity="seconds",
            measured=0.0,
            scenario=None,
            reason=reason,
        )
