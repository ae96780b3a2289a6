"""What sentences quote of a scenario in words: names, formats, and the first thing of a kind that is wrong."""

from collections.abc import Sequence

from rapid_llm.dtypes import Precision, dtype
from rapid_llm.errors import InputError
from rapid_llm.hardware import Accelerator, NodeGroup, node_starts
from rapid_llm.lowering.modules import present
from rapid_llm.runtime import EXCHANGES, runs_on, usual
from rapid_llm.scenario.expert_columns import experts_of
from rapid_llm.scenario.scenario import Scenario
from rapid_llm.scenario.seating import apart, unseated, used_groups
from rapid_llm.workload import Training, misplaced


def names_of(scenario: Scenario) -> dict[str, str]:
    """All that a sentence may quote, by name."""
    groups = used_groups(scenario)
    lacking, chip = without_rate(groups, scenario.precision)
    strange = (g.node.accelerator for g in groups if not _runs_on(scenario, g.node.accelerator))
    chip, multiplied = next(strange, chip), lacking or "compute"
    facts = scenario.runtime.training
    return {
        "model": scenario.model.name,
        "why_misplaced_experts": misplaced(scenario.workload.routing, experts_of(scenario.model)),
        "draft": scenario.draft.model.name if scenario.draft else "",
        "why_misplaced": why_misplaced(scenario),
        "broken": next((str(fault) for fault in scenario.faults if fault.of_links), ""),
        "system": scenario.system.name,
        "accelerator": chip.name,
        "runtime": scenario.runtime.name,
        "platforms": scenario.runtime.runs_on,
        "vendor": chip.vendor,
        "model_kind": scenario.model.kind,
        "beyond_field": beyond_modelled(scenario),
        "vendor_names": list(dict.fromkeys(g.node.accelerator.vendor for g in groups)),
        "group_names": [g.name for g in groups],
        "last_group": groups[-1].name,
        "held": " + ".join(f"{g.count} x {g.node.accelerators}" for g in scenario.system.groups),
        "why_unseated": unseated(scenario),
        "why_apart": apart(scenario),
        "usual_runtime": usual(scenario.workload.kind, chip.vendor, chip.architecture, scenario.model.kind),
        "lacked": _lacked(scenario),
        "lacked_module": lacked_module(scenario),
        "modules": ", ".join(present(scenario.model)),
        "schedule": scenario.parallelism.schedule or "1f1b",
        "way": scenario.parallelism.exchange or "ring",
        "ways": facts.exchange if facts else EXCHANGES,
        "window_ways": facts.window_exchange if facts else EXCHANGES,
        "latent_ways": facts.latent_exchange if facts else EXCHANGES,
        "schedules": facts.schedules if facts else (),
        "stages": facts.zero_stages if facts else (),
        "multiplied": multiplied,
        "format": getattr(scenario.precision, multiplied),
        "weights": next(
            (kept for kept in kept_formats(scenario.precision) if dtype(kept).weight_only), scenario.precision.weights
        ),
        "rate": dtype(getattr(scenario.precision, multiplied)).rate,
        "rates": ", ".join(sorted(chip.peak)),
        "sixteen_bit": next((name for name in ("bf16", "fp16", "fp32") if chip.rate(name)), "fp32"),
    }


def _lacked(scenario: Scenario) -> str:
    """The first axis of the plan that its framework does not have."""
    axes = scenario.runtime.training.without if scenario.runtime.training else ()
    return next((axis for axis in axes if getattr(scenario.parallelism, axis) > 1), "")


def lacked_module(scenario: Scenario) -> str:
    """The first part of a layer that is to be computed again and that no layer of the model has."""
    work = scenario.workload
    named = work.recompute.modules if isinstance(work, Training) and work.recompute else ()
    return next((name for name in named if name not in present(scenario.model)), "")


def why_misplaced(scenario: Scenario) -> str:
    """Why a fault is at no place of the job; empty where all are at one."""
    if not scenario.faults:
        return ""
    from rapid_llm.execution import Machine
    from rapid_llm.network.faults import speeds
    from rapid_llm.network.flow_prices import Links

    try:
        speeds(scenario.faults, scenario.accelerators, node_starts(scenario.system))
        if scenario.network == "flow":
            Machine.of(scenario.system, scenario.runtime, Links(scenario.accelerators, scenario.faults))
    except InputError as error:
        return error.message if error.field == "faults" else ""
    return ""


def _runs_on(scenario: Scenario, chip: Accelerator) -> bool:
    return runs_on(scenario.runtime, chip.vendor, chip.architecture)


def without_rate(groups: Sequence[NodeGroup], formats: Precision) -> tuple[str, Accelerator]:
    """The field of ``formats`` in whose format an accelerator has no matrix rate, and which; empty where all do."""
    chips = [group.node.accelerator for group in groups]
    for chip in chips:
        for name in ("compute", "activations"):
            if chip.rate(dtype(getattr(formats, name)).rate) is None:
                return name, chip
    return "", chips[0]


def kept_formats(precision: Precision) -> tuple[str, str]:
    """Formats of the weights, and of those of the experts."""
    return precision.weights, precision.of_experts.weights


def beyond_modelled(scenario: Scenario) -> str:
    """The field that asks for what is not modelled where tokens see each other both ways, or not of two sequences;
    empty where none does."""
    work, plan = scenario.workload, scenario.parallelism
    asked: dict[str, bool] = {"parallelism.cp": plan.cp > 1, "pools": scenario.pools is not None}
    if scenario.model.encoder is not None:
        asked["parallelism.pp"] = plan.pp > 1
    elif scenario.model.crosses:
        asked["workload.prefix_tokens"] = not isinstance(work, Training) and work.prefix_tokens > 0
        return next((name for name, given in asked.items() if given), "") if shows_images(scenario) else ""
    if isinstance(work, Training):
        asked |= {"workload.documents": bool(work.documents), "workload.mtp_layers": work.mtp_layers > 0}
    else:
        asked |= {
            "workload.prefix_tokens": work.prefix_tokens > 0,
            "workload.speculation": work.speculation is not None,
            "workload.beams": work.beams > 1 and not scenario.model.writes,
        }
    return next((name for name, given in asked.items() if given), "")


def shows_images(scenario: Scenario) -> bool:
    """Whether a prompt comes with images."""
    return not isinstance(scenario.workload, Training) and scenario.workload.images is not None
