"""The terminal answer to one scenario: at most 30 lines, of 100 columns or fewer, every number with its unit."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from rapid_llm.cli import text
from rapid_llm.cli.costs import cost_count, cost_lines, what_if_lines
from rapid_llm.cli.experts import experts_lines
from rapid_llm.cli.memory_lines import memory_lines, verdict_lines
from rapid_llm.cli.objective import objective_lines
from rapid_llm.cli.remarks import found_notes, link_lines, note_lines
from rapid_llm.cli.seats import seats_lines
from rapid_llm.dtypes import dtype
from rapid_llm.energy import missing
from rapid_llm.predict.report import Confidence, Report
from rapid_llm.predict.uses import HalvesUse
from rapid_llm.units import format_bytes, format_percent, format_power, format_rate

KWH = 3.6e6
SIXTEEN_BIT = 2.0
MOST_LINES = 30
UNCUT = 99


@dataclass(frozen=True)
class Shown:
    """How much of what may be long an answer has room for: costs, what-ifs, notes, and lines of defaults."""

    costs: int = 5
    what_ifs: int = 3
    defaults: int = 3
    notes: int = UNCUT
    note_lines: int = 3


SHORTER = (
    Shown(),
    Shown(costs=4),
    Shown(costs=3),
    Shown(costs=3, what_ifs=2),
    Shown(costs=3, what_ifs=0),
    Shown(costs=3, what_ifs=0, defaults=2, note_lines=2),
    *(Shown(costs=3, what_ifs=0, defaults=1, notes=notes, note_lines=2) for notes in (UNCUT, 3, 2, 1)),
    *(Shown(costs=costs, what_ifs=0, defaults=1, notes=1, note_lines=1) for costs in (3, 2, 1, 0)),
    Shown(costs=0, what_ifs=0, defaults=1, notes=0, note_lines=1),
)
"""What is folded first where 30 lines do not hold all: costs to the three largest, then notes, which say what a reader
may know, then costs altogether."""
WHOLE = Shown(costs=10**6, what_ifs=UNCUT, defaults=UNCUT, note_lines=UNCUT)
"""Of --full: nothing is folded and no sentence cut."""
UNFOLDED = Shown(defaults=UNCUT, note_lines=UNCUT)
"""Where the costs are told beside the answer: of a page, and of explain."""


def answer(report: Report, *, width: int = text.WIDTH, shown: Shown | None = None) -> list[str]:
    """Render a report as lines of plain text of at most ``width`` characters, the most important first: as many as are
    ``shown``, by default at most 30, the last of which says what is folded."""
    if shown is not None:
        return _rendered(report, width, shown)
    for short in SHORTER:
        lines = _rendered(report, width, short)
        if len(lines) <= MOST_LINES:
            break
    return lines


def _rendered(report: Report, width: int, shown: Shown) -> list[str]:
    notes = found_notes(report)
    above = [
        *objective_lines(report, width),
        *title(report.scenario, width),
        *link_lines(report, width),
        *note_lines(notes[: shown.notes], width, shown.note_lines),
        *verdict_lines(report, width),
        *_headline(report, width),
        *_pools(report, width),
        *seats_lines(report, width),
        *experts_lines(report, width),
        *_energy(report, width),
        *_price(report, width),
        *memory_lines(report, width),
        *cost_lines(report, width, shown.costs),
        *what_if_lines(report, width, shown.what_ifs),
        *_trust(report, width, defaults=shown.defaults),
    ]
    folded = _folded(report, shown, len(notes), cut=any(line.endswith(" …") for line in above))
    made = f"rapid-llm {report.version}, scenario {report.hash[:12]}"
    return [*above, *text.wrapped("reproduce", f"{made}; {folded}" if folded else made, lines=2, width=width)]


def _folded(report: Report, shown: Shown, notes: int, *, cut: bool) -> str:
    """What an answer of so many lines leaves out beyond what a short one always does, and how to get it."""
    usual = Shown()
    fewer = min(usual.costs, cost_count(report)) - shown.costs
    parts = [
        text.counted(notes - shown.notes, "note") if notes > shown.notes else "",
        text.counted(fewer, "cost") if fewer > 0 else "",
        "lines cut at …" if cut else "",
    ]
    left = [part for part in parts if part]
    return f"--full also prints {' and '.join([', '.join(left[:-1]), left[-1]] if left[1:] else left)}" if left else ""


def title(scenario: Mapping[str, Any], width: int) -> list[str]:
    """Say what was asked in one line."""
    degrees = scenario.get("parallelism", {})
    shown = [
        f"{axis} {degrees[axis]}" for axis in ("tp", "pp", "vpp", "cp", "ep", "etp", "dp") if _shown(degrees, axis)
    ]
    plan = " ".join([*shown, *(form for form in ("shift", "helix") if degrees.get(form))])
    count = _accelerators(scenario) or 1
    work = scenario.get("workload", {})
    adapters = f", LoRA rank {work['lora']['rank']}" if work.get("lora") else ""
    parts = [
        f"{_name(scenario.get('model'))} {work.get('kind', '')}{adapters}",
        f"{text.counted(count, 'accelerator')} of {_system(scenario)}",
        _name(scenario.get("runtime")),
        plan,
        _name(scenario.get("precision")),
        _cache(scenario),
    ]
    return text.flowed("", filter(None, parts), separator=" · ", indent=0, lines=2, width=width)


def _cache(scenario: Mapping[str, Any]) -> str:
    """The format of the KV cache where it is not of 16 bits: presets such as nvfp4 have one of their own."""
    formats, writes = scenario.get("precision"), scenario.get("workload", {}).get("output_tokens")
    kept = formats.get("kv_cache", "") if isinstance(formats, Mapping) and writes else ""
    return f"KV cache {kept}" if kept and dtype(kept).bytes != SIXTEEN_BIT else ""


def _accelerators(scenario: Mapping[str, Any]) -> int:
    """Accelerators of the job, of both its pools; 0 where nothing is said."""
    pools = scenario.get("pools")
    if pools:
        return int(sum(pools[name]["accelerators"] for name in ("prefill", "decode", "ffn") if name in pools))
    return int(scenario.get("accelerators", 0))


def _shown(degrees: Mapping[str, Any], axis: str) -> bool:
    return isinstance(degrees.get(axis), int) and (degrees[axis] > 1 or axis in {"tp", "dp"})


def _system(scenario: Mapping[str, Any]) -> str:
    """The system's name; of one without a name its accelerator."""
    system = scenario.get("system")
    name = _name(system)
    if name != "system" or not isinstance(system, Mapping):
        return name
    return _name(system.get("node", {}).get("accelerator")) or name


