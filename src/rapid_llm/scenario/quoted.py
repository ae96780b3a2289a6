"""What sentences quote of a scenario in words: names, formats, and the first thing of a kind that is wrong."""

from collections.abc import Sequence
from typing import Any

from rapid_llm.dtypes import Precision, dtype
from rapid_llm.errors import InputError
from rapid_llm.hardware import Accelerator, NodeGroup, node_starts
from rapid_llm.lowering.modules import present
from rapid_llm.runtime import EXCHANGES, runs_on, usual
from rapid_llm.scenario.expert_columns import experts_of
from rapid_llm.scenario.scenario import Scenario
from rapid_llm.scenario.seating import apart, unseated, used_groups
from rapid_llm.workload import Training, misplaced


def names_of(scenario: Scenario) -> dict[str, Any]:
    """All that a sentence may quote, by name."""
    return {**_job_names(scenario), **_system_names(scenario), **_framework_names(scenario)}


def _job_names(scenario: Scenario) -> dict[str, Any]:
    """The model and the work, and the first thing that is wrong with either."""
    return {
        "model": scenario.model.name,
        "model_kind": scenario.model.kind,
        "modules": ", ".join(present(scenario.model)),
        "draft": scenario.draft.model.name if scenario.draft else "",
        "beyond_field": beyond_modelled(scenario),
        "lacked_module": lacked_module(scenario),
        "why_misplaced_experts": misplaced(scenario.workload.routing, experts_of(scenario.model)),
        "broken": next((str(fault) for fault in scenario.faults if fault.of_links), ""),
        "why_misplaced": why_misplaced(scenario),
        "why_unseated": unseated(scenario),
        "why_apart": apart(scenario),
    }


def _system_names(scenario: Scenario) -> dict[str, Any]:
    """Groups of nodes, and the accelerator that the runtime does not run on or that lacks a rate for a format; the
    first accelerator where there is none such.
    """
    groups, formats = used_groups(scenario), scenario.precision
    lacking, chip = without_rate(groups, formats)
    strange = (g.node.accelerator for g in groups if not _runs_on(scenario, g.node.accelerator))
    chip, multiplied = next(strange, chip), lacking or "compute"
    return {
        "system": scenario.system.name,
        "group_names": [g.name for g in groups],
        "last_group": groups[-1].name,
        "held": " + ".join(f"{g.count} x {g.node.accelerators}" for g in scenario.system.groups),
        "vendor_names": list(dict.fromkeys(g.node.accelerator.vendor for g in groups)),
        "accelerator": chip.name,
        "vendor": chip.vendor,
        "usual_runtime": usual(scenario.workload.kind, chip.vendor, chip.architecture, scenario.model.kind),
        "multiplied": multiplied,
        "format": getattr(formats, multiplied),
        "weights": next((kept for kept in kept_formats(formats) if dtype(kept).weight_only), formats.weights),
        "rate": dtype(getattr(formats, multiplied)).rate,
        "rates": ", ".join(sorted(chip.peak)),
        "sixteen_bit": next((name for name in ("bf16", "fp16", "fp32") if chip.rate(name)), "fp32"),
    }


def _framework_names(scenario: Scenario) -> dict[str, Any]:
    """What the runtime can run; serving engines have no limits on exchanges."""
    facts = scenario.runtime.training
    return {
        "runtime": scenario.runtime.name,
        "platforms": scenario.runtime.runs_on,
        "lacked": _lacked(scenario),
        "schedule": scenario.parallelism.schedule or "1f1b",
        "schedules": facts.schedules if facts else (),
        "stages": facts.zero_stages if facts else (),
        "way": scenario.parallelism.exchange or "ring",
        "ways": facts.exchange if facts else EXCHANGES,
        "window_ways": facts.window_exchange if facts else EXCHANGES,
        "latent_ways": facts.latent_exchange if facts else EXCHANGES,
    }


def _lacked(scenario: Scenario) -> str:
    """The first axis of the plan that its framework does not have."""
    axes = scenario.runtime.training.without if scenario.runtime.training else ()
    return next((axis for axis in axes if getattr(scenario.parallelism, axis) > 1), "")


def lacked_module(scenario: Scenario) -> str:
    """The first module to recompute that no layer of the model has; empty where all exist."""
    work = scenario.workload
    named = work.recompute.modules if isinstance(work, Training) and work.recompute else ()
    return next((name for name in named if name not in present(scenario.model)), "")


def why_misplaced(scenario: Scenario) -> str:
    """Why a fault names a place that the job does not have; empty where all places exist."""
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
    """The first field of ``formats`` for which an accelerator has no matrix rate, and that accelerator; an empty name
    where all have rates.
    """
    chips = [group.node.accelerator for group in groups]
    for chip in chips:
        for name in ("compute", "activations"):
            if chip.rate(dtype(getattr(formats, name)).rate) is None:
                return name, chip
    return "", chips[0]


def kept_formats(precision: Precision) -> tuple[str, str]:
    """Formats of the weights and of the weights of experts."""
    return precision.weights, precision.of_experts.weights


def beyond_modelled(scenario: Scenario) -> str:
    """The first field that is not modelled for models that attend in both directions, or that read two sequences; empty
    where there is none.
    """
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
