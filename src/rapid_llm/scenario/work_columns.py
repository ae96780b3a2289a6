"""What the checks look at of a job: batches, lengths, what leaves the accelerator, and how decoding goes."""

from rapid_llm.model import Model
from rapid_llm.scenario.expert_columns import expert_columns
from rapid_llm.scenario.model_columns import model_columns
from rapid_llm.scenario.quoted import beyond_modelled, lacked_module, shows_images
from rapid_llm.scenario.scenario import Scenario
from rapid_llm.workload import Inference, Training


def work_columns(scenario: Scenario) -> dict[str, int]:
    """Numbers of a job, those of the other kind of job 0 (or 1, of what multiplies).

    ``sequence_length``: prompt and output of an inference request; ``read_tokens``: those of it that an encoder reads,
    or the prompt alone; ``..._leave``: states that are offloaded.
    """
    work = scenario.workload
    both = {
        "training": isinstance(work, Training),
        "runtime_training": scenario.runtime.workload == "training",
        "runs_model": scenario.model.kind in scenario.runtime.runs_models,
        "lacks_module": bool(lacked_module(scenario)),
        "to_drives": work.offload.any and work.offload.to == "nvme",
        "to_host": work.offload.any and work.offload.to == "host",
        **expert_columns(scenario.model, work.routing),
    }
    own = _trained(work) if isinstance(work, Training) else _served(work, scenario)
    return {**_OF_THE_OTHER_KIND, **both, **own, **_generation(scenario)}


def _trained(work: Training) -> dict[str, int]:
    return {
        "micro_batch_size": work.micro_batch_size,
        "global_batch_size": work.global_batch_size,
        "sequence_length": work.sequence_length,
        "decoder_length": work.decoder_sequence_length or 0,
        "read_tokens": work.sequence_length,
        "predictions": work.predictions or 0,
        "longest_document": max(work.documents, default=0),
        "recompute_every": work.recompute.every if work.recompute else 1,
        "optimizer_leaves": work.offload.optimizer > 0,
        "gradients_leave": work.offload.gradients > 0,
        "weights_leave": work.offload.weights > 0,
        "activations_leave": work.offload.activations > 0,
        "adapts": bool(work.lora),
        "expert_adapters": bool(work.lora and "experts" in work.lora.targets),
    }


def _served(work: Inference, scenario: Scenario) -> dict[str, int]:
    return {
        "sequence_length": _held(scenario.model, work),
        "read_tokens": work.prompt_tokens,
        "output_tokens": work.output_tokens,
        "batch_size": (scenario.parallelism.dp or 1) if work.batch_size == "auto" else work.batch_size,
        "experts_leave": work.offload.experts > 0,
    }


_OF_THE_OTHER_KIND = {
    "micro_batch_size": 1,
    "global_batch_size": 0,
    "decoder_length": 0,
    "predictions": 0,
    "longest_document": 0,
    "recompute_every": 1,
    "optimizer_leaves": 0,
    "gradients_leave": 0,
    "weights_leave": 0,
    "activations_leave": 0,
    "adapts": 0,
    "expert_adapters": 0,
    "output_tokens": 0,
    "batch_size": 0,
    "experts_leave": 0,
}
"""What stands in the columns that a kind of job does not have."""


def _held(model: Model, work: Inference) -> int:
    """Tokens of a request's sequence at its end: prompt and output; with an encoder, those of the decoder."""
    return (work.decoder_prompt_tokens if model.encoder else work.prompt_tokens) + work.output_tokens


def _shown(scenario: Scenario) -> int:
    """Tokens that images add to a prompt; none where cross attention reads them."""
    work, tower = scenario.workload, scenario.model.vision
    if isinstance(work, Training) or work.images is None or tower is None or scenario.model.crosses:
        return 0
    return work.images.count * -(-tower.tokens(work.images.width, work.images.height) // tower.merged)


def _generation(scenario: Scenario) -> dict[str, int]:
    """What a decode step does beyond one token for each sequence, and what drafts; ``beyond``: whether that is more
    than is modelled for encoders.
    """
    work, draft = scenario.workload, scenario.draft
    spec = None if isinstance(work, Training) else work.speculation
    own = model_columns(draft.model) if draft else dict.fromkeys(("num_attention_heads", "vocab_size"), 0)
    return {
        "beams": 1 if isinstance(work, Training) else work.beams,
        "total_requests": 0 if isinstance(work, Training) else work.total_requests or 0,
        "speculates": spec is not None,
        "sees_images": shows_images(scenario),
        "shown_tokens": _shown(scenario),
        "has_tower": scenario.model.vision is not None,
        "drafts_by_model": spec is not None and spec.draft == "model",
        "has_draft": draft is not None,
        "draft_tp": draft.tp if draft else 1,
        "draft_heads": own["num_attention_heads"],
        "draft_vocab": own["vocab_size"],
        "draft_decodes": draft is None or draft.model.kind == "decoder",
        "pooled": scenario.pools is not None,
        "beyond": bool(beyond_modelled(scenario)),
        "starts_decoder": not isinstance(work, Training) and work.decoder_prompt_tokens > 1,
    }
