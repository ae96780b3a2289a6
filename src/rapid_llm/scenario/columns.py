"""What the checks look at: numbers of a scenario as columns with a leading plan axis."""

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from math import gcd
from typing import Any

import numpy as np

from rapid_llm.dtypes import Precision, dtype
from rapid_llm.errors import InputError
from rapid_llm.hardware import Accelerator, NodeGroup, System, node_starts, part_of
from rapid_llm.lowering.modules import present
from rapid_llm.model import MLP, CompressedAttention, Model, MoE
from rapid_llm.parallelism import FOLDED, TWO_WAY, Parallelism
from rapid_llm.runtime import EXCHANGES, Runtime, runs_on, usual
from rapid_llm.scenario.expert_columns import expert_columns, experts_of
from rapid_llm.scenario.scenario import Scenario
from rapid_llm.scenario.seating import apart, reached_groups, unseated, used_groups
from rapid_llm.workload import Inference, Training, misplaced


class Columns:
    """``values``: a number for what all plans share, else an array [P], each an attribute as well; ``scenario``: what
    sentences quote."""

    def __init__(self, values: Mapping[str, Any], scenario: Scenario) -> None:
        """Columns by name, of a scenario."""
        self.__dict__.update(values)
        self.values, self.scenario = values, scenario

    def __getattr__(self, name: str) -> Any:
        """No column of that name."""
        raise AttributeError(name)

    def __len__(self) -> int:
        return max((len(value) for value in self.values.values() if isinstance(value, np.ndarray)), default=1)

    def row(self, index: int) -> dict[str, Any]:
        """One plan as whole numbers and names."""
        numbers = {
            name: int(value[index] if isinstance(value, np.ndarray) else value) for name, value in self.values.items()
        }
        return {**numbers, **_names(self.scenario)}


def columns(scenario: Scenario, plans: Mapping[str, Any] | None = None) -> Columns:
    """Columns of a scenario; ``plans`` puts arrays [P] in place of degrees, batch sizes or counts.

    Names: tp pp cp dp ep etp vpp sp zero_stage dp_shard ulysses, exchange (its place in EXCHANGES), shifts, helix and
    divided (tp from cp in placement; 0 or 1), dealt_stages, dealt_layers and idle_stages by hand; of the schedule, 0 or
    1: interleaved, looped (vpp chunks a stage), folded (in a V), two_way, and fewest micro-batches; of the runtime:
    zero_stages (a bit each), pipeline_zero_stage, experts_zero_stage, lacks (an axis), exchanges, window_exchanges and
    latent_exchanges (a bit each), runs_schedule, offloads, offload_zero_stage and experts_need_sp; accelerators,
    node_size, system_accelerators, training (0 or 1), runtime_training, has_rate, has_platform, runs_model, groups,
    before (accelerators of the groups that a job fills before its last one), mixed, vendors, unseated, weight_only
    (cannot be trained), flow, link_faults and misplaced (0 or 1), micro_batch_size, global_batch_size (training),
    sequence_length (prompt and output of an inference request), longest_document, recompute_every, lacks_module (0 or
    1), routed (unevenly), counted_experts, counted_layers, expert_layers, placed, placed_ranks, misplaced_experts,
    copied_experts, popular, expert_adapters, to_drives, has_drives, to_host, unified, experts_leave, runs_host_experts,
    sees_images, has_tower (0 or 1), shown_tokens, batch_size (inference), beams, total_requests, speculates,
    drafts_by_model, decoder_length, read_tokens, output_tokens, predictions, starts_decoder, beyond (what is modelled
    of encoders, 0 or 1), has_draft, draft_tp, draft_heads, draft_vocab, draft_decodes, pooled, and of the model:
    hidden_size, vocab_size, num_hidden_layers, max_position_embeddings, image_tokens, writes, reads_apart (by an
    encoder), sees_both_ways, masked (0 or 1), encoder_positions, window (of sound), num_attention_heads,
    num_key_value_heads, num_state_heads, deals_cache (0 or 1), num_experts, intermediate_size, moe_intermediate_size.
    Where layers differ, a model's size is the greatest common divisor over them, since what divides it divides all; 0
    means that the model has no such thing.
    """
    runtime, plan = scenario.runtime, scenario.parallelism
    seated = bool(scenario.placement.stages)
    system = _system(scenario.system, scenario.accelerators, seated, runtime, scenario.precision)
    own = {**_model(scenario.model), **system, **_plan(plan, runtime), **_workload(scenario), **_places(scenario)}
    given = {name: np.asarray(value, dtype=np.float64) for name, value in (plans or {}).items()}
    return Columns(values={**own, **given}, scenario=scenario)


