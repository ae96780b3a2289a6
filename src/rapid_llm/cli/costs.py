"""Lines of an answer about its largest costs, and what would change them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from rapid_llm.cli import text, words
from rapid_llm.predict.report import Cost, Report
from rapid_llm.units import format_percent

COST_COLUMNS, COST_NOTE = 44, 44
SMALLEST_CHANGE = 5e-4


def cost_lines(report: Report, width: int, count: int) -> list[str]:
    """The ``count`` largest costs of the critical rank, and the rest in one."""
    if report.breakdown is None or report.breakdown.seconds <= 0 or not count:
        return []
    total = report.breakdown.seconds
    leaves = sorted(_named_leaves(report.breakdown), key=lambda pair: -pair[1].seconds)
    shown = [(name, cost) for name, cost in leaves[:count] if cost.seconds > 0]
    rest = total - sum(cost.seconds for _, cost in shown)
    network = sum(cost.seconds for _, cost in leaves if cost.bound == "network") / total
    whole = f"{text.seconds(total)} on the critical rank{_seat(report)}, {format_percent(network)} of it network"
    lines = text.wrapped("costs", f"{whole}; the largest of {len(leaves)} parts:", width=width)
    for name, cost in shown:
        hidden = f"{text.seconds(cost.hidden_seconds)} hidden" if cost.hidden_seconds > 0 else ""
        bound = f"bound by {cost.bound}" if cost.bound else ""
        lines.append(_cost_line(name, cost.seconds, total, (bound, hidden), width))
    if rest > total * 5e-4:
        lines.append(_cost_line("everything else", rest, total, (), width))
    return lines


def cost_count(report: Report) -> int:
    """How many costs there are to tell."""
    return sum(cost.seconds > 0 for _, cost in _named_leaves(report.breakdown)) if report.breakdown else 0


def _seat(report: Report) -> str:
    """Where the critical rank sits, where that is not everywhere alike."""
    seats = report.seats
    if seats is None:
        return ""
    return f" (stage {seats.pacing_stage} on {' and '.join(seats.stages[seats.pacing_stage].groups)})"


def _cost_line(name: str, value: float, total: float, notes: Iterable[str], width: int) -> str:
    """One cost; of its notes as many as there is room for, none cut."""
    share, room = format_percent(value / total), min(COST_COLUMNS, width - COST_NOTE)
    whole = name if len(name) <= room else f"{name[: room - 2].rstrip()} …"
    line, gap = f"  {whole:<{room}} {text.seconds(value):>9} {share:>7}", "   "
    for note in filter(None, notes):
        if len(line) + len(gap) + len(note) <= width:
            line, gap = f"{line}{gap}{note}", ", "
    return line[:width].rstrip()


def _named_leaves(cost: Cost, path: tuple[str, ...] = ()) -> Iterator[tuple[str, Cost]]:
    """Yield each leaf with the names above it in words, without the root's."""
    if not cost.children:
        yield words.cost(path or (cost.name,)), cost
    for child in cost.children:
        yield from _named_leaves(child, (*path, child.name))


def what_if_lines(report: Report, width: int, count: int) -> list[str]:
    """The ``count`` changes that would help most."""
    gains = [one for one in report.what_if if abs(one.time_ratio) >= SMALLEST_CHANGE]
    best = sorted(gains, key=lambda what_if: what_if.time_ratio)[:count]
    changes = [f"{one.change}: {100 * one.time_ratio:+.1f} % time" for one in best]
    return text.flowed("what if", changes, separator="   ", width=width) if changes else []
