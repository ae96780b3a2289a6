"""Error quantiles of the suites of kernels, as the scorecard on measured tables wrote them."""

from functools import lru_cache
from importlib import resources
from typing import Any

from rapid_llm.documents import parse_yaml
from rapid_llm.validation.kernels.slices import RUNTIMES

_FILE = "kernel_quantiles.yaml"


@lru_cache(maxsize=1)
def quantiles() -> tuple[dict[str, Any], ...]:
    """All rows: suite, group (gpu/dtype/framework), metric, split, rows, median, p90, bias; errors as fractions."""
    text = resources.files("rapid_llm.validation").joinpath("data", _FILE).read_text("utf-8")
    return tuple(parse_yaml(text, _FILE).data["quantiles"])


def nearest(suite: str, metric: str, accelerator: str, dtype: str, engine: str = "") -> dict[str, Any] | None:
    """The group of an accelerator, dtype and engine; else the worst of accelerator and dtype; of the accelerator; else
    the mean of the suite; or None."""
    framework = next((name for name, runtime in RUNTIMES.items() if runtime == engine), "")
    mine = [row for row in quantiles() if (row["suite"], row["metric"]) == (suite, metric)]
    for prefix in (f"{accelerator}/{dtype}/{framework or '-'}", f"{accelerator}/{dtype}/", f"{accelerator}/", "all"):
        found = [row for row in mine if row["group"].startswith(prefix)]
        if found:
            return max(found, key=lambda row: float(row["p90"]))
    return None