def _name(noun: Any) -> str:
    """Name a noun that stands in a resolved scenario as text or as a mapping."""
    return str(noun.get("name", "")) if isinstance(noun, Mapping) else str(noun or "")


def _headline(report: Report, width: int) -> list[str]:
    turns = report.compute_bound_batch
    mixed = report.scenario.get("workload", {}).get("batching") == "continuous" and "pools" not in report.scenario
    alone = "without prompts " if mixed else ""
    point = f"; {alone}its products turn compute-bound at {turns:,} requests a replica" if turns else ""
    bound = text.wrapped("bound by", report.bound_by + point, lines=3, width=width) if report.bound_by else []
    if report.step_time_s is not None:
        return [*_training(report, report.step_time_s, width), *bound]
    return [*_inference(report, width), *bound] if report.e2e_s is not None else []


def _training(report: Report, step_time_s: float, width: int) -> list[str]:
    parts = [text.seconds(step_time_s), *filter(None, [_interval(report)])]
    lines = text.flowed("step time", parts, separator="   ", width=width)
    if report.tokens_per_s is not None and report.tokens_per_s_per_accelerator is not None:
        each = format_rate(report.tokens_per_s_per_accelerator)
        throughput = f"{format_rate(report.tokens_per_s)}, {each} per accelerator"
        lines += text.wrapped("throughput", throughput, width=width)
    if report.mfu is not None:
        beside = [
            f"{name} {format_percent(value)}"
            for name, value in (("causal", report.mfu_causal), ("HFU", report.hfu))
            if value is not None
        ]
        mfu = f"{format_percent(report.mfu)} ({', '.join(beside)}): {report.flop_convention}"
        lines += text.wrapped("MFU", mfu, width=width)
    return [*lines, *_run(report, width)]


