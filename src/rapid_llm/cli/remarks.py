"""Lines of an answer about what to know before its numbers: how messages were priced, faults, and notes."""

from __future__ import annotations

from collections.abc import Sequence

from rapid_llm.cli import text
from rapid_llm.predict.engine import drawn_links
from rapid_llm.predict.report import FaultsUse, Report
from rapid_llm.scenario import check


def link_lines(report: Report, width: int) -> list[str]:
    """Say what is at fault, and that messages were priced link by link."""
    asked = report.origin
    if asked is None or (asked.network == "closed-form" and not asked.faults):
        return []
    priced = "link by link" if asked.network == "flow" else "closed form"
    faults = f"; at fault: {', '.join(map(str, asked.faults))}" if asked.faults else ""
    lines = text.wrapped("network", f"{priced}{faults}", lines=3, width=width)
    lines += text.drawn_links(drawn_links(asked), width=width)
    return lines + (_recovered(report.faults, report.step_time_s or report.e2e_s, width) if report.faults else [])


def _recovered(faults: FaultsUse, seconds: float | None, width: int) -> list[str]:
    """What faults cost beside a healthy cluster, and which policy each axis that they slow down goes by."""
    if seconds is None:
        return []
    by_way: dict[str, list[str]] = {}
    for one in faults.messages:
        way = f"re-plan ({one.plan})" if one.policy == "replan" else "detour"
        instead = f" (x{one.detour_slowdown:.2f} by detour)" if one.policy == "replan" else ""
        by_way.setdefault(way, []).append(f"{one.axis} {one.op} x{one.slowdown:.2f}{instead}")
    ways = [f"{way}: {', '.join(names)}" for way, names in by_way.items()]
    cost = f"{text.seconds(faults.healthy_s)} without them, x{seconds / faults.healthy_s:.3f} with them"
    return text.wrapped("faults", "; ".join([cost, *ways]), lines=4, width=width)


def found_notes(report: Report) -> list[str]:
    """Warnings of the named checks, and of messages that closed forms do not follow."""
    found = [one.message for one in check(report.origin) if one.message] if report.origin else []
    if report.shares_links_by_turns:
        names = ", ".join(report.shares_links_by_turns)
        said = "sends share links by turns, which a closed form does not follow; nearer: --set network=flow"
        found.append(f"{names}: {said}")
    return found


def note_lines(notes: Sequence[str], width: int, lines: int) -> list[str]:
    """Each note in so many lines at most."""
    return [line for one in notes for line in text.wrapped("note", one, lines=lines, width=width)]