def _common(sizes: Iterable[int | None]) -> int:
    return gcd(*(size for size in sizes if size))


@lru_cache(maxsize=256)
def _model(model: Model) -> dict[str, int]:
    every = [block for block, _, _ in model.stacks]
    mixers = [mixer for block in every for mixer in (block.mixer, block.cross) if mixer is not None]
    parts = [block.ffn for block in every]
    return {
        "hidden_size": model.hidden_size,
        "vocab_size": model.vocab_size,
        "num_hidden_layers": model.num_hidden_layers,
        "max_position_embeddings": model.max_position_embeddings,
        "image_tokens": model.max_position_embeddings if model.patch_values else 0,
        "writes": model.writes,
        "reads_apart": model.encoder is not None,
        "sees_both_ways": model.crosses or not model.writes,
        "encoder_positions": model.encoder.num_positions if model.encoder and not model.encoder.window else 0,
        "window": model.encoder.window or 0 if model.encoder else 0,
        "masked": model.head != "none" and not model.writes and not model.patch_values,
        "num_attention_heads": _common(getattr(mixer, "num_attention_heads", 0) for mixer in mixers),
        "num_key_value_heads": _common(getattr(mixer, "num_key_value_heads", 0) for mixer in mixers),
        "has_windows": any(getattr(mixer, "sliding_window", None) for mixer in mixers),
        "has_latents": any(mixer.kind == "mla" for mixer in mixers if mixer),
        "num_state_heads": _common(getattr(mixer, "num_value_heads", 0) for mixer in mixers),
        "deals_cache": all(_whole(mixer) for mixer in mixers),
        "num_experts": _common(part.num_experts for part in parts if isinstance(part, MoE)),
        "intermediate_size": _common(part.intermediate_size for part in parts if isinstance(part, MLP)),
        "moe_intermediate_size": _common(part.moe_intermediate_size for part in parts if isinstance(part, MoE)),
    }


def _whole(mixer: object) -> bool:
    """Whether queries meet all tokens of a cache, so that ranks can share these; a recurrent state has none."""
    return not isinstance(mixer, CompressedAttention) and not getattr(mixer, "index_n_heads", None)


@lru_cache(maxsize=256)
def _system(system: System, accelerators: int, seated: bool, runtime: Runtime, precision: Precision) -> dict[str, int]:
    groups = reached_groups(system, accelerators, seated)
    nodes, last = [group.node for group in groups], groups[-1]
    chips = [node.accelerator for node in nodes]
    return {
        "accelerators": accelerators,
        "system_accelerators": system.accelerators,
        "node_size": last.node.accelerators,
        "groups": len(system.groups),
        "before": 0 if seated else sum(group.accelerators for group in groups[:-1]),
        "mixed": len(groups) > 1 and part_of(system, accelerators).mixed,
        "vendors": len({chip.vendor for chip in chips}),
        "has_rate": not _without_rate(groups, precision)[0],
        "has_platform": all(runs_on(runtime, chip.vendor, chip.architecture) for chip in chips),
        "has_drives": all(node.nvme is not None for node in nodes),
        "unified": any(chip.memory.unified for chip in chips),
        "runs_host_experts": runtime.host_experts is not None,
        "weight_only": any(dtype(kept).weight_only for kept in _kept(precision)),
    }


