"""What would make a scenario fit: changes, verified by accounting for them and ranked by what they cost."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product

from rapid_llm import runtime
from rapid_llm.dtypes import dtype, precision
from rapid_llm.errors import InputError
from rapid_llm.hardware import system, system_with
from rapid_llm.model import MoE
from rapid_llm.nouns import replaced
from rapid_llm.parallelism import RECOMPUTE_MODES
from rapid_llm.predict.fitting import largest, memory_of, with_work
from rapid_llm.predict.report import Fix
from rapid_llm.predict.uses import MemoryUse
from rapid_llm.scenario import Scenario, replanned, require
from rapid_llm.workload import HostShare, Inference, Offload, Recompute, Training

MAX_FIXES = 4
FACTORS = (2, 4, 8)
"""By how much a degree grows at a time."""
MORE = (1, 2, 4, 8, 16, 32, 64)
"""By how much the accelerators grow at a time, where no single change fits."""
TIMED = 3
"""Plans of one size of which the fastest is offered."""
OTHER_ANSWER = ("precision", "kv_cache", "batch_size", "experts in another precision")
"""Kinds of changes after which the job computes something else."""
FORMATS = ("fp8", "int8-wo", "int4-wo")
"""Smaller weights for inference, those that are closest to 16 bits first."""
BLOCKS = ("q8-0", "q6-k", "q5-k", "q4-k", "q3-k")
"""The same where weights are GGUF blocks."""
LAYERS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
"""Shares of the layers that a host may run."""

Change = tuple[str, str, Scenario]
"""Kind of a change, the change as the user writes it, and the changed scenario."""
Fitting = tuple[str, Scenario, MemoryUse]
"""A change that fits, the changed scenario, and its memory."""
Price = Callable[[Scenario], float]


def fixes(scenario: Scenario, use: MemoryUse, price: Price) -> tuple[Fix, ...]:
    """Changes that fit, one of each kind: those that keep the answer first, then the cheapest in accelerator-seconds.

    Memory is accounted for each, time predicted (``price``, seconds) for those that fit. Of a kind, the mildest that
    fits with room to spare is offered. Where no single change keeps the answer, several degrees grow together.
    """
    fitting: dict[str, Fitting] = {}
    for kind, text, changed in _changes(scenario):
        found = _memory(changed)
        if found and (kind not in fitting or (_sure(found) and not _sure(fitting[kind][2]))):
            fitting[kind] = (text, changed, found)
    if fitting.keys() <= set(OTHER_ANSWER) and (plan := _together(scenario, price) or _elsewhere(scenario)):
        fitting["plan"] = plan
    base = _seconds(price, scenario)
    offered = [_fix(kind, fit, scenario, use, (base, price)) for kind, fit in fitting.items()]
    return tuple(fix for _, fix in sorted(offered, key=lambda pair: pair[0])[:MAX_FIXES])


def _memory(scenario: Scenario) -> MemoryUse | None:
    """The memory of a scenario, where it is valid and fits."""
    try:
        found = memory_of(require(scenario))
    except InputError:
        return None
    return found if found.fits else None


def _sure(use: MemoryUse) -> bool:
    """Whether it fits with room to spare."""
    return use.verdict == "fits"


def _seconds(price: Price, scenario: Scenario) -> float | None:
    try:
        return price(scenario)
    except InputError:
        return None


def _fix(
    kind: str, fit: Fitting, scenario: Scenario, use: MemoryUse, clock: tuple[float | None, Price]
) -> tuple[tuple[bool, bool, float], Fix]:
    """A fix and what fixes are sorted by."""
    text, changed, found = fit
    base, price = clock
    seconds = _seconds(price, changed)
    ratio = seconds / base if base and seconds else None
    cost = (ratio or 1.0) * changed.accelerators / scenario.accelerators
    rank = (kind in OTHER_ANSWER, not _sure(found), cost)
    return rank, Fix(text, use.peak_bytes - found.peak_bytes, ratio)


def _changes(scenario: Scenario) -> Iterator[Change]:
    """Single changes worth trying, of each kind the mildest first."""
    work = scenario.workload
    yield from _training(scenario, work) if isinstance(work, Training) else _inference(scenario, work)
    plan = scenario.parallelism
    for axis in ("tp", "pp", "ep", "cp"):
        for factor in FACTORS:
            degree, spare = getattr(plan, axis) * factor, (plan.dp or 1) % factor == 0
            if axis in ("tp", "pp"):
                yield axis, *_planned(scenario, scenario.accelerators * (1 if spare else factor), {axis: degree})
            elif spare and (axis == "ep" or isinstance(work, Training)):
                yield axis, *_planned(scenario, scenario.accelerators, {axis: degree})
    if isinstance(work, Training) and (plan.zero_stage or 0) > 0:
        for factor in FACTORS:
            yield "dp", *_planned(scenario, scenario.accelerators * factor, {})


def _training(scenario: Scenario, work: Training) -> Iterator[Change]:
    for mode in RECOMPUTE_MODES[RECOMPUTE_MODES.index(_recomputes(work)) + 1 :]:
        yield "recompute", f"recompute {mode}", with_work(scenario, recompute=Recompute(mode=mode))  # type: ignore[arg-type]
    plan = scenario.parallelism
    if (plan.dp or 1) > 1:
        for stage in range((plan.zero_stage or 0) + 1, 4):
            yield "zero_stage", *_planned(scenario, scenario.accelerators, {"zero_stage": stage})
    size = work.micro_batch_size
    while size > 1:
        size = size // 2 if size % 2 == 0 else 1
        yield "micro_batch_size", f"micro_batch_size {size}", with_work(scenario, micro_batch_size=size)
    if len(scenario.system.groups) > 1:
        from rapid_llm.predict.seating import dealt_by_memory  # few jobs need it

        if changed := dealt_by_memory(scenario):
            said = ", ".join(map(str, changed.parallelism.layers_per_stage))
            yield "layers_per_stage", f"layers_per_stage [{said}]", changed
    if not work.offload.any:
        yield "offload", "workload.offload.optimizer 1", with_work(scenario, offload=Offload(optimizer=1.0))


def _inference(scenario: Scenario, work: Inference) -> Iterator[Change]:
    now = scenario.precision
    for name in BLOCKS if now.name in BLOCKS or scenario.runtime.defaults.precision in BLOCKS else FORMATS:
        if dtype(precision(name).weights).bytes < dtype(now.of_experts.weights).bytes:
            yield "precision", f"precision {name}", replaced(scenario, precision=precision(name))
    if dtype(now.kv_cache).bytes > 1.0:
        yield "kv_cache", "precision.kv_cache fp8", replaced(scenario, precision=replaced(now, kv_cache="fp8"))
    yield from _host_experts(scenario, work)
    if scenario.runtime.runs_layers_on_host and not work.offload.any:
        for share in LAYERS:
            yield "layers", f"workload.offload.weights {share}", with_work(scenario, offload=HostShare(weights=share))
    if work.batch_size != "auto" and (most := largest(scenario, "requests")):
        yield "batch_size", f"batch_size {most}", with_work(scenario, batch_size=most)


def _host_experts(scenario: Scenario, work: Inference) -> Iterator[Change]:
    """Routed experts left to the CPUs of the host, by a runtime that can: the job's own, or another that is named."""
    node, moved = scenario.system.groups[0].node, work.offload
    routed = any(isinstance(block.ffn, MoE) for block in scenario.model.blocks)
    if not routed or node.host_matrix is None or moved.weights or moved.experts or moved.to == "nvme":
        return
    said, alone = "workload.offload.experts true", with_work(scenario, offload=replaced(moved, experts=1.0))
    if scenario.runtime.host_experts is not None:
        yield "experts", said, alone
        return
    own = scenario.precision
    left_open = any(one.startswith("precision:") for one in scenario.defaults)
    latest = (name for name in runtime.names() if "@" not in name)
    for engine in (runtime.load(name, node.accelerator.architecture) for name in latest):
        if engine.host_experts is None:
            continue
        changed = replanned(replaced(alone, runtime=engine), scenario.accelerators)
        yield "experts", f"runtime {engine.name}{f' precision {own.name}' if left_open else ''} {said}", changed
        usual = engine.defaults.precision
        words = f"runtime {engine.name} precision {usual} {said}"
        yield "experts in another precision", words, replaced(changed, precision=precision(usual))


