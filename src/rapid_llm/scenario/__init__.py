"""Everything a user typed: loading with line numbers, ``base:``, ``--set``, names, defaults, checks."""

from rapid_llm.scenario.checks import CHECKS, Finding, check, require, violated
from rapid_llm.scenario.columns import Columns, columns
from rapid_llm.scenario.loading import from_mapping, load
from rapid_llm.scenario.plan_defaults import replanned
from rapid_llm.scenario.rules import Check
from rapid_llm.scenario.scenario import Draft, Pool, Pools, Scenario, pool_scenario
from rapid_llm.scenario.schema import schema
from rapid_llm.scenario.seating import used_groups

__all__ = [
    "CHECKS",
    "Check",
    "Columns",
    "Draft",
    "Finding",
    "Pool",
    "Pools",
    "Scenario",
    "check",
    "columns",
    "from_mapping",
    "load",
    "pool_scenario",
    "replanned",
    "require",
    "schema",
    "used_groups",
    "violated",
]
