"""What the checks look at of a job: batches, lengths, what leaves the accelerator, and how decoding goes."""

from rapid_llm.model import Model
from rapid_llm.scenario.expert_columns import expert_columns
from rapid_llm.scenario.model_columns import model_columns
from rapid_llm.scenario.quoted import beyond_modelled, lacked_module, shows_images
from rapid_llm.scenario.scenario import Scenario
from rapid_llm.workload import Inference, Training


def work_columns(scenario: Scenario) -> dict[str, int]:
    """Numbers of a job; 0 in the fields that its kind does not have.

    ``sequence_length``: prompt and output of an inference request; ``read_tokens`` of it by an encoder or the prompt
    alone; ``..._leave``: states that are offloaded.
    """
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
            "lacks_module": bool(lacked_module(scenario)),
            **expert_columns(scenario.model, work.routing),
            "to_drives": work.offload.any and work.offload.to == "nvme",
            "to_host": work.offload.any and work.offload.to == "host",
            "optimizer_leaves": work.offload.optimizer > 0,
            "gradients_leave": work.offload.gradients > 0,
            "weights_leave": work.offload.weights > 0,
            "experts_leave": 0,
            "activations_leave": work.offload.activations > 0,
            "adapts": bool(work.lora),
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
            "adapts": 0,
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


def _generation(scenario: Scenario) -> dict[str, int]:
    """What decoding does beside one token of one sequence a step, and who drafts; ``beyond``: whether that is more
    than is modelled of encoders."""
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
