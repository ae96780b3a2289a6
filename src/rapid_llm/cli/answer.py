"""The terminal answer to one scenario: at most 30 lines of 100 columns, every number with its unit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rapid_llm import charts
from rapid_llm.cli import text
from rapid_llm.predict.report import Confidence, Cost, MemoryUse, Report, Violation
from rapid_llm.units import format_bytes, format_percent, format_rate, format_seconds

GIB = 2**30
SMALLEST_SHOWN = 0.05 * GIB
MINUTE, HOUR = 60.0, 3600.0
COST_COLUMNS = 44
SHOWN_COSTS = 5
SHOWN_WHAT_IFS = 3
_DEGREES = ("tp", "pp", "vpp", "cp", "ep", "etp", "dp")


def answer(report: Report) -> list[str]:
    """Render a report as lines of plain text, the most important first."""
    return [
        *_title(report.scenario),
        *_verdict(report),
        *_headline(report),
        *_memory(report),
        *_costs(report),
        *_what_ifs(report),
        *_trust(report),
    ]


def _title(scenario: Mapping[str, Any]) -> list[str]:
    """Say what was asked in one line."""
    degrees = scenario.get("parallelism", {})
    plan = " ".join(
        f"{axis} {degrees[axis]}" for axis in ("tp", "pp", "vpp", "cp", "ep", "etp", "dp") if _shown(degrees, axis)
    )
    count = scenario.get("accelerators", 1)
    parts = [
        f"{_name(scenario.get('model'))} {scenario.get('workload', {}).get('kind', '')}",
        f"{count:,} accelerator{'s' if count > 1 else ''} of {_name(scenario.get('system'))}",
        _name(scenario.get("runtime")),
        plan,
        _name(scenario.get("precision")),
    ]
    return text.flowed("", filter(None, parts), separator=" · ", indent=0, lines=2)


def _shown(degrees: Mapping[str, Any], axis: str) -> bool:
    return isinstance(degrees.get(axis), int) and (degrees[axis] > 1 or axis in {"tp", "dp"})


def _name(noun: Any) -> str:
    """Name a noun that stands in a resolved scenario as text or as a mapping."""
    return str(noun.get("name", "")) if isinstance(noun, Mapping) else str(noun or "")


def _verdict(report: Report) -> list[str]:
    if report.feasible:
        memory = report.memory
        return [_row("fits", f"yes: {_space(memory, memory.peak_bytes, memory.capacity_bytes)}")]
    return [line for violation in report.violations for line in _violation(violation, report.memory)]


def _space(memory: MemoryUse, need: float, have: float) -> str:
    free = f"{format_bytes(have - need)} free" if have >= need else f"{format_bytes(need - have)} missing"
    place = f"on the fullest rank (rank {memory.rank}, stage {memory.stage})"
    return f"{format_bytes(need)} of {format_bytes(have)} {place}, {free}"


def _violation(violation: Violation, memory: MemoryUse) -> list[str]:
    """Say why not, and what would help. The whole sentence stands on standard error."""
    is_memory = violation.kind == "memory"
    why = _space(memory, violation.need, violation.have) if is_memory else violation.message
    lines = text.wrapped("fits", f"NO: {why}", lines=4)
    for fix in violation.fixes[:SHOWN_WHAT_IFS]:
        cost = f", step time x{fix.step_time_ratio:.2f}" if fix.step_time_ratio else ""
        lines.append(_row("  try", f"{fix.change}: saves {format_bytes(fix.saves_bytes)}{cost}"))
    return lines


def _headline(report: Report) -> list[str]:
    if report.step_time_s is not None:
        return [*_training(report, report.step_time_s), *_bound(report)]
    if report.e2e_s is not None:
        return [*_inference(report), *_bound(report)]
    return []


def _training(report: Report, step_time_s: float) -> list[str]:
    lines = [_row("step time", _time(step_time_s) + _interval(report))]
    if report.tokens_per_s is not None and report.tokens_per_s_per_accelerator is not None:
        each = format_rate(report.tokens_per_s_per_accelerator)
        lines.append(_row("throughput", f"{format_rate(report.tokens_per_s)}, {each} per accelerator"))
    if report.mfu is not None:
        beside = [
            f"{name} {format_percent(value)}"
            for name, value in (("causal", report.mfu_causal), ("HFU", report.hfu))
            if value is not None
        ]
        lines += text.wrapped("MFU", f"{format_percent(report.mfu)} ({', '.join(beside)}): {report.flop_convention}")
    return lines


def _inference(report: Report) -> list[str]:
    times = (
        ("TTFT", report.ttft_s, "arrival to first token"),
        ("TPOT", report.tpot_s, "per output token after the first"),
        ("E2E", report.e2e_s, "arrival to last token"),
    )
    lines = [
        _row(name, f"{_time(value):<10} {meaning}" + (_interval(report) if name == "E2E" else ""))
        for name, value, meaning in times
        if value is not None
    ]
    if report.output_tokens_per_s is not None and report.total_tokens_per_s is not None:
        output = format_rate(report.output_tokens_per_s, "output tokens/s")
        count = report.scenario.get("accelerators")
        each = f"{format_rate(report.output_tokens_per_s / count)} per accelerator, " if count else ""
        total = format_rate(report.total_tokens_per_s)
        lines.append(_row("throughput", f"{output}, {each}{total} with the prompt"))
    return lines


def _interval(report: Report) -> str:
    if report.interval is None:
        return ""
    low, high = report.interval
    return f"   (90 % of validated cases: {_time(low)} to {_time(high)})"


def _bound(report: Report) -> list[str]:
    return text.wrapped("bound by", report.bound_by, lines=2) if report.bound_by else []


def _memory(report: Report) -> list[str]:
    """Draw the fullest rank's memory as one bar with a legend; the brackets end where its memory ends."""
    memory = report.memory
    shown = [charts.Part(name, size) for name, size in memory.by_category.items() if size >= SMALLEST_SHOWN]
    bar, legend = charts.text_stack(shown, limit=memory.capacity_bytes, form=_gib)
    free = memory.capacity_bytes - memory.peak_bytes
    rest = f"{'free' if free >= 0 else 'MISSING'} {_gib(abs(free))} GiB"
    title = _row("memory", f"{bar}  [ ] = {format_bytes(memory.capacity_bytes)}")
    return [title, *text.flowed("", [*legend.split("  "), rest], separator="  ")]