def _without_rate(groups: Sequence[NodeGroup], formats: Precision) -> tuple[str, Accelerator]:
    """The field of ``formats`` in whose format an accelerator has no matrix rate, and which; empty where all do."""
    chips = [group.node.accelerator for group in groups]
    for chip in chips:
        for name in ("compute", "activations"):
            if chip.rate(dtype(getattr(formats, name)).rate) is None:
                return name, chip
    return "", chips[0]


def _kept(precision: Precision) -> tuple[str, str]:
    return precision.weights, precision.of_experts.weights


@lru_cache(maxsize=1024)
def _plan(plan: Parallelism, runtime: Runtime) -> dict[str, int]:
    names = ("tp", "pp", "cp", "dp", "ep", "etp", "vpp", "sp", "zero_stage", "dp_shard", "ulysses")
    dealt = plan.layers_per_stage
    return {
        "dealt_stages": len(dealt),
        "dealt_layers": sum(dealt),
        "idle_stages": sum(layers == 0 for layers in dealt[1:-1]),
        **{name: int(getattr(plan, name) or 0) for name in names},
        "shifts": plan.shift,
        "helix": plan.helix,
        "interleaved": plan.schedule == "interleaved",
        "exchange": EXCHANGES.index(plan.exchange or "ring"),
        **_framework(plan, runtime),
        "looped": plan.schedule in ("interleaved", "breadth-first"),
        "folded": plan.schedule in FOLDED,
        "two_way": plan.schedule in TWO_WAY,
        "fewest": int(_FEWEST.get(plan.schedule or "", 0) * plan.pp),
    }


def _bits(ways: Sequence[str]) -> int:
    return sum(1 << EXCHANGES.index(way) for way in ways)


def _framework(plan: Parallelism, runtime: Runtime) -> dict[str, int]:
    """What the framework of a training job refuses; a serving engine none of it."""
    facts = runtime.training
    if facts is None:
        return _OPEN
    return {
        "pipeline_zero_stage": facts.pipeline_zero_stage,
        "experts_zero_stage": facts.experts_zero_stage,
        "zero_stages": sum(1 << stage for stage in facts.zero_stages),
        "exchanges": _bits(facts.exchange),
        "window_exchanges": _bits(facts.window_exchange),
        "latent_exchanges": _bits(facts.latent_exchange),
        "runs_schedule": not facts.schedules or (plan.schedule or "1f1b") in facts.schedules,
        "lacks": any(getattr(plan, axis) > 1 for axis in facts.without),
        "experts_need_sp": facts.experts_need_sp,
        "offloads": facts.offloads,
        "offload_zero_stage": facts.offload_zero_stage,
        "pipeline_offload": facts.pipeline_offload,
    }


_OPEN = {
    "pipeline_zero_stage": 3,
    "experts_zero_stage": 3,
    "zero_stages": 0b1111,
    "exchanges": 0b1111,
    "window_exchanges": 0b1111,
    "latent_exchanges": 0b1111,
    "runs_schedule": 1,
    "lacks": 0,
    "experts_need_sp": 0,
    "offloads": 1,
    "offload_zero_stage": 0,
    "pipeline_offload": 1,
}
"""What a framework refuses that refuses nothing."""
_FEWEST = {"breadth-first": 1, "dualpipe": 2, "dualpipe-v": 2}
"""Micro-batches per stage that a schedule needs, where it needs more than one in all."""


