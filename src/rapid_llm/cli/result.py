"""A report as one JSON object with stable keys, SI units."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from rapid_llm.predict.report import Report


def as_object(report: Report) -> dict[str, Any]:
    """The fields of a report as plain values; the keys of the other workload kind are left out."""
    skipped = _INFERENCE_ONLY if report.kind == "training" else _TRAINING_ONLY
    return {name: value for name, value in plain(report).items() if name not in skipped}


_TRAINING_ONLY = frozenset(
    {"step_time_s", "tokens_per_s", "tokens_per_s_per_accelerator", "mfu", "mfu_causal", "hfu", "flop_convention"}
)
_INFERENCE_ONLY = frozenset({"ttft_s", "tpot_s", "e2e_s", "output_tokens_per_s", "total_tokens_per_s"})


def plain(value: Any) -> Any:
    """Reduce dataclasses, mappings, sequences and numpy scalars to what JSON has."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain(item) for item in value]
    return value.item() if hasattr(value, "item") else value
