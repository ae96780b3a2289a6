"""``check`` and ``schema``: what a scenario must satisfy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from rapid_llm import scenario
from rapid_llm.cli import text
from rapid_llm.cli.flags import Common
from rapid_llm.cli.style import show
from rapid_llm.cli.text import json_text
from rapid_llm.errors import InfeasibleError, InputError
from rapid_llm.scenario import Finding


def check_file(file: str, common: Common) -> int:
    """Print every named check; 2 if one fails, 3 if only memory or routes do."""
    loaded = scenario.load(file, overrides=list(common.sets), checked=False)
    findings = scenario.check(loaded)
    broken = any(not one.passed and one.severity == "error" for one in findings)
    if not broken:
        findings.append(_memory(loaded))
        findings += _routes(loaded)
    if common.json:
        print(json_text({"checks": [{**asdict(one), "passed": one.passed} for one in findings]}))
    else:
        show(_lines(findings))
    if broken:
        return InputError.exit_code
    kept = all(one.passed for one in findings if one.severity == "error")
    return 0 if kept else InfeasibleError.exit_code


def _memory(loaded: scenario.Scenario) -> Finding:
    from rapid_llm.predict import fit

    report = fit(loaded)
    message = "" if report.feasible else "; ".join(violation.message for violation in report.violations)
    return Finding("memory fits", "error", "memory", message)


def _routes(loaded: scenario.Scenario) -> list[Finding]:
    """Whether the live links join every group, where links are at fault."""
    if loaded.network != "flow" or not loaded.faults:
        return []
    from rapid_llm.predict import evaluate

    try:
        evaluate(loaded)
    except InfeasibleError as error:
        return [Finding("live links join every group", "error", "faults", error.message)]
    return [Finding("live links join every group", "error", "faults")]


def _lines(findings: Sequence[Finding]) -> list[str]:
    lines = []
    for one in findings:
        verdict = "ok" if one.passed else "FAILS" if one.severity == "error" else "warning"
        lines.append(f"{verdict:<9}{one.name}")
        if one.message:
            lines += text.wrapped("", one.message, indent=9, lines=4)
    failed = sum(not one.passed for one in findings)
    verdict = f"{failed} of them {'does' if failed == 1 else 'do'} not hold" if failed else "all of them hold"
    return [*lines, f"{len(findings)} checks, {verdict}"]


def print_schema() -> int:
    """Print the JSON Schema of a scenario."""
    print(json_text(scenario.schema()))
    return 0