def _workload(scenario: Scenario) -> dict[str, int]:
    work = scenario.workload
    training = isinstance(work, Training)
    shared = {
        "training": training,
        "runtime_training": scenario.runtime.workload == "training",
        "runs_model": scenario.model.kind in scenario.runtime.runs_models,
    }
    if isinstance(work, Training):
        sizes = {
            "micro_batch_size": work.micro_batch_size,
            "global_batch_size": work.global_batch_size,
            "sequence_length": work.sequence_length,
            "decoder_length": work.decoder_sequence_length or 0,
            "read_tokens": work.sequence_length,
            "output_tokens": 0,
            "predictions": work.predictions or 0,
            "longest_document": max(work.documents, default=0),
            "recompute_every": work.recompute.every if work.recompute else 1,
            "lacks_module": bool(_lacked_module(scenario)),
            **expert_columns(scenario.model, work.routing),
            "to_drives": work.offload.any and work.offload.to == "nvme",
            "to_host": work.offload.any and work.offload.to == "host",
            "optimizer_leaves": work.offload.optimizer > 0,
            "gradients_leave": work.offload.gradients > 0,
            "weights_leave": work.offload.weights > 0,
            "experts_leave": 0,
            "activations_leave": work.offload.activations > 0,
            "expert_adapters": bool(work.lora and "experts" in work.lora.targets),
            "batch_size": 0,
        }
    else:
        sizes = {
            "micro_batch_size": 1,
            "global_batch_size": 0,
            "longest_document": 0,
            "recompute_every": 1,
            "lacks_module": 0,
            **expert_columns(scenario.model, work.routing),
            "expert_adapters": 0,
            "to_drives": work.offload.any and work.offload.to == "nvme",
            "to_host": work.offload.any and work.offload.to == "host",
            "optimizer_leaves": 0,
            "gradients_leave": 0,
            "weights_leave": 0,
            "experts_leave": work.offload.experts > 0,
            "activations_leave": 0,
            "sequence_length": _held(scenario.model, work),
            "decoder_length": 0,
            "read_tokens": work.prompt_tokens,
            "output_tokens": work.output_tokens,
            "predictions": 0,
            "batch_size": (scenario.parallelism.dp or 1) if work.batch_size == "auto" else work.batch_size,
        }
    return {**shared, **sizes, **_generation(scenario)}


def _held(model: Model, work: Inference) -> int:
    """Tokens of one sequence that has a request's prompt and output; of two, the decoder's."""
    return (work.decoder_prompt_tokens if model.encoder else work.prompt_tokens) + work.output_tokens