def _inference(report: Report, width: int) -> list[str]:
    if report.output_tokens_per_s is None and report.requests_per_s is not None:
        return _reading(report, width)
    job = report.waves is not None
    mean, start = ("mean from ", ", all waiting at the start") if job else ("", "")
    if report.scenario.get("workload", {}).get("closed_loop"):
        start = ", its users' first ones all at the start"
    user = report.output_tokens_per_s_per_user
    pace = f": {format_rate(user)} per user" if user else ""
    times = (
        ("TTFT", report.ttft_s, f"{mean}arrival to first token{start}"),
        ("TPOT", report.tpot_s, f"per output token after the first{pace}"),
        ("E2E", report.e2e_s, f"{mean}arrival to last token"),
    )
    lines = _in_flight(report, width)
    for name, value, meaning in times:
        if value is not None:
            interval = _interval(report) if name == "E2E" else ""
            lines += text.flowed(
                name, [f"{text.seconds(value):<10} {meaning}", *filter(None, [interval])], separator="   ", width=width
            )
    if report.output_tokens_per_s is not None and report.total_tokens_per_s is not None:
        output = format_rate(report.output_tokens_per_s, "output tokens/s")
        count = _accelerators(report.scenario)
        each = f"{format_rate(report.output_tokens_per_s / count)} per accelerator, " if count else ""
        total = format_rate(report.total_tokens_per_s)
        heard = f"; {report.sound_s_per_s:,.0f} s of sound a second" if report.sound_s_per_s else ""
        lines += text.wrapped("throughput", f"{output}, {each}{total} with the prompt{heard}", width=width)
    return [*lines, *_run(report, width)]


def _reading(report: Report, width: int) -> list[str]:
    """Requests that are done with one pass: an encoder's."""
    mean = "mean from " if report.waves is not None else ""
    parts = [f"{text.seconds(report.e2e_s or 0.0):<10} {mean}arrival to answer", *filter(None, [_interval(report)])]
    lines = [*_in_flight(report, width), *text.flowed("latency", parts, separator="   ", width=width)]
    rate, tokens = report.requests_per_s or 0.0, report.total_tokens_per_s or 0.0
    count = _accelerators(report.scenario) or 1
    shown = (
        format_rate(rate, "requests/s"),
        f"{format_rate(rate / count, 'requests/s')} per accelerator" if count > 1 else "",
        format_rate(tokens),
    )
    return [*lines, *text.wrapped("throughput", ", ".join(filter(None, shown)), width=width), *_run(report, width)]


def _in_flight(report: Report, width: int) -> list[str]:
    """How many requests run at once, of how many, and in how many waves a job of so many is done."""
    running, asked = report.running_requests, report.scenario.get("workload", {})
    if running is None:
        return []
    total, batch = asked.get("total_requests"), asked.get("batch_size")
    said = f"{text.counted(running, 'request')} at once"
    if report.waves is not None and total:
        said += f", {text.counted(total, 'request')} in {text.counted(report.waves, 'wave')}"
    elif isinstance(batch, int) and batch > running:
        said += f", {batch - running:,} more waiting"
    return text.wrapped("in flight", said, width=width)


def _run(report: Report, width: int) -> list[str]:
    """How long a whole run is, where its length was said."""
    if report.run_time_s is None or report.accelerator_hours is None:
        return []
    said = f"{text.seconds(report.run_time_s)}, {text.amount(report.accelerator_hours)} accelerator hours"
    return text.wrapped("whole run", said, width=width)


def _pools(report: Report, width: int) -> list[str]:
    """What each pool is able to run, which limits, and the cache between them."""
    pools = report.pools
    if pools is None:
        return []
    lines = []
    for name, pool in (("prefill", pools.prefill), ("decode", pools.decode)):
        able = "nothing to do"
        if pool.requests_per_s is not None:
            rate = format_rate(pool.requests_per_s, "requests/s")
            able = f"able to run {rate}, {format_percent(pool.utilisation)} used"
        replicas = f"{pool.replicas:,} replica{'s' if pool.replicas > 1 else ''}"
        said = f"{pool.accelerators:,} accelerators, {replicas}: {able}"
        lines += text.wrapped(f"{name} pool", said, width=width)
    if pools.ffn is not None:
        lines += text.wrapped("ffn pool", _halves(pools.ffn), width=width)
    hidden = pools.transfer_s - pools.transfer_exposed_s
    sent = f"{format_bytes(pools.transfer_bytes)} a request in {text.seconds(pools.transfer_s)}"
    balance = f"one prefill replica feeds {pools.decode_per_prefill:.2g} of decode; {pools.limited_by} limits"
    said = f"{sent}, {text.seconds(max(hidden, 0.0))} of it hidden; {balance}"
    return [*lines, *text.wrapped("KV transfer", said, width=width)]


