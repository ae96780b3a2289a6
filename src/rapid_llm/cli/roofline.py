"""``explain --roofline``: every kernel of a scenario against the datasheet of its accelerator, as a page."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rapid_llm import charts
from rapid_llm.cli import words
from rapid_llm.cli.files import write_page
from rapid_llm.dtypes import dtype as number_format
from rapid_llm.hardware import Accelerator
from rapid_llm.predict.explaining import KernelLine
from rapid_llm.units import format_bandwidth, format_count, format_flops, format_percent, format_seconds

_HEADER = ("kernel", "implementation", "format", "time", "FLOP per byte", "rate", "of the roof", "bound")
_POINTS = 64  # of the roof's line


def write(device: Accelerator, kernels: Sequence[KernelLine], path: str) -> None:
    """Write a page: a roof min(B/s x intensity, FLOP/s) for each format that is multiplied in, one point a kernel, and
    the same as a table.

    Kernels without arithmetic have no intensity and stand in the table alone.
    """
    bandwidth = device.memory.hbm.bandwidth
    shown = [k for k in kernels if k.hbm_bytes > 0.0]
    counted = [k for k in shown if k.flops > 0.0]
    intensity = [k.flops / k.hbm_bytes for k in counted]
    peaks = {_named(k): _peak(k, device) for k in counted}
    top = max(peaks.values(), default=device.vector)
    across = np.geomspace(min([0.1, *intensity]), max([10.0 * top / bandwidth, *intensity]), _POINTS)
    roofs = [
        charts.Series(
            f"datasheet, {name} {format_flops(peak)}", tuple(across), tuple(np.minimum(across * bandwidth, peak)),
            marked=False,
        )
        for name, peak in sorted(peaks.items(), key=lambda pair: -pair[1])
    ]  # fmt: skip
    rates = tuple(k.flops / k.seconds for k in counted)
    labels = tuple(f"{words.kernel(k.name)} ({k.unit}, {k.phase}): {format_seconds(k.seconds)}" for k in counted)
    points = charts.Series("kernels", tuple(intensity), rates, labels=labels, joined=False)
    plot = charts.plot(
        [*roofs, points], x_label="FLOP per byte of memory", y_label="TFLOP/s", log_x=True, log_y=True,
        form=lambda value: f"{value / 1e12:,g}", form_x=lambda value: f"{value:,g}", title="Roofline",
    )  # fmt: skip
    rows = [_row(kernel, _peak(kernel, device), bandwidth) for kernel in shown]
    text = charts.page(
        f"Roofline of {device.name}",
        [("Kernels against the datasheet", plot), ("In numbers", charts.table(_HEADER, rows, numeric=range(3, 7)))],
    )
    write_page("--roofline", path, text)


def _named(kernel: KernelLine) -> str:
    """What a kernel multiplies in."""
    return kernel.dtype or "vector"


def _peak(kernel: KernelLine, device: Accelerator) -> float:
    """The datasheet's rate of the format that a kernel multiplies in, FLOP/s."""
    return (device.rate(number_format(kernel.dtype).rate) if kernel.dtype else None) or device.vector


def _row(kernel: KernelLine, peak: float, bandwidth: float) -> list[str]:
    floor = max(kernel.flops / peak, kernel.hbm_bytes / bandwidth)
    moved = format_bandwidth(kernel.hbm_bytes / kernel.seconds)
    return [
        f"{words.kernel(kernel.name)} ({kernel.unit}, {kernel.phase})",
        kernel.implementation,
        _named(kernel),
        format_seconds(kernel.seconds),
        format_count(kernel.flops / kernel.hbm_bytes) if kernel.flops else "",
        format_flops(kernel.flops / kernel.seconds) if kernel.flops else moved,
        format_percent(floor / kernel.seconds),
        kernel.bound,
    ]
