"""Named checks of what needs more than one noun: degrees that must divide, sizes that must fit together.

A check is a predicate on columns and one sentence for a failing row: loading raises it, a planner masks with it, and
``rapid-llm check`` lists it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from rapid_llm.errors import InputError
from rapid_llm.nouns import replaced
from rapid_llm.scenario.columns import Columns, columns
from rapid_llm.scenario.group_rules import GROUPS
from rapid_llm.scenario.rules import PLAN, Check, Severity
from rapid_llm.scenario.scenario import Scenario, pool_scenario
from rapid_llm.scenario.work_rules import WORK

Mask = NDArray[np.bool_]

CHECKS: tuple[Check, ...] = (*PLAN, *GROUPS, *WORK)
"""All checks, in the order in which a user wants to hear of them."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What one check says of one scenario; ``message`` is empty where it passed."""

    name: str
    severity: Severity
    field: str
    message: str = ""

    @property
    def passed(self) -> bool:
        """Whether the check holds."""
        return not self.message


def check(scenario: Scenario) -> list[Finding]:
    """Every named check of a scenario, in order."""
    said = _failures(scenario)
    found = [Finding(one.name, one.severity, one.field, said.get(one.name, "")) for one in CHECKS]
    if scenario.pools is None:
        return found
    return [*found, *_of_pool(scenario, "prefill"), *(_of_pool(scenario, "ffn") if scenario.pools.ffn else [])]


@lru_cache(maxsize=256)
def _failures(scenario: Scenario) -> dict[str, str]:
    """The sentence of every check that a scenario fails, by the check's name."""
    given = columns(scenario)
    failed = [one for one in CHECKS if not one.holds(given)]
    row = {**given.row(0), "passing": partial(_passing, scenario)} if failed else {}
    return {one.name: one.sentence(row) for one in failed}


def _of_pool(scenario: Scenario, phase: Literal["prefill", "ffn"]) -> list[Finding]:
    """The failing checks of a pool, checked without drafts and with one request per replica."""
    pool = pool_scenario(scenario, phase)
    work = replaced(pool.workload, batch_size=pool.parallelism.dp or 1, speculation=None)
    failed = [one for one in check(replaced(pool, draft=None, workload=work)) if one.message]
    return [replace(one, field=f"pools.{phase}.{one.field}", message=f"pools.{phase}: {one.message}") for one in failed]


def _passing(scenario: Scenario, **values: Sequence[int]) -> list[bool]:
    """Which of these values of some columns would pass every check."""
    passing: list[bool] = np.asarray(~violated(columns(scenario, values)).any(axis=0)).tolist()
    return passing


def require(scenario: Scenario) -> Scenario:
    """The scenario itself; InputError with the sentence of the first check that fails."""
    if not isinstance(scenario, Scenario):
        raise InputError("this is no scenario. Try rapid_llm.load('scenario.yaml'), or rapid_llm.train(...).")
    if _failures(scenario) or scenario.pools is not None:
        for finding in check(scenario):
            if finding.message and finding.severity == "error":
                raise InputError(finding.message, field=finding.field)
    return scenario


def violated(given: Columns) -> Mask:
    """Which plan fails which check: [number of CHECKS with severity error, P]."""
    plans = len(given)
    masks = [~np.broadcast_to(np.asarray(one.holds(given), dtype=bool), plans) for one in CHECKS if _is_error(one)]
    return np.stack(masks)


def _is_error(one: Check) -> bool:
    return one.severity == "error"
