"""``network placement``: the order of parallel axes that suits the messages of a scenario best."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rapid_llm.cli import text
from rapid_llm.cli.style import show
from rapid_llm.cli.text import json_text
from rapid_llm.errors import InputError
from rapid_llm.units import format_seconds

if TYPE_CHECKING:
    from rapid_llm.cli.flags import Common
    from rapid_llm.network.placement import BestOrder

_SHOWN = 12
"""Orders that the terminal lists."""


def placement(file: str, common: Common) -> int:
    """The best order of the axes of a training scenario by the messages of its step, and what the step gains."""
    from rapid_llm.execution.traffic import step_traffic
    from rapid_llm.network.placement import best_order
    from rapid_llm.predict.engine import evaluate
    from rapid_llm.predict.training import TrainingTable
    from rapid_llm.scenario import load, require

    scenario = load(file, overrides=list(common.sets))
    require(scenario)
    table = evaluate(scenario)
    if not isinstance(table, TrainingTable):
        raise InputError("network placement reads training scenarios: an inference step repeats one kind of message.")
    if table.step.seats is not None:
        raise InputError(
            "network placement orders axes on equal nodes, and here the order also moves stages from group to group. "
            "Try placement.order in rapid-llm run."
        )
    priced, used = table.step.priced, scenario.runtime.communication
    traffic, fabric = step_traffic(priced.lowered), priced.machine.fabric
    found = best_order(traffic, table.plans, fabric=fabric, library=used.library, small=used.small_all_reduce)
    again = load(file, overrides=[*common.sets, f"placement.order=[{', '.join(found.best.order)}]"])
    before, after = float(table.step_time_s[0]), float(evaluate(again).step_time_s[0])  # type: ignore[union-attr]
    if common.json:
        print(json_text(_orders(found, before, after)))
    else:
        show(_order_lines(found, before, after))
    return 0


def _orders(found: BestOrder, before: float, after: float) -> dict[str, Any]:
    tried = [{"order": p.order, "seconds": p.seconds, "by_axis": dict(p.by_axis)} for p in found.tried]
    return {
        "asked": list(found.asked.order),
        "best": list(found.best.order),
        "gain": found.gain,
        "step_time_s": before,
        "best_step_time_s": after,
        "tried": tried,
    }


def _order_lines(found: BestOrder, before: float, after: float) -> list[str]:
    rows = [
        [", ".join(p.order), format_seconds(p.seconds), *(format_seconds(s) for _, s in p.by_axis)]
        for p in found.tried[:_SHOWN]
    ]
    header = ("order, innermost first", "messages", *(axis for axis, _ in found.asked.by_axis))
    return [
        *text.wrapped("placement", found.sentence()),
        f"{'step time':<13}{format_seconds(before)} as asked, {format_seconds(after)} with the best order",
        "",
        *text.columns(rows, header, right=range(1, len(header))),
    ]
