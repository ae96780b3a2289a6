"""``run``, ``train``, ``infer`` and ``fit``: from the flags to a printed report and an exit code."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence

from rapid_llm.cli import text
from rapid_llm.cli.flags import Answering, Common, Fitting
from rapid_llm.cli.style import show
from rapid_llm.errors import InfeasibleError, InputError
from rapid_llm.predict import fit, largest
from rapid_llm.predict.report import Report
from rapid_llm.scenario import Scenario, from_mapping, load


def answer_file(file: str, answering: Answering) -> int:
    """Answer a scenario file."""
    return _answer(load(file, overrides=list(answering.sets)), answering)


def answer_job(kind: str, model: str, overrides: Sequence[str], answering: Answering) -> int:
    """Answer a model with the given flags."""
    return _answer(_scenario(kind, model, overrides, answering), answering)


def fit_job(kind: str, model: str, overrides: Sequence[str], fitting: Fitting) -> int:
    """Answer only whether it fits, and what the largest is that does."""
    scenario = _scenario(kind, model, overrides, fitting)
    report = fit(scenario)
    if fitting.max is None:
        return _print(report, as_json=fitting.json)
    size = largest(scenario, fitting.max)
    if fitting.json:
        print(json.dumps({**report.to_dict(), "largest": {fitting.max: size}}, indent=2))
    else:
        _print(report, as_json=False)
        show([f"{'largest':<{text.INDENT}}{_largest(fitting.max, size)}"])
    return 0 if report.feasible else InfeasibleError.exit_code


def _largest(what: str, size: int) -> str:
    unit = {"micro-batch": "sequences", "sequence": "tokens"}.get(what, "")
    return f"{what} that fits: {size:,} {unit}".rstrip() if size else f"no {what} fits"


def _scenario(kind: str, model: str, overrides: Sequence[str], common: Common) -> Scenario:
    mapping = {"model": model, "workload": {"kind": kind}}
    try:
        return from_mapping(mapping, overrides=[*overrides, *common.sets])
    except InputError as error:
        flag = _NEEDED.get(error.field or "")
        if flag is None or not error.message.endswith("is missing."):
            raise
        raise InputError(f"{error.message} Try {flag}.", field=error.field, suggestions=[flag]) from None


_NEEDED = {
    "workload.global_batch_size": "--global-batch-size 512",
    "workload.sequence_length": "--sequence-length 4096",
    "workload.batch_size": "--batch-size 32",
    "workload.prompt_tokens": "--prompt-tokens 1024",
    "workload.output_tokens": "--output-tokens 256",
}
"""Flags that a job cannot do without, with a value to start from."""


def _answer(scenario: Scenario, answering: Answering) -> int:
    from rapid_llm.predict import predict

    report = predict(scenario, allow_infeasible=answering.allow_infeasible, sensitivities=True)
    if answering.out is not None:
        from rapid_llm.cli.folder import write

        write(scenario, report, answering.out)
    if answering.timeline is not None:
        from rapid_llm.cli.folder import write_timeline

        write_timeline(scenario, report, answering.timeline)
    if answering.memory_timeline is not None:
        from rapid_llm.cli.folder import write_page
        from rapid_llm.predict.timeline import memory_timeline

        write_page("--memory-timeline", answering.memory_timeline, memory_timeline(scenario))
    return _print(report, as_json=answering.json)


def _print(report: Report, *, as_json: bool) -> int:
    if as_json:
        print(json.dumps(report.to_dict(), indent=2))
    else:
        from rapid_llm.cli.answer import answer

        for violation in report.violations:
            print(violation.message, file=sys.stderr)
        show(answer(report, width=text.terminal_width()))
    return 0 if report.feasible else InfeasibleError.exit_code
