"""How a job is cut over ranks: degrees, placement, and the same as columns over many plans."""

from rapid_llm.parallelism.columns import PLAN_COLUMNS, RECOMPUTE_MODES, Plans
from rapid_llm.parallelism.plan import AXES, FOLDED, SCHEDULES, TWO_WAY, Parallelism, Placement

__all__ = [
    "AXES",
    "FOLDED",
    "PLAN_COLUMNS",
    "RECOMPUTE_MODES",
    "SCHEDULES",
    "TWO_WAY",
    "Parallelism",
    "Placement",
    "Plans",
]
