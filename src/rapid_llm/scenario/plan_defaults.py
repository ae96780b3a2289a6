"""Degrees and schedules that a plan leaves open, filled in by the framework, the model and what is left over."""

from typing import Any

from rapid_llm.documents import plain
from rapid_llm.model import Model, MoE
from rapid_llm.nouns import replaced
from rapid_llm.parallelism import Parallelism
from rapid_llm.runtime import EXCHANGES, Runtime
from rapid_llm.scenario.scenario import Scenario
from rapid_llm.workload import Inference, Training


def filled_plan(
    given: Parallelism,
    accelerators: int,
    *,
    engine: Runtime,
    workload: Training | Inference,
    model: Model,
    defaults: list[str],
) -> Parallelism:
    """The plan with no field left open. ``dp`` is what is left over; where that does not divide, a check says so."""
    dp = given.dp or max(1, accelerators // (given.tp * given.pp * given.cp))
    usual = engine.defaults
    interleaved = given.vpp > 1
    schedule = "interleaved" if interleaved else "1f1b" if usual.schedule == "interleaved" else usual.schedule
    chosen: dict[str, tuple[Any, str]] = {"dp": (dp, "what is left over")}
    if any(isinstance(block.ffn, MoE) for block in model.blocks):
        chosen["etp"] = (_expert_tp(given), "tp / ep, at least 1")
    if given.tp * given.kvp > 1:
        chosen["sp"] = (usual.sp, f"default of {engine.name}")
    if workload.kind == "training":
        chosen["zero_stage"] = (usual.zero_stage, f"default of {engine.name}")
    if given.pp > 1 and workload.kind == "training":
        chosen["schedule"] = (schedule, "vpp is above 1" if interleaved else f"default of {engine.name}")
    way, why = _exchange(given, engine, model)
    if given.cp > 1:
        chosen["exchange"] = way, why
        if (given.exchange or way) == "ulysses" and given.ulysses == 1:
            given = replaced(given, ulysses=given.cp)
    rest = {"exchange": way, "etp": 1, "sp": False, "zero_stage": 0, "dp_shard": dp}
    if workload.kind == "training":
        rest["schedule"] = schedule
    values = {name: value for name, value in plain(given).items() if value is not None}
    for name, (value, why) in chosen.items():
        if name not in values:
            defaults.append(f"parallelism.{name}: {str(value).lower()} ({why})")
    return Parallelism(**{**rest, **{name: value for name, (value, _) in chosen.items()}, **values})


def replanned(scenario: Scenario, accelerators: int, **degrees: int) -> Scenario:
    """The scenario as if its plan had been written with these degrees: fields that the user left open are filled in
    again, and its defaults are those of the new plan.
    """
    given = replaced(scenario.written or scenario.parallelism, **{"dp": None, **degrees})
    defaults: list[str] = []
    own: dict[str, Any] = {"engine": scenario.runtime, "workload": scenario.workload, "model": scenario.model}
    filled = filled_plan(given, accelerators, defaults=defaults, **own)
    kept = (one for one in scenario.defaults if not one.startswith(("parallelism.", "accelerators: ")))
    return replaced(scenario, accelerators=accelerators, parallelism=filled, written=given, defaults=(*kept, *defaults))


def _exchange(plan: Parallelism, engine: Runtime, model: Model) -> tuple[str, str]:
    """How cp ranks exchange a sequence by default, and why: as ``ulysses`` implies, else the first way of the framework
    that works with the model's attention.
    """
    if plan.ulysses > 1:
        return ("ulysses" if plan.ulysses == plan.cp else "hybrid"), f"ulysses {plan.ulysses} of cp {plan.cp}"
    facts = engine.training
    ways = facts.exchange if facts else EXCHANGES
    mixers = [block.mixer for block in model.blocks if block.mixer]
    if facts and any(getattr(mixer, "sliding_window", None) for mixer in mixers):
        ways = tuple(way for way in ways if way in facts.window_exchange) or ways
    if facts and any(mixer.kind == "mla" for mixer in mixers):
        ways = tuple(way for way in ways if way in facts.latent_exchange) or ways
    return ways[0], f"default of {engine.name}"


def _expert_tp(plan: Parallelism) -> int:
    """The tensor degree of experts: the tensor ranks that expert parallelism does not use."""
    ranks = plan.tp * plan.kvp
    return ranks // plan.ep if ranks % plan.ep == 0 else 1