def _gib(size: float) -> str:
    return f"{size / GIB:.1f}"


def _costs(report: Report) -> list[str]:
    if report.breakdown is None or report.breakdown.seconds <= 0:
        return []
    total = report.breakdown.seconds
    leaves = sorted(_named_leaves(report.breakdown), key=lambda pair: -pair[1].seconds)
    shown = [(name, cost) for name, cost in leaves[:SHOWN_COSTS] if cost.seconds > 0]
    rest = total - sum(cost.seconds for _, cost in shown)
    network = sum(cost.seconds for _, cost in leaves if cost.bound == "network") / total
    whole = f"{_time(total)} on the critical rank, {format_percent(network)} of it network"
    lines = [_row("costs", f"{whole}; the largest of {len(leaves)} parts:")]
    for name, cost in shown:
        hidden = f", {_time(cost.hidden_seconds)} more hidden" if cost.hidden_seconds > 0 else ""
        bound = f"   bound by {cost.bound}" if cost.bound else ""
        lines.append(_cost_line(name, cost.seconds, total, bound + hidden))
    if rest > total * 5e-4:
        lines.append(_cost_line("everything else", rest, total, ""))
    return lines


def _cost_line(name: str, value: float, total: float, note: str) -> str:
    share = format_percent(value / total)
    return f"  {name[:COST_COLUMNS]:<{COST_COLUMNS}} {_time(value):>9} {share:>7}{note}"[: text.WIDTH]


def _named_leaves(cost: Cost, path: tuple[str, ...] = ()) -> Iterator[tuple[str, Cost]]:
    """Yield each leaf with the names above it, without the root's."""
    if not cost.children:
        yield " / ".join(path) or cost.name, cost
    for child in cost.children:
        yield from _named_leaves(child, (*path, child.name))


def _what_ifs(report: Report) -> list[str]:
    best = sorted(report.what_if, key=lambda what_if: what_if.time_ratio)[:SHOWN_WHAT_IFS]
    changes = [f"{one.change}: {100 * one.time_ratio:+.1f} % time" for one in best]
    return text.flowed("what if", changes, separator="   ") if changes else []


def _trust(report: Report) -> list[str]:
    lines: list[str] = []
    if report.assumptions:
        lines += text.wrapped("assumed", "; ".join(report.assumptions), lines=2)
    if report.defaults:
        names = [one.removeprefix("parallelism.").removeprefix("workload.") for one in report.defaults]
        lines += text.wrapped("defaults", ", ".join(names))
    lines += text.wrapped("trust", _confidence(report.confidence))
    lines.append(_row("reproduce", f"rapid-llm {report.version}, scenario {report.hash[:12]}"))
    return lines


def _confidence(confidence: Confidence | None) -> str:
    if confidence is None or not confidence.rows:
        nearest = "no measurement is near this scenario: the answer rests on datasheets and architecture constants"
        return "; ".join((nearest, *(confidence.reasons if confidence else ())))
    errors = f"error median {format_percent(confidence.median)}, 90 % of rows within {format_percent(confidence.p90)}"
    nearest = f"nearest measurements: {confidence.suite}, {confidence.group} ({confidence.rows} rows), {errors}"
    return "; ".join((nearest, *confidence.reasons))


def _time(seconds: float) -> str:
    """Print a time; up to an hour in seconds, since that is how steps are compared."""
    return f"{seconds:,.1f} s" if MINUTE <= seconds < HOUR else format_seconds(seconds)


def _row(label: str, value: str) -> str:
    return f"{label:<13}{value}"[: text.WIDTH]
