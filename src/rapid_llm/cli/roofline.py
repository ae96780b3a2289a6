"""``explain --roofline``: every kernel of a scenario against the datasheet of its accelerator, as a page."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rapid_llm import charts
from rapid_llm.cli import words
from rapid_llm.cli.files import write_page
from rapid_llm.hardware import Accelerator
from rapid_llm.predict.explaining import KernelLine
from rapid_llm.units import format_bandwidth, format_flops, format_percent, format_seconds

_HEADER = ("kernel", "implementation", "time", "FLOP per byte", "rate", "of the roof", "bound")
_POINTS = 64  # of the roof's line


def write(device: Accelerator, kernels: Sequence[KernelLine], path: str) -> None:
    """Write a page: the roof max(B/s x intensity, FLOP/s) and one point a kernel, and the same as a table.

    Kernels without arithmetic have no intensity and stand in the table alone.
    """
    peak = max(device.peak.get(dtype, 0.0) for dtype in ("bf16", "fp16", "fp8", "fp4"))
    bandwidth = device.memory.hbm.bandwidth
    shown = [k for k in kernels if k.hbm_bytes > 0.0]
    counted = [k for k in shown if k.flops > 0.0]
    intensity = [k.flops / k.hbm_bytes for k in counted]
    low, high = min([0.1, *intensity]), max([10.0 * peak / bandwidth, *intensity])
    across = np.geomspace(low, high, _POINTS)
    roof = charts.Series("datasheet", tuple(across), tuple(np.minimum(across * bandwidth, peak)))
    rates = tuple(k.flops / k.seconds for k in counted)
    labels = tuple(f"{words.kernel(k.name)} ({k.unit}, {k.phase}): {format_seconds(k.seconds)}" for k in counted)
    points = charts.Series("kernels", tuple(intensity), rates, labels=labels, joined=False)
    plot = charts.plot(
        [roof, points], x_label="FLOP per byte of memory", y_label="FLOP/s", log_x=True, log_y=True, title="Roofline"
    )
    rows = [_row(kernel, peak, bandwidth) for kernel in shown]
    text = charts.page(
        f"Roofline of {device.name}",
        [("Kernels against the datasheet", plot), ("In numbers", charts.table(_HEADER, rows, numeric=range(2, 6)))],
    )
    write_page("--roofline", path, text)


def _row(kernel: KernelLine, peak: float, bandwidth: float) -> list[str]:
    floor = max(kernel.flops / peak, kernel.hbm_bytes / bandwidth)
    moved = format_bandwidth(kernel.hbm_bytes / kernel.seconds)
    return [
        f"{words.kernel(kernel.name)} ({kernel.unit}, {kernel.phase})",
        kernel.implementation,
        format_seconds(kernel.seconds),
        f"{kernel.flops / kernel.hbm_bytes:.3g}",
        format_flops(kernel.flops / kernel.seconds) if kernel.flops else moved,
        format_percent(floor / kernel.seconds),
        kernel.bound,
    ]