def _halves(ffn: HalvesUse) -> str:
    """How decode alternates between attention and feed-forward parts, and what would balance them."""
    times = f"attention {text.seconds(ffn.attention_s)}, ffn {text.seconds(ffn.ffn_s)}"
    binds = "too few micro-batches" if ffn.binds == "latency" else ffn.binds
    balanced = f"{ffn.balanced_replicas:.3g}"
    ratio = (
        f"both equally busy with {balanced} attention replica{'' if balanced == '1' else 's'}"
        if ffn.balanced_replicas
        else "ffn the slower one even with a single attention replica"
    )
    parts = f"{ffn.micro_batches} micro-batch{'es' if ffn.micro_batches > 1 else ''}"
    way = f"{text.seconds(ffn.transfer_s)} each way"
    return f"{ffn.accelerators:,} accelerators; {parts} of {times}, {way}; bound by {binds}; {ratio}"


def _energy(report: Report, width: int) -> list[str]:
    """What the accelerators draw, or which number their files lack."""
    asked = report.origin
    if asked is None or report.breakdown is None or report.energy_of is None:
        return []
    energy = report.energy
    if energy is None:
        parts = asked.pools.all if asked.pools else (asked,)
        lacks = dict.fromkeys(missing(group.node.accelerator) for part in parts for group in part.system.groups)
        return text.wrapped("energy", f"not modelled: {'; '.join(filter(None, lacks))}; --set gives them", width=width)
    each, most = format_power(energy.mean_power_w_per_accelerator), format_power(energy.limit_w_per_accelerator)
    said = [
        f"{text.amount(energy.joules_per_output_token)} J per output token" if energy.joules_per_output_token else "",
        f"{text.amount(energy.joules_per_request)} J per request" if energy.joules_per_request else "",
        f"{text.amount(energy.joules_per_step / KWH)} kWh a step" if energy.joules_per_step else "",
        f"{text.amount(energy.run_joules / KWH)} kWh for all tokens" if energy.run_joules else "",
        format_power(energy.mean_power_w),
        f"{each} per accelerator of at most {most}",
        f"accelerators alone, ±{100 * energy.uncertainty:.0f} %",
    ]
    return text.flowed("energy", filter(None, said), separator=", ", width=width)


def _price(report: Report, width: int) -> list[str]:
    """What tokens cost, in the currency of the price."""
    price = report.price
    if price is None:
        return []
    tokens = "tokens, prompts included" if price.per_million_output_tokens else "tokens"
    said = [
        f"{text.amount(price.per_million_output_tokens)} a million output tokens"
        if price.per_million_output_tokens
        else "",
        f"{text.amount(price.per_million_tokens)} a million {tokens}" if price.per_million_tokens else "",
        f"{text.amount(price.per_step)} a step" if price.per_step else "",
        f"{text.amount(price.run)} for all tokens" if price.run else "",
        f"{price.per_hour:,.0f} an hour" if price.per_hour >= 1e3 else f"{price.per_hour:.4g} an hour",
    ]
    return text.flowed("price", filter(None, said), separator=", ", width=width)


def _interval(report: Report) -> str:
    if report.interval is None:
        return ""
    low, high = report.interval
    wider = report.confidence is not None and report.confidence.within > report.confidence.p90
    said = "wider than validated cases" if wider else "90 % of validated cases"
    return f"({said}: {text.span(low, high)})"


def _trust(report: Report, width: int, *, defaults: int) -> list[str]:
    lines: list[str] = []
    if report.assumptions:
        lines += text.wrapped(
            "assumed",
            "; ".join(report.assumptions),
            lines=defaults if defaults == UNCUT else min(2, defaults),
            width=width,
        )
    if report.defaults:
        lines += text.wrapped("defaults", _by_reason(report.defaults), lines=defaults, width=width)
    return lines + text.wrapped("trust", _confidence(report.confidence), lines=max(5, defaults), width=width)


def _by_reason(defaults: Iterable[str]) -> str:
    """Choices that the user did not make (``field: value (reason)``), those of one reason together."""
    grouped: dict[str, list[str]] = {}
    for one in defaults:
        choice, _, reason = one.removesuffix(")").partition(" (")
        grouped.setdefault(reason, []).append(choice.rpartition(".")[2].replace(": ", " "))
    return "; ".join(
        f"{', '.join(choices)} ({reason})" if reason else ", ".join(choices) for reason, choices in grouped.items()
    )


def _confidence(confidence: Confidence | None) -> str:
    if confidence is None or not confidence.rows:
        nearest = "no measurement is near this scenario: the answer rests on datasheets and architecture constants"
        return "; ".join((nearest, *(confidence.reasons if confidence else ())))
    errors = f"error median {format_percent(confidence.median)}, 90 % of rows within {format_percent(confidence.p90)}"
    rows = text.counted(confidence.rows, "row")
    nearest = f"nearest measurements: {confidence.suite}, {confidence.group} ({rows}), {errors}"
    return "; ".join((nearest, *confidence.reasons))
