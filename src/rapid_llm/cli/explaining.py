"""``explain``: the answer, then every kernel and message of the critical rank in words."""

from __future__ import annotations

from rapid_llm import charts
from rapid_llm.cli import text, words
from rapid_llm.cli.answer import UNFOLDED, answer
from rapid_llm.cli.flags import Common
from rapid_llm.cli.style import show
from rapid_llm.cli.text import json_text
from rapid_llm.errors import InfeasibleError
from rapid_llm.hardware import Accelerator
from rapid_llm.predict import predict
from rapid_llm.predict.explaining import KernelLine, explain
from rapid_llm.predict.report import Cost, Report, plain_value
from rapid_llm.scenario import Scenario, load
from rapid_llm.units import format_count, format_percent


def explain_file(file: str, common: Common, roofline: str | None = None) -> int:
    """Print the answer to a scenario file and what each kernel of it does."""
    scenario = load(file, overrides=list(common.sets))
    report = predict(scenario, allow_infeasible=True, sensitivities=True)
    kernels = explain(scenario)
    if roofline is not None:
        from rapid_llm.cli.roofline import write

        write(_critical(report, scenario), kernels, roofline)
    if common.json:
        print(json_text({**report.to_dict(), "kernels": plain_value(kernels)}))
    else:
        width = text.terminal_width()
        show([*answer(report, width=width, shown=UNFOLDED), "", *_tree(report.breakdown), "", *_lines(kernels, width)])
    return 0 if report.feasible else InfeasibleError.exit_code


def _critical(report: Report, scenario: Scenario) -> Accelerator:
    """The accelerator of the critical rank."""
    chips = [group.node.accelerator for group in scenario.system.groups]
    names = report.seats.stages[report.seats.pacing_stage].accelerators if report.seats else ()
    return next((chip for chip in chips if chip.name in names), chips[0])


def _tree(cost: Cost | None) -> list[str]:
    return charts.text_tree(words.branch(cost), form=text.seconds) if cost is not None else []


def _lines(kernels: list[KernelLine], width: int) -> list[str]:
    """Two lines a kernel, the costliest first: what it costs, and why in the numbers of its formula."""
    total = sum(kernel.total_seconds for kernel in kernels)
    lines = [f"kernels      {len(kernels)} of the critical rank, {text.seconds(total)} with what overlaps"]
    for kernel in kernels:
        share, each = format_percent(kernel.total_seconds / total), text.seconds(kernel.seconds)
        times = f"{format_count(kernel.count)} x {each}"
        name = f"{words.kernel(kernel.name)} ({kernel.unit}, {kernel.phase})"
        lines.append(f"{share:>7}  {text.seconds(kernel.total_seconds):>8} = {times:<17} {name}"[:width])
        why = f"{kernel.implementation}, bound by {kernel.bound}. {kernel.words}"
        lines += text.wrapped("", why, indent=9, width=width)
    return lines