def _recomputes(work: Training) -> str:
    return work.recompute.mode if work.recompute else "none"


def _together(scenario: Scenario, price: Price) -> Fitting | None:
    """The fastest of the plans on the fewest accelerators on which degrees, and full recomputation, make it fit."""
    for factor in MORE:
        found = []
        for text, changed in _plans(scenario, scenario.accelerators * factor):
            if (use := _memory(changed)) and _sure(use):
                found.append((text, changed, use))
        timed = [(seconds, one) for one in found[:TIMED] if (seconds := _seconds(price, one[1]))]
        if timed:
            return min(timed, key=lambda pair: pair[0])[1]
    return None


def _elsewhere(scenario: Scenario) -> Fitting | None:
    """The same on a larger system of the catalogue, where the scenario's own has no more accelerators."""
    chip = scenario.system.groups[0].node.accelerator.name
    for factor in FACTORS:
        count = scenario.accelerators * factor
        name = system_with(chip, count) if count > scenario.system.accelerators else None
        if name is None:
            continue
        larger = replaced(scenario, system=system(name))
        text, changed = _planned(larger, count, {"tp": scenario.parallelism.tp * factor})
        if (use := _memory(changed)) and _sure(use):
            return f"system {name} with {text}", changed, use
    return None


def _plans(scenario: Scenario, accelerators: int) -> Iterator[tuple[str, Scenario]]:
    """Plans on a number of accelerators, the mildest first: tensor-parallel in a node, experts as far as they go."""
    plan, work = scenario.parallelism, scenario.workload
    node = max(min(group.node.accelerators for group in scenario.system.groups), plan.tp)
    wide = next((tp for tp in (8 * plan.tp, 4 * plan.tp, 2 * plan.tp) if tp <= max(node, 8)), plan.tp)
    modes = [None, "full"] if isinstance(work, Training) and _recomputes(work) != "full" else [None]
    for mode, pp, tp in product(modes, (plan.pp * k for k in (1, 2, 4, 8, 16)), dict.fromkeys((plan.tp, wide))):
        if accelerators % (tp * pp * plan.cp):
            continue
        start = with_work(scenario, recompute=Recompute(mode="full")) if mode else scenario
        experts = max((b.ffn.num_experts for b in scenario.model.blocks if isinstance(b.ffn, MoE)), default=1)
        ep = max((n for n in (1, 2, 4, 8, 16, 32, 64) if experts % n == 0 and accelerators // pp % n == 0), default=1)
        changes = {"tp": tp, "pp": pp, **({"ep": max(ep, plan.ep)} if experts > 1 else {})}
        text, changed = _planned(start, accelerators, {k: v for k, v in changes.items() if v != getattr(plan, k)})
        yield text + (" with recompute full" if mode else ""), changed


def _planned(scenario: Scenario, accelerators: int, degrees: dict[str, int]) -> tuple[str, Scenario]:
    """A plan with other degrees, and how to write it."""
    changed = replanned(scenario, accelerators, **degrees)
    said = dict(degrees)
    if scenario.written and scenario.written.dp not in (None, changed.parallelism.dp):
        said["dp"] = changed.parallelism.dp or 1
    words = " ".join(f"{axis} {degree}" for axis, degree in said.items()) or f"dp {changed.parallelism.dp}"
    more = "" if accelerators == scenario.accelerators else f" on {accelerators} accelerators"
    return words + more, changed
