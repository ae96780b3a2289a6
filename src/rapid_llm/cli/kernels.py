"""``kernel``: one kernel on one accelerator, with what the time is made of."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from rapid_llm import hardware, operators, runtime
from rapid_llm.cli import text
from rapid_llm.cli.kernel_verbs import Asked
from rapid_llm.cli.style import show
from rapid_llm.cli.text import json_text
from rapid_llm.dtypes import dtype as named
from rapid_llm.errors import InputError
from rapid_llm.execution.pricing import implementation
from rapid_llm.hardware import Accelerator
from rapid_llm.predict.confidence import MEAN, kernels_stray
from rapid_llm.units import format_bandwidth, format_bytes, format_percent, format_seconds
from rapid_llm.validation import kernel_quantiles

SUITES: Final = {"gemm": "gemm", "attention": "attention", "moe": "moe", "scan": "ssm", "convolution": "ssm"}
"""Family to the suite that scores its kernels."""
NO_FORMAT: Final = frozenset(("scan", "convolution", "pointwise"))
"""Families whose kernels have one number format, whatever a model multiplies in."""
ROWS_OF: Final = {"fp16": "bf16", "int8": "sq"}
"""A format to the name that tables have for it, or for one that the same instructions multiply as fast."""
ATTENTION_ROWS: Final = {"fp8_block": "fp8", "mxfp8": "fp8", "fp8_row": "fp8"}
"""Attention knows no scales of blocks: its products are of plain fp8."""
EXPERT_ROWS: Final = {"mxfp4": "w4a8_mxfp4_mxfp8", "mxfp4_wo": "w4a16_mxfp4"}


def answer(
    family: str, columns: Mapping[str, float], asked: Asked, *, kind: str = "stream", dtype: str = "bf16"
) -> int:
    """Price one kernel and print what its time is made of; InputError for a bad shape, dtype or name."""
    operators.check_shape(family, columns)
    found = _found(family, columns, asked, (kind, named(dtype).kin or named(dtype).name))
    if asked.json:
        print(json_text(found))
    else:
        show(_lines(found))
    return 0


def _found(family: str, columns: Mapping[str, float], asked: Asked, how: tuple[str, str]) -> dict[str, Any]:
    kind, dtype = how
    device = hardware.accelerator(asked.accelerator)
    name = asked.kernel or implementation(runtime.load(asked.runtime), family, dtype, device.architecture)
    prices = operators.price(family, dict(columns), kind=kind, dtype=dtype, kernel=name, accelerator=device)
    floor = operators.roofline(family, dict(columns), dtype=dtype, accelerator=device)
    seconds = float(prices.seconds[0])
    chosen = operators.kernel(name)
    found: dict[str, Any] = {
        "family": family,
        "accelerator": device.name,
        "dtype": dtype,
        "kernel": name,
        "measured_on": chosen.stands_in(device.architecture),
        "architecture": device.architecture,
        "units": device.compute_units,
        "seconds": seconds,
        "roofline_s": float(floor.seconds[0]),
        "roofline": "roofline at the clock it holds" if device.sustained.matrix > 1.0 else "datasheet roofline",
        "compute_s": float(prices.compute_s[0]),
        "memory_s": float(prices.memory_s[0]),
        "flops": float(prices.flops[0]),
        "flops_per_second": float(prices.flops[0]) / seconds,
        "hbm_bytes": float(prices.hbm_bytes[0]),
        "launch_s": float(prices.fixed_s[0]),
        "bound": operators.BOUNDS[int(prices.bound[0])],
    }
    found |= operators.explain(family, columns, dtype=dtype, implementation=name, accelerator=device)
    found["errors"] = _errors(family, columns, dtype, device, asked.runtime)
    return found


def _errors(
    family: str, columns: Mapping[str, float], dtype: str, device: Accelerator, engine: str
) -> dict[str, Any] | None:
    """Error quantiles of the suite: of this accelerator, dtype and engine, else of the suite as a whole, where
    constants are ``typical`` ones; ``within``: what nine tenths should keep, wider for those; ``other_format``: whether
    the nearest group is of another dtype."""
    suite, latent = SUITES.get(family, ""), columns.get("head_dim") != columns.get("v_head_dim")
    metric = {"attention": "generation" if columns.get("new") == 1.0 else "context"}.get(family, "latency")
    metric = "balanced" if family == "moe" else metric
    if family == "convolution":
        metric = "convolution update" if columns["new"] == 1.0 else "convolution"
    rows = (EXPERT_ROWS if family == "moe" else ATTENTION_ROWS if family == "attention" else {}).get(dtype)
    rows = (rows or ROWS_OF.get(dtype, dtype)) + ("-kv8" if dtype == "bf16" and columns.get("kv_bytes") == 1.0 else "")
    found = kernel_quantiles.nearest("mla" if latent else suite, metric, device.name, rows, engine)
    if found is None:
        return None
    typical = found["group"] == MEAN
    within = found["p90"] * (kernels_stray(device.name) if typical else 1.0)
    other = not typical and f"/{rows}/" not in f"{found['group']}/"
    return {**found, "typical": typical, "within": within, "other_format": other}


def _lines(found: Mapping[str, Any]) -> list[str]:
    peak = format_percent(found["seconds"] and found["roofline_s"] / found["seconds"])
    runs, asked = found.get("runs", found["kernel"]), found["kernel"]
    by = f"{runs}{f' (of {asked})' if runs != asked else ''}"
    format_ = "" if found["family"] in NO_FORMAT else f", {found['dtype']}"
    moved = found["hbm_bytes"] / found["seconds"]
    rate = f"{found['flops_per_second'] / 1e12:.4g} TFLOP/s, {found['flops'] / 1e9:.4g} GFLOP in all, "
    sides = (f"{name} {format_seconds(found[f'{name}_s'])}" for name in ("compute", "memory", "launch"))
    return [
        f"time         {format_seconds(found['seconds'])}, bound by {found['bound']}; "
        f"{found['roofline']} {format_seconds(found['roofline_s'])} ({peak} of it reached)",
        f"kernel       {by} on {found['accelerator']}{_stand_in(found)}{format_}",
        f"rate         {rate if found['flops'] else ''}{format_bandwidth(moved)} of HBM",
        f"sides        {', '.join(sides)}",
        *_cut(found),
        *text.wrapped("trust", _trust(found["errors"], found["accelerator"])),
    ]


def _cut(found: Mapping[str, Any]) -> list[str]:
    """Tiles, waves and what crosses each level of memory; of a stream of bytes only that."""
    traffic = f"traffic      HBM {format_bytes(found['hbm_bytes'])}"
    if "tile" not in found:
        return [f"tiles        none: a stream of bytes through all {found['units']} compute units", traffic]
    sides = " x ".join(map(str, found["tile"]))
    split = f", split in {found['split']:g}" if found["split"] > 1 else ""
    tiles = (
        f"tiles        {text.counted(found['tiles'], 'tile')} of {sides} ({found['sides']}){split}: "
        f"{text.counted(found['waves'], 'wave')}, the last {format_percent(found['last_wave_occupancy'])} full"
    )
    return [tiles, f"{traffic}, L2 {format_bytes(found['l2_bytes'])} read by tiles"]


def _stand_in(found: Mapping[str, Any]) -> str:
    if found["measured_on"] == found["architecture"]:
        return ""
    return f" (constants of {found['measured_on']}: {found['architecture']} was not measured)"


def _trust(errors: Mapping[str, Any] | None, accelerator: str) -> str:
    if errors is None:
        return "no suite scores this kernel"
    nearest = "no rows of this format; nearest: " if errors["other_format"] else ""
    if errors["typical"]:
        measured = f"suite {errors['suite']} {errors['group']}: {format_percent(errors['p90'])}"
        return (
            f"constants are typical ones, no such kernel was measured on {accelerator}: "
            f"90 % within {format_percent(errors['within'])} ({measured})"
        )
    return (
        f"{nearest}suite {errors['suite']} {errors['group']}: median error {format_percent(errors['median'])}, "
        f"90 % of {errors['rows']} rows within {format_percent(errors['p90'])}"
    )


def hit(tokens: int, experts: int, per_token: int) -> float:
    """Experts of a layer that get any token of those routed uniformly; InputError where a token has more than all."""
    if per_token > experts:
        raise InputError(
            f"moe: experts-per-token {per_token} must be at most experts {experts}. Try {experts}.",
            field="experts_per_token",
        )
    return experts * (1.0 - (1.0 - per_token / experts) ** tokens) if experts > 0 else 0.0


def sizes(dtype: str) -> tuple[float, float]:
    """Bytes per element of activations and weights of a compute dtype."""
    found = named(dtype)
    return (2.0 if found.weight_only else found.bytes), found.bytes
