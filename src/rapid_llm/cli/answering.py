"""``run``, ``train``, ``infer`` and ``fit``: from the flags to a printed report and an exit code."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rapid_llm.cli import text
from rapid_llm.cli.files import page_file, whole_folder, write_page
from rapid_llm.cli.flags import Answering, Fitting, Serving, in_flags
from rapid_llm.cli.style import show, status
from rapid_llm.cli.text import json_text
from rapid_llm.errors import InfeasibleError, InputError
from rapid_llm.predict import fit, grown, grown_field, largest
from rapid_llm.predict.feasibility import filled
from rapid_llm.predict.report import Report
from rapid_llm.scenario import Scenario, check, from_mapping, load, require
from rapid_llm.workload import Inference


def answer_file(file: str, answering: Answering) -> int:
    """Answer a scenario file."""
    return _answer(load(file, overrides=list(answering.sets)), answering)


def answer_job(kind: str, model: str, overrides: Sequence[str], answering: Serving) -> int:
    """Answer a model with the given flags."""
    mapping = {"model": model, "workload": {"kind": kind}}
    return _answer(scenario_of(mapping, [*overrides, *answering.sets]), answering)


def fit_file(file: str, fitting: Fitting) -> int:
    """Answer only whether a scenario file fits, and what the largest is that does."""
    return _fit(load(file, overrides=list(fitting.sets)), fitting)


def fit_job(kind: str, model: str, overrides: Sequence[str], fitting: Fitting) -> int:
    """Answer only whether it fits, and what the largest is that does: the answer is then of that, if none is given."""
    said = [*overrides, *fitting.sets]
    found = grown_field(kind, fitting.max or "")
    mapping: dict[str, Any] = {"model": model, "workload": {"kind": kind}}
    if fitting.max == "micro-batch" and not any(one.startswith("workload.micro_batch_size=") for one in said):
        smallest = require(scenario_of(mapping, said))
        return _fit(smallest, fitting, shown=grown(smallest, fitting.max, largest(smallest, fitting.max)))
    if not found or any(one.startswith(f"workload.{found}=") for one in said):
        return _fit(scenario_of(mapping, said), fitting)
    mapping["workload"][found] = 1
    smallest = require(grown(scenario_of(mapping, said, checked=False), str(fitting.max)))
    return _fit(smallest, fitting, shown=grown(smallest, str(fitting.max), largest(smallest, str(fitting.max))))


def _fit(scenario: Scenario, fitting: Fitting, shown: Scenario | None = None) -> int:
    if fitting.memory_timeline is not None:
        _memory_timeline(scenario, fitting.memory_timeline)
    report = fit(shown or scenario)
    if shown and fitting.max == "requests" and report.memory:
        report = replace(report, memory=filled(report.memory))
    if fitting.max is None:
        return _print(report, as_json=fitting.json, full=fitting.full)
    size = largest(scenario, fitting.max)
    if fitting.json:
        print(json_text({**report.to_dict(), "largest": {fitting.max: size}}))
    else:
        _print(report, as_json=False, full=fitting.full)
        show(_largest(scenario, fitting.max, size, said={one.message for one in check(shown or scenario)}))
    return 0 if report.feasible else InfeasibleError.exit_code


def _largest(scenario: Scenario, what: str, size: int | None, *, said: set[str]) -> list[str]:
    """The largest that fits, and what is to be noted of it beyond what was said of the scenario."""
    width = text.terminal_width()
    if size is None:
        return text.wrapped("largest", f"any {what}: memory does not grow with it", width=width)
    verb = "fit" if what in ("requests", "layers") else "fits"
    if size == 0:
        return text.wrapped("largest", f"no {what} {verb}", width=width)
    lines = text.wrapped("largest", f"{what} that {verb}: {_counted(scenario, what, size)}", width=width)
    notes = [one.message for one in check(grown(scenario, what, size)) if one.message and one.message not in said]
    return lines + [line for note in notes for line in text.wrapped("note", note, width=width)]


def _counted(scenario: Scenario, what: str, size: int) -> str:
    work = scenario.workload
    if what == "micro-batch":
        return text.counted(size, "sequence")
    if what != "sequence":
        return f"{size:,}"
    tokens = text.counted(size, "token")
    return f"{tokens} of prompt, and {work.output_tokens:,} of output" if isinstance(work, Inference) else tokens


def scenario_of(mapping: Mapping[str, Any], overrides: Sequence[str], *, checked: bool = True) -> Scenario:
    """The scenario of a command line; what an error asks for is named as its flag."""
    try:
        return from_mapping(mapping, overrides=overrides, checked=checked)
    except InputError as error:
        raise in_flags(error) from None


def _answer(scenario: Scenario, answering: Serving) -> int:
    from rapid_llm.predict import predict

    check_pages(answering)
    with status("working it out"):
        report = predict(scenario, allow_infeasible=answering.allow_infeasible, sensitivities=True)
    write_files(scenario, report, answering)
    return _print(report, as_json=answering.json, full=answering.full)


def check_pages(answering: Serving) -> None:
    """InputError where a folder or a page that was asked for has no name of one."""
    if answering.out is not None:
        whole_folder(answering.out)
    for flag, file in (("--timeline", _timeline(answering)), ("--memory-timeline", answering.memory_timeline)):
        if file is not None:
            page_file(flag, file)
    first, second = _timeline(answering), answering.memory_timeline
    if first is not None and second is not None and Path(first).resolve() == Path(second).resolve():
        raise InputError(f"--timeline and --memory-timeline name one file ({first}). Try two names.")


def _timeline(answering: Serving) -> str | None:
    """The page of a schedule that was asked for: a training step alone has one."""
    return answering.timeline if isinstance(answering, Answering) else None


def write_files(scenario: Scenario, report: Report, answering: Serving) -> None:
    """Write the folder and the pages that were asked for beside an answer."""
    if answering.out is not None:
        from rapid_llm.cli.folder import write

        write(scenario, report, answering.out)
    timeline = _timeline(answering)
    if timeline is not None:
        from rapid_llm.cli.folder import write_timeline

        write_timeline(scenario, report, timeline)
    if answering.memory_timeline is not None:
        _memory_timeline(scenario, answering.memory_timeline)


def _memory_timeline(scenario: Scenario, file: str) -> None:
    from rapid_llm.predict.timeline import memory_timeline

    page_file("--memory-timeline", file)
    write_page("--memory-timeline", file, memory_timeline(scenario))


def _print(report: Report, *, as_json: bool, full: bool) -> int:
    if as_json:
        print(json_text(report.to_dict()))
    else:
        show_report(report, full=full)
    return 0 if report.feasible else InfeasibleError.exit_code


def show_report(report: Report, *, full: bool) -> None:
    """Print an answer, ``full`` or of 30 lines; what keeps it from fitting goes to standard error too."""
    from rapid_llm.cli.answer import WHOLE, answer

    for violation in report.violations:
        print(violation.message, file=sys.stderr)
    show(answer(report, width=text.terminal_width(), shown=WHOLE if full else None))