def _shown(scenario: Scenario) -> int:
    """Tokens that the images of a prompt become among its own; none where cross attention reads them."""
    work, tower = scenario.workload, scenario.model.vision
    if isinstance(work, Training) or work.images is None or tower is None or scenario.model.crosses:
        return 0
    return work.images.count * -(-tower.tokens(work.images.width, work.images.height) // tower.merged)


def _shows(scenario: Scenario) -> bool:
    return not isinstance(scenario.workload, Training) and scenario.workload.images is not None


def _beyond(scenario: Scenario) -> str:
    """The field that asks for what is not modelled where tokens see each other both ways, or not of two sequences;
    empty where none does."""
    work, plan = scenario.workload, scenario.parallelism
    asked: dict[str, bool] = {"parallelism.cp": plan.cp > 1, "pools": scenario.pools is not None}
    if scenario.model.encoder is not None:
        asked["parallelism.pp"] = plan.pp > 1
    elif scenario.model.crosses:
        asked["workload.prefix_tokens"] = not isinstance(work, Training) and work.prefix_tokens > 0
        return next((name for name, given in asked.items() if given), "") if _shows(scenario) else ""
    if isinstance(work, Training):
        asked |= {"workload.documents": bool(work.documents), "workload.mtp_layers": work.mtp_layers > 0}
    else:
        asked |= {
            "workload.prefix_tokens": work.prefix_tokens > 0,
            "workload.speculation": work.speculation is not None,
            "workload.beams": work.beams > 1 and not scenario.model.writes,
        }
    return next((name for name, given in asked.items() if given), "")


def _generation(scenario: Scenario) -> dict[str, int]:
    """What decoding does beside one token of one sequence a step, and who drafts."""
    work, draft = scenario.workload, scenario.draft
    spec = None if isinstance(work, Training) else work.speculation
    own = _model(draft.model) if draft else dict.fromkeys(("num_attention_heads", "vocab_size"), 0)
    return {
        "beams": 1 if isinstance(work, Training) else work.beams,
        "total_requests": 0 if isinstance(work, Training) else work.total_requests or 0,
        "speculates": spec is not None,
        "sees_images": _shows(scenario),
        "shown_tokens": _shown(scenario),
        "has_tower": scenario.model.vision is not None,
        "drafts_by_model": spec is not None and spec.draft == "model",
        "has_draft": draft is not None,
        "draft_tp": draft.tp if draft else 1,
        "draft_heads": own["num_attention_heads"],
        "draft_vocab": own["vocab_size"],
        "draft_decodes": draft is None or draft.model.kind == "decoder",
        "pooled": scenario.pools is not None,
        "beyond": bool(_beyond(scenario)),
        "starts_decoder": not isinstance(work, Training) and work.decoder_prompt_tokens > 1,
    }


def _places(scenario: Scenario) -> dict[str, int]:
    """Whether the job has the places that its faults and its stages name."""
    return {
        "unseated": bool(unseated(scenario)),
        "apart": bool(apart(scenario)),
        "flow": scenario.network == "flow",
        "link_faults": any(fault.of_links for fault in scenario.faults),
        "misplaced": bool(_misplaced(scenario)),
        "divided": _divided(scenario.placement.order),
    }


def _divided(order: tuple[str, ...]) -> bool:
    """Whether another dense axis stands between tp and cp in placement."""
    dense = [axis for axis in order if axis != "ep"]
    return abs(dense.index("tp") - dense.index("cp")) > 1


def _misplaced(scenario: Scenario) -> str:
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


def _lacked(scenario: Scenario) -> str:
    """The first axis of the plan that its framework does not have."""
    axes = scenario.runtime.training.without if scenario.runtime.training else ()
    return next((axis for axis in axes if getattr(scenario.parallelism, axis) > 1), "")


def _lacked_module(scenario: Scenario) -> str:
    """The first part of a layer that is to be computed again and that no layer of the model has."""
    work = scenario.workload
    named = work.recompute.modules if isinstance(work, Training) and work.recompute else ()
    return next((name for name in named if name not in present(scenario.model)), "")


def _runs_on(scenario: Scenario, chip: Accelerator) -> bool:
    return runs_on(scenario.runtime, chip.vendor, chip.architecture)


def _names(scenario: Scenario) -> dict[str, str]:
    groups = used_groups(scenario)
    lacking, chip = _without_rate(groups, scenario.precision)
    strange = (g.node.accelerator for g in groups if not _runs_on(scenario, g.node.accelerator))
    chip, multiplied = next(strange, chip), lacking or "compute"
    facts = scenario.runtime.training
    return {
        "model": scenario.model.name,
        "why_misplaced_experts": misplaced(scenario.workload.routing, experts_of(scenario.model)),
        "draft": scenario.draft.model.name if scenario.draft else "",
        "why_misplaced": _misplaced(scenario),
        "broken": next((str(fault) for fault in scenario.faults if fault.of_links), ""),
        "system": scenario.system.name,
        "accelerator": chip.name,
        "runtime": scenario.runtime.name,
        "platforms": scenario.runtime.runs_on,
        "vendor": chip.vendor,
        "model_kind": scenario.model.kind,
        "beyond_field": _beyond(scenario),
        "vendor_names": list(dict.fromkeys(g.node.accelerator.vendor for g in groups)),
        "group_names": [g.name for g in groups],
        "last_group": groups[-1].name,
        "held": " + ".join(f"{g.count} x {g.node.accelerators}" for g in scenario.system.groups),
        "why_unseated": unseated(scenario),
        "why_apart": apart(scenario),
        "usual_runtime": usual(scenario.workload.kind, chip.vendor, chip.architecture, scenario.model.kind),
        "lacked": _lacked(scenario),
        "lacked_module": _lacked_module(scenario),
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
            (kept for kept in _kept(scenario.precision) if dtype(kept).weight_only), scenario.precision.weights
        ),
        "rate": dtype(getattr(scenario.precision, multiplied)).rate,
        "rates": ", ".join(sorted(chip.peak)),
        "sixteen_bit": "bf16" if chip.rate("bf16") else "fp16",
    }
