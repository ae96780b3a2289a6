"""Lines of an answer about room: whether it fits, what would help, and what fills the fullest rank."""

from __future__ import annotations

from rapid_llm import charts
from rapid_llm.cli import text
from rapid_llm.memory import spread
from rapid_llm.predict.report import Report, Violation
from rapid_llm.predict.uses import MemoryUse
from rapid_llm.units import format_bytes, format_percent

_GIB = 2**30
_SMALLEST = 0.05 * _GIB
_BAR, _SHOWN_FIXES = 60, 3
_MEASURED = {"training": "training runs", "inference": "engines"}


def verdict_lines(report: Report, width: int) -> list[str]:
    """Whether it fits on the fullest rank; where it does not, why, and what would help."""
    if not report.feasible:
        return [line for violation in report.violations for line in _violation(violation, report, width)]
    memory = report.memory
    said = "narrowly" if memory.verdict == "fits narrowly" else "yes"
    lines = text.wrapped(
        "fits", f"{said}: {_space(memory, memory.peak_bytes, _limit(memory), several=_several(report))}", width=width
    )
    if memory.probability is not None and said == "narrowly":
        strays, measured = format_percent(spread(report.kind)), _MEASURED[report.kind]
        chance = f"{format_percent(memory.probability)} likely: memory of measured {measured} strays by {strays}"
        lines += text.wrapped("", chance, width=width)
    if memory.displaced_bytes:
        more = format_bytes(memory.displaced_bytes)
        full = f"so full that the allocator empties its cache in every pass: tensors of messages want {more} more"
        helps = "a smaller micro-batch helps, or TORCH_NCCL_AVOID_RECORD_STREAMS=1"
        lines += text.wrapped("", f"{full} ({helps})", width=width)
    return lines


def _several(report: Report) -> bool:
    """Whether there is more than one rank to be the fullest."""
    scenario = report.scenario
    return "pools" in scenario or int(scenario.get("accelerators", 0)) != 1


def _limit(memory: MemoryUse) -> int:
    """What a process may use: the capacity, or the share of it that the runtime takes."""
    return memory.limit_bytes or memory.capacity_bytes


def _space(memory: MemoryUse, need: float, have: float, *, several: bool) -> str:
    """Need, limit and what is left; where there are ``several`` ranks, of which."""
    free = f"{format_bytes(have - need)} free" if have >= need else f"{format_bytes(need - have)} missing"
    place = f" on the fullest rank (rank {memory.rank}, stage {memory.stage})" if several else ""
    share = (
        f" (the runtime's share of {format_bytes(memory.capacity_bytes)})"
        if _limit(memory) < memory.capacity_bytes
        else ""
    )
    host = f", {format_bytes(memory.host_bytes)} on its host" if memory.host_bytes else ""
    return f"{format_bytes(need)} of {format_bytes(have)}{share}{place}, {free}{host}"


def _violation(violation: Violation, report: Report, width: int) -> list[str]:
    """Say why not, and what would help. The whole sentence stands on standard error."""
    is_memory = violation.kind == "memory"
    priced = "step time" if report.kind == "training" else "end-to-end time"
    space = _space(report.memory, violation.need, violation.have, several=_several(report))
    why = space if is_memory else violation.message
    lines = text.wrapped("fits", f"NO: {why}", lines=4, width=width)
    for fix in violation.fixes[:_SHOWN_FIXES]:
        cost = f", {priced} x{fix.step_time_ratio:.2f}" if fix.step_time_ratio else ""
        lines += text.wrapped("  try", f"{fix.change}: saves {format_bytes(fix.saves_bytes)}{cost}", width=width)
    return lines


def memory_lines(report: Report, width: int) -> list[str]:
    """Draw the fullest rank's memory as one bar with a legend; the brackets end where its memory ends."""
    memory = report.memory
    shown = [
        charts.Part(name.replace("_", " "), size) for name, size in memory.by_category.items() if size >= _SMALLEST
    ]
    limit = f"  [ ] = {format_bytes(_limit(memory))}"
    room = width - text.INDENT - len("[]") - len(limit)
    bar, legend = charts.text_stack(shown, limit=_limit(memory), form=_gib, width=min(room, _BAR))
    free = _limit(memory) - memory.peak_bytes
    rest = f"{'free' if free >= 0 else 'MISSING'} {_gib(abs(free))}"
    parts = [*(part for part in legend.split("  ") if part), rest]
    drawn = [f"{'memory':<{text.INDENT}}{bar}{limit}", *text.flowed("", parts, separator="  ", width=width)]
    return [*drawn, *_cache(report, width)]


def _cache(report: Report, width: int) -> list[str]:
    """The room of an engine's cache, term by term, and what it holds; beside a verdict that gives no times."""
    cache = report.memory.cache
    if cache is None or report.breakdown is not None:
        return []
    (first, size), *rest = cache.terms.items()
    parts = [
        f"{first} {_gib(size)}",
        *(f"{'-' if one < 0 else '+'} {name} {_gib(abs(one))}" for name, one in rest if one),
    ]
    room = [*parts, f"= {_gib(cache.room_bytes)}"]
    if cache.room_bytes <= 0:
        holds = "no room for a cache"
    else:
        pieces = f"{text.counted(cache.blocks, 'block')} of {text.counted(cache.block_tokens, 'token')}: "
        asked = f"{text.counted(cache.sequences, 'request')} of {text.counted(cache.length, 'token')}"
        holds = f"{pieces if cache.blocks else ''}{asked} at once, per replica"
    return [*text.flowed("cache", room, separator=" ", width=width), *text.wrapped("", holds, width=width)]


def _gib(size: float) -> str:
    return f"{size / _GIB:.1f} GiB"
